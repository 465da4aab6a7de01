/* Unread: tensors in a checkpoint's files that stand where the model has others, and that nothing reads: biases, or
 * norms of q and k, that config.json switches off.  Parts of another model next to this one (vision, mtp) are not
 * meant, nor what follows from config.json, nor biases that are 0. */
#pragma once

#include "ptq/model/model.h"

/* Does nothing read it, and is it of this model? */
calm_status calm_model_is_unread(calm_ctx *ctx, const calm_config *config, const calm_layout *layout,
                                 const char *prefix, const calm_tensor *tensor, bool *out);

/* Why, in ctx->scratch: "config.json says \"attention_bias\" false".  `root` is the text model's configuration. */
calm_status calm_model_unread_reason(calm_ctx *ctx, const calm_config *config, const calm_layout *layout,
                                     const calm_json *root, const char *name, const char **out);

/* Log a warning for each kind of such tensors: the first one's name and file, how many there are of other numbers, and
 * why. */
calm_status calm_model_warn_unread(calm_ctx *ctx, const calm_model *model);
