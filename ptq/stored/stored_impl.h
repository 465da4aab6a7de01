/* Parts of reading a stored run that the files of this folder share. */
#pragma once

#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/stored/stored.h"

/* ---- its windows (stored_windows.c) ---- */

/* Read the text that the run's recipe names, with the tokenizer in `model_dir`, into ctx->out: exactly the run's
 * windows.  A relative path counts from the working folder, a bundled text from CALM_HOME.
 *   model   the float model, for the size of its vocabulary
 * CALM_ENOTFOUND: there is no such text.  CALM_EMISMATCH: it gives other windows than the run had; the message has
 * both.  CALM_EFORMAT: the store's recipe or digest is damaged.  The failures of the tokenizer. */
calm_status calm_stored_run_windows(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, calm_model *model,
                                const char *model_dir, calm_windows *out);

/* ---- parts of assembly ---- */

/* What the run measured, from the store's rows into the result: the trials that it lists, the test text's figures. */
calm_status calm_assembly_figures(calm_ctx *ctx, calm_assembly *a);

/* The rows of what was written.  A run that wrote nothing yet gets its size. */
calm_status calm_assembly_record(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a);

/* Codes that the plan asks for and the store has dropped are computed again, which takes the run's texts and the time
 * of quantizing.  Where that cannot be, the message says of which job and candidate, why, and what to run. */
calm_status calm_assembly_recompute(calm_ctx *ctx, const calm_assemble_options *o, const calm_assembly *a);

/* ---- a choice for a file of limited size (reselect_size.c) ---- */

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
