/* Double versions of functions from folders that stay in float32 (doubled.h; this file is compiled without it). */
#include "ptq/io/safetensors.h"
#include "ptq/quant/grid.h"
#include "ptq/tensor/rotation.h"
#include "tests/support/harness.h"

calm_status calm_doubled_tensor(calm_ctx *task, const calm_tensor *tensor, double *out);
calm_status calm_doubled_tensor_part(calm_ctx *task, const calm_tensor *tensor, size_t first, size_t n, double *out);
size_t calm_doubled_find_nonfinite(const double *x, size_t n);
calm_status calm_doubled_rotate(calm_ctx *task, const calm_rotation *rotation, size_t rows, size_t columns, double *x);
void calm_doubled_quantize(const double *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                           double global, double *y);
void calm_doubled_gelu(size_t n, double *x);

/* Narrows F64 values too: the fixtures' gradients are F32. */
calm_status calm_doubled_tensor_part(calm_ctx *task, const calm_tensor *tensor, size_t first, size_t n, double *out)
{
    CALM_SCOPED_SCRATCH(task);
    float *narrow;
    CALM_TRY(CALM_NEW_RAW(task, task->scratch, narrow, n));
    CALM_TRY(calm_tensor_part_to_f32(task, tensor, first, n, narrow));
    for (size_t i = 0; i < n; i++)
        out[i] = (double)narrow[i];
    return CALM_OK;
}

calm_status calm_doubled_tensor(calm_ctx *task, const calm_tensor *tensor, double *out)
{
    return calm_doubled_tensor_part(task, tensor, 0, tensor->n_elements, out);
}

size_t calm_doubled_find_nonfinite(const double *x, size_t n)
{
    size_t i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    return i;
}

/* Rows of several rotation blocks are as many rows of one block. */
calm_status calm_doubled_rotate(calm_ctx *task, const calm_rotation *rotation, size_t rows, size_t columns, double *x)
{
    return calm_rotation_apply(task, rotation, rows * (columns / rotation->n), 1, x);
}

void calm_doubled_quantize(const double *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                           double global, double *y)
{
    (void)x, (void)n, (void)d, (void)bits, (void)asymmetric, (void)rule, (void)global, (void)y;
    ck_abort_msg("a quantized input has no derivative");
}

/* Uses the float32 constant, as the backward pass does. */
void calm_doubled_gelu(size_t n, double *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 0.5 * x[i] * (1 + erf(x[i] * (double)0.70710678118654752f));
}
