/* config.json of published checkpoints: each is accepted, with the meaning that its authors state. */
#include "ptq/arch/config.h"

#include "ptq/arch/arch.h"
#include "tests/support/harness.h"

/* What a config means; windows as "number of blocks that slide, width". */
typedef struct published {
    const char *file, *family;
    size_t hidden, inner, n_blocks, vocab, n_heads, n_kv, head_dim;
    double theta;
    bool tied;
    calm_dtype dtype;
    calm_activation activation;
    size_t n_sliding, window;
} published;

#define SILU CALM_ACTIVATION_SILU
#define GELU CALM_ACTIVATION_GELU
#define TANH CALM_ACTIVATION_GELU_TANH
#define BF16 CALM_BF16
#define F32  CALM_F32

static const published all[] = {
    {"qwen3-0.6b", "qwen3", 1024, 3072, 28, 151936, 16, 8, 128, 1e6, true, BF16, SILU, 0, 0},
    {"qwen2.5-0.5b", "qwen2", 896, 4864, 24, 151936, 14, 2, 64, 1e6, true, BF16, SILU, 0, 0},
    {"llama-3.2-1b", "llama", 2048, 8192, 16, 128256, 32, 8, 64, 5e5, true, BF16, SILU, 0, 0},
    {"mistral-7b-v0.3", "mistral", 4096, 14336, 32, 32768, 32, 8, 128, 1e6, false, BF16, SILU, 0, 0},
    {"gemma-2-2b", "gemma2", 2304, 9216, 26, 256000, 8, 4, 256, 1e4, true, F32, TANH, 13, 4096},
    {"gemma-3-1b-it", "gemma3", 1152, 6912, 26, 262144, 4, 1, 256, 1e6, true, BF16, TANH, 22, 512},
    {"phi-3-mini-4k", "phi3", 3072, 8192, 32, 32064, 32, 32, 96, 1e4, false, BF16, SILU, 32, 2047},
    {"phi-3-mini-128k", "phi3", 3072, 8192, 32, 32064, 32, 32, 96, 1e4, false, BF16, SILU, 32, 262144},
    {"phi-3.5-mini", "phi3", 3072, 8192, 32, 32064, 32, 32, 96, 1e4, false, BF16, SILU, 32, 262144},
    {"phi-4-mini-instruct", "phi3", 3072, 8192, 32, 200064, 24, 8, 128, 1e4, true, BF16, SILU, 32, 262144},
    {"olmo-2-0425-1b", "olmo2", 2048, 8192, 16, 100352, 16, 16, 128, 5e5, false, F32, SILU, 0, 0},
    {"smollm2-135m", "llama", 576, 1536, 30, 49152, 9, 3, 64, 1e5, true, BF16, SILU, 0, 0},
    {"tinyllama-1.1b-chat", "llama", 2048, 5632, 22, 32000, 32, 4, 64, 1e4, false, BF16, SILU, 0, 0},
    {"qwen1.5-moe-a2.7b", "qwen2_moe", 2048, 5632, 24, 151936, 16, 16, 128, 1e6, false, BF16, SILU, 0, 0},
    {"qwen3-30b-a3b", "qwen3_moe", 2048, 6144, 48, 151936, 32, 4, 128, 1e6, false, BF16, SILU, 0, 0},
    {"all-minilm-l6-v2", "bert", 384, 1536, 6, 30522, 12, 12, 32, 0, true, BF16, GELU, 0, 0},
    {"bert-base-uncased", "bert", 768, 3072, 12, 30522, 12, 12, 64, 0, true, BF16, GELU, 0, 0},
    {"bge-small-en-v1.5", "bert", 384, 1536, 12, 30522, 12, 12, 32, 0, true, F32, GELU, 0, 0},
};

static calm_config read_published(const char *name)
{
    const char *path = test_data(test_format("configs/%s.json", name));
    calm_json *root;
    calm_config config;
    ck_ok(calm_json_read(ctx, path, 1 << 20, &root));
    ck_ok(calm_config_read(ctx, path, root, &config));
    calm_json_free(root);
    return config;
}

TEST(sizes_and_kinds)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const published *want = &all[i];
        const calm_config c = read_published(want->file);
        size_t n_sliding = 0;
        ck_assert_str_eq(c.arch->name, want->family);
        const size_t sizes[][2] = {{c.hidden, want->hidden}, {c.inner, want->inner}, {c.n_blocks, want->n_blocks},
                                   {c.vocab, want->vocab}, {c.n_heads, want->n_heads}, {c.n_kv, want->n_kv},
                                   {c.head_dim, want->head_dim}};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            ck_assert_msg(sizes[k][0] == sizes[k][1], "%s: size %zu: %zu, expected %zu", want->file, k, sizes[k][0],
                          sizes[k][1]);
        ck_assert(!c.moe.n_experts == !strstr(want->family, "moe"));
        for (size_t b = 0; b < c.n_blocks; b++) {
            ck_assert(c.window[b] == 0 || c.window[b] == want->window);
            n_sliding += c.window[b] > 0;
            ck_assert(!c.moe.n_experts || c.moe.sparse[b]);
        }
        ck_assert_msg(n_sliding == want->n_sliding, "%s: %zu blocks slide", want->file, n_sliding);
        ck_assert(c.rope[CALM_ROPE_GLOBAL].theta == want->theta && c.tied == want->tied);
        ck_assert(c.rope[CALM_ROPE_GLOBAL].rotary == (want->theta > 0 ? c.head_dim : 0) || c.arch->phi_rope);
        ck_assert(c.dtype == want->dtype && c.activation == want->activation);
    }
}
END_OF_TEST

static void check_biases(const char *name, const char *roles)
{
    const calm_config c = read_published(name);
    static const char letters[CALM_N_ROLES] = {[CALM_ROLE_Q] = 'q', [CALM_ROLE_K] = 'k',  [CALM_ROLE_V] = 'v',
                                               [CALM_ROLE_O] = 'o', [CALM_ROLE_UP] = 'u', [CALM_ROLE_DOWN] = 'd'};
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (letters[role])
            ck_assert_msg(c.bias[role] == (strchr(roles, letters[role]) != NULL), "%s: bias of %c", name,
                          letters[role]);
}

TEST(biases)
{
    check_biases("qwen2.5-0.5b", "qkv");
    check_biases("qwen1.5-moe-a2.7b", "qkv");
    check_biases("bge-small-en-v1.5", "qkvoud");
    check_biases("qwen3-0.6b", "");
    check_biases("llama-3.2-1b", "");
    check_biases("olmo-2-0425-1b", "");
}
END_OF_TEST

TEST(rotary_embeddings)
{
    const calm_config llama = read_published("llama-3.2-1b"), gemma = read_published("gemma-3-1b-it");
    const calm_rope_config *rope = &llama.rope[CALM_ROPE_GLOBAL];
    ck_assert(rope->kind == CALM_ROPE_LLAMA3 && rope->factor == 32 && rope->low_freq == 1 && rope->high_freq == 4);
    ck_assert(rope->original == 8192 && rope->m == 1);
    ck_assert(gemma.rope[CALM_ROPE_LOCAL].theta == 1e4 && gemma.rope[CALM_ROPE_LOCAL].kind == CALM_ROPE_DEFAULT);
    for (size_t b = 0; b < gemma.n_blocks; b++)
        ck_assert_int_eq(gemma.local_rope[b], (b + 1) % 6 != 0);

    const calm_config phi = read_published("phi-3-mini-128k"), phi4 = read_published("phi-4-mini-instruct");
    rope = &phi.rope[CALM_ROPE_GLOBAL];
    ck_assert(rope->kind == CALM_ROPE_LONGROPE && rope->original == 4096 && rope->rotary == 96);
    ck_near(rope->m, sqrt(1 + log(32) / log(4096)), 1e-12);    /* 1.190, as in the authors' code */
    ck_assert(rope->long_factor[47] == 64.5 && rope->short_factor[47] == 2.5);
    ck_assert_uint_eq(phi4.rope[CALM_ROPE_GLOBAL].rotary, 96);    /* 0.75 of 128 */
}
END_OF_TEST

TEST(scales_and_caps)
{
    const calm_config gemma2 = read_published("gemma-2-2b"), gemma3 = read_published("gemma-3-1b-it");
    ck_assert(gemma2.attention_cap == 50 && gemma2.logit_cap == 30);
    ck_assert(gemma3.attention_cap == 0 && gemma3.logit_cap == 0);
    ck_assert(gemma2.attention_scale == 0.0625f && gemma2.embedding_scale == 48);
    ck_assert(gemma2.window[0] == 4096 && gemma2.window[1] == 0);
    ck_near(read_published("phi-3-mini-4k").attention_scale, 1 / sqrt(96), 1e-7);
    ck_assert(read_published("bert-base-uncased").norm_eps == 1e-12f);
    ck_assert(read_published("smollm2-135m").norm_eps == 1e-5f);
    ck_assert_uint_eq(read_published("all-minilm-l6-v2").n_types, 2);
    ck_assert_uint_eq(read_published("all-minilm-l6-v2").max_positions, 512);
}
END_OF_TEST

TEST(experts)
{
    const calm_config small = read_published("qwen1.5-moe-a2.7b"), large = read_published("qwen3-30b-a3b");
    ck_assert(small.moe.n_experts == 60 && small.moe.top_k == 4 && small.moe.inner == 1408 &&
              small.moe.shared_inner == 5632);
    ck_assert(!small.moe.norm_top_k);
    ck_assert(large.moe.n_experts == 128 && large.moe.top_k == 8 && large.moe.inner == 768 &&
              large.moe.shared_inner == 0);
    ck_assert(large.moe.norm_top_k);
}
END_OF_TEST

int main(void)
{
    return run_tests("config_hub",
                     (const TTest *[]){sizes_and_kinds, biases, rotary_embeddings, scales_and_caps, experts, NULL});
}
