# Every fuzz_<parser>.c with the driver, over its corpus/<parser> and mutations of it.
set(CALM_FUZZ_MUTATIONS 2000 CACHE STRING "mutations of each corpus file that a fuzz test runs")
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(target IN LISTS targets)
  cmake_path(GET target STEM name)
  string(REGEX REPLACE "^fuzz_" "" parser ${name})
  add_executable(${name} fuzz/driver.c ${target})
  target_link_libraries(${name} PRIVATE calm_hybrid calm_hub calm_cli)
  add_test(NAME fuzz.${parser}
    COMMAND ${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${parser} ${CALM_FUZZ_MUTATIONS})
  set_tests_properties(fuzz.${parser} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 600)
endforeach()
