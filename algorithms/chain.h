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

/* Is the step left out on such a job (calm_algorithm_agrees)? */
bool calm_algorithm_skips(const calm_step *step, bool absorbs, bool biased);

/* Divide "gptq(damp=0.1)" (cut in place, white space at both ends goes) into the name and its options, NULL: none.
 * CALM_EARG, with the whole `text`: parentheses do not match. */
calm_status calm_step_split(calm_ctx *ctx, const char *text, char **step, char **options);

/* Options of the step whose part is known: "a=1,b=x" (cut in place; NULL: the defaults), in ctx->out.  CALM_EARG: an
 * option is none of the part's, or out of range. */
calm_status calm_step_open(calm_ctx *ctx, const char *text, char *options, calm_step *step);

/* Append name, revision and every option. */
void calm_step_print(const calm_step *step, calm_text *out);
