/* Exceptions of an engine for one family: what its class of that family does differently from its other classes. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/plan/engines.h"

/* Does vLLM's class of a family (calm_arch.name) pass over quantized experts?  gpt-oss has its own list of names
 * (gpt_oss.py, hf_to_vllm_mapper and _load_weights_other), without those of one expert's linears. */
bool calm_engine_passes_over(const char *family);

/* Does vLLM's class of a family move the rows of q and k as its rotary embedding has them, or need not?  Llama 4's
 * (llama4.py, permute_qk_weight_for_rotary) does so for tensors named weight, weight_packed and weight_scale: zero
 * points stay behind, as do all tensors of other formats, and rows of blocks cannot be moved. */
bool calm_engine_moves_rows(const char *family, const char *format, bool symmetric, bool blocks);

/* Tensors of a family's quantized linear ("attn.Wqkv") that transformers 5.23 does not read, a list that NULL ends;
 * NULL: it reads all.  Of GTE and Nomic's BERT it splits rows (conversion_mapping.py), and what belongs to all rows
 * stays with the first part; ModernBERT's initialization wants a `weight` of each linear, which packed ones lack. */
const char *const *calm_engine_unread_parts(const char *family, const char *module);

/* How transformers 5.23 holds the experts of a model (calm_arch.name, model_type of the text) in compressed-tensors. */
typedef enum calm_engine_experts {
    CALM_ENGINE_EXPERTS_JOINED,    /* those of the files are put into one tensor: of codes packed words and FP8 alone,
                                    * floats next to FP8 alone (integrations/compressed_tensors.py) */
    CALM_ENGINE_EXPERTS_WHOLE,     /* the files have them in one tensor (conversion_mapping.py joins none)           */
    CALM_ENGINE_EXPERTS_MODULES    /* a module each, once anything is quantized (quantizers/base.py)                 */
} calm_engine_experts;
calm_engine_experts calm_engine_holds_experts(const char *family, const char *model_type);

/* Does transformers' class run shared experts of a family on tokens in one row after the other, [tokens, width]?
 * compressed-tensors 0.20 takes one scale for all of these, where others take one for each token. */
bool calm_engine_flattens_shared(const char *family);

/* A quantized job of a plan. */
typedef struct calm_engine_own {
    const char *name;
    bool expert, turns;    /* of an expert; q, k and v, which are turned by their position */
    const calm_scheme *scheme;
} calm_engine_own;

/* CALM_EARG where the engine would load it and compute otherwise, with what would do. */
calm_status calm_engine_check_family(calm_ctx *ctx, const calm_engine *engine, const char *format, const char *family,
                                     const calm_engine_own *own);
