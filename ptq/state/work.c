/* Floating-point operations of a run. */
#include "ptq/state/work.h"

#include "algorithms/algorithm.h"
#include "cka/cka.h"
#include "ptq/layers/block_pass.h"
#include "ptq/model/model.h"
#include "ptq/state/forecast_fit.h"
#include "ptq/state/work_impl.h"

/* The evaluation's share of a run; its operations are about as fast as the others, so this is also its share of
 * time. */
#define EVALUATION_SHARE .15
/* With fewer windows or tokens the standard error is too large to say much about a quantized model.  If the share has
 * fewer, the evaluation of a run below LONG_RUN operations may take MOST_SHARE of the run; every evaluation has at
 * least FEWEST windows. */
#define LEAST_WINDOWS ((size_t)64)
#define LEAST_TOKENS  (LEAST_WINDOWS * 512)
#define MOST_SHARE    (1 / 3.0)
#define FEWEST        ((size_t)16)
#define LONG_RUN      1e13

/* Scores take at most a tenth of the work that candidates of a pool of USUAL_POOL entries share: the forward pass of
 * the calibration and the Gram matrices.  Fewer than LEAST_SCORE_ROWS rows would make the choice random; below
 * SMALL_SCORES operations, a few seconds, all rows are scored. */
#define USUAL_POOL 6.0
#define LEAST_SCORE_ROWS ((size_t)512)
#define SCORE_STEP ((size_t)256)
#define SMALL_SCORES 2e12

double calm_run_work_cost(const calm_run_work *work)
{
    return work->forward + work->gram + work->outputs + 2 * (work->factors + work->scores) + work->chains;
}

double calm_run_work_token(const calm_inputs *in)
{
    /* Window 0: attention scores are small relative to the weights at usual lengths. */
    return calm_run_work_blocks(in, 0, calm_model_config(in->model)->n_blocks, 0) + calm_run_work_head(in);
}

double calm_run_work_blocks(const calm_inputs *in, size_t first, size_t end, double window)
{
    const calm_config *config = calm_model_config(in->model);
    const calm_layout *layout = calm_model_layout(in->model);
    double sum = 2 * calm_model_weights(in->model, layout->block_begin[first], layout->block_begin[end], true);
    /* Block by block, because blocks may mix tokens in different ways. */
    for (size_t i = first; i < end; i++)
        sum += calm_block_operations(calm_config_at(config, i), 0, window);
    return sum;
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
    /* A forward pass through all blocks; forward and backward again from block `first` on, only with respect to rows.
     * The head's logits are computed twice, and two sums go back through the head. */
    return rows * (calm_run_work_blocks(in, 0, n_blocks, window) +
                   (CALM_BLOCK_BOTH - 1) * calm_run_work_blocks(in, first, n_blocks, window) +
                   4 * calm_run_work_head(in));
}

/* One triangle has half the operations of a product, at about 0.7 of its rate. */
static double gram_work(double rows, double width)
{
    return rows * width * width / 0.7;
}

/* ---- scores ---- */

/* Operations in double to compare n outputs with the float ones (two forms of cka/score.h), and to prepare these. */
static double comparing(double n, double d)
{
    return n <= (double)calm_score_square_rows((size_t)d) ? 2 * n * n * d : 6 * n * d * d;
}

static double preparing(double n, double d)
{
    return n <= (double)calm_score_square_rows((size_t)d) ? 4 * n * n * d : 2 * n * d * d;
}

/* Returns the weights that rows are multiplied by from a job to the end of its sublayer or expert. */
static double weights_behind(const calm_layout *layout, size_t job)
{
    const calm_job_ref *ref = &layout->jobs[job];
    size_t begin, end;
    double weights = 0;
    calm_layout_fold_set(layout, ref->block, calm_job_sublayer(ref->kind), ref->expert, &begin, &end);
    for (size_t j = job; j < end; j++)
        weights += (double)layout->jobs[j].out * (double)layout->jobs[j].in;
    return weights;
}

/* Adds the scores of n candidates of a job: each needs its output.  The float output is prepared once, with the first
 * job of its sublayer or expert. */
static void add_scores(const calm_inputs *in, size_t job, double rows, double n, calm_run_work *work)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const calm_job_ref *ref = &layout->jobs[job];
    const double hidden = (double)calm_model_config(in->model)->hidden;
    size_t begin, end;
    calm_layout_fold_set(layout, ref->block, calm_job_sublayer(ref->kind), ref->expert, &begin, &end);
    work->outputs += n * 2 * rows * weights_behind(layout, job);
    work->scores += n * comparing(rows, hidden) + (job == begin ? preparing(rows, hidden) : 0);
}

/* Returns the share of rows of an expert's job: each token is routed to top_k experts, assumed evenly; 1 for other
 * jobs. */
static double share_of_rows(const calm_inputs *in, const calm_job_ref *job)
{
    const calm_moe_config *moe = &calm_model_config(in->model)->moe;
    return job->expert >= 0 ? (double)moe->top_k / (double)moe->n_experts : 1;
}

size_t calm_run_work_score_rows(double shared, double (*cost)(const void *user, size_t rows), const void *user,
                                size_t most)
{
    size_t rows = most;
    if (cost(user, most) <= SMALL_SCORES)
        return most;
    while (rows > LEAST_SCORE_ROWS && cost(user, rows) > shared / 9)
        rows -= SCORE_STEP;
    return calm_size_max(rows, calm_size_min(most, LEAST_SCORE_ROWS));
}

/* Returns the cost of scores of a pool like the default one on all jobs of the model, whatever the recipe has: runs
 * with other pools and blocks share stored candidates, so the scored rows must not depend on pool and blocks. */
static double scores_of(const void *user, size_t rows)
{
    const calm_inputs *in = user;
    const calm_layout *layout = calm_model_layout(in->model);
    calm_run_work work = {0};
    for (size_t j = 0; j < layout->n_jobs; j++)
        add_scores(in, j, (double)rows * share_of_rows(in, &layout->jobs[j]), USUAL_POOL, &work);
    return calm_run_work_cost(&work);
}

/* Returns the work that the candidates of such a pool share: a forward pass of the calibration, and Gram matrices. */
static double shared_by_pools(const calm_inputs *in)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const double rows = (double)in->calib.begin[in->calib.n];
    double work = rows * calm_run_work_blocks(in, 0, calm_model_config(in->model)->n_blocks, 0);
    for (size_t j = 0; j < layout->n_jobs; j++)
        work += gram_work(rows * share_of_rows(in, &layout->jobs[j]), (double)layout->jobs[j].in);
    return work;
}

calm_status calm_run_work_cut_scoring(calm_ctx *ctx, calm_inputs *in)
{
    const size_t n = calm_inputs_score_windows(in), whole = in->calib.begin[n];
    const size_t most = calm_size_min((size_t)in->recipe->score_rows, whole);
    /* In a sentence every token depends on all others, so an encoder's windows are not cut. */
    if (most && !calm_inputs_encode(in)) {
        const size_t rows = calm_run_work_score_rows(shared_by_pools(in), scores_of, in, most);
        in->score_tokens = rows < whole ? calm_size_max(rows / n, 1) : 0;
    }
    return calm_windows_cut(ctx, &in->calib, n, in->score_tokens ? in->score_tokens : SIZE_MAX, &in->scoring);
}

/* ---- candidates ---- */

/* Adds the work of a job's candidates; rows: for an expert, its share. */
static void add_job(const calm_inputs *in, size_t index, double rows, double score_rows, calm_run_work *work)
{
    const calm_recipe *recipe = in->recipe;
    const calm_job_ref *job = &calm_model_layout(in->model)->jobs[index];
    const double out = (double)job->out, width = (double)job->in;
    bool gram = false;
    double products = 0;
    for (size_t a = 0; a < recipe->n_pool; a++) {
        gram |= (calm_algorithm_caps(recipe->pool[a].algorithm) & CALM_NEEDS_GRAM) != 0;
        products += calm_algorithm_products(recipe->pool[a].algorithm, 1);
    }
    work->chains += 2 * out * width * width * products;
    if (score_rows > 0)
        add_scores(in, index, score_rows, (double)recipe->n_pool, work);
    /* Once for all candidates. */
    work->gram += gram ? gram_work(rows, width) : 0;
    work->factors += products > 0 ? calm_forecast_factor_operations(job->in) : 0;
}

/* Returns the operations of a pass of all calibration windows, without attention. */
static double passes(const calm_inputs *in, size_t first, size_t end)
{
    const double rows = calm_inputs_read_rows(in) ? (double)in->calib.begin[in->calib.n] : 0;
    return rows * calm_run_work_blocks(in, first, end, 0);
}

/* Adds the work of the candidates of jobs first .. end - 1. */
static void add_jobs(const calm_inputs *in, size_t first, size_t end, calm_run_work *work)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const double rows = (double)in->calib.begin[in->calib.n], score_rows = (double)calm_inputs_scored_rows(in);
    for (size_t j = first; j < end; j++) {
        const double share = share_of_rows(in, &layout->jobs[j]);
        if (!calm_inputs_keeps(in, j))
            add_job(in, j, share * rows, share * score_rows, work);
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
    /* The float model, the hybrid and each uniform run; with one algorithm the last two are the same. */
    const size_t n_pool = in->recipe->n_pool, n_models = n_pool > 1 ? n_pool + 2 : 2;
    return (double)in->guard.begin[in->guard.n] * (double)n_models * calm_run_work_token(in);
}

/* Returns the work of everything but the evaluation, as if the store were empty. */
static calm_run_work all_work(const calm_inputs *in)
{
    size_t first, end;
    calm_run_work work = {.forward = passes(in, 0, in->end_block) + calm_run_work_guard(in)};
    calm_inputs_jobs(in, &first, &end);
    add_jobs(in, first, end, &work);
    if (calm_inputs_row_weight(in) == CALM_WEIGHT_GRADIENT)
        work.forward += calm_run_work_gradients(in, in->calib.n, in->first_block);
    return work;
}

/* Returns the operations of everything but the evaluation.  A long run spends its time in products; those of chains
 * and those in double take twice as long as others. */
static double work_before_evaluation(const calm_inputs *in)
{
    const calm_run_work work = all_work(in);
    const double plain = work.forward + work.gram + work.outputs + work.factors + work.scores + work.chains;
    return plain < LONG_RUN ? plain : calm_run_work_cost(&work) + work.chains;
}

/* Returns how many of n windows cost `share` of a run. */
static size_t windows_of_share(double share, double rest, double whole, size_t n)
{
    return (size_t)((double)n * (rest * share / (1 - share) / whole));
}

size_t calm_run_work_share(double rest, double whole, size_t n, size_t n_tokens)
{
    if (whole <= rest * EVALUATION_SHARE / (1 - EVALUATION_SHARE))
        return n;
    const double most_share = rest < LONG_RUN ? MOST_SHARE : EVALUATION_SHARE;
    const size_t least = calm_size_min(LEAST_WINDOWS, LEAST_TOKENS * n / n_tokens),
                 most = calm_size_max(windows_of_share(most_share, rest, whole, n), FEWEST);
    return calm_size_min(n, calm_size_max(windows_of_share(EVALUATION_SHARE, rest, whole, n),
                                          calm_size_min(least, most)));
}

calm_status calm_run_work_read_eval(calm_ctx *ctx, const calm_inputs *in, calm_windows *out)
{
    const long long asked = in->recipe->eval_windows;
    /* If their number is given: the first windows, so that different runs can be compared. */
    CALM_TRY(calm_inputs_read_eval(ctx, in, asked < 0 ? 0 : (size_t)asked, false, out));
    if (asked >= 0 || !out->n)
        return CALM_OK;
    /* `whole`: float model and result. */
    const double rest = work_before_evaluation(in), whole = 2 * (double)out->begin[out->n] * calm_run_work_token(in);
    const size_t all = out->n, n = calm_run_work_share(rest, whole, all, out->begin[all]);
    if (n == all)
        return CALM_OK;
    const double cost = whole * (double)n / (double)all;
    calm_log(ctx, CALM_LOG_INFO,
             "evaluation: %zu of %zu windows, spread over the text, %.0f %% of the run's operations "
             "(`evaluation.samples` 0: all)", n, all, 100 * cost / (rest + cost));
    return calm_inputs_read_eval(ctx, in, n, true, out);
}
