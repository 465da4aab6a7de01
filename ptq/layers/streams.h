/* Parallel residual streams (Gemma 3n): alternating updates (AltUp), and a low-rank branch next to attention (LAuReL).
 *
 *   S_0 = e, S_i = rms(e) / rms(U_i e) U_i e                 before block 0; e its input
 *   m(v) = tanh(R RMSNorm(v) / D)                            [n]
 *   P_b = S_b + sum_a (C m(S_k))[b n + a] S_a                k the stream that sublayers read
 *   h = IN(P_k);  x = (P_k + OUT(attention(h)) + h + RMSNorm(B A h)) / 2^1/2;  x' = x + OUT(mlp(IN(x)))
 *   S_i' = P_i + (1 + (G m(x'))_i) (x' - P_k)
 *   S_i' += RMSNorm(projection(act(gate (s S_k')) * p))      i > 0; p as in tail.h, s a factor of each channel
 *   x = 1/n (S_0 + sum_i rms(S_0) / rms(V_i S_i) V_i S_i)    after the last block, for the final norm
 *
 * x [T, D] is the residual of the sublayers: between blocks it is S_k, after the last one the mean above.  All streams
 * are carried with it (calm_span), from column config.streams.at on.  So code that stores hidden states, runs single
 * sublayers or scores a block need not know about streams.  rms(U e) is at least 1e-5^1/2.
 *
 * References: arXiv 2301.13310 (AltUp), 2411.07501 (LAuReL); transformers' modeling_gemma3n.py. */
#pragma once

#include "ptq/layers/tail.h"

/* The three steps around a sublayer of x [T, D], which do nothing in a family without streams: before the IN norm;
 * after f(h), h [T, D] the output of the IN norm; after f(h) was added to x.  CALM_EARG: the span has no streams. */
calm_status calm_streams_before(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *x,
                                const calm_span *span);
calm_status calm_streams_branch(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const float *h,
                                float *x, const calm_span *span);
calm_status calm_streams_after(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *x,
                               const calm_span *span, const calm_observer *observer);

/* Returns the peak bytes of ctx->scratch of a step. */
size_t calm_streams_bytes(const calm_config *config, size_t n_tokens);
