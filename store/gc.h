/* Garbage collection: what no kept run needs leaves the store - rows, blobs, and the space that they took in the file.
 *
 * A run is kept unless it is named or older than the newest this many.  A kept run needs its pool's candidates with
 * their scores, its choices, the evaluations that it refers to, its model with blocks and jobs, its calibration with
 * the activations; one that did not finish also every candidate and evaluation that it would find when it continues.
 *
 * Crash-safe: the rows go in one transaction that is on the disk before the first blob is removed, so that no row
 * ever names a missing blob; what a killed process leaves are blobs without rows, which the next collection removes. */
#pragma once

#include "store/store.h"

typedef struct calm_gc_plan {
    const int64_t *drop;    /* [n_drop] runs that go                                       */
    size_t n_drop;
    int64_t keep;           /* only this many of the newest runs stay; < 0: all              */
    bool dry_run;           /* only say what would go; the store may be open for reading   */
} calm_gc_plan;

/* What goes of one table, or of the blobs. */
typedef struct calm_gc_kind {
    const char *kind;      /* name of the table, "guard" of CALM_STORE_GUARD, "blob" at the end; static     */
    int64_t rows, bytes;   /* of the values: text as long as it is, numbers 8; of blobs: sizes of files   */
} calm_gc_kind;

typedef struct calm_gc_result {
    const int64_t *dropped, *kept;    /* [n_dropped], [n_kept] runs by number; ctx->out */
    size_t n_dropped, n_kept;
    const calm_gc_kind *kinds;        /* [n_kinds] every table, "guard", "blob", also what loses nothing; ctx->out */
    size_t n_kinds;
    int64_t rows;                     /* of all tables                                                     */
    int64_t beside_bytes;             /* of files next to the database: blobs, and rows of a guard           */
    int64_t bytes_before, bytes_after;    /* of the database file; equal in a dry run */
    const char *note;                 /* why the file did not shrink, one sentence; NULL: it did, or had no need to */
} calm_gc_result;

/* Open the store at `path`, collect, and close it.
 * CALM_ENOTFOUND: there is no store; a run to drop is not there; the message names those that are, and nothing was
 * changed.  Other failures before the rows have gone change nothing either; after that the rows are gone and another
 * collection continues. */
calm_status calm_store_gc_file(calm_ctx *ctx, const char *path, const char *command, const calm_gc_plan *plan,
                               calm_gc_result *out);
