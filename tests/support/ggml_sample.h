/* Blocks of a ggml type with arbitrary bytes: bytes of one value, extreme scales, and bytes of a generator that
 * tests/golden/make_ggml_digests.py has too. */
#ifndef CALM_TESTS_SUPPORT_GGML_SAMPLE_H
#define CALM_TESTS_SUPPORT_GGML_SAMPLE_H

#include "ptq/io/ggml_type.h"

#define GGML_SAMPLE_BLOCKS 96

/* Returns the blocks in ctx->out; *bytes: their size. */
uint8_t *ggml_sample(calm_ggml_type type, size_t *bytes);

#endif
