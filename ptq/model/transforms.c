/* Reads transforms linear by linear, since compressed-tensors lists the modules of each. */
#include "ptq/model/transforms.h"

#include "ptq/arch/arch.h"

/* Sets the transform; an input scale of down cannot be folded into up, since the transform is between them. */
static void set_hadamard(calm_config *config, calm_layout *layout, size_t width)
{
    config->down_hadamard = width;
    /* Blocks with their own configs have copies of the model's settings. */
    calm_config_copy_common(config);
    for (size_t i = 0; i < layout->n_jobs && width; i++)
        layout->jobs[i].can_absorb &= layout->jobs[i].kind != CALM_JOB_DOWN;
}

calm_status calm_transforms_read(calm_ctx *ctx, const char *dir, const calm_qformat_reader *stored, calm_config *config,
                                 calm_layout *layout)
{
    size_t width = 0, expected = 0;
    bool first = true;
    for (size_t i = 0; stored && i < layout->n_linears; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        const bool down = linear->role == CALM_ROLE_DOWN;
        CALM_TRY(calm_qformat_hadamard(ctx, stored, linear->module, &width));
        /* All downs must have the transform of the first one; other linears must have none. */
        expected = down && first ? width : expected;
        first &= !down;
        if (width != (down ? expected : 0) || (width && linear->in % width))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: transform_config has a transform of %zu channels at %s: calm only computes one "
                             "before the last linear of every MLP", dir, width, linear->module);
    }
    set_hadamard(config, layout, expected);
    return CALM_OK;
}

calm_status calm_transforms_use_hadamard(calm_ctx *ctx, const char *dir, calm_config *config, calm_layout *layout)
{
    /* Hadamard matrices have powers of two: the largest that divides the channels, block by block. */
    const size_t inner = config->inner, width = inner & (~inner + 1);
    if (config->moe.n_experts)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: family %s has no transform before down (r4): readers hold all experts in one tensor and "
                         "apply none; take `rotate` r1r2", dir, config->arch->name);
    /* An odd width only has the Hadamard matrix of size 1, which changes nothing. */
    if (width == 1)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: its MLP has %zu channels, which no power of two divides: it has no transform before down "
                         "(r4); take `rotate` r1r2", dir, inner);
    set_hadamard(config, layout, width);
    return CALM_OK;
}

const char *calm_transforms_module(const calm_config *config)
{
    return config->arch->names->role[CALM_ROLE_DOWN];
}
