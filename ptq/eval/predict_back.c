/* Gradient of the KL divergence. */
#include "ptq/eval/predict_back.h"

#include <math.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/eval/predict_impl.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/vector.h"

/* Rows of a task: enough of them for the product, and tasks for eight threads in a window of 512 tokens. */
#define CHUNK_ROWS ((size_t)64)

typedef struct back_task {
    const calm_predictors *set;
    const uint32_t *targets;
    size_t n, first, count; /* rows; the tile in work */
    float scale, *dhidden;
} back_task;

/* Logits of a chunk of rows over the tile. */
static calm_status chunk_logits(calm_ctx *ctx, const back_task *task, const calm_predictor *model, size_t row,
                                size_t rows, float *logits)
{
    float *x;
    CALM_TRY(calm_row_store_get(ctx, model->hidden, row, rows, &x));
    calm_head_multiply(&model->head, model->tile, x, rows, task->first, task->count, logits, task->count);
    return CALM_OK;
}

/* Probabilities from the sums over all tiles. */
static void probabilities(const calm_prediction *row, size_t n, const float *logits, float *p)
{
    calm_vec_exp_sum(n, row->max, logits, p);
    calm_vec_scale(n, (float)(1.0 / row->sum), p);
}

static calm_status back_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const back_task *task = user;
    const calm_predictor *reference = &task->set->models[0], *model = &task->set->models[1];
    const size_t row = index * CHUNK_ROWS, rows = calm_size_min(CHUNK_ROWS, task->n - row), count = task->count;
    const size_t width = model->head.hidden;
    float *p, *logits, *dlogits;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, p, rows * count));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, logits, rows * count));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dlogits, rows * count));
    CALM_TRY(chunk_logits(ctx, task, reference, row, rows, p));
    CALM_TRY(chunk_logits(ctx, task, model, row, rows, logits));
    for (size_t t = 0; t < rows; t++) {
        float *row_p = p + t * count, *d = dlogits + t * count;
        if (task->targets[row + t] == CALM_NO_TARGET) {
            memset(d, 0, count * sizeof *d);
            continue;
        }
        probabilities(&reference->rows[row + t], count, row_p, row_p);
        probabilities(&model->rows[row + t], count, logits + t * count, d);
        calm_vec_axpy(count, -1, row_p, d);
        calm_vec_scale(count, task->scale, d);
    }
    calm_head_multiply_back(&model->head, model->tile, logits, rows, count, dlogits, task->dhidden + row * width);
    return CALM_OK;
}

calm_status calm_predict_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n, float scale,
                              float *dhidden)
{
    back_task task = {.set = set, .targets = targets, .n = n, .scale = scale, .dhidden = dhidden};
    if (!set->has_reference || set->n != 2)
        return calm_fail(ctx, CALM_EARG,
                         "a gradient of the KL divergence needs a reference and one model, not %zu models", set->n);
    const size_t width = set->models[1].head.hidden;
    memset(dhidden, 0, n * width * sizeof *dhidden);
    /* Tiles one after the other add to the same rows. */
    for (; task.first < set->vocab; task.first += task.count) {
        CALM_TRY(calm_predict_read_tile(ctx, set, task.first, &task.count));
        CALM_TRY(calm_parallel_for(ctx, (n + CHUNK_ROWS - 1) / CHUNK_ROWS, back_chunk, &task));
    }
    const size_t bad = calm_find_nonfinite(dhidden, n * width);
    if (bad < n * width)
        return calm_fail(ctx, CALM_ENUMERIC, "the gradient of the head's input is not finite (token %zu, channel %zu)",
                         bad / width, bad % width);
    return CALM_OK;
}

size_t calm_predict_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads)
{
    const calm_head head = {.hidden = config->hidden, .vocab = config->vocab};
    const size_t rows = calm_size_min(n, CHUNK_ROWS), chunk = 3 * CALM_BYTES(float, rows * calm_head_tile(&head));
    return rows ? calm_size_min(n_threads, (n + rows - 1) / rows) * chunk : 0;
}
