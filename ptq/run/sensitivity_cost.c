/* What sensitivities from gradients take: windows, memory. */
#include "ptq/eval/predict_sample.h"
#include "ptq/model/block_back.h"
#include "ptq/run/sensitivity_gradient.h"

/* Hidden rows of all blocks that are held at once; more windows come group by group. */
#define MOST_BYTES ((size_t)256 << 20)
/* Windows where none are held out. */
#define FEW_WINDOWS ((size_t)16)

/* So many batches of rows are held: what enters the blocks, the one that is worked on, the gradient and its share at
 * the head. */
static size_t n_batches(const calm_config *config)
{
    return config->n_blocks + 5;
}

size_t calm_run_gradient_held(const calm_run *p)
{
    const size_t held = calm_inputs_held_windows(&p->in);
    return held ? held : calm_size_min(FEW_WINDOWS, p->in.calib.n);
}

size_t calm_run_gradient_windows(const calm_run *p)
{
    const calm_config *config = calm_model_config(p->in.model);
    const size_t n = calm_run_gradient_held(p);
    return calm_size_min(n, calm_batch_count(n, p->in.calib.longest, config->hidden * n_batches(config), MOST_BYTES));
}

size_t calm_run_gradient_bytes(const calm_run *p, size_t n_threads)
{
    const calm_model *model = p->in.model;
    const calm_config *config = calm_model_config(model);
    const size_t longest = p->in.calib.longest, rows = calm_run_gradient_windows(p) * longest;
    const size_t workers = calm_size_min(n_threads, calm_run_gradient_windows(p));
    const size_t output = CALM_BYTES(float, longest * config->hidden);
    size_t block = 0;
    for (size_t b = 0; b < config->n_blocks; b++) {
        const size_t expert = calm_model_load_expert_bytes(model, b);
        const size_t alone = calm_block_back_scratch_bytes(config, b, longest, expert, 1);
        /* Threads without a window help with what others do. */
        block = calm_size_max(block, workers * (alone + output) - alone +
                                     calm_block_back_scratch_bytes(config, b, longest, expert, n_threads));
    }
    const size_t head = CALM_BYTES(uint32_t, rows) + CALM_BYTES(calm_prediction, rows) +
                        calm_size_max(calm_predict_scratch_bytes(config, rows, false, n_threads),
                                      calm_predict_sample_back_scratch_bytes(config, rows, n_threads));
    return calm_predictors_open_bytes(config, 1, 1, longest) +
           n_batches(config) * calm_row_store_bytes(rows, config->hidden) + calm_size_max(head, block);
}
