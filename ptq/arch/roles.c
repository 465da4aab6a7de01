/* Tables of roles, jobs, plain tensors and hook points, from the lines of kinds.def. */
#include "ptq/arch/roles.h"

calm_job_kind calm_role_job(calm_role role)
{
    /* Indexed by calm_role. */
    static const calm_job_kind jobs[] = {
#define CALM_ROLE(role, name, job) CALM_JOB_##job,
#include "ptq/arch/kinds.def"
    };
    return jobs[role];
}

/* Indexed by calm_job_kind. */
static const struct {
    const char *name;
    calm_sublayer sublayer;
    calm_hook input;
} job_table[] = {
#define CALM_JOB(job, name, sublayer, hook) {name, CALM_SUBLAYER_##sublayer, CALM_HOOK_##hook},
#include "ptq/arch/kinds.def"
};

const char *calm_job_name(calm_job_kind job)
{
    return job_table[job].name;
}

calm_sublayer calm_job_sublayer(calm_job_kind job)
{
    return job_table[job].sublayer;
}

const char *calm_sublayer_name(calm_sublayer sublayer)
{
    return sublayer == CALM_SUBLAYER_ATTENTION ? "attention" : "mlp";
}

calm_hook calm_sublayer_output(calm_sublayer sublayer)
{
    return sublayer == CALM_SUBLAYER_ATTENTION ? CALM_HOOK_ATTN_OUT : CALM_HOOK_MLP_OUT;
}

calm_hook calm_job_input(calm_job_kind job)
{
    return job_table[job].input;
}

const char *calm_hook_name(calm_hook hook)
{
    /* Indexed by calm_hook: the first and the last three belong to no kind. */
    static const char *const names[] = {
        "embed",
#define CALM_HOOK(hook, name, help) name,
#include "ptq/arch/kinds.def"
        "layer_input", "block_out", "final_norm",
    };
    return names[hook];
}
