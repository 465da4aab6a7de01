/* The way from a GGUF file's names back to a checkpoint's.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/model/gguf_names.h"

/* Of the bias of a router's choice, a tensor without module in checkpoints. */
#define CALM_GGUF_CHOICE_BIAS "exp_probs_b.bias"

/* The name in a checkpoint of what stands at `spot`, in ctx->out; its tensor's name and expert are given, the rest is
 * filled in.  *out is NULL for a tensor that checkpoints do not have, or that is not known. */
calm_status calm_gguf_name_of(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                              calm_gguf_spot *spot, char **out);

/* Of a tensor that holds a matrix, or a bias, of each expert, or a matrix of each stream but one: their number; 0: it
 * is no such tensor. */
size_t calm_gguf_experts_in(const calm_gguf_tensor *tensor);
