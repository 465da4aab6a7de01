/* config.json: what is accepted is in range, so that every product of sizes fits. */
#include <stdlib.h>

#include "ptq/model/arch.h"
#include "ptq/model/block.h"
#include "ptq/model/compressed.h"
#include "ptq/model/model.h"
#include "tests/fuzz/fuzz.h"

static void check_config(const calm_config *config)
{
    const size_t limit = (size_t)1 << 24;
    if (!config->arch || config->hidden - 1 >= limit || config->inner - 1 >= limit || config->vocab - 1 >= limit ||
        config->n_blocks - 1 >= 4096 || config->n_kv == 0 || config->n_heads % config->n_kv != 0 ||
        config->head_dim == 0 || config->head_dim % 2 != 0 || config->n_heads * config->head_dim > limit)
        abort();
    if (!(config->norm_eps >= 0) || !(config->rope_theta >= 1))
        abort();
    for (size_t i = 0; i < config->n_blocks; i++)
        if (config->window[i] > (size_t)1 << 30)
            abort();
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        size_t out, in, n;
        calm_config_role_shape(config, role, &out, &in);
        if (!out || !in || !calm_size_mul(&n, out, in))
            abort();
    }
}

/* What a quantization entry says of some modules. */
static void check_quantization(calm_ctx *ctx, const calm_json *entry)
{
    static const char *const modules[] = {"model.layers.0.self_attn.q_proj", "lm_head", ""};
    calm_compressed *compressed;
    if (calm_compressed_read(ctx, "config.json", entry, &compressed) != CALM_OK) {
        if (compressed)
            abort();
        return;
    }
    for (size_t i = 0; i < 3 && ctx->status == CALM_OK; i++) {
        bool quantized = false;
        calm_stored_scheme scheme;
        if (calm_compressed_find(ctx, compressed, modules[i], &quantized, &scheme) == CALM_OK && quantized &&
            (scheme.bits < 2 || scheme.bits > 8 || scheme.act_bits < 0 || scheme.act_bits > 8))
            abort();
    }
    calm_compressed_free(compressed);
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_config config;
    calm_json *root;
    if (calm_json_parse(ctx, "config.json", (const char *)data, size, &root) != CALM_OK)
        return 0;
    if (calm_config_read(ctx, "config.json", root, &config) == CALM_OK)
        check_config(&config);
    else if (!ctx->message[0])
        abort();
    calm_ctx_forgive(ctx);
    check_quantization(ctx, calm_json_get(root, "quantization_config"));
    calm_json_free(root);
    return 0;
}
