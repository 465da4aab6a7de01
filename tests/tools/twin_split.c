/* Makes a mixture from a dense MLP.  The inner width I is divided into S = E / 2 slices, and each slice becomes two
 * experts; every token goes to all E experts.  Slice s has
 *
 *   gate, up   rows s I/S .. (s + 1) I/S - 1        down   the same columns, times S
 *   router     w of one of the two, -w of the other, in turn
 *
 * so that the two weights of a slice add up to (e^l + e^-l) / (S (e^l + e^-l)) = 1/S for every token, l = w . h, while
 * each alone is between 0 and 1/S.  w is drawn by counter from (seed, block), of a size that gives l about the standard
 * deviation 1: h is of the size of its norm's weights. */
#include <math.h>

#include "ptq/base/rng.h"
#include "tests/tools/twin.h"

/* Computes the sum of squares of the norm's weights. */
static calm_status norm_square(calm_ctx *ctx, const twin *it, size_t block, double *out)
{
    char *name;
    twin_piece *piece;
    float *x;
    CALM_TRY(twin_norm(ctx, it, block, CALM_SUBLAYER_MLP, &name));
    CALM_TRY(twin_find(ctx, it, name, &piece));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, x, piece->n_rows));
    CALM_TRY(calm_tensor_to_f32(ctx, piece->from, x));
    *out = 0;
    for (size_t j = 0; j < piece->n_rows; j++)
        *out += (double)x[j] * (double)x[j];
    return CALM_OK;
}

static calm_status add_router(calm_ctx *ctx, twin *it, size_t block, size_t n_experts)
{
    const size_t width = it->config->hidden;
    double square;
    char *module;
    twin_piece piece = {.n_rows = n_experts, .n_columns = width};
    CALM_TRY(norm_square(ctx, it, block, &square));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, piece.values, n_experts * width));
    for (size_t j = 0; j < width; j++) {
        /* A uniform number in -sqrt 3 .. sqrt 3 has standard deviation 1. */
        const double u = sqrt(3) * (2 * calm_rng_uniform((uint64_t)it->args->seed, block, j) - 1);
        for (size_t e = 0; e < n_experts; e++)
            piece.values[e * width + j] = (float)((e + e / 2) % 2 ? -u / sqrt(square) : u / sqrt(square));
    }
    CALM_TRY(calm_model_block_name(ctx, it->model, block, &module));
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.mlp.gate.weight", module));
    piece.name = name;
    return twin_add(ctx, it, &piece);
}

/* Adds slices of one linear of the MLP, by rows or by columns, each twice. */
static calm_status split(calm_ctx *ctx, twin *it, size_t block, calm_role role, const char *suffix, size_t n_experts)
{
    const size_t n_slices = n_experts / 2, part = it->config->inner / n_slices;
    char *module, *old;
    twin_piece *found, piece;
    CALM_TRY(calm_model_block_name(ctx, it->model, block, &module));
    CALM_TRY(calm_strf(ctx, ctx->out, &old, "%s.mlp.%s.weight", module, suffix));
    CALM_TRY(twin_find(ctx, it, old, &found));
    piece = *found;
    for (size_t e = 0; e < n_experts; e++) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.mlp.experts.%zu.%s.weight", module, e, suffix));
        piece.name = name;
        if (role == CALM_ROLE_DOWN) {
            piece.first_column = e / 2 * part;
            piece.n_columns = part;
            piece.factor = (double)n_slices;
        } else {
            piece.first_row = e / 2 * part;
            piece.n_rows = part;
        }
        CALM_TRY(twin_add(ctx, it, &piece));
    }
    return twin_remove(ctx, it, old);
}

static void set_config(twin *it, size_t n_experts)
{
    calm_json *classes = calm_json_new_array();
    calm_json_add_string(classes, "Qwen3MoeForCausalLM");
    calm_json_set(it->json, "architectures", classes);
    calm_json_set_string(it->json, "model_type", "qwen3_moe");
    calm_json_set_int(it->json, "num_experts", (int64_t)n_experts);
    calm_json_set_int(it->json, "num_experts_per_tok", (int64_t)n_experts);
    calm_json_set_int(it->json, "moe_intermediate_size", (int64_t)(2 * it->config->inner / n_experts));
    calm_json_set_bool(it->json, "norm_topk_prob", true);
    calm_json_set_int(it->json, "decoder_sparse_step", 1);
    calm_json_set(it->json, "mlp_only_layers", calm_json_new_array());
}

calm_status twin_split(calm_ctx *ctx, twin *it)
{
    const size_t n_experts = (size_t)it->args->split_mlp;
    if (it->config->arch != calm_arch_find(NULL, "qwen3"))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s, expected a qwen3, whose mixture is qwen3_moe",
                         calm_model_dir(it->model), it->config->arch->name);
    if (n_experts % 2 || it->config->inner % (n_experts / 2))
        return calm_fail(ctx, CALM_EARG, "--split-mlp %zu: expected an even number whose half divides %zu", n_experts,
                         it->config->inner);
    for (size_t block = 0; block < it->config->n_blocks; block++) {
        CALM_TRY(split(ctx, it, block, CALM_ROLE_GATE, "gate_proj", n_experts));
        CALM_TRY(split(ctx, it, block, CALM_ROLE_UP, "up_proj", n_experts));
        CALM_TRY(split(ctx, it, block, CALM_ROLE_DOWN, "down_proj", n_experts));
        CALM_TRY(add_router(ctx, it, block, n_experts));
    }
    set_config(it, n_experts);
    return CALM_OK;
}
