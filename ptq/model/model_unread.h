/* Unread tensors: tensors next to those of the model's modules that nothing reads: biases, or norms of q and k, that
 * config.json switches off.  Parts of other models (vision, mtp), buffers that follow from config.json, and biases that
 * are 0 do not count. */
#pragma once

#include "ptq/model/model.h"

/* Sets *out to whether the tensor is unread. */
calm_status calm_model_is_unread(calm_ctx *ctx, const calm_config *config, const calm_layout *layout,
                                 const char *prefix, const calm_tensor *tensor, bool *out);

/* Makes the reason, in ctx->scratch: "config.json says \"attention_bias\" false".  `root`: the text model's
 * configuration. */
calm_status calm_model_unread_reason(calm_ctx *ctx, const calm_config *config, const calm_layout *layout,
                                     const calm_json *root, const char *name, const char **out);

/* Logs a warning for each kind of unread tensors (names that differ only in numbers): the first one's name and file,
 * how many more there are, and the reason. */
calm_status calm_model_warn_unread(calm_ctx *ctx, const calm_model *model);
