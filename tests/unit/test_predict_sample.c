/* Sampled directions of the KL divergence: their square against the divergence of a small change, what they do not
 * depend on, and refusals. */
#include "ptq/eval/predict_sample.h"

#include "ptq/base/rng.h"
#include "ptq/eval/predict_impl.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define EPS 0x1p-24

enum { ROWS = 150, HIDDEN = 32, DRAWS = 100 };

typedef struct fixture {
    calm_model *model;
    calm_predictors set;
    calm_row_store hidden;
    calm_prediction rows[ROWS];
    uint32_t targets[ROWS];
    float x[ROWS * HIDDEN], d[ROWS * HIDDEN];
} fixture;

static void open_fixture(fixture *f, const char *family)
{
    const tiny_model spec = tiny_of(family);
    calm_linalg_setup();
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    const calm_subject subject = {.model = f->model};
    ck_ok(calm_predictors_open(ctx, NULL, &subject, 1, ROWS, &f->set));
    memset(f->targets, 0, sizeof f->targets);
    memset(f->rows, 0, sizeof f->rows);
    for (size_t i = 0; i < ROWS * HIDDEN; i++)
        f->x[i] = (float)calm_rng_normal(5, 0, i);
    f->hidden = (calm_row_store){ROWS, HIDDEN, f->x, -1};
    f->set.models[0].hidden = &f->hidden;
    f->set.models[0].rows = f->rows;
}

/* Returns the sum over rows of KL(model at x || model at x + change). */
static double divergence(const fixture *f, const float *change)
{
    static float moved[ROWS * HIDDEN];
    const calm_subject subject = {.model = f->model};
    calm_predictors set;
    double sum = 0;
    ck_ok(calm_predictors_open(ctx, &subject, &subject, 1, ROWS, &set));
    for (size_t i = 0; i < ROWS * HIDDEN; i++)
        moved[i] = f->x[i] + change[i];
    const calm_row_store hidden = {ROWS, HIDDEN, moved, -1};
    for (size_t m = 0; m < 2; m++) {
        set.models[m].hidden = m ? &hidden : &f->hidden;
        ck_ok(CALM_NEW(ctx, ctx->out, set.models[m].rows, ROWS));
    }
    ck_ok(calm_predict(ctx, &set, f->targets, ROWS));
    for (size_t t = 0; t < ROWS; t++)
        sum += calm_prediction_kl(&set.models[0].rows[t], &set.models[1].rows[t]);
    return sum;
}

/* Half the square along a small change is its divergence, in the mean of 100 draws of 150 rows: the mean of 15000
 * squares of nearly normal numbers is off by 1.2 %, and by more as rows differ in magnitude.  In the family with
 * caps too. */
TEST(half_the_square_is_the_divergence)
{
    static const char *const families[] = {"qwen3", "gemma2"};
    static fixture f;
    static float change[ROWS * HIDDEN];
    for (int i = 0; i < 2; i++) {
        double squares = 0;
        open_fixture(&f, families[i]);
        for (size_t k = 0; k < ROWS * HIDDEN; k++)
            change[k] = (float)(0.05 * calm_rng_normal(5, 1, k));
        const double expected = divergence(&f, change);
        ck_ok(calm_predict(ctx, &f.set, f.targets, ROWS));
        for (size_t draw = 0; draw < DRAWS; draw++) {
            ck_ok(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 0, draw, f.d));
            for (size_t t = 0; t < ROWS; t++) {
                const double along = calm_vec_dot(HIDDEN, f.d + t * HIDDEN, change + t * HIDDEN);
                squares += along * along / 2 / DRAWS;
            }
        }
        ck_near(squares / expected, 1, 0.05);
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* Computes bounds [D] of the difference between two gradients of row t whose products add in other orders.
 *
 * A logit is a sum of D products, each off by (D + 1) 2^-24 of its magnitudes, and so is p, relatively: exp rounds its
 * argument, has 4 and its factor 2 roundings.  q = sqrt(p) has half of that and one.  A row is the sum over v of
 * +-q W - S p W, in V + 3 roundings, with S the sum of +-q, |S| at most the sum of q. */
static void errors_of_row(const fixture *f, size_t t, double *error)
{
    const calm_head *head = &f->set.models[0].head;
    double *logit, *off, most = -INFINITY, sum = 0, roots = 0, of_roots = 0;
    float *w;
    ck_ok(CALM_NEW(ctx, ctx->out, logit, head->vocab));
    ck_ok(CALM_NEW(ctx, ctx->out, off, head->vocab));
    ck_ok(CALM_NEW(ctx, ctx->out, w, head->vocab * HIDDEN));
    ck_ok(calm_head_read_tile(ctx, head, 0, head->vocab, w));
    for (size_t v = 0; v < head->vocab; v++) {
        for (size_t i = 0; i < HIDDEN; i++) {
            const double term = (double)w[v * HIDDEN + i] * (double)f->x[t * HIDDEN + i];
            logit[v] += term;
            off[v] += (HIDDEN + 1) * EPS * fabs(term);
        }
        most = fmax(most, logit[v]);
    }
    for (size_t v = 0; v < head->vocab; v++)
        sum += exp(logit[v] - most);
    for (size_t v = 0; v < head->vocab; v++) {
        off[v] += EPS * (most - logit[v] + 4 + 2);
        roots += sqrt(exp(logit[v] - most) / sum);
        of_roots += sqrt(exp(logit[v] - most) / sum) * (off[v] / 2 + EPS);
    }
    for (size_t i = 0; i < HIDDEN; i++) {
        error[i] = 0;
        for (size_t v = 0; v < head->vocab; v++) {
            const double p = exp(logit[v] - most) / sum, sums = EPS * (double)(head->vocab + 3);
            error[i] += 2 * fabs((double)w[v * HIDDEN + i])
                        * (sqrt(p) * (off[v] / 2 + EPS + sums) + p * (roots * (off[v] + sums) + of_roots));
        }
    }
}

/* Computes the gradients of rows first .. ROWS - 1 alone. */
static void rows_from(fixture *f, size_t first)
{
    const calm_row_store part = {ROWS - first, HIDDEN, f->x + first * HIDDEN, -1};
    f->set.models[0].hidden = &part;
    f->set.models[0].rows = f->rows + first;
    ck_ok(calm_predict_sample_back(ctx, &f->set, f->targets + first, ROWS - first, 1000 + first, 3, f->d));
}

/* A row's draw depends on its number only: not on threads, on neighbouring rows, or on rows that are left out. */
TEST(draws_are_of_rows)
{
    static fixture f;
    static float one[ROWS * HIDDEN];
    open_fixture(&f, "llama");
    f.targets[7] = CALM_NO_TARGET;
    ck_ok(calm_predict(ctx, &f.set, f.targets, ROWS));
    ck_ok(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 1000, 3, one));
    for (size_t i = 0; i < HIDDEN; i++)
        ck_assert(one[7 * HIDDEN + i] == 0 && one[8 * HIDDEN + i] != 0);
    for (int threads = 2; threads <= 4; threads += 2) {
        ctx->n_threads = threads;
        ck_ok(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 1000, 3, f.d));
        ck_assert(memcmp(one, f.d, sizeof one) == 0);
    }
    ctx->n_threads = 1;
    ck_ok(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 1000, 4, f.d));
    ck_assert(memcmp(one, f.d, sizeof one) != 0);
    /* Only the rows that were in products of their own, and the second half, which was in others. */
    rows_from(&f, CALM_PREDICT_PASS_ROWS);
    ck_assert_mem_eq(f.d, one + CALM_PREDICT_PASS_ROWS * HIDDEN,
                     (ROWS - CALM_PREDICT_PASS_ROWS) * HIDDEN * sizeof *f.d);
    rows_from(&f, ROWS / 2);
    for (size_t t = 0; t < ROWS / 2; t++) {
        double error[HIDDEN];
        errors_of_row(&f, ROWS / 2 + t, error);
        for (size_t i = 0; i < HIDDEN; i++) {
            ck_near(f.d[t * HIDDEN + i], one[(ROWS / 2 + t) * HIDDEN + i], error[i]);
        }
    }
    calm_model_close(f.model);
}
END_OF_TEST

TEST(refusals)
{
    static fixture f;
    open_fixture(&f, "llama");
    ck_ok(calm_predict(ctx, &f.set, f.targets, ROWS));
    f.rows[3].sum = NAN;
    ck_fails(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 0, 0, f.d), CALM_ENUMERIC,
             "the gradient of the head's input is not finite (token 3, channel 0)");
    f.set.n = 2;
    ck_fails(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 0, 0, f.d), CALM_EARG, "are of one model");
    calm_model_close(f.model);
}
END_OF_TEST

TEST(memory)
{
    static fixture f;
    open_fixture(&f, "llama");
    ck_ok(calm_predict(ctx, &f.set, f.targets, ROWS));
    ck_memory_of_workers(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 0, 0, f.d), 0,
                         calm_predict_sample_back_scratch_bytes(calm_model_config(f.model), ROWS, 1), (size_t)4,
                         (size_t)0);
    calm_model_close(f.model);
}
END_OF_TEST

/* All memory is the workers', each of which takes at least a chunk. */
TEST(no_memory)
{
    static fixture f;
    static float expected[ROWS * HIDDEN];
    open_fixture(&f, "llama");
    ck_ok(calm_predict(ctx, &f.set, f.targets, ROWS));
    ck_ok(calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 0, 0, expected));
    ck_limits(4096, 2, calm_predict_sample_back(ctx, &f.set, f.targets, ROWS, 0, 0, f.d));
    ck_assert_mem_eq(f.d, expected, sizeof expected);
    calm_model_close(f.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("predict_sample", (const TTest *[]){half_the_square_is_the_divergence, draws_are_of_rows, refusals,
                                                         memory, no_memory, NULL});
}
