# Quantized checkpoints in the engines that run them; an hour of one core, so only where CALM_ENGINES names Python environments.
add_test(NAME engines.losses COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/engines/losses.sh ${PROJECT_BINARY_DIR})
set_tests_properties(engines.losses PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 10800 SKIP_RETURN_CODE 77
  LABELS "engines;slow")
# Messages of the script about environments without an engine, with an old one, and with an engine that dies.
add_test(NAME engines.refusals COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/engines/refusals.sh ${PROJECT_BINARY_DIR})
set_tests_properties(engines.refusals PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 300)
