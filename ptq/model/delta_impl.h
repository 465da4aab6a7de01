/* The steps of the gated delta rule, for its two directions.  Only delta*.c include it. */
#pragma once

#include "ptq/model/delta.h"

/* What a key head works in, for chunks of C tokens; of n <= C tokens each array is as if C were n. */
typedef struct calm_delta_room {
    float *kq;       /* [2 C, d_k]: k, then q                                                     */
    float *products; /* [2 C, C]: k k^T, then q k^T                                               */
    float *mixed;    /* [2 C, C]: the same with decays, beta and zeros: the system, what o reads  */
    float *fading;   /* [C, C]: exp(G_i - G_j), j <= i                                            */
    float *seen;     /* [2 C, d_v]: S^T k, which becomes u; S^T q                                 */
    float *faded;    /* [C, d_k]: exp(G_n - G_j) k_j                                              */
    double *log;     /* [C]: G_i                                                                  */
    float *memory;   /* [value heads of a key head, d_k, d_v]: S                                  */
} calm_delta_room;

/* In ctx->scratch, for chunks of `chunk` tokens; `memory` is the caller's, or NULL: zeros. */
calm_status calm_delta_room_new(calm_ctx *ctx, const calm_delta_shape *shape, size_t chunk, float *memory,
                                calm_delta_room *r);

/* What it takes without a `memory`. */
size_t calm_delta_room_bytes(const calm_delta_shape *shape, size_t chunk);

/* One chunk of one value head. */
typedef struct calm_delta_piece {
    const calm_delta_shape *shape;
    const calm_delta_rows *rows;
    const calm_delta_room *room;
    size_t begin, n, head; /* its tokens; value head      */
    float *memory;         /* S of that head, before them */
} calm_delta_piece;

/* sqrt(sum x^2 + eps), by which rows of q and k are divided. */
double calm_delta_length(size_t d, const float *x);

/* kq and products of a chunk of a key head. */
void calm_delta_chunk_begin(const calm_delta_shape *shape, const calm_delta_rows *rows, size_t key_head, size_t begin,
                            size_t n, const calm_delta_room *r);

/* v of token i of the piece. */
const float *calm_delta_value_row(const calm_delta_piece *p, size_t i);

/* Its entry in decay, beta and norms. */
size_t calm_delta_gate_at(const calm_delta_piece *p, size_t i);

/* Where the piece's S begins in the states (calm_delta_states). */
size_t calm_delta_state_at(const calm_delta_piece *p, size_t chunk);

/* log, fading and mixed. */
void calm_delta_mix(const calm_delta_piece *p);

/* From u = S^T k the right side of the system, in place. */
void calm_delta_right_side(const calm_delta_piece *p, float *u);

/* From the right side the solution, in place. */
void calm_delta_solve(const calm_delta_piece *p, float *u);

/* faded. */
void calm_delta_fade_keys(const calm_delta_piece *p);
