/* Gradient of the KL divergence: identities, refusals, and the same bytes for any number of threads.
 * tests/golden/test_gradient_fixtures.c compares its values with a reference. */
#include "ptq/eval/predict_back.h"

#include "ptq/base/rng.h"
#include "ptq/eval/predict_impl.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { ROWS = 150, HIDDEN = 32 };

typedef struct fixture {
    calm_model *model;
    calm_predictors set;
    calm_row_store hidden[2];
    uint32_t targets[ROWS];
    float x[2][ROWS * HIDDEN];
} fixture;

static void open_fixture(fixture *f, const char *family)
{
    const tiny_model spec = tiny_of(family);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    const calm_subject subject = {.model = f->model};
    ck_ok(calm_predictors_open(ctx, &subject, &subject, 1, ROWS, &f->set));
    memset(f->targets, 0, sizeof f->targets);
    for (int m = 0; m < 2; m++) {
        for (size_t i = 0; i < ROWS * HIDDEN; i++)
            f->x[m][i] = (float)(calm_rng_normal(5, 0, i) + 0.3 * m * calm_rng_normal(5, 1, i));
        f->hidden[m] = (calm_row_store){ROWS, HIDDEN, f->x[m], -1};
        f->set.models[m].hidden = &f->hidden[m];
    }
}

/* Returns the mean divergence, and with `dhidden` its gradient. */
static double divergence(fixture *f, float *dhidden)
{
    double sum = 0;
    for (size_t m = 0; m < 2; m++)
        ck_ok(CALM_NEW(ctx, ctx->out, f->set.models[m].rows, ROWS));
    ck_ok(calm_predict(ctx, &f->set, f->targets, ROWS));
    for (size_t t = 0; t < ROWS; t++)
        if (f->targets[t] != CALM_NO_TARGET)
            sum += calm_prediction_kl(&f->set.models[0].rows[t], &f->set.models[1].rows[t]);
    if (dhidden)
        ck_ok(calm_predict_back(ctx, &f->set, f->targets, ROWS, 1.0f / ROWS, dhidden));
    return sum / ROWS;
}

/* A model equal to the reference has the gradient 0, to the bit. */
TEST(equal_models)
{
    static fixture f;
    float dhidden[ROWS * HIDDEN];
    calm_linalg_setup();
    open_fixture(&f, "gemma2");
    memcpy(f.x[1], f.x[0], sizeof f.x[0]);
    divergence(&f, dhidden);
    for (size_t i = 0; i < ROWS * HIDDEN; i++)
        ck_assert(dhidden[i] == 0);
    calm_model_close(f.model);
}
END_OF_TEST

/* Slopes along the gradient by differences that are exact up to second order.  The divergence is good to 1e-7 (61
 * logits of 1e-6), and a step changes it by 2e-3.  In the family with caps on its logits and in one without. */
TEST(differences)
{
    static const char *const families[] = {"qwen3", "gemma2"};
    static fixture f;
    for (int i = 0; i < 2; i++) {
        float g[ROWS * HIDDEN], kept[ROWS * HIDDEN];
        double value[2];
        open_fixture(&f, families[i]);
        divergence(&f, g);
        const double square = calm_vec_dot(ROWS * HIDDEN, g, g), step = 1e-3 / square;
        memcpy(kept, f.x[1], sizeof kept);
        for (int side = 0; side < 2; side++) {
            calm_vec_axpy(ROWS * HIDDEN, (float)(side ? -step : step), g, f.x[1]);
            value[side] = divergence(&f, NULL);
            memcpy(f.x[1], kept, sizeof kept);
        }
        ck_near((value[0] - value[1]) / 2e-3, 1, 1e-2);
        calm_model_close(f.model);
    }
}
END_OF_TEST

TEST(threads_and_rows_left_out)
{
    static fixture f;
    float one[ROWS * HIDDEN], other[ROWS * HIDDEN];
    open_fixture(&f, "llama");
    f.targets[7] = CALM_NO_TARGET;
    divergence(&f, one);
    for (size_t i = 0; i < HIDDEN; i++)
        ck_assert(one[7 * HIDDEN + i] == 0 && one[8 * HIDDEN + i] != 0);
    for (int threads = 2; threads <= 4; threads += 2) {
        ctx->n_threads = threads;
        divergence(&f, other);
        ck_assert(memcmp(one, other, sizeof one) == 0);
    }
    ctx->n_threads = 1;
    calm_model_close(f.model);
}
END_OF_TEST

TEST(refusals)
{
    static fixture f;
    float dhidden[ROWS * HIDDEN];
    open_fixture(&f, "llama");
    divergence(&f, NULL);
    f.set.models[1].rows[3].sum = NAN;
    ck_fails(calm_predict_back(ctx, &f.set, f.targets, ROWS, 1, dhidden), CALM_ENUMERIC,
             "the gradient of the head's input is not finite (token 3, channel 0)");
    f.set.n = 1;
    ck_fails(calm_predict_back(ctx, &f.set, f.targets, ROWS, 1, dhidden), CALM_EARG, "a reference and one model");
    f.set.n = 2;
    f.set.has_reference = false;
    ck_fails(calm_predict_back(ctx, &f.set, f.targets, ROWS, 1, dhidden), CALM_EARG, "a reference and one model");
    calm_model_close(f.model);
}
END_OF_TEST

TEST(memory)
{
    static fixture f;
    float dhidden[ROWS * HIDDEN];
    open_fixture(&f, "llama");
    divergence(&f, NULL);
    ck_memory_of_workers(calm_predict_back(ctx, &f.set, f.targets, ROWS, 1, dhidden), 0,
                         calm_predict_back_scratch_bytes(calm_model_config(f.model), ROWS, 1), (size_t)4, (size_t)0);
    ck_limits(4096, 2, calm_predict_back(ctx, &f.set, f.targets, ROWS, 1, dhidden));
    calm_model_close(f.model);
}
END_OF_TEST

/* Each of as many tasks as threads gets separate memory; what one returns is used by the next. */
TEST(rooms_are_taken_and_given_back)
{
    calm_predict_rooms rooms;
    calm_predict_room *first, *second, *none, *again;
    float *a[CALM_PREDICT_PARTS], *b[CALM_PREDICT_PARTS], *c[CALM_PREDICT_PARTS], *d[CALM_PREDICT_PARTS];
    ctx->n_threads = 2;
    ck_ok(calm_predict_rooms_open(ctx, 9, (const size_t[]){40, 1, 0}, &rooms));
    ck_assert_uint_eq(rooms.n, 2);
    ck_ok(calm_predict_room_take(ctx, &rooms, &first, a));
    ck_ok(calm_predict_room_take(ctx, &rooms, &second, b));
    ck_ok(calm_predict_room_take(ctx, &rooms, &none, c));
    ck_assert(first && second && first != second && !none);
    float *const parts[] = {a[0], b[0], c[0]};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 40; k++)
            parts[i][k] = (float)i;
    for (size_t k = 0; k < 40; k++)
        ck_assert(a[0][k] == 0 && b[0][k] == 1 && c[0][k] == 2);
    calm_predict_room_give(&none);
    calm_predict_room_give(&first);
    ck_assert_ptr_null(first);
    ck_ok(calm_predict_room_take(ctx, &rooms, &again, d));
    ck_assert_ptr_eq(d[0], a[0]);
    calm_predict_room_give(&again);
    calm_predict_room_give(&second);
    ck_ok(calm_predict_rooms_open(ctx, 1, (const size_t[]){40, 1, 0}, &rooms));
    ck_assert_uint_eq(rooms.n, 1);    /* one task has one memory, for any number of threads */
}
END_OF_TEST

int main(void)
{
    return run_tests("predict_back",
                     (const TTest *[]){equal_models, differences, threads_and_rows_left_out, refusals, memory,
                                       rooms_are_taken_and_given_back, NULL});
}
