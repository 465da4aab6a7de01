/* config.json of a checkpoint that is written: the float model's text, every byte as it was, but for what the files
 * change.
 *
 *   the entry of the quantization    added before the closing brace
 *   tie_word_embeddings              false where the files hold a head of their own */
#ifndef CALM_EXPORT_CONFIG_FILE_H
#define CALM_EXPORT_CONFIG_FILE_H

#include "ptq/base/text.h"
#include "ptq/model/model.h"

/* Does config.json tie a head to the embedding, although the model has one of its own, with other values? */
bool calm_config_ties_own_head(const calm_model *model);

/* Append a JSON object's `text` [n] to `out` with the member `key`, of the object itself, set to `value`, which is
 * JSON; a member that is not there becomes the last. */
void calm_config_set_member(const char *text, size_t n, const char *key, const char *value, calm_text *out);

/* Write dir/config.json with `value`, JSON with an indent of 2, as each of the members `keys` [n]. */
calm_status calm_config_write(calm_ctx *ctx, const calm_model *model, const char *dir, const char *const *keys,
                              size_t n, const char *value);

#endif
