/* Rates of the steps of learning, measured on a block's passes and a learner's updates.
 *
 * Products of a small model and of short windows are far slower than large ones, and attention, norms and activations
 * differ by family: a share of sgemm's rate that holds for one shape is wrong by a factor of two for another. */
#include "ptq/forecast/forecast_impl.h"


#include "algorithms/learner.h"
#include "ptq/base/rng.h"
#include "ptq/layers/block_pass.h"
#include "ptq/learn/learn.h"

/* The most operations of one measured forward and backward pass: further windows are left out, and a window that is too
 * long is cut, but not below LEAST_TOKENS. */
#define MOST_OPERATIONS 7e11    /* 512 tokens, as in a step, through a block of a model with 8 billion parameters */
#define LEAST_TOKENS ((size_t)64)
/* Only blocks whose weights and gradients take fewer bytes are measured: products of larger ones have nearly sgemm's
 * rate, and a forecast should not need the memory of a run. */
#define MOST_BYTES 2e9
/* Passes are repeated for at least this time. */
#define MEASURE_SECONDS 0.1
/* The shape of the small linear whose codes are updated, for as many steps as the shortest learning has. */
#define SAMPLE_OUT ((size_t)1024)
#define SAMPLE_IN ((size_t)1024)

/* ---- passes ---- */

/* A block, and the lengths of the windows that run through it one after the other. */
typedef struct passes {
    const calm_run *run;
    calm_block block;
    calm_block_pass pass;
    float *x;                      /* [longest, D] */
    size_t first, end, longest;    /* windows first .. end - 1; the most tokens of one, after cutting */
} passes;

static size_t tokens_of(const passes *s, size_t window)
{
    const calm_windows *calib = &s->run->in.calib;
    return calm_size_min(calib->begin[window + 1] - calib->begin[window], s->longest);
}

static double operations_of(const passes *s, size_t window)
{
    return calm_block_window_operations(&s->block, tokens_of(s, window));
}

/* Chooses the windows of the first step that are run. */
static void choose_windows(passes *s)
{
    const calm_run *p = s->run;
    const calm_windows *calib = &p->in.calib;
    const calm_learner *learner = p->in.recipe->learner;
    double operations = 0;
    s->first = calib->n - calm_learn_windows(p);
    const size_t end = learner ? calm_windows_range_end(calib, s->first, calib->n, calm_learner_tokens(learner))
                               : calm_tuning_end(p, s->first, calib->n);
    s->longest = calib->longest;
    while (s->longest > LEAST_TOKENS && CALM_BLOCK_BOTH * operations_of(s, s->first) > MOST_OPERATIONS)
        s->longest /= 2;
    for (s->end = s->first; s->end < end; s->end++) {
        operations += CALM_BLOCK_BOTH * operations_of(s, s->end);
        if (s->end > s->first && operations > MOST_OPERATIONS)
            break;
    }
}

/* Sets the inputs of the block's linears to be quantized as in the first scheme. */
static void quantize_inputs(passes *s)
{
    const calm_scheme *scheme = &s->run->in.recipe->schemes[0];
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        s->block.weight[role].act_bits = scheme->act_bits;
        s->block.weight[role].act_asymmetric = scheme->act_asymmetric;
        s->block.weight[role].act_rule = scheme->act_rule;
        s->block.weight[role].act_global = 1;
    }
}

/* Allocates block, rows and gradients in ctx->out. */
static calm_status open_passes(calm_ctx *ctx, const calm_run *p, passes *s)
{
    const calm_config *config = calm_model_config(p->in.model);
    *s = (passes){.run = p};
    CALM_TRY(calm_model_load_block(ctx, p->in.model, p->in.first_block, &s->block));
    choose_windows(s);
    quantize_inputs(s);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, s->x, s->longest * config->hidden));
    for (size_t i = 0; i < s->longest * config->hidden; i++)
        s->x[i] = (float)calm_rng_normal(3, 0, i);
    /* q, k and v together give the gradient of the norm that they read (learn_view.c). */
    return calm_block_pass_new(ctx, &s->block, &p->rope, s->longest, false, &s->pass);
}

/* Measures the rate of passes of all windows, repeated. */
static calm_status time_passes(calm_ctx *ctx, const passes *s, calm_busy_clock *clock, bool back, double *out)
{
    const double begun = clock(ctx->n_threads);
    double operations = 0, spent;
    do {
        for (size_t w = s->first; w < s->end; w++) {
            CALM_TRY(calm_block_pass_run(ctx, &s->pass, s->x, tokens_of(s, w), back));
            operations += operations_of(s, w) * (back ? CALM_BLOCK_BOTH : 1);
        }
        spent = clock(ctx->n_threads) - begun;
    } while (spent < MEASURE_SECONDS);
    *out = operations / spent;
    return CALM_OK;
}

/* ---- updates ---- */

/* A calm_learn_loss_fn that leaves existing gradients unchanged. */
static calm_status no_loss(void *user, calm_ctx *ctx, size_t window, bool gradients, double *loss)
{
    (void)user;
    (void)ctx;
    (void)window;
    (void)gradients;
    *loss = 1;
    return CALM_OK;
}

/* Builds the small linear: random weights, codes and gradients, in ctx->scratch. */
static calm_status sample_linear(calm_ctx *ctx, const calm_scheme *scheme, calm_learn_linear *out)
{
    const size_t n = SAMPLE_OUT * SAMPLE_IN;
    const calm_job_shape shape = calm_job_shape_of(scheme, SAMPLE_OUT, SAMPLE_IN);
    /* FP4 has 15 values for its 16 codes. */
    const int least = calm_code_min(scheme), n_codes = calm_code_max(scheme) - least + 1;
    float *w, *grad, *mins = NULL;
    uint8_t *zeros = NULL;
    *out = (calm_learn_linear){.name = "sample", .scheme = *scheme, .out = SAMPLE_OUT, .in = SAMPLE_IN,
                               .group = shape.group, .n_groups = shape.n_groups, .global = 1};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, grad, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->codes, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->effective, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->scales, SAMPLE_OUT * shape.n_groups));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, zeros, SAMPLE_OUT * shape.n_groups));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, mins, SAMPLE_OUT * shape.n_groups));
    for (size_t i = 0; i < n; i++) {
        w[i] = (float)(calm_rng_uniform(4, 0, i) - 0.5);
        grad[i] = (float)(calm_rng_uniform(4, 1, i) - 0.5);
        out->codes[i] = (uint8_t)(least + (int)(calm_rng_uniform(4, 2, i) * n_codes));
    }
    for (size_t i = 0; i < SAMPLE_OUT * shape.n_groups; i++)
        out->scales[i] = 0.125f;
    out->w = w;
    out->grad = grad;
    out->zeros = scheme->symmetric ? NULL : zeros;
    out->mins = calm_scheme_has_mins(scheme) ? mins : NULL;
    return CALM_OK;
}

static calm_status time_updates(calm_ctx *ctx, const calm_scheme *scheme, calm_busy_clock *clock, double *out)
{
    size_t steps, checks;
    calm_learner *learner;
    calm_learn_linear linear;
    calm_learn_outcome outcome;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_learner_parse(ctx, "learn(steps=50)", &learner));
    if (!calm_learner_changes(learner, scheme))
        return CALM_OK;
    CALM_TRY(sample_linear(ctx, scheme, &linear));
    const calm_learn_problem problem = {.linears = &linear, .n_linears = 1, .n_windows = 1, .loss = no_loss};
    calm_learner_losses(learner, 1, &steps, &checks);
    const double begun = clock(ctx->n_threads);
    CALM_TRY(calm_learner_run(ctx, learner, &problem, &outcome));
    *out = (clock(ctx->n_threads) - begun) / ((double)steps * (double)(SAMPLE_OUT * SAMPLE_IN));
    return CALM_OK;
}

calm_status calm_learn_rates_measure(calm_ctx *ctx, const calm_run *p, calm_busy_clock *clock, calm_learn_rates *out)
{
    const size_t block = p->in.first_block, *begin = calm_model_layout(p->in.model)->block_begin;
    const double bytes = 2 * sizeof(float) * calm_model_weights(p->in.model, begin[block], begin[block + 1], true);
    passes s;
    CALM_SCOPED_RESULTS(ctx);
    if (calm_model_config(p->in.model)->moe.sparse[block] || bytes > MOST_BYTES)
        return CALM_OK;
    CALM_TRY(open_passes(ctx, p, &s));
    /* The first pass is not measured: it allocates the pages of scratch memory. */
    CALM_TRY(calm_block_pass_run(ctx, &s.pass, s.x, tokens_of(&s, s.first), true));
    CALM_TRY(time_passes(ctx, &s, clock, false, &out->forward));
    CALM_TRY(time_passes(ctx, &s, clock, true, &out->back));
    return time_updates(ctx, &p->in.recipe->schemes[0], clock, &out->update);
}
