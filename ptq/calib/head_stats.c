/* Runs the float model over the last calibration windows, and sums the Gram matrix of the final norm's output. */
#include "ptq/calib/head_stats.h"

#include "ptq/calib/gram.h"
#include "ptq/model/forward.h"

/* Limit for hidden states of a batch.  Fixed, not taken from the free memory: batches decide the order of the sums. */
#define BATCH_BYTES ((size_t)64 * 1024 * 1024)

/* With this many rows per column a fit by rows is within 5 % of its limit (docs/method.md section 6). */
#define ROWS_PER_INPUT ((size_t)16)
#define LEAST_ROWS ((size_t)16384)

size_t calm_head_stats_first(const calm_windows *windows, size_t width)
{
    const size_t wanted = calm_size_max(ROWS_PER_INPUT * width, LEAST_ROWS);
    size_t first = windows->n;
    while (first > windows->n / 4 && windows->begin[windows->n] - windows->begin[first] < wanted)
        first--;
    return first;
}

/* Adds X^T X over windows first .. first + n - 1. */
static calm_status add_batch(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                             const calm_windows *windows, size_t first, size_t n, double *gram)
{
    calm_batch batch;
    size_t *begin;
    float *x;
    CALM_SCOPED_ARENA(rows);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_batch_forward(ctx, model, rope, head, windows, first, n, NULL, NULL, &rows, &batch));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, begin, n + 1));
    for (size_t i = 0; i <= n; i++)
        begin[i] = i < n ? calm_batch_row(&batch, i) : batch.rows;
    CALM_TRY(calm_row_store_get(ctx, &batch.hidden, 0, batch.rows, &x));
    const calm_gram_job job = {.gram = gram, .x = x, .rows = batch.rows, .width = batch.width, .row_begin = begin,
                               .n_parts = n};
    return calm_gram_add(ctx, &job, 1);
}

calm_status calm_head_stats_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, double **gram,
                                    size_t *rows)
{
    const calm_config *config = calm_model_config(model);
    const size_t width = config->hidden, begin = calm_head_stats_first(windows, width);
    const size_t most = calm_batch_windows(windows, width, BATCH_BYTES);
    calm_rope rope;
    calm_head head;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *gram, width * width));
    *rows = windows->begin[windows->n] - windows->begin[begin];
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_rope_init(ctx, config, calm_windows_reach(windows), &rope));
    CALM_TRY(calm_model_load_head(ctx, model, &head));
    for (size_t first = begin, n; first < windows->n; first += n) {
        n = calm_size_min(most, windows->n - first);
        CALM_TRY(add_batch(ctx, model, &rope, &head, windows, first, n, *gram));
    }
    calm_gram_mirror(ctx, width, *gram);
    return CALM_OK;
}

/* ---- memory ---- */

size_t calm_head_stats_bytes(size_t width)
{
    return calm_gram_bytes(width);
}

/* Peak bytes of a block while it runs. */
static size_t block_bytes(const calm_model *model, size_t block, size_t n_windows, size_t longest, size_t n_threads)
{
    const calm_config *config = calm_model_config(model);
    const size_t expert = calm_model_load_expert_bytes(model, block);
    size_t bytes = 0;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        bytes += calm_model_load_sublayer_bytes(model, block, s);
    return bytes + calm_batch_block_scratch_bytes(config, block, n_windows, longest, expert, false, n_threads);
}

size_t calm_head_stats_scratch_bytes(const calm_model *model, calm_operands operands, size_t n_windows, size_t longest,
                                     size_t n_threads)
{
    const calm_config *config = calm_model_config(model);
    const size_t width = config->hidden;
    const size_t n = calm_size_min(n_windows, calm_batch_count(n_windows, longest, width, BATCH_BYTES));
    size_t most = calm_gram_add_scratch_bytes(operands, &width, 1, false, n_threads);
    for (size_t b = 0; b < config->n_blocks; b++)
        most = calm_size_max(most, block_bytes(model, b, n, longest, n_threads));
    return calm_rope_bytes(config, longest) + calm_model_load_head_bytes(config) +
           calm_row_store_bytes(n * longest, calm_batch_width(config)) + CALM_BYTES(size_t, n + 1) + most;
}
