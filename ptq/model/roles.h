/* Roles, jobs, plain tensors and hook points of all kinds of sublayers (kinds.def).
 *
 * A role is what a weight matrix of a block does; the matrices that read the same input make a job.  Families differ
 * in module names (arch.h) and in whether q, k, v and gate, up are stored in one matrix each. */
#pragma once

#include "ptq/base/context.h"

/* Slots of a block: what mixes tokens, and what follows it.  Either may be absent in a block (kind.h). */
typedef enum calm_sublayer { CALM_SUBLAYER_ATTENTION, CALM_SUBLAYER_MLP, CALM_N_SUBLAYERS } calm_sublayer;

typedef enum calm_role {
#define CALM_ROLE(role, name, job) CALM_ROLE_##role,
#include "ptq/model/kinds.def"
    CALM_N_ROLES
} calm_role;

typedef enum calm_job_kind {
#define CALM_JOB(job, name, sublayer, hook) CALM_JOB_##job,
#include "ptq/model/kinds.def"
    CALM_N_JOBS
} calm_job_kind;

/* Tensors of floats that a sublayer has in addition to its linears. */
typedef enum calm_plain {
#define CALM_PLAIN(plain, name) CALM_PLAIN_##plain,
#include "ptq/model/kinds.def"
    CALM_N_PLAINS
} calm_plain;

/* Places where activations are observed: the embedding's output, what the kinds have, what a block adds by a token's id
 * before the last product (tail.h), the block's output, and behind the final norm the input of the head. */
typedef enum calm_hook {
    CALM_HOOK_EMBED,
#define CALM_HOOK(hook, name, help) CALM_HOOK_##hook,
#include "ptq/model/kinds.def"
    CALM_HOOK_LAYER_INPUT,
    CALM_HOOK_BLOCK_OUT,
    CALM_HOOK_FINAL_NORM,
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

/* Where what the sublayer adds is observed. */
calm_hook calm_sublayer_output(calm_sublayer sublayer);

/* "attention", "mlp". */
const char *calm_sublayer_name(calm_sublayer sublayer);

/* "qkv_in" */
const char *calm_hook_name(calm_hook hook);
