/* Garbage collection: removes the rows and blobs that no kept run needs, and shrinks the database file.
 *
 * A run is kept unless the plan names it or keeps only newer ones.  A kept run needs its pool's candidates with their
 * scores, its choices, the evaluations that it refers to, its model with blocks and jobs, and its calibration with the
 * activations; an unfinished run also needs every candidate and evaluation that it would find when it continues.
 *
 * Crash-safe: the rows are removed in one transaction that is on disk before the first blob is removed, so that no row
 * ever names a missing blob.  A killed process leaves blobs without rows, which the next collection removes. */
#pragma once

#include "store/store.h"

typedef struct calm_gc_plan {
    const int64_t *drop;    /* [n_drop] runs to drop                                       */
    size_t n_drop;
    int64_t keep;           /* number of newest runs to keep; < 0: all                     */
    bool dry_run;           /* count only; the store may be open for reading               */
} calm_gc_plan;

/* Rows removed from one table, or removed files. */
typedef struct calm_gc_kind {
    const char *kind;      /* the table's name, "guard" for CALM_STORE_GUARD, or "blob", the last; static */
    int64_t rows, bytes;   /* bytes of values: a text's length, 8 per number; of files: their sizes       */
} calm_gc_kind;

typedef struct calm_gc_result {
    const int64_t *dropped, *kept;    /* [n_dropped], [n_kept] runs by number; ctx->out */
    size_t n_dropped, n_kept;
    const calm_gc_kind *kinds;        /* [n_kinds] every table, "guard", "blob", also without removals; ctx->out */
    size_t n_kinds;
    int64_t rows;                     /* removed rows of all tables                                        */
    int64_t beside_bytes;             /* removed bytes of files next to the database: blobs, the guard's file */
    int64_t bytes_before, bytes_after;    /* of the database file; equal in a dry run */
    const char *note;                 /* one sentence, why the file did not shrink although it could; NULL: none */
} calm_gc_result;

/* Opens the store at `path`, collects, and closes it.
 * CALM_ENOTFOUND: there is no store, or no run of a number in plan->drop; the message names the runs that exist, and
 * nothing was changed.  Other failures before the removal of rows change nothing either; after a later failure the rows
 * are removed, and the next collection continues. */
calm_status calm_store_gc_file(calm_ctx *ctx, const char *path, const char *command, const calm_gc_plan *plan,
                               calm_gc_result *out);
