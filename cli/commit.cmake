# Write generated/calm_commit.h: the commit that is built, "" outside a repository; left alone when it says so already.
#   cmake -DSOURCE=DIR -DHEADER=FILE -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=-modified --abbrev=40 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
  OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed OR NOT root STREQUAL SOURCE)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define CALM_COMMIT \"@commit@\"\n" @ONLY)
