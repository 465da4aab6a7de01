/* Sampled square roots of the KL divergence's second derivative. */
#include "ptq/eval/predict_sample.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "ptq/eval/predict_impl.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/vector.h"

/* Rows of a task, as the gradient of the divergence has them. */
#define CHUNK_ROWS ((size_t)64)
/* Signs of one draw. */
#define BITS ((size_t)64)

typedef struct sample_task {
    const calm_predictors *set;
    const uint32_t *targets;
    size_t n, first_row;
    size_t first, count;    /* the tile in work */
    uint64_t stream;
    double *sum;            /* [n] sqrt(p) . s  */
    float *mean, *dhidden;  /* [n, D] J^T p, J^T (sqrt(p) s) */
} sample_task;

/* signed[i] = sqrt(p[i]) s[i] of tokens first .. first + count - 1; returns their sum. */
static double draw_signs(const sample_task *task, size_t row, const float *p, float *out)
{
    double sum = 0;
    uint64_t bits = 0;
    for (size_t i = 0; i < task->count; i++) {
        const size_t token = task->first + i;
        /* By the token's number: where tiles begin changes nothing. */
        if (i == 0 || token % BITS == 0)
            bits = calm_rng_u64(row, task->stream, token / BITS);
        const float root = sqrtf(p[i]);
        out[i] = bits >> token % BITS & 1 ? root : -root;
        sum += (double)out[i];
    }
    return sum;
}

static calm_status sample_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const sample_task *task = user;
    const calm_predictor *model = &task->set->models[0];
    const size_t row = index * CHUNK_ROWS, rows = calm_size_min(CHUNK_ROWS, task->n - row), count = task->count;
    const size_t width = model->head.hidden;
    float *x, *logits, *p, *signs;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, logits, rows * count));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, p, rows * count));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, signs, rows * count));
    CALM_TRY(calm_row_store_get(ctx, model->hidden, row, rows, &x));
    calm_head_multiply(&model->head, model->tile, x, rows, task->first, count, logits, count);
    for (size_t t = 0; t < rows; t++) {
        const calm_prediction *sums = &model->rows[row + t];
        float *row_p = p + t * count;
        if (task->targets[row + t] == CALM_NO_TARGET)
            continue;
        calm_vec_exp_sum(count, sums->max, logits + t * count, row_p);
        calm_vec_scale(count, (float)(1.0 / sums->sum), row_p);
        task->sum[row + t] += draw_signs(task, task->first_row + row + t, row_p, signs + t * count);
    }
    calm_head_multiply_back(&model->head, model->tile, logits, rows, count, signs, task->dhidden + row * width);
    calm_head_multiply_back(&model->head, model->tile, logits, rows, count, p, task->mean + row * width);
    return CALM_OK;
}

calm_status calm_predict_sample_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n,
                                     size_t first, uint64_t stream, float *dhidden)
{
    sample_task task = {.set = set, .targets = targets, .n = n, .first_row = first, .stream = stream,
                        .dhidden = dhidden};
    if (set->n != 1 || set->has_reference)
        return calm_fail(ctx, CALM_EARG, "directions of the KL divergence are of one model, not %zu", set->n);
    const size_t width = set->models[0].head.hidden;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.sum, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.mean, n * width));
    memset(dhidden, 0, n * width * sizeof *dhidden);
    /* Tiles one after the other add to the same rows. */
    for (; task.first < set->vocab; task.first += task.count) {
        CALM_TRY(calm_predict_read_tile(ctx, set, task.first, &task.count));
        CALM_TRY(calm_parallel_for(ctx, (n + CHUNK_ROWS - 1) / CHUNK_ROWS, sample_chunk, &task));
    }
    /* The sum over the whole vocabulary is known only now; J^T is linear, so that no second pass is needed. */
    for (size_t t = 0; t < n; t++)
        calm_vec_axpy(width, (float)-task.sum[t], task.mean + t * width, dhidden + t * width);
    const size_t bad = calm_find_nonfinite(dhidden, n * width);
    if (bad < n * width)
        return calm_fail(ctx, CALM_ENUMERIC, "the gradient of the head's input is not finite (token %zu, channel %zu)",
                         bad / width, bad % width);
    return CALM_OK;
}

size_t calm_predict_sample_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads)
{
    const calm_head head = {.hidden = config->hidden, .vocab = config->vocab};
    const size_t rows = calm_size_min(n, CHUNK_ROWS), chunk = 3 * CALM_BYTES(float, rows * calm_head_tile(&head));
    const size_t own = CALM_BYTES(double, n) + CALM_BYTES(float, n * config->hidden);
    return rows ? own + calm_size_min(n_threads, (n + rows - 1) / rows) * chunk : 0;
}
