/* Reads transforms linear by linear, since compressed-tensors lists the modules of each. */
#include "ptq/model/transforms.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"

/* Sets the transforms of all kinds of jobs; no input scale can be folded through one. */
static void set_hadamard(calm_config *config, calm_layout *layout, const size_t width[CALM_N_JOBS])
{
    memcpy(config->hadamard, width, sizeof config->hadamard);
    /* Blocks with their own configs have copies of the model's settings. */
    calm_config_copy_common(config);
    for (size_t i = 0; i < layout->n_jobs; i++)
        layout->jobs[i].can_absorb &= !width[layout->jobs[i].kind];
}

/* Returns why the inputs of attention and MLP cannot all have transforms; NULL: they can.  Only linears
 * with a transform may read such an input. */
static const char *refuse_inputs(const calm_config *config)
{
    const char *why = NULL;
    for (size_t b = 0; b < config->n_blocks && !why; b++)
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS && !why; s++) {
            const bool mixer = s == CALM_SUBLAYER_ATTENTION;
            if (!calm_kind_at(config, b, s)
                || (mixer && !calm_slot_has_job(calm_config_at(config, b), s, CALM_JOB_QKV)))
                return "calm has transforms of attention's and MLPs' inputs alone";
            why = calm_kind_input_shared(config, b, s);
        }
    return why;
}

/* Is the job one of attention and dense MLPs? */
static bool is_usual(calm_job_kind job)
{
    return job == CALM_JOB_QKV || job == CALM_JOB_O || job == CALM_JOB_GATE_UP || job == CALM_JOB_DOWN;
}

/* Does the forward pass have a transform of the job's input?  Down reads an input that no other module reads. */
static bool has_place(const calm_config *config, calm_job_kind job)
{
    return job == CALM_JOB_DOWN || (is_usual(job) && !refuse_inputs(config));
}

calm_status calm_transforms_read(calm_ctx *ctx, const char *dir, const calm_qformat_reader *stored, calm_config *config,
                                 calm_layout *layout)
{
    size_t width = 0, expected[CALM_N_JOBS] = {0};
    bool seen[CALM_N_JOBS] = {false};
    for (size_t i = 0; stored && i < layout->n_linears; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        const calm_job_kind job = calm_role_job(linear->role);
        CALM_TRY(calm_qformat_hadamard(ctx, stored, linear->module, linear->in, &width));
        /* All linears of a kind of job must have the transform of the first one. */
        expected[job] = seen[job] ? expected[job] : width;
        seen[job] = true;
        if (width != expected[job] || (width && (linear->in % width || !has_place(config, job))))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: transform_config has a transform of %zu channels at %s: calm computes transforms of "
                             "the inputs of attention and dense MLPs, the same in all blocks", dir, width,
                             linear->module);
    }
    set_hadamard(config, layout, expected);
    return CALM_OK;
}

/* Returns the largest power of two that divides the input width of the job in every block. */
static size_t common_power(const calm_layout *layout, calm_job_kind job)
{
    size_t bits = 0;
    for (size_t i = 0; i < layout->n_jobs; i++)
        bits |= layout->jobs[i].kind == job ? layout->jobs[i].in : 0;
    return bits & (~bits + 1);
}

calm_status calm_transforms_use_hadamard(calm_ctx *ctx, const char *dir, bool every, calm_config *config,
                                         calm_layout *layout)
{
    size_t width[CALM_N_JOBS] = {0};
    const char *why = every ? refuse_inputs(config) : NULL;
    if (why)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: family %s has no transforms of inputs: %s; take `rotate` none",
                         dir, config->arch->name, why);
    if (config->moe.n_experts)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: family %s has no transform before down (r4): readers hold all experts in one tensor and "
                         "apply none; take `rotate` r1r2", dir, config->arch->name);
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        width[job] = job == CALM_JOB_DOWN || (every && is_usual(job)) ? common_power(layout, job) : 0;
        /* An odd width only has the Hadamard matrix of size 1, which changes nothing. */
        if (width[job] == 1)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: the input of %s has an odd number of channels, which has no transform (r4, inputs); "
                             "take `rotate` r1r2 or none", dir, calm_job_name(job));
    }
    set_hadamard(config, layout, width);
    return CALM_OK;
}

bool calm_transforms_any(const calm_config *config)
{
    size_t any = 0;
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        any |= config->hadamard[job];
    return any != 0;
}

const char *calm_transforms_label(calm_job_kind job)
{
    return job == CALM_JOB_DOWN ? "R4" : calm_job_name(job);
}

const char *calm_transforms_module(const calm_config *config, calm_role role)
{
    return config->hadamard[calm_role_job(role)] ? config->arch->names->role[role] : NULL;
}
