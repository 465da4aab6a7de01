/* A store of any size with invented rows in every table, to measure queries and for examples with fixed output.
 *
 * Models of blocks with the jobs qkv, o, gate_up, down (of a mixture: qkv, o and each expert's gate_up and down),
 * calibrations with activations, runs with a pool of their own candidates, scores, choices, guard, test and probe. A
 * counter-based generator draws all values from the seed: except for times, the same sizes and seed give the same
 * rows.  There are no blobs: the digests are invented. */
#ifndef CALM_TESTS_SYNTH_STORE_H
#define CALM_TESTS_SYNTH_STORE_H

#include "ptq/base/context.h"

typedef struct synth_store {
    long long runs, jobs, candidates, scores; /* runs; jobs of a model; candidates of a job and run; scores of each */
    long long models;     /* the runs alternate between them                                                        */
    long long experts;    /* experts per block; 0: dense                                                            */
    long long seed;
} synth_store;

/* Largest number of candidates of a job and run. */
#define SYNTH_STORE_MAX_CANDIDATES 40
#define SYNTH_STORE_MAX_SCORES 20

/* Makes a store at `path`, which must not exist (CALM_EARG); one transaction per run. */
calm_status synth_store_make(calm_ctx *ctx, const char *path, const synth_store *size);

#endif
