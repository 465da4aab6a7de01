/* Roles, jobs, plain tensors and hook points of all kinds of sublayers (kinds.def).
 *
 * A role is the function of a weight matrix in a block; the matrices that read the same input are a job.  Families
 * differ in module names (arch.h) and in whether q, k, v and gate, up are stored in one matrix each. */
#pragma once

#include "ptq/base/context.h"

/* Slots of a block: the mixer of tokens, and the feed-forward part.  Either may be empty (kind.h). */
typedef enum calm_sublayer { CALM_SUBLAYER_ATTENTION, CALM_SUBLAYER_MLP, CALM_N_SUBLAYERS } calm_sublayer;

typedef enum calm_role {
#define CALM_ROLE(role, name, job) CALM_ROLE_##role,
#include "ptq/arch/kinds.def"
    CALM_N_ROLES
} calm_role;

typedef enum calm_job_kind {
#define CALM_JOB(job, name, sublayer, hook) CALM_JOB_##job,
#include "ptq/arch/kinds.def"
    CALM_N_JOBS
} calm_job_kind;

/* Float tensors of sublayers that are no linears. */
typedef enum calm_plain {
#define CALM_PLAIN(plain, name) CALM_PLAIN_##plain,
#include "ptq/arch/kinds.def"
    CALM_N_PLAINS
} calm_plain;

/* Places where activations are observed: the embedding's output, the hook points of the kinds, the input of the tail's
 * projection (tail.h), the block's output, and the output of the final norm, which the head reads. */
typedef enum calm_hook {
    CALM_HOOK_EMBED,
#define CALM_HOOK(hook, name, help) CALM_HOOK_##hook,
#include "ptq/arch/kinds.def"
    CALM_HOOK_LAYER_INPUT,
    CALM_HOOK_BLOCK_OUT,
    CALM_HOOK_FINAL_NORM,
    CALM_N_HOOKS
} calm_hook;

/* Places of the norms of a sublayer f, each of which may be absent:  x' = RESIDUAL(x + OUT(f(IN(x)))) */
typedef enum calm_norm_place { CALM_NORM_IN, CALM_NORM_OUT, CALM_NORM_RESIDUAL, CALM_N_NORM_PLACES } calm_norm_place;

/* Values of an expert's number: a linear outside of the experts, and the shared expert, which runs for every token. */
#define CALM_NO_EXPERT     (-1L)
#define CALM_SHARED_EXPERT (-2L)

/* Return the job of a role, and a job's name ("qkv"), sublayer and hook point of its input. */
calm_job_kind calm_role_job(calm_role role);
const char *calm_job_name(calm_job_kind job);
calm_sublayer calm_job_sublayer(calm_job_kind job);
calm_hook calm_job_input(calm_job_kind job);

/* Returns the hook point of the sublayer's output. */
calm_hook calm_sublayer_output(calm_sublayer sublayer);

/* Returns "attention" or "mlp". */
const char *calm_sublayer_name(calm_sublayer sublayer);

/* Returns the hook point's name: "qkv_in". */
const char *calm_hook_name(calm_hook hook);
