/* Fuzz targets: one file fuzz_<parser>.c each, linked with harness_files.c and driver.c (tests.cmake finds them).
 *
 * A target feeds untrusted bytes to one parser and checks with abort() what must hold of its result.  With clang and
 * -DCALM_FUZZER=ON the same file becomes a libFuzzer target, without driver.c (tests/fuzz/run, docs/fuzzing.md). */
#ifndef CALM_TESTS_FUZZ_H
#define CALM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "ptq/base/context.h"

/* Run the target on one input of `size` bytes; returns 0.  `data` has no byte after its end. */
int calm_fuzz_one(const uint8_t *data, size_t size);

/* A fresh context over two arenas; the one from the call before is cleared. */
calm_ctx *fuzz_context(void);

/* A file with these bytes, for parsers that read paths; the same path in every call, removed at the end. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t size);

/* Make the folder of those files, if there is none yet; exits when it cannot be made.  Removed at exit(). */
void fuzz_make_folder(void);

#endif
