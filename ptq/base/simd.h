/* CALM_VECTORIZE compiles a hot loop for several vector widths, of which the loader selects one for the CPU.
 *
 * Marked loops have no sums of unspecified order, and the whole build contracts nothing to fused multiply-add, so
 * every clone computes the same bits: the selection affects speed only. */
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(CALM_SANITIZED)
#define CALM_VECTORIZE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CALM_VECTORIZE
#endif

/* Returns the variant of the system's exp, log and tanh that this CPU runs ("x86-64 avx2 fma"): glibc's variants
 * with and without fused multiply-add differ in the last bits.  Static storage. */
const char *calm_instructions(void);
