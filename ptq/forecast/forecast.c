/* Estimates a run from its shapes and half a second of measurement.
 *
 * Time is operations over rates.  The rates of matrix products and of each algorithm are measured on this machine,
 * because they differ much between CPUs; ratios that do not are constants below.  The aim is the right order of
 * magnitude, and which of two recipes takes longer. */
#include "ptq/forecast/forecast.h"

#include <math.h>
#include <string.h>

#include "ptq/base/memory.h"
#include "ptq/base/rng.h"
#include "ptq/base/scope.h"
#include "ptq/base/times.h"
#include "ptq/calib/capture.h"
#include "ptq/eval/evaluate.h"
#include "ptq/choose/choose.h"
#include "ptq/state/forecast_fit.h"
#include "ptq/forecast/forecast_impl.h"
#include "ptq/estimate/estimate.h"
#include "ptq/state/outer_rows.h"
#include "ptq/run/run.h"
#include "ptq/state/work.h"
#include "ptq/tensor/linalg.h"

/* The shape of the small job on which each algorithm is measured: large enough that its inner loops dominate, small
 * enough to take milliseconds. */
#define SAMPLE_OUT ((size_t)256)
#define SAMPLE_IN ((size_t)512)
#define MEASURE_SECONDS 0.1     /* per precision: a dozen products on a fast core */
/* The forward pass, with attention, norms, head and reading of weights, reaches width / (width + NARROW) of sgemm's
 * rate: operations outside of products grow with the width, products with its square.  Evaluations reach .88 of it at a
 * width of 1,024 and .65 at 256. */
#define NARROW 140.0
/* The share of sgemm's rate that Gram matrices reach; work.c assumes .7, from which the scored rows follow. */
#define GRAM_SHARE (0.92 / 0.7)
/* If steps of learning are not measured: the share of sgemm's rate that forward and backward pass of one window reach
 * (`calm bench backward`), and the seconds of a thread to update a weight and dequantize it. */
#define LEARN_SHARE 0.7
#define UPDATE_SECONDS 1.5e-9
/* Bytes per second: digests and reading of weights, each once, with all threads from memory or a fast disk; writing of
 * the result; checking of blobs. */
#define READ_RATE 2e9
#define WRITE_RATE 3e8
#define UNLIMITED "1000000GB"    /* more than any machine has */
#define GLANCE_SECONDS 0.02      /* per precision, for a line of a report */

/* The run that is estimated, opened but not started, and the measured rates. */
typedef struct forecast {
    calm_run *p;
    calm_forecast *out;
    double *entry;                 /* [n_pool] seconds of one thread on the small job                         */
    calm_algorithm *head;          /* algorithm that fits a head, NULL: none; its seconds on the small job    */
    double head_entry;
    int n_threads;                 /* threads of the run                                                      */
    calm_learn_rates steps;         /* rates of learning                                                      */
    calm_forecast_rates *rates;     /* rates measured so far                                                  */
    double calib_rate;              /* rate of the calibration's products relative to sgemm: 1 in float       */
    double rate;                    /* rate of all other products relative to sgemm                           */
    double value;                   /* seconds of the statistics of one activation                            */
} forecast;

/* ---- measuring ---- */

/* Builds random weights and inputs for the small job.  There are slightly more rows than inputs, so that the Gram
 * matrix is positive definite and no algorithm spends its time on damping. */
static calm_status sample_job(calm_ctx *ctx, calm_linear *linear, calm_stats *stats, calm_job *out)
{
    const size_t rows = SAMPLE_IN + 64;
    float *w, *absmax;
    double *x, *gram;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, SAMPLE_OUT * SAMPLE_IN));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, x, rows * SAMPLE_IN));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, gram, SAMPLE_IN * SAMPLE_IN));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, absmax, SAMPLE_IN));
    for (size_t i = 0; i < SAMPLE_OUT * SAMPLE_IN; i++)
        w[i] = (float)calm_rng_normal(2, 0, i);
    for (size_t i = 0; i < rows * SAMPLE_IN; i++)
        x[i] = calm_rng_normal(2, 1, i);
    for (size_t j = 0; j < SAMPLE_IN; j++)
        absmax[j] = 3;    /* a typical maximum of normal inputs */
    calm_dsyrk_t(SAMPLE_IN, rows, 1, x, SAMPLE_IN, 0, gram, SAMPLE_IN);
    calm_dsymmetrize(SAMPLE_IN, gram, SAMPLE_IN);
    *linear = (calm_linear){.name = "sample", .out = SAMPLE_OUT, .in = SAMPLE_IN, .w = w};
    *stats = (calm_stats){.rows = rows, .gram = gram, .absmax = absmax};
    *out = (calm_job){.name = "sample", .linears = linear, .n_linears = 1, .stats = stats};
    return CALM_OK;
}

/* Returns the seconds of an algorithm on the small job. */
static double sample_seconds(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job)
{
    calm_qjob qjob;
    const double begun = calm_time_busy(ctx->n_threads);
    if (calm_algorithm_run(ctx, algorithm, job, &qjob) != CALM_OK)
        calm_ctx_clear_failure(ctx);    /* in the run it would be a failed candidate */
    return calm_time_busy(ctx->n_threads) - begun;
}

/* Measures the rates of products that no earlier forecast has measured. */
static calm_status measure_rates(calm_ctx *ctx, const forecast *f, calm_operands operands)
{
    calm_forecast_rates *r = f->rates;
    const bool other = operands != CALM_OPERANDS_F32 && !(r->operand_flops[operands] > 0);
    return calm_rates_products(ctx, MEASURE_SECONDS, r->sgemm_flops > 0 ? NULL : &r->sgemm_flops, operands,
                               other ? &r->operand_flops[operands] : NULL,
                               r->dgemm_flops > 0 ? NULL : &r->dgemm_flops);
}

/* An algorithm and its time on the small job. */
struct calm_forecast_entry {
    struct calm_forecast_entry *next;
    const char *chain;
    calm_scheme scheme;
    calm_operands operands;
    double seconds;
};

/* Sets *seconds of an algorithm on the small job: known, or measured in the context `one` and stored. */
static calm_status entry_seconds(calm_ctx *ctx, calm_ctx *one, const forecast *f, const calm_algorithm *algorithm,
                                 const calm_job *job, double *seconds)
{
    const char *chain = calm_algorithm_canonical(algorithm);
    struct calm_forecast_entry *entry = f->rates->entries;
    while (entry && !(calm_scheme_same(&entry->scheme, &job->scheme) && entry->operands == one->operands &&
                      strcmp(entry->chain, chain) == 0))
        entry = entry->next;
    if (!entry) {
        char *copy;
        CALM_TRY(CALM_NEW(ctx, ctx->out, entry, 1));
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", chain));
        *entry = (struct calm_forecast_entry){f->rates->entries, copy, job->scheme, one->operands,
                                              sample_seconds(one, algorithm, job)};
        f->rates->entries = entry;
        calm_arena_clear(one->out);
    }
    *seconds = entry->seconds;
    return CALM_OK;
}

/* Measures every algorithm on one thread.  A separate context with a separate results arena keeps failures and memory
 * out of the caller's. */
static calm_status measure_algorithms(calm_ctx *ctx, forecast *f)
{
    const calm_recipe *recipe = f->p->in.recipe;
    calm_linear linear;
    calm_stats stats;
    calm_job job;
    calm_ctx one = *ctx;
    CALM_SCOPED_ARENA(results);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->out, f->entry, recipe->n_pool));
    CALM_TRY(sample_job(ctx, &linear, &stats, &job));
    one.out = &results;
    one.n_threads = 1;
    one.operands = calm_recipe_operands(recipe);    /* as in the run */
    for (size_t a = 0; a < recipe->n_pool; a++) {
        job.scheme = recipe->pool[a].scheme;
        CALM_TRY(entry_seconds(ctx, &one, f, recipe->pool[a].algorithm, &job, &f->entry[a]));
    }
    if (!calm_recipe_fits_head(f->p->in.recipe))
        return CALM_OK;
    /* With a scheme of the linears: the head's scheme takes about as long. */
    CALM_TRY(calm_outer_algorithm(ctx, f->p->choosing->head.algorithm, &f->head));
    return entry_seconds(ctx, &one, f, f->head, &job, &f->head_entry);
}

/* Returns the rates of learning if they are not measured. */
static calm_learn_rates usual_steps(double sgemm_flops, int n_threads)
{
    return (calm_learn_rates){.forward = LEARN_SHARE * sgemm_flops, .back = LEARN_SHARE * sgemm_flops,
                             .update = UPDATE_SECONDS / n_threads};
}

/* Measures the steps of learning, if the run learns. */
static calm_status measure_steps(calm_ctx *ctx, forecast *f)
{
    const calm_run *p = f->p;
    f->steps = usual_steps(f->rate * f->out->sgemm_flops, f->n_threads);
    if (!p->in.recipe->learn)
        return CALM_OK;
    CALM_SCOPED_OPERANDS(ctx, calm_recipe_operands(p->in.recipe));
    const calm_status status = calm_learn_rates_measure(ctx, p, calm_time_busy, &f->steps);
    /* Random rows may be too large for a model; then the usual rates are used. */
    if (status != CALM_ENUMERIC)
        return status;
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

/* Measures all rates: for this machine, with the run's threads and no other load; for ranks elsewhere, of one thread on
 * a free core. */
static calm_status measure(calm_ctx *ctx, const calm_forecast_machine *elsewhere, forecast *f)
{
    calm_forecast *out = f->out;
    calm_ctx one = *ctx;
    one.n_threads = elsewhere ? 1 : ctx->n_threads;
    const calm_operands operands = f->p->in.recipe->operands;
    CALM_TRY(measure_rates(&one, f, operands));
    if (!(f->rates->value_seconds > 0))
        CALM_TRY(calm_rates_value_seconds(&one, &f->rates->value_seconds));
    out->sgemm_flops = f->rates->sgemm_flops;
    out->dgemm_flops = f->rates->dgemm_flops;
    f->calib_rate = operands == CALM_OPERANDS_F32 ? 1 : f->rates->operand_flops[operands] / out->sgemm_flops;
    f->rate = calm_recipe_operands(f->p->in.recipe) == CALM_OPERANDS_F32 ? 1 : f->calib_rate;
    f->value = f->rates->value_seconds;
    CALM_TRY(measure_algorithms(ctx, f));
    if (!elsewhere)
        return measure_steps(ctx, f);
    const double threads = ctx->n_threads, measured = out->sgemm_flops * threads,
                 rate = elsewhere->sgemm_flops > 0 ? elsewhere->sgemm_flops : measured;
    out->dgemm_flops *= rate / out->sgemm_flops;
    f->value *= out->sgemm_flops / rate;
    out->sgemm_flops = rate;
    for (size_t a = 0; a < f->p->in.recipe->n_pool; a++)
        f->entry[a] *= measured / rate;
    f->head_entry *= measured / rate;
    f->steps = usual_steps(f->rate * rate, f->n_threads);
    return CALM_OK;
}

/* ---- costs ---- */

/* Adds to a stage seconds that all threads, or one `alone`, compute; returns the seconds. */
static double spend(const forecast *f, calm_time_stage stage, double seconds, bool alone)
{
    calm_time *time = &f->out->times.stage[stage];
    time->wall += seconds;
    time->cpu += alone ? seconds : seconds * f->n_threads;
    return seconds;
}

/* Returns the share of the forward pass outside of products, relative to its time at sgemm's rate. */
static double beside_products(const forecast *f)
{
    return NARROW / (double)calm_model_config(f->p->in.model)->hidden;
}

/* Returns the seconds of the calibration's passes; the part outside of products does not depend on their dtype. */
static double calibration_seconds(const forecast *f, double operations)
{
    return operations * (1 / f->calib_rate + beside_products(f)) / f->out->sgemm_flops;
}

/* Returns the seconds of the statistics of a block's activations. */
static double statistics_seconds(const forecast *f, size_t block)
{
    const calm_inputs *in = &f->p->in;
    return !calm_inputs_measured(in) ? 0 : f->value * (double)in->calib.begin[in->calib.n] *
                                           (double)calm_capture_token_values(calm_model_config(in->model), block);
}

/* Returns the seconds of all other forward passes. */
static double forward_seconds(const forecast *f, double operations)
{
    return operations * (1 / f->rate + beside_products(f)) / f->out->sgemm_flops;
}

static double learning_seconds(const calm_learned_facts *facts, const calm_learn_rates *rates)
{
    return facts->back_operations / rates->back + (facts->operations - facts->back_operations) / rates->forward +
           facts->updates * rates->update;
}

calm_status calm_forecast_learning(calm_ctx *ctx, const calm_result *result, double *seconds)
{
    double in_float;
    CALM_TRY(calm_rates_products(ctx, GLANCE_SECONDS, &in_float, CALM_OPERANDS_F32, NULL, NULL));
    const calm_learn_rates rates = usual_steps(in_float, ctx->n_threads);
    *seconds = learning_seconds(&result->learned, &rates);
    return CALM_OK;
}

/* Returns the seconds of the gradient pass for weights of calibration rows. */
static double weigh_seconds(const forecast *f)
{
    const calm_inputs *in = &f->p->in;
    return calm_inputs_row_weight(in) != CALM_WEIGHT_GRADIENT ? 0 :
           calm_run_work_gradients(in, in->calib.n, in->first_block) / (LEARN_SHARE * f->rate * f->out->sgemm_flops);
}

/* Returns the seconds of one job by an algorithm that took `seconds` on the small job; candidates run in parallel. */
static double fit_seconds(const forecast *f, const calm_algorithm *algorithm, double seconds, size_t out, size_t in)
{
    const double rate = f->out->dgemm_flops / f->n_threads;
    const calm_fit fit = calm_forecast_fit(algorithm, seconds, SAMPLE_OUT, SAMPLE_IN, rate, f->rate);
    return calm_forecast_fit_seconds(&fit, out, in, rate) / f->n_threads;
}

/* Returns the seconds of the candidates of one job, and of their shared factor. */
static double chain_seconds(const forecast *f, const calm_job_ref *job)
{
    const calm_recipe *recipe = f->p->in.recipe;
    bool factor = false;
    double sum = 0;
    for (size_t a = 0; a < recipe->n_pool; a++) {
        const double seconds = fit_seconds(f, recipe->pool[a].algorithm, f->entry[a], job->out, job->in);
        f->out->pool_seconds[a] += seconds;
        sum += seconds;
        factor |= calm_algorithm_caps(recipe->pool[a].algorithm) & CALM_NEEDS_INVERSE;
    }
    spend(f, CALM_TIME_ALGORITHMS, sum, false);
    const double made = factor ? calm_forecast_factor_seconds(job->in, f->out->dgemm_flops) : 0;
    return sum + spend(f, CALM_TIME_FACTORS, made, false);
}

/* Returns the seconds of fitting a head: a pass of the calibration windows, a Gram matrix, and the head's rows. */
static double head_seconds(const forecast *f)
{
    const calm_inputs *in = &f->p->in;
    const calm_config *config = calm_model_config(in->model);
    const double width = (double)config->hidden, rows = in->calib.n ? (double)in->calib.begin[in->calib.n] : 0;
    if (!f->head)
        return 0;
    return forward_seconds(f, rows * calm_run_work_blocks(in, 0, config->n_blocks, rows / (double)in->calib.n)) +
           rows * width * width / f->out->dgemm_flops +
           calm_forecast_factor_seconds(config->hidden, f->out->dgemm_flops) +
           fit_seconds(f, f->head, f->head_entry, config->vocab, config->hidden);
}

/* Computes the bytes of the file outside the jobs, as a mean over uniform plans, because no plan is chosen yet. */
static calm_status file_beside(calm_ctx *ctx, const forecast *f, double *out)
{
    const calm_run *p = f->p;
    const calm_recipe *recipe = p->in.recipe;
    *out = 0;
    for (size_t s = 0; s < recipe->n_schemes; s++) {
        size_t bytes;
        double bits;
        CALM_TRY(calm_run_file_of_scheme(ctx, p, s, &bytes, &bits));
        *out += ((double)bytes - bits / 8) / (double)recipe->n_schemes;
    }
    return CALM_OK;
}

/* Estimates bits, bytes and candidates of the result. */
static calm_status add_sizes(calm_ctx *ctx, forecast *f)
{
    calm_forecast *out = f->out;
    const calm_run *p = f->p;
    const calm_recipe *recipe = p->in.recipe;
    const calm_config *config = calm_model_config(p->in.model);
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_exporter *exporter = calm_formats_at(&recipe->formats, 0);
    size_t first, end;
    double bits = 0, weights = 0;
    /* The bits per weight that a size limit leaves, with the usual types of embedding and head. */
    const double left = p->choosing->file ? (double)calm_budget_bits(&p->pool, INFINITY) /
                                      calm_pool_weights(&p->pool, 0, p->pool.n_jobs) : 0;
    calm_inputs_jobs(&p->in, &first, &end);
    CALM_TRY(file_beside(ctx, f, &out->bytes_after));
    if (calm_rotate_turns_stream(recipe->rotate) && config->tied)    /* R1 gives the head a separate tensor */
        out->bytes_after += (double)(config->vocab * config->hidden * calm_dtype_bytes(config->dtype));
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const double n = (double)job->out * (double)job->in;
        double b = 0;
        if (calm_inputs_keeps(&p->in, j))    /* counted as float, outside the jobs */
            continue;
        for (size_t i = 0; i < recipe->n_pool; i++) {
            const calm_scheme scheme = calm_scheme_at(&recipe->pool[i].scheme, &job->place);
            b += calm_exporter_bits(exporter, &scheme, job->out, job->in) / (double)recipe->n_pool;
        }
        /* The chosen entry is not known: the mean of all entries, or what the largest budget allows. */
        if (p->choosing->file)
            b = left;
        else if (recipe->n_budgets && isfinite(recipe->budgets[0]))
            b = recipe->budgets[recipe->n_budgets - 1];
        bits += b * n;
        weights += n;
        out->bytes_after += n * b / 8;
        out->n_candidates += recipe->n_pool;
    }
    out->bits_per_weight = weights > 0 ? bits / weights : 0;
    /* A size limit is used up to within the bytes of one job. */
    if (recipe->file_bytes)
        out->bytes_after = (double)recipe->file_bytes;
    out->bytes_before = (double)calm_model_float_bytes(p->in.model);
    return CALM_OK;
}

/* Returns the bytes of a block's weights in the checkpoint. */
static double block_bytes(const calm_run *p, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    return calm_model_weights(p->in.model, layout->block_begin[block], layout->block_begin[block + 1], false) *
           (double)calm_dtype_bytes(calm_model_config(p->in.model)->dtype);
}

/* Returns the costs of one block: its forward pass with the reading of its weights, and everything else. */
static calm_replay_block block_costs(const forecast *f, size_t block)
{
    const calm_run *p = f->p;
    const calm_recipe *recipe = p->in.recipe;
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_run_work work = calm_run_work_of_block(&p->in, block);
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    /* The rate of Gram products is that of all threads already. */
    const double in_float = f->calib_rate * f->out->sgemm_flops, gram = work.gram / (GRAM_SHARE * in_float),
                 scores = calibration_seconds(f, work.outputs) + work.scores / f->out->dgemm_flops,
                 pass = calibration_seconds(f, work.forward) + statistics_seconds(f, block);
    calm_replay_block out = {.pass = spend(f, CALM_TIME_FORWARD, pass, false) +
                                     spend(f, CALM_TIME_READ, block_bytes(p, block) / READ_RATE, false),
                             .work = spend(f, CALM_TIME_GRAM, gram, false) +
                                     spend(f, CALM_TIME_SCORES, scores, false),
                             .together = calm_model_config(p->in.model)->moe.sparse[block],
                             .todo = block >= p->in.first_block, .cost = calm_run_work_cost(&work)};
    for (size_t j = begin; j < end && out.todo; j++) {
        if (calm_inputs_keeps(&p->in, j))    /* it stays float */
            continue;
        out.work += chain_seconds(f, &layout->jobs[j]);
        for (size_t i = 0; i < recipe->n_pool; i++)
            out.blobs += calm_forecast_blob_bytes(p, j, i);
    }
    return out;
}

/* Returns windows whose forward passes take this many operations, divisible by batch; of encoders (except mixtures) by
 * sentence. */
static calm_replay_parts parts_of(const forecast *f, double operations, size_t n, size_t longest)
{
    const calm_config *config = calm_model_config(f->p->in.model);
    const bool encodes = calm_inputs_encode(&f->p->in);
    return (calm_replay_parts){forward_seconds(f, operations), n,
                               (encodes ? calm_encode_step : calm_evaluation_batch)(config, n, longest)};
}

/* The number of windows of the evaluation's text is limited by the text, so they are counted by tokenizing it, as the
 * run does. */
static calm_status test_costs(calm_ctx *ctx, const forecast *f, calm_replay_parts *out)
{
    calm_windows windows;
    *out = (calm_replay_parts){.seconds = 0};
    if (!f->p->result.evaluates)
        return CALM_OK;
    CALM_TRY(calm_run_work_read_eval(ctx, &f->p->in, &windows));
    /* For the float model and the result. */
    const double operations = 2 * calm_run_work_token(&f->p->in) * (double)windows.begin[windows.n];
    *out = parts_of(f, operations, windows.n, windows.longest);
    return CALM_OK;
}

/* Adds up the steps of the run. */
static calm_status add_steps(calm_ctx *ctx, forecast *f)
{
    const calm_run *p = f->p;
    const calm_recipe *recipe = p->in.recipe;
    const calm_windows *calib = &p->in.calib, *guard = &p->in.guard;
    calm_forecast *out = f->out;
    calm_replay_block *blocks;
    const bool reads = calm_inputs_read_rows(&p->in);
    out->costs = (calm_replay_costs){.n_blocks = p->in.end_block, .windows = calib->n,
                                     .divides = recipe->prefix == CALM_PREFIX_FLOAT, .flows = reads,
                                     .look = 1 / READ_RATE};
    calm_replay_costs *costs = &out->costs;
    if (calib->n)
        costs->window_bytes = (double)(calib->begin[calib->n] * calm_batch_width(calm_model_config(p->in.model)) *
                                       sizeof(float)) / (double)calib->n;
    CALM_TRY(CALM_NEW(ctx, ctx->out, blocks, costs->n_blocks));
    costs->blocks = blocks;
    /* Every rank computes the weights of rows itself, before the first block. */
    costs->begin = 2 * out->bytes_before / READ_RATE + spend(f, CALM_TIME_FORWARD, weigh_seconds(f), false);
    spend(f, CALM_TIME_READ, 2 * out->bytes_before / READ_RATE, false);
    for (size_t b = 0; b < costs->n_blocks; b++) {
        blocks[b] = block_costs(f, b);
        costs->flows |= blocks[b].together;    /* a mixture's experts need the tokens that are routed to them */
        costs->begin += spend(f, CALM_TIME_READ, -block_bytes(p, b) / READ_RATE, false);    /* counted with the pass */
        out->seconds += blocks[b].pass + blocks[b].work;
    }
    costs->alone = spend(f, CALM_TIME_EXPORT, head_seconds(f), false) +
                   spend(f, CALM_TIME_EXPORT, out->bytes_after / WRITE_RATE, true);
    costs->guard = parts_of(f, calm_run_work_guard(&p->in), guard->n, guard->longest);
    spend(f, CALM_TIME_GUARD, costs->guard.seconds, false);
    CALM_TRY(test_costs(ctx, f, &costs->test));
    spend(f, CALM_TIME_EVALUATION, costs->test.seconds, false);
    out->eval_windows = p->result.evaluates ? costs->test.windows : 0;
    out->score_rows = reads ? calm_inputs_scored_rows(&p->in) : 0;
    out->learn_seconds = recipe->learner ? learning_seconds(&p->result.learned, &f->steps) : 0;
    out->learn_seconds += learning_seconds(&p->result.tuned, &f->steps);
    spend(f, CALM_TIME_LEARNING, out->learn_seconds, false);
    if (recipe->learner)
        costs->passes = p->result.learned.pass_operations / f->steps.forward;
    costs->alone += out->learn_seconds - costs->passes;
    out->seconds += costs->begin + costs->guard.seconds + costs->test.seconds + costs->passes + costs->alone;
    return CALM_OK;
}

/* Estimates the time if a tie adds windows: float model, hybrid and one uniform run on these windows. */
static void estimate_tie(const forecast *f)
{
    const calm_inputs *in = &f->p->in;
    const double tokens = (double)(in->guard_all.begin[in->guard_all.n] - in->guard.begin[in->guard.n]);
    if (in->recipe->n_pool > 1 && !in->recipe->keep_hybrid)
        f->out->tie_seconds = forward_seconds(f, 3 * tokens * calm_run_work_token(in));
}

/* Adds the run of the model as given, with which a rotated model is compared after its guard (rotate_guard.c). */
static void add_baseline(const forecast *f)
{
    calm_forecast *out = f->out;
    out->seconds += spend(f, CALM_TIME_FORWARD, weigh_seconds(f), false);
    for (size_t b = 0; b < out->costs.n_blocks; b++) {
        const calm_replay_block again = block_costs(f, b);
        out->seconds += again.pass + again.work;
    }
    out->seconds += spend(f, CALM_TIME_GUARD, out->costs.guard.seconds, false);
    out->store_bytes *= 2;
    out->kept_bytes *= 2;
    out->n_candidates *= 2;
}

/* Plans the memory of a run on other machines; without a limit in the recipe, the fastest plan. */
static calm_status plan_ranks(calm_ctx *ctx, forecast *f)
{
    f->p->several = true;
    return calm_memory_plan_choose(ctx, f->p, f->p->memory.limit, &f->out->divided);
}

calm_status calm_forecast_make(calm_ctx *ctx, const calm_recipe *recipe, const calm_forecast_machine *elsewhere,
                               calm_forecast_rates *rates, calm_forecast *out)
{
    CALM_SCOPED(calm_run *, calm_run_close) run = NULL;
    calm_forecast_rates own = {0};
    calm_recipe unlimited = *recipe;
    /* All steps below add to it. */
    memset(out, 0, sizeof *out);
    unlimited.output = NULL;    /* nothing is written, so an existing output is no error */
    if (elsewhere && !recipe->memory)
        unlimited.memory = UNLIMITED;
    CALM_TRY(calm_run_open(ctx, &unlimited, &run));
    forecast f = {.p = run, .out = out, .n_threads = ctx->n_threads, .rates = rates ? rates : &own};
    /* Opening the run set its memory limit, which must not apply to the measurements here. */
    calm_memory_set_limit(ctx->memory, 0);
    out->memory = run->memory;
    out->recipe = run->in.recipe == &unlimited ? recipe : run->in.recipe;    /* `unlimited` lives only here */
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->pool_seconds, out->recipe->n_pool));
    CALM_TRY(measure(ctx, elsewhere, &f));
    CALM_TRY(add_sizes(ctx, &f));
    calm_forecast_store(run, &out->store_bytes, &out->kept_bytes);
    CALM_TRY(add_steps(ctx, &f));
    estimate_tie(&f);
    if (!elsewhere && calm_rotation_is_judged(ctx, recipe, 1))
        add_baseline(&f);
    return elsewhere ? plan_ranks(ctx, &f) : CALM_OK;
}
