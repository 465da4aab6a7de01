# Programs for measuring, built with the tests; check_tools.sh runs them.
add_executable(make_checkpoint tools/make_checkpoint.c)
target_link_libraries(make_checkpoint PRIVATE calm_test_synth)
add_executable(peak_memory tools/peak_memory.c)
target_link_libraries(peak_memory PRIVATE calm_base)
add_test(NAME tools.check COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_tools.sh ${CMAKE_CURRENT_BINARY_DIR})
set_tests_properties(tools.check PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300)
