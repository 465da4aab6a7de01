/* A run under a lock: its inputs are compared before it, its outputs after it. */
#ifndef CALM_RUN_LOCK_RUN_H
#define CALM_RUN_LOCK_RUN_H

#include "ptq/recipe/spec.h"
#include "ptq/run/lock.h"
#include "ptq/run/run.h"

typedef struct calm_locked_run {
    calm_run *run;                   /* NULL: inputs differ, so it did not                    */
    calm_json *lock;                 /* of the run; NULL: none is written (several budgets)   */
    calm_differences differences;    /* from the expected lock                                */
} calm_locked_run;

/* Run the recipe of a spec and make its lock.
 *   expected   a lock: inputs are compared before the run, which is skipped when they differ; outputs are compared
 *              after it.  NULL: nothing is compared
 * Close also after a failure.  Fails as calm_lock_inputs, calm_run_quantize and calm_lock_new do. */
calm_status calm_locked_run_do(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe,
                               const calm_run_options *options, const calm_json *expected, calm_locked_run *out);
void calm_locked_run_close(calm_locked_run *run);

#endif
