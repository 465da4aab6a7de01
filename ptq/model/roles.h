/* Roles, jobs and hook points: the one place that names them.
 *
 * A role is what a weight matrix of a block does; the matrices that read the same input make a job.  Families differ
 * in module names (arch.h) and in whether q, k, v and gate, up are stored in one matrix each. */
#ifndef CALM_MODEL_ROLES_H
#define CALM_MODEL_ROLES_H

#include "ptq/base/context.h"

/* X(ROLE, name, JOB): the linears, in the order in which a job stacks them */
#define CALM_ROLE_LIST(X)                                                                                    \
    X(Q, "q", QKV)                                                                                           \
    X(K, "k", QKV)                                                                                           \
    X(V, "v", QKV)                                                                                           \
    X(FUSED_QKV, "fused_qkv", QKV)                                                                           \
    X(O, "o", O)                                                                                             \
    X(GATE, "gate", GATE_UP)                                                                                 \
    X(UP, "up", GATE_UP)                                                                                     \
    X(FUSED_GATE_UP, "fused_gate_up", GATE_UP)                                                               \
    X(DOWN, "down", DOWN)

/* X(JOB, name, SUBLAYER, hook of its input): linears that read the same input */
#define CALM_JOB_LIST(X)                                                                                     \
    X(QKV, "qkv", ATTENTION, QKV_IN)                                                                         \
    X(O, "o", ATTENTION, O_IN)                                                                               \
    X(GATE_UP, "gate_up", MLP, GATE_UP_IN)                                                                   \
    X(DOWN, "down", MLP, DOWN_IN)

/* X(HOOK, name, where, what it is): places where activations are observed, once in the MODEL, in each BLOCK, or in each
 * block whose MLP is a MIXTURE */
#define CALM_HOOK_LIST(X)                                                                                    \
    X(EMBED, "embed", MODEL, "embedding output")                                                             \
    X(QKV_IN, "qkv_in", BLOCK, "input of q, k and v")                                                        \
    X(O_IN, "o_in", BLOCK, "input of o")                                                                     \
    X(ATTN_OUT, "attn_out", BLOCK, "attention output, before the residual add")                              \
    X(GATE_UP_IN, "gate_up_in", BLOCK, "input of gate and up")                                               \
    X(ROUTER_LOGITS, "router_logits", MIXTURE, "router's output, one value per expert, before the softmax")  \
    X(GATE, "gate", BLOCK, "what the activation function reads")                                             \
    X(DOWN_IN, "down_in", BLOCK, "input of down")                                                            \
    X(MLP_OUT, "mlp_out", BLOCK, "MLP output, before the residual add")                                      \
    X(BLOCK_OUT, "block_out", BLOCK, "block output")                                                         \
    X(FINAL_NORM, "final_norm", MODEL, "final norm: input of the head")

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
#define CALM_HOOK_ENUM(hook, name, where, help) CALM_HOOK_##hook,
    CALM_HOOK_LIST(CALM_HOOK_ENUM)
#undef CALM_HOOK_ENUM
    CALM_N_HOOKS
} calm_hook;

/* Where a norm may stand in a sublayer f:  x' = RESIDUAL(x + OUT(f(IN(x)))), each absent or not. */
typedef enum calm_norm_place { CALM_NORM_IN, CALM_NORM_OUT, CALM_NORM_RESIDUAL, CALM_N_NORM_PLACES } calm_norm_place;

/* Number of an expert; a linear outside the experts, and the expert that sees every token. */
#define CALM_NO_EXPERT     (-1L)
#define CALM_SHARED_EXPERT (-2L)

/* The job a role belongs to; a job's name ("qkv"), its sublayer and the hook point of its input. */
calm_job_kind calm_role_job(calm_role role);
const char *calm_job_name(calm_job_kind job);
calm_sublayer calm_job_sublayer(calm_job_kind job);
calm_hook calm_job_input(calm_job_kind job);

/* "attention", "mlp". */
const char *calm_sublayer_name(calm_sublayer sublayer);

/* "qkv_in" */
const char *calm_hook_name(calm_hook hook);

/* True for the hook points that every block has: false for the two outside, and for the router of a mixture. */
bool calm_hook_in_block(calm_hook hook);

#endif
