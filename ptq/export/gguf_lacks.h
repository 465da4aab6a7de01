/* Finds what llama.cpp's code of an architecture cannot compute in a model. */
#pragma once

#include "ptq/model/gguf_names.h"

/* Deviations above the mean at which Gemma 3n's first blocks cut off values: the quantile of 0.95, all that llama.cpp
 * has. */
#define CALM_GGUF_SPARSITY 1.6448533535003662F

/* The reason, for a message: a setting that the kinds of the model's blocks have and llama.cpp has not, or has in one
 * way only; NULL: there is none. */
const char *calm_gguf_lacks(const calm_config *config, const calm_gguf_arch *as);

/* Of a model in which blocks 0, n, 2 n, ... see everything and the others slide: n; 0: all slide; SIZE_MAX: it is none
 * such. */
size_t calm_gguf_global_step(const calm_config *config);

/* Has the file the two dense layers that modules.json lists behind the pooling?  llama.cpp knows them in
 * gemma-embedding, without bias and function. */
bool calm_gguf_has_dense(const calm_config *config);

/* Of a model with experts in every n-th block: n; 0: no block has any, or others do. */
size_t calm_gguf_moe_step(const calm_config *config);
