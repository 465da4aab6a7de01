/* Tables of roles, jobs and hook points. */
#include "ptq/model/roles.h"

/* Tables from the lists of roles.h, so that a new role or hook is one line there. */
calm_job_kind calm_role_job(calm_role role)
{
    static const calm_job_kind jobs[] = {
#define CALM_ROLE_JOB(role, name, job) CALM_JOB_##job,
        CALM_ROLE_LIST(CALM_ROLE_JOB)
#undef CALM_ROLE_JOB
    };
    return jobs[role];
}

static const struct {
    const char *name;
    calm_sublayer sublayer;
    calm_hook input;
} job_table[] = {
#define CALM_JOB_ROW(job, name, sublayer, hook) {name, CALM_SUBLAYER_##sublayer, CALM_HOOK_##hook},
    CALM_JOB_LIST(CALM_JOB_ROW)
#undef CALM_JOB_ROW
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

calm_hook calm_job_input(calm_job_kind job)
{
    return job_table[job].input;
}

const char *calm_hook_name(calm_hook hook)
{
    static const char *const names[] = {
#define CALM_HOOK_ROW(hook, name, where, help) name,
        CALM_HOOK_LIST(CALM_HOOK_ROW)
#undef CALM_HOOK_ROW
    };
    return names[hook];
}

bool calm_hook_in_block(calm_hook hook)
{
    enum { MODEL, BLOCK, MIXTURE };
    static const char where[] = {
#define CALM_HOOK_ROW(hook, name, where, help) where,
        CALM_HOOK_LIST(CALM_HOOK_ROW)
#undef CALM_HOOK_ROW
    };
    return where[hook] == BLOCK;
}
