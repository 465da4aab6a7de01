/* The backward pass of a block of every family: against differences of the forward pass along directions; the same bits
 * for any number of threads; windows that add up; missing memory and values that are not finite.
 *
 * test_adjoint_block.c compares in double to 1e-7, and tests/golden/test_gradient_fixtures.c with reference fixtures
 * to 1e-4.  This test is in float32 and has what those lack: biases everywhere, shared experts, dropped
 * padding, products of several tiles.  Input scales and quantized inputs are in test_block.c. */
#include "ptq/layers/block_back.h"

#include "ptq/arch/kind.h"
#include "ptq/layers/norm_back.h"
#include "ptq/model/forward.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "tests/support/block_params.h"
#include "tests/support/harness.h"
#include "tests/support/normals.h"
#include "tests/support/tiny_model.h"

enum { TOKENS = 19, HIDDEN = 32 };

/* Positions with gaps, where padding was dropped. */
static const uint32_t positions[TOKENS] = {0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22};

typedef struct fixture {
    calm_model *model;
    block_params params;
    calm_rope rope;
    calm_span span;
    float *x, *dz, *z; /* [T, D] */
    size_t n;          /* T D    */
    double noise;      /* of loss() */
} fixture;

static void fill(float *x, size_t n, double spread, uint64_t stream)
{
    const double *normals = test_normals(21, stream, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(spread * normals[i]);
}

/* Opens block `index`. */
static void open_block(const tiny_model *spec, size_t index, size_t tokens, const uint32_t *at, fixture *f)
{
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &f->model));
    block_params_load(f->model, index, &f->params);
    uint32_t *ids;    /* for families whose blocks read them */
    ck_ok(CALM_NEW(ctx, ctx->out, ids, tokens));
    for (size_t t = 0; t < tokens; t++)
        ids[t] = (uint32_t)((7 * t + 3) % spec->vocab);
    f->span = (calm_span){.window = 3, .n_tokens = tokens, .positions = at, .ids = ids};
    ck_ok(calm_rope_init(ctx, calm_model_config(f->model), at ? at[tokens - 1] + 1 : tokens, &f->rope));
    f->n = tokens * spec->hidden;
    ck_ok(CALM_NEW(ctx, ctx->out, f->x, f->n));
    ck_ok(CALM_NEW(ctx, ctx->out, f->dz, f->n));
    ck_ok(CALM_NEW(ctx, ctx->out, f->z, f->n));
    fill(f->x, f->n, 1, 1);
    fill(f->dz, f->n, 1, 2);
}

/* Tells whether block 0 repeats block 1, because all blocks of the family have the same mixer. */
static bool is_repeated(const fixture *f, size_t index)
{
    const calm_config *config = calm_model_config(f->model);
    return index == 0 && calm_kind_at(config, 0, CALM_SUBLAYER_ATTENTION) ==
                             calm_kind_at(config, 1, CALM_SUBLAYER_ATTENTION);
}

static void open_with(const tiny_model *spec, size_t tokens, const uint32_t *at, fixture *f)
{
    open_block(spec, 1, tokens, at, f);
}

static tiny_model small(const char *family)
{
    tiny_model spec = tiny_of(family);
    spec.window = 4;
    spec.bias = true;
    spec.dtype = CALM_F32;
    return spec;
}

static void open_fixture(const char *family, fixture *f)
{
    const tiny_model spec = small(family);
    open_with(&spec, TOKENS, positions, f);
}

/* Runs both passes; gradients are added to. */
static calm_status both(fixture *f, float *dx)
{
    calm_block_tape *tape;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_block_forward_tape(ctx, &f->params.block, &f->rope, f->x, &f->span, f->z, &tape));
    return calm_block_back(ctx, &f->params.block, &f->rope, tape, f->dz, &f->params.grads, dx);
}

/* ---- differences ---- */

static double loss(fixture *f)
{
    calm_block_tape *tape;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(calm_block_forward_tape(ctx, &f->params.block, &f->rope, f->x, &f->span, f->z, &tape));
    return calm_vec_dot(f->n, f->z, f->dz);
}

/* Returns the standard deviation of the loss's rounding errors, after Moré and Wild 2011, "Estimating computational
 * noise": where the input moves by a few units in its last place, fourth differences of the loss cancel its smooth part
 * and have 8! / 4!^2 = 70 times the variance of one error. */
static double noise_of(fixture *f)
{
    enum { POINTS = 16, ORDER = 4 };
    double table[POINTS], sum = 0;
    float *kept, *u;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, kept, f->n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, u, f->n));
    memcpy(kept, f->x, f->n * sizeof *kept);
    fill(u, f->n, 1, 10);
    for (size_t i = 0; i < POINTS; i++) {
        calm_vec_axpy(f->n, (float)i * 0x1p-20f, u, f->x);
        table[i] = loss(f);
        memcpy(f->x, kept, f->n * sizeof *kept);
    }
    for (size_t k = 0; k < ORDER; k++)
        for (size_t i = 0; i + 1 < POINTS - k; i++)
            table[i] = table[i + 1] - table[i];
    for (size_t i = 0; i < POINTS - ORDER; i++)
        sum += table[i] * table[i] / 70 / (POINTS - ORDER);
    return sqrt(sum);
}

/* Returns the loss's slope along direction u of `value`, by a four-point formula that is exact for cubics. */
static double slope(fixture *f, float *value, const float *u, size_t n, double step)
{
    static const double at[] = {-2, -1, 1, 2}, weight[] = {1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12};
    double sum = 0;
    float *kept;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, kept, n));
    memcpy(kept, value, n * sizeof *kept);
    for (int i = 0; i < 4; i++) {
        calm_vec_axpy(n, (float)(at[i] * step), u, value);
        sum += weight[i] * loss(f) / step;
        memcpy(value, kept, n * sizeof *kept);
    }
    return sum;
}

/* Along the gradient and along a random direction.  Bounds of the difference to the gradient:
 *   rounding    of four losses: six standard deviations of the slope, sqrt(2 (8^2 + 1)) / 12 < 1 of noise / step
 *   gradient    each value passes four products of a block, sums of up to 48 or T terms: (4 48 + T) 2^-24 of it
 *   curvature   the formula's error grows as step^4, so that of twice the step differs by 15 times that of one
 * All together must be below 1 % of the gradient's length (or of 1, if that is larger), or the test shows nothing. */
static void check_slopes(fixture *f, const char *name, float *value, const float *gradient, size_t n)
{
    float *u;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, u, n));
    const double length = sqrt(calm_vec_dot(n, gradient, gradient)), largest = fmax(1, length);
    const double step = 0.05 / largest;    /* changes the loss by 0.05, far more than rounding */
    ck_assert_msg(length > 1e-2 || strstr(name, ".experts."), "%s: the gradient is nearly nothing", name);
    for (int random = 0; random < 2; random++) {
        if (random)
            fill(u, n, 1 / sqrt((double)n), 9);
        else
            for (size_t i = 0; i < n; i++)
                u[i] = length > 0 ? (float)((double)gradient[i] / length) : 0;
        const double expected = calm_vec_dot(n, gradient, u), found = slope(f, value, u, n, step);
        double bound = 6 * f->noise / step + (4 * 48 + (double)f->span.n_tokens) * 0x1p-24 * largest;
        if (fabs(found - expected) > bound)
            bound += fabs(slope(f, value, u, n, 2 * step) - found) / 15;
        ck_assert_msg(bound < 0.01 * largest, "%s: a slope is good to %g of %g only", name, bound, largest);
        ck_assert_msg(fabs(found - expected) <= bound, "%s: slope %g, gradient %g of length %g, bound %g", name, found,
                      expected, length, bound);
    }
}

/* Without rotary embeddings the bias of k has no gradient, because it shifts all scores of a query alike. */
static bool moves_nothing(const fixture *f, const char *name)
{
    return strstr(name, "key.bias") != NULL && calm_model_config(f->model)->rope[CALM_ROPE_GLOBAL].rotary == 0;
}

TEST(slopes)
{
    calm_linalg_setup();
    for (size_t i = 0; tiny_families[i]; i++) {
        fixture f;
        float *dx;
        if (!tiny_has_gradients(tiny_families[i]))
            continue;
        open_fixture(tiny_families[i], &f);
        /* A step as large as float32 needs would change a router's choices; test_adjoint_block.c tests mixtures in
         * double, with smaller steps.  Qwen's stay here: none of their tokens is near another choice. */
        if (calm_config_is_mixture(calm_model_config(f.model)) && strncmp(tiny_families[i], "qwen", 4) != 0) {
            calm_model_close(f.model);
            continue;
        }
        ck_ok(CALM_NEW(ctx, ctx->out, dx, f.n));
        ck_ok(both(&f, dx));
        f.noise = noise_of(&f);
        check_slopes(&f, test_format("%s: x", tiny_families[i]), f.x, dx, f.n);
        for (size_t p = 0; p < f.params.n; p++) {
            const block_param *param = &f.params.all[p];
            if (!moves_nothing(&f, param->name))
                check_slopes(&f, test_format("%s: %s", tiny_families[i], param->name), param->value, param->grad,
                             param->n);
        }
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* So many tokens that the softmax of 4 heads is more than a tape keeps, and is computed again. */
TEST(long_windows)
{
    enum { LONG = 1460 };
    const tiny_model spec = tiny_of("qwen3");
    fixture f;
    float *dx;
    open_with(&spec, LONG, NULL, &f);
    ck_ok(CALM_NEW(ctx, ctx->out, dx, f.n));
    ck_ok(both(&f, dx));
    f.noise = noise_of(&f);
    check_slopes(&f, "x", f.x, dx, f.n);
    for (size_t p = 0; p < f.params.n; p++)
        if (strstr(f.params.all[p].name, "q_proj") || strstr(f.params.all[p].name, "k_proj"))
            check_slopes(&f, f.params.all[p].name, f.params.all[p].value, f.params.all[p].grad, f.params.all[p].n);
    calm_model_close(f.model);
}
END_OF_TEST

/* Every smooth activation function, in an MLP with a gate and in one without.  Relu has no slope at its corner, so
 * only its kernel is tested. */
TEST(activation_functions)
{
    static const char *const families[] = {"llama", "bert"};
    for (size_t i = 0; i < 2; i++)
        for (calm_activation activation = CALM_ACTIVATION_SILU; activation < CALM_ACTIVATION_RELU; activation++) {
            fixture f;
            float *dx;
            open_fixture(families[i], &f);
            calm_config config = *f.params.block.config;
            config.activation = activation;
            f.params.block.config = &config;
            ck_ok(CALM_NEW(ctx, ctx->out, dx, f.n));
            ck_ok(both(&f, dx));
            f.noise = noise_of(&f);
            check_slopes(&f, test_format("%s: activation %d", families[i], (int)activation), f.x, dx, f.n);
            calm_model_close(f.model);
        }
}
END_OF_TEST

/* Hadamard transforms in a rotated model: of down's input (R4), and of every linear's. */
TEST(transforms_of_inputs)
{
    static const char *const families[] = {"llama", "llama", "gemma3", "qwen3", "phi3"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        fixture f;
        float *dx, *z;
        open_fixture(families[i], &f);
        ck_ok(CALM_NEW(ctx, ctx->out, dx, f.n));
        ck_ok(CALM_NEW(ctx, ctx->out, z, f.n));
        ck_ok(both(&f, dx));
        memcpy(z, f.z, f.n * sizeof *z);
        ck_ok(calm_model_use_hadamard(ctx, f.model, i > 0));
        for (size_t p = 0; p < f.params.n; p++)
            memset(f.params.all[p].grad, 0, f.params.all[p].n * sizeof(float));
        ck_ok(both(&f, dx));
        ck_assert_mem_ne(z, f.z, f.n * sizeof *z);
        f.noise = noise_of(&f);
        check_slopes(&f, test_format("%s with transforms: x", families[i]), f.x, dx, f.n);
        for (size_t p = 0; p < f.params.n; p++)
            check_slopes(&f, f.params.all[p].name, f.params.all[p].value, f.params.all[p].grad, f.params.all[p].n);
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* ---- the same bytes ---- */

/* Larger than one tile, one block of query rows and one task's rows. */
static tiny_model large(const char *family)
{
    tiny_model spec = tiny_of(family);
    spec.hidden = 288;
    spec.inner = 520;
    spec.head_dim = 72;
    spec.window = 150;
    spec.dtype = CALM_F32;
    return spec;
}

/* The same as the forward pass without a tape: to the bit if a product is one tile, else up to rounding.  A sum of n
 * terms of random signs has magnitudes that add up to some sqrt(n) times it, and n rounding errors of random signs:
 * together about n 2^-24 of the sum.  A value passes q or v, the keys, o, gate and down, one after the other. */
TEST(the_forward_pass)
{
    for (size_t i = 0; tiny_families[i]; i++)
        for (int k = 0; k < 4 && tiny_has_gradients(tiny_families[i]); k++) {
            const bool several = k & 1;
            const size_t index = (size_t)k / 2;    /* mixers may differ */
            const tiny_model spec = several ? large(tiny_families[i]) : small(tiny_families[i]);
            fixture f;
            calm_block_tape *tape;
            open_block(&spec, index, several ? 300 : TOKENS, several ? NULL : positions, &f);
            if (is_repeated(&f, index)) {
                calm_model_close(f.model);
                continue;
            }
            size_t begin[2] = {0, f.span.n_tokens};
            const calm_windows windows = {.begin = begin,
                                          .n = 1,
                                          .longest = f.span.n_tokens,
                                          .ids = (uint32_t *)(uintptr_t)f.span.ids,
                                          .positions = (uint32_t *)(uintptr_t)f.span.positions};
            calm_batch batch = {.windows = &windows, .n = 1, .rows = f.span.n_tokens, .width = f.n / f.span.n_tokens};
            float *before;
            ck_ok(CALM_NEW(ctx, ctx->out, before, f.n));
            memcpy(before, f.x, f.n * sizeof *before);
            ck_ok(calm_block_forward_tape(ctx, &f.params.block, &f.rope, f.x, &f.span, f.z, &tape));
            ck_assert(memcmp(before, f.x, f.n * sizeof *before) == 0);
            batch.hidden = (calm_row_store){f.span.n_tokens, batch.width, f.x, -1};
            ck_ok(calm_batch_block(ctx, &f.params.block, &f.rope, &batch, NULL));
            double largest = 0;
            for (size_t j = 0; j < f.n; j++)
                largest = fmax(largest, fabs((double)f.z[j]));
            const size_t n_terms = 3 * spec.hidden + f.span.n_tokens + spec.inner;
            for (size_t j = 0; several && j < f.n; j++)
                ck_near(f.z[j], f.x[j], (double)n_terms * 0x1p-24 * largest);
            ck_assert_msg(several || memcmp(f.z, f.x, f.n * sizeof *f.z) == 0, "%s", tiny_families[i]);
            calm_model_close(f.model);
        }
}
END_OF_TEST

/* No gradient depends on the number of threads or on which other gradients are wanted. */
TEST(numbers_of_threads)
{
    static const char *const families[] = {"qwen3", "gemma2", "phi3", "olmo2", "bert", "qwen2_moe", "qwen3_5",
                                           "granite_hybrid", "deepseek_v3"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const tiny_model spec = large(families[i]);
        fixture f;
        float *dx, *again;
        size_t n;
        open_block(&spec, i < 6, 300, NULL, &f);    /* the last families: their other mixer */
        ck_ok(CALM_NEW(ctx, ctx->out, dx, f.n));
        ck_ok(CALM_NEW(ctx, ctx->out, again, f.n));
        ck_ok(both(&f, dx));
        const float *expected = block_params_gradients(&f.params, &n);
        for (int threads = 2; threads <= 4; threads += 2) {
            ctx->n_threads = threads;
            block_params_clear(&f.params);
            /* In place. */
            float *dz = f.dz;
            memcpy(again, dz, f.n * sizeof *again);
            f.dz = again;
            ck_ok(both(&f, again));
            f.dz = dz;
            ck_assert_msg(memcmp(expected, block_params_gradients(&f.params, &n), n * sizeof *expected) == 0,
                          "%s: %d threads", families[i], threads);
            ck_assert(memcmp(dx, again, f.n * sizeof *dx) == 0);
        }
        calm_block_tape *tape;
        const calm_block_grads none = {.router = NULL};
        ck_ok(calm_block_forward_tape(ctx, &f.params.block, &f.rope, f.x, &f.span, f.z, &tape));
        memset(again, 0, f.n * sizeof *again);
        ck_ok(calm_block_back(ctx, &f.params.block, &f.rope, tape, f.dz, i % 2 ? &none : NULL, again));
        ck_assert(memcmp(dx, again, f.n * sizeof *dx) == 0);
        /* Without dx the parameters' gradients are the same. */
        block_params_clear(&f.params);
        ck_ok(calm_block_back(ctx, &f.params.block, &f.rope, tape, f.dz, &f.params.grads, NULL));
        ck_assert(memcmp(expected, block_params_gradients(&f.params, &n), n * sizeof *expected) == 0);
        ctx->n_threads = 1;
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* Gradients of two windows add up, within the rounding of a sum that starts elsewhere. */
TEST(windows_add_up)
{
    fixture f;
    size_t n;
    open_fixture("qwen2_moe", &f);
    ck_ok(both(&f, NULL));
    const float *one = block_params_gradients(&f.params, &n);
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)one[i]));
    ck_ok(both(&f, NULL));
    const float *two = block_params_gradients(&f.params, &n);
    for (size_t i = 0; i < n; i++)
        ck_near(two[i], 2 * (double)one[i], 2 * TOKENS * 0x1p-24 * largest);
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- norms ---- */

/* Rows in groups with gaps, over several tasks; the sum over rows is the sum of the rows' shares. */
TEST(norm_rows)
{
    enum { WIDTH = 6, PARTS = 3, STRIDE = 20, N = 70 };
    float x[N * STRIDE], dy[N * STRIDE], dx[N * STRIDE], w[WIDTH], dweight[WIDTH] = {0}, dbias[WIDTH] = {0};
    const calm_norm norm = {CALM_NORM_LAYER, 1e-6f, WIDTH, w, w}, none = {.width = WIDTH};
    fill(x, N * STRIDE, 1, 31);
    fill(dy, N * STRIDE, 1, 32);
    fill(w, WIDTH, 1, 33);
    memset(dx, 0, sizeof dx);
    ck_ok(calm_norm_back(ctx, &norm, (calm_norm_rows_of){N, PARTS, STRIDE}, x, dy, dweight, dbias, dx));
    double bias[WIDTH] = {0};
    for (size_t t = 0; t < N; t++) {
        double sum = 0;
        for (size_t i = 0; i < STRIDE; i++) {
            if (i < PARTS * WIDTH)
                bias[i % WIDTH] += (double)dy[t * STRIDE + i];
            else
                ck_assert(dx[t * STRIDE + i] == 0);
            sum += i < WIDTH ? (double)dx[t * STRIDE + i] : 0;
        }
        /* Adding a constant to a row changes nothing: six values below 100, each rounded. */
        ck_near(sum, 0, 6 * 0x1p-24 * 100);
    }
    for (size_t i = 0; i < WIDTH; i++)
        ck_near(dbias[i], bias[i], N * PARTS * 0x1p-24 * N);
    ck_ok(calm_norm_back(ctx, &none, (calm_norm_rows_of){N, 1, WIDTH}, x, dy, dweight, dbias, dx));
    ck_assert(memcmp(dx, dy, N * WIDTH * sizeof *dx) == 0);
    ck_memory(calm_norm_back(ctx, &norm, (calm_norm_rows_of){N, PARTS, STRIDE}, x, dy, dweight, dbias, dx), 0,
              calm_norm_back_scratch_bytes(WIDTH, N));
}
END_OF_TEST

/* ---- failures ---- */

TEST(not_finite)
{
    fixture f;
    open_fixture("qwen3", &f);
    float *down = NULL;
    for (size_t i = 0; i < f.params.n; i++)
        if (strcmp(f.params.all[i].name, "model.layers.1.mlp.down_proj.weight") == 0)
            down = f.params.all[i].value;
    ck_assert(down != NULL);
    const float kept = down[3 * 48 + 7];
    down[3 * 48 + 7] = NAN;
    ck_fails(both(&f, NULL), CALM_ENUMERIC, "block 1: the output is not finite (token 0, channel 3)");
    down[3 * 48 + 7] = kept;
    f.dz[5 * HIDDEN + 2] = INFINITY;
    ck_fails(both(&f, NULL), CALM_ENUMERIC, "block 1: the gradient of the output is not finite (token 5, channel 2)");
    f.dz[5 * HIDDEN + 2] = 3e38f;
    ck_fails(both(&f, NULL), CALM_ENUMERIC, "block 1: the gradient of model.layers.1.mlp.");
    fill(f.dz, f.n, 1, 2);
    block_params_clear(&f.params);
    f.params.grads.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN][4] = NAN;
    ck_fails(both(&f, NULL), CALM_ENUMERIC,
             "block 1: the gradient of input_layernorm.weight is not finite (element 4)");
    block_params_clear(&f.params);
    f.params.grads.plain[CALM_PLAIN_Q_NORM][1] = NAN;
    ck_fails(both(&f, NULL), CALM_ENUMERIC, "the gradient of self_attn.q_norm.weight is not finite (element 1)");
    calm_model_close(f.model);
    open_fixture("qwen2_moe", &f);
    f.params.grads.router[9] = NAN;
    ck_fails(both(&f, NULL), CALM_ENUMERIC, "the gradient of mlp.gate.weight is not finite (element 9)");
    block_params_clear(&f.params);
    f.params.grads.shared_gate[2] = NAN;
    ck_fails(both(&f, NULL), CALM_ENUMERIC, "the gradient of mlp.shared_expert_gate.weight is not finite (element 2)");
    calm_model_close(f.model);
}
END_OF_TEST

/* Allocations of the context's arena fail, then those of workers, whose account is full at rising limits. */
TEST(no_memory)
{
    static const char *const families[] = {"gemma2", "phi3", "bert", "qwen2_moe"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        fixture f;
        size_t n_failures = 0;
        calm_status status;
        open_fixture(families[i], &f);
        do {
            ctx->scratch->fail_in = (long)n_failures + 1;
            status = both(&f, NULL);
            ck_assert(status == CALM_OK || status == CALM_ENOMEM);
            calm_ctx_clear_failure(ctx);
        } while (status != CALM_OK && ++n_failures);
        ctx->scratch->fail_in = 0;
        ck_assert_uint_gt(n_failures, 20);
        calm_model_close(f.model);
    }
}
END_OF_TEST

TEST(no_memory_of_workers)
{
    static calm_memory memory;
    const tiny_model spec = large("qwen2_moe");
    fixture f;
    size_t n_failures = 0;
    calm_status status;
    open_with(&spec, 140, NULL, &f);
    calm_arena_clear(ctx->scratch);
    ctx->memory = &memory;
    ctx->n_threads = 2;
    do {
        calm_memory_set_limit(&memory, calm_memory_used(&memory) + ((size_t)1 << 15) * ++n_failures);
        status = both(&f, NULL);
        ck_assert(status == CALM_OK || status == CALM_ENOMEM);
        calm_ctx_clear_failure(ctx);
        calm_arena_clear(ctx->scratch);
    } while (status != CALM_OK);
    ck_assert_uint_gt(n_failures, 3);
    ctx->memory = NULL;
    ctx->n_threads = 1;
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- memory ---- */

static void check_memory(const char *family, size_t index, bool transforms)
{
    const tiny_model spec = large(family);
    fixture f;
    open_block(&spec, index, 200, NULL, &f);
    if (is_repeated(&f, index)) {
        calm_model_close(f.model);
        return;
    }
    if (transforms)
        ck_ok(calm_model_use_hadamard(ctx, f.model, true));
    const calm_config *config = f.params.block.config;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        f.params.block.weight[role].act_bits = 8;
    for (int threads = 1; threads <= 2; threads++) {
        const size_t said = calm_block_back_scratch_bytes(config, index, f.span.n_tokens, 0, (size_t)threads);
        ctx->n_threads = threads;
        test_memory_begin();
        ck_ok(both(&f, NULL));
        const test_memory held = test_memory_end();
        /* The estimate has experts with eight times an even share of tokens, and no chunks of arenas. */
        const double least = config->moe.sparse[index] ? 0.3 : threads == 1 ? 0.95 : 0.8;
        ck_assert_msg(held.most <= said + 8 * CALM_ARENA_CHUNK, "%s: held %zu, said %zu", family, held.most, said);
        ck_assert_msg((double)held.most >= least * (double)said, "%s: held %zu, said %zu", family, held.most, said);
    }
    ctx->n_threads = 1;
    calm_model_close(f.model);
}

TEST(memory)
{
    for (size_t k = 0; tiny_families[k / 2]; k++)
        if (tiny_has_gradients(tiny_families[k / 2]))
            check_memory(tiny_families[k / 2], k % 2, false);
    check_memory("gemma4_moe", 1, false);
    check_memory("gemma3", 1, true);
}
END_OF_TEST

int main(void)
{
    return run_tests("block_back",
                     (const TTest *[]){slopes, long_windows, activation_functions, transforms_of_inputs,
                                       the_forward_pass, numbers_of_threads, windows_add_up, norm_rows, not_finite,
                                       no_memory, no_memory_of_workers, memory, NULL});
}
