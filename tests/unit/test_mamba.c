/* The scan of Mamba-2 in chunks against its recurrence in double.
 *
 * Tolerance: decays are at most 0, so a step never enlarges an error in S, and errors only add up over tokens.  A
 * value comes from sums of at most C + d_state products of decays, steps and inputs, whose roundings are
 * independent: sqrt(C + d_state) 2^-24 of the largest sum of magnitudes, and over T tokens sqrt(T) times that.  The
 * bound is 8 of these standard deviations, which some thousand draws never reach. */
#include "ptq/layers/mamba.h"

#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/recurrence.h"

#define EPS 0x1p-24
#define STRANGERS 3    /* other columns in the matrix of x, B and C */

typedef struct fixture {
    calm_mamba_shape shape;
    calm_mamba_rows rows;
    scan_result result;
    double largest, largest_norm;
} fixture;

/* Makes decays around -`speed`, some near 0. */
static void new_fixture(calm_mamba_shape shape, size_t n_tokens, double speed, fixture *f)
{
    const size_t value = shape.n_heads * shape.head_dim, group = shape.n_groups * shape.state_dim;
    const size_t stride = value + 2 * group + STRANGERS, n = n_tokens * shape.n_heads;
    float *x = scan_draws(n_tokens * stride, 1, 1), *decay = scan_draws(n, 2, speed), *step = scan_draws(n, 3, 1);
    *f = (fixture){.shape = shape, .result = scan_result_new(n_tokens * value, n)};
    f->rows = (calm_mamba_rows){x, x + value, x + value + group, stride, n_tokens, step, decay,
                                scan_draws(shape.n_heads, 4, 1)};
    for (size_t i = 0; i < n; i++) {
        decay[i] = -fabsf(decay[i]);
        step[i] = fabsf(step[i]);
    }
}

/* Runs one token of a head, which changes s and its magnitudes m, both [d_state, head_dim]. */
static void step(fixture *f, size_t t, size_t head, double *s, double *m)
{
    const size_t d = f->shape.head_dim, group = head / (f->shape.n_heads / f->shape.n_groups);
    const float *x = f->rows.x + t * f->rows.stride + head * d;
    const float *b = f->rows.b + t * f->rows.stride + group * f->shape.state_dim;
    const float *c = f->rows.c + t * f->rows.stride + group * f->shape.state_dim;
    const size_t gate = t * f->shape.n_heads + head;
    const double fade = exp((double)f->rows.decay[gate]), dt = (double)f->rows.step[gate];
    double square = 0;
    for (size_t k = 0; k < d; k++) {
        double y = (double)f->rows.skip[head] * (double)x[k], most = fabs(y);
        for (size_t i = 0; i < f->shape.state_dim; i++) {
            const double added = dt * (double)b[i] * (double)x[k];
            double *at = &s[i * d + k], *size = &m[i * d + k];
            *at = fade * *at + added;
            *size = fade * *size + fabs(added);
            y += *at * (double)c[i];
            most += *size * fabs((double)c[i]);
            square += *at * *at;
            f->largest_norm = fmax(f->largest_norm, *size);
        }
        f->result.expected[gate * d + k] = y;
        f->largest = fmax(f->largest, most);
    }
    f->result.expected_norms[gate] = sqrt(square);
    f->largest_norm = fmax(f->largest_norm, sqrt(square));
}

static void expect(fixture *f)
{
    const size_t size = f->shape.state_dim * f->shape.head_dim;
    double *s, *m;
    for (size_t head = 0; head < f->shape.n_heads; head++) {
        ck_ok(CALM_NEW(ctx, ctx->scratch, s, size));
        ck_ok(CALM_NEW(ctx, ctx->scratch, m, size));
        for (size_t t = 0; t < f->rows.n_tokens; t++)
            step(f, t, head, s, m);
    }
}

static void check(fixture *f, size_t chunk)
{
    const double sums = (double)(calm_size_min(chunk, f->rows.n_tokens) + f->shape.state_dim);
    const double roundings = 8 * EPS * sqrt(sums * (double)f->rows.n_tokens);
    const double size = (double)(f->shape.state_dim * f->shape.head_dim) * f->largest_norm * f->largest_norm;
    scan_result_near(&f->result, roundings * f->largest, 2 * roundings * size);
}

static void check_chunks(calm_mamba_shape shape, size_t n_tokens, double speed)
{
    static const size_t chunks[] = {1, 2, 7, 16, 17, 64, 100};
    fixture f;
    new_fixture(shape, n_tokens, speed, &f);
    expect(&f);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        scan_result_spoil(&f.result);
        ck_ok(calm_mamba_scan(ctx, &f.shape, &f.rows, chunks[i], f.result.out, f.result.norms, NULL, NULL));
        check(&f, chunks[i]);
    }
}

static const calm_mamba_shape small = {6, 2, 8, 12}, one = {1, 1, 16, 16}, wide = {4, 1, 5, 32}, narrow = {3, 3, 7, 1};

/* One token, less than a chunk, and chunks that do not divide the window. */
TEST(any_chunk)
{
    static const size_t lengths[] = {1, 2, 16, 63, 130};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_chunks(small, lengths[i], 0.1);
        check_chunks(one, lengths[i], 0.1);
        check_chunks(wide, lengths[i], 0.1);
        check_chunks(narrow, lengths[i], 0.1);
    }
}
END_OF_TEST

/* A memory that never fades, one that fades slowly, and one that is erased at once, beyond the range of exp. */
TEST(any_decay)
{
    check_chunks(small, 150, 0);
    check_chunks(small, 150, 1e-5);
    check_chunks(small, 150, 5);
    check_chunks(small, 150, 1e3);
    check_chunks(small, 150, 1e30);
}
END_OF_TEST

static void run_part(void *user, size_t t, size_t n, float *memory)
{
    const fixture *f = user;
    const size_t gates = t * small.n_heads, at = t * f->rows.stride;
    const calm_mamba_rows part = {f->rows.x + at, f->rows.b + at, f->rows.c + at, f->rows.stride, n,
                                  f->rows.step + gates, f->rows.decay + gates, f->rows.skip};
    ck_ok(calm_mamba_scan(ctx, &small, &part, 64, f->result.out + gates * small.head_dim, f->result.norms + gates,
                          NULL, memory));
}

TEST(cut_windows)
{
    for (size_t s = 0; s < sizeof scan_cut_speeds / sizeof *scan_cut_speeds; s++) {
        fixture f;
        new_fixture(small, 150, scan_cut_speeds[s], &f);
        expect(&f);
        scan_result_spoil(&f.result);
        scan_in_parts(run_part, &f, calm_mamba_memory(&small));
        check(&f, 64);
    }
}
END_OF_TEST

/* A fast decay at one token does not lose slow decays after it, although sums of decays are subtracted. */
TEST(slow_after_quick)
{
    fixture f;
    new_fixture(small, 100, 1e-3, &f);
    float *decay = scan_draws(f.result.n_gates, 2, 1e-3);
    for (size_t i = 0; i < f.result.n_gates; i++)
        decay[i] = i < 6 ? -1e30f : -fabsf(decay[i]);
    f.rows.decay = decay;
    expect(&f);
    ck_ok(calm_mamba_scan(ctx, &f.shape, &f.rows, 64, f.result.out, f.result.norms, NULL, NULL));
    check(&f, 64);
}
END_OF_TEST

TEST(threads_and_norms_do_not_matter)
{
    fixture f;
    new_fixture((calm_mamba_shape){10, 5, 32, 32}, 300, 0.1, &f);
    float *again;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, again, f.result.n_out));
    ck_ok(calm_mamba_scan(ctx, &f.shape, &f.rows, CALM_MAMBA_CHUNK, f.result.out, f.result.norms, NULL, NULL));
    for (ctx->n_threads = 2; ctx->n_threads <= 4; ctx->n_threads++) {
        ck_ok(calm_mamba_scan(ctx, &f.shape, &f.rows, CALM_MAMBA_CHUNK, again, NULL, NULL, NULL));
        ck_assert_mem_eq(again, f.result.out, f.result.n_out * sizeof *again);
    }
    ctx->n_threads = 1;
}
END_OF_TEST

TEST(memory)
{
    static const size_t lengths[] = {3, 64, 100};
    ctx->n_threads = 1;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fixture f;
        new_fixture(small, lengths[i], 0.1, &f);
        ck_memory_of_workers(calm_mamba_scan(ctx, &f.shape, &f.rows, 64, f.result.out, NULL, NULL, NULL), 0,
                             calm_mamba_scan_bytes(&f.shape, lengths[i], 64)
                                 + calm_mamba_head_bytes(&f.shape, lengths[i], 64), 4, 0);
    }
}
END_OF_TEST

/* Both ends of softplus, the limits, and other columns between rows; rounded once from double. */
TEST(steps)
{
    static const float raw[] = {-200, -20, 9, -1, 0, 9, 0.5f, 30, 9, 1e4f, 88, 9};
    static const float a_log[] = {-3, 2}, bias[] = {0.5f, -1};
    static const calm_mamba_limits limits[] = {{0, INFINITY}, {1e-3f, INFINITY}, {0.25f, 20}};
    for (size_t l = 0; l < 3; l++) {
        float dt[8], decay[8];
        calm_mamba_steps(ctx, 4, 2, raw, 3, a_log, bias, limits[l], dt, decay);
        for (size_t i = 0; i < 8; i++) {
            const double x = (double)raw[i / 2 * 3 + i % 2] + (double)bias[i % 2];
            const double softplus = x > 40 ? x : log1p(exp(x));
            const double s = fmin(fmax(softplus, (double)limits[l].least), (double)limits[l].most);
            const double g = -exp((double)a_log[i % 2]) * s;
            /* Below the least normal number the spacing counts. */
            ck_near((double)dt[i], s, 2 * EPS * s + 0x1p-149);
            ck_near((double)decay[i], g, 2 * EPS * fabs(g) + 0x1p-149);
        }
    }
}
END_OF_TEST

/* silu and the product round, RMSNorm divides and multiplies: 8 roundings, and those of a sum of 24 squares. */
TEST(gated_norm)
{
    const size_t width = 48, stride = width + STRANGERS;
    float *y = scan_draws(5 * width, 4, 2), *z = scan_draws(5 * stride, 5, 3), *w = scan_draws(width, 6, 1);
    float *y_in = scan_draws(5 * width, 4, 2), *z_in = scan_draws(5 * stride, 5, 3);
    calm_mamba_norm(ctx, &small, 5, w, 1e-3f, z, stride, y);
    for (size_t t = 0; t < 5; t++)
        for (size_t c = 0; c < width; c++) {
            double sum = 0, own = 0;
            for (size_t i = c / 24 * 24; i < c / 24 * 24 + 24; i++) {
                const double gate = (double)z_in[t * stride + i];
                const double v = (double)y_in[t * width + i] * gate / (1 + exp(-gate));
                sum += v * v;
                own = i == c ? v : own;
            }
            const double expected = own / sqrt(sum / 24 + (double)1e-3f) * (double)w[c];
            ck_near((double)y[t * width + c], expected, 20 * EPS * fabs(expected));
        }
    for (size_t t = 0; t < 5; t++)
        ck_assert_mem_eq(z + t * stride + width, z_in + t * stride + width, STRANGERS * sizeof *z);
}
END_OF_TEST

int main(void)
{
    calm_linalg_setup();
    return run_tests("mamba", (const TTest *[]){any_chunk, any_decay, cut_windows, slow_after_quick,
                                                threads_and_norms_do_not_matter, memory, steps, gated_norm, NULL});
}
