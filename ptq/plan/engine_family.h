/* Exceptions for one model family: what an engine's class for that family does differently from its other classes. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/plan/engines.h"

/* Returns true if vLLM's class for a family (calm_arch.name) does not load quantized experts.  gpt-oss has its own map
 * of names (gpt_oss.py, hf_to_vllm_mapper and _load_weights_other), which lacks the linears of single experts. */
bool calm_engine_skips_experts(const char *family);

/* Returns true if vLLM's class for a family permutes the rows of q and k for its rotary embedding correctly, or need
 * not.  Llama 4's class (llama4.py, permute_qk_weight_for_rotary) permutes only the tensors weight, weight_packed and
 * weight_scale: it leaves zero points and the tensors of other formats unpermuted, and it cannot permute rows of blocks
 * (`blocks`). */
bool calm_engine_moves_rows(const char *family, const char *format, bool symmetric, bool blocks);

/* Returns the tensor suffixes of a family's quantized linear `module` ("attn.Wqkv") that transformers 5.23 does not
 * read, as a NULL-terminated list; NULL: transformers reads all.  For GTE and Nomic's BERT transformers splits the rows
 * of a fused linear (conversion_mapping.py), and only the first part keeps a tensor that belongs to all rows.
 * ModernBERT's initialization needs a tensor `weight` in each linear, which packed linears lack. */
const char *const *calm_engine_unread_parts(const char *family, const char *module);

/* How transformers 5.23 stores the experts of a model in compressed-tensors (family: calm_arch.name; model_type: that
 * of the text model). */
typedef enum calm_engine_experts {
    CALM_ENGINE_EXPERTS_JOINED,    /* it joins experts of the files into one tensor: quantized ones as packed words or
                                    * FP8 only, float ones next to FP8 only (integrations/compressed_tensors.py)    */
    CALM_ENGINE_EXPERTS_WHOLE,     /* the files store experts in one tensor (conversion_mapping.py joins none)      */
    CALM_ENGINE_EXPERTS_MODULES    /* one module per expert if anything is quantized (quantizers/base.py)           */
} calm_engine_experts;
calm_engine_experts calm_engine_holds_experts(const char *family, const char *model_type);

/* Returns true if transformers' class runs a family's shared experts on the tokens of all batch rows as one matrix
 * [tokens, width].  Then compressed-tensors 0.20 takes one activation scale for all tokens instead of one per token. */
bool calm_engine_flattens_shared(const char *family);

/* A quantized job of a plan, as the family's exceptions see it. */
typedef struct calm_engine_job {
    const char *name;
    bool expert, turns;    /* expert: of an expert; turns: q, k and v, to which the rotary embedding is applied */
    const calm_scheme *scheme;
} calm_engine_job;

/* Returns CALM_EARG, with a remedy, if the engine would load the job and compute something else, or not load it. */
calm_status calm_engine_check_family(calm_ctx *ctx, const calm_engine *engine, const char *format, const char *family,
                                     const calm_engine_job *own);
