/* Learned rounding on a toy block: z = (x p) W^T of two linears with the same input, loss (1/T) sum |z - y|^2. */
#include "algorithms/learner.h"
#include "algorithms/part.h"
#include "ptq/base/rng.h"
#include "ptq/quant/super_block.h"
#include "tests/support/harness.h"

#define N_IN 70       /* two groups of 32 and a short one */
#define WIDE 512      /* two super-blocks */
#define N_WINDOWS 6
#define TOKENS 24
#define ROWS_A 40    /* crosses a chunk of 32 rows */
#define ROWS_B 9

typedef struct toy {
    size_t in;
    calm_learn_linear linears[2];
    calm_learn_vector vector;
    calm_learn_problem problem;
    float *x, *y[2];            /* [N_WINDOWS * TOKENS, in]; the float outputs */
    float *grad[2], *grad_p;
    size_t calls, spoil_at;     /* the call whose loss is NaN; 0: none */
    double worse;               /* added to losses without gradients after `worse_from` of them */
    size_t checks;
    bool fails;                 /* the next loss runs out of memory */
} toy;

/* Tells whether the float has at most 24 - n significant bits. */
static bool has_zeros(float x, int n)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & ((1u << n) - 1)) == 0;
}

/* Checks that a file can hold the values: scales of 8 bits (bf16) or 11 (f16) times differences of codes up to 4,
 * and a bf16 norm.  check_legal() checks other families. */
static void check_storable(const toy *t)
{
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; !t->linears[l].scheme.family && i < t->linears[l].out * t->in; i++)
            ck_assert(has_zeros(t->linears[l].effective[i],
                                t->linears[l].scheme.scale_dtype == CALM_BF16 ? 12 : 9));
    for (size_t i = 0; i < t->in; i++)
        ck_assert(has_zeros(t->vector.values[i] - t->vector.offset, 16));
}

static calm_status toy_loss(void *user, calm_ctx *c, size_t window, bool gradients, double *loss)
{
    toy *t = user;
    const float *p = t->vector.values;
    t->calls++;
    t->checks += !gradients;
    check_storable(t);
    ck_assert_uint_lt(window, N_WINDOWS);
    if (t->fails)
        return calm_fail(c, CALM_ENOMEM, "no memory for the loss");
    *loss = t->checks > 4 ? t->worse : 0;
    for (int l = 0; l < 2 && gradients; l++)
        memset(t->grad[l], 0, t->linears[l].out * t->in * sizeof(float));
    if (gradients)
        memset(t->grad_p, 0, t->in * sizeof(float));
    for (size_t row = window * TOKENS; row < (window + 1) * TOKENS; row++)
        for (int l = 0; l < 2; l++)
            for (size_t o = 0; o < t->linears[l].out; o++) {
                const float *x = t->x + row * t->in, *w = t->linears[l].effective + o * t->in;
                double z = 0;
                for (size_t j = 0; j < t->in; j++)
                    z += (double)x[j] * p[j] * w[j];
                const double e = z - t->y[l][row * t->linears[l].out + o];
                *loss += e * e / TOKENS;
                for (size_t j = 0; j < t->in && gradients; j++) {
                    t->grad[l][o * t->in + j] += (float)(2 * e / TOKENS * x[j] * p[j]);
                    t->grad_p[j] += (float)(2 * e / TOKENS * x[j] * w[j]);
                }
            }
    if (t->calls == t->spoil_at)
        *loss = NAN;
    return CALM_OK;
}

/* Quantizes a row on the grids that span its groups; groups of a super-block are rounded together. */
static void quantize_row(calm_learn_linear *linear, size_t row, const float *w, uint8_t *zeros, float *mins)
{
    const calm_scheme *scheme = &linear->scheme;
    const size_t in = linear->in, cells = row * linear->n_groups, super = calm_scheme_family(scheme)->super;
    double values[WIDE];
    calm_grid grids[WIDE];
    for (size_t j = 0; j < in; j++)
        values[j] = w[j];
    for (size_t g = 0; g < linear->n_groups; g++) {
        double lo, hi;
        calm_grid_span(scheme, values + g * linear->group, calm_size_min(linear->group, in - g * linear->group), &lo,
                       &hi);
        grids[g] = calm_grid_between(scheme, linear->global, lo, hi);
        /* A plain symmetric grid may have a negative scale. */
        const bool turned = scheme->symmetric && calm_scheme_is_plain(scheme) && (cells + g) % 3 == 0;
        linear->scales[cells + g] = turned ? -grids[g].scale : grids[g].scale;
        if (mins)
            mins[cells + g] = grids[g].min;
        if (zeros)
            zeros[cells + g] = grids[g].zero;
    }
    for (size_t g = 0; calm_scheme_is_super_block(scheme) && g < linear->n_groups; g += super)
        calm_scales_round(scheme, 0, super, linear->scales + cells + g, mins ? mins + cells + g : NULL);
    for (size_t g = 0; g < linear->n_groups; g++) {
        const size_t at = row * in + g * linear->group, n = calm_size_min(linear->group, in - g * linear->group);
        const calm_grid grid = {linear->scales[cells + g], grids[g].zero, mins ? mins[cells + g] : 0};
        calm_grid_encode(scheme, grid, values + g * linear->group, n, linear->codes + at);
        calm_grid_decode(scheme, grid, linear->codes + at, n, linear->effective + at);
    }
}

/* Makes a linear whose codes are from a coarse grid without error feedback, so that there is something to learn. */
static void toy_linear(toy *t, int l, size_t out, const char *scheme)
{
    calm_learn_linear *linear = &t->linears[l];
    float *w, *y, *mins = NULL, most = 0;
    uint8_t *zeros = NULL;
    *linear = (calm_learn_linear){.name = l ? "second" : "first", .out = out, .in = t->in};
    ck_ok(calm_scheme_parse(ctx, scheme, &linear->scheme));
    linear->group = calm_scheme_group_size(&linear->scheme, t->in);
    linear->n_groups = calm_scheme_groups(&linear->scheme, t->in);
    ck_ok(CALM_NEW(ctx, ctx->out, w, out * t->in));
    ck_ok(CALM_NEW(ctx, ctx->out, y, N_WINDOWS * TOKENS * out));
    ck_ok(CALM_NEW(ctx, ctx->out, linear->codes, out * t->in));
    ck_ok(CALM_NEW(ctx, ctx->out, linear->scales, out * linear->n_groups));
    ck_ok(CALM_NEW(ctx, ctx->out, linear->effective, out * t->in));
    ck_ok(CALM_NEW(ctx, ctx->out, t->grad[l], out * t->in));
    if (!linear->scheme.symmetric)
        ck_ok(CALM_NEW(ctx, ctx->out, zeros, out * linear->n_groups));
    if (calm_scheme_has_mins(&linear->scheme))
        ck_ok(CALM_NEW(ctx, ctx->out, mins, out * linear->n_groups));
    for (size_t i = 0; i < out * t->in; i++) {
        w[i] = (float)(0.05 * calm_rng_normal(5, (uint64_t)l, i));
        most = fmaxf(most, fabsf(w[i]));
    }
    linear->global = calm_scale_global(&linear->scheme, most);
    for (size_t row = 0; row < out; row++)
        quantize_row(linear, row, w + row * t->in, zeros, mins);
    for (size_t row = 0; row < N_WINDOWS * TOKENS; row++)
        for (size_t o = 0; o < out; o++) {
            double sum = 0;
            for (size_t j = 0; j < t->in; j++)
                sum += (double)t->x[row * t->in + j] * w[o * t->in + j];
            y[row * out + o] = (float)sum;
        }
    linear->w = w;
    linear->zeros = zeros;
    linear->mins = mins;
    linear->grad = t->grad[l];
    t->y[l] = y;
}

static toy toy_of(size_t in, const char *first, const char *second)
{
    toy t = {.in = in};
    float *p;
    ck_ok(CALM_NEW(ctx, ctx->out, t.x, N_WINDOWS * TOKENS * in));
    ck_ok(CALM_NEW(ctx, ctx->out, p, in));
    ck_ok(CALM_NEW(ctx, ctx->out, t.grad_p, in));
    for (size_t i = 0; i < N_WINDOWS * TOKENS * in; i++)
        t.x[i] = (float)(calm_rng_normal(5, 2, i) + calm_rng_normal(5, 3, i / in));
    toy_linear(&t, 0, ROWS_A, first);
    toy_linear(&t, 1, ROWS_B, second);
    for (size_t i = 0; i < in; i++)
        p[i] = 1;
    t.vector = (calm_learn_vector){.name = "norm", .n = in, .dtype = CALM_BF16, .values = p, .grad = t.grad_p};
    return t;
}

static toy toy_new(const char *first, const char *second)
{
    return toy_of(N_IN, first, second);
}

/* Returns the learner, and makes the toy its problem. */
static const calm_learner *learner_of(toy *t, const char *text)
{
    calm_learner *learner;
    t->problem = (calm_learn_problem){t->linears, 2, &t->vector, 1, N_WINDOWS, toy_loss, NULL, t};
    ck_ok(calm_learner_parse(ctx, text, &learner));
    return learner;
}

static calm_learn_outcome learn(toy *t, const char *text)
{
    calm_learn_outcome outcome;
    const calm_learner *learner = learner_of(t, text);
    ck_ok(calm_learner_run(ctx, learner, &t->problem, &outcome));
    return outcome;
}

/* Returns the bytes of everything that learning changes. */
static char *state_of(const toy *t, size_t *n)
{
    size_t bytes = 0;
    char *all;
    for (int pass = 0; pass < 2; pass++) {
        char *at = pass ? all : NULL;
        bytes = 0;
        for (int l = 0; l < 3; l++) {
            const calm_learn_linear *of = &t->linears[l % 2];
            const void *from[] = {of->codes, of->scales, of->effective, t->vector.values};
            const size_t sizes[] = {l < 2 ? of->out * t->in : 0, l < 2 ? of->out * of->n_groups * sizeof(float) : 0,
                                    l < 2 ? of->out * t->in * sizeof(float) : 0, l < 2 ? 0 : t->in * sizeof(float)};
            for (int i = 0; i < 4; i++) {
                if (pass && sizes[i])
                    memcpy(at + bytes, from[i], sizes[i]);
                bytes += sizes[i];
            }
        }
        if (!pass)
            ck_ok(calm_alloc(ctx, ctx->out, &all, bytes, 1, "state"));
    }
    *n = bytes;
    return all;
}

static void check_legal(const toy *t)
{
    for (int l = 0; l < 2; l++) {
        const calm_learn_linear *of = &t->linears[l];
        for (size_t i = 0; i < of->out * t->in; i++)
            ck_assert(of->codes[i] >= calm_code_min(&of->scheme) && of->codes[i] <= calm_code_max(&of->scheme));
        const size_t super = calm_scheme_family(&of->scheme)->super;
        for (size_t i = 0; i < of->out * of->n_groups; i++)
            ck_assert(calm_scale_round(&of->scheme, of->global, of->scales[i]) == of->scales[i]);
        for (size_t i = 0; calm_scheme_is_super_block(&of->scheme) && i < of->out * of->n_groups; i += super) {
            calm_super_block parts;
            ck_assert(calm_super_split(&of->scheme, super, of->scales + i, of->mins ? of->mins + i : NULL, &parts));
        }
    }
}

TEST(no_steps_leave_the_start)
{
    toy t = toy_new("w3a16_g32", "w4a16_g32_asym");
    size_t n;
    char *before = state_of(&t, &n);
    const calm_learn_outcome outcome = learn(&t, "learn(steps=0)");
    ck_assert_str_eq(outcome.kept, "no steps");
    ck_assert_uint_eq(t.calls, 0);
    ck_assert_mem_eq(state_of(&t, &n), before, n);
}
END_OF_TEST

static void check_falls(size_t in, const char *first, const char *second)
{
    toy t = toy_of(in, first, second);
    const calm_learn_outcome outcome = learn(&t, "learn(steps=120)");
    ck_assert_msg(!outcome.kept, "%s, %s: %s", first, second, outcome.kept);
    /* The start has no error feedback, so learning must gain at least this on noise-free targets. */
    ck_assert_msg(outcome.after < 0.7 * outcome.before, "%s, %s: %g -> %g", first, second, outcome.before,
                  outcome.after);
    ck_assert_uint_gt(outcome.changed, 0);
    ck_assert_uint_eq(outcome.codes, (ROWS_A + ROWS_B) * in);
    ck_assert_uint_eq(t.calls, 120 + 8);
    check_legal(&t);
    /* The weights that the loss read last are those of the codes. */
    for (int l = 0; l < 2; l++) {
        const calm_learn_linear *of = &t.linears[l];
        const calm_qjob qjob = {.out = of->out, .in = in, .n_groups = of->n_groups, .group = of->group,
                                .scheme = of->scheme, .codes = of->codes, .scales = of->scales,
                                .zeros = (uint8_t *)(uintptr_t)of->zeros, .mins = (float *)(uintptr_t)of->mins,
                                .global = of->global};
        float *w;
        ck_ok(CALM_NEW(ctx, ctx->out, w, of->out * in));
        calm_qjob_dequantize(&qjob, w);
        ck_assert_mem_eq(w, of->effective, of->out * in * sizeof *w);
    }
}

TEST(the_loss_falls)
{
    check_falls(N_IN, "w3a16_g32", "w4a16_g32_asym");
    check_falls(N_IN, "w2a16", "w4a8_f16s");
}
END_OF_TEST

/* Formats: levels that are not whole numbers, coarse scales, a global scale, minima, super-blocks. */
TEST(the_loss_falls_in_every_format)
{
    check_falls(N_IN, "mxfp4a16", "nvfp4a16");
    check_falls(N_IN, "mxfp4", "nvfp4");
    check_falls(N_IN, "iq4_nl", "q4_1");
    check_falls(N_IN, "q5_0", "q5_1");
    check_falls(WIDE, "q2_k", "q3_k");
    check_falls(WIDE, "q4_k", "q5_k");
    check_falls(WIDE, "q6_k", "iq4_xs");
}
END_OF_TEST

TEST(threads_change_no_byte)
{
    char *first = NULL;
    size_t n;
    for (int threads = 1; threads <= 4; threads *= 2) {
        toy t = toy_of(WIDE, "w3a16_g32", "q4_k");
        ctx->n_threads = threads;
        learn(&t, "learn(steps=60)");
        char *now = state_of(&t, &n);
        if (first)
            ck_assert_mem_eq(now, first, n);
        first = now;
    }
    ctx->n_threads = 1;
}
END_OF_TEST

/* The learning rule in plain loops, weight by weight: one linear, with V, a and b by their formulas. */
typedef struct slow_adam {
    double x, m, v;
} slow_adam;

static double slow_step(slow_adam *a, double g, double rate, int t)
{
    a->m = 0.9 * a->m + 0.1 * g;
    a->v = 0.95 * a->v + 0.05 * g * g;
    a->x -= rate * (a->m / (1 - pow(0.9, t))) / (sqrt(a->v / (1 - pow(0.95, t))) + 1e-12);
    return exp(a->x);
}

/* Returns the initial V: the residual in steps, or in distances to the neighbouring level on its side. */
static float slow_start(const calm_learn_linear *of, size_t i, size_t cell, float zero)
{
    const double level = calm_level_value(&of->scheme, zero, of->codes[i]);
    double u = of->w[i] / of->scales[cell] - (of->codes[i] - zero);
    if (!calm_scheme_is_plain(&of->scheme)) {
        const double min = of->mins ? of->mins[cell] : 0, residual = (of->w[i] - min) / of->scales[cell] - level;
        const int next = of->codes[i] + (residual < 0 ? -1 : 1);
        const bool is_code = next >= calm_code_min(&of->scheme) && next <= calm_code_max(&of->scheme);
        u = is_code ? residual / fabs(calm_level_value(&of->scheme, zero, (uint8_t)next) - level) : residual;
    }
    return 0.5f * (float)fmin(fmax(u, -0.49), 0.49);
}

/* Computes a row's scales, as stored, after a step of their factors. */
static void slow_scales(const calm_learn_linear *of, size_t row, slow_adam *a, double rate, int t, float *scales)
{
    const size_t super = calm_scheme_family(&of->scheme)->super, cells = row * of->n_groups;
    float mins[WIDE];
    for (size_t g = 0; g < of->n_groups; g++) {
        const size_t begin = row * of->in + g * of->group;
        const size_t end = begin + calm_size_min(of->group, of->in - g * of->group);
        double sum = 0;
        for (size_t i = begin; i < end; i++)
            sum += (double)of->grad[i] * of->effective[i];
        for (size_t i = begin; of->mins && i < end; i++)
            sum -= (double)of->grad[i] * of->mins[cells + g];
        scales[g] = calm_scale_round(&of->scheme, of->global,
                                     of->scales[cells + g] * slow_step(&a[cells + g], sum, rate, t));
        mins[g] = of->mins ? of->mins[cells + g] : 0;
    }
    for (size_t g = 0; calm_scheme_is_super_block(&of->scheme) && g < of->n_groups; g += super)
        calm_scales_round(&of->scheme, 0, super, scales + g, of->mins ? mins + g : NULL);
}

static void check_formula(size_t in, const char *first, const char *second)
{
    enum { STEPS = 50 };
    toy fast = toy_of(in, first, second), slow = toy_of(in, first, second);
    static float v[2][ROWS_A * WIDE];
    static slow_adam a[2][ROWS_A * WIDE], b[WIDE];
    double loss;
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    ck_assert_ptr_null(learn(&fast, "learn(steps=50,reach=2)").kept);
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < slow.linears[l].out * in; i++) {
            const calm_learn_linear *of = &slow.linears[l];
            const size_t cell = i / in * of->n_groups + i % in / of->group;
            v[l][i] = slow_start(of, i, cell, of->zeros ? of->zeros[cell] : calm_symmetric_zero(&of->scheme));
        }
    for (int t = 1; t <= STEPS; t++) {
        const double f = 0.5 + 0.5 * cos(M_PI * (t - 1) / STEPS);
        ck_ok(toy_loss(&slow, ctx, (size_t)(t - 1) % N_WINDOWS, true, &loss));
        for (int l = 0; l < 2; l++) {
            const calm_learn_linear *of = &slow.linears[l];
            for (size_t row = 0; row < of->out; row++) {
                float scales[WIDE];
                slow_scales(of, row, a[l], 1e-3 * f, t, scales);
                for (size_t i = row * in; i < (row + 1) * in; i++) {
                    const size_t g = i % in / of->group, cell = row * of->n_groups + g;
                    const float zero = of->zeros ? of->zeros[cell] : calm_symmetric_zero(&of->scheme);
                    const double d = (of->grad[i] > 0) - (of->grad[i] < 0), sign = of->scales[cell] < 0 ? -1 : 1;
                    v[l][i] = (float)fmin(
                        fmax((float)(v[l][i] - (double)(float)(2.0 / STEPS * f) * d * sign), -1), 1);
                    const double q = fmin(fmax(of->codes[i] + nearbyint(v[l][i]), calm_code_min(&of->scheme)),
                                          calm_code_max(&of->scheme));
                    of->effective[i] = scales[g] * (float)calm_level_value(&of->scheme, zero, (uint8_t)q);
                    of->effective[i] += of->mins ? of->mins[cell] : 0;
                }
            }
        }
        for (size_t i = 0; i < in; i++) {
            const double p = slow_step(&b[i], (double)slow.grad_p[i] * slow.vector.values[i], 1e-3 * f, t);
            slow.vector.values[i] = calm_bf16_to_f32(calm_f32_to_bf16((float)p));
        }
    }
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < fast.linears[l].out * in; i++)
            ck_assert_msg(slow.linears[l].effective[i] == fast.linears[l].effective[i],
                          "%s, %s: weight %zu of %d: %g, not %g", first, second, i, l, fast.linears[l].effective[i],
                          slow.linears[l].effective[i]);
    ck_assert_mem_eq(slow.vector.values, fast.vector.values, in * sizeof(float));
}

TEST(steps_are_those_of_the_formula)
{
    check_formula(N_IN, "w3a16_g32", "w4a16_g32_asym");
    check_formula(N_IN, "mxfp4a16", "nvfp4a16");
    check_formula(N_IN, "iq4_nl", "q4_1");
    check_formula(WIDE, "q3_k", "q4_k");
    check_formula(WIDE, "q2_k", "iq4_xs");
}
END_OF_TEST

TEST(a_loss_that_is_not_finite_leaves_the_start)
{
    toy t = toy_new("w3a16_g32", "w4a16_g32_asym");
    size_t n;
    char *before = state_of(&t, &n);
    t.spoil_at = 4 + 37;
    const calm_learn_outcome outcome = learn(&t, "learn(steps=100)");
    ck_assert_str_eq(outcome.kept, "the loss of window 0 is nan");
    ck_assert_uint_eq(outcome.changed, 0);
    ck_assert_mem_eq(state_of(&t, &n), before, n);
}
END_OF_TEST

TEST(a_loss_that_rises_leaves_the_start)
{
    toy t = toy_new("w3a16_g32", "w4a16_g32_asym");
    size_t n;
    char *before = state_of(&t, &n);
    t.worse = 1e6;
    const calm_learn_outcome outcome = learn(&t, "learn(steps=50)");
    ck_assert_ptr_nonnull(strstr(outcome.kept, "the loss rose from "));
    ck_assert_mem_eq(state_of(&t, &n), before, n);
}
END_OF_TEST

/* A linear of 8 bits is left unchanged next to a learned one. */
TEST(eight_bits_stay)
{
    toy t = toy_new("w3a16_g32", "w4a16_g32");
    calm_learner *learner;
    ck_ok(calm_scheme_parse(ctx, "w8a8", &t.linears[1].scheme));
    t.linears[1].group = N_IN;
    t.linears[1].n_groups = 1;
    uint8_t before[ROWS_B * N_IN];
    memcpy(before, t.linears[1].codes, sizeof before);
    ck_ok(calm_learner_parse(ctx, "learn", &learner));
    ck_assert(!calm_learner_changes(learner, &t.linears[1].scheme));
    ck_assert(calm_learner_changes(learner, &t.linears[0].scheme));
    ck_assert(!calm_learner_changes(learner, &(calm_scheme){.bits = 0}));
    const calm_learn_outcome outcome = learn(&t, "learn(steps=50)");
    ck_assert_uint_eq(outcome.codes, ROWS_A * N_IN);
    ck_assert_mem_eq(before, t.linears[1].codes, sizeof before);
    t.linears[0].scheme = t.linears[1].scheme;
    ck_assert_str_eq(learn(&t, "learn").kept, "8 bits leave nothing to learn");
}
END_OF_TEST

/* The default reach is larger for coarse codes and activations: 2, times 1.5 or 2, at 100 steps. */
TEST(noise_takes_rounding_further)
{
    const struct {
        const char *scheme, *reach;
    } rows[] = {{"w3a16_g32", "2"}, {"w2a16_g32", "3"}, {"w4a4_g32", "4"}, {"w4a8_g32", "2"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        toy t = toy_new(rows[i].scheme, rows[i].scheme), same = toy_new(rows[i].scheme, rows[i].scheme);
        size_t n;
        learn(&t, "learn(steps=100)");
        learn(&same, test_format("learn(steps=100,reach=%s)", rows[i].reach));
        char *learned = state_of(&t, &n);
        ck_assert_mem_eq(learned, state_of(&same, &n), n);
    }
}
END_OF_TEST

TEST(options_and_names)
{
    calm_learner *learner;
    size_t steps, checks;
    ck_ok(calm_learner_parse(ctx, " learn( steps = 100 ) ", &learner));
    ck_assert_str_eq(calm_learner_canonical(learner), "learn@5(steps=100,tokens=512,reach=0,rate=0.001,v0=0.5)");
    ck_assert_uint_eq(calm_learner_tokens(learner), 512);
    calm_learner_losses(learner, 3, &steps, &checks);
    ck_assert(steps == 100 && checks == 6);
    ck_fails(calm_learner_parse(ctx, "learn(steps=2)", &learner), CALM_EARG, "2 steps; expected 0, or at least 50");
    ck_fails(calm_learner_parse(ctx, "lern", &learner), CALM_EARG, "no learner is called \"lern\"");
    ck_fails(calm_learner_parse(ctx, "gptq", &learner), CALM_EARG, "no learner is called \"gptq\"");
    ck_fails(calm_learner_parse(ctx, "learn(speed=1)", &learner), CALM_EARG, "speed");
    calm_algorithm *algorithm;
    ck_fails(calm_algorithm_parse(ctx, "absmax+nearest+learn", &algorithm), CALM_EARG, "found the block \"learn\"");
}
END_OF_TEST

/* Failures other than numerical ones end the run. */
TEST(failures_pass_through)
{
    toy t = toy_new("w3a16_g32", "w4a16_g32_asym");
    calm_learn_outcome outcome;
    const calm_learner *learner = learner_of(&t, "learn");
    t.fails = true;
    ck_fails(calm_learner_run(ctx, learner, &t.problem, &outcome), CALM_ENOMEM, "no memory for the loss");
    t.fails = false;
    bool refused = true;
    for (long at = 1; refused; at++) {
        ctx->scratch->fail_in = at;
        refused = calm_learner_run(ctx, learner, &t.problem, &outcome) != CALM_OK;
        ck_assert(!refused || ctx->status == CALM_ENOMEM);
        ck_assert(refused == (at <= 17));    /* 3 tables, 5 arrays a linear, 4 of the vector; later ones succeed */
        ctx->scratch->fail_in = 0;
        calm_ctx_clear_failure(ctx);
        if (at == 30)
            break;
    }
}
END_OF_TEST

TEST(memory_is_as_said)
{
    toy t = toy_new("w3a16_g32", "w4a16_g32_asym");
    calm_learn_outcome outcome;
    const calm_learner *learner = learner_of(&t, "learn(steps=50)");
    ck_memory(calm_learner_run(ctx, learner, &t.problem, &outcome), 0,
              calm_learner_run_scratch_bytes(learner, &t.problem));
}
END_OF_TEST

int main(void)
{
    return run_tests("block_learn", (const TTest *[]){no_steps_leave_the_start, the_loss_falls,
                                                      the_loss_falls_in_every_format, threads_change_no_byte,
                                                      steps_are_those_of_the_formula,
                                                      a_loss_that_is_not_finite_leaves_the_start,
                                                      a_loss_that_rises_leaves_the_start, eight_bits_stay,
                                                      noise_takes_rounding_further, options_and_names,
                                                      failures_pass_through, memory_is_as_said, NULL});
}
