/* Floating-point operations of a run. */
#include "ptq/run/work.h"

#include "algorithms/algorithm.h"
#include "ptq/model/block_pass.h"
#include "ptq/model/model.h"
#include "ptq/run/work_impl.h"

/* Float model and result on a whole text: what is below this is evaluated whole, a minute or two on a small machine. */
#define WHOLE_TEXT_FLOPS 2e13
/* Fewer windows would leave a standard error that says little about a quantized model. */
#define LEAST_WINDOWS ((size_t)64)

double calm_run_work_cost(const calm_run_work *work)
{
    return work->forward + work->sgemm + 2 * work->dgemm + work->chains;
}

double calm_run_work_token(const calm_inputs *in)
{
    /* Attention scores are small beside the weights at the usual lengths. */
    return calm_run_work_blocks(in, 0, calm_model_config(in->model)->n_blocks, 0) + calm_run_work_head(in);
}

double calm_run_work_blocks(const calm_inputs *in, size_t first, size_t end, double window)
{
    const calm_config *config = calm_model_config(in->model);
    const calm_layout *layout = calm_model_layout(in->model);
    /* Blocks may differ in their weights, and are alike in attention. */
    const double weights = calm_inputs_weights(in, layout->block_begin[first], layout->block_begin[end], true);
    return calm_block_operations(config, weights, 0) +
           (double)(end - first) * calm_block_operations(config, 0, window);
}

double calm_run_work_head(const calm_inputs *in)
{
    const calm_config *config = calm_model_config(in->model);
    return 2 * (double)config->hidden * (double)config->vocab;
}

double calm_run_work_gradients(const calm_inputs *in, size_t n, size_t first)
{
    const size_t n_blocks = calm_model_config(in->model)->n_blocks;
    const double rows = (double)in->calib.begin[n], window = n ? rows / (double)n : 0;
    /* Forward; of what the gradient goes through once more, and back to the rows alone.  The head's logits twice, and
     * two sums back. */
    return rows * (calm_run_work_blocks(in, 0, n_blocks, window) +
                   (CALM_BLOCK_BOTH - 1) * calm_run_work_blocks(in, first, n_blocks, window) +
                   4 * calm_run_work_head(in));
}

/* Add what the candidates of one job take: of an expert, with its share of the rows. */
static void add_job(const calm_inputs *in, const calm_job_ref *job, double rows, double score_rows, calm_run_work *work)
{
    const calm_recipe *recipe = in->recipe;
    const double out = (double)job->out, width = (double)job->in,
                 hidden = (double)calm_model_config(in->model)->hidden;
    bool gram = false;
    for (size_t a = 0; a < recipe->n_pool; a++) {
        const calm_algorithm *algorithm = recipe->pool[a].algorithm;
        if (calm_algorithm_caps(algorithm) & CALM_NEEDS_GRAM) {
            work->dgemm += 4.0 / 3.0 * width * width * width;    /* factor, inverse, its factor */
            gram = true;
        }
        work->chains += 2 * out * width * width * calm_algorithm_products(algorithm);
        /* A score needs the candidate's output, and three Gram matrices of width `hidden`: of it, of the float
         * output, of both. */
        work->sgemm += 2 * score_rows * out * width;
        work->dgemm += 3 * 2 * score_rows * hidden * hidden;
    }
    /* Collected once for all candidates.  One triangle takes half the operations of a product, at about 0.7 of its
     * rate. */
    work->sgemm += gram ? rows * width * width / 0.7 : 0;
}

/* Of all calibration windows, but for attention. */
static double passes(const calm_inputs *in, size_t first, size_t end)
{
    const double rows = calm_inputs_read_rows(in) ? (double)in->calib.begin[in->calib.n] : 0;
    return rows * calm_run_work_blocks(in, first, end, 0);
}

/* Add what the candidates of jobs first .. end - 1 take. */
static void add_jobs(const calm_inputs *in, size_t first, size_t end, calm_run_work *work)
{
    const calm_config *config = calm_model_config(in->model);
    const calm_layout *layout = calm_model_layout(in->model);
    const double rows = (double)in->calib.begin[in->calib.n],
                 score_rows = (double)in->calib.begin[calm_inputs_scored_windows(in)];
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        /* A token is routed to top_k of the experts: a job of one expert sees its share of the rows, if routing is
         * even. */
        const double share = job->expert >= 0 ? (double)config->moe.top_k / (double)config->moe.n_experts : 1;
        add_job(in, job, share * rows, share * score_rows, work);
    }
}

calm_run_work calm_run_work_of_block(const calm_inputs *in, size_t block)
{
    const calm_layout *layout = calm_model_layout(in->model);
    calm_run_work work = {.forward = passes(in, block, block + 1)};
    if (block >= in->first_block && block < in->end_block)
        add_jobs(in, layout->block_begin[block], layout->block_begin[block + 1], &work);
    return work;
}

double calm_run_work_guard(const calm_inputs *in)
{
    return (double)in->guard.begin[in->guard.n] * (double)(in->recipe->n_pool + 2) * calm_run_work_token(in);
}

/* Of everything but the evaluation, nothing being in the store. */
static calm_run_work all_work(const calm_inputs *in)
{
    size_t first, end;
    calm_run_work work = {.forward = passes(in, 0, in->end_block) + calm_run_work_guard(in)};
    calm_inputs_jobs(in, &first, &end);
    add_jobs(in, first, end, &work);
    if (in->recipe->weight)
        work.forward += calm_run_work_gradients(in, in->calib.n, in->first_block);
    return work;
}

size_t calm_run_work_share(double rest, double whole, size_t n)
{
    const double most = rest / 2;    /* a third of all is half of the rest */
    if (whole <= WHOLE_TEXT_FLOPS || whole <= most)
        return n;
    return calm_size_min(n, calm_size_max((size_t)((double)n * (most / whole)), LEAST_WINDOWS));
}

/* The same of float model and result on a text. */
static size_t share_of(const calm_inputs *in, const calm_windows *text)
{
    const calm_run_work work = all_work(in);
    return calm_run_work_share(work.forward + work.sgemm + work.dgemm + work.chains,
                               2 * (double)text->begin[text->n] * calm_run_work_token(in), text->n);
}

calm_status calm_run_work_read_eval(calm_ctx *ctx, const calm_inputs *in, calm_windows *out)
{
    const long long asked = in->recipe->eval_windows;
    /* The first windows, where their number is given: results of different runs are compared on this text. */
    CALM_TRY(calm_inputs_read_eval(ctx, in, asked < 0 ? 0 : (size_t)asked, false, out));
    const size_t n = asked < 0 ? share_of(in, out) : out->n;
    if (n == out->n)
        return CALM_OK;
    calm_log(ctx, CALM_LOG_INFO, "evaluation: %zu of %zu windows, spread over the text, which cost a third of the run "
                                 "(`evaluation.samples` 0: all)", n, out->n);
    return calm_inputs_read_eval(ctx, in, n, true, out);
}
