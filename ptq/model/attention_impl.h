/* The steps of attention, for its two directions.  Only attention*.c, int_attention.c include it. */
#pragma once

#include "ptq/model/block.h"

/* Scores of 128 queries over some thousand keys stay in the second-level cache. */
#define CALM_QUERY_ROWS ((size_t)128)

typedef struct calm_heads {
    const calm_config *config;
    const calm_span *span;
    size_t before;    /* keys of tokens before those of the span, as soon as they are remembered */
    float *q, *k, *v; /* first columns of [T, q_stride] and [T, kv_stride]     */
    float *raw_v;     /* [T, kv_stride] v before its norm, written where it is not NULL */
    float *gate; /* of the context, columns like those of q; NULL: none         */
    size_t q_stride, kv_stride;
    size_t k_width, v_width; /* of a head's own key and of its value           */
    size_t kv_step;          /* columns from a head's key to the next, and from a value to the next */
    float *shared;           /* [T, shared_stride] the part of the key that all heads have, met by the last
                                shared_width channels of a query head; NULL: none */
    size_t shared_stride, shared_width;
    size_t window; /* keys that a query sees; 0: all                        */
    const float *distance; /* added to scores (distance.h), or NULL         */
    const float *sinks;    /* [h] a logit of each head in the softmax's sum, whose share is lost; or NULL      */
    float *shares;         /* [T, h] those shares of each query, written where it is not NULL                  */
} calm_heads;

/* Up to CALM_QUERY_ROWS queries of one head, and the keys that any of them sees. */
typedef struct calm_query_rows {
    size_t head, first, n; /* queries first .. first + n - 1                                       */
    size_t key, n_keys;    /* keys key .. key + n_keys - 1                                         */
    size_t q, kv, context; /* where they begin in q, in k and v, and in the context                */
} calm_query_rows;

/* Heads of one width, head_dim, for queries, keys and values; q, k and v are not there yet. */
calm_heads calm_heads_of(const calm_block *block, const calm_span *span);

/* q, k and v of all tokens from h [T, D], in ctx->scratch: three products, or columns of one. */
calm_status calm_heads_project(calm_ctx *ctx, const calm_block *block, const float *h, calm_apply_fn *apply,
                               calm_heads *a);

/* k and v of a block that shares those of an earlier one (attention_values.c).  CALM_EARG: the span has none. */
calm_status calm_heads_shared(calm_ctx *ctx, const calm_block *block, calm_heads *a);

/* v, or k in its place before it is normalised and turned, divided head by head by the root of its mean square, where
 * the family has either. */
calm_status calm_heads_values(calm_ctx *ctx, const calm_config *config, const calm_heads *a);

/* Gradients of v to those of what it is made of, k's or v's product, in place in d, whose k has what goes back to that
 * product; raw_v as the forward pass wrote it, NULL: there is no norm. */
calm_status calm_heads_values_back(calm_ctx *ctx, const calm_config *config, const calm_heads *a, const float *raw_v,
                                   const calm_heads *d);

/* Hand k and v on to later blocks, where those read them. */
void calm_heads_keep_kv(const calm_heads *a);

/* Behind the keys and values of tokens before: from here on k and v are of all tokens.  Without a past nothing
 * changes. */
void calm_heads_remember(const calm_block *block, calm_heads *a);

/* What k and v of a block take of ctx->scratch; 0 where they are those of another. */
size_t calm_heads_values_bytes(const calm_config *config, size_t n_tokens);

/* Rows of q from [q | gate] head by head to all of q, then all gates, as calm_heads_project leaves them, or with `back`
 * the other way: of gradients. */
calm_status calm_heads_part(calm_ctx *ctx, const calm_heads *a, bool back);

/* The context [T, h d] times the sigmoid of its gate, in place, where the family has one. */
void calm_heads_gate(calm_ctx *ctx, const calm_heads *a, float *context);

/* Rows of width d or n_heads d that the norm of q or k sees in a token. */
size_t calm_heads_norm_parts(const calm_config *config, size_t n_heads);

/* Has the block norms of q and k? */
bool calm_heads_normed(const calm_block *block);

/* Those norms; the weight of ones in place of one that is not there is in ctx->scratch. */
calm_status calm_heads_norms(calm_ctx *ctx, const calm_block *block, calm_norm *q, calm_norm *k);

/* RMSNorm over a head without a weight: one of ones [head_dim], in ctx->scratch. */
calm_status calm_heads_bare_norm(calm_ctx *ctx, const calm_config *config, calm_norm *out);

/* The norms of q and k in place, where the block has them, then the limit of q, k and v. */
calm_status calm_heads_norm(calm_ctx *ctx, const calm_block *block, const calm_heads *a);

/* Is k rotated in this block, and q? */
bool calm_heads_rotated(const calm_block *block);

/* Rotary embedding of q and k in place, where the block has it, and of families that have it q's growth with the
 * position: calm_rope_rotate, or of their gradients calm_rope_rotate_back.  Tables of a window's own are made in
 * ctx->scratch. */
typedef void calm_rotate_fn(const calm_rope_table *table, float *x, size_t stride, size_t n_tokens, size_t n_heads,
                            size_t head_dim, const uint32_t *positions);
calm_status calm_heads_rotate(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_heads *a,
                              calm_rotate_fn *rotate);

/* Position of token t: windows from which padding was dropped keep the positions of what is left. */
size_t calm_heads_position(const calm_heads *a, size_t t);

/* The first key that query t sees, and the one behind the last. */
size_t calm_heads_first_key(const calm_heads *a, size_t t);
size_t calm_heads_end_key(const calm_heads *a, size_t t);

/* The queries of `head` from `first` on. */
calm_query_rows calm_heads_rows(const calm_heads *a, size_t head, size_t first);

/* scores [n, n_keys] = q k^T, neither scaled nor capped. */
calm_status calm_heads_scores(calm_ctx *ctx, const calm_heads *a, const calm_query_rows *rows, float *scores);

/* In place: the softmax's numerators, with the scale and the cap applied, 0 for keys that a query does not see; sums
 * [n] of each row. */
void calm_heads_exponentiate(const calm_heads *a, const calm_query_rows *rows, float *scores, float *sums);

/* Those rows of the context [T, h v_width]; scores [n, n_keys] and sums [n] are room for them. */
calm_status calm_heads_attend(calm_ctx *ctx, const calm_heads *a, const calm_query_rows *rows, float *scores,
                              float *sums, float *context);

/* What a backward pass may read instead of computing scores again: numerators, those of queries `first` and on of a
 * head being [n, n_keys] from (head T + first) T on; and sums [heads, T]. */
typedef struct calm_heads_kept {
    float *numerators, *sums;    /* NULL: not kept */
} calm_heads_kept;

/* All of the context, blocks of query rows on the workers of ctx. */
calm_status calm_heads_attend_all(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, float *context);

/* Is the context computed in whole numbers (int_attention.c): where ctx wants that, the block's linears are, and
 * nothing but the scale is between scores and the softmax? */
bool calm_heads_whole(const calm_ctx *ctx, const calm_block *block, const calm_heads *a);

/* All of the context in that way; same bytes for any number of threads.  A worker holds calm_attend_bytes.  Fails as
 * calm_int_choose. */
calm_status calm_heads_attend_whole(calm_ctx *ctx, const calm_heads *a, float *context);

/* Room for them in ctx->scratch, of windows that are short enough; what that takes of a window of T tokens at most. */
calm_status calm_heads_keep(calm_ctx *ctx, const calm_config *config, size_t n_tokens, calm_heads_kept *out);
size_t calm_heads_keep_bytes(const calm_config *config, size_t n_tokens);

/* d = gradients of rotated q and k, of the shared key and of v, in the layout of `a`, from that of the context; dsinks
 * [h] += those of the sinks (NULL: not wanted). */
calm_status calm_heads_back(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, const float *dcontext,
                            const calm_heads *d, float *dsinks);

/* What its workers hold of ctx->scratch; besides it holds keys, shared keys and values [T, width] of all query
 * heads. */
size_t calm_heads_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);

/* The loss of what tokens are to each other in attention (attention_relations.c), q, k and v of the reference being of
 * the same span: scale L is added to *loss, and its gradient to q, k and v of d, laid out as those of `a`.
 * CALM_EUNSUPPORTED: shared keys, sinks, or scores with a cap. */
calm_status calm_heads_relate(calm_ctx *ctx, const calm_heads *a, const calm_heads *reference, double scale,
                              const calm_heads *d, double *loss);

/* What that holds of ctx->scratch, workers included. */
size_t calm_heads_relate_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);

/* Blocks of query rows of one head. */
size_t calm_heads_query_blocks(size_t n_tokens);
