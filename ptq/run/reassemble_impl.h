/* Parts of taking a run up again.  Only files of this folder and their tests include it. */
#ifndef CALM_RUN_REASSEMBLE_IMPL_H
#define CALM_RUN_REASSEMBLE_IMPL_H

#include "ptq/run/reassemble.h"

/* What the run measured, from the store's rows into the result: the trials that it lists, the test text's figures. */
calm_status calm_assembly_figures(calm_ctx *ctx, calm_assembly *a);

/* Codes that the plan asks for and the store has dropped are computed again, which takes the run's texts and the time
 * of quantizing.  Where that cannot be, the message says of which job and candidate, why, and what to run. */
calm_status calm_assembly_recall(calm_ctx *ctx, const calm_assemble_options *o, const calm_assembly *a);

#endif
