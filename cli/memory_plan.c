/* What a run needs, from its shapes. */
#include "cli/memory_plan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "algorithms/part.h"
#include "cli/pipeline.h"
#include "ptq/base/memory.h"
#include "ptq/calib/activation.h"
#include "ptq/calib/capture.h"
#include "ptq/calib/gram.h"
#include "ptq/model/arch.h"

#define MIB ((size_t)1024 * 1024)
/* Buffers of a BLAS call per thread, stacks, the C library's free lists: measured, not allocated by us. */
#define THREAD_BYTES (24 * MIB)
#define SLACK_BYTES (24 * MIB)
/* Captured inputs when memory is short. */
#define SMALL_GROUP (8 * MIB)
/* A text that is evaluated to its end has at least so many windows, or its batches are full. */
#define UNKNOWN_WINDOWS ((size_t)8192)
/* Of an evaluated row of one model: sums, the five best and target. */
#define SUMS_BYTES (sizeof(calm_prediction) + sizeof(calm_top) + sizeof(uint32_t))
/* Sums of a channel: absmax, and three in double. */
#define CHANNEL_BYTES (sizeof(float) + 3 * sizeof(double))
/* Of each token at a hook point, and hook points of a sublayer at most. */
#define TOKEN_BYTES (3 * sizeof(float))
#define N_WATCHED ((size_t)5)
/* Rows that cka_linear widens at a time. */
#define LINEAR_ROWS ((size_t)256)
#define LINEAR_BLOCK ((size_t)512)
/* Blocks of an arena are rounded up: some thirty of a window. */
#define ROUNDING ((size_t)2048)

/* ---- one job ---- */

/* Quantizing: the stacked weights; H and the factor of its inverse; a fit to the input holds Hq, its factor and Cq besides,
 * and the kept rows quantized; rows in work, in double, several copies. */
static size_t quantize_bytes(const calm_recipe *recipe, const calm_job_ref *job, size_t samples, size_t n_threads)
{
    const size_t fit = (calm_recipe_caps(recipe) & CALM_NEEDS_SAMPLES) ? 2 * job->in * job->in * sizeof(double) + samples : 0;
    const size_t square = job->in * job->in * sizeof(double);
    const size_t weights = job->out * job->in * (sizeof(float) + 1), chunk = 4 * CALM_ROW_CHUNK * job->in * sizeof(double);
    return weights + ((calm_recipe_caps(recipe) & CALM_NEEDS_GRAM) ? 2 * square : 0) + fit + n_threads * chunk;
}

/* Activations of a window: attention, or an MLP of the given width. */
static size_t attention_bytes(const calm_config *config, size_t tokens)
{
    const size_t q = config->n_heads * config->head_dim, kv = config->n_kv * config->head_dim;
    return (tokens * (3 * config->hidden + 2 * q + 2 * kv) + 128 * tokens) * sizeof(float);
}

static size_t mlp_bytes(const calm_config *config, size_t tokens, size_t inner)
{
    const bool fused = calm_has_role(config, CALM_ROLE_FUSED_GATE_UP);
    return tokens * (3 * config->hidden + (fused ? 4 : 2) * inner) * sizeof(float);
}

/* ---- a group of jobs: attention, dense MLP, shared expert, one expert ---- */

typedef struct group_needs {
    size_t widest;       /* columns of one job                                             */
    size_t weights;      /* float32                                                        */
    size_t statistics;   /* Gram matrices, sums, rows kept for scoring                     */
    size_t width;        /* columns of the jobs that are captured together                 */
    size_t forward;      /* activations of one window                                      */
    size_t reference;    /* scoring: matrices of the float output, and:                    */
    size_t linear;       /* what cka_linear keeps of the float weights                     */
    size_t quantize;     /* the hungriest candidate                                        */
    size_t score;        /* the hungriest candidate                                        */
    size_t codes;        /* of all candidates of the group                                 */
    size_t one_code;     /* of the largest                                                 */
} group_needs;

/* Where the estimate stands. */
typedef struct estimate {
    const calm_pipeline *p;
    const calm_config *config;
    const calm_knobs *knobs;
    size_t n_threads, windows, rows, score_rows, longest;    /* of the calibration */
} estimate;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Tokens that an expert sees: twice an even share of `rows`. */
static size_t expert_rows(const estimate *e, size_t rows)
{
    const calm_moe_config *moe = &e->config->moe;
    return 2 * rows * moe->top_k / moe->n_experts + 1;
}

/* Rows kept of a job's input.  Of an expert the number of rows is not known, and of fewer rows up to twice as many may be
 * kept: the step falls with them. */
static size_t sample_bytes(const estimate *e, const calm_job_ref *job)
{
    const size_t rows = job->expert >= 0 ? smaller(expert_rows(e, e->rows), e->rows) : e->rows;
    const size_t kept = calm_sample_count(rows, job->in);
    if (!(calm_recipe_caps(e->p->recipe) & CALM_NEEDS_SAMPLES))
        return 0;
    return (job->expert >= 0 ? smaller(rows, 2 * kept) : kept) * job->in * sizeof(float);
}

static void add_job(const estimate *e, const calm_job_ref *job, size_t score_rows, group_needs *out)
{
    const calm_recipe *recipe = e->p->recipe;
    const size_t samples = sample_bytes(e, job);
    const size_t gram = (calm_recipe_caps(recipe) & CALM_NEEDS_GRAM) ? job->in * job->in * sizeof(double) : 0;
    const size_t kept = score_rows * job->in * sizeof(float) + samples,
                 sums = CHANNEL_BYTES * job->in;
    const bool alone = e->knobs->job_by_job && job->expert < 0;    /* experts' jobs are captured together */
    const size_t threads = e->knobs->candidates_at_once == 1 ? e->n_threads : 1;
    out->weights += job->out * job->in * sizeof(float);
    out->statistics = alone ? larger(out->statistics, gram + kept + sums) : out->statistics + gram + kept + sums;
    out->widest = larger(out->widest, job->in);
    out->width = alone ? larger(out->width, job->in) : out->width + job->in;
    out->quantize = larger(out->quantize, quantize_bytes(recipe, job, samples, threads));
    for (size_t i = 0; i < recipe->n_pool; i++) {
        const size_t groups = calm_scheme_groups(&recipe->pool[i].scheme, job->in);
        /* Each candidate has an arena of its own. */
        const size_t code = job->out * (job->in + 5 * groups) + CALM_ARENA_CHUNK;
        out->codes += code;
        out->one_code = larger(out->one_code, code);
    }
    const size_t weights = job->out * job->in, linear = calm_recipe_scores_linear(recipe, job->in);
    const size_t inputs = job->in * job->in * sizeof(double), outputs = job->out * job->out * sizeof(double);
    const bool by_inputs = 2 * job->in * job->in <= 3 * job->out * job->out;
    out->linear = (alone ? 0 : out->linear) +
                  linear * (weights * sizeof(float) + inputs +
                            (by_inputs ? inputs : weights * sizeof(double) + outputs));
    const size_t blocks = 2 * smaller(inputs, LINEAR_BLOCK * LINEAR_BLOCK * sizeof(double));
    out->score = larger(out->score, weights * sizeof(float) +
                                        linear * (weights * sizeof(float) + (by_inputs ? inputs + blocks : 2 * outputs) +
                                                  3 * LINEAR_ROWS * job->in * sizeof(double)));
}

/* Jobs begin .. end - 1, which are captured together. */
static group_needs measure_group(const estimate *e, size_t begin, size_t end, size_t score_rows)
{
    const calm_layout *layout = calm_model_layout(e->p->model);
    const size_t width = e->config->hidden, side = smaller(width, score_rows);
    const size_t square = side * side * sizeof(double);
    group_needs out = {0};
    for (size_t j = begin; j < end; j++)
        add_job(e, &layout->jobs[j], score_rows, &out);
    const bool attention = begin < end && calm_job_sublayer(layout->jobs[begin].kind) == CALM_SUBLAYER_ATTENTION;
    out.forward = attention ? attention_bytes(e->config, e->longest)
                            : mlp_bytes(e->config, e->longest, begin < end ? layout->jobs[end - 1].in : 0);
    out.statistics += score_rows * width * sizeof(float) + N_WATCHED * (TOKEN_BYTES * e->rows + sizeof(calm_act_acc));
    out.reference = 3 * square + out.linear;
    out.score += score_rows * width * sizeof(float) + 2 * square + 2 * 256 * width * sizeof(double) +
                 (attention ? attention_bytes(e->config, e->longest)
                            : mlp_bytes(e->config, e->longest, begin < end ? layout->jobs[end - 1].in : 0));
    return out;
}

/* ---- the steps on a block ---- */

/* Hidden rows of all windows, twice with a quantized prefix; those that enter a block that is scored as a whole, and what
 * is kept of its float and its quantized output. */
static size_t hidden_bytes(const estimate *e)
{
    const calm_recipe *recipe = e->p->recipe;
    const size_t row = e->config->hidden * sizeof(float), copies = recipe->prefix == CALM_PREFIX_QUANTIZED ? 2 : 1;
    const size_t scored = recipe->points & (1u << CALM_POINT_BLOCK | 1u << CALM_POINT_DELTA) ? 5 * e->score_rows * row : 0;
    return scored + (e->knobs->spill ? 2 * e->n_threads * e->longest * row : copies * e->rows * row);
}

/* Rows of as many windows as fit `budget` bytes with `width` columns, one at least. */
static size_t batch_rows(size_t windows, size_t rows, size_t longest, size_t width, size_t budget, size_t *n)
{
    const size_t per_window = longest * width * sizeof(float);
    *n = smaller(windows, larger(1, per_window ? budget / per_window : windows));
    return smaller(rows, *n * longest);
}

/* What the windows that are captured together add: inputs of the jobs, and sums and statistics of each window. */
static size_t capture_bytes(const estimate *e, size_t width)
{
    size_t n;
    const size_t budget = e->knobs->group_bytes ? e->knobs->group_bytes : CALM_CAPTURE_GROUP_BYTES;
    const size_t rows = batch_rows(e->windows, e->rows, e->longest, width + 1, budget, &n);
    return rows * (width * sizeof(float) + N_WATCHED * TOKEN_BYTES) +
           n * (CHANNEL_BYTES * width + N_WATCHED * sizeof(calm_act_acc) + ROUNDING);
}

static void add_steps(const estimate *e, const group_needs *g, size_t held, calm_memory_plan *out)
{
    const size_t at_once = e->knobs->candidates_at_once ? e->knobs->candidates_at_once : e->n_threads;
    const size_t group = g->width ? capture_bytes(e, g->width) : 0;
    const size_t codes = e->knobs->slices ? smaller(g->codes, at_once * g->one_code) : g->codes;
    const size_t always = held + g->weights + g->statistics;
    const size_t tile = smaller(CALM_GRAM_TILE_BYTES, g->widest * g->widest * sizeof(float));
    /* A Gram tile's product per thread; a tensor's mapped pages while it is converted. */
    out->capture = larger(out->capture, always + group + e->n_threads * (g->forward + tile) + g->weights / 4);
    out->quantize = larger(out->quantize, always + g->reference + codes + at_once * g->quantize);
    out->score = larger(out->score, always + g->reference + codes + at_once * g->score);
}

static void add_mixture(const estimate *e, size_t block, calm_memory_plan *out)
{
    const calm_layout *layout = calm_model_layout(e->p->model);
    const calm_moe_config *moe = &e->config->moe;
    const size_t route = e->rows * moe->top_k * 16 + (e->windows + 1) * moe->n_experts * sizeof(size_t);
    /* The block's own hook points, each once for every window and once for all. */
    const size_t watch = 3 * (2 * e->rows * TOKEN_BYTES + (e->windows + 1) * (sizeof(calm_act_acc) + ROUNDING / 4));
    const size_t held = 2 * hidden_bytes(e) + route + watch;
    /* An even spread of tokens; one expert may get more, which costs only its rows. */
    const size_t tokens = expert_rows(e, e->rows), scored = expert_rows(e, e->score_rows);
    size_t begin, end;
    if (moe->shared_inner) {
        calm_layout_group(layout, block, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, &begin, &end);
        const group_needs shared = measure_group(e, begin, end, e->score_rows);
        add_steps(e, &shared, held, out);
    }
    calm_layout_group(layout, block, CALM_SUBLAYER_MLP, 0, &begin, &end);
    group_needs expert = measure_group(e, begin, end, smaller(scored, e->score_rows));
    const size_t n = e->knobs->experts_at_once;
    expert.weights *= n;
    expert.statistics *= n;
    expert.codes *= n;
    expert.reference *= n;
    expert.width = 0;    /* each expert's Gram matrices grow as its rows pass */
    expert.forward = mlp_bytes(e->config, smaller(tokens, CALM_MOE_ROWS), moe->inner);
    add_steps(e, &expert, held + n * tokens * e->config->hidden * sizeof(float), out);
}

static void add_block(const estimate *e, size_t block, calm_memory_plan *out)
{
    const calm_layout *layout = calm_model_layout(e->p->model);
    size_t begin, end;
    calm_layout_group(layout, block, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, &begin, &end);
    const group_needs attention = measure_group(e, begin, end, e->score_rows);
    add_steps(e, &attention, hidden_bytes(e), out);
    if (e->config->moe.sparse[block]) {
        add_mixture(e, block, out);
        return;
    }
    calm_layout_group(layout, block, CALM_SUBLAYER_MLP, CALM_NO_EXPERT, &begin, &end);
    const group_needs mlp = measure_group(e, begin, end, e->score_rows);
    add_steps(e, &mlp, hidden_bytes(e), out);
}

/* ---- whole models ---- */

/* Weights of a block outside its experts, and of one expert. */
static void count_block(const estimate *e, size_t block, size_t *outside, size_t *expert)
{
    const calm_layout *layout = calm_model_layout(e->p->model);
    *outside = *expert = 0;
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        *outside += job->expert < 0 ? job->out * job->in : 0;
        *expert += job->expert == 0 ? job->out * job->in : 0;
    }
}

/* Hidden rows and sums of one model for the windows that are evaluated together; of an encoder its embeddings. */
static size_t evaluated_bytes(const estimate *e)
{
    const calm_recipe *recipe = e->p->recipe;
    const size_t hidden = e->config->hidden, seqlen = (size_t)recipe->seqlen;
    const size_t eval = !e->p->evaluates ? 0 : recipe->eval_windows ? (size_t)recipe->eval_windows : UNKNOWN_WINDOWS;
    const size_t windows = larger(e->p->guard.n, eval), longest = larger(e->longest, seqlen);
    size_t n;
    const size_t rows = batch_rows(windows, windows * longest, longest, calm_eval_width(hidden), CALM_EVAL_BATCH_BYTES, &n);
    return rows * (hidden * sizeof(float) + SUMS_BYTES) +
           (calm_pipeline_encodes(e->p) ? windows * (hidden + 8) * sizeof(double) : windows * (sizeof(calm_eval_window) + sizeof(double)));
}

/* Tiles of the tables of two models, logits of a tile in each thread; of an encoder the similarities of all pairs. */
static size_t head_bytes(const estimate *e)
{
    const calm_config *config = e->config;
    const calm_head head = {.hidden = config->hidden, .vocab = config->vocab};
    const size_t tile = calm_head_tile(&head), chunk = calm_eval_chunk(tile), sentences = CALM_PAIRED_SENTENCES;
    if (calm_pipeline_encodes(e->p))
        return sentences * sentences / 2 * 5 * sizeof(double);
    return 2 * tile * config->hidden * sizeof(float) + e->n_threads * (2 * chunk + 1) * tile * sizeof(float);
}

/* Evaluation runs each model's blocks in turn: float and quantized weights of one block, hidden rows of a batch per
 * model.  Assembly holds one block's float weights and codes. */
static void add_models(const estimate *e, calm_memory_plan *out)
{
    const calm_recipe *recipe = e->p->recipe;
    const calm_config *config = e->config;
    const size_t batch = evaluated_bytes(e), guard = recipe->guard_windows ? smaller(recipe->n_pool, CALM_TRIALS_AT_ONCE) + 2 : 0,
                 models = larger(guard, e->p->evaluates ? 2 : 0);
    const size_t forward = larger(attention_bytes(config, e->longest), mlp_bytes(config, e->longest, config->inner));
    size_t most = 0;
    for (size_t b = 0; b < config->n_blocks; b++) {
        size_t outside, expert;
        count_block(e, b, &outside, &expert);
        const size_t here = 9 * outside + (expert ? e->n_threads * 9 * expert + CALM_MOE_WAVE_BYTES + 2 * batch : 0);
        most = larger(most, here);
        out->assemble = larger(out->assemble, 6 * outside + 6 * expert + 2 * larger(outside / 2, expert / 2));
    }
    if (models)
        out->evaluate = most + models * batch + head_bytes(e) + e->n_threads * forward;
}

void calm_memory_plan_estimate(const calm_pipeline *p, size_t n_threads, const calm_knobs *knobs, calm_memory_plan *out)
{
    const calm_config *config = calm_model_config(p->model);
    const size_t base = out->base;
    estimate e = {.p = p, .config = config, .knobs = knobs, .n_threads = n_threads, .longest = p->calib.longest};
    const size_t scored = smaller((size_t)p->recipe->score_windows, p->calib.n);
    e.windows = p->calib.n;
    e.rows = p->calib.begin[p->calib.n];
    e.score_rows = p->calib.begin[scored];
    *out = (calm_memory_plan){.base = base, .knobs = *knobs};
    for (size_t b = p->first_block; b < p->end_block; b++)
        add_block(&e, b, out);
    add_models(&e, out);
    const size_t chunks = (8 + 2 * n_threads) * CALM_ARENA_CHUNK;    /* begun, in arenas and their scratch */
    const size_t always = base + n_threads * THREAD_BYTES + SLACK_BYTES + chunks;
    size_t *const stages[] = {&out->capture, &out->quantize, &out->score, &out->evaluate, &out->assemble};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        *stages[i] += always;
        out->peak = larger(out->peak, *stages[i]);
    }
    out->spill_bytes = knobs->spill ? e.rows * config->hidden * sizeof(float) * (config->moe.n_experts ? 2 : 1) *
                                           (p->recipe->prefix == CALM_PREFIX_QUANTIZED ? 2 : 1)
                                     : 0;
}

/* ---- choosing ---- */

calm_status calm_memory_plan_choose(calm_ctx *ctx, const calm_pipeline *p, size_t limit, calm_memory_plan *out)
{
    static const size_t experts[] = {16, 8, 4, 2, 1};
    const size_t threads = (size_t)ctx->n_threads, base = calm_memory_resident();
    const size_t n_experts = calm_model_config(p->model)->moe.n_experts ? sizeof experts / sizeof *experts : 1;
    size_t smallest = SIZE_MAX;
    *out = (calm_memory_plan){.base = base};
    if (p->recipe->knobs) {
        calm_memory_plan_estimate(p, threads, p->recipe->knobs, out);
        return CALM_OK;
    }
    /* From the inside out, what costs more time: a file, barriers, small groups; small waves, idle threads, another
     * pass. */
    for (int by_job = 0; by_job < 2; by_job++)
        for (size_t at_once = threads; at_once > 0; at_once--)
            for (size_t x = 0; x < n_experts; x++)
                for (int choice = 0; choice < 8; choice++) {
                    const calm_knobs knobs = {.spill = choice & 1, .slices = choice & 2, .job_by_job = by_job,
                                              .candidates_at_once = at_once, .experts_at_once = experts[x],
                                              .group_bytes = choice & 4 ? SMALL_GROUP : 0};
                    *out = (calm_memory_plan){.base = base};
                    calm_memory_plan_estimate(p, threads, &knobs, out);
                    smallest = smaller(smallest, out->peak);
                    if (out->peak <= limit)
                        return CALM_OK;
                }
    return calm_fail(ctx, CALM_ENOMEM,
                     "the run does not fit in %.2f GB of memory; the smallest limit it fits in is --memory %.2fGB (%s)",
                     (double)limit / 1e9, (double)(smallest + 5000000) / 1e9,
                     "fewer --samples, --score-samples or --threads need less");
}

calm_status calm_memory_plan_parse(calm_ctx *ctx, const char *text, size_t *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},      {"B", 1},     {"K", 1e3},     {"KB", 1e3},     {"M", 1e6},       {"MB", 1e6},
                 {"G", 1e9},   {"GB", 1e9},  {"T", 1e12},    {"TB", 1e12},    {"Ki", 1024.0},   {"KiB", 1024.0},
                 {"Mi", 1048576.0}, {"MiB", 1048576.0}, {"Gi", 1073741824.0}, {"GiB", 1073741824.0}};
    char *end;
    const double value = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++)
        if (strcasecmp(end, units[i].suffix) == 0 && value * units[i].factor >= 1e6 &&
            value * units[i].factor <= 1e15) {
            *out = (size_t)(value * units[i].factor);
            return CALM_OK;
        }
    return calm_fail(ctx, CALM_EARG, "--memory %s: expected a size of at least 1 MB: 2GB, 1.5GiB, 800M", text);
}

calm_status calm_memory_plan_limit(calm_ctx *ctx, const calm_recipe *recipe, size_t *out)
{
    const size_t free_bytes = calm_memory_available();
    if (recipe->memory)
        return calm_memory_plan_parse(ctx, recipe->memory, out);
    *out = free_bytes ? free_bytes / 10 * 7 : (size_t)4 * 1024 * MIB;
    return CALM_OK;
}

void calm_memory_plan_note(size_t *held)
{
    *held = larger(*held, calm_memory_peak());
    calm_memory_restart();
}

calm_status calm_memory_plan_apply(calm_ctx *ctx, calm_pipeline *p, calm_memory_plan *out)
{
    size_t limit;
    char *dir, *slash;
    CALM_TRY(calm_memory_plan_limit(ctx, p->recipe, &limit));
    CALM_TRY(calm_memory_plan_choose(ctx, p, limit, out));
    out->limit = limit;
    const calm_knobs *knobs = &out->knobs;
    if (knobs->spill) {
        CALM_TRY(calm_strf(ctx, ctx->out, &dir, "%s", p->recipe->store));
        slash = strrchr(dir, '/');
        if (slash)
            *slash = 0;
        p->spill_dir = slash ? dir : ".";
    }
    const size_t elsewhere = out->base > calm_memory_used() ? out->base - calm_memory_used() : 0;
    out->reserved = elsewhere + (size_t)ctx->n_threads * THREAD_BYTES + SLACK_BYTES;
    calm_memory_set_limit(limit > out->reserved ? limit - out->reserved : 1);
    calm_log(ctx, CALM_LOG_INFO, "memory: %.2f GB expected, %.2f GB allowed%s%s%s", (double)out->peak / 1e9,
             (double)limit / 1e9, knobs->spill ? "; hidden rows in a file" : "",
             knobs->candidates_at_once < (size_t)ctx->n_threads ? "; fewer candidates at once than threads" : "",
             knobs->job_by_job ? "; one job of a sublayer at a time" : "");
    return CALM_OK;
}
