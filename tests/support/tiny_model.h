/* Tiny random Qwen3 checkpoints, written to a temporary directory of the running test. */
#ifndef CALM_TESTS_TINY_MODEL_H
#define CALM_TESTS_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptq/io/windows.h"
#include "ptq/tensor/dtype.h"

typedef struct tiny_model {
    size_t hidden, inner, n_blocks, vocab, n_heads, n_kv, head_dim;
    size_t window;               /* blocks with an odd number slide over so many keys; 0: none do */
    bool tied, bias;
    calm_dtype dtype;            /* of all tensors: F32, F16 or BF16                              */
    uint64_t seed;

    /* What is wrong with it, each NULL for nothing. */
    const char *missing;         /* this tensor is left out                                       */
    const char *as_integers;     /* this one is written as I32                                    */
    const char *transposed;      /* this one has its sizes exchanged                              */
    const char *nan_in;          /* element nan_at of this one is NaN                             */
    size_t nan_at;
} tiny_model;

/* 2 blocks, hidden 32, inner 48, 4 heads of 8 over 2 for keys and values, vocabulary 61, tied, BF16. */
extern const tiny_model tiny_default;

/* Write config.json and model.safetensors; the directory lives until the end of the test. */
const char *tiny_model_write(const tiny_model *model);

/* Write only config.json into `dir`, replacing it. */
void tiny_model_write_config(const tiny_model *model, const char *dir);

/* Windows of these lengths with random ids below tiny_default's vocabulary, in ctx->out. */
calm_windows tiny_windows(const size_t *lengths, size_t n);

#endif
