/* A parsed algorithm: chain.c makes it from text, run_chain.c executes it. */
#pragma once

#include "algorithms/part.h"

#define CALM_CHAIN_MAX 16

typedef struct calm_step {
    const calm_part *part;
    void *opts;    /* of part->opts_size bytes */
} calm_step;

struct calm_algorithm {
    const char *name, *canonical;
    unsigned caps;
    size_t n_steps;
    calm_step steps[CALM_CHAIN_MAX];    /* in the order transform* grid rounding refit* */
};

/* Does a run skip the step on such a job?  For `absorbs` and `biased` see calm_algorithm_agrees. */
bool calm_algorithm_skips(const calm_step *step, bool absorbs, bool biased);

/* Splits *step, "gptq(damp=0.1)", in place into the trimmed name *step and *options, NULL: none.  CALM_EARG, quoting
 * the whole `text`: the parentheses do not match. */
calm_status calm_step_split(calm_ctx *ctx, const char *text, char **step, char **options);

/* Parses the options "a=1,b=x" (split in place; NULL: the defaults) of step->part into step->opts, in ctx->out.
 * CALM_EARG, quoting `text`: the part has no such option, or the value is out of range. */
calm_status calm_step_open(calm_ctx *ctx, const char *text, char *options, calm_step *step);

/* Appends the step's name, revision and every option. */
void calm_step_print(const calm_step *step, calm_text *out);
