/* Learners: parts that see a whole block (its linears, its norms, and a loss with gradients) and change its codes,
 * scales and norms to lower that loss.
 *
 *   O output features   I input features   G = ceil(I / group) of one linear
 *
 * A learner sees arrays and a loss function, never files or models.  It changes a block that chains have quantized, so
 * it is not a step of a chain: `calm algorithms` lists it under its kind, `block`. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/qjob.h"

/* One linear of the block; input scales are folded into its weights. */
typedef struct calm_learn_linear {
    const char *name;           /* for messages                                                          */
    calm_scheme scheme;
    size_t out, in, group, n_groups;
    const float *w;             /* [O, I] the float weight                                               */
    uint8_t *codes;             /* [O, I] in: the start's codes; out: the learned ones                   */
    float *scales;              /* [O, G] in and out likewise, rounded as the scheme stores them          */
    const uint8_t *zeros;       /* [O, G] zero points; NULL: symmetric                                   */
    const float *mins;          /* [O, G] minima; NULL: none                                             */
    float global;               /* scales are multiples of this; 0: none                                 */
    float *effective;           /* [O, I] decoded weights, which the loss reads                          */
    const float *grad;          /* [O, I] gradient of the loss with respect to `effective`; the loss writes it */
} calm_learn_linear;

/* One vector of the block: the weight of a norm, a factor, or a bias, a term. */
typedef struct calm_learn_vector {
    const char *name;           /* for messages                                                          */
    size_t n;
    calm_dtype dtype;           /* the dtype in which the file stores values - offset: F32, F16 or BF16  */
    float offset;               /* 1 for norms that are stored minus one, else 0                         */
    float unit;                 /* 0: factors, learned as logarithms; else terms, learned in this unit   */
    float *values;              /* [n] in: the start's values; out: the learned ones; the loss reads them */
    const float *grad;          /* [n] gradient of the loss with respect to `values`; the loss writes it */
} calm_learn_vector;

/* Computes the loss on window `window` >= 0 (short windows are joined); with `gradients` also all `grad` arrays. */
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
    double before, after;    /* mean loss on the same few windows before and after learning; NaN: not computed  */
    size_t changed, codes;   /* number of codes that differ from the start's; number of all codes               */
    const char *kept;        /* why the block was not changed, in ctx->out; NULL: it was learned                */
} calm_learn_outcome;

/* A learner with its options, opaque; in ctx->out. */
typedef struct calm_learner calm_learner;

/* Parses "learn" or "learn(steps=100)".  CALM_EARG: no part of kind `block` has this name, or a bad option. */
calm_status calm_learner_parse(calm_ctx *ctx, const char *text, calm_learner **out);

/* Returns name, revision and every option, "learn@1(steps=200,...)"; this text enters the keys of learned blocks. */
const char *calm_learner_canonical(const calm_learner *learner);

/* Gives the number of losses with gradients (*steps) and without (*checks) for learning one block with n_windows
 * windows. */
void calm_learner_losses(const calm_learner *learner, size_t n_windows, size_t *steps, size_t *checks);

/* Returns the number of tokens to which shorter windows are joined. */
size_t calm_learner_tokens(const calm_learner *learner);

/* Does the learner change linears of this scheme?  At 8 bits with one scale per row there is nothing to learn. */
bool calm_learner_changes(const calm_learner *learner, const calm_scheme *scheme);

/* Learns a block.  If the loss rises or is not finite, the block stays as it was and outcome->kept says why; this is
 * not a failure.  The result does not depend on the number of threads. */
calm_status calm_learner_run(calm_ctx *ctx, const calm_learner *learner, const calm_learn_problem *problem,
                             calm_learn_outcome *outcome);

/* Returns the peak bytes of ctx->scratch of calm_learner_run for these linears and vectors, without the loss. */
size_t calm_learner_run_scratch_bytes(const calm_learner *learner, const calm_learn_problem *problem);
