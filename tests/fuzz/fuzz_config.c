/* config.json: accepted values are in range, so that every product of sizes fits and the layer table stays small. */
#include <stdlib.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/layout.h"
#include "ptq/weights/qformat.h"
#include "tests/fuzz/fuzz.h"

static bool in_range(double value, double min, double max)
{
    return value >= min && value <= max;    /* false for a NaN */
}

static void check_rope(const calm_config *config, const calm_rope_config *rope)
{
    if (rope->theta == 0)
        return;    /* there is none */
    if (rope->rotary == 0 || rope->rotary % 2 != 0 || rope->rotary > config->head_dim ||
        !in_range(rope->theta, 1, 1e12) || !in_range(rope->factor, 1e-6, 1e9) || !in_range(rope->m, 1e-6, 1e9) ||
        !in_range(rope->original, 1, 1 << 24))
        abort();
    for (size_t i = 0; rope->kind == CALM_ROPE_LONGROPE && i < rope->rotary / 2; i++)
        if (!in_range(rope->long_factor[i], 1e-6, 1e9) || !in_range(rope->short_factor[i], 1e-6, 1e9))
            abort();
}

static void check_experts(const calm_config *config)
{
    const calm_moe_config *moe = &config->moe;
    if (moe->n_experts * config->n_blocks > 1 << 18 || moe->top_k > moe->n_experts ||
        (moe->n_experts && (!moe->top_k || !moe->inner)))
        abort();
    for (size_t i = 0; i < config->n_blocks; i++)
        if (moe->sparse[i] && !moe->n_experts)
            abort();
}

static void check_config(calm_ctx *ctx, const calm_config *config)
{
    const size_t limit = (size_t)1 << 24;
    if (!config->arch || config->hidden - 1 >= limit || config->inner - 1 >= limit || config->vocab - 1 >= limit ||
        config->n_blocks - 1 >= 4096 || config->n_kv == 0 || config->n_heads % config->n_kv != 0 ||
        config->head_dim == 0 || config->n_heads * config->head_dim > limit || config->max_positions - 1 >= limit)
        abort();
    if (!in_range((double)config->norm_eps, 0, 1) || !in_range((double)config->attention_scale, 1e-4, 100) ||
        !in_range((double)config->attention_cap, 0, 1e6) || !in_range((double)config->logit_cap, 0, 1e6))
        abort();
    check_rope(config, &config->rope[CALM_ROPE_GLOBAL]);
    check_rope(config, &config->rope[CALM_ROPE_LOCAL]);
    check_experts(config);
    for (size_t i = 0; i < config->n_blocks; i++)
        if (config->window[i] > (size_t)1 << 30)
            abort();
    calm_layout layout;
    if (calm_layout_build(ctx, config, "model.", false, &layout) != CALM_OK)
        abort();
    for (size_t i = 0, n; i < layout.n_linears; i++)
        if (!layout.linears[i].out || !layout.linears[i].in ||
            !calm_size_mul(&n, layout.linears[i].out, layout.linears[i].in))
            abort();
}

/* Checks what a quantization entry says about some modules. */
static void check_quantization(calm_ctx *ctx, const calm_json *config)
{
    static const char *const modules[] = {"model.layers.0.self_attn.q_proj", "lm_head", ""};
    calm_qformat_reader *reader;
    if (calm_qformat_open(ctx, "config.json", config, &reader) != CALM_OK || !reader) {
        if (reader)
            abort();
        return;
    }
    for (size_t i = 0; i < 3 && ctx->status == CALM_OK; i++) {
        bool quantized = false;
        calm_qformat_scheme scheme;
        if (calm_qformat_find(ctx, reader, NULL, modules[i], &quantized, &scheme) == CALM_OK && quantized &&
            (scheme.bits < 2 || scheme.bits > 8 || scheme.act_bits < 0 || scheme.act_bits > 8))
            abort();
    }
    calm_qformat_close(reader);
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_config config;
    calm_json *root;
    if (calm_json_parse(ctx, "config.json", (const char *)data, size, &root) != CALM_OK)
        return 0;
    if (calm_config_read(ctx, "config.json", root, &config) == CALM_OK)
        check_config(ctx, &config);
    else if (!ctx->message[0])
        abort();
    calm_ctx_clear_failure(ctx);
    check_quantization(ctx, root);
    calm_json_free(root);
    return 0;
}
