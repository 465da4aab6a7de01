/* Steps of the gated delta rule that its forward and backward pass share.  Only delta*.c include it. */
#pragma once

#include "ptq/layers/delta.h"

/* Buffers of a key head for chunks of up to C tokens; a chunk of n < C tokens uses them as if C were n. */
typedef struct calm_delta_buffers {
    float *kq;       /* [2 C, d_k]: k, then q                                                     */
    float *products; /* [2 C, C]: k k^T, then q k^T                                               */
    float *mixed;    /* [2 C, C]: the same with decays and beta, masked: the system for u, weights of u in o */
    float *fading;   /* [C, C]: exp(G_i - G_j), j <= i                                            */
    float *seen;     /* [2 C, d_v]: S^T k, replaced by u; S^T q                                   */
    float *faded;    /* [C, d_k]: exp(G_n - G_j) k_j                                              */
    double *log;     /* [C]: G_i, the sum of the decays up to token i                             */
    float *memory;   /* [value heads of a key head, d_k, d_v]: S                                  */
} calm_delta_buffers;

/* Allocates the buffers in ctx->scratch for chunks of `chunk` tokens; `memory` is the caller's, or NULL: zeros. */
calm_status calm_delta_room_new(calm_ctx *ctx, const calm_delta_shape *shape, size_t chunk, float *memory,
                                calm_delta_buffers *r);

/* Returns the bytes that this allocates when the caller passes no `memory`. */
size_t calm_delta_room_bytes(const calm_delta_shape *shape, size_t chunk);

/* One chunk of tokens of one value head. */
typedef struct calm_delta_piece {
    const calm_delta_shape *shape;
    const calm_delta_rows *rows;
    const calm_delta_buffers *room;
    size_t begin, n, head; /* first token, number of tokens, value head */
    float *memory;         /* S of the head before the chunk */
} calm_delta_piece;

/* Returns sqrt(sum x^2 + eps) of x [d], the divisor of rows of q and k. */
double calm_delta_length(size_t d, const float *x);

/* Computes kq and products for a chunk of a key head. */
void calm_delta_chunk_begin(const calm_delta_shape *shape, const calm_delta_rows *rows, size_t key_head, size_t begin,
                            size_t n, const calm_delta_buffers *r);

/* Returns v of token i of the piece. */
const float *calm_delta_value_row(const calm_delta_piece *p, size_t i);

/* Returns the index of token i in decay, beta and norms. */
size_t calm_delta_gate_at(const calm_delta_piece *p, size_t i);

/* Returns the index of the piece's S in the states (calm_delta_states). */
size_t calm_delta_state_at(const calm_delta_piece *p, size_t chunk);

/* Computes log, fading and mixed. */
void calm_delta_mix(const calm_delta_piece *p);

/* Computes the right side of the system from u = S^T k, in place. */
void calm_delta_right_side(const calm_delta_piece *p, float *u);

/* Solves the system from its right side, in place. */
void calm_delta_solve(const calm_delta_piece *p, float *u);

/* Computes faded. */
void calm_delta_fade_keys(const calm_delta_piece *p);
