/* A store of any size with made-up rows in every table: for measuring queries and for examples whose output is fixed.
 *
 * Models of blocks with the jobs qkv, o, gate_up, down (of a mixture: qkv, o and each expert's gate_up and down),
 * calibrations with activations, runs with a pool of their own candidates, scores, choices, guard, test and probe.
 * All is drawn by counter from the seed; times apart, the same sizes and seed give the same rows.  There are no blobs:
 * the digests are made up. */
#ifndef CALM_TESTS_SYNTH_STORE_H
#define CALM_TESTS_SYNTH_STORE_H

#include "ptq/base/context.h"

typedef struct synth_store {
    long long runs, jobs, candidates, scores; /* runs; jobs of a model; candidates of a job and run; scores of each */
    long long models;     /* that the runs take turns on                                   */
    long long experts;    /* of each block; 0: dense                                       */
    long long seed;
} synth_store;

/* Most that a store may have. */
#define SYNTH_STORE_MAX_CANDIDATES 40
#define SYNTH_STORE_MAX_SCORES 20

/* Make a store at `path`, where nothing may be (CALM_EARG); one transaction per run. */
calm_status synth_store_make(calm_ctx *ctx, const char *path, const synth_store *size);

#endif
