/* Norms of the gradient at the outputs of a block's jobs, row by row, from the gradients of weights and the inputs. */
#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/layers/block_back.h"
#include "ptq/tensor/vector.h"
#include "tests/support/block_params.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { FEW = 6, HIDDEN = 32 };

typedef struct fixture {
    calm_model *model;
    block_params params;
    calm_rope rope;
    calm_span span;
    float x[FEW * HIDDEN], dz[FEW * HIDDEN], z[FEW * HIDDEN];
} fixture;

static void open_fixture(const char *family, fixture *f)
{
    const tiny_model spec = tiny_of(family);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    block_params_load(f->model, 1, &f->params);
    static const uint32_t ids[FEW] = {3, 1, 4, 1, 5, 9};
    f->span = (calm_span){.n_tokens = FEW, .ids = ids};
    ck_ok(calm_rope_init(ctx, calm_model_config(f->model), FEW, &f->rope));
    for (size_t i = 0; i < FEW * HIDDEN; i++) {
        f->x[i] = (float)calm_rng_normal(21, 1, i);
        f->dz[i] = (float)calm_rng_normal(21, 2, i);
    }
}

/* Runs both passes. */
static calm_status both(fixture *f)
{
    calm_block_tape *tape;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_block_forward_tape(ctx, &f->params.block, &f->rope, f->x, &f->span, f->z, &tape));
    return calm_block_back(ctx, &f->params.block, &f->rope, tape, f->dz, &f->params.grads, NULL);
}

/* Inputs of the block's jobs, [FEW, width] each. */
typedef struct inputs {
    float *x[CALM_N_HOOKS];
    size_t width[CALM_N_HOOKS];
} inputs;

static calm_status keep_input(void *user, calm_ctx *context, const calm_observation *seen)
{
    inputs *out = user;
    out->width[seen->hook] = seen->width;
    CALM_TRY(CALM_NEW(context, context->out, out->x[seen->hook], seen->n_rows * seen->width));
    memcpy(out->x[seen->hook], seen->x, seen->n_rows * seen->width * sizeof *seen->x);
    return CALM_OK;
}

/* Computes Y [FEW, FEW] = (X X^T)^-1 by elimination; rows are fewer than columns and independent. */
static void invert_rows(const float *x, size_t width, double y[FEW][FEW])
{
    double a[FEW][FEW];
    for (size_t i = 0; i < FEW; i++)
        for (size_t j = 0; j < FEW; j++) {
            a[i][j] = calm_vec_dot(width, x + i * width, x + j * width);
            y[i][j] = i == j;
        }
    for (size_t k = 0; k < FEW; k++)
        for (size_t i = 0; i < FEW; i++) {
            const double factor = i == k ? (a[k][k] - 1) / a[k][k] : a[i][k] / a[k][k];
            for (size_t j = 0; j < FEW; j++) {
                const double of_a = a[k][j], of_y = y[k][j];
                a[i][j] -= factor * of_a;
                y[i][j] -= factor * of_y;
            }
        }
}

/* Adds the squares of the rows of dY.  A linear's gradient is dW = dY^T X, so dY = (X X^T)^-1 X dW^T.  Returns the
 * error of dY for an error of dW of `unit` relative. */
static double add_squares(const inputs *in, calm_hook hook, const float *dw, size_t out, double unit, double *squares)
{
    const size_t width = in->width[hook];
    double inverse[FEW][FEW], xdw[FEW], most = 0;
    invert_rows(in->x[hook], width, inverse);
    for (size_t o = 0; o < out; o++) {
        for (size_t t = 0; t < FEW; t++)
            xdw[t] = calm_vec_dot(width, in->x[hook] + t * width, dw + o * width);
        for (size_t t = 0; t < FEW; t++) {
            double dy = 0;
            for (size_t s = 0; s < FEW; s++)
                dy += inverse[t][s] * xdw[s];
            squares[t] += dy * dy;
        }
    }
    for (size_t t = 0; t < FEW; t++)
        most = fmax(most, inverse[t][t]);    /* the largest value of a positive matrix is on its diagonal */
    /* |dY - found| <= |X^+| |dW|, and |X^+|^2 is at most FEW times that. */
    return unit * sqrt((double)FEW * most * calm_vec_dot(out * width, dw, dw));
}

/* Norms at a job's outputs follow from the gradients of its weights and its inputs: both are sums of some hundred
 * float32 products, good to 1e-5. */
TEST(lengths_of_gradients_at_jobs)
{
    static const char *const families[] = {"qwen3", "phi3", "gemma2", "olmo2", "qwen2"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        float lengths[CALM_N_JOBS][FEW];
        inputs in = {.x = {NULL}};
        const calm_observer observer = {keep_input, &in};
        fixture f;
        open_fixture(families[i], &f);
        memcpy(f.z, f.x, sizeof f.z);
        ck_ok(calm_block_run(ctx, &f.params.block, &f.rope, f.z, &f.span, &observer));
        for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++)
            f.params.grads.lengths[kind] = lengths[kind];
        ck_ok(both(&f));
        for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
            double squares[FEW] = {0}, error = 0, largest = 0;
            for (calm_role role = 0; role < CALM_N_ROLES; role++)
                if (calm_role_job(role) == kind && f.params.block.weight[role].w)
                    error += add_squares(&in, calm_job_input(kind), f.params.grads.weight[role],
                                         f.params.block.weight[role].out, 1e-5, squares);
            for (size_t t = 0; t < FEW; t++)
                largest = fmax(largest, sqrt(squares[t]));
            ck_assert_msg(largest > 20 * error, "%s %s: largest %g, off by %g", families[i], calm_job_name(kind),
                          largest, error);
            for (size_t t = 0; t < FEW; t++)
                ck_near(lengths[kind][t], sqrt(squares[t]), error);
        }
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* In a mixture both jobs of the MLP have the norm at the sublayer's output, which is dz here. */
TEST(lengths_of_gradients_at_a_mixture)
{
    float lengths[2][FEW];
    fixture f;
    open_fixture("qwen2_moe", &f);
    f.params.grads.lengths[CALM_JOB_GATE_UP] = lengths[0];
    f.params.grads.lengths[CALM_JOB_DOWN] = lengths[1];
    ck_ok(both(&f));
    for (size_t t = 0; t < FEW; t++) {
        const float *dz = f.dz + t * HIDDEN;
        ck_near(lengths[0][t], sqrt(calm_vec_dot(HIDDEN, dz, dz)), 1e-6);
        ck_assert(lengths[0][t] == lengths[1][t]);
    }
    calm_model_close(f.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("block_lengths", (const TTest *[]){lengths_of_gradients_at_jobs, lengths_of_gradients_at_a_mixture,
                                                        NULL});
}
