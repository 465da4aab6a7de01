/* Predictions of the next token: the head's logits, tile after tile of the vocabulary, for several models at once.
 *
 * A model's hidden rows are the caller's affair; here they meet the tables.  The first model may be the reference,
 * whose distribution the others are compared with row by row. */
#ifndef CALM_EVAL_PREDICT_H
#define CALM_EVAL_PREDICT_H

#include "ptq/base/context.h"
#include "ptq/model/forward.h"

/* A model as it is to be evaluated: a checkpoint, with some weights replaced or not. */
typedef struct calm_subject {
    const calm_model *model;
    calm_override_fn *override;    /* NULL: as it is */
    void *user;                    /* of `override`  */
} calm_subject;

/* Target of a row that predicts nothing: its prediction is left as it was. */
#define CALM_NO_TARGET UINT32_MAX

/* What one row of logits l says, r being the reference's. */
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
} calm_predictors;

/* Heads, tables' tiles and rotations for positions below `reach`, in ctx->out: `reference` (NULL: none), then
 * `subjects` [n].  Subjects of the same model share them.  CALM_EARG: an encoder; vocabularies of different size. */
calm_status calm_predictors_open(calm_ctx *ctx, const calm_subject *reference, const calm_subject *subjects, size_t n,
                                 size_t reach, calm_predictors *out);

/* What that leaves in ctx->out for n models that have so many checkpoints of this shape among them. */
size_t calm_predictors_open_bytes(const calm_config *config, size_t n, size_t n_checkpoints, size_t reach);

/* The predictions of all models for `n` rows with these targets [n], which are below the vocabulary
 * or CALM_NO_TARGET. */
calm_status calm_predict(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n);

/* The most that holds of ctx->scratch, its workers together. */
size_t calm_predict_scratch_bytes(const calm_config *config, size_t n, bool has_reference, size_t n_threads);

/* -log p(target). */
double calm_prediction_nll(const calm_prediction *row);

/* KL(reference || row) = sum p (r - l) - log sum exp r + log sum exp l. */
double calm_prediction_kl(const calm_prediction *reference, const calm_prediction *row);

/* Is `token` among the five? */
bool calm_top_has(const calm_top *top, uint32_t token);

#endif
