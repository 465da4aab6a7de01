/* Fuzz targets: one file fuzz_<parser>.c each, linked with driver.c (tests.cmake finds both).
 *
 * A target feeds untrusted bytes to one parser and checks with abort() what must hold of its result.  With clang,
 * -Dcalm_fuzz_one=LLVMFuzzerTestOneInput makes the same file a libFuzzer target. */
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

#endif
