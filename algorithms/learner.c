/* Learners by name: a part of kind `block` with its options. */
#include <string.h>

#include "algorithms/chain.h"
#include "ptq/base/message.h"
#include "ptq/base/scope.h"

/* Larger than the number of learners; names beyond it would only not be suggested. */
#define NAMES_MAX 16

struct calm_learner {
    calm_step step;
    char *canonical;
};

static calm_status find_learner(calm_ctx *ctx, const char *name, const calm_part **out)
{
    size_t n, n_names = 0;
    const calm_part *const *parts = calm_parts(&n);
    const char *names[NAMES_MAX];
    char hint[CALM_HINT_MAX];
    for (size_t i = 0; i < n; i++) {
        if (parts[i]->kind != CALM_KIND_BLOCK)
            continue;
        *out = parts[i];
        if (strcmp(parts[i]->name, name) == 0)
            return CALM_OK;
        if (n_names < NAMES_MAX)
            names[n_names++] = parts[i]->name;
    }
    return calm_fail(ctx, CALM_EARG, "no learner is called \"%s\"%s", name,
                     calm_did_you_mean(hint, name, names, n_names));
}

calm_status calm_learner_parse(calm_ctx *ctx, const char *text, calm_learner **out)
{
    CALM_SCOPED_TEXT(canonical);
    char *name, *options;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, 1));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s", text));
    CALM_TRY(calm_step_split(ctx, text, &name, &options));
    CALM_TRY(find_learner(ctx, name, &(*out)->step.part));
    CALM_TRY(calm_step_open(ctx, text, options, &(*out)->step));
    calm_step_print(&(*out)->step, &canonical);
    return calm_text_take(ctx, ctx->out, &canonical, &(*out)->canonical, NULL);
}

const char *calm_learner_canonical(const calm_learner *learner)
{
    return learner->canonical;
}

void calm_learner_losses(const calm_learner *learner, size_t n_windows, size_t *steps, size_t *checks)
{
    learner->step.part->run.block->losses(learner->step.opts, n_windows, steps, checks);
}

size_t calm_learner_tokens(const calm_learner *learner)
{
    return learner->step.part->run.block->tokens(learner->step.opts);
}

bool calm_learner_changes(const calm_learner *learner, const calm_scheme *scheme)
{
    return scheme->bits && !learner->step.part->refuses(scheme);
}

calm_status calm_learner_run(calm_ctx *ctx, const calm_learner *learner, const calm_learn_problem *problem,
                             calm_learn_outcome *outcome)
{
    CALM_SCOPED_SCRATCH(ctx);
    return learner->step.part->run.block->learn(ctx, problem, learner->step.opts, outcome);
}

size_t calm_learner_run_scratch_bytes(const calm_learner *learner, const calm_learn_problem *problem)
{
    return learner->step.part->run.block->memory(problem, learner->step.opts);
}
