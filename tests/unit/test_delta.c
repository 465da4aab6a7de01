/* The gated delta rule in chunks against its recurrence in double.
 *
 * Tolerance: with |k| <= 1, 0 <= beta <= 1 and g <= 0 a step never enlarges an error in S, so errors only add up
 * over tokens.  A value comes from sums of at most C + d_k products, whose roundings are independent: sqrt(C + d_k)
 * 2^-24 of the largest value, and over T tokens sqrt(T) times that.  The bound is 8 of these standard deviations,
 * which some thousand draws never reach.  The largest value is that of v, u and the norm of S. */
#include "ptq/layers/delta.h"

#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/recurrence.h"

#define EPS 0x1p-24

typedef struct fixture {
    calm_delta_shape shape;
    calm_delta_rows rows;
    scan_result result;
    double largest;
} fixture;

/* q, k and v are columns of one matrix with three other columns; decays are around -`speed`, some near 0. */
static void new_fixture(calm_delta_shape shape, size_t n_tokens, double speed, fixture *f)
{
    const size_t key = shape.n_key_heads * shape.key_dim, value = shape.n_value_heads * shape.value_dim;
    const size_t stride = 2 * key + value + 3, n = n_tokens * shape.n_value_heads;
    float *x = scan_draws(n_tokens * stride, 1, 1), *decay = scan_draws(n, 2, speed), *beta = scan_draws(n, 3, 3);
    *f = (fixture){.shape = shape, .result = scan_result_new(n_tokens * value, n)};
    f->rows = (calm_delta_rows){x, x + key, x + 2 * key, stride, n_tokens, decay, beta};
    for (size_t i = 0; i < n; i++) {
        decay[i] = -fabsf(decay[i]);
        beta[i] = 1 / (1 + expf(-beta[i]));
    }
}

static double length_of(const float *x, size_t d)
{
    double sum = 1e-6;
    for (size_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)x[c];
    return sqrt(sum);
}

/* Runs one token of a value head, which changes S [d_k, d_v]. */
static void step(fixture *f, size_t t, size_t head, double *s)
{
    const size_t d_k = f->shape.key_dim, d_v = f->shape.value_dim;
    const size_t key_head = head / (f->shape.n_value_heads / f->shape.n_key_heads);
    const size_t at = t * f->rows.stride + key_head * d_k;
    const float *q = f->rows.q + at, *k = f->rows.k + at;
    const float *v = f->rows.v + t * f->rows.stride + head * d_v;
    const double fade = exp((double)f->rows.decay[t * f->shape.n_value_heads + head]);
    const double beta = (double)f->rows.beta[t * f->shape.n_value_heads + head], k_length = length_of(k, d_k);
    const double q_length = length_of(q, d_k) * sqrt((double)d_k);
    double square = 0;
    for (size_t c = 0; c < d_v; c++) {
        double seen = 0, o = 0;
        for (size_t i = 0; i < d_k; i++) {
            s[i * d_v + c] *= fade;
            seen += s[i * d_v + c] * (double)k[i] / k_length;
        }
        const double u = beta * ((double)v[c] - seen);
        for (size_t i = 0; i < d_k; i++) {
            s[i * d_v + c] += (double)k[i] / k_length * u;
            o += s[i * d_v + c] * (double)q[i] / q_length;
            square += s[i * d_v + c] * s[i * d_v + c];
        }
        f->result.expected[(t * f->shape.n_value_heads + head) * d_v + c] = o;
        f->largest = fmax(f->largest, fmax(fabs((double)v[c]), fabs(u)));
    }
    f->result.expected_norms[t * f->shape.n_value_heads + head] = sqrt(square);
    f->largest = fmax(f->largest, sqrt(square));
}

static void expect(fixture *f)
{
    double *s;
    for (size_t head = 0; head < f->shape.n_value_heads; head++) {
        ck_ok(CALM_NEW(ctx, ctx->scratch, s, f->shape.key_dim * f->shape.value_dim));
        for (size_t t = 0; t < f->rows.n_tokens; t++)
            step(f, t, head, s);
    }
}

static void check(fixture *f, size_t chunk)
{
    const double sums = (double)(calm_size_min(chunk, f->rows.n_tokens) + f->shape.key_dim);
    const double tolerance = 8 * EPS * sqrt(sums * (double)f->rows.n_tokens) * f->largest;
    scan_result_near(&f->result, tolerance, 2 * f->largest * tolerance);
}

static void check_chunks(calm_delta_shape shape, size_t n_tokens, double speed)
{
    static const size_t chunks[] = {1, 2, 7, 16, 17, 64, 100};
    fixture f;
    new_fixture(shape, n_tokens, speed, &f);
    expect(&f);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        scan_result_spoil(&f.result);
        ck_ok(calm_delta_rule(ctx, &f.shape, &f.rows, chunks[i], f.result.out, f.result.norms, NULL, NULL));
        check(&f, chunks[i]);
    }
}

static const calm_delta_shape small = {2, 6, 8, 12}, square = {1, 1, 16, 16}, wide = {2, 4, 32, 5};

/* One token, less than a chunk, and chunks that do not divide the window. */
TEST(any_chunk)
{
    static const size_t lengths[] = {1, 2, 16, 63, 130};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_chunks(small, lengths[i], 0.1);
        check_chunks(square, lengths[i], 0.1);
        check_chunks(wide, lengths[i], 0.1);
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
    const size_t gates = t * small.n_value_heads, at = t * f->rows.stride;
    const calm_delta_rows part = {f->rows.q + at, f->rows.k + at, f->rows.v + at, f->rows.stride, n,
                                  f->rows.decay + gates, f->rows.beta + gates};
    ck_ok(calm_delta_rule(ctx, &small, &part, 64, f->result.out + gates * small.value_dim, f->result.norms + gates,
                          NULL, memory));
}

TEST(cut_windows)
{
    for (size_t s = 0; s < sizeof scan_cut_speeds / sizeof *scan_cut_speeds; s++) {
        fixture f;
        new_fixture(small, 150, scan_cut_speeds[s], &f);
        expect(&f);
        scan_result_spoil(&f.result);
        scan_in_parts(run_part, &f, calm_delta_memory(&small));
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
    ck_ok(calm_delta_rule(ctx, &f.shape, &f.rows, 64, f.result.out, f.result.norms, NULL, NULL));
    check(&f, 64);
}
END_OF_TEST

/* The same key at every token, fully written: each value replaces the last, which is the hardest system to solve. */
TEST(one_key)
{
    fixture f;
    new_fixture(square, 200, 0, &f);
    const size_t n = f.rows.n_tokens * f.rows.stride;
    float *x = scan_draws(n, 1, 1), *beta = scan_draws(f.result.n_gates, 3, 0);
    for (size_t t = 0; t < f.rows.n_tokens; t++) {
        memcpy(x + t * f.rows.stride + 16, x + 16, 16 * sizeof *x);
        beta[t] = t % 50 == 49 ? 0 : 1;
    }
    f.rows.q = x, f.rows.k = x + 16, f.rows.v = x + 32, f.rows.beta = beta;
    expect(&f);
    ck_ok(calm_delta_rule(ctx, &f.shape, &f.rows, 64, f.result.out, f.result.norms, NULL, NULL));
    check(&f, 64);
}
END_OF_TEST

/* A key of zeros has no direction: it writes nothing, and gives no NaN. */
TEST(zero_key)
{
    fixture f;
    new_fixture(square, 10, 0.1, &f);
    float *x = scan_draws(10 * f.rows.stride, 1, 0);
    f.rows.k = x;
    expect(&f);
    ck_ok(calm_delta_rule(ctx, &f.shape, &f.rows, 64, f.result.out, f.result.norms, NULL, NULL));
    for (size_t i = 0; i < f.result.n_out; i++)
        ck_assert(f.result.out[i] == 0);
    check(&f, 64);
}
END_OF_TEST

TEST(threads_and_norms_do_not_matter)
{
    fixture f;
    new_fixture((calm_delta_shape){5, 10, 32, 32}, 300, 0.1, &f);
    float *again;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, again, f.result.n_out));
    ck_ok(calm_delta_rule(ctx, &f.shape, &f.rows, CALM_DELTA_CHUNK, f.result.out, f.result.norms, NULL, NULL));
    for (ctx->n_threads = 2; ctx->n_threads <= 4; ctx->n_threads++) {
        ck_ok(calm_delta_rule(ctx, &f.shape, &f.rows, CALM_DELTA_CHUNK, again, NULL, NULL, NULL));
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
        ck_memory_of_workers(calm_delta_rule(ctx, &f.shape, &f.rows, 64, f.result.out, NULL, NULL, NULL), 0,
                             calm_delta_rule_bytes(&f.shape, lengths[i], 64), 4, 0);
    }
}
END_OF_TEST

/* Both ends of softplus and sigmoid; rounded once from double. */
TEST(gates)
{
    static const float a[] = {-200, -20, -1, 0, 0.5f, 30, 1e4f, 88}, b[] = {-200, -88, -1, 0, 1, 20, 90, 1e4f};
    static const float a_log[] = {-3, 2}, bias[] = {0.5f, -1};
    float decay[8], beta[8];
    memcpy(decay, a, sizeof a);
    memcpy(beta, b, sizeof b);
    calm_delta_gates(ctx, 4, 2, a_log, bias, decay, beta);
    for (size_t i = 0; i < 8; i++) {
        const double x = (double)a[i] + (double)bias[i % 2], softplus = x > 40 ? x : log1p(exp(x));
        const double g = -exp((double)a_log[i % 2]) * softplus, s = 1 / (1 + exp(-(double)b[i]));
        /* Below the least normal number the spacing counts. */
        ck_near((double)decay[i], g, 2 * EPS * fabs(g) + 0x1p-149);
        ck_near((double)beta[i], s, 2 * EPS * s + 0x1p-149);
    }
}
END_OF_TEST

/* RMSNorm divides and multiplies, silu and the product round: 8 roundings, and those of a sum of 12 squares. */
TEST(gated_norm)
{
    float *o = scan_draws(5 * 6 * 12, 4, 2), *z = scan_draws(5 * 6 * 12, 5, 3), *w = scan_draws(12, 6, 1);
    float *o_in = scan_draws(5 * 6 * 12, 4, 2), *z_in = scan_draws(5 * 6 * 12, 5, 3);
    calm_delta_norm(ctx, &small, 5, w, 1e-3f, o, z);
    for (size_t row = 0; row < 5 * 6; row++) {
        double sum = 0;
        for (size_t c = 0; c < 12; c++)
            sum += (double)o_in[row * 12 + c] * (double)o_in[row * 12 + c];
        for (size_t c = 0; c < 12; c++) {
            const double gate = (double)z_in[row * 12 + c];
            const double y = (double)o_in[row * 12 + c] / sqrt(sum / 12 + (double)1e-3f) * (double)w[c] * gate
                             / (1 + exp(-gate));
            ck_near((double)z[row * 12 + c], y, 20 * EPS * fabs(y));
        }
    }
}
END_OF_TEST

int main(void)
{
    calm_linalg_setup();
    return run_tests("delta", (const TTest *[]){any_chunk, any_decay, cut_windows, slow_after_quick, one_key, zero_key,
                                                threads_and_norms_do_not_matter, memory, gates, gated_norm, NULL});
}
