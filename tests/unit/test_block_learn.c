/* Learned rounding on a toy block: z = (x p) W^T of two linears side by side, loss (1/T) sum |z - y|^2. */
#include "algorithms/learner.h"
#include "algorithms/part.h"
#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define N_IN 70       /* two groups of 32 and a short one */
#define N_WINDOWS 6
#define TOKENS 24
#define ROWS_A 40    /* crosses a chunk of 32 rows */
#define ROWS_B 9

typedef struct toy {
    calm_learn_linear linears[2];
    calm_learn_vector vector;
    calm_learn_problem problem;
    float *x, *y[2];            /* [N_WINDOWS * TOKENS, N_IN], the float outputs */
    float *grad[2], *grad_p;
    size_t calls, spoil_at;     /* the call whose loss is NaN; 0: none */
    double worse;               /* added to losses without gradients after `worse_from` of them */
    size_t checks;
    bool fails;                 /* the next loss runs out of memory */
} toy;

/* A float with at most 24 - n significant bits of mantissa. */
static bool has_zeros(float x, int n)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & ((1u << n) - 1)) == 0;
}

/* What a file holds: a scale (8 bits of bf16, 11 of f16) times a difference of two codes (up to 4), a bf16 norm. */
static void check_storable(const toy *t)
{
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < t->linears[l].out * N_IN; i++)
            ck_assert(has_zeros(t->linears[l].effective[i],
                                t->linears[l].scheme.scale_dtype == CALM_BF16 ? 12 : 9));
    for (size_t i = 0; i < N_IN; i++)
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
        memset(t->grad[l], 0, t->linears[l].out * N_IN * sizeof(float));
    if (gradients)
        memset(t->grad_p, 0, N_IN * sizeof(float));
    for (size_t row = window * TOKENS; row < (window + 1) * TOKENS; row++)
        for (int l = 0; l < 2; l++)
            for (size_t o = 0; o < t->linears[l].out; o++) {
                const float *x = t->x + row * N_IN, *w = t->linears[l].effective + o * N_IN;
                double z = 0;
                for (size_t j = 0; j < N_IN; j++)
                    z += (double)x[j] * p[j] * w[j];
                const double e = z - t->y[l][row * t->linears[l].out + o];
                *loss += e * e / TOKENS;
                for (size_t j = 0; j < N_IN && gradients; j++) {
                    t->grad[l][o * N_IN + j] += (float)(2 * e / TOKENS * x[j] * p[j]);
                    t->grad_p[j] += (float)(2 * e / TOKENS * x[j] * w[j]);
                }
            }
    if (t->calls == t->spoil_at)
        *loss = NAN;
    return CALM_OK;
}

/* Codes of a grid that is too coarse and without error feedback: there is something to learn. */
static void toy_linear(toy *t, int l, size_t out, const char *scheme)
{
    calm_learn_linear *linear = &t->linears[l];
    float *w, *y;
    uint8_t *zeros = NULL;
    *linear = (calm_learn_linear){.name = l ? "second" : "first", .out = out, .in = N_IN};
    ck_ok(calm_scheme_parse(ctx, scheme, &linear->scheme));
    linear->group = calm_scheme_group_size(&linear->scheme, N_IN);
    linear->n_groups = calm_scheme_groups(&linear->scheme, N_IN);
    ck_ok(CALM_NEW(ctx, ctx->out, w, out * N_IN));
    ck_ok(CALM_NEW(ctx, ctx->out, y, N_WINDOWS * TOKENS * out));
    ck_ok(CALM_NEW(ctx, ctx->out, linear->codes, out * N_IN));
    ck_ok(CALM_NEW(ctx, ctx->out, linear->scales, out * linear->n_groups));
    ck_ok(CALM_NEW(ctx, ctx->out, linear->effective, out * N_IN));
    ck_ok(CALM_NEW(ctx, ctx->out, t->grad[l], out * N_IN));
    if (!linear->scheme.symmetric)
        ck_ok(CALM_NEW(ctx, ctx->out, zeros, out * linear->n_groups));
    for (size_t i = 0; i < out * N_IN; i++)
        w[i] = (float)(0.05 * calm_rng_normal(5, (uint64_t)l, i));
    for (size_t row = 0; row < out; row++)
        for (size_t g = 0; g < linear->n_groups; g++) {
            const size_t at = row * N_IN + g * linear->group, cell = row * linear->n_groups + g;
            const size_t n = calm_size_min(linear->group, N_IN - g * linear->group);
            double values[N_IN], lo, hi;
            for (size_t j = 0; j < n; j++)
                values[j] = w[at + j];
            calm_grid_span(&linear->scheme, values, n, &lo, &hi);
            calm_grid grid = calm_grid_between(&linear->scheme, 0, lo, hi);
            if (linear->scheme.symmetric && cell % 3 == 0)    /* a grid may be signed */
                grid.scale = -grid.scale;
            linear->scales[cell] = grid.scale;
            if (zeros)
                zeros[cell] = grid.zero;
            calm_grid_encode(&linear->scheme, grid, values, n, linear->codes + at);
            calm_grid_decode(&linear->scheme, grid, linear->codes + at, n, linear->effective + at);
        }
    for (size_t row = 0; row < N_WINDOWS * TOKENS; row++)
        for (size_t o = 0; o < out; o++) {
            double sum = 0;
            for (size_t j = 0; j < N_IN; j++)
                sum += (double)t->x[row * N_IN + j] * w[o * N_IN + j];
            y[row * out + o] = (float)sum;
        }
    linear->w = w;
    linear->zeros = zeros;
    linear->grad = t->grad[l];
    t->y[l] = y;
}

static toy toy_new(const char *first, const char *second)
{
    toy t = {0};
    float *p;
    ck_ok(CALM_NEW(ctx, ctx->out, t.x, N_WINDOWS * TOKENS * N_IN));
    ck_ok(CALM_NEW(ctx, ctx->out, p, N_IN));
    ck_ok(CALM_NEW(ctx, ctx->out, t.grad_p, N_IN));
    for (size_t i = 0; i < N_WINDOWS * TOKENS * N_IN; i++)
        t.x[i] = (float)(calm_rng_normal(5, 2, i) + calm_rng_normal(5, 3, i / N_IN));
    toy_linear(&t, 0, ROWS_A, first);
    toy_linear(&t, 1, ROWS_B, second);
    for (size_t i = 0; i < N_IN; i++)
        p[i] = 1;
    t.vector = (calm_learn_vector){.name = "norm", .n = N_IN, .dtype = CALM_BF16, .values = p, .grad = t.grad_p};
    return t;
}

/* A learner, and the toy as its problem. */
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

/* Bytes of everything that learning changes. */
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
            const size_t sizes[] = {l < 2 ? of->out * N_IN : 0, l < 2 ? of->out * of->n_groups * sizeof(float) : 0,
                                    l < 2 ? of->out * N_IN * sizeof(float) : 0, l < 2 ? 0 : N_IN * sizeof(float)};
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
        for (size_t i = 0; i < of->out * N_IN; i++)
            ck_assert(of->codes[i] >= calm_code_min(&of->scheme) && of->codes[i] <= calm_code_max(&of->scheme));
        for (size_t i = 0; i < of->out * of->n_groups; i++)
            ck_assert(calm_scale_round(&of->scheme, of->global, of->scales[i]) == of->scales[i]);
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

TEST(the_loss_falls)
{
    static const char *const schemes[][2] = {{"w3a16_g32", "w4a16_g32_asym"}, {"w2a16", "w4a8_f16s"}};
    for (int i = 0; i < 2; i++) {
        toy t = toy_new(schemes[i][0], schemes[i][1]);
        const calm_learn_outcome outcome = learn(&t, "learn(steps=120)");
        ck_assert_msg(!outcome.kept, "%s", outcome.kept);
        /* By what a layer of noise-free targets allows: the start rounds without error feedback. */
        ck_assert_msg(outcome.after < 0.7 * outcome.before, "%g -> %g", outcome.before, outcome.after);
        ck_assert_uint_gt(outcome.changed, 0);
        ck_assert_uint_eq(outcome.codes, (ROWS_A + ROWS_B) * N_IN);
        ck_assert_uint_eq(t.calls, 120 + 8);
        check_legal(&t);
        /* What the loss read last is what the codes stand for. */
        for (int l = 0; l < 2; l++) {
            const calm_learn_linear *of = &t.linears[l];
            const calm_qjob qjob = {.out = of->out, .in = N_IN, .n_groups = of->n_groups, .group = of->group,
                                    .scheme = of->scheme, .codes = of->codes, .scales = of->scales,
                                    .zeros = (uint8_t *)(uintptr_t)of->zeros};
            float *w;
            ck_ok(CALM_NEW(ctx, ctx->out, w, of->out * N_IN));
            calm_qjob_dequantize(&qjob, w);
            ck_assert_mem_eq(w, of->effective, of->out * N_IN * sizeof *w);
        }
    }
}
END_OF_TEST

TEST(threads_change_no_byte)
{
    char *first = NULL;
    size_t n;
    for (int threads = 1; threads <= 4; threads *= 2) {
        toy t = toy_new("w3a16_g32", "w4a16_g32_asym");
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

/* The recipe once more, weight by weight in plain loops: one linear, V, a and b from their formulas. */
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

TEST(steps_are_those_of_the_formula)
{
    enum { STEPS = 50 };
    toy fast = toy_new("w3a16_g32", "w4a16_g32_asym"), slow = toy_new("w3a16_g32", "w4a16_g32_asym");
    static double v[2][ROWS_A * N_IN];
    static slow_adam a[2][ROWS_A * 3], b[N_IN];
    double loss;
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    learn(&fast, "learn(steps=50,reach=2)");
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < slow.linears[l].out * N_IN; i++) {
            const calm_learn_linear *of = &slow.linears[l];
            const size_t cell = i / N_IN * of->n_groups + i % N_IN / of->group;
            const float zero = of->zeros ? of->zeros[cell] : calm_symmetric_zero(&of->scheme);
            const double u = of->w[i] / of->scales[cell] - (of->codes[i] - zero);
            v[l][i] = 0.5 * (float)fmin(fmax(u, -0.49), 0.49);
        }
    for (int t = 1; t <= STEPS; t++) {
        const double f = 0.5 + 0.5 * cos(M_PI * (t - 1) / STEPS);
        ck_ok(toy_loss(&slow, ctx, (size_t)(t - 1) % N_WINDOWS, true, &loss));
        for (int l = 0; l < 2; l++) {
            const calm_learn_linear *of = &slow.linears[l];
            for (size_t cell = 0; cell < of->out * of->n_groups; cell++) {
                const size_t row = cell / of->n_groups, g = cell % of->n_groups;
                const size_t begin = row * N_IN + g * of->group;
                const size_t end = begin + calm_size_min(of->group, N_IN - g * of->group);
                const float zero = of->zeros ? of->zeros[cell] : calm_symmetric_zero(&of->scheme);
                double sum = 0;
                for (size_t i = begin; i < end; i++)
                    sum += (double)of->grad[i] * of->effective[i];
                const float s =
                    calm_scale_round(&of->scheme, 0, of->scales[cell] * slow_step(&a[l][cell], sum, 1e-3 * f, t));
                for (size_t i = begin; i < end; i++) {
                    const double d = (of->grad[i] > 0) - (of->grad[i] < 0), sign = of->scales[cell] < 0 ? -1 : 1;
                    v[l][i] = fmin(fmax((float)(v[l][i] - (double)(float)(2.0 / STEPS * f) * d * sign), -1), 1);
                    const double q = fmin(fmax(of->codes[i] + nearbyint(v[l][i]), calm_code_min(&of->scheme)),
                                          calm_code_max(&of->scheme));
                    of->effective[i] = s * (float)(q - zero);
                }
            }
        }
        for (size_t i = 0; i < N_IN; i++) {
            const double p = slow_step(&b[i], (double)slow.grad_p[i] * slow.vector.values[i], 1e-3 * f, t);
            slow.vector.values[i] = calm_bf16_to_f32(calm_f32_to_bf16((float)p));
        }
    }
    for (int l = 0; l < 2; l++)
        ck_assert_mem_eq(slow.linears[l].effective, fast.linears[l].effective,
                         fast.linears[l].out * N_IN * sizeof(float));
    ck_assert_mem_eq(slow.vector.values, fast.vector.values, N_IN * sizeof(float));
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

/* 8 bits are left alone, beside a linear that is learned too. */
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

/* Coarse codes and coarse activations take V further: 2, 2 1.5 and 2 2 at 100 steps. */
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
    ck_assert_str_eq(calm_learner_canonical(learner), "learn@3(steps=100,tokens=512,reach=0,rate=0.001,v0=0.5)");
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

/* Other failures than numerical ones end the run, and nothing is left half learned that anybody reads. */
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
        ck_assert(refused == (at <= 17));    /* 3 tables, 5 arrays a linear, 4 of the vector; then none fails */
        ctx->scratch->fail_in = 0;
        calm_ctx_forgive(ctx);
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
    return run_tests("block_learn", (const TTest *[]){no_steps_leave_the_start, the_loss_falls, threads_change_no_byte,
                                                      steps_are_those_of_the_formula,
                                                      a_loss_that_is_not_finite_leaves_the_start,
                                                      a_loss_that_rises_leaves_the_start, eight_bits_stay,
                                                      noise_takes_rounding_further, options_and_names,
                                                      failures_pass_through, memory_is_as_said, NULL});
}
