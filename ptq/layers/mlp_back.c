/* Backward pass of an MLP.
 *
 *   y = down(g),  g = f(a) b      db = dg f(a)      da = dg b f'(a) */
#include "ptq/layers/mlp_back.h"

#include <string.h>

#include "ptq/arch/layout.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/block_impl.h"
#include "ptq/layers/hadamard.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

typedef struct mlp_task {
    const calm_config *config;
    const calm_mlp_tape *tape;
    size_t inner;
    float *da, *db, *both; /* da holds dg at first; both [n, 2 M]: rows of the fused product, or NULL */
} mlp_task;

/* ---- forward ---- */

static calm_status combine_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const mlp_task *task = user;
    const size_t at = first * task->inner, count = n * task->inner;
    float *g = task->tape->g + at;
    /* A copy, since the derivative needs a. */
    memcpy(g, task->tape->a + at, count * sizeof *g);
    calm_mlp_combine(task->config, count, g, task->tape->b ? task->tape->b + at : NULL);
    return calm_hadamard_rows(ctx, task->config, CALM_JOB_DOWN, n, task->inner, g);
}

calm_status calm_mlp_forward_tape(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                                  const float *h, size_t n, float *out, calm_mlp_tape *tape)
{
    const size_t inner = weight[CALM_ROLE_DOWN].in;
    *tape = (calm_mlp_tape){.n = n, .h = h};
    CALM_TRY(calm_mlp_project(ctx, config, weight, h, n, calm_weight_apply_tiled, &tape->a, &tape->b));
    /* g is kept, since down's gradient and the forward product both read it. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->g, n * inner));
    CALM_TRY(calm_parallel_rows(ctx, n, combine_rows, &(mlp_task){.config = config, .tape = tape, .inner = inner}));
    return calm_weight_apply_tiled(ctx, &weight[CALM_ROLE_DOWN], tape->g, n, out);
}

/* ---- backward ---- */

void calm_activate_back(calm_activation activation, size_t n, const float *x, float *dy)
{
    static void (*const functions[])(size_t n, const float *x,
                                     float *dy) = {[CALM_ACTIVATION_SILU] = calm_vec_silu_back,
                                                   [CALM_ACTIVATION_GELU] = calm_vec_gelu_back,
                                                   [CALM_ACTIVATION_GELU_TANH] = calm_vec_gelu_tanh_back,
                                                   [CALM_ACTIVATION_GELU_QUICK] = calm_vec_gelu_quick_back,
                                                   [CALM_ACTIVATION_RELU] = calm_vec_relu_back,
                                                   [CALM_ACTIVATION_RELU2] = calm_vec_relu2_back};
    functions[activation](n, x, dy);
}

/* Computes from dg [n], stored in da, the gradients da and, with a gate, db (calm_mlp_combine). */
static void uncombine(const calm_config *config, size_t n, const float *a, const float *b, float *da, float *db)
{
    if (b && config->glu_limit > 0) {
        calm_vec_clamped_glu_back(n, config->glu_limit, config->glu_alpha, a, b, da, db);
        return;
    }
    /* da holds dg until db is computed. */
    if (b) {
        memcpy(db, a, n * sizeof *db);
        calm_activate(config->activation, n, db);
        calm_vec_mul(n, da, db);
        calm_vec_mul(n, b, da);
    }
    calm_activate_back(config->activation, n, a, da);
}

static calm_status combine_back(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const mlp_task *task = user;
    const size_t inner = task->inner, at = first * inner, count = n * inner;
    const bool up_first = task->both && task->config->arch->names->up_first;
    const float *a = task->tape->a + at;
    float *da = task->da + at, *db = task->db ? task->db + at : NULL;
    CALM_TRY(calm_hadamard_rows(ctx, task->config, CALM_JOB_DOWN, n, inner, da));
    uncombine(task->config, count, a, task->tape->b ? task->tape->b + at : NULL, da, db);
    for (size_t t = first; task->both && t < first + n; t++) {
        memcpy(task->both + t * 2 * inner, (up_first ? task->db : task->da) + t * inner, inner * sizeof *da);
        memcpy(task->both + t * 2 * inner + inner, (up_first ? task->da : task->db) + t * inner, inner * sizeof *db);
    }
    return CALM_OK;
}

calm_status calm_mlp_back(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                          const calm_mlp_tape *tape, const float *dy, float *const dweight[CALM_N_ROLES],
                          float *const dbias[CALM_N_ROLES], float *lengths, float *dh)
{
    const calm_weight *fused = &weight[CALM_ROLE_FUSED_GATE_UP], *gate = &weight[CALM_ROLE_GATE],
                      *up = &weight[CALM_ROLE_UP], *down = &weight[CALM_ROLE_DOWN];
    const size_t n = tape->n;
    mlp_task task = {.config = config, .tape = tape, .inner = down->in};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.da, n * down->in));
    if (tape->b)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.db, n * down->in));
    /* Rows [da | db] in the layout of the fused product: one product with its weight instead of two with its halves. */
    if (fused->w)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.both, n * 2 * down->in));
    CALM_TRY(
        calm_weight_back(ctx, down, tape->g, n, dy, dweight[CALM_ROLE_DOWN], dbias[CALM_ROLE_DOWN], false, task.da));
    CALM_TRY(calm_parallel_rows(ctx, n, combine_back, &task));
    /* The lengths are those of the gradient of gate's and up's outputs. */
    if (lengths)
        calm_vec_lengths(n, down->in, down->in, task.da, false, lengths);
    if (lengths && task.db)
        calm_vec_lengths(n, down->in, down->in, task.db, true, lengths);
    if (fused->w)
        return calm_weight_back(ctx, fused, tape->h, n, task.both, dweight[CALM_ROLE_FUSED_GATE_UP],
                                dbias[CALM_ROLE_FUSED_GATE_UP], false, dh);
    /* Without a gate the activation function reads the output of `up`. */
    if (!gate->w)
        return calm_weight_back(ctx, up, tape->h, n, task.da, dweight[CALM_ROLE_UP], dbias[CALM_ROLE_UP], false, dh);
    CALM_TRY(
        calm_weight_back(ctx, gate, tape->h, n, task.da, dweight[CALM_ROLE_GATE], dbias[CALM_ROLE_GATE], false, dh));
    return calm_weight_back(ctx, up, tape->h, n, task.db, dweight[CALM_ROLE_UP], dbias[CALM_ROLE_UP], true, dh);
}

/* ---- memory ---- */

/* Returns the columns of down, and whether gate and up are one matrix. */
static size_t inner_of(const calm_config *config, long expert, bool *fused)
{
    size_t out, inner;
    *fused = calm_expert_has_role(config, CALM_ROLE_FUSED_GATE_UP, expert);
    calm_role_shape(config, CALM_ROLE_DOWN, expert, &out, &inner);
    return inner;
}

/* Returns the bytes of a and b, or of a alone. */
static size_t projected_bytes(const calm_config *config, long expert, size_t n)
{
    bool fused;
    const size_t inner = inner_of(config, expert, &fused);
    return (fused || calm_expert_has_role(config, CALM_ROLE_GATE, expert) ? 2 : 1) * CALM_BYTES(float, n * inner);
}

size_t calm_mlp_tape_bytes(const calm_config *config, long expert, size_t n)
{
    bool fused;
    return projected_bytes(config, expert, n) + CALM_BYTES(float, n * inner_of(config, expert, &fused));
}

size_t calm_mlp_forward_tape_bytes(const calm_config *config, long expert, size_t n)
{
    bool fused;
    const size_t inner = inner_of(config, expert, &fused);
    const size_t both = fused ? CALM_BYTES(float, n * 2 * inner) : 0, g = CALM_BYTES(float, n * inner);
    /* The fused product and its prepared input are released before g is allocated. */
    const size_t first = both + calm_weight_apply_scratch_bytes(calm_expert_width(config, expert), n);
    const size_t last = calm_weight_apply_scratch_bytes(inner, n);
    return calm_size_max(first > g ? first - g : 0, last);
}

size_t calm_mlp_back_bytes(const calm_config *config, long expert, size_t n)
{
    bool fused;
    const size_t inner = inner_of(config, expert, &fused);
    const size_t both = fused ? CALM_BYTES(float, n * 2 * inner) : 0;
    /* da and db have the sizes of a and b; in addition at most one product's input is prepared at a time. */
    return projected_bytes(config, expert, n) + both
           + calm_weight_back_scratch_bytes(calm_size_max(inner, calm_expert_width(config, expert)), n);
}
