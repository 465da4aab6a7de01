# One test per rule of lint.sh, and one that checks that each rule can fail.
foreach(rule IN ITEMS layers rooms registries docstrings sizes skips forbidden names prefixes untested cycles tags columns dead comments words kinds)
  add_test(NAME lint.${rule} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/lint/lint.sh ${rule})
endforeach()
add_test(NAME lint.selftest COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/lint/selftest.sh)
