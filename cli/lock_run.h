/* Runs with a lock: what `calm quantize` and `calm verify` have in common. */
#ifndef CALM_CLI_LOCK_RUN_H
#define CALM_CLI_LOCK_RUN_H

#include "cli/lock.h"
#include "cli/quantize_options.h"

typedef struct calm_locked_run {
    calm_pipeline pipeline;           /* of a run that took place                                         */
    bool ran;                         /* false: inputs differ, so nothing was computed                    */
    calm_json *lock;                  /* of this run; NULL: it did not take place, or wrote no checkpoint */
    calm_differences differences;     /* from the lock that was given                                     */
} calm_locked_run;

/* Run a recipe, which `opts` were resolved to, and make its lock.  With `expected` inputs are compared before anything is computed, and choices,
 * outputs and figures at the end.  Messages and progress as the options say.  `recipe` must live as long as *out, which is closed also
 * after a failure. */
calm_status calm_locked_run_do(calm_ctx *ctx, const calm_quantize_options *opts, const calm_recipe *recipe,
                               const calm_json *expected, calm_locked_run *out);
void calm_locked_run_close(calm_ctx *ctx, calm_locked_run *run);

#endif
