# Tests of the installed library, as programs outside of the tree use it.
set(sanitize)
if(CALM_SANITIZE)
  set(sanitize -fsanitize=${CALM_SANITIZE})
endif()
add_test(NAME library.consumers
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/library/consumers.sh ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${sanitize})
set_tests_properties(library.consumers PROPERTIES TIMEOUT 900)
add_test(NAME library.exports
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/library/exports.sh $<TARGET_FILE:calm_shared> ${PROJECT_SOURCE_DIR}/calm.h)
find_program(CALM_PYTHON3 python3)
if(CALM_PYTHON3 AND NOT CALM_SANITIZE)    # a sanitized library does not load into Python
  add_test(NAME library.python_structs
    COMMAND ${CALM_PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/library/python_structs.py ${PROJECT_SOURCE_DIR}/calm.h
      $<TARGET_FILE:calm_shared> ${PROJECT_SOURCE_DIR}/python/calm_ptq)
  # The Python package with the library, and its notebook, by $CALM_PYTHON, else by python3 if it has what they need.
  foreach(book IN ITEMS api notebook)
    set(file "$<$<STREQUAL:${book},notebook>:${PROJECT_SOURCE_DIR}/python/examples/quantize.ipynb>")
    add_test(NAME library.python_${book}
      COMMAND sh -c "exec \"\${CALM_PYTHON:-${CALM_PYTHON3}}\" \"$@\"" sh ${CMAKE_CURRENT_SOURCE_DIR}/library/python_api.py
        $<TARGET_FILE:calm_shared> $<TARGET_FILE:calm> ${PROJECT_SOURCE_DIR}/python ${file} COMMAND_EXPAND_LISTS)
    set_tests_properties(library.python_${book} PROPERTIES ENVIRONMENT "${CALM_TEST_ENVIRONMENT}" TIMEOUT 900
      SKIP_RETURN_CODE 77)
  endforeach()
endif()
