/* Gradient of the KL divergence. */
#include "ptq/eval/predict_back.h"

#include <string.h>

#include "ptq/eval/predict_impl.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/vector.h"

typedef struct back_task {
    calm_predict_pass pass;
    float scale;
} back_task;

/* ---- passes ---- */

calm_status calm_predict_pass_logits(calm_ctx *ctx, const calm_predict_pass *pass, const calm_predictor *model,
                                     size_t row, size_t rows, float *logits)
{
    float *x;
    CALM_TRY(calm_row_store_get(ctx, model->hidden, row, rows, &x));
    return calm_head_multiply(ctx, &model->head, model->tile, x, rows, pass->first, pass->count, logits, pass->count);
}

void calm_predict_probabilities(const calm_prediction *row, size_t n, const float *logits, float *p)
{
    calm_vec_exp_sum(n, row->max, logits, p);
    calm_vec_scale(n, (float)(1.0 / row->sum), p);
}

calm_status calm_predict_pass_run(calm_ctx *ctx, calm_predict_pass *pass, size_t width, calm_task_fn *fn, void *task)
{
    const size_t n_chunks = (pass->n + CALM_PREDICT_PASS_ROWS - 1) / CALM_PREDICT_PASS_ROWS;
    const size_t logits = calm_size_min(pass->n, CALM_PREDICT_PASS_ROWS) * pass->set->tile;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_predict_rooms_open(ctx, n_chunks, (const size_t[]){logits, logits, logits}, &pass->rooms));
    memset(pass->dhidden, 0, pass->n * width * sizeof *pass->dhidden);
    /* One tile after the other, because all add to the same rows. */
    for (pass->first = 0; pass->first < pass->set->vocab; pass->first += pass->count) {
        CALM_TRY(calm_predict_read_tile(ctx, pass->set, pass->first, &pass->count));
        CALM_TRY(calm_parallel_for(ctx, n_chunks, fn, task));
    }
    return CALM_OK;
}

calm_status calm_predict_pass_check(calm_ctx *ctx, const calm_predict_pass *pass, size_t width)
{
    const size_t bad = calm_find_nonfinite(pass->dhidden, pass->n * width);
    if (bad < pass->n * width)
        return calm_fail(ctx, CALM_ENUMERIC, "the gradient of the head's input is not finite (token %zu, channel %zu)",
                         bad / width, bad % width);
    return CALM_OK;
}

/* ---- the divergence ---- */

static calm_status back_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const back_task *task = user;
    const calm_predict_pass *pass = &task->pass;
    const calm_predictor *reference = &pass->set->models[0], *model = &pass->set->models[1];
    const size_t row = index * CALM_PREDICT_PASS_ROWS, rows = calm_size_min(CALM_PREDICT_PASS_ROWS, pass->n - row);
    const size_t count = pass->count;
    const size_t width = model->head.hidden;
    float *part[CALM_PREDICT_PARTS];
    CALM_SCOPED(calm_predict_room *, calm_predict_room_give) room = NULL;
    CALM_TRY(calm_predict_room_take(ctx, &pass->rooms, &room, part));
    float *p = part[0], *logits = part[1], *dlogits = part[2];
    CALM_TRY(calm_predict_pass_logits(ctx, pass, reference, row, rows, p));
    CALM_TRY(calm_predict_pass_logits(ctx, pass, model, row, rows, logits));
    for (size_t t = 0; t < rows; t++) {
        float *row_p = p + t * count, *d = dlogits + t * count;
        if (pass->targets[row + t] == CALM_NO_TARGET) {
            memset(d, 0, count * sizeof *d);
            continue;
        }
        calm_predict_probabilities(&reference->rows[row + t], count, row_p, row_p);
        calm_predict_probabilities(&model->rows[row + t], count, logits + t * count, d);
        calm_vec_axpy(count, -1, row_p, d);
        calm_vec_scale(count, task->scale, d);
    }
    return calm_head_multiply_back(ctx, &model->head, model->tile, logits, rows, count, dlogits,
                                   pass->dhidden + row * width);
}

calm_status calm_predict_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n, float scale,
                              float *dhidden)
{
    back_task task = {{.set = set, .targets = targets, .n = n, .dhidden = dhidden}, scale};
    if (!set->has_reference || set->n != 2)
        return calm_fail(ctx, CALM_EARG,
                         "a gradient of the KL divergence needs a reference and one model, not %zu models", set->n);
    const size_t width = set->models[1].head.hidden;
    CALM_TRY(calm_predict_pass_run(ctx, &task.pass, width, back_chunk, &task));
    return calm_predict_pass_check(ctx, &task.pass, width);
}

size_t calm_predict_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads)
{
    const calm_head head = {.hidden = config->hidden, .vocab = config->vocab};
    const size_t rows = calm_size_min(n, CALM_PREDICT_PASS_ROWS);
    const size_t chunk = 3 * CALM_BYTES(float, rows * calm_head_tile(&head));
    return rows ? calm_size_min(n_threads, (n + rows - 1) / rows) * chunk : 0;
}
