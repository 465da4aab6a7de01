/* Configs of single blocks, where blocks differ. */
#include "ptq/arch/config.h"

void calm_config_copy_common(calm_config *config)
{
    for (size_t i = 0; config->blocks && i < config->n_blocks; i++) {
        const calm_block_shape *shape = &config->shapes[i];
        calm_config *block = &config->blocks[i];
        *block = *config;
        /* A block's config has no blocks. */
        block->shapes = NULL;
        block->blocks = NULL;
        block->varied = true;
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
            block->kind[s] = shape->kind[s];
        /* The block's own widths replace the model's usual ones. */
        block->n_heads = shape->n_heads;
        block->n_kv = shape->n_kv;
        block->head_dim = shape->head_dim;
        block->inner = shape->inner;
        block->gate_sparsity = shape->gate_sparsity;
        block->k_is_v = shape->k_is_v;
        block->kv = shape->kv;
        block->kv_at = shape->kv_at;
    }
}

calm_status calm_config_new_blocks(calm_ctx *ctx, calm_config *config)
{
    /* All blocks are alike and use the model's config. */
    if (!config->shapes)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, config->blocks, config->n_blocks));
    calm_config_copy_common(config);
    return CALM_OK;
}

const calm_config *calm_config_at(const calm_config *config, size_t block)
{
    return config->blocks ? &config->blocks[block] : config;
}
