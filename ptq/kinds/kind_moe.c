/* A mixture of experts: each expert is an MLP, and so is the shared expert (moe.c). */
#include "ptq/kinds/kind_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/layers/moe_back.h"

/* The router's hook point is that of the whole mixture; the other one is an expert's. */
static const calm_hook hooks[] = {CALM_HOOK_GATE, CALM_HOOK_ROUTER_LOGITS};

/* The first tensor's name in llama.cpp follows from the router's.  The next five are Gemma 4's: its router has a norm
 * with a separate weight, experts have a factor each and norms before and after all of them, and the MLP next to them a
 * norm after it (moe.c).  The last two are Nemotron 3's linears into and out of the experts' latent space. */
static const calm_kind_plain plains[] = {{.plain = CALM_PLAIN_ROUTER_BIAS, .form = CALM_PLAIN_TENSOR},
                                         {.plain = CALM_PLAIN_ROUTER_SCALE, .form = CALM_PLAIN_TENSOR,
                                          .word = "ffn_gate_inp.scale"},
                                         {.plain = CALM_PLAIN_EXPERT_SCALE, .form = CALM_PLAIN_TENSOR,
                                          .word = "ffn_down_exps.scale"},
                                         {.plain = CALM_PLAIN_EXPERTS_NORM, .form = CALM_PLAIN_FAMILY_NORM,
                                          .word = "pre_ffw_norm_2"},
                                         {.plain = CALM_PLAIN_EXPERTS_OUT_NORM, .form = CALM_PLAIN_FAMILY_NORM,
                                          .word = "post_ffw_norm_2"},
                                         {.plain = CALM_PLAIN_SHARED_OUT_NORM, .form = CALM_PLAIN_FAMILY_NORM,
                                          .word = "post_ffw_norm_1"},
                                         {.plain = CALM_PLAIN_EXPERTS_IN, .form = CALM_PLAIN_TENSOR,
                                          .word = "ffn_latent_down.weight"},
                                         {.plain = CALM_PLAIN_EXPERTS_OUT, .form = CALM_PLAIN_TENSOR,
                                          .word = "ffn_latent_up.weight"}};

static void plain_shape(const calm_config *config, calm_plain plain, size_t dims[CALM_PLAIN_DIMS], int *n_dims)
{
    const bool by_expert = plain == CALM_PLAIN_ROUTER_BIAS || plain == CALM_PLAIN_EXPERT_SCALE;
    const size_t latent = config->moe.latent;
    if (plain == CALM_PLAIN_EXPERTS_IN || plain == CALM_PLAIN_EXPERTS_OUT) {
        /* [out, in] of a linear between the model's width and the experts'. */
        dims[0] = plain == CALM_PLAIN_EXPERTS_IN ? latent : config->hidden;
        dims[1] = plain == CALM_PLAIN_EXPERTS_IN ? config->hidden : latent;
        *n_dims = latent ? 2 : 0;
        return;
    }
    dims[0] = by_expert ? config->moe.n_experts : config->hidden;
    *n_dims = 1;
}

/* Returns the width of a hook point: router logits have one value per expert. */
static size_t hook_width(const calm_config *config, calm_hook hook, long expert)
{
    return hook == CALM_HOOK_ROUTER_LOGITS ? config->moe.n_experts : calm_mlp_hook_width(config, hook, expert);
}

/* Runs the mixture and keeps the inputs of the backward pass; the choice of experts also reads the residual. */
static calm_status forward(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *tape)
{
    return calm_moe_forward_tape(ctx, pass->block, pass->x, pass->h, pass->span, y, tape);
}

/* Runs the backward pass; the choice is held fixed. */
static calm_status backward(calm_ctx *ctx, const calm_kind_pass *pass, const void *tape, const float *dy,
                            const calm_block_grads *grads, float *dh, float *dx)
{
    return calm_moe_back(ctx, pass->block, tape, pass->x, pass->h, pass->span->n_tokens, dy, grads, dh, dx);
}

static const calm_kind_back back = {.tape_bytes = sizeof(calm_routing),
                                    .forward = forward,
                                    .back = backward,
                                    .kept_bytes = calm_moe_tape_bytes,
                                    .routed_forward_bytes = calm_moe_forward_tape_bytes,
                                    .routed_back_bytes = calm_moe_back_bytes};

/* A mixture runs over all windows together (moe.h), and has no `run`. */
const calm_kind calm_kind_moe = {
    .name = "moe",
    .slot = CALM_SUBLAYER_MLP,
    .jobs = calm_mlp_jobs,
    .n_jobs = CALM_MLP_JOBS,
    CALM_KIND_LIST(plains),
    CALM_KIND_LIST(hooks),
    .routed = true,
    .shape = calm_mlp_shape,
    .plain_shape = plain_shape,
    .hook_width = hook_width,
    .feed = calm_mlp_feed,
    .back = &back,
};
