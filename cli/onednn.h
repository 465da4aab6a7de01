/* oneDNN's float32 matrix product, for comparison in calm bench; the library is optional and loaded at run time. */
#pragma once

#include <stdint.h>

/* The type of dnnl_sgemm in oneDNN 1 to 3 (dnnl.h), which computes C [m, n] = alpha op(A) op(B) + beta C, row-major;
 * transa and transb are 'N' or 'T'.  Returns 0 after success. */
typedef int calm_onednn_sgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* Loads libdnnl, which stays loaded, and returns its dnnl_sgemm; NULL: there is none. */
calm_onednn_sgemm *calm_onednn_find(void);
