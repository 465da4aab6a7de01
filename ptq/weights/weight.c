/* Applies one linear. */
#include "ptq/weights/weight.h"

#include <assert.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/quant/grid.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/product.h"
#include "ptq/tensor/vector.h"
#include "ptq/weights/int_linear.h"
#include "ptq/weights/row_linear.h"

/* Prepares rows of x for the product: x / in_scale, then quantization per token. */
static void prepare_rows(const calm_weight *weight, const float *x, size_t n_tokens, float *out)
{
    const size_t n = n_tokens * weight->in;
    memcpy(out, x, n * sizeof *out);
    for (size_t t = 0; weight->in_scale && t < n_tokens; t++)
        for (size_t i = 0; i < weight->in; i++)
            /* Divided like in a folded norm: a product with the inverse would round differently. */
            out[t * weight->in + i] /= weight->in_scale[i];
    if (weight->act_bits)
        calm_actquant_rows(out, n_tokens, weight->in, weight->act_bits, weight->act_asymmetric, weight->act_rule,
                           weight->act_global, out);
}

/* Operands of one linear. */
typedef struct linear_task {
    const calm_weight *weight;
    const float *x, *dy;
    float *y;     /* output: prepared rows, dx, or dw whose rows are checked (NULL: not wanted) */
    float *dbias; /* NULL: not wanted */
    size_t n_tokens;
    bool add;
} linear_task;

static void prepare_part(size_t first, size_t n, void *user)
{
    const linear_task *task = user;
    const size_t at = first * task->weight->in;
    prepare_rows(task->weight, task->x + at, n, task->y + at);
}

/* Returns the input of the product: prepared rows, or x itself in the usual case that it is not changed. */
static calm_status prepare_input(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                 const float **out)
{
    linear_task task = {.weight = weight, .x = x};
    *out = x;
    if (!weight->in_scale && !weight->act_bits)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.y, n_tokens * weight->in));
    *out = task.y;
    calm_parallel_each_rows(ctx, n_tokens, prepare_part, &task);
    return CALM_OK;
}

/* Fills y with the bias, to which the product adds. */
static void put_bias(size_t first, size_t n, void *user)
{
    const linear_task *task = user;
    const calm_weight *weight = task->weight;
    for (size_t t = first; t < first + n; t++)
        memcpy(task->y + t * weight->out, weight->bias, weight->out * sizeof *task->y);
}

size_t calm_weight_apply_scratch_bytes(size_t in, size_t n_tokens)
{
    return CALM_BYTES(float, n_tokens * in);
}

/* Type of calm_product() and calm_product_rows(). */
typedef calm_status product_fn(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                               size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Applies a linear by `product`; integer products prepare and quantize x themselves. */
static calm_status apply_by(product_fn *product, calm_ctx *ctx, const calm_weight *weight, const float *x,
                            size_t n_tokens, float *y)
{
    linear_task task = {.weight = weight, .y = y};
    if (weight->ints && weight->act_bits)
        return calm_int_linear_apply(ctx, 1, &weight, x, n_tokens, &y);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(prepare_input(ctx, weight, x, n_tokens, &x));
    /* The weight may be in its stored format, which only this product reads. */
    if (ctx->decode)
        return calm_row_linear_product(ctx, weight, x, n_tokens, y);
    /* The product adds to the bias (beta = 1), so y is written once. */
    if (weight->bias)
        calm_parallel_each_rows(ctx, n_tokens, put_bias, &task);
    return product(ctx, CALM_PRODUCT_NT, n_tokens, weight->out, weight->in, x, weight->in, weight->w, weight->in,
                   weight->bias ? 1.0f : 0.0f, y, weight->out);
}

calm_status calm_weight_apply(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y)
{
    return apply_by(calm_product_rows, ctx, weight, x, n_tokens, y);
}

calm_status calm_weight_apply_tiled(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y)
{
    return apply_by(calm_product, ctx, weight, x, n_tokens, y);
}

/* ---- several linears of one input ---- */

typedef struct each_task {
    const calm_weight *const *weight;
    const float *x;
    size_t n_tokens;
    calm_apply_fn *apply;
    float *const *y;
    bool prepared;    /* x is prepared */
} each_task;

/* Products of a few thousand rows have few pieces, and each waits for its last one: several linears together use the
 * threads better than one after the other. */
static calm_status apply_one(calm_ctx *ctx, size_t i, void *user)
{
    const each_task *task = user;
    /* A copy of the linear, since x may be prepared: it must not be scaled or rounded twice. */
    calm_weight weight = *task->weight[i];
    if (task->prepared) {
        weight.in_scale = NULL;
        weight.act_bits = 0;
    }
    return task->apply(ctx, &weight, task->x, task->n_tokens, task->y[i]);
}

/* Do both linears prepare the same input alike? */
static bool prepares_alike(const calm_weight *a, const calm_weight *b)
{
    const bool scaled = a->in_scale && b->in_scale;
    if (a->act_bits != b->act_bits || a->in != b->in || !a->ints != !b->ints || !a->in_scale != !b->in_scale)
        return false;
    /* Two arrays with the same values count as one scale. */
    if (scaled && a->in_scale != b->in_scale && memcmp(a->in_scale, b->in_scale, a->in * sizeof *a->in_scale) != 0)
        return false;
    return !a->act_bits || (a->act_asymmetric == b->act_asymmetric && a->act_rule == b->act_rule &&
                            a->act_global == b->act_global);
}

/* Applies n linears from `first` on, which prepare x alike. */
static calm_status apply_alike(calm_ctx *ctx, const each_task *all, size_t first, size_t n)
{
    each_task task = *all;
    const calm_weight *weight = all->weight[first];
    task.weight += first;
    task.y += first;
    if (weight->ints && weight->act_bits)
        return calm_int_linear_apply(ctx, n, task.weight, task.x, task.n_tokens, task.y);
    /* The memory plan of a forward pass has one prepared input at a time. */
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(prepare_input(ctx, weight, all->x, all->n_tokens, &task.x));
    task.prepared = true;
    return calm_parallel_for(ctx, n, apply_one, &task);
}

calm_status calm_weight_apply_each(calm_ctx *ctx, calm_apply_fn *apply, size_t n, const calm_weight *const *weight,
                                   const float *x, size_t n_tokens, float *const *y)
{
    const each_task task = {weight, x, n_tokens, apply, y, false};
    for (size_t first = 0, count; first < n; first += count) {
        for (count = 1; first + count < n && prepares_alike(weight[first], weight[first + count]);)
            count++;
        CALM_TRY(apply_alike(ctx, &task, first, count));
    }
    return CALM_OK;
}

/* ---- backward ---- */

/* Turns the gradient of the prepared input into dx: straight through the rounding, divided like the input. */
static void unscale_rows(size_t first, size_t n, void *user)
{
    const linear_task *task = user;
    const size_t in = task->weight->in;
    for (size_t t = first; t < first + n; t++)
        for (size_t i = 0; i < in; i++) {
            const float value = task->x[t * in + i] / task->weight->in_scale[i];
            task->y[t * in + i] = task->add ? task->y[t * in + i] + value : value;
        }
}

/* Computes dx [T, in] = dy W divided by the input's scale, or adds it to dx. */
static calm_status input_back(calm_ctx *ctx, const calm_weight *weight, size_t n_tokens, const float *dy, bool add,
                              float *dx)
{
    const size_t in = weight->in;
    float *prepared;
    if (!weight->in_scale)
        return calm_product(ctx, CALM_PRODUCT_NN, n_tokens, in, weight->out, dy, weight->out, weight->w, in,
                            add ? 1.0f : 0.0f, dx, in);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, prepared, n_tokens * in));
    CALM_TRY(calm_product(ctx, CALM_PRODUCT_NN, n_tokens, in, weight->out, dy, weight->out, weight->w, in, 0.0f,
                          prepared, in));
    calm_parallel_each_rows(ctx, n_tokens, unscale_rows,
                            &(linear_task){.weight = weight, .x = prepared, .y = dx, .add = add});
    return CALM_OK;
}

/* Checks that rows of dw are finite, and adds up the gradient of the bias. */
static calm_status finish_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const linear_task *task = user;
    const calm_weight *weight = task->weight;
    /* Token by token over this task's outputs: a fixed order, and no partial sums to keep. */
    for (size_t t = 0; task->dbias && t < task->n_tokens; t++)
        calm_vec_add(n, task->dy + t * weight->out + first, task->dbias + first);
    const size_t bad = task->dbias ? calm_find_nonfinite(task->dbias + first, n) : n;
    if (bad < n)
        return calm_fail(ctx, CALM_ENUMERIC, "the gradient of %s.bias is not finite (element %zu)", weight->name,
                         first + bad);
    const size_t count = task->y ? n * weight->in : 0;
    const size_t at = count ? calm_find_nonfinite(task->y + first * weight->in, count) : 0;
    if (at < count)
        return calm_fail(ctx, CALM_ENUMERIC, "the gradient of %s.weight is not finite (row %zu, column %zu)",
                         weight->name, first + at / weight->in, at % weight->in);
    return CALM_OK;
}

calm_status calm_weight_back(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, const float *dy,
                             float *dw, float *dbias, bool add, float *dx)
{
    assert(!weight->ints && !weight->bf16);    /* gradients exist only for float weights */
    if (dx)
        CALM_TRY(input_back(ctx, weight, n_tokens, dy, add, dx));
    if (!dw && !dbias)
        return CALM_OK;
    /* The prepared input is recomputed, as it was not kept: a pass over x costs little compared with a product. */
    if (dw) {
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(prepare_input(ctx, weight, x, n_tokens, &x));
        CALM_TRY(calm_product(ctx, CALM_PRODUCT_TN, weight->out, weight->in, n_tokens, dy, weight->out, x, weight->in,
                              1.0f, dw, weight->in));
    }
    return calm_parallel_rows(
        ctx, weight->out, finish_rows,
        &(linear_task){.weight = weight, .dy = dy, .y = dw, .dbias = dbias, .n_tokens = n_tokens});
}

size_t calm_weight_back_scratch_bytes(size_t in, size_t n_tokens)
{
    return CALM_BYTES(float, n_tokens * in);
}
