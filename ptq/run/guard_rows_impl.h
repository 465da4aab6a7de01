/* Rows of the guard as the files that use them share them.  Only guard_*.c include it. */
#ifndef CALM_RUN_GUARD_ROWS_IMPL_H
#define CALM_RUN_GUARD_ROWS_IMPL_H

#include "ptq/run/guard_rows.h"

/* Class of a plan that is not followed any more. */
#define CALM_GUARD_GONE SIZE_MAX

/* A plan that is followed. */
typedef struct calm_guard_plan {
    size_t *choice;               /* [n_jobs] entries of the pool, of the blocks so far; NULL: `plan` is known */
    const calm_plan *plan;        /* in the block that is being passed at least                                */
    size_t of_class, next;        /* before and behind that block; or CALM_GUARD_GONE                          */
    char key[CALM_SHA256_HEX];    /* of the whole plan, once it is known                                       */
} calm_guard_plan;

typedef struct calm_guard_rows {
    const calm_windows *windows;
    calm_rope rope;
    const char *path, *new_path, *dir;
    char identity[CALM_SHA256_HEX];    /* of run and windows; empty: the file has no name, and no
                                        * later run goes on with it                                  */
    size_t position;                   /* blocks that are passed                                     */
    size_t rows, head;                 /* of a class; of the header                                  */
    calm_row_store file;               /* at position 0 there is none                                */
    calm_guard_plan *plans;            /* [n] of the guard: the hybrid, then each uniform run        */
    size_t n;
    bool finished;                     /* behind the last block, and keys are known                  */
} calm_guard_rows;

/* Rows of n plans before the first block, in the run's arena; the plans are all zero. */
calm_status calm_guard_rows_open(calm_ctx *ctx, calm_run *p, const calm_windows *windows, size_t n,
                                 calm_guard_rows **out);

/* Go on with the file of a run that was killed.  One that cannot be read is as none: what it saves is computed
 * again. */
calm_status calm_guard_rows_load(calm_ctx *ctx, const calm_run *p, calm_guard_rows *rows);

/* Let p->guard_rows pass the next block, in which all plans are known; those that cannot leave. */
calm_status calm_guard_rows_cross(calm_ctx *ctx, const calm_run *p);

/* After the choice: pass the blocks that are left, and find the plans that the rows are of (guard_follow.c). */
calm_status calm_guard_rows_finish(calm_ctx *ctx, calm_run *p);

#endif
