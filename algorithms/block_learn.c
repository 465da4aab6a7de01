/* Learned rounding: learns codes, scales and norms of a block by gradients of its output's loss, from any chain's
 * result.
 *
 *   q = clip(q0 + rint(V))   s = bf16(S e^a)   w^ = s (q - z)   p = bf16(p0 e^b)
 *   in other formats w^ = s level(q) + minimum; the minimum does not change, and s is rounded as the format stores it
 *
 *   V   starts at v0 clamp(w / S - (q0 - z), +-.49), so that no code changes at first; each step moves it by
 *       (reach / steps) f against the sign of dL/dw^ S, within [-1, 1]
 *   a   Adam on dL/da = sum over the group of dL/dw^ w^          b   Adam on dL/db = dL/dp p
 *       rate f rate, betas .9 and .95, f = (1 + cos(pi (t - 1) / steps)) / 2
 *
 * Step t uses window (t - 1) mod N.  Codes and norms have storable values in every step, so the trained model is the
 * written one; derivatives pass straight through rounding and clipping.  Nothing is random.
 *
 * SignRound (Cheng et al. 2023, arXiv 2309.05516) learns V in this way from the nearest codes, with a range per group.
 * Here V starts from codes that include error feedback, with half of their residual (v0): with the whole residual, most
 * codes that GPTQ put more than half a step away would change at once. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "algorithms/adam.h"
#include "algorithms/part.h"
#include "ptq/base/simd.h"

/* Limit of the residuals that V begins with: below half a step, so that no code changes at first. */
#define RESIDUAL_MAX 0.49f
/* Number of rows of one task. */
#define CHUNK ((size_t)32)
/* Number of windows on which start and end are compared. */
#define COMPARED ((size_t)4)
/* With fewer steps, each would be so long that codes change at random. */
#define STEPS_LEAST 50

typedef struct learn_options {
    long long steps, tokens;
    double reach, rate, v0;
} learn_options;

static const calm_option learn_table[] = {
    {.name = "steps", .help = "number of gradients, each of one window; 0: none, or at least 50",
     .offset = offsetof(learn_options, steps), .type = CALM_OPTION_INT, .fallback = "200", .min = 0, .max = 1000000},
    {.name = "tokens", .help = "shorter windows are joined until they have this many tokens",
     .offset = offsetof(learn_options, tokens), .type = CALM_OPTION_INT, .fallback = "512", .min = 1, .max = 1000000},
    {.name = "reach", .help = "sum of all steps of V if they did not get shorter; 0: 2 + log4(steps / 100), times 1.5 "
                              "at 2 bits, 2 with activations of 4",
     .offset = offsetof(learn_options, reach), .type = CALM_OPTION_DOUBLE, .fallback = "0", .min = 0, .max = 100},
    {.name = "rate", .help = "learning rate of the logarithms of scales and norms at the first step",
     .offset = offsetof(learn_options, rate), .type = CALM_OPTION_DOUBLE, .fallback = "0.001", .min = 0, .max = 1},
    {.name = "v0", .help = "share of the start's residual that V begins with",
     .offset = offsetof(learn_options, v0), .type = CALM_OPTION_DOUBLE, .fallback = "0.5", .min = 0, .max = 1},
    {.name = NULL},
};

static calm_status check_steps(calm_ctx *ctx, const void *opts)
{
    const learn_options *o = opts;
    if (!o->steps || o->steps >= STEPS_LEAST)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "learn: %lld steps; expected 0, or at least %d", o->steps, STEPS_LEAST);
}

static const char *refuses(const calm_scheme *scheme)
{
    return scheme->bits >= 8 ? "8 bits leave nothing to learn" : NULL;
}

/* ---- state ---- */

/* The learned state of a linear. */
typedef struct linear_state {
    calm_learn_linear *of;
    float *v;              /* [O, I] V                       */
    float *sign;           /* [O, G] sign of the start's scale */
    float rate;            /* step length of V               */
    calm_adam a;           /* [O, G] a                       */
} linear_state;

typedef struct vector_state {
    calm_learn_vector *of;
    float *start;          /* [n] p0 */
    calm_adam b;           /* [n]    */
} vector_state;

typedef struct state {
    const calm_learn_problem *problem;
    const learn_options *options;
    linear_state *linears;
    vector_state *vectors;
    size_t n_linears, n_vectors;
    size_t *first_task;    /* [n_linears + 1] number of the first task, a chunk of rows, of each linear */
} state;

/* ---- linears ---- */

static size_t columns_of(const calm_learn_linear *linear, size_t g)
{
    return calm_size_min(linear->group, linear->in - g * linear->group);
}

static float zero_of(const calm_learn_linear *linear, size_t cell)
{
    return (float)(linear->zeros ? linear->zeros[cell] : calm_symmetric_zero(&linear->scheme));
}

static float min_of(const calm_learn_linear *linear, size_t cell)
{
    return linear->mins ? linear->mins[cell] : 0;
}

static calm_grid grid_of(const calm_learn_linear *linear, size_t cell, float scale)
{
    return (calm_grid){.scale = scale, .zero = (uint8_t)zero_of(linear, cell), .min = min_of(linear, cell)};
}

/* Rounds to the nearest whole number, ties to even, for every vector width; |x| < 2^22. */
static inline float round_half_even(float x)
{
    return x + 12582912.0f - 12582912.0f;
}

static inline float clamp(float x, float lo, float hi)
{
    return x > hi ? hi : x < lo ? lo : x;
}

/* Computes the first V of n weights of one group. */
static void begin_v(size_t n, const float *w, const uint8_t *codes, float scale, float zero, float share, float *v)
{
    for (size_t j = 0; j < n; j++)
        v[j] = share * clamp(w[j] / scale - ((float)codes[j] - zero), -RESIDUAL_MAX, RESIDUAL_MAX);
}

/* Does the same for levels that are not whole numbers: a residual in units of the distance to the next level. */
static void begin_levels(const calm_scheme *scheme, size_t n, const float *w, const uint8_t *codes, calm_grid grid,
                         float share, float *v)
{
    const int most = calm_code_max(scheme);
    for (size_t j = 0; j < n; j++) {
        const double level = calm_level_value(scheme, grid.zero, codes[j]);
        const double residual = ((double)w[j] - (double)grid.min) / (double)grid.scale - level;
        /* Beyond the first and last code there is no next level, and the code cannot change to it. */
        const int next = residual < 0 ? codes[j] - 1 : codes[j] + 1;
        const double distance =
            next < 0 || next > most ? 1 : fabs(calm_level_value(scheme, grid.zero, (uint8_t)next) - level);
        v[j] = share * clamp((float)(residual / distance), -RESIDUAL_MAX, RESIDUAL_MAX);
    }
}

/* Moves V of n weights against the sign of the gradient with respect to V: that of the weight times `sign`. */
CALM_VECTORIZE static void move_v(size_t n, const float *grad, float sign, float rate, float *v)
{
    for (size_t j = 0; j < n; j++) {
        const float down = grad[j] > 0 ? rate * sign : grad[j] < 0 ? -rate * sign : 0.0f;
        v[j] = clamp(v[j] - down, -1.0f, 1.0f);
    }
}

/* Computes w^ of n weights. */
CALM_VECTORIZE static void decode(size_t n, const uint8_t *codes, const float *v, float lo, float hi, float scale,
                                  float zero, float *effective)
{
    for (size_t j = 0; j < n; j++)
        effective[j] = scale * (clamp((float)codes[j] + round_half_even(v[j]), lo, hi) - zero);
}

/* Does the same for any levels and minima. */
static void decode_levels(const calm_scheme *scheme, size_t n, const uint8_t *codes, const float *v, calm_grid grid,
                          float *effective)
{
    const float lo = (float)calm_code_min(scheme), hi = (float)calm_code_max(scheme);
    for (size_t j = 0; j < n; j++) {
        const uint8_t code = (uint8_t)clamp((float)codes[j] + round_half_even(v[j]), lo, hi);
        calm_grid_decode(scheme, grid, &code, 1, effective + j);
    }
}

/* A chunk of rows of one linear. */
typedef struct chunk {
    const linear_state *at;
    size_t first, end;
} chunk;

static chunk chunk_of(const state *s, size_t index)
{
    size_t l = 0;
    while (index >= s->first_task[l + 1])
        l++;
    const size_t first = (index - s->first_task[l]) * CHUNK;
    return (chunk){&s->linears[l], first, calm_size_min(first + CHUNK, s->linears[l].of->out)};
}

/* Task: sets V and signs of a chunk of rows. */
static void begin_rows(size_t index, void *user)
{
    const state *s = user;
    const chunk c = chunk_of(s, index);
    const calm_learn_linear *linear = c.at->of;
    for (size_t row = c.first; row < c.end; row++)
        for (size_t g = 0; g < linear->n_groups; g++) {
            const size_t cell = row * linear->n_groups + g, at = row * linear->in + g * linear->group;
            c.at->sign[cell] = linear->scales[cell] < 0 ? -1.0f : 1.0f;
            if (calm_scheme_is_plain(&linear->scheme))
                begin_v(columns_of(linear, g), linear->w + at, linear->codes + at, linear->scales[cell],
                        zero_of(linear, cell), (float)s->options->v0, c.at->v + at);
            else
                begin_levels(&linear->scheme, columns_of(linear, g), linear->w + at, linear->codes + at,
                             grid_of(linear, cell, linear->scales[cell]), (float)s->options->v0, c.at->v + at);
        }
}

/* Moves V of one group of a row, and decodes the group with its new scale for the next loss. */
static void step_group(const chunk *c, size_t row, size_t g, float scale)
{
    const calm_learn_linear *linear = c->at->of;
    const size_t cell = row * linear->n_groups + g, at = row * linear->in + g * linear->group;
    const size_t n = columns_of(linear, g);
    move_v(n, linear->grad + at, c->at->sign[cell], c->at->rate, c->at->v + at);
    if (calm_scheme_is_plain(&linear->scheme))
        decode(n, linear->codes + at, c->at->v + at, (float)calm_code_min(&linear->scheme),
               (float)calm_code_max(&linear->scheme), scale, zero_of(linear, cell), linear->effective + at);
    else
        decode_levels(&linear->scheme, n, linear->codes + at, c->at->v + at, grid_of(linear, cell, scale),
                      linear->effective + at);
}

/* Task: does one step of a chunk of rows, and decodes the rows for the next loss. */
static calm_status step_rows(calm_ctx *ctx, size_t index, void *user)
{
    const state *s = user;
    const chunk c = chunk_of(s, index);
    const calm_learn_linear *linear = c.at->of;
    for (size_t row = c.first; row < c.end; row++)
        for (size_t g = 0, n; g < linear->n_groups; g += n) {
            float scales[CALM_SUPER_MAX];
            n = calm_adam_together(linear, g);
            /* Before the weights change, because the gradient belongs to the old ones. */
            CALM_TRY(calm_adam_step_scales(ctx, &c.at->a, linear, row, g, n,
                                           linear->scales + row * linear->n_groups + g, scales));
            for (size_t i = 0; i < n; i++)
                step_group(&c, row, g + i, scales[i]);
        }
    return CALM_OK;
}

/* Stores the learned codes and scales of a chunk of rows, and counts changed codes. */
static void take_rows(const state *s, size_t index, size_t *changed)
{
    const chunk c = chunk_of(s, index);
    calm_learn_linear *linear = c.at->of;
    const float lo = (float)calm_code_min(&linear->scheme), hi = (float)calm_code_max(&linear->scheme);
    for (size_t row = c.first; row < c.end; row++) {
        for (size_t g = 0, n; g < linear->n_groups; g += n) {
            float *scales = linear->scales + row * linear->n_groups + g;
            n = calm_adam_together(linear, g);
            calm_adam_scales(&c.at->a, linear, row, g, n, scales, scales);
        }
        for (size_t j = row * linear->in; j < (row + 1) * linear->in; j++) {
            const float code = clamp((float)linear->codes[j] + round_half_even(c.at->v[j]), lo, hi);
            *changed += (uint8_t)code != linear->codes[j];
            linear->codes[j] = (uint8_t)code;
        }
    }
}

/* Decodes a chunk of rows from the start's codes and scales. */
static void undo_rows(const state *s, size_t index)
{
    const chunk c = chunk_of(s, index);
    const calm_learn_linear *linear = c.at->of;
    for (size_t row = c.first; row < c.end; row++)
        for (size_t g = 0; g < linear->n_groups; g++) {
            const size_t cell = row * linear->n_groups + g, at = row * linear->in + g * linear->group;
            calm_grid_decode(&linear->scheme, grid_of(linear, cell, linear->scales[cell]), linear->codes + at,
                             columns_of(linear, g), linear->effective + at);
        }
}

/* ---- the whole ---- */

/* Creates the state of the linears that the learner changes, and of all vectors. */
static calm_status begin(calm_ctx *ctx, state *s)
{
    const calm_learn_problem *problem = s->problem;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->linears, problem->n_linears));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->vectors, problem->n_vectors));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->first_task, problem->n_linears + 1));
    for (size_t i = 0; i < problem->n_linears; i++) {
        calm_learn_linear *linear = &problem->linears[i];
        linear_state *at = &s->linears[s->n_linears];
        if (refuses(&linear->scheme))
            continue;
        at->of = linear;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, at->v, linear->out * linear->in));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, at->sign, linear->out * linear->n_groups));
        CALM_TRY(calm_adam_new(ctx, ctx->scratch, linear->out * linear->n_groups, &at->a));
        s->first_task[s->n_linears + 1] = s->first_task[s->n_linears] + (linear->out + CHUNK - 1) / CHUNK;
        s->n_linears++;
    }
    for (size_t i = 0; i < problem->n_vectors; i++) {
        calm_learn_vector *vector = &problem->vectors[i];
        vector_state *at = &s->vectors[s->n_vectors++];
        at->of = vector;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, at->start, vector->n));
        memcpy(at->start, vector->values, vector->n * sizeof *at->start);
        CALM_TRY(calm_adam_new(ctx, ctx->scratch, vector->n, &at->b));
    }
    calm_parallel_each(ctx, s->first_task[s->n_linears], begin_rows, s);
    return CALM_OK;
}

static size_t memory(const calm_learn_problem *problem, const void *opts)
{
    size_t bytes = CALM_BYTES(linear_state, problem->n_linears) + CALM_BYTES(vector_state, problem->n_vectors) +
                   CALM_BYTES(size_t, problem->n_linears + 1);
    (void)opts;
    for (size_t i = 0; i < problem->n_linears; i++) {
        const calm_learn_linear *linear = &problem->linears[i];
        if (!refuses(&linear->scheme))
            bytes += CALM_BYTES(float, linear->out * linear->in) + CALM_BYTES(float, linear->out * linear->n_groups) +
                     calm_adam_bytes(linear->out * linear->n_groups);
    }
    for (size_t i = 0; i < problem->n_vectors; i++)
        bytes += CALM_BYTES(float, problem->vectors[i].n) + calm_adam_bytes(problem->vectors[i].n);
    return bytes;
}

static calm_status one_loss(calm_ctx *ctx, const calm_learn_problem *problem, size_t window, bool gradients,
                            double *loss)
{
    CALM_TRY(problem->loss(problem->user, ctx, window, gradients, loss));
    return isfinite(*loss) ? CALM_OK
                           : calm_fail(ctx, CALM_ENUMERIC, "the loss of window %zu is %g", window, *loss);
}

/* Computes the mean loss of the first few windows. */
static calm_status compare(calm_ctx *ctx, const calm_learn_problem *problem, double *out)
{
    const size_t n = calm_size_min(COMPARED, problem->n_windows);
    *out = 0;
    for (size_t w = 0; w < n; w++) {
        double loss;
        CALM_TRY(one_loss(ctx, problem, w, false, &loss));
        *out += loss / (double)n;
    }
    return CALM_OK;
}

/* Returns the sum of V's steps.  Coarse codes and coarse activations make hidden states noisy, and then more of V's
 * steps cancel.  The factors were measured with the bundled model, W2 and W4A4 (docs/evidence/learned.csv). */
static double reach_of(const learn_options *o, const calm_scheme *scheme)
{
    const int act_bits = calm_scheme_input_bits(scheme);
    if (o->reach > 0)
        return o->reach;
    return (2 + log2((double)o->steps / 100) / 2) * (act_bits <= 4 ? 2 : scheme->bits <= 2 ? 1.5 : 1);
}

/* Returns the factor of step t: half a cosine.  Long steps at first let codes change far; many short steps at the end
 * bring codes to rest that the gradients of single windows push back and forth.  Its sum equals that of a linear
 * decay. */
static double falling(size_t t, size_t n)
{
    return (1 + cos(M_PI * (double)(t - 1) / (double)n)) / 2;
}

static calm_status run_steps(calm_ctx *ctx, state *s)
{
    const calm_learn_problem *problem = s->problem;
    const size_t n = (size_t)s->options->steps;
    for (size_t t = 1; t <= n; t++) {
        const double f = falling(t, n);
        double loss;
        CALM_TRY(one_loss(ctx, problem, (t - 1) % problem->n_windows, true, &loss));
        for (size_t i = 0; i < s->n_linears; i++) {
            s->linears[i].rate = (float)(reach_of(s->options, &s->linears[i].of->scheme) / (double)n * f);
            calm_adam_begin_step(&s->linears[i].a, s->options->rate * f, t);
        }
        CALM_TRY(calm_parallel_for(ctx, s->first_task[s->n_linears], step_rows, s));
        for (size_t i = 0; i < s->n_vectors; i++) {
            calm_adam_begin_step(&s->vectors[i].b, s->options->rate * f, t);
            CALM_TRY(calm_adam_step_vector(ctx, &s->vectors[i].b, s->vectors[i].start, s->vectors[i].of));
        }
        if (problem->tick)
            problem->tick(problem->user, t, n);
    }
    return CALM_OK;
}

/* Stores the learned codes and scales; the vectors already have the learned values. */
static void take(state *s, calm_learn_outcome *out)
{
    for (size_t i = 0; i < s->first_task[s->n_linears]; i++)
        take_rows(s, i, &out->changed);
}

/* Returns to the start, whose codes and scales are unchanged. */
static void undo(state *s)
{
    for (size_t i = 0; i < s->first_task[s->n_linears]; i++)
        undo_rows(s, i);
    for (size_t i = 0; i < s->n_vectors; i++)
        memcpy(s->vectors[i].of->values, s->vectors[i].start, s->vectors[i].of->n * sizeof *s->vectors[i].start);
}

/* Measures the start, runs the steps and measures the end; a numerical failure or a higher loss sets out->kept. */
static calm_status learn_and_judge(calm_ctx *ctx, state *s, calm_learn_outcome *out)
{
    calm_status status = compare(ctx, s->problem, &out->before);
    if (status == CALM_OK)
        status = run_steps(ctx, s);
    if (status == CALM_OK)
        status = compare(ctx, s->problem, &out->after);
    if (status == CALM_ENUMERIC) {
        char message[CALM_MESSAGE_MAX];
        memcpy(message, ctx->message, sizeof message);
        calm_ctx_clear_failure(ctx);
        return calm_strf(ctx, ctx->out, &out->kept, "%s", message);
    }
    CALM_TRY(status);
    if (out->after <= out->before)
        return CALM_OK;
    return calm_strf(ctx, ctx->out, &out->kept, "the loss rose from %.4g to %.4g", out->before, out->after);
}

static calm_status learn(calm_ctx *ctx, const calm_learn_problem *problem, const void *opts, calm_learn_outcome *out)
{
    state s = {.problem = problem, .options = opts};
    *out = (calm_learn_outcome){.before = NAN, .after = NAN};
    CALM_TRY(begin(ctx, &s));
    for (size_t i = 0; i < s.n_linears; i++)
        out->codes += s.linears[i].of->out * s.linears[i].of->in;
    if (!s.n_linears)
        return calm_strf(ctx, ctx->out, &out->kept, "8 bits leave nothing to learn");
    if (!s.options->steps || !problem->n_windows)
        return calm_strf(ctx, ctx->out, &out->kept, "no steps");
    CALM_TRY(learn_and_judge(ctx, &s, out));
    if (out->kept)
        undo(&s);
    else
        take(&s, out);
    return CALM_OK;
}

static void losses(const void *opts, size_t n_windows, size_t *steps, size_t *checks)
{
    const learn_options *o = opts;
    *steps = (size_t)o->steps;
    *checks = *steps ? 2 * calm_size_min(COMPARED, n_windows) : 0;
}

/* Short windows are joined, because the sign of the gradient of one sentence is mostly noise. */
static size_t tokens(const void *opts)
{
    const learn_options *o = opts;
    return (size_t)o->tokens;
}

static const calm_block_steps block_run = {learn, losses, tokens, memory};

const calm_part calm_block_learn = {
    .name = "learn",
    .revision = 5,
    .summary = "rounding, scales and norms by gradients of the block's output",
    .reference = "Cheng et al. 2023, arXiv 2309.05516",
    .kind = CALM_KIND_BLOCK,
    .opts_size = sizeof(learn_options),
    .opts = learn_table,
    .check = check_steps,
    .refuses = refuses,
    .run.block = &block_run,
};
