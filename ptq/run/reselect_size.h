/* The size of a file as the budget of a selection: the one thing of it that reads the model's headers. */
#ifndef CALM_RUN_RESELECT_SIZE_H
#define CALM_RUN_RESELECT_SIZE_H

#include "ptq/run/reselect.h"

/* A size that a selection keeps to; file NULL: none. */
typedef struct calm_reselect_size {
    size_t file_bytes;             /* of all of the file; 0: bits are asked                       */
    double file_bits;              /* per weight of its tensors; 0: bytes are                     */
    const calm_pool_file *file;
    const char *embed, *head;      /* schemes that the tables have; NULL: as the run's recipe     */
} calm_reselect_size;

/* The size that the options ask, else that the run kept to unless they ask for a budget; then requests->budget is
 * infinite and pool->file says what it is, in ctx->out.  Tables are as in the run, else the format's usual ones: no
 * probes of them are stored with units.
 * CALM_ENOTFOUND: the model is not where the run read it.  CALM_EMISMATCH: another one is.  CALM_EUNSUPPORTED: the run
 * rotated it; several formats. */
calm_status calm_reselected_size(calm_ctx *ctx, const calm_reselect_options *options, const calm_stored_run *run,
                                    calm_pool *pool, calm_requests *requests, calm_reselect_size *out);

#endif
