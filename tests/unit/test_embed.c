/* The input of block 0: rows of the embedding times its scale; for encoders also positions and types. */
#include "ptq/arch/arch.h"
#include "ptq/model/model.h"
#include "ptq/tensor/vector.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static calm_model *open_tiny(const tiny_model *spec)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &model));
    return model;
}

static const float *row(const calm_model *model, const char *name, size_t index)
{
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
    float *x;
    ck_assert(tensor != NULL);
    ck_ok(CALM_NEW(ctx, ctx->out, x, tensor->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, tensor, x));
    return x + index * 32;
}

TEST(decoders)
{
    static const char *const families[] = {"llama", "gemma3"};
    const uint32_t ids[] = {60, 0, 7};
    const calm_span span = {.n_tokens = 3};
    for (size_t f = 0; f < 2; f++) {
        const tiny_model spec = tiny_of(families[f]);
        const float scale = f ? (float)sqrt(32) : 1;
        calm_model *model = open_tiny(&spec);
        float x[3 * 32];
        ck_ok(calm_model_embed(ctx, model, ids, NULL, &span, x));
        for (size_t t = 0; t < 3; t++)
            for (size_t i = 0; i < 32; i++)
                ck_assert(x[t * 32 + i] == row(model, "model.embed_tokens.weight", ids[t])[i] * scale);
        calm_model_close(model);
    }
}
END_OF_TEST

/* The sum of three rows, normalised, to the bit as its parts give it. */
TEST(encoders)
{
    const uint32_t ids[] = {3, 60, 3}, positions[] = {0, 5, 511};
    const uint8_t types[] = {1, 0, 1};
    const calm_span plain = {.n_tokens = 3}, placed = {.n_tokens = 3, .positions = positions};
    const tiny_model spec = tiny_of("bert");
    calm_model *model = open_tiny(&spec);
    const float *w = row(model, "embeddings.LayerNorm.weight", 0), *b = row(model, "embeddings.LayerNorm.bias", 0);
    for (int variant = 0; variant < 4; variant++) {
        float x[3 * 32];
        ck_ok(calm_model_embed(ctx, model, ids, variant & 1 ? types : NULL, variant & 2 ? &placed : &plain, x));
        for (size_t t = 0; t < 3; t++) {
            const float *word = row(model, "embeddings.word_embeddings.weight", ids[t]);
            const float *position = row(model, "embeddings.position_embeddings.weight", variant & 2 ? positions[t] : t);
            const float *type = row(model, "embeddings.token_type_embeddings.weight", variant & 1 ? types[t] : 0);
            float sum[32];
            for (size_t i = 0; i < 32; i++)
                sum[i] = word[i] + position[i] + type[i];
            calm_vec_layernorm(32, sum, w, b, calm_model_config(model)->norm_eps, sum);
            ck_assert(memcmp(sum, x + t * 32, sizeof sum) == 0);
        }
    }
    calm_model_close(model);
}
END_OF_TEST

TEST(outside_the_tables)
{
    const uint32_t ids[] = {3, 60, 61}, positions[] = {0, 512};
    const uint8_t types[] = {0, 2};
    const calm_span one = {.n_tokens = 1}, two = {.n_tokens = 2}, three = {.n_tokens = 3},
                    far = {.n_tokens = 2, .positions = positions};
    const tiny_model spec = tiny_of("bert_mlm");
    calm_model *model = open_tiny(&spec);
    float x[3 * 32];
    ck_ok(calm_model_embed(ctx, model, ids, types, &one, x));
    ck_ok(calm_model_embed(ctx, model, ids, NULL, &two, x));
    ck_fails(calm_model_embed(ctx, model, ids, NULL, &three, x), CALM_EARG, "token id 61, but the vocabulary has 61");
    ck_fails(calm_model_embed(ctx, model, ids, types, &two, x), CALM_EARG, "type 2 of a token, but the model has 2");
    ck_fails(calm_model_embed(ctx, model, ids, NULL, &far, x), CALM_EARG,
             "position 512 of a token, but the model has 512");
    calm_model_close(model);
}
END_OF_TEST

TEST(damage_is_named)
{
    static const char *const names[] = {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight",
                                        "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm.bias"};
    const uint32_t ids[] = {2, 1};
    const calm_span span = {.n_tokens = 2};
    for (size_t i = 0; i < 4; i++) {
        tiny_model spec = tiny_of("bert");
        spec.nan_in = names[i];
        spec.nan_at = 9;
        calm_model *model = open_tiny(&spec);
        float x[2 * 32];
        const bool is_read = i != 0;    /* row 0 of the word table is not read */
        if (is_read)
            ck_fails(calm_model_embed(ctx, model, ids, NULL, &span, x), CALM_ENUMERIC, names[i]);
        else
            ck_ok(calm_model_embed(ctx, model, ids, NULL, &span, x));
        calm_model_close(model);
    }
}
END_OF_TEST

TEST(no_memory)
{
    const uint32_t ids[] = {2, 1};
    const calm_span span = {.n_tokens = 2};
    const tiny_model spec = tiny_of("bert");
    calm_model *model = open_tiny(&spec);
    float x[2 * 32];
    long n = 0;
    calm_status status;
    do {
        ctx->scratch->fail_in = ++n;
        status = calm_model_embed(ctx, model, ids, NULL, &span, x);
        ck_assert(status == CALM_OK || status == CALM_ENOMEM);
        calm_ctx_clear_failure(ctx);
    } while (status != CALM_OK);
    ck_assert_int_gt(n, 5);
    calm_model_close(model);
}
END_OF_TEST

int main(void)
{
    return run_tests("embed",
                     (const TTest *[]){decoders, encoders, outside_the_tables, damage_is_named, no_memory, NULL});
}
