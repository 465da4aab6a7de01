/* Steps of attention that its forward and backward pass share.  Only attention*.c and int_attention.c include it. */
#pragma once

#include "ptq/layers/block.h"

/* Queries of a block of scores: scores of 128 queries over some thousand keys fit into the second-level cache. */
#define CALM_QUERY_ROWS ((size_t)128)

typedef struct calm_heads {
    const calm_config *config;
    const calm_span *span;
    size_t before;    /* number of keys of earlier tokens in k and v (calm_heads_remember) */
    float *q, *k, *v; /* rows of [T, q_stride] and [T, kv_stride]              */
    float *raw_v;     /* [T, kv_stride] gets v before its norm; or NULL        */
    float *gate; /* gate of the context, in the layout of q; NULL: none         */
    size_t q_stride, kv_stride;
    size_t k_width, v_width; /* of a head's own part of the key and of its value */
    size_t kv_step;          /* columns from a head's key to the next, and from a value to the next */
    float *shared;           /* [T, shared_stride] the part of the key that heads share, for the last shared_width
                                channels of a query head; NULL: none */
    size_t shared_stride, shared_width;
    size_t window; /* number of keys that a query sees; 0: all              */
    const float *distance; /* relative position bias (distance.h), or NULL  */
    const float *sinks;    /* [h] an additional logit of each head's softmax, without a value; or NULL         */
    float *shares;         /* [T, h] gets the sinks' probabilities; or NULL                                    */
} calm_heads;

/* Up to CALM_QUERY_ROWS queries of one head, and the keys that any of them sees. */
typedef struct calm_query_rows {
    size_t head, first, n; /* queries first .. first + n - 1 of head `head`                        */
    size_t key, n_keys;    /* keys key .. key + n_keys - 1                                         */
    size_t q, kv, context; /* their offsets in q, in k and v, and in the context                   */
} calm_query_rows;

/* Returns the description of heads of width head_dim for queries, keys and values; q, k and v are not set yet. */
calm_heads calm_heads_of(const calm_block *block, const calm_span *span);

/* Computes q, k and v of all tokens from h [T, D], in ctx->scratch, with three products or one. */
calm_status calm_heads_project(calm_ctx *ctx, const calm_block *block, const float *h, calm_apply_fn *apply,
                               calm_heads *a);

/* Sets k and v of a block that reads those of an earlier one (attention_values.c).  CALM_EARG: the span has none. */
calm_status calm_heads_shared(calm_ctx *ctx, const calm_block *block, calm_heads *a);

/* Computes v where it is not the plain product: with k_is_v a copy of k before its norm and rotation, with value_norm
 * each head divided by its root mean square. */
calm_status calm_heads_values(calm_ctx *ctx, const calm_config *config, const calm_heads *a);

/* Backward: turns the gradient of v in d into that of v's product, in place, or with k_is_v adds it to d->k, that of
 * k's product; raw_v: from the forward pass, NULL: no norm. */
calm_status calm_heads_values_back(calm_ctx *ctx, const calm_config *config, const calm_heads *a, const float *raw_v,
                                   const calm_heads *d);

/* Copies k and v to the span's carried rows, where later blocks read them. */
void calm_heads_keep_kv(const calm_heads *a);

/* Appends k and v to those of earlier tokens (calm_past); from here on a->k and a->v are of all tokens.  Without a past
 * it does nothing. */
void calm_heads_remember(const calm_block *block, calm_heads *a);

/* Returns the bytes of ctx->scratch for k and v of a block; 0 where it reads those of another. */
size_t calm_heads_values_bytes(const calm_config *config, size_t n_tokens);

/* Reorders rows of q from [q | gate] for each head to all q, then all gates, as calm_heads_project leaves them; with
 * `back` the other way, for gradients. */
calm_status calm_heads_part(calm_ctx *ctx, const calm_heads *a, bool back);

/* Multiplies the context [T, h d] by the sigmoid of its gate in place, where the family has one. */
void calm_heads_gate(calm_ctx *ctx, const calm_heads *a, float *context);

/* Returns the rows that the norm of q or k normalises per token: n_heads of width d, or one of width n_heads d. */
size_t calm_heads_norm_parts(const calm_config *config, size_t n_heads);

/* Does the block have norms of q and k? */
bool calm_heads_normed(const calm_block *block);

/* Returns those norms; a norm without a weight gets a weight of ones in ctx->scratch. */
calm_status calm_heads_norms(calm_ctx *ctx, const calm_block *block, calm_norm *q, calm_norm *k);

/* Returns an RMSNorm over a head with a weight of ones [head_dim], in ctx->scratch. */
calm_status calm_heads_bare_norm(calm_ctx *ctx, const calm_config *config, calm_norm *out);

/* Applies the norms of q and k in place, where the block has them, then the limit of q, k and v. */
calm_status calm_heads_norm(calm_ctx *ctx, const calm_block *block, const calm_heads *a);

/* Does the block rotate q and k? */
bool calm_heads_rotated(const calm_block *block);

/* Rotates q and k in place with calm_rope_rotate, or their gradients with calm_rope_rotate_back, where the block has a
 * rotary embedding, and applies the position-dependent scale of q (calm_query_scale_config).  Tables that depend on the
 * window's length are computed in ctx->scratch. */
typedef void calm_rotate_fn(const calm_rope_table *table, float *x, size_t stride, size_t n_tokens, size_t n_heads,
                            size_t head_dim, const uint32_t *positions);
calm_status calm_heads_rotate(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_heads *a,
                              calm_rotate_fn *rotate);

/* Returns the position of token t; windows from which padding was dropped keep their tokens' positions. */
size_t calm_heads_position(const calm_heads *a, size_t t);

/* Return the first key that query t sees, and the last one + 1. */
size_t calm_heads_first_key(const calm_heads *a, size_t t);
size_t calm_heads_end_key(const calm_heads *a, size_t t);

/* Returns the block of queries of `head` that begins with query `first`. */
calm_query_rows calm_heads_rows(const calm_heads *a, size_t head, size_t first);

/* Computes scores [n, n_keys] = q k^T, neither scaled nor capped. */
calm_status calm_heads_scores(calm_ctx *ctx, const calm_heads *a, const calm_query_rows *rows, float *scores);

/* Turns scores in place into the softmax's numerators, after scale and cap; 0 for keys that a query does not see; and
 * computes the sum of each row, sums [n]. */
void calm_heads_exponentiate(const calm_heads *a, const calm_query_rows *rows, float *scores, float *sums);

/* Computes these rows of the context [T, h v_width]; scores [n, n_keys] and sums [n] are scratch memory. */
calm_status calm_heads_attend(calm_ctx *ctx, const calm_heads *a, const calm_query_rows *rows, float *scores,
                              float *sums, float *context);

/* Probabilities kept for the backward pass, so that it need not recompute scores: numerators, of which queries from
 * `first` on of a head are [n, n_keys] at offset (head T + first) T; and sums [heads, T]. */
typedef struct calm_heads_kept {
    float *numerators, *sums;    /* NULL: not kept */
} calm_heads_kept;

/* Computes the whole context, with blocks of query rows on the workers of ctx. */
calm_status calm_heads_attend_all(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, float *context);

/* Does the same for a tape: never with operands of one bfloat16. */
calm_status calm_heads_attend_tape(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, float *context);

/* Is the context computed in integer arithmetic (int_attention.c)?  Yes if ctx->int_attention is set, o is an integer
 * linear, only the scale is applied between scores and softmax, and the span is a whole window of enough tokens. */
bool calm_heads_use_ints(const calm_ctx *ctx, const calm_block *block, const calm_heads *a);

/* Computes the whole context in integer arithmetic; same bytes for any number of threads.  A worker holds
 * calm_attend_bytes of ctx->scratch.  Fails as calm_int_choose. */
calm_status calm_heads_attend_ints(calm_ctx *ctx, const calm_heads *a, float *context);

/* Allocates a calm_heads_kept in ctx->scratch for windows that are short enough; and returns the bytes that this takes
 * for T tokens. */
calm_status calm_heads_keep(calm_ctx *ctx, const calm_config *config, size_t n_tokens, calm_heads_kept *out);
size_t calm_heads_keep_bytes(const calm_config *config, size_t n_tokens);

/* Computes d, the gradients of rotated q and k, of the shared key and of v in the layout of `a`, from dcontext
 * [T, h v_width]; adds to dsinks [h] (NULL: not wanted). */
calm_status calm_heads_back(calm_ctx *ctx, const calm_heads *a, const calm_heads_kept *kept, const float *dcontext,
                            const calm_heads *d, float *dsinks);

/* Returns the bytes of ctx->scratch that its workers hold; it also holds keys, shared keys and values [T, width] of all
 * query heads. */
size_t calm_heads_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);

/* Computes the loss L of the tokens' relations in attention (attention_relations.c) against `reference`, whose q, k and
 * v are of the same span: adds scale L to *loss, and its gradient to q, k and v of d, in the layout of `a`.
 * CALM_EUNSUPPORTED: shared keys, sinks, or scores with a cap. */
calm_status calm_heads_relate(calm_ctx *ctx, const calm_heads *a, const calm_heads *reference, double scale,
                              const calm_heads *d, double *loss);

/* Returns its bytes of ctx->scratch, workers included. */
size_t calm_heads_relate_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);

/* Returns the number of blocks of query rows of one head. */
size_t calm_heads_query_blocks(size_t n_tokens);
