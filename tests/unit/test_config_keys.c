/* Keys of config.json that calm does not read: which are harmless, in which family, and which a caller may accept. */
#include <stdio.h>

#include "ptq/arch/arch.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"

#define N(array) (sizeof(array) / sizeof *(array))

typedef struct family_reads {
    const char *family, *keys;
} family_reads;

static const family_reads reads[] = {
#define CALM_CONFIG_READS(family, keys) {family, keys},
#include "ptq/arch/config_reads.def"
};

static const char *const unread[] = {
#define CALM_CONFIG_UNREAD(name, reason) name,
#define CALM_CONFIG_INERT(name, reason)
#define CALM_CONFIG_CHANGES(name, usual, effect)
#include "ptq/arch/config_keys.def"
#undef CALM_CONFIG_UNREAD
#undef CALM_CONFIG_INERT
#undef CALM_CONFIG_CHANGES
};

static const char *const inert[] = {
#define CALM_CONFIG_UNREAD(name, reason)
#define CALM_CONFIG_INERT(name, reason) name,
#define CALM_CONFIG_CHANGES(name, usual, effect)
#include "ptq/arch/config_keys.def"
#include "ptq/base/text.h"
};

/* Finds a family by name, since several share a model_type. */
static const calm_arch *arch_of(const char *family)
{
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i]->name, family) == 0)
            return all[i];
    return NULL;
}

/* Checks a file with only this key. */
static calm_status judge(const char *family, const char *key, const char *value, const char *accepted)
{
    const calm_arch *arch = arch_of(family);
    const calm_words words = {&accepted, accepted ? 1 : 0};
    const char *text = test_format("{\"%s\": %s}", key, value);
    calm_json *root;
    ck_assert_msg(arch != NULL, "%s", family);
    ck_ok(calm_json_parse(ctx, "text", text, strlen(text), &root));
    const calm_status status = calm_config_check_keys(ctx, "dir/config.json", root, arch, &words);
    calm_json_free(root);
    return status;
}

static bool listed(const char *const *list, size_t n, const char *key)
{
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found |= strcmp(list[i], key) == 0;
    return found;
}

/* Keys left by trainers, tools and older libraries. */
TEST(leftovers)
{
    static const char *const left[][2] = {
        {"loss_type", "\"ForCausalLM\""}, {"neftune_noise_alpha", "5"}, {"use_liger_kernel", "true"},
        {"base_model", "\"meta-llama/Llama-3.1-8B\""}, {"seq_length", "2048"}, {"max_seq_length", "2048"},
        {"unsloth_version", "\"2026.4.2\""}, {"unsloth_fixed", "true"}, {"temperature", "0.6"}, {"top_k", "50"},
        {"num_beams", "4"}, {"repetition_penalty", "1.1"}, {"id2label", "{\"0\": \"a\"}"}, {"problem_type", "\"x\""},
        {"finetuning_task", "\"mnli\""}, {"axolotl_config_path", "\"a.yml\""}, {"sample_packing", "true"},
        {"lora_alpha", "16"}, {"peft_type", "\"LORA\""}, {"finetuning_type", "\"full\""}, {"cutoff_len", "4096"},
        {"train_type", "\"lora\""}, {"tensor_model_parallel_size", "4"}, {"merge_method", "\"slerp\""},
        {"rlhf_type", "\"dpo\""}, {"beta", "0.1"}, {"gradient_checkpointing", "true"}, {"deepspeed", "\"z3.json\""},
        {"tokenizer_model_max_length", "4096"}, {"summary_type", "\"cls_index\""}, {"attn_pdrop", "0.1"},
        {"initializer_factor", "1.0"}, {"use_flash_attn", "true"}, {"load_in_4bit", "true"}, {"global_step", "100"},
        {"sentence_transformers", "{\"version\": \"5\"}"}, {"transformers.js_config", "{\"dtype\": \"q4\"}"},
        {"router_jitter_noise", "0.01"}, {"output_router_logits", "true"}, {"attention_dropout", "0.1"}};
    for (size_t i = 0; i < N(left); i++)
        ck_ok(judge("qwen3", left[i][0], left[i][1], NULL));
}
END_OF_TEST

/* A key that a family's code reads is not harmless there and cannot be accepted: calm reads it, or the table says
 * why no logit depends on it. */
TEST(families)
{
    size_t n_refused = 0;
    for (size_t f = 1; f < N(reads); f++) {
        char keys[4096];
        snprintf(keys, sizeof keys, "%s %s", reads[0].keys, reads[f].keys);
        const calm_arch *arch = arch_of(reads[f].family);
        for (char *key = strtok(keys, " "); key; key = strtok(NULL, " ")) {
            const calm_status status = judge(reads[f].family, key, "\"some value\"", key);
            /* Keys that are not in the family's list are read by calm, except a few that all families share. */
            const bool own = calm_config_own_key(arch, key);
            ck_assert_msg(status == CALM_OK || status == CALM_EUNSUPPORTED, "%s: %s", key, ctx->message);
            ck_assert_msg(!listed(inert, N(inert), key) || status == CALM_OK, "%s, %s", reads[f].family, key);
            ck_assert_msg(own || !listed(unread, N(unread), key) || status != CALM_OK, "%s, %s", reads[f].family, key);
            ck_assert_msg(!own || status == CALM_OK, "%s, %s", reads[f].family, key);
            n_refused += status != CALM_OK;
            calm_ctx_clear_failure(ctx);
        }
    }
    ck_assert_uint_gt(n_refused, 50);
    ck_ok(judge("llama", "is_decoder", "true", NULL));
    ck_ok(judge("bert", "is_decoder", "true", NULL));
    ck_fails(judge("bert", "embedding_size", "8", NULL), CALM_EUNSUPPORTED, "code of the family reads");
    ck_fails(judge("llama", "sliding_window", "4096", "sliding_window"), CALM_EUNSUPPORTED, "cannot lift");
    ck_fails(judge("mixtral", "clip_qkv", "8", "clip_qkv"), CALM_EUNSUPPORTED, "cannot lift");
}
END_OF_TEST

/* Families that read the key accept a number above 0, or null. */
TEST(limit_of_q_k_v)
{
    static const char *const wrong[] = {"0", "-8", "\"8\"", "[8]", "true", "1e9"};
    ck_assert(config_with("olmoe", "clip_qkv", "8").qkv_limit == 8.0F);
    ck_assert(config_with("olmoe", "clip_qkv", "null").qkv_limit == 0.0F);
    for (size_t i = 0; i < N(wrong); i++)
        config_refuses("olmoe", "clip_qkv", wrong[i], CALM_EFORMAT, "clip_qkv");
}
END_OF_TEST

/* An unknown key is refused with the option that accepts it; a key that is known to change logits has no such
 * option. */
TEST(accepting)
{
    ck_fails(judge("llama", "warp_drive", "{\"a\": [1, 2]}", NULL), CALM_EUNSUPPORTED,
             "dir/config.json: \"warp_drive\": {\"a\":[1,2]}: not a setting that calm knows for llama, and calm does "
             "not know what it changes; if it changes nothing in the forward pass: `accept_keys` warp_drive");
    ck_fails(judge("llama", "warp_drive", "1", "warp"), CALM_EUNSUPPORTED, "warp_drive");
    ck_ok(judge("llama", "warp_drive", "1", "warp_drive"));
    ck_fails(judge("llama", "residual_multiplier", "0.22", "residual_multiplier"), CALM_EUNSUPPORTED,
             "\"residual_multiplier\": 0.22: multiplies what sublayers add to the residual, which calm does not "
             "compute for llama; `accept_keys` cannot lift this");
}
END_OF_TEST

/* null turns a setting off, as do false and empty values, unless false changes the model. */
TEST(usual_values)
{
    static const char *const off[] = {"null", "false", "[]", "{}", "\"\""};
    for (size_t i = 0; i < N(off); i++) {
        ck_ok(judge("llama", "warp_drive", off[i], NULL));
        ck_ok(judge("llama", "clip_qkv", off[i], NULL));
    }
    ck_fails(judge("llama", "warp_drive", "0", NULL), CALM_EUNSUPPORTED, "warp_drive");
    ck_ok(judge("llama", "embedding_multiplier", "1.0", NULL));
    ck_fails(judge("llama", "embedding_multiplier", "12", NULL), CALM_EUNSUPPORTED, "embedding_multiplier");
    ck_ok(judge("llama", "num_kv_shared_layers", "0", NULL));
    ck_fails(judge("llama", "num_kv_shared_layers", "2", NULL), CALM_EUNSUPPORTED, "num_kv_shared_layers");
    ck_ok(judge("llama", "use_causal_mask", "true", NULL));
    ck_ok(judge("llama", "use_causal_mask", "null", NULL));
    ck_fails(judge("llama", "use_causal_mask", "false", "use_causal_mask"), CALM_EUNSUPPORTED, "use_causal_mask");
}
END_OF_TEST

int main(void)
{
    return run_tests("config_keys", (const TTest *[]){leftovers, families, limit_of_q_k_v, accepting, usual_values,
                                                      NULL});
}
