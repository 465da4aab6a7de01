/* Memory to capture, quantize and score blocks: the sum of what the functions *_bytes of each module return. */
#include "ptq/estimate/estimate_impl.h"

#include "algorithms/inverse.h"
#include "cka/cka.h"
#include "cka/linear.h"
#include "ptq/base/largest.h"
#include "ptq/calib/capture.h"
#include "ptq/arch/kind.h"
#include "ptq/search/search.h"
#include "ptq/plan/assemble.h"
#include "ptq/quant/exponent_code.h"
#include "ptq/quant/qblob.h"

typedef calm_memory_estimate estimate;

static bool wants_point(const estimate *e, calm_point point)
{
    return e->p->in.recipe->score_points & 1u << point;
}

/* ---- jobs that are captured together: of attention, a dense MLP, the shared expert, or one expert ---- */

/* Bytes that the jobs of one sublayer or expert need. */
typedef struct group_needs {
    calm_largest codes;         /* results of the candidates, each in a separate arena                       */
    calm_largest quantize;      /* scratch memory while candidates are quantized                             */
    calm_largest score;         /* scratch memory while candidates are scored                                */
    calm_largest factors;       /* factors of the jobs that several candidates read                          */
    size_t making;       /* scratch memory while a factor is computed                                 */
    size_t beside;       /* a factor that is kept for the next candidate, if they run one at a time   */
    size_t shares;       /* other data that candidates of a job share                                 */
    size_t reference;    /* references of the scores                                                  */
    size_t prepare;      /* scratch memory while the references are computed                          */
    size_t help;         /* scratch memory of a thread that helps another thread's candidate          */
} group_needs;

/* Returns how many candidates of a job read the shared factor. */
static size_t count_readers(const calm_recipe *recipe)
{
    size_t n = 0;
    for (size_t i = 0; i < recipe->n_pool; i++)
        n += calm_run_reads_factor(recipe, recipe->pool[i].algorithm);
    return n;
}

/* Returns true if a job's factor is computed before its candidates, which run in parallel. */
static bool shares_factor(const estimate *e)
{
    return e->knobs->candidates_at_once != 1 && count_readers(e->p->in.recipe) > 1;
}

/* Returns true if channels of a job's input share a scale, of which transforms are told. */
static bool has_groups(const estimate *e, const calm_job_ref *job, calm_feed *feed)
{
    const calm_config *config = calm_config_at(e->config, job->block);
    return calm_job_fold(config, job->kind, job->expert, feed) == CALM_FOLD_ROWS && feed->groups;
}

static calm_job_shape job_shape(const estimate *e, const calm_job_ref *job, const calm_scheme *scheme, size_t rows)
{
    calm_job_shape shape = calm_job_shape_of(scheme, job->out, job->in);
    shape.n_samples = job->expert < 0 ? calm_sample_count(rows, job->in) : calm_sample_most(rows, job->in);
    calm_feed feed;
    shape.n_absorb_groups = has_groups(e, job, &feed) ? calm_feed_rows(&feed) : 0;
    /* A candidate that runs alone uses all threads in its inner loops, which have buffers per thread. */
    shape.n_threads = e->knobs->candidates_at_once == 1 ? e->n_threads : 1;
    shape.operands = calm_recipe_operands(e->p->in.recipe);
    shape.biased = calm_layout_biased(e->layout, job);
    shape.shared = e->caps & CALM_NEEDS_GRAM;
    shape.damp = calm_run_damping(e->p->in.recipe);
    shape.factor = shares_factor(e) ? calm_run_factor(e->p->in.recipe) : 0;
    return shape;
}

/* Scratch memory to compute the output of the sublayer or expert from the job's input, for the scoring rows. */
static size_t output_bytes(const estimate *e, const calm_job_ref *job, size_t score_rows, bool prepared)
{
    const size_t rows = job->expert == CALM_NO_EXPERT ? e->longest : score_rows;    /* window by window, or all */
    const calm_config *config = calm_config_at(e->config, job->block);
    if (calm_job_is_last(config, job->kind, NULL))
        return prepared ? calm_weight_apply_scratch_bytes(job->in, rows) : 0;
    if (job->expert == CALM_NO_EXPERT)
        return calm_kind_dense(config, calm_job_sublayer(job->kind))->scratch_bytes(config, rows, prepared);
    return calm_mlp_run_scratch_bytes(config, job->expert, rows, prepared);
}

/* Bytes of a candidate's output for the scoring rows of a capture. */
static size_t captured_output_bytes(const calm_capture_shape *captured)
{
    return CALM_BYTES(float, captured->score_rows * calm_expert_width(captured->config, captured->expert));
}

/* Memory of a function of scoring, bytes(n, d), for the rows of a capture. */
static size_t score_bytes(size_t (*bytes)(size_t n, size_t d), const calm_capture_shape *captured)
{
    const size_t n = captured->score_rows, d = calm_expert_width(captured->config, captured->expert);
    return captured->expert < 0 ? bytes(n, d) : calm_wave_score_bytes(bytes, n, d);
}

/* Bytes of the weights and corrected biases that replace those of a job. */
static size_t replaced_bytes(const calm_job_ref *job, unsigned extras)
{
    return CALM_BYTES(float, job->out * job->in) + (extras & CALM_QJOB_BIASED ? CALM_BYTES(float, job->out) : 0);
}

/* Bytes of the factor that stays while a candidate without a factor and without a copy of H runs, if candidates run one
 * at a time. */
static size_t beside_bytes(const estimate *e, const calm_algorithm *algorithm, const calm_job_shape *shape)
{
    const calm_recipe *recipe = e->p->in.recipe;
    if (e->knobs->candidates_at_once != 1 || count_readers(recipe) < 2 ||
        calm_algorithm_caps(algorithm) & CALM_NEEDS_INVERSE || calm_algorithm_copies(algorithm, shape->damp))
        return 0;
    return calm_inverse_bytes(shape->in);
}

/* Adds one entry on one job: its result, and its scratch memory while it is quantized and scored. */
static void add_candidate(const estimate *e, const calm_job_ref *job, const calm_entry *entry,
                          const calm_capture_shape *captured, bool linear, group_needs *out)
{
    const calm_scheme scheme = calm_scheme_at(&entry->scheme, &job->place);
    const calm_job_shape shape = job_shape(e, job, &scheme, captured->rows - captured->held_rows);
    /* An arena allocates at least one chunk, however small the result is. */
    const size_t code = calm_algorithm_run_bytes(entry->algorithm, &shape) + CALM_ARENA_CHUNK;
    const unsigned extras = calm_assembled_extras(e->layout, job, e->extras);
    size_t score = output_bytes(e, job, captured->score_rows, scheme.act_bits);
    const size_t chain = calm_algorithm_run_scratch_bytes(entry->algorithm, &shape) +
                         beside_bytes(e, entry->algorithm, &shape);
    calm_job_shape helped = shape;
    calm_feed feed;
    helped.n_threads++;
    calm_largest_add(&out->codes, code);
    calm_largest_add(&out->quantize, chain + (has_groups(e, job, &feed) ? CALM_BYTES(uint32_t, job->in) : 0));
    calm_memory_raise(&out->help, calm_algorithm_run_scratch_bytes(entry->algorithm, &helped) -
                                      calm_algorithm_run_scratch_bytes(entry->algorithm, &shape));
    calm_memory_raise(&score, score_bytes(calm_score_scratch_bytes, captured));
    if (linear && !scheme.act_bits)
        calm_memory_raise(&score,
                          CALM_BYTES(float, job->out * job->in) + calm_cka_linear_scratch_bytes(job->out, job->in));
    score += captured_output_bytes(captured) + replaced_bytes(job, extras);
    calm_memory_raise(&score, calm_qblob_encode_bytes(&scheme, job->out, job->in, extras));    /* when it is kept */
    calm_largest_add(&out->score, score);
}

/* Adds all candidates of a job, and the references of cka_linear. */
static void add_job(const estimate *e, const calm_job_ref *job, const calm_capture_shape *captured, group_needs *out)
{
    const calm_recipe *recipe = e->p->in.recipe;
    const bool linear = e->caps & CALM_NEEDS_GRAM && calm_recipe_scores_linear(recipe);
    if (e->caps & CALM_NEEDS_GRAM)
        out->shares += calm_hessian_bytes(job->in) + 2 * CALM_ARENA_CHUNK;    /* two arenas */
    if (shares_factor(e)) {
        calm_largest_add(&out->factors, calm_inverse_bytes(job->in));
        calm_memory_raise(&out->making,
                          calm_inverse_order_bytes(job->in) + calm_inverse_factor_scratch_bytes(job->in));
    } else if (count_readers(recipe) > 1) {
        calm_memory_raise(&out->beside, calm_inverse_bytes(job->in));
    }
    for (size_t i = 0; i < recipe->n_pool; i++)
        add_candidate(e, job, &recipe->pool[i], captured, linear, out);
    if (!linear)
        return;
    out->reference += CALM_BYTES(float, job->out * job->in) + calm_cka_linear_prepare_bytes(job->out, job->in);
    calm_memory_raise(&out->prepare, calm_cka_linear_prepare_scratch_bytes(job->out, job->in));
}

/* Adds up jobs begin .. end - 1. */
static group_needs measure_group(const estimate *e, size_t begin, size_t end, const calm_capture_shape *captured)
{
    group_needs out = {.reference = score_bytes(calm_score_prepare_bytes, captured),
                       .prepare = score_bytes(calm_score_prepare_scratch_bytes, captured)};
    for (size_t j = begin; j < end; j++)
        add_job(e, &e->layout->jobs[j], captured, &out);
    return out;
}

/* Bytes to score the sublayer or expert as a whole: a worker reads all its jobs from the store and dequantizes them. */
static size_t unit_bytes(const estimate *e, size_t begin, size_t end, const calm_capture_shape *captured)
{
    const calm_recipe *recipe = e->p->in.recipe;
    size_t most = 0;
    for (size_t i = 0; i < recipe->n_pool && wants_point(e, CALM_POINT_SUBLAYER); i++) {
        const calm_scheme *scheme = &recipe->pool[i].scheme;
        size_t jobs = 0, then = score_bytes(calm_score_scratch_bytes, captured);
        for (size_t j = begin; j < end; j++) {
            const calm_job_ref *job = &e->layout->jobs[j];
            const unsigned extras = calm_assembled_extras(e->layout, job, e->extras);
            const calm_scheme own = calm_scheme_at(scheme, &job->place);
            jobs += calm_qjob_bytes(&own, job->out, job->in, extras) + replaced_bytes(job, extras);
            calm_memory_raise(&then, calm_qblob_decode_scratch_bytes(&own, job->out, job->in));
        }
        calm_memory_raise(&then, output_bytes(e, &e->layout->jobs[begin], captured->score_rows, scheme->act_bits));
        calm_memory_raise(&most, jobs + captured_output_bytes(captured) + then);
    }
    /* One task per entry; each may be the largest. */
    return calm_size_min(e->n_threads, recipe->n_pool) * most;
}

/* Raises the peaks to those of n groups.  held: bytes that live through all steps; captured_bytes: results of the
 * capture; capturing: its scratch memory; units: scores of whole units. */
static void add_steps(const estimate *e, const group_needs *g, size_t n, size_t held, size_t captured_bytes,
                      size_t capturing, size_t units, calm_memory_plan *out)
{
    const size_t at_once = e->knobs->candidates_at_once ? e->knobs->candidates_at_once : e->n_threads;
    const size_t codes = e->knobs->slices ? calm_largest_sum(&g->codes, n, at_once) : n * g->codes.all;
    const size_t reference = n * g->reference, results = held + captured_bytes;
    /* Threads without a candidate may help with another's window. */
    const size_t spare = (e->n_threads - 1) *
                         calm_block_sublayer_helper_bytes(e->config, CALM_SUBLAYER_ATTENTION, e->longest);
    /* Threads without a candidate, if there are fewer candidates than threads. */
    const size_t idle = at_once > n * g->quantize.n ? at_once - n * g->quantize.n : 0;
    const size_t always = results + calm_candidates_bytes(e->p->in.recipe, n) + n * g->shares;
    /* If a job's candidates are in different slices, its factor lives from slice to slice. */
    const size_t factors = e->knobs->slices ? calm_largest_sum(&g->factors, n, at_once + 1) : n * g->factors.all;
    const size_t lasting = e->knobs->slices ? factors + g->beside : 0;
    const size_t first = CALM_BYTES(void *, n * CALM_N_JOBS * e->p->in.recipe->n_pool);
    calm_memory_raise(&out->capture, results + capturing);
    /* References are computed after the first slice is quantized. */
    calm_memory_raise(&out->quantize,
                      always + (e->knobs->slices ? reference : 0) + codes + factors + idle * g->help +
                          calm_size_max(calm_largest_sum(&g->quantize, n, at_once), first + e->n_threads * g->making));
    const size_t score = calm_size_max(g->prepare, calm_largest_sum(&g->score, n, at_once));
    calm_memory_raise(&out->score,
                      always + reference + codes + lasting + score + spare);
    calm_memory_raise(&out->score, always + reference + units + spare);
}

/* ---- the sublayers of a block ---- */

/* Shape of a capture over all calibration rows; for an expert the caller sets the rows. */
static calm_capture_shape capture_shape(const estimate *e, size_t block, calm_sublayer sublayer, long expert)
{
    return (calm_capture_shape){.config = calm_config_at(e->config, block), .sublayer = sublayer, .expert = expert,
                                .rows = e->rows, .score_rows = e->score_rows, .held_rows = e->held_rows,
                                .n_windows = e->windows, .longest = e->longest, .n_texts = e->p->in.calib.n_texts,
                                .in_file = e->knobs->spill, .operands = e->p->in.recipe->operands};
}

/* The capture options of block_run.c that need the most memory: always with activation statistics. */
static calm_capture_options capture_options(const estimate *e, size_t block, const calm_capture_shape *shape,
                                            unsigned jobs, unsigned inputs)
{
    static float *const any[CALM_N_JOBS];    /* only tells calm_capture_*_bytes that there are factors */
    return (calm_capture_options){.jobs = jobs, .inputs = inputs, .grams = e->caps & CALM_NEEDS_GRAM,
                                  .samples = calm_run_keeps_rows(e->p, block, shape->sublayer, shape->expert),
                                  .activations = true, .group_bytes = e->knobs->group_bytes,
                                  .factors = calm_inputs_row_weight(&e->p->in) ? any : NULL,
                                  .crosses = e->caps & CALM_NEEDS_CROSS};
}

/* Adds attention, a dense MLP, or a shared expert: all jobs in one pass, or one pass per job. */
static void add_dense(const estimate *e, size_t block, calm_sublayer sublayer, long expert, size_t held,
                      calm_memory_plan *out)
{
    const calm_capture_shape shape = capture_shape(e, block, sublayer, expert);
    size_t begin, end, step;
    calm_layout_fold_set(e->layout, block, sublayer, expert, &begin, &end);
    const bool unit = wants_point(e, CALM_POINT_SUBLAYER);
    const size_t units = unit_bytes(e, begin, end, &shape);
    step = e->knobs->job_by_job ? 1 : end - begin;
    for (size_t j = begin; j < end; j += step) {
        unsigned jobs = 0;
        for (size_t i = j; i < j + step; i++)
            jobs |= 1u << e->layout->jobs[i].kind;
        const unsigned inputs = calm_scored_inputs(shape.config, sublayer, jobs, unit);
        calm_capture_options options = capture_options(e, block, &shape, jobs, inputs);
        /* If rows stay for another pass, the pass runs on a copy. */
        options.stay = e->knobs->job_by_job;
        const group_needs needs = measure_group(e, j, j + step, &shape);
        add_steps(e, &needs, 1, held, calm_capture_bytes(&shape, &options),
                  calm_capture_sublayer_scratch_bytes(&shape, &options, e->n_threads), units, out);
    }
}

/* Adds n experts that run together, with this many tokens each. */
static void add_wave(const estimate *e, size_t block, size_t held, size_t n, size_t rows, size_t score_rows,
                     calm_memory_plan *out)
{
    calm_capture_shape shape = capture_shape(e, block, CALM_SUBLAYER_MLP, 0);
    size_t begin, end;
    shape.rows = rows;
    shape.score_rows = score_rows;
    shape.held_rows = 0;    /* held-out rows differ by expert; without any, a capture needs the most */
    shape.most_rows = calm_moe_busiest_tokens(&e->config->moe, e->rows);
    calm_layout_fold_set(e->layout, block, CALM_SUBLAYER_MLP, 0, &begin, &end);
    const calm_capture_options options = capture_options(e, block, &shape, CALM_CAPTURE_ALL_JOBS, 0);
    const group_needs needs = measure_group(e, begin, end, &shape);
    const size_t weights = n * calm_model_load_jobs_bytes(e->p->in.model, begin, end);
    add_steps(e, &needs, n, held + weights + n * sizeof(calm_capture) + calm_captured_bytes(n),
              calm_capture_experts_bytes(&shape, &options, n),
              calm_capture_experts_scratch_bytes(&shape, &options, n, e->n_threads),
              n * unit_bytes(e, begin, end, &shape), out);
}

/* Adds the experts of a mixture: a wave of the planned size, and one expert alone with the most tokens. */
static void add_experts(const estimate *e, size_t block, size_t held, calm_memory_plan *out)
{
    const calm_moe_config *moe = &e->config->moe;
    add_wave(e, block, held, calm_size_min(e->knobs->experts_at_once, moe->n_experts), calm_wave_tokens(moe, e->rows),
             calm_wave_tokens(moe, e->score_rows), out);
    add_wave(e, block, held, 1, calm_moe_busiest_tokens(moe, e->rows), calm_moe_busiest_tokens(moe, e->score_rows),
             out);
}

/* Adds routing, shared expert, waves of experts, and the sum of their outputs. */
static void add_mixture(const estimate *e, size_t block, size_t held, calm_memory_plan *out)
{
    const calm_config *config = e->config;
    const size_t copy = e->knobs->spill ? calm_row_store_bytes(e->longest, calm_batch_width(config)) : 0;
    const size_t width = calm_expert_width(config, 0);
    const size_t of_sum = e->knobs->spill ? calm_row_store_bytes(e->longest, width) : 0;
    const size_t workers = calm_size_min(e->windows, e->n_threads);
    held += calm_moe_route_bytes(config, e->rows, e->windows) +
            calm_moe_watch_bytes(e->rows, e->windows, e->longest, e->p->in.calib.n_texts);
    calm_memory_raise(&out->capture, held + workers * (copy + calm_moe_route_scratch_bytes(config, e->longest)));
    if (config->moe.shared_inner)
        add_dense(e, block, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, held, out);
    held += e->knobs->spill ? 0 : calm_row_store_bytes(e->rows, width);    /* the sum */
    add_experts(e, block, held, out);
    calm_memory_raise(&out->capture, held + workers * (copy + of_sum + calm_moe_end_scratch_bytes(config, e->longest)));
}

/* ---- whole blocks ---- */

size_t calm_memory_plan_block_bytes(const estimate *e, size_t block, size_t n_windows, size_t longest, size_t then)
{
    const calm_recipe *recipe = e->p->in.recipe;
    const calm_model *model = e->p->in.model;
    const size_t begin = e->layout->block_begin[block], end = e->layout->block_begin[block + 1];
    size_t most = 0, outside = begin, expert_end;
    while (outside < end && e->layout->jobs[outside].expert < 0)
        outside++;
    /* All experts of a block have the same shape: the first one counts. */
    for (expert_end = outside; expert_end < end && e->layout->jobs[expert_end].expert == 0;)
        expert_end++;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        const calm_scheme largest = calm_mix_largest(&recipe->schemes[i]), *scheme = &largest;
        size_t expert = 0;
        if (outside < end)
            expert = calm_assembled_expert_bytes(model, block, scheme, e->extras) +
                     calm_fold_set_apply_bytes(model, outside, expert_end, e->extras) +
                     calm_assemble_fold_set_scratch_bytes(model, outside, expert_end, scheme);
        calm_memory_raise(&then, calm_assemble_fold_set_scratch_bytes(model, begin, outside, scheme));
        calm_memory_raise(&then,
                          calm_batch_block_scratch_bytes(e->config, block, n_windows, longest, expert,
                                                         scheme->act_bits, e->n_threads));
        calm_memory_raise(&most, calm_assembled_block_bytes(model, block, scheme, e->extras) +
                                     calm_fold_set_apply_bytes(model, begin, outside, e->extras) + then);
    }
    return most;
}

size_t calm_memory_plan_hidden_bytes(const estimate *e)
{
    static const size_t copies_of[] = {1, 2, 3};    /* indexed by calm_prefix */
    const size_t width = calm_batch_width(e->config), copies = copies_of[e->p->in.recipe->prefix];
    const bool scored = wants_point(e, CALM_POINT_BLOCK) || wants_point(e, CALM_POINT_DELTA);
    /* With several ranks each has memory for the hidden states of its next block, and in a mixture for its output. */
    const size_t flows = e->p->several && e->p->in.recipe->prefix == CALM_PREFIX_FLOAT;
    const size_t more = flows * (e->config->moe.n_experts ? 2 : 1);
    const size_t lockstep = e->p->in.recipe->prefix == CALM_PREFIX_ASYMMETRIC;
    const size_t shared = (1 + lockstep + flows) * calm_batch_share_bytes(e->config, e->rows);
    return (e->knobs->spill ? 0 : (copies + more) * calm_row_store_bytes(e->rows, width) + shared) +
           flows * 8 * CALM_BYTES(char, calm_exponent_code_most(e->longest * width, sizeof(float))) +
           (scored ? calm_row_store_bytes(e->score_rows, width) : 0) + calm_run_weigh_rows_bytes(e->p);
}

/* Bytes to score a whole block: output and output minus input, float and by one entry after the other. */
static size_t whole_bytes(const estimate *e, size_t block)
{
    const size_t windows = calm_inputs_scored_windows(&e->p->in), n = e->score_rows;
    const size_t width = e->config->hidden, copy = calm_row_store_bytes(n, calm_batch_width(e->config));
    const size_t outputs = copy + calm_row_store_bytes(n, width);
    const size_t scoring = calm_size_min(2, e->n_threads) * calm_score_scratch_bytes(n, width);
    size_t weights = 0;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        weights += calm_model_load_sublayer_bytes(e->p->in.model, block, s);
    return outputs + weights + 2 * calm_score_prepare_bytes(n, width) +
           calm_size_max(calm_score_prepare_scratch_bytes(n, width),
                         outputs + calm_memory_plan_block_bytes(e, block, windows, e->longest, scoring));
}

void calm_memory_plan_add_weights_only(const estimate *e, size_t block, calm_memory_plan *out)
{
    const calm_model *model = e->p->in.model;
    for (size_t j = e->layout->block_begin[block]; j < e->layout->block_begin[block + 1]; j++) {
        const calm_capture_shape shape = {.config = calm_config_at(e->config, block), .expert = CALM_NO_EXPERT};
        const size_t weights = calm_model_load_jobs_bytes(model, j, j + 1);
        const group_needs needs = measure_group(e, j, j + 1, &shape);
        /* The mapped pages of a tensor while it is converted to float. */
        calm_memory_raise(&out->capture, weights + weights / 2);
        add_steps(e, &needs, 1, weights, 0, 0, 0, out);
    }
}

void calm_memory_plan_add_block(const estimate *e, size_t block, calm_memory_plan *out)
{
    const size_t hidden = calm_memory_plan_hidden_bytes(e);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        /* The mapped pages of a tensor while it is converted, before other data of the block exists. */
        const size_t weights = calm_model_load_sublayer_bytes(e->p->in.model, block, s);
        calm_memory_raise(&out->capture, hidden + weights + weights / 4);
        if (s == CALM_SUBLAYER_MLP && e->config->moe.sparse[block])
            add_mixture(e, block, hidden + weights, out);
        else if (calm_kind_at(e->config, block, s))
            add_dense(e, block, s, CALM_NO_EXPERT, hidden + weights, out);
    }
    if (wants_point(e, CALM_POINT_BLOCK) || wants_point(e, CALM_POINT_DELTA))
        calm_memory_raise(&out->score, hidden + whole_bytes(e, block));
    if (e->p->in.recipe->prefix != CALM_PREFIX_FLOAT || e->p->several)
        calm_memory_raise(&out->capture, hidden + calm_memory_plan_block_bytes(e, block, e->windows, e->longest, 0));
}
