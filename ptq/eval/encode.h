/* Evaluation of encoders: sentence embeddings, and how far one model's are from another's.
 *
 *   embedding   mean of the last hidden state over the tokens of a sentence, which is a window, or what the model's
 *               modules.json says (ptq/model/pooling.h)
 *   error       |q - f| / |f|, f the reference's embedding; of rows of length 1 where one of the models alone divides
 *               by it, as a GGUF file does not
 *   cosine      q . f / (|q| |f|); 0 for q = 0
 *   spearman    correlation of ranks (equal values share the mean of theirs) between the cosines of all pairs of
 *               sentences of one model and those of the other: are the same sentences still near each other?
 *
 * Hidden states in float32, everything after in double, in a fixed order. */
#pragma once

#include "ptq/base/times.h"
#include "ptq/eval/evaluate.h"

/* Sentences that pairs are made of, the first ones: 2 million pairs. */
#define CALM_PAIRED_SENTENCES ((size_t)2048)

typedef struct calm_embeddings {
    size_t n, width;    /* sentences; of one     */
    double *x;          /* [n, width]             */
    bool unit;          /* the model's last step divides by the length */
} calm_embeddings;

/* How far one sentence's embedding is from the reference's. */
typedef struct calm_embedding_distance {
    double error, cosine;
} calm_embedding_distance;

typedef struct calm_embedding_result {
    size_t n, pairs;                    /* sentences; pairs that were ranked                         */
    double error, cosine, cosine_min;   /* means over sentences; the least cosine                    */
    double spearman;                    /* NaN for fewer than 2 pairs, or if all cosines are equal   */
    calm_embedding_distance *each;      /* [n] in ctx->out                                           */
} calm_embedding_result;

/* Compute the embeddings of all windows, each of which has a token, into ctx->out.  `tick` (may be NULL) counts
 * windows.  CALM_ENUMERIC: an embedding is not finite. */
calm_status calm_encode(calm_ctx *ctx, const calm_subject *subject, const calm_windows *windows, calm_tick_fn *tick,
                        void *tick_user, calm_embeddings *out);

/* The same of subjects [n] into out [n].  Those of the first one's model, itself without an override, whose first_block
 * is a later one continue from its rows there: the bits are the same.  `tick` counts windows of all subjects. */
calm_status calm_encode_all(calm_ctx *ctx, const calm_subject *subjects, size_t n, const calm_windows *windows,
                            calm_tick_fn *tick, void *tick_user, calm_embeddings *out);

/* The same by `batch` >= 1 windows at a time, with the weights of all blocks in memory, where they are from *loaded
 * on. */
calm_status calm_encode_in_memory(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t batch,
                                  calm_tick_fn *tick, void *tick_user, calm_time *loaded, calm_embeddings *out);

/* Bytes that calm_encode leaves in ctx->out for n windows, and the most that it holds besides when the longest window
 * has `longest` tokens, or calm_encode_all of n_subjects.  block_bytes: the most that the model takes while one of its
 * blocks runs on a batch. */
size_t calm_encode_bytes(const calm_config *config, size_t n);
size_t calm_encode_scratch_bytes(const calm_config *config, size_t n, size_t longest, size_t n_subjects,
                                 size_t block_bytes);

/* Windows of a batch, from which block_bytes follows. */
size_t calm_encode_batch(const calm_config *config, size_t n, size_t longest);

/* Windows that are divided only together: of a mixture a batch, whose rows its experts multiply together; else 1. */
size_t calm_encode_step(const calm_config *config, size_t n, size_t longest);

/* Part `part` of n_parts of the windows, borrowed, and in *first the number of its first window: its embeddings have
 * the bits that they have next to all others.  n is 0 where there are fewer windows, or of a mixture fewer batches. */
calm_status calm_encode_part(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t part,
                             size_t n_parts, calm_windows *out, size_t *first);

/* Compare the embeddings of the same sentences, n >= 1, by a reference and by another model.
 * CALM_EARG: the numbers of sentences or the widths differ.  CALM_ENUMERIC: an embedding of the reference is 0. */
calm_status calm_embedding_compare(calm_ctx *ctx, const calm_embeddings *reference, const calm_embeddings *found,
                                   calm_embedding_result *out);

/* What it gives for all sentences, from its results of parts [n], in their order, into ctx->out; but no cosines between
 * sentences of several parts are known, so no pairs are ranked. */
calm_status calm_embedding_join(calm_ctx *ctx, const calm_embedding_result *parts, size_t n,
                                calm_embedding_result *out);

/* Bytes that calm_embedding_compare leaves in ctx->out for n sentences, and the most that it holds of ctx->scratch. */
size_t calm_embedding_compare_bytes(size_t n);
size_t calm_embedding_compare_scratch_bytes(size_t n);

/* Rank values [n] into ranks [n]: 1 for the least; equal values share the mean of their ranks. */
calm_status calm_ranks(calm_ctx *ctx, const double *values, size_t n, double *ranks);

/* Correlation of two rows of ranks of n values each; NaN where one of them is constant or n < 2. */
double calm_rank_correlation(const double *a, const double *b, size_t n);
