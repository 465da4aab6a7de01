/* The quantization entry of a compressed-tensors config.json (docs/formats.md section 3.1). */
#pragma once

#include "ptq/export/export.h"

/* Fills in the empty object "quantization_config": one group per scheme of the plan, with disjoint regex targets that
 * match the checkpoint's and the engines' fused names; every linear that stays float is in "ignore". */
calm_status calm_ct_config(calm_ctx *ctx, const calm_export_input *input, calm_json *entry);

/* Does the scheme store each code as a signed byte (int-quantized)?  It does if activations are integers, too. */
bool calm_ct_has_bytes(const calm_scheme *scheme);
