/* Evaluation of encoders: sentence embeddings, and the distance between the embeddings of two models.
 *
 *   embedding   mean of the last hidden states over the tokens of a sentence (a window), or the pooling of the model's
 *               modules.json (ptq/model/pooling.h)
 *   error       |q - f| / |f|, f: the reference's embedding; of normalized embeddings if only one of the models
 *               normalizes, because a GGUF file does not
 *   cosine      q . f / (|q| |f|); 0 for q = 0
 *   spearman    rank correlation (ties have their mean rank) between the cosines of all pairs of sentences in one model
 *               and in the other: whether the same sentences are close to each other
 *
 * Hidden states in float32, everything after in double, in a fixed order. */
#pragma once

#include "ptq/base/times.h"
#include "ptq/eval/evaluate.h"

/* The number of first sentences whose pairs are ranked: 2 million pairs. */
#define CALM_PAIRED_SENTENCES ((size_t)2048)

typedef struct calm_embeddings {
    size_t n, width;    /* sentences; width of an embedding */
    double *x;          /* [n, width]             */
    bool unit;          /* true: the model's last step normalizes */
} calm_embeddings;

/* The distance of one sentence's embedding from the reference's. */
typedef struct calm_embedding_distance {
    double error, cosine;
} calm_embedding_distance;

typedef struct calm_embedding_result {
    size_t n, pairs;                    /* sentences; ranked pairs */
    double error, cosine, cosine_min;   /* mean error and mean cosine over sentences; least cosine */
    double spearman;                    /* NaN for fewer than 2 pairs, or if all cosines are equal   */
    calm_embedding_distance *each;      /* [n] in ctx->out                                           */
} calm_embedding_result;

/* Computes the embeddings of all windows (each has a token) into ctx->out.  `tick` (NULL: none) counts windows.
 * CALM_ENUMERIC: an embedding is not finite. */
calm_status calm_encode(calm_ctx *ctx, const calm_subject *subject, const calm_windows *windows, calm_tick_fn *tick,
                        void *tick_user, calm_embeddings *out);

/* Does the same for subjects [n] into out [n].  A subject with the first subject's model (which has no override) and
 * first_block > 0 starts from the first subject's hidden states at that block; the bits are the same.  `tick` counts
 * windows of all subjects. */
calm_status calm_encode_all(calm_ctx *ctx, const calm_subject *subjects, size_t n, const calm_windows *windows,
                            calm_tick_fn *tick, void *tick_user, calm_embeddings *out);

/* Does the same with `batch` >= 1 windows at a time and the weights of all blocks in memory; *loaded: the time at which
 * they are loaded. */
calm_status calm_encode_in_memory(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t batch,
                                  calm_tick_fn *tick, void *tick_user, calm_time *loaded, calm_embeddings *out);

/* Return the bytes that calm_encode allocates in ctx->out for n windows, and the peak bytes besides, for
 * calm_encode_all of n_subjects.  longest: tokens of the longest window; block_bytes: the peak bytes of a model while
 * one of its blocks runs on a batch. */
size_t calm_encode_bytes(const calm_config *config, size_t n);
size_t calm_encode_scratch_bytes(const calm_config *config, size_t n, size_t longest, size_t n_subjects,
                                 size_t block_bytes);

/* Returns the number of windows of a batch; block_bytes is the peak for this batch. */
size_t calm_encode_batch(const calm_config *config, size_t n, size_t longest);

/* Returns how many windows must stay together in a part: in a mixture a batch, whose rows the experts multiply
 * together; otherwise 1. */
size_t calm_encode_step(const calm_config *config, size_t n, size_t longest);

/* Returns part `part` of n_parts of the windows (borrowed), and in *first the number of its first window.  The
 * embeddings have the same bits as in a run over all windows.  n is 0 if there are fewer windows, or in a mixture fewer
 * batches. */
calm_status calm_encode_part(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t part,
                             size_t n_parts, calm_windows *out, size_t *first);

/* Compares the embeddings of the same n >= 1 sentences by a reference and by another model.
 * CALM_EARG: the numbers of sentences or the widths differ.  CALM_ENUMERIC: an embedding of the reference is 0. */
calm_status calm_embedding_compare(calm_ctx *ctx, const calm_embeddings *reference, const calm_embeddings *found,
                                   calm_embedding_result *out);

/* Joins the results of parts [n], in order, to the result of all sentences, in ctx->out.  Pairs are not ranked, because
 * cosines between sentences of different parts are unknown. */
calm_status calm_embedding_join(calm_ctx *ctx, const calm_embedding_result *parts, size_t n,
                                calm_embedding_result *out);

/* Return the bytes that calm_embedding_compare allocates in ctx->out for n sentences, and its peak of ctx->scratch. */
size_t calm_embedding_compare_bytes(size_t n);
size_t calm_embedding_compare_scratch_bytes(size_t n);

/* Computes the ranks [n] of values [n]: 1 for the least; ties have their mean rank. */
calm_status calm_ranks(calm_ctx *ctx, const double *values, size_t n, double *ranks);

/* Returns the correlation of two arrays of n ranks; NaN if one is constant or n < 2. */
double calm_rank_correlation(const double *a, const double *b, size_t n);
