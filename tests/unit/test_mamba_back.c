/* Gradients of Mamba-2's scan against differences of its recurrence in double, which is linear in each operand, and in
 * the exponential of each decay: differences of any step are exact but for the rounding of double.
 *
 * Tolerance: a gradient is a sum of products, whose magnitudes add up to the same gradient of a fixture of magnitudes.
 * On the way to it a product has at most n roundings.  The chunks before and after it, at most T, hand on a memory:
 * each has a factor, its product, a sum and an addition to a sum of its tokens, less than 5 T roundings either way.
 * There are two sums over a memory's rows and one over its columns, one over heads, and for an exponential 4 roundings
 * and its argument, the sum of decays; less than 20 for single products, factors and additions. */
#include "ptq/layers/mamba_back.h"

#include "ptq/base/rng.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24

/* All operands, one after the other, in double: x, B, C, step, decay, D. */
typedef struct fixture {
    calm_mamba_shape shape;
    size_t n_tokens, value, group, gates, n;
    double *all, *dout;
} fixture;

static void new_fixture(calm_mamba_shape shape, size_t n_tokens, fixture *f)
{
    *f = (fixture){.shape = shape, .n_tokens = n_tokens, .value = n_tokens * shape.n_heads * shape.head_dim,
                   .group = n_tokens * shape.n_groups * shape.state_dim, .gates = n_tokens * shape.n_heads};
    f->n = f->value + 2 * f->group + 2 * f->gates + shape.n_heads;
    ck_ok(CALM_NEW(ctx, ctx->scratch, f->all, f->n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, f->dout, f->value));
    const size_t step = f->value + 2 * f->group;
    for (size_t i = 0; i < f->n; i++) {
        const double x = calm_rng_normal(9, 1, i);
        f->all[i] = (double)(float)(i < step || i >= step + 2 * f->gates ? x
                                    : i < step + f->gates               ? fabs(x)
                                                                        : -fabs(x) - 1e-3);
    }
    for (size_t i = 0; i < f->value; i++)
        f->dout[i] = (double)(float)calm_rng_normal(9, 2, i);
}

/* Returns sum dout . y, token by token. */
static double loss_of(const fixture *f)
{
    const calm_mamba_shape *s = &f->shape;
    const double *b = f->all + f->value, *c = b + f->group, *step = c + f->group, *decay = step + f->gates;
    double loss = 0;
    for (size_t head = 0; head < s->n_heads; head++) {
        const size_t group = head / (s->n_heads / s->n_groups);
        double memory[8 * 8] = {0};
        for (size_t t = 0; t < f->n_tokens; t++) {
            const size_t gate = t * s->n_heads + head, at = (t * s->n_groups + group) * s->state_dim;
            for (size_t k = 0; k < s->head_dim; k++) {
                const double x = f->all[gate * s->head_dim + k];
                double y = decay[f->gates + head] * x;
                for (size_t i = 0; i < s->state_dim; i++) {
                    double *m = &memory[i * s->head_dim + k];
                    *m = exp(decay[gate]) * *m + step[gate] * b[at + i] * x;
                    y += *m * c[at + i];
                }
                loss += y * f->dout[gate * s->head_dim + k];
            }
        }
    }
    return loss;
}

static bool is_decay(const fixture *f, size_t i)
{
    const size_t first = f->value + 2 * f->group + f->gates;
    return i >= first && i < first + f->gates;
}

/* Returns the slope along operand i: of a + b u, or of a + b exp(u). */
static double slope_of(fixture *f, size_t i)
{
    const double kept = f->all[i];
    f->all[i] = kept + 1;
    const double above = loss_of(f);
    f->all[i] = kept - 1;
    const double below = loss_of(f);
    f->all[i] = kept;
    return (above - below) / (2 * (is_decay(f, i) ? sinh(1) : 1));
}

/* Replaces operands by their magnitudes, but decays; returns the number of roundings. */
static double to_magnitudes(fixture *f)
{
    double decays = 0;
    for (size_t i = 0; i < f->n; i++)
        if (is_decay(f, i))
            decays += fabs(f->all[i]);
        else
            f->all[i] = fabs(f->all[i]);
    for (size_t i = 0; i < f->value; i++)
        f->dout[i] = fabs(f->dout[i]);
    const size_t rows = 2 * f->shape.state_dim + f->shape.head_dim + f->shape.n_heads;
    return (double)(10 * f->n_tokens + rows + 4 + 20) + decays;
}

static float *rounded(const double *x, size_t n)
{
    float *y;
    ck_ok(CALM_NEW(ctx, ctx->scratch, y, n));
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

/* Copies rows of `from` [T, width] to columns of `to`, or back. */
static void columns(float *rows, float *matrix, size_t n, size_t width, size_t stride, bool back)
{
    for (size_t t = 0; t < n; t++)
        memcpy(back ? rows + t * width : matrix + t * stride, back ? matrix + t * stride : rows + t * width,
               width * sizeof *rows);
}

/* Returns the gradients in the order of f->all; x, B and C are columns of one matrix, as a convolution writes them. */
static float *run_back(const fixture *f, size_t chunk)
{
    const size_t x = f->shape.n_heads * f->shape.head_dim, group = f->shape.n_groups * f->shape.state_dim;
    const size_t stride = x + 2 * group + 1, gates = f->value + 2 * f->group;
    float *m, *dm, *states, *out, *grads, *all = rounded(f->all, f->n), *dout = rounded(f->dout, f->value);
    ck_ok(CALM_NEW(ctx, ctx->scratch, m, f->n_tokens * stride));
    ck_ok(CALM_NEW(ctx, ctx->scratch, dm, f->n_tokens * stride));
    ck_ok(CALM_NEW(ctx, ctx->scratch, grads, f->n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, out, f->value));
    ck_ok(CALM_NEW(ctx, ctx->scratch, states, calm_mamba_states(&f->shape, f->n_tokens, chunk)));
    columns(all, m, f->n_tokens, x, stride, false);
    columns(all + f->value, m + x, f->n_tokens, group, stride, false);
    columns(all + f->value + f->group, m + x + group, f->n_tokens, group, stride, false);
    const calm_mamba_rows rows = {m, m + x, m + x + group, stride, f->n_tokens, all + gates, all + gates + f->gates,
                                  all + gates + 2 * f->gates};
    const calm_mamba_grads to = {dm, dm + x, dm + x + group, grads + gates, grads + gates + f->gates,
                                 grads + gates + 2 * f->gates};
    ck_ok(calm_mamba_scan(ctx, &f->shape, &rows, chunk, out, NULL, states, NULL));
    ck_ok(calm_mamba_scan_back(ctx, &f->shape, &rows, chunk, states, dout, &to));
    columns(grads, dm, f->n_tokens, x, stride, true);
    columns(grads + f->value, dm + x, f->n_tokens, group, stride, true);
    columns(grads + f->value + f->group, dm + x + group, f->n_tokens, group, stride, true);
    return grads;
}

static void check(calm_mamba_shape shape, size_t n_tokens)
{
    static const size_t chunks[] = {1, 3, 5, 64};
    fixture f, sizes;
    CALM_SCOPED_SCRATCH(ctx);
    new_fixture(shape, n_tokens, &f);
    new_fixture(shape, n_tokens, &sizes);
    const double roundings = to_magnitudes(&sizes);
    /* Decays sum gradients of all later ones, of which some cancel, in double. */
    const double of_double = 2 * roundings * 0x1p-53 * loss_of(&sizes);
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
        const float *found = run_back(&f, chunks[k]);
        for (size_t i = 0; i < f.n; i++) {
            const double expected = slope_of(&f, i), error = roundings * EPS * slope_of(&sizes, i) + of_double;
            ck_assert_msg(fabs((double)found[i] - expected) <= error, "chunks of %zu, %zu: %g, not %g within %g",
                          chunks[k], i, (double)found[i], expected, error);
        }
    }
}

TEST(scan)
{
    calm_linalg_setup();
    check((calm_mamba_shape){4, 2, 3, 5}, 11);
    check((calm_mamba_shape){3, 1, 8, 2}, 6);
    check((calm_mamba_shape){2, 2, 1, 1}, 1);
}
END_OF_TEST

TEST(threads_do_not_matter)
{
    fixture f;
    new_fixture((calm_mamba_shape){6, 2, 8, 8}, 150, &f);
    const float *expected = run_back(&f, CALM_MAMBA_CHUNK);
    for (int threads = 2; threads <= 4; threads++) {
        ctx->n_threads = threads;
        ck_assert(memcmp(run_back(&f, CALM_MAMBA_CHUNK), expected, f.n * sizeof *expected) == 0);
    }
    ctx->n_threads = 1;
}
END_OF_TEST

/* log(1 + e^x) within limits, whose clamped values have no gradient.  All is computed in double, some ten roundings of
 * 2^-53 of the magnitudes that are added, and rounded to float once. */
TEST(steps)
{
    enum { TOKENS = 3, HEADS = 2 };
    static const double doubles = 16 * 0x1p-53;
    static const float raw[TOKENS * HEADS] = {.3f, -1, 2, 0, 9, -9}, log_rate[HEADS] = {.5f, -.2f},
                       bias[HEADS] = {.1f, 0};
    static const float dstep[TOKENS * HEADS] = {1, -1, .5f, 2, 1, 1}, ddecay[TOKENS * HEADS] = {.3f, .7f, -1, 1, 1, 1};
    const calm_mamba_limits limits = {.01f, 5};
    float draw[TOKENS * HEADS], dlog[HEADS] = {0}, dbias[HEADS] = {0};
    calm_mamba_steps_back(TOKENS, HEADS, raw, HEADS, log_rate, bias, limits, dstep, ddecay, draw, dlog, dbias);
    for (size_t head = 0; head < HEADS; head++) {
        const double rate = exp((double)log_rate[head]);
        double of_log = 0, of_bias = 0, log_size = 0, bias_size = 0;
        for (size_t i = head; i < TOKENS * HEADS; i += HEADS) {
            const double x = (double)raw[i] + (double)bias[head], step = log(1 + exp(x));
            const bool held = i >= 2 * HEADS;    /* 9 and -9 */
            const double back = held ? 0 : ((double)dstep[i] - rate * (double)ddecay[i]) / (1 + exp(-x));
            const double size = fabs((double)dstep[i]) + rate * fabs((double)ddecay[i]);
            const double part = (double)ddecay[i] * rate * fmin(fmax(step, (double)limits.least), (double)limits.most);
            ck_near(draw[i], back, EPS * fabs(back) + doubles * size);
            of_log -= part;
            log_size += fabs(part);
            of_bias += back;
            bias_size += size;
        }
        ck_near(dlog[head], of_log, EPS * fabs(of_log) + doubles * log_size);
        ck_near(dbias[head], of_bias, EPS * fabs(of_bias) + doubles * bias_size);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("mamba_back", (const TTest *[]){scan, threads_do_not_matter, steps, NULL});
}
