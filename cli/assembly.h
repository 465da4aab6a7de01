/* The checkpoint of a run from what the store has: nothing is computed again but, for imatrix, what inputs weigh. */
#ifndef CALM_CLI_ASSEMBLY_H
#define CALM_CLI_ASSEMBLY_H

#include "cli/pipeline.h"
#include "cli/stored_pool.h"

typedef struct calm_assemble_options {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;       /* directory of the float model; NULL: where the run read it                */
    bool hybrid;             /* the run's choices, also where a uniform run was its result               */
    const char *formats;     /* list of names; NULL: those of the run                                     */
    calm_export_options export;    /* what exporters may be told                                          */
    bool force;              /* replace the output                                                       */
    const char *command;     /* as typed                                                                 */
} calm_assemble_options;

typedef struct calm_assembly {
    calm_stored_run run;
    calm_stored_pool stored; /* its pool                                                             */
    calm_scope scope;        /* what the recipe's pins leave to its units                            */
    calm_recipe recipe;      /* as much of the run's as its report needs                                 */
    calm_pipeline p;         /* the same run, standing where it exports                                  */
    size_t stage;            /* of the progress                                                          */
} calm_assembly;

/* Write the checkpoint of a run: what its result was, or its choices.  One block is in memory at a time; the directory
 * is complete under its name or not there.  Its files become artifacts of the run.  Close also after a failure.
 * CALM_EARG, CALM_EEXIST: the output may not be written; the run came to no result.  CALM_ENOTFOUND: no such run,
 * model or blob; for imatrix, no calibration text.  CALM_EMISMATCH: the model, or that text, is another one.
 * CALM_EFORMAT: a damaged blob, rows that contradict the model. */
calm_status calm_assemble(calm_ctx *ctx, const calm_assemble_options *options, calm_progress *progress,
                          calm_assembly *out);
void calm_assembly_close(calm_assembly *assembly);

/* Says what was written, with the command's own options. */
typedef calm_status calm_assembled_fn(calm_ctx *ctx, const void *opts, const calm_assembly *assembly);

/* The whole of a command: assemble with progress (none when `quiet`), tell, close. */
calm_status calm_assemble_and_tell(calm_ctx *ctx, const calm_assemble_options *options, bool quiet, calm_assembled_fn *tell,
                                   const void *opts);

#endif
