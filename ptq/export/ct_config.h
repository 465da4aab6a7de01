/* The quantization entry of a compressed-tensors config.json (docs/formats.md section 3.1). */
#pragma once

#include "ptq/export/export.h"

/* Fill in the entry "quantization_config", an empty object: one group per scheme of the plan, with disjoint regex
 * targets that match the checkpoint's and the engines' fused names; every linear that stays float is in "ignore". */
calm_status calm_ct_config(calm_ctx *ctx, const calm_export_input *input, calm_json *entry);

/* Are codes a signed byte each (int-quantized)?  Next to activations of whole numbers. */
bool calm_ct_has_bytes(const calm_scheme *scheme);
