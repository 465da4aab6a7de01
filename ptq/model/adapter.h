/* Adapters: a LoRA adapter as PEFT writes it, merged into a float model while that is read.
 *
 * adapter_config.json and adapter_model.safetensors say for a linear W [out, in] the matrices A [r, in] and B [out, r]:
 * it becomes W + s B A, s = lora_alpha / r, or / sqrt(r) with use_rslora.  The sum is made in float32, each product in
 * the order of r, and rounded once to W's own dtype: a merged checkpoint would hold these numbers.  (PEFT rounds s B A
 * first, so that a 16-bit checkpoint it merged differs by what that rounding takes.)  Whole tensors
 * (modules_to_save, biases) take the place of the model's.  Nothing is held: tensors are merged as they are read. */
#pragma once

#include "ptq/model/layout.h"
#include "ptq/io/safetensors.h"

/* The open files of an adapter, whose tensors the merged set reads. */
typedef struct calm_adapter calm_adapter;

/* The model that is merged into. */
typedef struct calm_adapter_base {
    const calm_config *config;
    const char *dir, *prefix;
    calm_safetensors *set;
} calm_adapter_base;

/* Put the adapter of folder `dir` into the set of the base; what the set needs is in ctx->out and in *out, which is
 * closed after it, also after a failure.  `accepted`: keys of adapter_config.json that are taken to change nothing.
 * CALM_ENOTFOUND: no adapter there, or the model has no such tensor.  CALM_EUNSUPPORTED: another kind than plain LoRA,
 * by its name.  CALM_EFORMAT: ranks and shapes that do not agree, A without B. */
calm_status calm_adapter_merge(calm_ctx *ctx, const char *dir, const calm_words *accepted,
                               const calm_adapter_base *base, calm_adapter **out);
void calm_adapter_close(calm_adapter *adapter);

/* CALM_EUNSUPPORTED where `dir` holds an adapter and no model, with what the adapter is and what to do. */
calm_status calm_adapter_is_no_model(calm_ctx *ctx, const char *dir);

/* Names of an adapter's files. */
#define CALM_ADAPTER_CONFIG "adapter_config.json"
#define CALM_ADAPTER_TENSORS "adapter_model.safetensors"
