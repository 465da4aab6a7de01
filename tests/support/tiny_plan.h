/* Plans for tiny models: jobs rounded to the nearest point of their grid, with input scales drawn at random.
 *
 * No algorithm and no calibration takes part: what is tested is what becomes of codes and scales. */
#ifndef CALM_TESTS_TINY_PLAN_H
#define CALM_TESTS_TINY_PLAN_H

#include "ptq/plan/plan.h"
#include "ptq/model/model.h"

/* How input scales are drawn; jobs that cannot take one have none. */
typedef enum tiny_scales { TINY_UNSCALED, TINY_POWERS_OF_TWO, TINY_GENERAL } tiny_scales;

/* An open model and a plan for it; jobs that were not quantized stay float. */
typedef struct tiny_plan {
    calm_model *model;
    calm_plan plan;
    calm_qjob *qjobs;    /* [n_jobs] */
    void **blobs;        /* [n_jobs] after tiny_plan_pack, and their bytes */
    size_t *n_bytes;
    calm_block block;    /* the one that was quantized last; -1: none */
    long loaded;
} tiny_plan;

/* Open a checkpoint; every job is float.  Everything else lives in ctx->out; close with calm_model_close. */
void tiny_plan_open(tiny_plan *out, const char *dir);

/* Quantize job `index` of the layout; "float" leaves it as it is. */
void tiny_plan_quantize(tiny_plan *p, size_t index, const char *scheme, tiny_scales scales);

/* Give job `index`, or every job, a random correction of its biases; jobs that stay float have none. */
void tiny_plan_correct(tiny_plan *p, size_t index);
void tiny_plan_correct_all(tiny_plan *p);

/* The same for every job: schemes [n] take turns. */
void tiny_plan_quantize_all(tiny_plan *p, const char *const *schemes, size_t n, tiny_scales scales);

/* One scheme for all experts, as readers want it; the others take turns over blocks and kinds of jobs. */
void tiny_plan_quantize_family(tiny_plan *p, const char *const *schemes, size_t n);

/* Fetch from blobs from now on, as runs do: what is fetched is all in ctx->out. */
void tiny_plan_pack(tiny_plan *p);

/* Float weights [CALM_N_ROLES] of the block or one of its experts. */
const calm_weight *tiny_plan_weights(const calm_block *block, long expert);

#endif
