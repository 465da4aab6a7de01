/* Predictions of the next token: the head's logits, tile after tile of the vocabulary, for several models at once.
 *
 * The caller computes the models' hidden rows; here they are multiplied by the heads' tables.  The first model may be
 * the reference, whose distribution the others are compared with row by row. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/model/forward.h"

/* A model to evaluate: a checkpoint, with some weights replaced or none. */
typedef struct calm_subject {
    const calm_model *model;
    calm_override_fn *override; /* NULL: as it is */
    void *user;                 /* of `override`  */
    size_t first_block;         /* `override` changes no block before it; calm_evaluate takes the rows there from the
                                 * reference, and calm_encode_all from its first subject, instead of running those
                                 * blocks again */
    const calm_row_store *passed;    /* rows behind its last block, which calm_evaluate then takes instead of running
                                      * any: those of all windows begin at passed_first; NULL: there are none */
    size_t passed_first;
} calm_subject;

/* Target of a row that predicts nothing: its prediction is left as it was. */
#define CALM_NO_TARGET UINT32_MAX

/* Sums over one row of logits l, with r the reference's row. */
typedef struct calm_prediction {
    double sum;      /* of exp(l - max)                                    */
    double cross;    /* of l exp(r - max r); 0 without a reference         */
    float max;
    float target;    /* logit of the row's target                          */
    uint32_t best;   /* first token with the maximum                       */
} calm_prediction;

/* The five largest logits of a row by falling value, of equal ones the lower token first. */
#define CALM_TOP ((size_t)5)
typedef struct calm_top {
    float logit[CALM_TOP];
    uint32_t token[CALM_TOP];    /* CALM_NO_TARGET where the vocabulary has fewer tokens */
} calm_top;

/* One model; `hidden`, `rows` and `top` are set by the caller before each calm_predict. */
typedef struct calm_predictor {
    const calm_subject *subject;
    calm_rope rope;
    calm_head head;
    float *tile;                     /* [tile, D]                                               */
    bool shares;                     /* tile belongs to an earlier model with the same table    */
    const calm_row_store *hidden;    /* [n, D] after the final norm                             */
    calm_prediction *rows;           /* [n] zeroed                                              */
    calm_top *top;                   /* [n]; NULL: not wanted                                   */
} calm_predictor;

typedef struct calm_predictors {
    calm_predictor *models;       /* [n], the reference first when there is one                */
    size_t n;
    bool has_reference;
    size_t vocab, tile, chunk;    /* tokens; tokens of a tile; rows of a task                  */
    size_t slices;                /* tasks that widen a tile                                   */
    calm_tick_fn *tick;           /* of calm_predict: tokens whose logits are there, of `vocab`; NULL: none */
    void *tick_user;
} calm_predictors;

/* Load heads and rotary tables for positions below `reach`, and make room for the heads' tiles, in ctx->out: for
 * `reference` (NULL: none), then for `subjects` [n].  Subjects of one model share them.
 * CALM_EARG: a model is an encoder; the vocabularies have different sizes. */
calm_status calm_predictors_open(calm_ctx *ctx, const calm_subject *reference, const calm_subject *subjects, size_t n,
                                 size_t reach, calm_predictors *out);

/* Bytes that calm_predictors_open leaves in ctx->out for n models of n_checkpoints different checkpoints of this
 * shape. */
size_t calm_predictors_open_bytes(const calm_config *config, size_t n, size_t n_checkpoints, size_t reach);

/* Predict n rows by all models.  targets [n] are below the size of the vocabulary, or CALM_NO_TARGET. */
calm_status calm_predict(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n);

/* The most that calm_predict holds of ctx->scratch with n_threads workers. */
size_t calm_predict_scratch_bytes(const calm_config *config, size_t n, bool has_reference, size_t n_threads);

/* -log p(target). */
double calm_prediction_nll(const calm_prediction *row);

/* KL(reference || row) = sum p (r - l) - log sum exp r + log sum exp l. */
double calm_prediction_kl(const calm_prediction *reference, const calm_prediction *row);

/* Is `token` among the five? */
bool calm_top_has(const calm_top *top, uint32_t token);
