# Programs for measuring, built with the tests; check_tools.sh runs them.
add_library(calm_test_tool STATIC tools/tool.c tools/page.c)
target_link_libraries(calm_test_tool PUBLIC calm_base)
add_executable(make_checkpoint tools/make_checkpoint.c)
target_link_libraries(make_checkpoint PRIVATE calm_test_tool calm_test_synth)
add_executable(make_store tools/make_store.c)
target_link_libraries(make_store PRIVATE calm_test_tool calm_test_synth_store)
add_executable(store_doc tools/store_doc.c)
target_link_libraries(store_doc PRIVATE calm_test_tool calm_test_synth_store calm_cli)
add_executable(make_twin tools/make_twin.c tools/twin.c tools/twin_outliers.c tools/twin_split.c tools/twin_first_token.c)
target_link_libraries(make_twin PRIVATE calm_test_tool calm_model)
add_executable(make_adapter tools/make_adapter.c)
target_link_libraries(make_adapter PRIVATE calm_test_tool calm_model)
add_executable(compare_tensors tools/compare_tensors.c)
target_link_libraries(compare_tensors PRIVATE calm_test_tool calm_io)
add_executable(break_checkpoint tools/break_checkpoint.c)
target_link_libraries(break_checkpoint PRIVATE calm_test_tool calm_test_faults)
add_executable(make_malformed tools/make_malformed.c)
target_link_libraries(make_malformed PRIVATE calm_test_tool)
add_executable(peak_memory tools/peak_memory.c)
target_link_libraries(peak_memory PRIVATE calm_base)
add_test(NAME tools.check COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_tools.sh ${CMAKE_CURRENT_BINARY_DIR})
set_tests_properties(tools.check PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300)
# Parts of docs/ that `ninja docs` makes from tables of the program, and a test for each.
add_executable(pages tools/pages.c)
target_link_libraries(pages PRIVATE calm_test_tool calm_cli)
foreach(page IN ITEMS commands:docs/commands.md keys:docs/recipes.md rules:docs/check.md metrics:docs/method.md
    algorithms:docs/method.md python:python/calm_ptq/_quantize.pyi
    keywords:python/calm_ptq/_keywords.py)
  string(REGEX MATCH "(.*):(.*)" page ${page})
  set(command pages --page ${CMAKE_MATCH_1} --docs ${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_2})
  add_test(NAME docs.${CMAKE_MATCH_1} COMMAND ${command})
  list(APPEND CALM_PAGES COMMAND ${command} --update)
endforeach()
# The schema and the rows of queries in docs/store.md.
set(command store_doc --docs ${PROJECT_SOURCE_DIR}/docs/store.md)
add_test(NAME docs.store COMMAND ${command})
set_tests_properties(docs.store PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300)
# Keys of --json and columns of calm inspect, from runs on a small model.
set(json_pages ${CMAKE_CURRENT_SOURCE_DIR}/tools/json_pages.sh ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR})
if(NOT CALM_SANITIZE)    # the output does not depend on sanitizers
  add_test(NAME docs.json COMMAND ${json_pages})
  set_tests_properties(docs.json PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}"
    ENVIRONMENT_MODIFICATION "${CALM_TEST_UNSET}" TIMEOUT 600)
  # The commands of pages for users of other tools.
  foreach(page IN ITEMS from-llm-compressor-auto-round from-llama-quantize for-researchers in-ci)
    add_test(NAME docs.run_${page} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/run_pages.sh
      ${PROJECT_BINARY_DIR}:${CMAKE_CURRENT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/docs/${page}.md)
    set_tests_properties(docs.run_${page} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}"
      ENVIRONMENT_MODIFICATION "${CALM_TEST_UNSET}" TIMEOUT 600 SKIP_RETURN_CODE 77)
  endforeach()
endif()
add_custom_target(docs ${CALM_PAGES} COMMAND ${command} --update
  COMMAND ${CMAKE_COMMAND} -E env CALM_HOME=${PROJECT_SOURCE_DIR} ${json_pages} --update COMMENT "pages of docs/")
add_dependencies(docs calm json_shape write_families)
# Runs the Dockerfile in minimal systems.
add_test(NAME tools.container COMMAND sh -c "[ -n \"$CALM_BARE\" ] || { echo 'SKIP: CALM_BARE=1 asks for it'; exit 77; }; exec \"$0\""
  ${CMAKE_CURRENT_SOURCE_DIR}/container.sh)
set_tests_properties(tools.container PROPERTIES TIMEOUT 7200 SKIP_RETURN_CODE 77 LABELS slow)
if(NOT CALM_SANITIZE)    # scripts that read the source
  # Links, files and names in pages; the size of README.md.
  add_test(NAME docs.names COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_pages.sh)
  # Container, conda and Homebrew recipes, and the SBOM, against packages.txt.
  add_test(NAME tools.packaging COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/packaging.sh)
endif()
# Imitates a failing machine, for LD_PRELOAD; without sanitizers, whose runtime would have to be loaded first.
add_library(fault_shim SHARED tools/fault_shim.c support/faults.c)
target_include_directories(fault_shim PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(fault_shim PRIVATE _GNU_SOURCE)
# An OpenBLAS that does not know the CPU, likewise.
add_library(old_blas_shim SHARED tools/old_blas_shim.c)
target_compile_definitions(old_blas_shim PRIVATE _GNU_SOURCE)
target_link_libraries(old_blas_shim PRIVATE ${CMAKE_DL_LIBS})
add_executable(kernel_families tools/kernel_families.c)
target_link_libraries(kernel_families PRIVATE calm_tensor)
