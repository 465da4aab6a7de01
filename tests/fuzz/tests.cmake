# Every fuzz_<parser>.c with the driver, over its corpus/<parser> and mutations of it; with CALM_FUZZER with libFuzzer
# in the driver's place, for tests/fuzz/run.
set(CALM_FUZZ_MUTATIONS 2000 CACHE STRING "mutations of each corpus file that a fuzz test runs")
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(target IN LISTS targets)
  cmake_path(GET target STEM name)
  string(REGEX REPLACE "^fuzz_" "" parser ${name})
  add_executable(${name} fuzz/harness_files.c ${target})
  target_link_libraries(${name} PRIVATE calm_export calm_hub calm_cli)
  if(CALM_FUZZER)
    target_compile_definitions(${name} PRIVATE calm_fuzz_one=LLVMFuzzerTestOneInput)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    continue()
  endif()
  target_sources(${name} PRIVATE fuzz/driver.c)
  add_test(NAME fuzz.${parser}
    COMMAND ${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${parser} ${CALM_FUZZ_MUTATIONS})
  set_tests_properties(fuzz.${parser} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600)
endforeach()
