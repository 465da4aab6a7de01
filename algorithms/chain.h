/* A parsed algorithm: what chain.c makes and run.c executes. */
#ifndef CALM_ALGORITHMS_CHAIN_H
#define CALM_ALGORITHMS_CHAIN_H

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

#endif
