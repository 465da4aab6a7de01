/* The backward pass of attention, MLPs, mixtures and whole blocks is the transpose of their derivative
 * (tests/support/adjoint.h), for every family. */
#include "ptq/arch/kind.h"
#include "ptq/base/text.h"
#include "ptq/layers/attention_back.h"
#include "ptq/layers/mlp_back.h"
#include "ptq/layers/moe_back.h"
#include "tests/support/adjoint.h"
#include "tests/support/block_params.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { TOKENS = 19 };

/* Positions have gaps, where padding was dropped. */
static const uint32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
static const uint32_t positions[TOKENS] = {0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22};

/* ---- a block, and its parts ---- */

typedef struct fixture {
    calm_model *model;
    calm_config config; /* of the block; a test may change it */
    block_params params;
    calm_rope rope;
    calm_span span;
    double *x, *v, *dx; /* [T, D] */
    size_t n;
    calm_route *routes; /* choices of the first pass, which must not change within a difference */
} fixture;

/* Returns a seed with which all experts of the family have tokens and no token is near another choice. */
static uint64_t seed_of(const char *family)
{
    static const struct {
        const char *family;
        uint64_t seed;
    } seeds[] = {{"ernie4_5_moe", 10}, {"qwen3_5_moe", 3}, {"lfm2_moe", 3}, {"deepseek_v3", 2},
                 {"glm4_moe_lite", 2}};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        if (strcmp(seeds[i].family, family) == 0)
            return seeds[i].seed;
    return tiny_default.seed;
}

/* Opens block `index` of a model. */
static void open_with(const char *family, size_t index, size_t tokens, const uint32_t *at, fixture *f)
{
    tiny_model spec = tiny_of(family);
    spec.window = 4;
    spec.bias = true;
    spec.dtype = CALM_F32;
    spec.seed = seed_of(family);
    /* Block 0 has another mixer; with a plain MLP no choice of experts is near. */
    if (index == 0 && calm_text_listed("qwen3_next llama4", ' ', family)) {
        spec.n_dense = 1;
        spec.extra = strcmp(family, "qwen3_next") == 0 ? "\"mlp_only_layers\": [0]" : NULL;
    }
    *f = (fixture){.span = {.window = 3, .n_tokens = tokens, .positions = at, .ids = tokens == TOKENS ? ids : NULL}};
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    block_params_load(f->model, index, &f->params);
    f->config = *f->params.block.config;
    f->params.block.config = &f->config;
    ck_ok(calm_rope_init(ctx, &f->config, at ? at[tokens - 1] + 1 : tokens, &f->rope));
    f->n = tokens * spec.hidden;
    f->x = adjoint_filled(f->n, 1, 1);
    f->v = adjoint_filled(f->n, 1, 2);
    f->dx = adjoint_filled(f->n, 0, 0);
}

static void open_fixture(const char *family, fixture *f)
{
    open_with(family, 1, TOKENS, positions, f);
}

/* Tells whether the parameter's gradient is one of these. */
static bool is_one_of(const block_param *param, double *const *grads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (grads[i] == param->grad)
            return true;
    return false;
}

static void check_params(fixture *f, const char *name, adjoint_value_fn *value, double *const *grads, size_t n)
{
    size_t n_checked = 0, n_wanted = 0;
    for (size_t i = 0; i < n; i++)
        n_wanted += grads[i] != NULL;
    for (size_t i = 0; i < f->params.n; i++) {
        const block_param *param = &f->params.all[i];
        if (!is_one_of(param, grads, n))
            continue;
        adjoint_check(test_format("%s: %s", name, param->name), value, f, param->value, param->grad, param->n);
        n_checked++;
    }
    ck_assert_uint_eq(n_checked, n_wanted);
}

static calm_kind_pass pass_of(const fixture *f)
{
    return (calm_kind_pass){&f->params.block, &f->rope, f->x, f->x, &f->span};
}

/* Runs the token mixer of a block: y [T, D] = its output, and its tape. */
static const calm_kind_back *mixer_forward(fixture *f, double **y, void **tape)
{
    const calm_kind_back *back = calm_block_kind(&f->params.block, CALM_SUBLAYER_ATTENTION)->back;
    const calm_kind_pass pass = pass_of(f);
    unsigned char *bytes;
    ck_ok(CALM_NEW(ctx, ctx->scratch, *y, f->n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, bytes, back->tape_bytes));
    *tape = bytes;
    ck_ok(back->forward(ctx, &pass, *y, *tape));
    return back;
}

static double attention_value(void *state)
{
    fixture *f = state;
    double *y;
    void *tape;
    CALM_SCOPED_SCRATCH(ctx);
    mixer_forward(f, &y, &tape);
    return adjoint_dot(f->n, y, f->v);
}

static void attention_back(fixture *f)
{
    double *y;
    void *tape;
    CALM_SCOPED_SCRATCH(ctx);
    const calm_kind_back *back = mixer_forward(f, &y, &tape);
    const calm_kind_pass pass = pass_of(f);
    ck_ok(back->back(ctx, &pass, tape, f->v, &f->params.grads, f->dx, NULL));
}

/* Keys shared by heads, a logit cap (gemma2), windows, norms of q and k over a head (qwen3) and over all heads
 * (olmo2), one product for q, k, v (phi3), latents (deepseek_v2, deepseek_v3), no causal mask (bert), biases by
 * distance (mpnet), windows on both sides (modernbert). */
static void check_attentions(const char *const *families)
{
    for (size_t i = 0; families[i]; i++) {
        fixture f;
        if (!tiny_has_gradients(families[i]))
            continue;
        open_fixture(families[i], &f);
        /* A block of one sublayer may have no attention. */
        if (!calm_block_kind(&f.params.block, CALM_SUBLAYER_ATTENTION)) {
            calm_model_close(f.model);
            continue;
        }
        attention_back(&f);
        const calm_block_grads *g = &f.params.grads;
        double *const grads[] = {g->weight[CALM_ROLE_Q], g->weight[CALM_ROLE_K], g->weight[CALM_ROLE_V],
                                 g->weight[CALM_ROLE_O], g->weight[CALM_ROLE_FUSED_QKV], g->bias[CALM_ROLE_Q],
                                 g->bias[CALM_ROLE_K], g->bias[CALM_ROLE_V], g->bias[CALM_ROLE_O],
                                 g->bias[CALM_ROLE_FUSED_QKV], g->plain[CALM_PLAIN_Q_NORM],
                                 g->plain[CALM_PLAIN_K_NORM], g->weight[CALM_ROLE_Q_FULL],
                                 g->weight[CALM_ROLE_Q_A], g->weight[CALM_ROLE_KV_A], g->weight[CALM_ROLE_Q_B],
                                 g->weight[CALM_ROLE_KV_B], g->bias[CALM_ROLE_Q_A], g->bias[CALM_ROLE_KV_A],
                                 g->plain[CALM_PLAIN_Q_A_NORM], g->plain[CALM_PLAIN_KV_A_NORM]};
        adjoint_check(test_format("attention of %s: x", families[i]), attention_value, &f, f.x, f.dx, f.n);
        check_params(&f, test_format("attention of %s", families[i]), attention_value, grads,
                     sizeof grads / sizeof *grads);
        calm_model_close(f.model);
    }
}

TEST(attentions)
{
    check_attentions(tiny_families);
    check_attentions(tiny_encoders);
}
END_OF_TEST

/* So many tokens that the softmax of 4 heads is more than a tape keeps, and is computed again; several blocks of
 * query rows. */
TEST(attention_of_a_long_window)
{
    enum { LONG = 1040 };
    fixture f;
    calm_attention_tape tape;
    double *y;
    open_with("llama", 1, LONG, NULL, &f);
    ck_ok(CALM_NEW(ctx, ctx->scratch, y, f.n));
    const calm_kind_pass pass = {&f.params.block, &f.rope, f.x, f.x, &f.span};
    ck_ok(calm_attention_forward_tape(ctx, &pass, y, &tape));
    ck_assert(tape.kept.numerators == NULL);
    attention_back(&f);
    adjoint_check("attention of a long window: x", attention_value, &f, f.x, f.dx, f.n);
    calm_model_close(f.model);
}
END_OF_TEST

static double mlp_value(void *state)
{
    fixture *f = state;
    calm_mlp_tape tape;
    double *y;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, y, f->n));
    ck_ok(calm_mlp_forward_tape(ctx, &f->config, f->params.block.weight, f->x, TOKENS, y, &tape));
    return adjoint_dot(f->n, y, f->v);
}

/* MLPs with a gate, with gate and up in one matrix, and without a gate; with a transform of down's input.  Relu,
 * whose corner differences would cross, is tested above. */
TEST(mlps)
{
    static const char *const families[] = {"llama", "phi3", "bert"};
    for (size_t i = 0; i < 3; i++)
        for (int hadamard = 0; hadamard < 2; hadamard++)
            for (calm_activation activation = CALM_ACTIVATION_SILU; activation < CALM_ACTIVATION_RELU; activation++) {
                fixture f;
                calm_mlp_tape tape;
                double *y;
                open_fixture(families[i], &f);
                f.config.activation = activation;
                f.config.hadamard[CALM_JOB_DOWN] = hadamard ? 16 : 0;
                ck_ok(CALM_NEW(ctx, ctx->scratch, y, f.n));
                const calm_block_grads *g = &f.params.grads;
                ck_ok(calm_mlp_forward_tape(ctx, &f.config, f.params.block.weight, f.x, TOKENS, y, &tape));
                ck_ok(calm_mlp_back(ctx, &f.config, f.params.block.weight, &tape, f.v, g->weight, g->bias, NULL, f.dx));
                double *const grads[] = {g->weight[CALM_ROLE_GATE], g->weight[CALM_ROLE_UP], g->weight[CALM_ROLE_DOWN],
                                         g->weight[CALM_ROLE_FUSED_GATE_UP], g->bias[CALM_ROLE_GATE],
                                         g->bias[CALM_ROLE_UP], g->bias[CALM_ROLE_DOWN],
                                         g->bias[CALM_ROLE_FUSED_GATE_UP]};
                const char *name = test_format("MLP of %s, activation %d", families[i], (int)activation);
                adjoint_check(test_format("%s: x", name), mlp_value, &f, f.x, f.dx, f.n);
                check_params(&f, name, mlp_value, grads, sizeof grads / sizeof *grads);
                calm_model_close(f.model);
            }
}
END_OF_TEST

/* Checks that a pass chose the experts of the first pass. */
static void same_choice(fixture *f, const calm_routing *routing, size_t n)
{
    if (!f->routes) {
        ck_ok(CALM_NEW(ctx, ctx->out, f->routes, n));
        memcpy(f->routes, routing->routes, n * sizeof *f->routes);
    }
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(routing->routes[i].expert, f->routes[i].expert);
}

static double moe_pass(fixture *f, bool back)
{
    calm_routing routing;
    double *y;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, y, f->n));
    ck_ok(calm_moe_forward_tape(ctx, &f->params.block, f->x, f->x, &f->span, y, &routing));
    same_choice(f, &routing, TOKENS * f->config.moe.top_k);
    if (back)
        ck_ok(calm_moe_back(ctx, &f->params.block, &routing, f->x, f->x, TOKENS, f->v, &f->params.grads, f->dx, NULL));
    return adjoint_dot(f->n, y, f->v);
}

static double moe_value(void *state)
{
    return moe_pass(state, false);
}

/* The mixture without the norm before it, so that the routed rows are the experts' inputs; with and without a shared
 * expert, which has a gate or none; weights divided by their sum or not, and weights of the input.  Gradients pass
 * through the weights of the chosen experts.  Two of five experts are chosen, so all have tokens. */
TEST(mixtures)
{
    static const char *const families[] = {"qwen3_moe", "qwen2_moe", "glm4_moe", "llama4"};
    for (size_t i = 0; i < 4; i++)
        for (int divided = 0; divided < 2; divided++) {
            fixture f;
            double *grads[64] = {NULL};
            size_t n = 0;
            open_fixture(families[i], &f);
            f.config.moe.norm_top_k = divided;
            f.params.block.norm[CALM_SUBLAYER_MLP][CALM_NORM_IN].w = NULL;
            const calm_block_grads *g = &f.params.grads;
            moe_pass(&f, true);
            grads[n++] = g->router;
            grads[n++] = g->shared_gate;
            for (calm_role role = 0; role < CALM_N_ROLES; role++) {
                grads[n++] = g->shared.weight[role];
                for (size_t e = 0; e < f.config.moe.n_experts; e++)
                    if (g->experts[e].weight[role])
                        grads[n++] = g->experts[e].weight[role];
            }
            ck_assert_uint_le(n, sizeof grads / sizeof *grads);
            const char *name = test_format("mixture of %s, %s", families[i], divided ? "divided" : "not divided");
            adjoint_check(test_format("%s: x", name), moe_value, &f, f.x, f.dx, f.n);
            check_params(&f, name, moe_value, grads, n);
            calm_model_close(f.model);
        }
}
END_OF_TEST

static double block_value(void *state)
{
    fixture *f = state;
    calm_block_tape *tape;
    double *z;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, z, f->n));
    ck_ok(calm_block_forward_tape(ctx, &f->params.block, &f->rope, f->x, &f->span, z, &tape));
    return adjoint_dot(f->n, z, f->v);
}

/* Every family, by every parameter and by the block's input: norms before, after and around sublayers, and
 * residuals.  (If a difference changed a choice of experts, the sides would differ by an expert's output.) */
static void check_block(const char *family, size_t index)
{
    fixture f;
    calm_block_tape *tape;
    double *z;
    open_with(family, index, TOKENS, positions, &f);
    ck_ok(CALM_NEW(ctx, ctx->scratch, z, f.n));
    ck_ok(calm_block_forward_tape(ctx, &f.params.block, &f.rope, f.x, &f.span, z, &tape));
    ck_ok(calm_block_back(ctx, &f.params.block, &f.rope, tape, f.v, &f.params.grads, f.dx));
    adjoint_check(test_format("%s: x", family), block_value, &f, f.x, f.dx, f.n);
    for (size_t p = 0; p < f.params.n; p++) {
        const block_param *param = &f.params.all[p];
        adjoint_check(test_format("%s: %s", family, param->name), block_value, &f, param->value, param->grad,
                      param->n);
    }
    calm_model_close(f.model);
}

static void check_blocks(const char *const *families)
{
    for (size_t i = 0; families[i]; i++)
        if (tiny_has_gradients(families[i]))
            check_block(families[i], 1);
}

/* Block 0 of families with several kinds of mixers; of Llama 4 the block with rotary embeddings. */
TEST(other_mixers)
{
    static const char *const families[] = {"qwen3_5", "qwen3_next", "lfm2", "llama4", "granite_hybrid", "nemotron_h",
                                           "gemma4"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_block(families[i], 0);
}
END_OF_TEST

/* Gemma 4 with experts: norms before and after them, of the router, and after the shared expert; in block 1 the
 * values are the keys. */
TEST(experts_next_to_an_mlp)
{
    check_block("gemma4_moe", 0);
    check_block("gemma4_moe", 1);
}
END_OF_TEST

TEST(blocks)
{
    check_blocks(tiny_families);
    check_blocks(tiny_encoders);
}
END_OF_TEST

int main(void)
{
    return run_tests("adjoint_block", (const TTest *[]){attentions, attention_of_a_long_window, mlps, mixtures, blocks,
                                                        other_mixers, experts_next_to_an_mlp, NULL});
}
