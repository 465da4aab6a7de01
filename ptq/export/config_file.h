/* Writes config.json of a checkpoint: a byte-for-byte copy of the float model's file, except for these members.
 *
 *   the quantization entry           added before the closing brace
 *   tie_word_embeddings              false if the files hold a separate head */
#pragma once

#include "ptq/base/text.h"
#include "ptq/model/model.h"

/* Does config.json tie a head to the embedding, although the model has a separate head with other values? */
bool calm_export_unties_head(const calm_model *model);

/* Writes dir/config.json with `value`, JSON with an indent of 2, as the value of each of the members `keys` [n]. */
calm_status calm_export_write_config(calm_ctx *ctx, const calm_model *model, const char *dir, const char *const *keys,
                              size_t n, const char *value);
