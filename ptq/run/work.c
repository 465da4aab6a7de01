/* Floating-point operations of a run. */
#include "ptq/run/work.h"

#include "algorithms/algorithm.h"
#include "ptq/model/model.h"
#include "ptq/run/work_impl.h"

/* Float model and result on a whole text: what is below this is evaluated whole, a minute or two on a small machine. */
#define WHOLE_TEXT_FLOPS 2e13
/* Fewer windows would leave a standard error that says little about a quantized model. */
#define LEAST_WINDOWS ((size_t)64)

double calm_run_work_token(const calm_inputs *in)
{
    const calm_config *config = calm_model_config(in->model);
    /* Attention scores are small beside the weights at the usual lengths. */
    return 2 * calm_inputs_weights(in, 0, calm_model_layout(in->model)->n_jobs, true) +
           2 * (double)config->hidden * (double)config->vocab;
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

calm_run_work calm_run_work_of(const calm_inputs *in)
{
    const calm_config *config = calm_model_config(in->model);
    const calm_layout *layout = calm_model_layout(in->model);
    const double rows = (double)in->calib.begin[in->calib.n],
                 score_rows = (double)in->calib.begin[calm_inputs_scored_windows(in)],
                 guard_rows = (double)in->guard.begin[in->guard.n];
    size_t first, end;
    /* One pass of the calibration windows through the blocks up to the last quantized one: two operations per weight.
     * The guard measures the float model, the hybrid and every uniform run. */
    const double passed = calm_recipe_needs_rows(in->recipe) ? rows : 0;
    calm_run_work work = {.forward = 2 * passed * calm_inputs_weights(in, 0, layout->block_begin[in->end_block], true) +
                                 guard_rows * (double)(in->recipe->n_pool + 2) * calm_run_work_token(in)};
    calm_inputs_jobs(in, &first, &end);
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        /* A token is routed to top_k of the experts: a job of one expert sees its share of the rows, if routing is
         * even. */
        const double share = job->expert >= 0 ? (double)config->moe.top_k / (double)config->moe.n_experts : 1;
        add_job(in, job, share * rows, share * score_rows, &work);
    }
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
    const calm_run_work work = calm_run_work_of(in);
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
