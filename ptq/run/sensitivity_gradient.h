/* Sensitivities of units from gradients, instead of probes. */
#ifndef CALM_RUN_SENSITIVITY_GRADIENT_H
#define CALM_RUN_SENSITIVITY_GRADIENT_H

#include "ptq/run/run_impl.h"

/* Estimate what probes of units measure, the divergence of the model with that unit alone quantized, from one forward
 * and one backward pass of the float model over the windows held out, and put it as the score gradient_kl of the unit's
 * candidates.  What has the score already is left out; a unit with a failed candidate gets none.  Decoders alone. */
calm_status calm_run_gradient(calm_ctx *ctx, calm_run *run, calm_unit unit, const calm_probe *probes, size_t n);

#endif
