/* Finds what llama.cpp's code of an architecture cannot compute in a model. */
#pragma once

#include "ptq/gguf/gguf_names.h"

/* Number of standard deviations above the mean below which Gemma 3n's first blocks zero activations: the 0.95 quantile,
 * the only one that llama.cpp has. */
#define CALM_GGUF_SPARSITY 1.6448533535003662F

/* Returns, for a message, a setting of the model's blocks that llama.cpp lacks, or has with one value only; NULL: there
 * is none. */
const char *calm_gguf_lacks(const calm_config *config, const calm_gguf_arch *as);

/* Returns n if blocks 0, n, 2 n, ... have global attention and the others sliding windows; 0: all have sliding windows;
 * SIZE_MAX: another pattern. */
size_t calm_gguf_global_step(const calm_config *config);

/* Does the file get the two dense layers that modules.json lists after the pooling?  llama.cpp has them in
 * gemma-embedding, without bias and activation function. */
bool calm_gguf_has_dense(const calm_config *config);

/* Returns n if exactly every n-th block has experts; 0: no block has, or the pattern is another. */
size_t calm_gguf_moe_step(const calm_config *config);
