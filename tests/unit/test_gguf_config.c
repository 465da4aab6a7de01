/* config.json from a GGUF file, for every family: the settings that calm reads are those of the float model. */
#include "ptq/gguf/gguf_config.h"

#include "ptq/arch/config.h"
#include "ptq/arch/kind.h"
#include "tests/support/good_checkpoint.h"
#include "tests/support/harness.h"

static const char *const families[] = {"llama",  "qwen2",  "qwen3", "qwen2_moe", "qwen3_moe",
                                       "gemma2", "gemma3", "olmo2", "glm4_moe", "minimax_m2", "ernie4_5_moe",
                                       "deepseek_v2", "deepseek_v3", "qwen3_5", "qwen3_5_moe", "qwen3_next", "lfm2",
                                       "lfm2_moe", NULL};

static tiny_model spec_of(const char *family)
{
    tiny_model spec = tiny_wide(family);
    spec.bias = false;
    spec.head_dim = spec.hidden / spec.n_heads;
    if (strncmp(family, "gemma", 5) == 0) { /* query_pre_attn_scalar */
        spec.head_dim = 12;
        spec.n_heads = 8;
    }
    spec.tied = true;
    if (strcmp(family, "glm4_moe") == 0 || strcmp(family, "ernie4_5_moe") == 0)
        spec.n_dense = 1;
    if (strncmp(family, "qwen3_5", 7) == 0 || strcmp(family, "qwen3_next") == 0)
        spec.head_dim = 32;
    if (strncmp(family, "deepseek", 8) == 0 || strcmp(family, "lfm2_moe") == 0)
        spec.n_dense = 1;
    if (strcmp(family, "glm4_moe") == 0) {
        spec.n_experts = 6;
        spec.extra = "\"n_group\": 2, \"topk_group\": 1, \"norm_topk_prob\": true";
    }
    return spec;
}

static void check_rope(const calm_rope_config *found, const calm_rope_config *expected)
{
    ck_assert_int_eq(found->kind, expected->kind);
    ck_assert_uint_eq(found->rotary, expected->rotary);
    ck_assert(found->theta == expected->theta);
}

/* Compares settings; a file may hold a tied head twice. */
static void check_config(const calm_config *found, const calm_config *expected, bool own_head)
{
    ck_assert_str_eq(found->arch->name, expected->arch->name);
    ck_assert_uint_eq(found->hidden, expected->hidden);
    ck_assert_uint_eq(found->n_blocks, expected->n_blocks);
    ck_assert_uint_eq(found->vocab, expected->vocab);
    ck_assert_uint_eq(found->n_heads, expected->n_heads);
    ck_assert_uint_eq(found->n_kv, expected->n_kv);
    ck_assert_uint_eq(found->head_dim, expected->head_dim);
    ck_assert_uint_eq(found->max_positions, expected->max_positions);
    ck_assert(found->norm_eps == expected->norm_eps);
    ck_assert(found->attention_scale == expected->attention_scale);
    ck_assert_mem_eq(&found->latent, &expected->latent, sizeof found->latent);
    ck_assert_mem_eq(&found->delta, &expected->delta, sizeof found->delta);
    ck_assert_uint_eq(found->conv_width, expected->conv_width);
    for (size_t i = 0; i < found->n_blocks; i++)
        ck_assert_ptr_eq(calm_kind_at(found, i, CALM_SUBLAYER_ATTENTION),
                         calm_kind_at(expected, i, CALM_SUBLAYER_ATTENTION));
    ck_assert(found->attention_cap == expected->attention_cap && found->logit_cap == expected->logit_cap);
    ck_assert(found->embedding_scale == expected->embedding_scale);
    ck_assert_int_eq(found->activation, expected->activation);
    ck_assert_int_eq(found->tied, expected->tied && !own_head);
    ck_assert_mem_eq(found->bias, expected->bias, sizeof found->bias);
    check_rope(&found->rope[0], &expected->rope[0]);
    for (size_t i = 0; i < found->n_blocks; i++) {
        ck_assert_uint_eq(found->window[i], expected->window[i]);
        ck_assert_int_eq(found->local_rope[i], expected->local_rope[i]);
    }
    ck_assert_uint_eq(found->moe.n_experts, expected->moe.n_experts);
    ck_assert_uint_eq(found->moe.top_k, expected->moe.top_k);
    ck_assert_uint_eq(found->moe.inner, expected->moe.inner);
    ck_assert_uint_eq(found->moe.shared_inner, expected->moe.shared_inner);
    ck_assert_int_eq(found->moe.norm_top_k, expected->moe.norm_top_k);
    ck_assert_int_eq(found->moe.score, expected->moe.score);
    ck_assert_int_eq(found->moe.choice_bias, expected->moe.choice_bias);
    ck_assert(found->moe.scale == expected->moe.scale);
    ck_assert_uint_eq(found->moe.n_groups, expected->moe.n_groups);
    ck_assert_uint_eq(found->moe.top_groups, expected->moe.top_groups);
    ck_assert_int_eq(found->qk_norm, expected->qk_norm);
    for (size_t i = 0; found->moe.n_experts && i < found->n_blocks; i++)
        ck_assert_int_eq(found->moe.sparse[i], expected->moe.sparse[i]);
    if (!found->moe.n_experts)
        ck_assert_uint_eq(found->inner, expected->inner);
}

TEST(every_family)
{
    static const char *const scheme = "w4a16_g32";
    size_t n = 0;
    for (size_t f = 0; families[f]; f++) {
        tiny_model spec = spec_of(families[f]);
        const char *dir = good_export(&spec, "gguf", &scheme, 1, 0), *from = tiny_model_write(&spec);
        calm_gguf *file;
        calm_gguf_list list = {0};
        calm_json *root, *original;
        calm_config found, expected;
        if (!dir) /* a tiny model that llama.cpp lacks */
            continue;
        ck_ok(calm_gguf_open(ctx, test_format("%s/model.gguf", dir), &file));
        ck_ok(calm_gguf_list_tensors(ctx, file, &list));
        ck_ok(calm_gguf_config(ctx, &list, NULL, NULL, &root));
        ck_ok(calm_config_read(ctx, families[f], root, &found));
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", from), 1 << 20, &original));
        ck_ok(calm_config_read(ctx, families[f], original, &expected));
        check_config(&found, &expected, list.as->own_head);
        n++;
        calm_json_free(root);
        calm_json_free(original);
        calm_gguf_close(file);
    }
    ck_assert_uint_ge(n, 16);
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_config", (const TTest *[]){every_family, NULL});
}
