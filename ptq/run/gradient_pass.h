/* One pass of gradients back through the blocks of the float model, over windows of the calibration.
 *
 * The gradient is that of predictions in directions drawn at random, whose covariance is the second derivative of the
 * KL divergence to the float model (ptq/eval/predict_sample.h): the divergence itself has none there. */
#ifndef CALM_RUN_GRADIENT_PASS_H
#define CALM_RUN_GRADIENT_PASS_H

#include "ptq/run/run_impl.h"

typedef struct calm_gradient_pass calm_gradient_pass;

/* What is done with the gradient of what leaves a block; it may write to pass->work. */
typedef calm_status calm_gradient_visit(calm_ctx *ctx, calm_gradient_pass *pass, size_t block);

struct calm_gradient_pass {
    /* What is asked. */
    const calm_run *run;
    size_t n_windows;                /* of the calibration, the first ones                                        */
    const char *key;                 /* of the recipe, that a failure is about: "choice.sensitivity"              */
    calm_stage stage;                /* of its progress                                                           */
    size_t first_block;              /* the gradient goes back as far as to what enters this block                */
    calm_gradient_visit *visit;      /* for every block whose output it reaches, from the last on; NULL: none     */
    void *user;
    size_t n_visits;                 /* steps of progress that visits of all blocks make (calm_gradient_pass_tick) */
    float *const *lengths;           /* [n_blocks * CALM_N_JOBS] of [rows of all windows]: the length of the gradient
                                      * at a job's outputs is written there, of blocks from first_block on; or NULL,
                                      * as one of them may be: not wanted */
    /* Where it stands. */
    calm_windows windows;
    calm_predictors set;             /* the float model's head                                                    */
    calm_batch *inputs;              /* [n_blocks + 1] of the windows in work: what enters each block             */
    calm_batch work;                 /* of the same windows                                                       */
    float *d;                        /* [rows, D] the gradient of what leaves the block in work                   */
    size_t done, total;              /* steps, for progress                                                       */
};

/* Run it.  The same bytes for any number of threads, and of windows that go through the model together.  CALM_EARG:
 * windows of one token predict nothing.  CALM_ENUMERIC: a value is not finite, naming the block. */
calm_status calm_gradient_pass_run(calm_ctx *ctx, calm_gradient_pass *pass);

/* A step of a visit is done. */
void calm_gradient_pass_tick(calm_gradient_pass *pass);

/* Of n windows so many go through the model together; the most that it holds then, besides a block. */
size_t calm_gradient_pass_windows(const calm_run *run, size_t n);
size_t calm_gradient_pass_bytes(const calm_run *run, size_t n, size_t n_threads);

#endif
