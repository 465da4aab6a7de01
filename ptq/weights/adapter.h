/* Adapters: a LoRA adapter in PEFT's format, merged into a float model while its tensors are read.
 *
 * adapter_config.json and adapter_model.safetensors hold matrices A [r, in] and B [out, r] for a linear W [out, in],
 * which becomes W + s B A, s = lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.  The sum is computed in
 * float32, products in the order of r, and rounded once to W's dtype.  (PEFT rounds s B A first, so that a 16-bit
 * checkpoint that it merged differs by this rounding.)  Whole tensors (modules_to_save, biases) replace the model's.
 * No merged tensor is stored: each is computed when it is read. */
#pragma once

#include "ptq/arch/layout.h"
#include "ptq/io/safetensors.h"

/* The open files of an adapter, from which the merged set reads. */
typedef struct calm_adapter calm_adapter;

/* The model that is merged into. */
typedef struct calm_adapter_base {
    const calm_config *config;
    const char *dir, *prefix;
    calm_safetensors *set;
} calm_adapter_base;

/* Merges the adapter of folder `dir` into the base's set, which from then on refers to memory in ctx->out and to *out:
 * close *out after the set, also after a failure.  `accepted`: unknown keys of adapter_config.json to ignore.
 * CALM_ENOTFOUND: no adapter in `dir`, or the model lacks one of its tensors.  CALM_EUNSUPPORTED: another kind than
 * plain LoRA, by its name.  CALM_EFORMAT: ranks and shapes that do not match, A without B. */
calm_status calm_adapter_merge(calm_ctx *ctx, const char *dir, const calm_words *accepted,
                               const calm_adapter_base *base, calm_adapter **out);
void calm_adapter_close(calm_adapter *adapter);

/* Fails with CALM_EUNSUPPORTED where `dir` holds an adapter and no model; the message names the adapter's base and what
 * to do. */
calm_status calm_adapter_is_no_model(calm_ctx *ctx, const char *dir);

/* Names of an adapter's files. */
#define CALM_ADAPTER_CONFIG "adapter_config.json"
#define CALM_ADAPTER_TENSORS "adapter_model.safetensors"
