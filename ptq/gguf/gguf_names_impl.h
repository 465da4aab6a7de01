/* Maps a GGUF file's names back to a checkpoint's.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/gguf/gguf_names.h"

/* llama.cpp's name of the choice bias of a router, a tensor without module in checkpoints. */
#define CALM_GGUF_CHOICE_BIAS "exp_probs_b.bias"

/* Makes the checkpoint's name of the tensor at `spot`, in ctx->out; the caller sets the spot's name and expert, the
 * function its other fields.  *out NULL: an unknown tensor, or one that checkpoints do not have. */
calm_status calm_gguf_name_of(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                              calm_gguf_spot *spot, char **out);

/* Returns the number of experts in a tensor that holds a matrix or a bias of each expert, or the number of streams less
 * one in a tensor with a matrix of each; 0: any other tensor. */
size_t calm_gguf_experts_in(const calm_gguf_tensor *tensor);
