/* A gated or plain MLP: down(act(gate(h)) up(h)), down(act(up(h))) (block.c). */
#include "ptq/kinds/kind_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/layers/block.h"
#include "ptq/layers/hadamard.h"
#include "ptq/layers/mlp_back.h"

/* gate and up read the output of one norm; rows of up scale channels of down's input. */
const calm_kind_job calm_mlp_jobs[CALM_MLP_JOBS] = {
    {.job = CALM_JOB_GATE_UP, .outer = true, .fold = CALM_FOLD_NORM, .fused = "gate_up_proj"},
    {.job = CALM_JOB_DOWN, .fold = CALM_FOLD_ROWS, .place = CALM_PLACE_DOWN},
};

/* llama.cpp stores the fused matrix under up's name. */
static const calm_kind_word words[] = {
    {.role = CALM_ROLE_GATE, .word = "ffn_gate", .many = "ffn_gate_exps", .shared = "ffn_gate_shexp"},
    {.role = CALM_ROLE_FUSED_GATE_UP, .word = "ffn_up"},
    {.role = CALM_ROLE_FUSED_GATE_UP, .form = CALM_GGUF_FIRST_HALF, .word = "ffn_gate", .shared = "ffn_gate_shexp"},
    {.role = CALM_ROLE_FUSED_GATE_UP, .form = CALM_GGUF_LAST_HALF, .word = "ffn_up", .shared = "ffn_up_shexp"},
    {.role = CALM_ROLE_UP, .word = "ffn_up", .many = "ffn_up_exps", .shared = "ffn_up_shexp"},
    {.role = CALM_ROLE_DOWN, .word = "ffn_down", .many = "ffn_down_exps", .shared = "ffn_down_shexp"},
};

/* The usual names, and Mixtral's. */
static const calm_fusion fusions[] = {{{"gate_proj", "up_proj", NULL}, "gate_up_proj"}, {{"w1", "w3", NULL}, NULL}};

static const calm_hook hooks[] = {CALM_HOOK_GATE};

/* Gives the shape of a role; experts, the shared expert and the block's MLP may have different widths. */
void calm_mlp_shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    const size_t inner = expert == CALM_NO_EXPERT       ? config->inner
                         : expert == CALM_SHARED_EXPERT ? config->moe.shared_inner
                                                        : config->moe.inner;
    const size_t width = calm_expert_width(config, expert);
    *out = role == CALM_ROLE_DOWN ? width : role == CALM_ROLE_FUSED_GATE_UP ? 2 * inner : inner;
    *in = role == CALM_ROLE_DOWN ? inner : width;
}

/* Returns the width of the activation function's input, which is that of down's input, also with a fused gate_up. */
size_t calm_mlp_hook_width(const calm_config *config, calm_hook hook, long expert)
{
    size_t out, in;
    (void)hook;
    calm_mlp_shape(config, CALM_ROLE_DOWN, expert, &out, &in);
    return in;
}

/* Gives the rows of up, which the gate multiplies.  Without a gate, or with a clamp, no scale can be folded. */
bool calm_mlp_feed(const calm_config *config, calm_job_kind job, long expert, calm_feed *out)
{
    const bool fused = calm_expert_has_role(config, CALM_ROLE_FUSED_GATE_UP, expert);
    size_t hidden, inner;
    (void)job;
    calm_mlp_shape(config, CALM_ROLE_DOWN, expert, &hidden, &inner);
    /* Rows of up are the second half of a fused matrix, in some families the first. */
    *out = (calm_feed){.role = fused ? CALM_ROLE_FUSED_GATE_UP : CALM_ROLE_UP,
                       .first = fused && !config->arch->names->up_first ? inner : 0,
                       .stride = inner,
                       .heads = 1,
                       .width = inner,
                       .readers = 1};
    return (fused || calm_expert_has_role(config, CALM_ROLE_GATE, expert)) && config->glu_limit == 0;
}

/* Runs the MLP over the rows of a window. */
static calm_status run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer)
{
    const calm_observation seen = {.expert = CALM_NO_EXPERT, .window = span->window};
    (void)rope;
    return calm_mlp_run(ctx, block->config, block->weight, h, span->n_tokens, out, observer, &seen);
}

/* Returns the peak bytes of the block's dense MLP. */
static size_t scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    return calm_mlp_run_scratch_bytes(config, CALM_NO_EXPERT, n_tokens, prepared);
}

/* ---- learning ---- */

/* Runs the MLP and keeps the inputs of the backward pass. */
static calm_status forward(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *tape)
{
    return calm_mlp_forward_tape(ctx, pass->block->config, pass->block->weight, pass->h, pass->span->n_tokens, y, tape);
}

/* Runs the backward pass; the tape has h and the number of rows. */
static calm_status backward(calm_ctx *ctx, const calm_kind_pass *pass, const void *tape, const float *dy,
                            const calm_block_grads *grads, float *dh, float *dx)
{
    (void)dx;
    return calm_mlp_back(ctx, pass->block->config, pass->block->weight, tape, dy, grads->weight, grads->bias,
                         grads->lengths[CALM_JOB_GATE_UP], dh);
}

/* Returns the bytes of the tape. */
static size_t kept_bytes(const calm_config *config, size_t n_tokens)
{
    return calm_mlp_tape_bytes(config, CALM_NO_EXPERT, n_tokens);
}

/* Returns the bytes of a transform's row in each thread. */
static size_t workers_bytes(const calm_config *config, size_t n_threads)
{
    return n_threads * calm_hadamard_bytes(config, CALM_JOB_DOWN, config->inner);
}

static size_t forward_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    return calm_mlp_forward_tape_bytes(config, CALM_NO_EXPERT, n_tokens) + workers_bytes(config, n_threads);
}

static size_t back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    return calm_mlp_back_bytes(config, CALM_NO_EXPERT, n_tokens) + workers_bytes(config, n_threads);
}

static const calm_kind_back back = {.tape_bytes = sizeof(calm_mlp_tape),
                                    .forward = forward,
                                    .back = backward,
                                    .kept_bytes = kept_bytes,
                                    .forward_bytes = forward_bytes,
                                    .back_bytes = back_bytes};

/* ---- the kind ---- */

const calm_kind calm_kind_mlp = {
    .name = "mlp",
    .slot = CALM_SUBLAYER_MLP,
    .jobs = calm_mlp_jobs,
    .n_jobs = CALM_MLP_JOBS,
    CALM_KIND_LIST(words),
    CALM_KIND_LIST(fusions),
    CALM_KIND_LIST(hooks),
    .shape = calm_mlp_shape,
    .hook_width = calm_mlp_hook_width,
    .feed = calm_mlp_feed,
    .run = run,
    .scratch_bytes = scratch_bytes,
    .back = &back,
};
