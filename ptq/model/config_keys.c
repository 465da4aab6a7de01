/* Keys of config.json: read, harmless, or refused.
 *
 * A key that nothing reads may change the computation in a way calm does not know.  It is refused unless it is off -
 * null, false or empty - or listed here as one that the forward pass never looks at. */
#include <string.h>

#include "ptq/model/arch.h"

/* Read by config.c and config_rope.c for every family, and the entry of quantized checkpoints. */
static const char common[] =
    "architectures model_type hidden_size intermediate_size num_hidden_layers vocab_size max_position_embeddings "
    "num_attention_heads num_key_value_heads head_dim tie_word_embeddings torch_dtype dtype quantization_config "
    "quantization";

/* Read where there is a rotary embedding; where there is RMSNorm; where there is LayerNorm. */
static const char rotary[] =
    "rope_theta rope_scaling rope_parameters partial_rotary_factor original_max_position_embeddings";

/* Training, generation and bookkeeping: no influence on logits. */
static const char harmless[] =
    "transformers_version use_cache initializer_range bos_token_id eos_token_id pad_token_id sep_token_id "
    "mask_token_id cls_token_id unk_token_id decoder_start_token_id attention_dropout resid_pdrop embd_pdrop "
    "hidden_dropout hidden_dropout_prob attention_probs_dropout_prob classifier_dropout pretraining_tp "
    "cache_implementation router_aux_loss_coef router_jitter_noise output_router_logits gradient_checkpointing "
    "output_attentions output_hidden_states return_dict torchscript id2label label2id problem_type finetuning_task "
    "task_specific_params auto_map tokenizer_class attn_implementation chunk_size_feed_forward use_bfloat16 "
    "num_logits_to_keep max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty "
    "temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences return_dict_in_generate output_scores "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens prefix model_name unsloth_version unsloth_fixed is_llama_config transformers.js_config "
    "max_window_layers hidden_act layer_norm_eps rms_norm_eps output_past max_sequence_length model_max_length";

/* Settings of code that came with a checkpoint, at the value at which they do nothing. */
static bool is_neutral(const char *key, const calm_json *value)
{
    return calm_arch_listed("full_attn_mod interpolate_factor", ' ', key) && calm_json_number(value, 0) == 1;
}

/* A value at which an unknown setting does nothing. */
static bool is_off(const calm_json *value)
{
    const calm_json_type type = calm_json_typeof(value);
    /* Zero is not "off": as a number it is a value like any other. */
    return type == CALM_JSON_NULL || (type == CALM_JSON_BOOL && !calm_json_bool(value, true)) ||
           (type == CALM_JSON_STRING && calm_json_string_length(value) == 0) ||
           ((type == CALM_JSON_ARRAY || type == CALM_JSON_OBJECT) && calm_json_size(value) == 0);
}

/* Written by models whose code can run both ways: what it must say for this family. */
static bool is_usual(const calm_arch *arch, const char *key, const calm_json *value)
{
    return strcmp(key, "is_causal") != 0 || calm_json_bool(value, !arch->both_ways) == !arch->both_ways;
}

static bool is_size(const calm_size_keys *sizes, const char *key)
{
    const char *const keys[] = {sizes->hidden, sizes->inner,     sizes->blocks,    sizes->heads,
                                sizes->eps,    sizes->positions, sizes->activation};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i] && strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* Does something read the key, or does it not matter for this family? */
static bool is_known(const calm_arch *arch, const char *key, const calm_json *value)
{
    /* Keys with an underscore are bookkeeping of transformers ("_name_or_path"). */
    const calm_size_keys *sizes[2] = {arch->sizes, arch->old_sizes};
    for (int i = 0; i < 2; i++)
        if (sizes[i] && is_size(sizes[i], key))
            return true;
    return key[0] == '_' || is_off(value) || is_neutral(key, value) || strcmp(key, "is_causal") == 0 ||
           calm_arch_listed(common, ' ', key) || (arch->theta_key && strcmp(key, arch->theta_key) == 0) ||
           (arch->local_theta_key && strcmp(key, arch->local_theta_key) == 0) || calm_arch_listed(harmless, ' ', key) ||
           (arch->keys && calm_arch_listed(arch->keys, ' ', key)) ||
           (arch->default_rope_theta > 0 && calm_arch_listed(rotary, ' ', key));
}

calm_status calm_config_check_keys(calm_ctx *ctx, const char *path, const calm_json *root, const calm_arch *arch)
{
    const char *key;
    const calm_json *value;
    for (void *iter = NULL; calm_json_next(root, &iter, &key, &value);)
        if (!is_known(arch, key, value) || !is_usual(arch, key, value))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: \"%s\" is not a setting that calm knows for %s; it may change what the model "
                             "computes. If it does not, take it out of config.json", path, key, arch->name);
    return CALM_OK;
}
