/* The checkpoint of a run from the rows and blobs of the store: nothing is computed again, except the importance of
 * inputs for an imatrix, and codes that the store has dropped. */
#ifndef CALM_RUN_REASSEMBLE_H
#define CALM_RUN_REASSEMBLE_H

#include "ptq/base/event.h"
#include "ptq/plan/solve.h"
#include "ptq/run/inputs.h"
#include "ptq/run/outer_rows.h"
#include "ptq/run/stored_pool.h"

typedef struct calm_assemble_options {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;       /* directory of the float model; NULL: where the run read it                */
    bool hybrid;             /* the run's choices, also where a uniform run was its result               */
    calm_words formats;      /* names; none: those of the run                                             */
    calm_export_options export;    /* options of exporters                                                */
    bool force;              /* replace the output                                                       */
    const char *command;     /* as typed                                                                 */
    calm_events events;
} calm_assemble_options;

/* The state of the run before its export, restored. */
typedef struct calm_assembly {
    calm_stored_run run;
    calm_stored_run_pool stored;
    calm_scope scope;            /* what the recipe's pins leave to its units                            */
    size_t *places;              /* [jobs of the pool] job of the model's layout                         */
    calm_recipe recipe;          /* the run's, as far as card and report need it                         */
    const calm_json *document;   /* that is written as calm_recipe.json; borrowed from `run`             */
    calm_inputs in;
    calm_outer_fit head;         /* what the run fitted a head to                                        */
    bool learned;                /* the result is one that was learned or tuned                          */
    calm_result result;
} calm_assembly;

/* Write the checkpoint of a run: its result, or with `hybrid` its choices.  One block is in memory at a time; the
 * directory is complete under its name or not there.  Its files become artifacts of the run.  Close also after a
 * failure.  CALM_EARG, CALM_EEXIST: the output may not be written; the run came to no result.  CALM_ENOTFOUND: no
 * such run, model or blob; for imatrix, no calibration text.  CALM_EMISMATCH: the model, or that text, is another
 * one.  CALM_EFORMAT: a damaged blob, rows that contradict the model. */
calm_status calm_reassemble(calm_ctx *ctx, const calm_assemble_options *options, calm_assembly *out);
void calm_assembly_close(calm_assembly *assembly);

#endif
