/* Learners: parts that see a whole block - its linears, its norms, and a loss with gradients - and make its codes,
 * scales and norms better for that loss.
 *
 *   O output features   I input features   G = ceil(I / group) of one linear
 *
 * A learner sees arrays and a function, never files or models.  It changes a block that chains have quantized, so it is
 * no step of a chain: `calm algorithms` lists it under its kind, `block`. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/qjob.h"

/* One linear as the block computes it: input scales are folded. */
typedef struct calm_learn_linear {
    const char *name;           /* for messages                                                          */
    calm_scheme scheme;
    size_t out, in, group, n_groups;
    const float *w;             /* [O, I] the float weight                                               */
    uint8_t *codes;             /* [O, I] at first those of the start, then the learned ones             */
    float *scales;              /* [O, G] likewise, rounded as the scheme stores them                      */
    const uint8_t *zeros;       /* [O, G]; NULL: symmetric                                               */
    const float *mins;          /* [O, G]; NULL: none                                                    */
    float global;               /* scales are multiples of this; 0: none                                 */
    float *effective;           /* [O, I] the weights of codes, scales and zeros; the loss reads them    */
    const float *grad;          /* [O, I] gradient of the loss by `effective`; the loss writes it        */
} calm_learn_linear;

/* One vector of the block: the weight of a norm, which multiplies, or a bias, which is added. */
typedef struct calm_learn_vector {
    const char *name;           /* for messages                                                          */
    size_t n;
    calm_dtype dtype;           /* the file holds values - offset in it: F32, F16 or BF16                */
    float offset;               /* 1 of norms that are stored less one, else 0                           */
    float unit;                 /* 0: factors, learned by their logarithm; else terms, in this unit      */
    float *values;              /* [n] at first those of the start, then learned; the loss reads them    */
    const float *grad;          /* [n] gradient of the loss by `values`; the loss writes it              */
} calm_learn_vector;

/* Compute the loss on window `window`, from 0 (short windows are joined); with `gradients` also all `grad` arrays. */
typedef calm_status calm_learn_loss_fn(void *user, calm_ctx *ctx, size_t window, bool gradients, double *loss);

typedef struct calm_learn_problem {
    calm_learn_linear *linears;        /* [n_linears]                      */
    size_t n_linears;
    calm_learn_vector *vectors;        /* [n_vectors]                      */
    size_t n_vectors, n_windows;
    calm_learn_loss_fn *loss;
    calm_tick_fn *tick;                /* after each step; NULL: none      */
    void *user;                        /* for loss and tick                */
} calm_learn_problem;

/* Result of learning. */
typedef struct calm_learn_outcome {
    double before, after;    /* mean loss of the same few windows, at the start and at the end; NaN: none       */
    size_t changed, codes;   /* number of codes that differ from the start's; of all codes                      */
    const char *kept;        /* why the block was not changed, in ctx->out; NULL: it was learned                */
} calm_learn_outcome;

/* A learner with its options, opaque; in ctx->out. */
typedef struct calm_learner calm_learner;

/* Parse "learn" or "learn(steps=100)".  CALM_EARG: no part of kind `block` has this name, or a bad option. */
calm_status calm_learner_parse(calm_ctx *ctx, const char *text, calm_learner **out);

/* Name, revision and every option: "learn@1(steps=200,...)"; enters the keys of what is learned. */
const char *calm_learner_canonical(const calm_learner *learner);

/* The number of losses with gradients, and without, that learning one block with n_windows windows computes. */
void calm_learner_losses(const calm_learner *learner, size_t n_windows, size_t *steps, size_t *checks);

/* Windows shorter than this are joined to windows of this many tokens. */
size_t calm_learner_tokens(const calm_learner *learner);

/* Does it change linears of this scheme?  At 8 bits with one scale per row there is nothing to learn. */
bool calm_learner_changes(const calm_learner *learner, const calm_scheme *scheme);

/* Learn a block.  If the loss rises or is not finite, the block keeps its start and outcome->kept says so; this is not
 * a failure.  The bytes do not depend on the number of threads. */
calm_status calm_learner_run(calm_ctx *ctx, const calm_learner *learner, const calm_learn_problem *problem,
                             calm_learn_outcome *outcome);

/* Bytes that calm_learner_run holds of ctx->scratch for linears and vectors of these shapes, without the loss. */
size_t calm_learner_run_scratch_bytes(const calm_learner *learner, const calm_learn_problem *problem);
