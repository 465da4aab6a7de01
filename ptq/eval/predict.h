/* Predictions of the next token: logits tile by tile over the vocabulary, for several models at once.
 *
 * The caller computes the models' hidden states; calm_predict multiplies them by the heads' tables.  The first model
 * may be the reference, whose distribution is compared with the others' row by row. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/model/forward.h"

/* A model to evaluate: a checkpoint, of which an override may replace weights. */
typedef struct calm_subject {
    const calm_model *model;
    calm_override_fn *override; /* NULL: no weights are replaced */
    void *user;                 /* argument of `override` */
    size_t first_block;         /* `override` changes no block before this one: calm_evaluate starts from the
                                 * reference's hidden states there, calm_encode_all from its first subject's, instead of
                                 * running the blocks before it again */
    const calm_row_store *passed;    /* hidden states behind the last block, which calm_evaluate reads instead of
                                      * running blocks; those of the first window are at passed_first; NULL: none */
    size_t passed_first;
} calm_subject;

/* The target of a row without prediction, whose calm_prediction is not changed. */
#define CALM_NO_TARGET UINT32_MAX

/* Sums over one row of logits l; r: the reference's row. */
typedef struct calm_prediction {
    double sum;      /* sum of exp(l - max) */
    double cross;    /* sum of l exp(r - max r); 0 without a reference */
    float max;       /* maximum of l */
    float target;    /* logit of the row's target */
    uint32_t best;   /* lowest token with the maximum */
} calm_prediction;

/* The five largest logits of a row in falling order; of equal logits the lower token is first. */
#define CALM_TOP ((size_t)5)
typedef struct calm_top {
    float logit[CALM_TOP];
    uint32_t token[CALM_TOP];    /* CALM_NO_TARGET where the vocabulary has fewer tokens */
} calm_top;

/* One model; the caller sets `hidden`, `rows` and `top` before each calm_predict. */
typedef struct calm_predictor {
    const calm_subject *subject;
    calm_rope rope;
    calm_head head;
    float *tile;                     /* [tile, D] rows of the table as float */
    bool shares;                     /* true: `tile` belongs to an earlier model with the same table */
    const calm_row_store *hidden;    /* [n, D] hidden states after the final norm */
    calm_prediction *rows;           /* [n] results, zeroed by the caller */
    calm_top *top;                   /* [n] results; NULL: not computed */
} calm_predictor;

typedef struct calm_predictors {
    calm_predictor *models;       /* [n], the reference first if there is one */
    size_t n;
    bool has_reference;
    size_t vocab, tile, chunk;    /* vocabulary size; tokens per tile; rows per task */
    size_t slices;                /* number of tasks that convert a tile to float */
    calm_tick_fn *tick;           /* called by calm_predict with the tokens done, of `vocab`; NULL: none */
    void *tick_user;
} calm_predictors;

/* Loads heads, and rotary tables for positions below `reach`, and allocates the heads' tiles, in ctx->out: for
 * `reference` (NULL: none), then for `subjects` [n].  Subjects with the same model share them.
 * CALM_EARG: a model is an encoder; the vocabularies have different sizes. */
calm_status calm_predictors_open(calm_ctx *ctx, const calm_subject *reference, const calm_subject *subjects, size_t n,
                                 size_t reach, calm_predictors *out);

/* Returns the bytes that calm_predictors_open allocates in ctx->out for n models of n_checkpoints different checkpoints
 * of this shape. */
size_t calm_predictors_open_bytes(const calm_config *config, size_t n, size_t n_checkpoints, size_t reach);

/* Computes the predictions of n rows by all models.  targets [n]: token ids below the vocabulary size, or
 * CALM_NO_TARGET. */
calm_status calm_predict(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n);

/* Returns the peak bytes of ctx->scratch in calm_predict with n_threads workers. */
size_t calm_predict_scratch_bytes(const calm_config *config, size_t n, bool has_reference, size_t n_threads);

/* Returns -log p(target). */
double calm_prediction_nll(const calm_prediction *row);

/* Returns KL(reference || row) = sum p (r - l) - log sum exp r + log sum exp l. */
double calm_prediction_kl(const calm_prediction *reference, const calm_prediction *row);

/* Returns true if `token` is among the five. */
bool calm_top_has(const calm_top *top, uint32_t token);
