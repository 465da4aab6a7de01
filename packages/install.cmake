# cmake --install, in the components that the packages consist of:
#
#   program   calm, its manual pages and completions, recipes and texts (share/calm), pages of docs/
#   model     the demo model, below share/calm/recipes/models
#   library   libcalm.so.N
#   devel     calm.h, libcalm.so, libcalm.a, pkg-config, CMake package
set(CALM_SHARE ${CMAKE_INSTALL_DATADIR}/calm)
set(CALM_DOC ${CMAKE_INSTALL_DATADIR}/doc/calm)

# Manual pages and completions are made from the tables of options.  SOURCE_DATE_EPOCH sets their date.
string(TIMESTAMP CALM_DATE "%Y-%m-%d" UTC)
file(GLOB sources CONFIGURE_DEPENDS cli/manual/*.c)
add_executable(calm_manual ${sources})
target_link_libraries(calm_manual PRIVATE calm_cli)
set(CALM_MANUAL ${PROJECT_BINARY_DIR}/manual)
file(STRINGS cli/commands.def commands REGEX "^CALM_COMMAND")
list(TRANSFORM commands REPLACE "CALM_COMMAND\\((.*)\\)" "calm-\\1")
list(PREPEND commands calm)
list(TRANSFORM commands REPLACE "(.+)" "${CALM_MANUAL}/man/\\1.1" OUTPUT_VARIABLE pages)
set(scripts ${CALM_MANUAL}/bash/calm ${CALM_MANUAL}/zsh/_calm ${CALM_MANUAL}/fish/calm.fish)
file(GLOB recipes CONFIGURE_DEPENDS recipes/*.json)
add_custom_command(OUTPUT ${pages} ${scripts}
  COMMAND ${CMAKE_COMMAND} -E env CALM_HOME=${PROJECT_SOURCE_DIR} $<TARGET_FILE:calm_manual> ${CALM_MANUAL} ${CALM_DATE}
  DEPENDS calm_manual recipes/models/aliases.json ${recipes} COMMENT "manual pages and completions")
set(CALM_PAGES_INSTALLED ${pages})
find_program(CALM_GZIP gzip)
if(CALM_GZIP)    # as distributions have them, without the time of packing
  list(TRANSFORM pages APPEND .gz OUTPUT_VARIABLE CALM_PAGES_INSTALLED)
  add_custom_command(OUTPUT ${CALM_PAGES_INSTALLED} COMMAND ${CALM_GZIP} -9nkf ${pages} DEPENDS ${pages}
    COMMENT "manual pages, compressed")
endif()
add_custom_target(calm_manual_files ALL DEPENDS ${CALM_PAGES_INSTALLED} ${scripts})

install(TARGETS calm RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(DIRECTORY recipes DESTINATION ${CALM_SHARE} COMPONENT program PATTERN qwen-demo EXCLUDE)
install(DIRECTORY recipes/models/qwen-demo DESTINATION ${CALM_SHARE}/recipes/models COMPONENT model)
install(FILES ${CALM_PAGES_INSTALLED} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${CALM_MANUAL}/bash/calm DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${CALM_MANUAL}/zsh/_calm DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT program)
install(FILES ${CALM_MANUAL}/fish/calm.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
  COMPONENT program)
install(FILES README.md DESTINATION ${CALM_DOC} COMPONENT program)
install(DIRECTORY docs DESTINATION ${CALM_DOC} COMPONENT program)

if(NOT CALM_PACKAGED)    # else under the name of policy
  install(FILES CHANGELOG.md DESTINATION ${CALM_DOC} COMPONENT program)
endif()

install(TARGETS calm_shared EXPORT calm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  NAMELINK_COMPONENT devel)
install(TARGETS calm_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel)
install(FILES calm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel)
file(RELATIVE_PATH CALM_PC_UP /root/${CMAKE_INSTALL_LIBDIR}/pkgconfig /root/)    # wherever it is installed
configure_file(ptq/api/calm.pc.in calm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/calm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT devel)
install(EXPORT calm NAMESPACE calm:: FILE calmConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/calm
  COMPONENT devel)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/calmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/calmConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/calm
  COMPONENT devel)

# An archive of the source of a commit: the same bytes every time, with the commit's name in packages/commit.txt.
add_custom_target(dist COMMAND git -C ${PROJECT_SOURCE_DIR} archive --format=tar.gz --prefix=calm-${PROJECT_VERSION}/
  -o ${PROJECT_BINARY_DIR}/calm-${PROJECT_VERSION}.tar.gz HEAD COMMENT "calm-${PROJECT_VERSION}.tar.gz")

include(packages/deb.cmake)
