# Writes generated/calm_commit.h with the commit of the build; leaves a correct file alone.  Outside of a repository
# the commit is that of packages/commit.txt, which git fills in when it makes an archive; else "".
#   cmake -DSOURCE=DIR -DHEADER=FILE -P commit.cmake
cmake_minimum_required(VERSION 3.25)    # a script has no policies of the project: @commit@ is for file() alone
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=-modified --abbrev=40 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
  OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed OR NOT root STREQUAL SOURCE)
  set(commit "")
  if(EXISTS ${SOURCE}/packages/commit.txt)
    file(STRINGS ${SOURCE}/packages/commit.txt commit LIMIT_COUNT 1)
  endif()
  if(NOT commit MATCHES "^[0-9a-f]+$")
    set(commit "")
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define CALM_COMMIT \"@commit@\"\n" @ONLY)
