/* Parts of reading a stored run that files of this folder share. */
#pragma once

#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/stored/stored.h"

/* ---- numbers of a stored run's recipe (stored_run.c) ---- */

/* Reads a limit in bits, above 0 and up to `most`; value NULL: the recipe has no such key, and *out stays.
 * CALM_EFORMAT: another value, since a limit that counts as none would be ignored. */
calm_status calm_stored_run_bits(calm_ctx *ctx, const calm_stored_run *run, const char *key, const calm_json *value,
                                 double most, double *out);

/* Read the run's budgets likewise, from its selection, else from its recipe: of weights, the first of several, and of
 * activations. */
calm_status calm_stored_run_budget(calm_ctx *ctx, const calm_stored_run *run, double *out);
calm_status calm_stored_run_act_budget(calm_ctx *ctx, const calm_stored_run *run, double *out);

/* ---- the windows of a stored run (stored_windows.c) ---- */

/* Reads the text of the run's recipe into ctx->out, with the tokenizer in `model_dir`: exactly the run's windows.  A
 * relative path is relative to the working folder, a bundled text is below CALM_HOME.
 *   model   the float model, for the size of its vocabulary
 * CALM_ENOTFOUND: there is no such text.  CALM_EMISMATCH: it gives other windows than the run had; the message has both
 * digests.  CALM_EFORMAT: the store's recipe or digest is damaged.  Fails as the tokenizer does. */
calm_status calm_stored_run_windows(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, calm_model *model,
                                const char *model_dir, calm_windows *out);

/* ---- parts of assembly ---- */

/* Copies the run's measurements from the store to the result: the trials, and the figures of the evaluation's text. */
calm_status calm_assembly_figures(calm_ctx *ctx, calm_assembly *a);

/* Stores the rows of the written files.  A run that wrote nothing before gets its size. */
calm_status calm_assembly_record(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a);

/* Computes the deleted codes that the plan needs again, which needs the run's texts and the time of quantizing.  If
 * that is impossible, the message has the job, the candidate, the reason and a command. */
calm_status calm_assembly_recompute(calm_ctx *ctx, const calm_assemble_options *o, const calm_assembly *a);

/* ---- a choice for a file of limited size (reselect_size.c) ---- */

/* The size limit of a selection; file NULL: none. */
typedef struct calm_reselect_size {
    size_t file_bytes;             /* bytes of the whole file; 0: file_bits is the limit */
    double file_bits;              /* bits per weight of its tensors; 0: file_bytes is the limit */
    const calm_pool_file *file;
    const char *embed, *head;      /* schemes of embedding and head; NULL: as in the run's recipe */
} calm_reselect_size;

/* Computes the size limit: that of the options, else that of the run unless the options have a budget.  With a limit,
 * requests->budget becomes infinite and pool->file describes the limit, in ctx->out.  Embedding and head have the run's
 * types, else the format's usual ones, because the store has no probes of other types.
 * CALM_ENOTFOUND: the model is not where the run read it.  CALM_EMISMATCH: another model is there.  CALM_EUNSUPPORTED:
 * the run rotated the model, or has several formats. */
calm_status calm_reselected_size(calm_ctx *ctx, const calm_reselect_options *options, const calm_stored_run *run,
                                    calm_pool *pool, calm_requests *requests, calm_reselect_size *out);
