/* Included before a source file (-include), this header turns its float32 arithmetic into double: CMake compiles the
 * forward and backward pass, and their tests, a second time with it (calm_test_doubled).
 *
 * Headers of folders that are not compiled again come first, so that they declare float functions; the compiler
 * refuses a call of these with a double.  Constants keep their `f`: forward and backward pass have the same ones. */
#ifndef CALM_TESTS_DOUBLED_H
#define CALM_TESTS_DOUBLED_H

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/rng.h"
#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/data/windows.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/io/gguf.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/quant/grid.h"
#include "ptq/quant/levels.h"
#include "ptq/quant/mix.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/scheme.h"
#include "ptq/quant/stats.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/int_product.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/rotation.h"

/* Double versions of functions that take values, in doubled.c. */
calm_status calm_doubled_tensor(calm_ctx *ctx, const calm_tensor *tensor, double *out);
calm_status calm_doubled_tensor_part(calm_ctx *ctx, const calm_tensor *tensor, size_t first, size_t n, double *out);
size_t calm_doubled_find_nonfinite(const double *x, size_t n);
calm_status calm_doubled_rotate(calm_ctx *ctx, const calm_rotation *rotation, size_t rows, size_t columns, double *x);

/* Fails the test: a rounded input has no derivative. */
void calm_doubled_quantize(const double *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                           double global, double *y);

/* Replaces gelu.c, which reads the bits of a float32. */
void calm_doubled_gelu(size_t n, double *x);

#define float double

/* Disables vector instructions for float32, as under sanitizers. */
#ifndef CALM_SANITIZED
#define CALM_SANITIZED
#endif

#define calm_tensor_to_f32       calm_doubled_tensor
#define calm_tensor_part_to_f32  calm_doubled_tensor_part
#define calm_find_nonfinite      calm_doubled_find_nonfinite
#define calm_rotation_apply_rows calm_doubled_rotate
#define calm_actquant_rows       calm_doubled_quantize
#define calm_vec_gelu            calm_doubled_gelu
#define calm_sgemm_nt            calm_dgemm_nt
#define calm_sgemm_nn            calm_dgemm_nn
#define calm_sgemm_tn            calm_dgemm_tn
#define calm_sgemm               calm_dgemm
#define calm_ssyrk_t             calm_dsyrk_t

#define erff  erf
#define expf  exp
#define fabsf fabs
#define fmaxf fmax
#define fminf fmin
#define sqrtf sqrt
#define tanhf tanh

/* Renames polynomials that are exact to seven digits and read the bits of a float32. */
#define exp_one  exp_one_of_float
#define tanh_one tanh_one_of_float
#include "ptq/tensor/vector_impl.h"
#undef exp_one
#undef tanh_one
#define exp_one  exp
#define tanh_one tanh

#endif
