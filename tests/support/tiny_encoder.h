/* Tiny random BERT checkpoints, written to a temporary directory of the running test. */
#ifndef CALM_TESTS_TINY_ENCODER_H
#define CALM_TESTS_TINY_ENCODER_H

#include <stddef.h>
#include <stdint.h>

typedef struct tiny_encoder {
    size_t hidden, inner, n_blocks, vocab, n_heads, positions;
    uint64_t seed;
    const char *nan_in;    /* element 0 of this tensor is NaN; NULL: none */
} tiny_encoder;

/* 2 blocks, hidden 32, inner 48, 4 heads, vocabulary 61, 40 positions, float32, with a pooler. */
extern const tiny_encoder tiny_encoder_default;

/* Writes config.json and model.safetensors; the directory lives until the end of the test. */
const char *tiny_encoder_write(const tiny_encoder *model);

#endif
