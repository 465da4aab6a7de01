/* What the Qwen families' configs have in common: blocks from max_window_layers on slide, if use_sliding_window. */
#ifndef CALM_MODEL_QWEN_H
#define CALM_MODEL_QWEN_H

#include "ptq/model/arch.h"

/* Fill config->window; `slides` receives max_window_layers (28 when absent) as its pattern. */
calm_status calm_qwen_windows(calm_ctx *ctx, const char *path, const calm_json *root, calm_slides_fn *slides,
                              calm_config *config);

/* Block >= max_window_layers: Qwen2 and Qwen3. */
bool calm_qwen_slides(size_t block, int64_t max_window_layers);

#endif
