/* Gradients of sentence embeddings: the loss of encode.h, slopes, refusals, memory. */
#include "ptq/eval/encode_back.h"

#include <math.h>

#include "ptq/base/rng.h"
#include "ptq/eval/encode.h"
#include "tests/support/harness.h"

enum { TOKENS = 7, WIDTH = 19, N = TOKENS * WIDTH };

static float x[N], y[N];

static const calm_pooling plain = {.hidden = WIDTH, .width = WIDTH};

static void fill(void)
{
    for (size_t i = 0; i < N; i++) {
        y[i] = (float)calm_rng_normal(1, 1, i);
        x[i] = y[i] + 0.5f * (float)calm_rng_normal(1, 2, i);
    }
}

static double loss_of(const float *rows)
{
    double loss;
    ck_ok(calm_embedding_back(ctx, &plain, rows, y, TOKENS, 1, &loss, NULL));
    return loss;
}

/* The loss is the mean over rows as an evaluation computes it; both are in double, some sums of 19 products apart. */
TEST(the_loss_is_that_of_evaluations)
{
    double means[2][WIDTH] = {{0}};
    calm_embedding_result found;
    fill();
    for (size_t i = 0; i < N; i++) {
        means[0][i % WIDTH] += (double)y[i] / TOKENS;
        means[1][i % WIDTH] += (double)x[i] / TOKENS;
    }
    const calm_embeddings reference = {1, WIDTH, means[0], false}, other = {1, WIDTH, means[1], false};
    ck_ok(calm_embedding_compare(ctx, &reference, &other, &found));
    ck_assert(loss_of(x) > 0.01);
    ck_assert(fabs(loss_of(x) - (1 - found.cosine)) <= 1e-14);
    ck_assert(fabs(loss_of(y)) <= 1e-14);
}
END_OF_TEST

/* Returns the length of the mean row, and in `sizes` that of the mean of magnitudes. */
static double length_of(const float *rows, double *sizes)
{
    double mean[WIDTH] = {0}, size[WIDTH] = {0}, sum = 0, of_sizes = 0;
    for (size_t i = 0; i < N; i++) {
        mean[i % WIDTH] += (double)rows[i] / TOKENS;
        size[i % WIDTH] += fabs((double)rows[i]) / TOKENS;
    }
    for (size_t j = 0; j < WIDTH; j++) {
        sum += mean[j] * mean[j];
        of_sizes += size[j] * size[j];
    }
    *sizes = sqrt(of_sizes);
    return sqrt(sum);
}

/* Central differences with steps of 2^-9, which are exact in float for values below 8, so the mean m takes steps
 * h = 2^-9 / T.  Along a line the direction of m turns by an angle whose derivatives are at most 1 / |m|, 1 / |m|^2 and
 * 2 / |m|^3, so the third one of the cosine is at most (1 + 3 + 2) / |m|^3, and h^2 / 6 times that is added.  The
 * losses are in double: W + 6 roundings of the cosine, and T + 1 of each mean, which the cosine divides by its
 * length. */
TEST(slopes)
{
    const float step = 0x1p-9f;
    float d[N];
    double loss;
    fill();
    for (size_t i = 0; i < N; i++)
        x[i] = rintf(x[i] * 0x1p12f) * 0x1p-12f;
    ck_ok(calm_embedding_back(ctx, &plain, x, y, TOKENS, 3, &loss, d));
    double of_x, of_y;
    const double h = (double)step / TOKENS, at_x = length_of(x, &of_x), at_y = length_of(y, &of_y);
    const double of_loss = 0x1p-53 * (WIDTH + 6 + (TOKENS + 1) * (of_x / at_x + of_y / at_y));
    const double error = 3 * (h * h / pow(at_x - h, 3) / TOKENS + of_loss / (double)step);
    for (size_t i = 0; i < N; i++) {
        const float kept = x[i];
        x[i] = kept + step;
        const double above = loss_of(x);
        x[i] = kept - step;
        const double slope = 3 * (above - loss_of(x)) / (2 * (double)step);
        x[i] = kept;
        ck_assert_msg(fabs(slope - (double)d[i]) <= error + 0x1p-24 * fabs((double)d[i]),
                      "%zu: slope %g, gradient %g", i, slope, (double)d[i]);
    }
    /* A longer embedding has the same distance, so the gradient, once rounded to float, is orthogonal to the
     * embedding. */
    double along = 0, size = 0, mean[WIDTH] = {0};
    for (size_t i = 0; i < N; i++)
        mean[i % WIDTH] += (double)x[i] / TOKENS;
    for (size_t j = 0; j < WIDTH; j++) {
        along += mean[j] * (double)d[j];
        size += fabs(mean[j] * (double)d[j]);
    }
    ck_assert(fabs(along) <= (0x1p-24 + of_loss) * size);
}
END_OF_TEST

TEST(what_has_no_direction_is_refused)
{
    double loss;
    fill();
    for (int side = 0; side < 2; side++) {
        float *const rows = side ? x : y;
        memset(rows, 0, sizeof x);
        ck_fails(calm_embedding_back(ctx, &plain, x, y, TOKENS, 1, &loss, NULL), CALM_ENUMERIC, "embedding is 0");
        rows[3] = NAN;
        ck_fails(calm_embedding_back(ctx, &plain, x, y, TOKENS, 1, &loss, NULL), CALM_ENUMERIC, "embedding is nan");
        fill();
    }
}
END_OF_TEST

TEST(memory)
{
    double loss;
    float d[N];
    fill();
    ck_memory(calm_embedding_back(ctx, &plain, x, y, TOKENS, 1, &loss, d), 0,
              calm_embedding_back_scratch_bytes(&(calm_config){.hidden = WIDTH}));
}
END_OF_TEST

TEST(no_memory)
{
    double loss;
    float d[N];
    fill();
    ck_allocations(ctx->scratch, 4, calm_embedding_back(ctx, &plain, x, y, TOKENS, 1, &loss, d));
}
END_OF_TEST

int main(void)
{
    return run_tests("encode_back", (const TTest *[]){the_loss_is_that_of_evaluations, slopes,
                                                      what_has_no_direction_is_refused, memory, no_memory, NULL});
}
