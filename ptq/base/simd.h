/* CALM_VECTORIZE: compile a hot loop for several vector widths and pick one at start.
 *
 * The loops it marks have no sums of unspecified order, and contraction to fused multiply-add is off in the
 * whole build, so every clone computes the same bits: the choice is about speed alone. */
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(CALM_SANITIZED)
#define CALM_VECTORIZE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CALM_VECTORIZE
#endif

/* Which variant of the system's exp, log and tanh runs here ("x86-64 avx2 fma"): glibc has some with and some without
 * fused multiply-add, and they give other last bits.  Static storage. */
const char *calm_instructions(void);
