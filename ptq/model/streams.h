/* Streams of a block's residual (Gemma 3n): alternating updates, and a low-rank branch next to attention.
 *
 *   S_0 = e, S_i = rms(e) / rms(U_i e) U_i e                 before block 0; e what enters it
 *   m(v) = tanh(R RMSNorm(v) / D)                            [n]
 *   P_b = S_b + sum_a (C m(S_k))[b n + a] S_a                k the stream that the sublayers see
 *   h = IN(P_k);  x = (P_k + OUT(attention(h)) + h + RMSNorm(B A h)) / 2^1/2;  x' = x + OUT(mlp(IN(x)))
 *   S_i' = P_i + (1 + (G m(x'))_i) (x' - P_k)
 *   S_i' += RMSNorm(projection(act(gate (s S_k')) * p))      i > 0; p as in tail.h, s a factor of each channel
 *   x = 1/n (S_0 + sum_i rms(S_0) / rms(V_i S_i) V_i S_i)    behind the last block, for the final norm
 *
 * The sublayers' x [T, D] is what other families call the residual: between blocks it is S_k, behind the last one the
 * sum.  All streams are carried with it (calm_span), from config.streams.at on.  So what holds rows, runs sublayers
 * one by one or scores a block needs to know nothing about them.  rms(U e) is at least 1e-5^1/2.
 *
 * References: arXiv 2301.13310 (AltUp), 2411.07501 (LAuReL); transformers' modeling_gemma3n.py. */
#pragma once

#include "ptq/model/tail.h"

/* Most streams; published models have 4. */
#define CALM_STREAMS ((size_t)16)

/* The three steps around a sublayer of x [T, D], each nothing in a family without streams: before its IN norm; after f
 * of h [T, D], what IN gave; after the sum of both.  CALM_EARG: the span carries no streams. */
calm_status calm_streams_before(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *x,
                                const calm_span *span);
calm_status calm_streams_branch(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const float *h,
                                float *x, const calm_span *span);
calm_status calm_streams_after(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *x,
                               const calm_span *span, const calm_observer *observer);

/* Most of ctx->scratch that a step holds. */
size_t calm_streams_bytes(const calm_config *config, size_t n_tokens);
