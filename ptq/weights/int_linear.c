/* Linears as integer products. */
#include "ptq/weights/int_linear.h"

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/quant/grid.h"

/* Alignment of vector loads. */
#define LINE ((size_t)64)
/* With fewer columns the codes of a row and their sums are larger than its floats, which saves nothing. */
#define COLUMNS_LEAST ((size_t)32)

/* Returns the next address that LINE divides. */
static void *align(void *memory)
{
    char *at = memory;
    return at + (LINE - (uintptr_t)at % LINE) % LINE;
}

/* Size of the description, which is stored before the codes. */
#define HEAD ((sizeof(calm_int_weight) + LINE - 1) / LINE * LINE)

void calm_int_linear_take(const calm_ctx *ctx, const calm_int_source *source, float *memory, calm_weight *weight)
{
    weight->ints = NULL;
    /* Codes of a weight with float input are for gemv.h. */
    const bool whole = calm_actquant_has_codes(weight->act_bits, weight->act_asymmetric, weight->act_rule);
    if (!(weight->act_bits ? ctx->ints && whole : ctx->decode) ||
        source->in < COLUMNS_LEAST || !calm_int_packs(source) ||
        LINE + HEAD + calm_int_weight_bytes(source) > source->out * source->in * sizeof *memory)
        return;
    /* The caller has planned memory for the floats; codes take a quarter or an eighth of that. */
    char *head = align(memory);
    calm_int_weight *ints = (calm_int_weight *)(void *)head;
    calm_int_pack(source, head + HEAD, ints);
    weight->ints = ints;
}

/* ---- the input ---- */

/* Rows of one input, for calm_parallel_rows(). */
typedef struct rows_task {
    const calm_weight *weight;
    const float *x;    /* NULL: the rows have codes, and get the sums of another weight's groups */
    calm_int_rows rows;
} rows_task;

/* Codes of so few bits still fit into a byte without their zero point. */
#define SHIFT_BITS 6

/* Subtracts the zero point of row t from its codes, which saves the products' correction. */
static void drop_zero(calm_int_rows *rows, size_t t, size_t in)
{
    int8_t *codes = rows->codes + t * rows->stride;
    const int32_t zero = rows->zeros[t];
    if (zero == 0 || zero < -(1 << SHIFT_BITS) || zero >= 1 << SHIFT_BITS)
        return;
    for (size_t i = 0; i < in; i++)
        codes[i] = (int8_t)(codes[i] - zero);
    rows->zeros[t] = 0;
}

static calm_status encode_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    rows_task *task = user;
    const calm_weight *weight = task->weight;
    const size_t in = weight->in;
    float *divided = NULL;    /* of one row at a time, since only codes are kept */
    /* The codes depend on the scaled input, so the scale cannot be moved to the weight. */
    if (weight->in_scale && task->x)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, divided, in));
    for (size_t t = first; t < first + n; t++) {
        const float *x = task->x ? task->x + t * in : NULL;
        for (size_t i = 0; divided && i < in; i++)
            divided[i] = x[i] / weight->in_scale[i];
        if (x)
            calm_actquant_codes(divided ? divided : x, in, weight->act_bits, weight->act_asymmetric, weight->act_rule,
                                weight->act_global, task->rows.codes + t * task->rows.stride, &task->rows.scales[t],
                                &task->rows.zeros[t]);
        if (x && weight->act_bits <= SHIFT_BITS)
            drop_zero(&task->rows, t, in);
        calm_int_rows_finish(weight->ints, &task->rows, t);
    }
    return CALM_OK;
}

static bool groups_alike(const calm_int_weight *a, const calm_int_weight *b)
{
    return a->group == b->group && a->n_groups == b->n_groups;
}

/* Computes the codes of x and the sums of the first weight's groups, with space for those of any weight. */
static calm_status encode(calm_ctx *ctx, size_t n, const calm_weight *const *weight, const float *x, size_t n_tokens,
                          calm_int_rows *out)
{
    rows_task task = {.weight = weight[0], .x = x};
    const calm_int_weight *most = weight[0]->ints;
    float *memory;
    for (size_t i = 1; i < n; i++)
        most = weight[i]->ints->n_groups > most->n_groups ? weight[i]->ints : most;
    /* The size of the simulation's prepared floats; with COLUMNS_LEAST or more columns the codes need less. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, memory, n_tokens * weight[0]->in));
    calm_int_rows_init(most, n_tokens, align(memory), &task.rows);
    task.rows.n_groups = weight[0]->ints->n_groups;
    CALM_TRY(calm_parallel_rows(ctx, n_tokens, encode_rows, &task));
    *out = task.rows;
    return CALM_OK;
}

/* ---- products ---- */

typedef struct product_task {
    calm_int_set set;
    const calm_weight *const *weight;
    const calm_int_rows *rows;
    float *const *y;
} product_task;

static calm_status multiply(calm_ctx *ctx, size_t i, void *user)
{
    const product_task *task = user;
    calm_int_product(ctx, task->set, task->weight[i]->ints, task->rows, task->weight[i]->bias, task->y[i]);
    return CALM_OK;
}

calm_status calm_int_linear_apply(calm_ctx *ctx, size_t n, const calm_weight *const *weight, const float *x,
                                  size_t n_tokens, float *const *y)
{
    product_task task = {.weight = weight, .y = y};
    rows_task sums = {.weight = weight[0]};
    CALM_SCOPED_SCRATCH(ctx);
    /* Chosen each time, since a library has no place to store it; reading a variable takes far less time than a
     * product. */
    CALM_TRY(calm_int_choose(ctx, &task.set));
    CALM_TRY(encode(ctx, n, weight, x, n_tokens, &sums.rows));
    task.rows = &sums.rows;
    for (size_t i = 0, count; i < n; i += count, task.weight += count, task.y += count) {
        if (!groups_alike(sums.weight->ints, weight[i]->ints)) {
            sums.weight = weight[i];
            sums.rows.n_groups = weight[i]->ints->n_groups;
            CALM_TRY(calm_parallel_rows(ctx, n_tokens, encode_rows, &sums));
        }
        for (count = 1; i + count < n && groups_alike(weight[i]->ints, weight[i + count]->ints);)
            count++;
        CALM_TRY(calm_parallel_for(ctx, count, multiply, &task));
    }
    return CALM_OK;
}
