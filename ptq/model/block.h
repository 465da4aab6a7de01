/* One transformer block: its weights in float32 and its computation over one window of tokens.
 *
 *   T tokens of the window   D hidden size   h heads of width d (h_kv for keys and values)   M inner width
 *
 * The lists below are the one place that names linears, jobs and hook points. */
#ifndef CALM_MODEL_BLOCK_H
#define CALM_MODEL_BLOCK_H

#include "ptq/base/context.h"
#include "ptq/model/config.h"

/* X(ROLE, module name within the block, JOB): the linears, in checkpoint order */
#define CALM_ROLE_LIST(X)                                                                                    \
    X(Q, "self_attn.q_proj", QKV)                                                                            \
    X(K, "self_attn.k_proj", QKV)                                                                            \
    X(V, "self_attn.v_proj", QKV)                                                                            \
    X(O, "self_attn.o_proj", O)                                                                              \
    X(GATE, "mlp.gate_proj", GATE_UP)                                                                        \
    X(UP, "mlp.up_proj", GATE_UP)                                                                            \
    X(DOWN, "mlp.down_proj", DOWN)

/* X(JOB, name, SUBLAYER, hook of its input): linears that read the same input */
#define CALM_JOB_LIST(X)                                                                                     \
    X(QKV, "qkv", ATTENTION, QKV_IN)                                                                         \
    X(O, "o", ATTENTION, O_IN)                                                                               \
    X(GATE_UP, "gate_up", MLP, GATE_UP_IN)                                                                   \
    X(DOWN, "down", MLP, DOWN_IN)

/* X(HOOK, name, what it is): places where activations are observed */
#define CALM_HOOK_LIST(X)                                                                                    \
    X(EMBED, "embed", "embedding output")                                                                    \
    X(QKV_IN, "qkv_in", "input of q, k and v")                                                               \
    X(O_IN, "o_in", "input of o")                                                                            \
    X(ATTN_OUT, "attn_out", "attention output, before the residual add")                                     \
    X(GATE_UP_IN, "gate_up_in", "input of gate and up")                                                      \
    X(GATE, "gate", "gate projection before the activation function")                                        \
    X(DOWN_IN, "down_in", "input of down")                                                                   \
    X(MLP_OUT, "mlp_out", "MLP output, before the residual add")                                             \
    X(BLOCK_OUT, "block_out", "block output")                                                                \
    X(FINAL_NORM, "final_norm", "final norm: input of the head")

typedef enum calm_sublayer { CALM_SUBLAYER_ATTENTION, CALM_SUBLAYER_MLP, CALM_N_SUBLAYERS } calm_sublayer;

typedef enum calm_role {
#define CALM_ROLE_ENUM(role, name, job) CALM_ROLE_##role,
    CALM_ROLE_LIST(CALM_ROLE_ENUM)
#undef CALM_ROLE_ENUM
    CALM_N_ROLES
} calm_role;

typedef enum calm_job_kind {
#define CALM_JOB_ENUM(job, name, sublayer, hook) CALM_JOB_##job,
    CALM_JOB_LIST(CALM_JOB_ENUM)
#undef CALM_JOB_ENUM
    CALM_N_JOBS
} calm_job_kind;

typedef enum calm_hook {
#define CALM_HOOK_ENUM(hook, name, help) CALM_HOOK_##hook,
    CALM_HOOK_LIST(CALM_HOOK_ENUM)
#undef CALM_HOOK_ENUM
    CALM_N_HOOKS
} calm_hook;

const char *calm_role_module(calm_role role);      /* "self_attn.q_proj" */
calm_job_kind calm_role_job(calm_role role);
const char *calm_job_name(calm_job_kind job);      /* "qkv" */
calm_sublayer calm_job_sublayer(calm_job_kind job);
calm_hook calm_job_input(calm_job_kind job);
const char *calm_hook_name(calm_hook hook);        /* "qkv_in" */
const char *calm_hook_help(calm_hook hook);

/* One linear as the forward pass applies it: y = A(x / in_scale) W^T + bias. */
typedef struct calm_weight {
    const char *name;         /* module: "model.layers.0.self_attn.q_proj"                 */
    size_t out, in;
    const float *w;           /* [out, in]                                                 */
    const float *bias;        /* [out] or NULL                                             */
    const float *in_scale;    /* [in] or NULL = ones                                       */
    int act_bits;             /* A quantizes each token to so many bits; 0 = not at all    */
} calm_weight;

typedef struct calm_block {
    size_t index;
    const calm_config *config;
    calm_weight weight[CALM_N_ROLES];
    const float *norm[CALM_N_SUBLAYERS];    /* [D] weight of the norm before each sublayer */
    const float *q_norm, *k_norm;           /* [d] or NULL                                 */
} calm_block;

/* cos and sin of the rotary embedding, [n_positions, d / 2]; read-only, shared by all threads. */
typedef struct calm_rope {
    size_t n_positions, half;
    const float *cos, *sin;
} calm_rope;

/* Tables for positions 0 .. n_positions - 1 in ctx->out. */
calm_status calm_rope_init(calm_ctx *ctx, const calm_config *config, size_t n_positions, calm_rope *out);

/* Called with the activations of one window at a hook point, x [T, width] borrowed; may run in several threads at
 * once for different windows. */
typedef calm_status calm_hook_fn(void *user, calm_ctx *ctx, calm_hook hook, size_t window, const float *x,
                                 size_t n_tokens, size_t width);

typedef struct calm_observer {
    calm_hook_fn *fn;    /* NULL: nobody watches */
    void *user;
    size_t window;       /* passed on */
} calm_observer;

/* y [T, out] = the linear applied to x [T, in]. */
calm_status calm_weight_apply(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y);

/* Attention sublayer without norm and residual: out [T, D] from h [T, D]. */
calm_status calm_block_attention(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                 size_t n_tokens, float *out, const calm_observer *observer);

/* MLP sublayer without norm and residual: out [T, D] from h [T, D]. */
calm_status calm_block_mlp(calm_ctx *ctx, const calm_block *block, const float *h, size_t n_tokens, float *out,
                           const calm_observer *observer);

/* Output [T, D] of a job's sublayer, before the residual add, from that job's input x [T, in]: the score point. */
calm_status calm_block_from_job(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_job_kind job,
                                const float *x, size_t n_tokens, float *out);

/* The whole block in place: x [T, D] += attention(norm(x)); x += mlp(norm(x)). */
calm_status calm_block_run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, float *x, size_t n_tokens,
                           const calm_observer *observer);

#endif
