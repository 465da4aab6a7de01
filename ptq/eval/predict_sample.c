/* Random vectors whose covariance is the KL divergence's second derivative. */
#include "ptq/eval/predict_sample.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/eval/predict_back.h"
#include "ptq/eval/predict_impl.h"
#include "ptq/tensor/vector.h"

/* Signs per random number. */
#define BITS ((size_t)64)

typedef struct sample_task {
    calm_predict_pass pass;    /* dhidden: J^T (sqrt(p) s) */
    size_t first_row;
    uint64_t stream;
    double *sum;               /* [n] sqrt(p) . s          */
    float *mean;               /* [n, D] J^T p             */
} sample_task;

/* Computes signed[i] = sqrt(p[i]) s[i] of tokens first .. first + count - 1; returns their sum. */
static double draw_signs(const sample_task *task, size_t row, const float *p, float *out)
{
    double sum = 0;
    uint64_t bits = 0;
    for (size_t i = 0; i < task->pass.count; i++) {
        const size_t token = task->pass.first + i;
    /* Indexed by the token's number, so that tile boundaries change nothing. */
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
    const calm_predict_pass *pass = &task->pass;
    const calm_predictor *model = &pass->set->models[0];
    const size_t row = index * CALM_PREDICT_PASS_ROWS, rows = calm_size_min(CALM_PREDICT_PASS_ROWS, pass->n - row);
    const size_t count = pass->count, width = model->head.hidden;
    float *part[CALM_PREDICT_PARTS];
    CALM_SCOPED(calm_predict_room *, calm_predict_room_give) room = NULL;
    CALM_TRY(calm_predict_room_take(ctx, &pass->rooms, &room, part));
    float *logits = part[0], *p = part[1], *signs = part[2];
    CALM_TRY(calm_predict_pass_logits(ctx, pass, model, row, rows, logits));
    for (size_t t = 0; t < rows; t++) {
        float *row_p = p + t * count;
        if (pass->targets[row + t] == CALM_NO_TARGET) {
            memset(row_p, 0, count * sizeof *row_p);
            memset(signs + t * count, 0, count * sizeof *signs);
            continue;
        }
        calm_predict_probabilities(&model->rows[row + t], count, logits + t * count, row_p);
        task->sum[row + t] += draw_signs(task, task->first_row + row + t, row_p, signs + t * count);
    }
    CALM_TRY(calm_head_multiply_back(ctx, &model->head, model->tile, logits, rows, count, signs,
                                     pass->dhidden + row * width));
    return calm_head_multiply_back(ctx, &model->head, model->tile, logits, rows, count, p, task->mean + row * width);
}

calm_status calm_predict_sample_back(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n,
                                     size_t first, uint64_t stream, float *dhidden)
{
    sample_task task = {.pass = {.set = set, .targets = targets, .n = n, .dhidden = dhidden}, .first_row = first,
                        .stream = stream};
    if (set->n != 1 || set->has_reference)
        return calm_fail(ctx, CALM_EARG, "directions of the KL divergence are of one model, not %zu", set->n);
    const size_t width = set->models[0].head.hidden;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.sum, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.mean, n * width));
    CALM_TRY(calm_predict_pass_run(ctx, &task.pass, width, sample_chunk, &task));
    /* The sum over the whole vocabulary is known only now; J^T is linear, so a second pass is not needed. */
    for (size_t t = 0; t < n; t++)
        calm_vec_axpy(width, (float)-task.sum[t], task.mean + t * width, dhidden + t * width);
    return calm_predict_pass_check(ctx, &task.pass, width);
}

size_t calm_predict_sample_back_scratch_bytes(const calm_config *config, size_t n, size_t n_threads)
{
    /* A task has three tiles, as in the divergence's gradient. */
    return n ? CALM_BYTES(double, n) + CALM_BYTES(float, n * config->hidden) +
                   calm_predict_back_scratch_bytes(config, n, n_threads) : 0;
}
