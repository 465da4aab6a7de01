# Every cases/NAME.case, by run_case.sh, and the tests of a program that is killed, refused or resumed.
add_executable(json_shape program/json_shape.c)
target_link_libraries(json_shape PRIVATE calm_io)
add_executable(hub_serve program/hub_serve.c)
target_link_libraries(hub_serve PRIVATE calm_test_hub)
add_executable(store_sql program/store_sql.c)
target_link_libraries(store_sql PRIVATE calm_store)
add_executable(delay_link program/delay_link.c)
target_link_libraries(delay_link PRIVATE calm_base)
file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/program/cases/*.case)
foreach(case IN LISTS cases)
  cmake_path(GET case STEM name)
  add_test(NAME program.${name}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/program/run_case.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR} ${case})
  set_tests_properties(program.${name} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}"
    ENVIRONMENT_MODIFICATION "${CALM_TEST_UNSET}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endforeach()
add_library(calm_test_program STATIC program/program.c)
target_link_libraries(calm_test_program PUBLIC calm_test_play)
target_compile_definitions(calm_test_program PRIVATE CALM_PROGRAM="$<TARGET_FILE:calm>"
  CALM_FAULT_SHIM="$<TARGET_FILE:fault_shim>")
add_dependencies(calm_test_program calm fault_shim)
calm_test(program test_resume calm_test_program)
calm_test(program test_program_kills calm_test_program)
calm_test(program test_program_refusals calm_test_program)
set_tests_properties(program.test_program_kills program.test_program_refusals PROPERTIES TIMEOUT 900)    # thousands of runs
if(NOT CALM_SANITIZE)    # an emulator
  add_test(NAME program.other_cpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/program/other_cpu.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(program.other_cpu PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600
    SKIP_RETURN_CODE 77)
endif()
if(NOT CALM_SANITIZE)    # most of it is Python
  add_test(NAME program.post_report
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/program/post_report.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(program.post_report PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}"
    ENVIRONMENT_MODIFICATION "${CALM_TEST_UNSET}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
foreach(part IN ITEMS two more learn kill delay slurm refuse)    # skipped without mpirun, or where calm was built without MPI
  add_test(NAME program.ranks_${part}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/program/ranks.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR} ${part})
  set_tests_properties(program.ranks_${part} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}"
    ENVIRONMENT_MODIFICATION "${CALM_TEST_UNSET}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
endforeach()
