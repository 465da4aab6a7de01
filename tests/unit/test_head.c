/* The end of the model: logits in tiles, the logit cap, the transform of masked language models, the pooler. */
#include "ptq/model/head.h"

#include "ptq/arch/arch.h"
#include "ptq/base/rng.h"
#include "ptq/model/forward.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define EPS 0x1p-24

static float *draw(size_t n, double spread, uint64_t stream)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(spread * calm_rng_normal(4, stream, i));
    return x;
}

/* Makes a head with a stored weight [vocab, hidden] of random values, with an infinity at element `bad` (SIZE_MAX:
 * none); `widened` is the weight in float32.  The caller closes it with close_head(). */
static calm_head new_head(size_t hidden, size_t vocab, calm_dtype dtype, size_t bad, float **widened)
{
    const calm_tensor table = {.name = "lm_head.weight", .dtype = dtype, .n_dims = 2, .shape = {vocab, hidden}};
    const char *path = test_format("%s/model.safetensors", test_directory());
    calm_safetensors_writer writer;
    calm_safetensors *set;
    uint8_t *stored;
    float *w = draw(vocab * hidden, 1 / sqrt((double)hidden), 1);
    const size_t bytes = vocab * hidden * calm_dtype_bytes(dtype);
    if (bad < vocab * hidden)
        w[bad] = INFINITY;
    ck_ok(CALM_NEW(ctx, ctx->out, stored, bytes));
    ck_ok(calm_from_f32(ctx, dtype, w, vocab * hidden, stored));
    ck_ok(calm_to_f32(ctx, dtype, stored, vocab * hidden, w));
    ck_ok(calm_safetensors_begin(ctx, &writer, path, &table, 1));
    ck_ok(calm_safetensors_put(ctx, &writer, stored, bytes));
    ck_ok(calm_safetensors_end(ctx, &writer));
    ck_ok(calm_safetensors_open(ctx, path, &set));
    *widened = w;
    return (
        calm_head){.hidden = hidden, .vocab = vocab, .set = set, .table = calm_safetensors_find(set, "lm_head.weight")};
}

static void close_head(const calm_head *head)
{
    calm_safetensors_close((calm_safetensors *)(uintptr_t)head->set);
}

/* Returns one logit in double, and the bound on its float32 error: n products of one rounding each, added in any
 * order with n roundings. */
static double slow_logit(const calm_head *head, const float *w, const float *x, size_t v, double *bound)
{
    double sum = head->bias ? (double)head->bias[v] : 0, size = fabs(sum);
    for (size_t i = 0; i < head->hidden; i++) {
        sum += (double)x[i] * (double)w[v * head->hidden + i];
        size += fabs((double)x[i] * (double)w[v * head->hidden + i]);
    }
    *bound = (double)(head->hidden + 1) * EPS * size;
    return sum;
}

static void check_logits(const calm_head *head, const float *w, const float *x, size_t n, const float *logits)
{
    for (size_t t = 0; t < n; t++)
        for (size_t v = 0; v < head->vocab; v++) {
            double bound, expected = slow_logit(head, w, x + t * head->hidden, v, &bound);
            if (head->logit_cap > 0)    /* shrinks errors; the cap has 9 roundings (test_vector.c) */
                expected = (double)head->logit_cap * tanh(expected / (double)head->logit_cap),
                bound += 9 * EPS * fabs(expected);
            ck_near(logits[t * head->vocab + v], expected, bound);
        }
}

static void tile_by_tile(const calm_head *head, const float *x, size_t n, float *logits)
{
    const size_t tile = calm_head_tile(head);
    for (size_t first = 0; first < head->vocab; first += tile)
        ck_ok(calm_head_tile_logits(ctx, head, x, n, first, calm_size_min(head->vocab - first, tile), logits + first,
                                    head->vocab));
}

TEST(logits_in_tiles)
{
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16};
    enum { HIDDEN = 4500, VOCAB = 600, ROWS = 2 };
    for (size_t d = 0; d < 3; d++) {
        float *w, *logits, *x = draw(ROWS * HIDDEN, 1, 2);
        calm_head head = new_head(HIDDEN, VOCAB, dtypes[d], SIZE_MAX, &w);
        ck_ok(CALM_NEW(ctx, ctx->out, logits, ROWS * VOCAB));
        ck_assert_uint_eq(calm_head_tile(&head), 256);    /* 600 = 256 + 256 + 88 */
        tile_by_tile(&head, x, ROWS, logits);
        check_logits(&head, w, x, ROWS, logits);
        head.bias = draw(VOCAB, 1, 3);
        head.logit_cap = 1.5f;
        tile_by_tile(&head, x, ROWS, logits);
        check_logits(&head, w, x, ROWS, logits);
        close_head(&head);
        calm_arena_clear(ctx->out);
    }
}
END_OF_TEST

/* A tile of the weight is a few MB, and has no more rows than the weight. */
TEST(size_of_a_tile)
{
    ck_assert_uint_eq(calm_head_tile(&(calm_head){.hidden = 1024, .vocab = 151936}), 1024);
    ck_assert_uint_eq(calm_head_tile(&(calm_head){.hidden = 4096, .vocab = 151936}), 256);
    ck_assert_uint_eq(calm_head_tile(&(calm_head){.hidden = 8192, .vocab = 151936}), 256);
    ck_assert_uint_eq(calm_head_tile(&(calm_head){.hidden = 8192, .vocab = 61}), 61);
    ck_assert_uint_eq(calm_head_tile(&(calm_head){.hidden = 32, .vocab = 61}), 61);
}
END_OF_TEST

/* Wherever the weight is cut, each tile writes the logits of its tokens and no others. */
TEST(any_boundary)
{
    enum { HIDDEN = 24, VOCAB = 37, ROWS = 3, STRIDE = VOCAB + 5 };
    float *w, *x = draw(ROWS * HIDDEN, 1, 2), found[ROWS * STRIDE];
    calm_head head = new_head(HIDDEN, VOCAB, CALM_BF16, SIZE_MAX, &w);
    head.bias = draw(VOCAB, 1, 3);
    for (size_t first = 0; first < VOCAB; first += 3)
        for (size_t count = 1; count <= VOCAB - first; count += 4) {
            for (size_t i = 0; i < ROWS * STRIDE; i++)
                found[i] = -77;
            ck_ok(calm_head_tile_logits(ctx, &head, x, ROWS, first, count, found + first, STRIDE));
            for (size_t i = 0; i < ROWS * STRIDE; i++) {
                const size_t v = i % STRIDE;
                double bound;
                if (v < first || v >= first + count)
                    ck_assert(found[i] == -77);
                else
                    ck_near(found[i], slow_logit(&head, w, x + i / STRIDE * HIDDEN, v, &bound), bound);
            }
        }
    close_head(&head);
}
END_OF_TEST

TEST(damaged_tables_are_named)
{
    enum { HIDDEN = 8, VOCAB = 10 };
    float *w, *x = draw(HIDDEN, 1, 2), logits[VOCAB];
    const calm_head head = new_head(HIDDEN, VOCAB, CALM_F32, 43, &w);
    ck_ok(calm_head_tile_logits(ctx, &head, x, 1, 0, 5, logits, VOCAB));
    ck_fails(calm_head_tile_logits(ctx, &head, x, 1, 5, 5, logits, VOCAB), CALM_ENUMERIC,
             "model.safetensors: tensor lm_head.weight: element 43 is inf; the checkpoint is damaged");
    ctx->scratch->fail_in = 1;
    ck_fails(calm_head_tile_logits(ctx, &head, x, 1, 0, 5, logits, VOCAB), CALM_ENOMEM, "");
    close_head(&head);
}
END_OF_TEST

static double layernorm(const calm_norm *norm, const double *x, size_t i)
{
    double mean = 0, variance = 0;
    for (size_t k = 0; k < norm->width; k++)
        mean += x[k] / (double)norm->width;
    for (size_t k = 0; k < norm->width; k++)
        variance += (x[k] - mean) * (x[k] - mean) / (double)norm->width;
    return (x[i] - mean) / sqrt(variance + (double)norm->eps) * (double)norm->w[i] + (double)norm->b[i];
}

static double linear(const calm_weight *weight, const float *x, size_t row)
{
    double sum = (double)weight->bias[row];
    for (size_t i = 0; i < weight->in; i++)
        sum += (double)weight->w[row * weight->in + i] * (double)x[i];
    return sum;
}

/* LayerNorm(gelu(W x + b)): sums of 32 products of values below 4, divided by a deviation above 0.1: 33 x 2^-24 x 20
 * / 0.1 = 4e-4; the transform changes the rows by values of magnitude 1. */
TEST(transform_of_a_masked_language_model)
{
    tiny_model spec = tiny_of("bert_mlm");
    spec.dtype = CALM_F32;
    for (int tied = 0; tied < 2; tied++) {
        calm_model *model;
        calm_head head;
        float *x = draw(2 * 32, 1, 5), y[2 * 32];
        spec.tied = tied;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        ck_ok(calm_model_load_head(ctx, model, &head));
        ck_assert(head.table && head.bias && head.transform.w && !head.pooler.w && !head.norm.w);
        ck_assert_str_eq(head.table->name,
                         tied ? "bert.embeddings.word_embeddings.weight" : "cls.predictions.decoder.weight");
        const float *own;
        ck_ok(calm_model_load_vector(ctx, model, tied ? "cls.predictions.bias" : "cls.predictions.decoder.bias", 61,
                                     &own));
        ck_assert(memcmp(own, head.bias, 61 * sizeof *own) == 0);
        memcpy(y, x, sizeof y);
        ck_ok(calm_head_prepare(ctx, &head, y, 2));
        for (size_t t = 0; t < 2; t++) {
            double a[32];
            for (size_t i = 0; i < 32; i++) {
                const double g = linear(&head.transform, x + t * 32, i);
                a[i] = 0.5 * g * (1 + erf(g / sqrt(2)));
            }
            for (size_t i = 0; i < 32; i++)
                ck_near(y[t * 32 + i], layernorm(&head.transform_norm, a, i), 4e-4);
        }
        calm_model_close(model);
    }
}
END_OF_TEST

TEST(pooler)
{
    tiny_model spec = tiny_of("bert");
    calm_model *model;
    calm_head head;
    float *x = draw(32, 1, 6), out[32];
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_assert(!head.table && head.pooler.w && !head.transform.w);
    ck_ok(calm_head_pool(ctx, &head, x, out));
    for (size_t i = 0; i < 32; i++)    /* 33 x 2^-24 x sum of |products|, at most 32 x 4 x 1 */
        ck_near(out[i], tanh(linear(&head.pooler, x, i)), 33 * EPS * 128);
    calm_model_close(model);

    spec.missing = "pooler.dense.weight";
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_assert(!head.pooler.w);
    calm_model_close(model);
    spec.missing = "pooler.dense.bias";
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    ck_fails(calm_model_load_head(ctx, model, &head), CALM_ENOTFOUND, "pooler.dense.bias");
    calm_model_close(model);
}
END_OF_TEST

/* Decoders have a final norm, and no transform before the head. */
TEST(decoders)
{
    calm_model *model;
    calm_head head;
    float x[32], *same = draw(32, 1, 7);
    tiny_model spec = tiny_of("gemma2");
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_assert(head.norm.w && head.norm.kind == CALM_NORM_RMS_PLUS_ONE && head.logit_cap == 30);
    ck_assert_str_eq(head.table->name, "model.embed_tokens.weight");
    memcpy(x, same, sizeof x);
    ck_ok(calm_head_prepare(ctx, &head, x, 1));
    ck_assert(memcmp(x, same, sizeof x) == 0);
    calm_model_close(model);
}
END_OF_TEST

/* The estimate is exact for a tile and a decoder's head, and an upper bound for an encoder, which may lack parts. */
TEST(memory)
{
    enum { HIDDEN = 24, VOCAB = 37 };
    float *w, logits[VOCAB], *x = draw(HIDDEN, 1, 2);
    const calm_head one = new_head(HIDDEN, VOCAB, CALM_BF16, SIZE_MAX, &w);
    ck_memory(calm_head_tile_logits(ctx, &one, x, 1, 0, VOCAB, logits, VOCAB), 0, calm_head_tile_bytes(&one));
    close_head(&one);
    for (size_t f = 0; tiny_families[f]; f++) {
        const tiny_model spec = tiny_of(tiny_families[f]);
        calm_model *model;
        calm_head head;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        const calm_config *config = calm_model_config(model);
        test_memory_begin();
        ck_ok(calm_model_load_head(ctx, model, &head));
        const size_t left = test_memory_end().out, said = calm_model_load_head_bytes(config);
        if (config->arch->encoder)
            ck_assert_msg(left > 0 && left <= said, "%s: %zu of %zu", tiny_families[f], left, said);
        else
            ck_assert_uint_eq(left, said);
        calm_model_close(model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("head", (const TTest *[]){logits_in_tiles, size_of_a_tile, any_boundary, damaged_tables_are_named,
                                               transform_of_a_masked_language_model, pooler, decoders, memory, NULL});
}
