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

/* One linear, in the basis in which the block computes: input scales are folded. */
typedef struct calm_learn_linear {
    const char *name;           /* for messages                                                          */
    calm_scheme scheme;
    size_t out, in, group, n_groups;
    const float *w;             /* [O, I] the float weight                                               */
    uint8_t *codes;             /* [O, I] of the start; afterwards the learned ones                      */
    float *scales;              /* [O, G] likewise, as the scheme stores them                              */
    const uint8_t *zeros;       /* [O, G]; NULL: symmetric                                               */
    const float *mins;          /* [O, G]; NULL: none                                                    */
    float global;               /* that scales are multiples of; 0: none                                 */
    float *effective;           /* [O, I] what codes, scales and zeros represent; the loss reads it      */
    const float *grad;          /* [O, I] of the loss by `effective`, which the loss writes              */
} calm_learn_linear;

/* One vector that the block multiplies by, the weight of a norm, or adds: a bias. */
typedef struct calm_learn_vector {
    const char *name;           /* for messages                                                          */
    size_t n;
    calm_dtype dtype;           /* the file holds values - offset in it: F32, F16 or BF16                */
    float offset;               /* 1 of norms that are stored less one, else 0                           */
    float unit;                 /* 0: factors, learned by their logarithm; else terms, in units of this  */
    float *values;              /* [n] of the start; afterwards the learned ones; the loss reads them    */
    const float *grad;          /* [n] of the loss by `values`, which the loss writes                    */
} calm_learn_vector;

/* The loss on one window (of short ones: on some together), counted from 0; with `gradients` all `grad` arrays too. */
typedef calm_status calm_learn_loss_fn(void *user, calm_ctx *ctx, size_t window, bool gradients, double *loss);

typedef struct calm_learn_problem {
    calm_learn_linear *linears;        /* [n_linears]                      */
    size_t n_linears;
    calm_learn_vector *vectors;        /* [n_vectors]                      */
    size_t n_vectors, n_windows;
    calm_learn_loss_fn *loss;
    calm_tick_fn *tick;                /* after each step; NULL: none      */
    void *user;                        /* of both                          */
} calm_learn_problem;

/* Result of learning. */
typedef struct calm_learn_outcome {
    double before, after;    /* mean loss of the same few windows, at the start and in the end; NaN: none       */
    size_t changed, codes;   /* codes that differ from the start's, of how many                                 */
    const char *kept;        /* why the block stayed as it was, in ctx->out; NULL: it was learned               */
} calm_learn_outcome;

/* A learner with its options, opaque; in ctx->out. */
typedef struct calm_learner calm_learner;

/* Parse "learn" or "learn(steps=100)".  CALM_EARG: no part of kind `block` has this name, or a bad option. */
calm_status calm_learner_parse(calm_ctx *ctx, const char *text, calm_learner **out);

/* Name, revision and every option: "learn@1(steps=200,...)"; enters the keys of what is learned. */
const char *calm_learner_canonical(const calm_learner *learner);

/* How many losses with gradients, and without, learning one block computes that has this many windows. */
void calm_learner_losses(const calm_learner *learner, size_t n_windows, size_t *steps, size_t *checks);

/* Windows shorter than this are put together to "windows" of the problem that have this many tokens. */
size_t calm_learner_tokens(const calm_learner *learner);

/* Does it change linears of this scheme?  8 bits a row leave nothing to learn. */
bool calm_learner_changes(const calm_learner *learner, const calm_scheme *scheme);

/* Learn a block.  A loss that rises or is not finite leaves the block at its start, and outcome->kept says so; that is
 * no failure.  The bytes do not depend on the number of threads. */
calm_status calm_learner_run(calm_ctx *ctx, const calm_learner *learner, const calm_learn_problem *problem,
                             calm_learn_outcome *outcome);

/* What that holds of ctx->scratch for linears and vectors of these shapes, besides the loss. */
size_t calm_learner_run_scratch_bytes(const calm_learner *learner, const calm_learn_problem *problem);
