/* oneDNN's float32 matrix product, for comparison in calm bench; the library is optional and loaded at run time. */
#pragma once

#include <stdint.h>

/* dnnl_sgemm of oneDNN 1 to 3 (dnnl.h): C [m, n] = alpha op(A) op(B) + beta C in C's order, 'N' or 'T' for either; 0
 * after success. */
typedef int calm_onednn_sgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* That of libdnnl, which stays loaded; NULL: there is none. */
calm_onednn_sgemm *calm_onednn_find(void);
