/* The calibration windows of a stored run, read again from its text. */
#ifndef CALM_RUN_STORED_WINDOWS_H
#define CALM_RUN_STORED_WINDOWS_H

#include "ptq/run/stored_run.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"

/* Read the text that the run's recipe names, with the tokenizer in `model_dir`, into ctx->out: exactly the run's
 * windows.  A relative path counts from the working folder, a bundled text from CALM_HOME.
 *   model   the float model, for the size of its vocabulary
 * CALM_ENOTFOUND: there is no such text.  CALM_EMISMATCH: it gives other windows than the run had; the message has
 * both.  CALM_EFORMAT: the store's recipe or digest is damaged.  The failures of the tokenizer. */
calm_status calm_stored_run_windows(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, calm_model *model,
                                char *model_dir, calm_windows *out);

#endif
