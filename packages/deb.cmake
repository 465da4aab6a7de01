# cpack -G DEB: calm, calm-demo-model, libcalm0 and libcalm-dev.  Configure with CMAKE_INSTALL_PREFIX=/usr and
# CALM_PACKAGED=ON; with SOURCE_DATE_EPOCH the packages have the same bytes every time (tests/packages.sh).
set(CALM_MAINTAINER "calm maintainers <maintainers@calm.invalid>" CACHE STRING "who answers for the packages")
set(CPACK_GENERATOR DEB)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_NAME calm)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR calm)
set(CPACK_PACKAGE_CONTACT "${CALM_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program model library devel)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME calm)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS ca-certificates)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "calm-demo-model")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "post-training quantization of language models
A checkpoint of Hugging Face becomes a smaller one that transformers, vLLM,
SGLang, llama.cpp or MLX load.  Several algorithms run on every layer, each is
scored on calibration text, and the best is taken per layer; the evidence is
kept in a SQLite file.")

set(CPACK_DEBIAN_MODEL_PACKAGE_NAME calm-demo-model)
set(CPACK_DEBIAN_MODEL_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MODEL_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_MODEL_PACKAGE_ENHANCES calm)
set(CPACK_COMPONENT_MODEL_DESCRIPTION "demo model of calm, 5.2 million parameters
A small language model of the Qwen family for a first quantization with calm,
which knows it as qwen.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libcalm${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "post-training quantization of language models (library)
The functions of calm as a shared library: recipes, runs, evaluations, checks,
and the algorithms on plain matrices.")

set(CPACK_DEBIAN_DEVEL_PACKAGE_NAME libcalm-dev)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS "libcalm${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}-1)")
set(CPACK_DEBIAN_DEVEL_PACKAGE_SUGGESTS "libopenblas-dev, liblapacke-dev, libsqlite3-dev, libjansson-dev, libpcre2-dev, \
libutf8proc-dev, libssl-dev, libcurl4-openssl-dev, zlib1g-dev")    # for linking libcalm.a
set(CPACK_COMPONENT_DEVEL_DESCRIPTION "post-training quantization of language models (development)
Header, static library, pkg-config file and CMake package of calm.")

# Files that Debian's policy demands next to those of the program.
if(CALM_PACKAGED AND CALM_GZIP)
  string(TIMESTAMP CALM_DEB_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
  configure_file(packages/changelog.in ${PROJECT_BINARY_DIR}/deb/changelog.Debian @ONLY)
  configure_file(packages/copyright ${PROJECT_BINARY_DIR}/deb/copyright COPYONLY)
  configure_file(CHANGELOG.md ${PROJECT_BINARY_DIR}/deb/changelog COPYONLY)
  execute_process(COMMAND ${CALM_GZIP} -9nkf changelog changelog.Debian WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/deb
    COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${PROJECT_BINARY_DIR}/deb/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/calm COMPONENT program)
  foreach(pair IN ITEMS program:calm model:calm-demo-model library:libcalm${PROJECT_VERSION_MAJOR} devel:libcalm-dev)
    string(REGEX MATCH "(.*):(.*)" pair ${pair})
    install(FILES ${PROJECT_BINARY_DIR}/deb/changelog.Debian.gz ${PROJECT_BINARY_DIR}/deb/copyright
      DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CMAKE_MATCH_2} COMPONENT ${CMAKE_MATCH_1})
  endforeach()
endif()
include(CPack)
