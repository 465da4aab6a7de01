/* Rotated models have the same logits with other weights, in every family for which it is legal and in no other; and
 * the same bytes for any number of threads. */
#include "ptq/export/rotate.h"

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/base/sha256.h"
#include "ptq/io/json.h"
#include "ptq/model/forward.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/rotation.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* The model as it is on disk. */
static const calm_model_how plain;

static const char *const legal[] = {"llama", "mistral", "qwen2", "qwen3", "phi3", "qwen2_moe", "qwen3_moe", NULL};
static const char *const illegal[] = {"gemma2", "gemma3", "gemma3n", "olmo2", "bert", "bert_mlm", NULL};

static const char *rotate(const char *from, calm_rotate_kind kind, calm_dtype dtype)
{
    const char *to = test_format("%s/rotated", test_directory());
    ck_ok(calm_rotate(ctx, from, &plain, &(calm_rotate_options){kind, 7, dtype}, to, false));
    return to;
}

/* Computes the logits [*n] of some windows, of an encoder without a head the final rows, with the matrices that a
 * rotation leaves in the forward pass. */
static const float *logits_of(const char *dir, calm_rotate_kind kind, size_t *n)
{
    const calm_windows windows = tiny_windows((const size_t[]){9, 16, 5}, 3);
    calm_model *model;
    calm_batch batch;
    calm_rope rope;
    calm_head head;
    float *logits;
    ck_ok(calm_model_open(ctx, dir, &model));
    if (calm_rotate_is_online(kind))
        ck_ok(calm_model_use_hadamard(ctx, model, kind == CALM_ROTATE_INPUTS));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows.longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, &windows, 0, windows.n, NULL, NULL, ctx->out, &batch));
    *n = batch.rows * (head.table ? head.vocab : batch.width);
    ck_ok(CALM_NEW(ctx, ctx->out, logits, *n));
    if (head.table)
        ck_ok(calm_head_tile_logits(ctx, &head, batch.hidden.data, batch.rows, 0, head.vocab, logits, head.vocab));
    else
        memcpy(logits, batch.hidden.data, *n * sizeof *logits);
    calm_batch_close(&batch);
    calm_model_close(model);
    return logits;
}

/* Returns the largest difference of logits over their root mean square. */
static double distance(const char *a, const char *b, calm_rotate_kind online)
{
    size_t n, m;
    const float *x = logits_of(a, CALM_ROTATE_NONE, &n), *y = logits_of(b, online, &m);
    double worst = 0, squares = 0;
    ck_assert_uint_eq(n, m);
    for (size_t i = 0; i < n; i++) {
        worst = test_worse(worst, fabs((double)x[i] - (double)y[i]));
        squares += (double)x[i] * (double)x[i];
    }
    return worst / sqrt(squares / (double)n);
}

/* In float32 a rotated weight is off by u = 2^-24, and every product of the pass rounds likewise in both models:
 * some ten products in sequence in each of two blocks, each with an error of about sqrt(64) u of its row, and maxima
 * over 1830 logits, 4 sigma: 2 sqrt(20) 8 u 4 = 2e-5.  A tensor that is left out or rotated wrongly changes logits
 * by their own magnitude. */
#define TOLERANCE 1e-4

static tiny_model spec_of(const char *family, bool tied)
{
    tiny_model spec = tiny_wide(family);
    spec.dtype = CALM_F32;
    spec.tied = tied;
    return spec;
}

TEST(same_function)
{
    for (size_t i = 0; legal[i]; i++)
        for (calm_rotate_kind kind = CALM_ROTATE_R1; kind <= CALM_ROTATE_R1R2; kind++) {
            const tiny_model spec = spec_of(legal[i], kind == CALM_ROTATE_R1);
            const char *from = tiny_model_write(&spec), *to = rotate(from, kind, CALM_N_DTYPES);
            const double d = distance(from, to, CALM_ROTATE_NONE);
            ck_assert_msg(d <= TOLERANCE, "%s, %s: %g", legal[i], calm_rotate_name(kind), d);
        }
}
END_OF_TEST

/* Widths that are not powers of two, heads without a Hadamard matrix, a single KV head, a tied head that is stored. */
TEST(odd_widths)
{
    tiny_model spec = {.family = "llama", .hidden = 43, .inner = 30, .n_blocks = 2, .vocab = 61, .n_heads = 3,
                       .n_kv = 1, .head_dim = 14, .bias = true, .dtype = CALM_F32, .seed = 4};
    const char *from = tiny_model_write(&spec);
    ck_assert(distance(from, rotate(from, CALM_ROTATE_R1R2, CALM_N_DTYPES), CALM_ROTATE_NONE) <= TOLERANCE);
}
END_OF_TEST

/* R4: the files hold W H, and only a model that multiplies the input by H too has the same function.  No input scale
 * is folded through the transform. */
TEST(before_down)
{
    for (size_t i = 0; legal[i]; i++) {
        const tiny_model spec = spec_of(legal[i], false);
        const char *from = tiny_model_write(&spec), *to = test_format("%s/rotated", test_directory());
        const calm_rotate_options how = {CALM_ROTATE_R1R2R4, 7, CALM_N_DTYPES};
        calm_model *model;
        ck_ok(calm_model_open(ctx, from, &model));
        if (calm_model_config(model)->moe.n_experts) {
            ck_fails(calm_model_use_hadamard(ctx, model, false), CALM_EUNSUPPORTED, legal[i]);
            calm_model_close(model);
            continue;
        }
        ck_ok(calm_model_use_hadamard(ctx, model, false));
        ck_assert_uint_eq(calm_model_config(model)->hadamard[CALM_JOB_DOWN], 32);    /* of 96 channels */
        for (size_t j = 0; j < calm_model_layout(model)->n_jobs; j++)
            ck_assert_int_eq(calm_model_layout(model)->jobs[j].can_absorb,
                             calm_model_layout(model)->jobs[j].kind != CALM_JOB_DOWN);
        ck_ok(calm_make_directories(ctx, to));
        ck_ok(calm_rotate_write(ctx, model, &how, to));
        calm_model_close(model);
        const double d = distance(from, to, CALM_ROTATE_R1R2R4);
        ck_assert_msg(d <= TOLERANCE, "%s: %g", legal[i], d);
        ck_assert(distance(from, to, CALM_ROTATE_NONE) > 0.1);
    }
}
END_OF_TEST

/* Families whose inputs can be rotated: each has a norm before attention and one before a dense MLP.  The others are
 * mixtures, have other mixers, norms only after sublayers, or sublayers that share an input. */
static const char *const with_inputs[] = {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3",
                                          "seed_oss", "ernie4_5", "hunyuan_v1_dense", "glm4", "granite", "ministral3",
                                          "starcoder2", "gemma4", "eurobert", "embeddinggemma", NULL};

/* Rotated inputs: every linear has W H, all else is the same, and the model that multiplies the inputs by H too has the
 * same function. */
static void check_inputs(const char *family)
{
    tiny_model spec = tiny_of(family);
    spec.dtype = CALM_F32;
    const char *from = tiny_model_write(&spec), *to = test_format("%s/rotated", test_directory());
    const calm_rotate_options how = {CALM_ROTATE_INPUTS, 7, CALM_N_DTYPES};
    calm_model *model;
    calm_safetensors *a, *b;
    bool allowed = false;
    for (size_t k = 0; with_inputs[k]; k++)
        allowed |= strcmp(family, with_inputs[k]) == 0;
    ck_ok(calm_model_open(ctx, from, &model));
    if (!allowed) {
        ck_fails(calm_rotate_allow(ctx, model, CALM_ROTATE_INPUTS), CALM_EUNSUPPORTED, "take `rotate` none");
        calm_model_close(model);
        return;
    }
    ck_ok(calm_rotate_allow(ctx, model, CALM_ROTATE_INPUTS));
    const calm_layout *layout = calm_model_layout(model);
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const size_t width = calm_model_config(model)->hadamard[layout->jobs[j].kind];
        ck_assert(!layout->jobs[j].can_absorb && width > 1 && layout->jobs[j].in % width == 0);
    }
    ck_ok(calm_make_directories(ctx, to));
    ck_ok(calm_rotate_write(ctx, model, &how, to));
    ck_ok(calm_safetensors_open(ctx, from, &a));
    ck_ok(calm_safetensors_open(ctx, to, &b));
    ck_assert_uint_eq(calm_safetensors_count(a), calm_safetensors_count(b));    /* a tied head stays tied */
    for (size_t k = 0; k < calm_safetensors_count(a); k++) {
        const calm_tensor *old = calm_safetensors_at(a, k), *new = calm_safetensors_find(b, old->name);
        const char *end = strstr(old->name, ".weight");
        const bool turned = end && calm_layout_find(layout, old->name, (size_t)(end - old->name));
        ck_assert_msg((memcmp(old->data, new->data, old->bytes) == 0) == !turned, "%s", old->name);
    }
    calm_safetensors_close(a);
    calm_safetensors_close(b);
    calm_model_close(model);
    const double d = distance(from, to, CALM_ROTATE_INPUTS);
    ck_assert_msg(d <= TOLERANCE, "%s: %g", family, d);
    ck_assert(distance(from, to, CALM_ROTATE_NONE) > 0.1);
}

TEST(before_every_linear)
{
    for (size_t i = 0; tiny_families[i]; i++)
        check_inputs(tiny_families[i]);
    for (size_t i = 0; tiny_encoders[i]; i++)
        check_inputs(tiny_encoders[i]);
}
END_OF_TEST

static const calm_tensor *tensor_of(const calm_safetensors *set, const char *name)
{
    const calm_tensor *tensor = calm_safetensors_find(set, name);
    ck_assert_msg(tensor != NULL, "%s is not there", name);
    return tensor;
}

/* Norms are ones, the head has a separate tensor, and every weight is changed. */
TEST(what_is_written)
{
    const tiny_model spec = spec_of("qwen3_moe", true);
    const char *from = tiny_model_write(&spec), *to = rotate(from, CALM_ROTATE_R1R2, CALM_N_DTYPES);
    calm_safetensors *a, *b;
    calm_model *model;
    ck_ok(calm_safetensors_open(ctx, from, &a));
    ck_ok(calm_safetensors_open(ctx, to, &b));
    ck_assert_uint_eq(calm_safetensors_count(b), calm_safetensors_count(a) + 1);
    const calm_tensor *head = tensor_of(b, "lm_head.weight"), *embed = tensor_of(b, "model.embed_tokens.weight");
    ck_assert(memcmp(head->data, embed->data, head->bytes) != 0);
    for (size_t i = 0; i < calm_safetensors_count(a); i++) {
        const calm_tensor *old = calm_safetensors_at(a, i), *new = tensor_of(b, old->name);
        const bool same = memcmp(old->data, new->data, old->bytes) == 0;
        /* Rows of q and k are not rotated: their biases stay, and the norms of their heads. */
        const bool stays = strstr(old->name, "q_norm") || strstr(old->name, "k_norm") ||
                           strstr(old->name, "q_proj.bias") || strstr(old->name, "k_proj.bias");
        ck_assert_msg(same == stays, "%s", old->name);
        for (size_t k = 0; k < new->n_elements && strstr(new->name, "layernorm"); k++) {
            float one;
            memcpy(&one, new->data + 4 * k, sizeof one);
            ck_assert(one == 1);
        }
    }
    ck_ok(calm_model_open(ctx, to, &model));
    ck_assert(!calm_model_config(model)->tied);
    calm_model_close(model);
    calm_safetensors_close(a);
    calm_safetensors_close(b);
}
END_OF_TEST

/* A bfloat16 weight is the rotated one rounded once: within half a unit in the last of its 8 bits.  `gate` reads the
 * residual stream after its norm. */
TEST(rounded_once)
{
    tiny_model spec = tiny_wide("llama");
    const char *from = tiny_model_write(&spec), *to = rotate(from, CALM_ROTATE_R1, CALM_N_DTYPES);
    calm_model *a, *b;
    calm_rotation rotation;
    calm_weight old, new;
    calm_norm norm;
    double *x;
    const char *module = "model.layers.0.mlp.gate_proj";
    ck_ok(calm_model_open(ctx, from, &a));
    ck_ok(calm_model_open(ctx, to, &b));
    ck_ok(calm_model_load_norm(ctx, a, "model.layers.0.post_attention_layernorm", spec.hidden, &norm));
    ck_ok(calm_model_load_linear(ctx, a, module, spec.inner, spec.hidden, false, &old));
    ck_ok(calm_model_load_linear(ctx, b, module, spec.inner, spec.hidden, false, &new));
    ck_ok(calm_rotation_init(ctx, spec.hidden, 7, 0, &rotation));
    ck_ok(CALM_NEW(ctx, ctx->out, x, spec.inner * spec.hidden));
    for (size_t i = 0; i < spec.inner * spec.hidden; i++)
        x[i] = (double)old.w[i] * (double)norm.w[i % spec.hidden];
    ck_ok(calm_rotation_apply(ctx, &rotation, spec.inner, 1, x));
    for (size_t i = 0; i < spec.inner * spec.hidden; i++) {
        int exponent;
        frexp(x[i], &exponent);    /* |x| < 2^exponent */
        ck_near((double)new.w[i], x[i], ldexp(1, exponent - 9) * (1 + 0x1p-40));
    }
    calm_model_close(a);
    calm_model_close(b);
}
END_OF_TEST

TEST(other_dtypes)
{
    const tiny_model spec = tiny_wide("qwen3");
    const char *from = tiny_model_write(&spec), *to = rotate(from, CALM_ROTATE_R1R2, CALM_F32);
    calm_model *model;
    ck_ok(calm_model_open(ctx, to, &model));
    ck_assert_int_eq(calm_model_config(model)->dtype, CALM_F32);
    for (size_t i = 0; i < calm_safetensors_count(calm_model_tensors(model)); i++)
        ck_assert_int_eq(calm_safetensors_at(calm_model_tensors(model), i)->dtype, CALM_F32);
    calm_model_close(model);
    ck_assert(distance(from, to, CALM_ROTATE_NONE) <= TOLERANCE);
}
END_OF_TEST

TEST(refusals)
{
    const char *to = test_format("%s/rotated", test_directory());
    const calm_rotate_options how = {CALM_ROTATE_R1, 0, CALM_N_DTYPES};
    for (size_t i = 0; illegal[i]; i++) {
        const tiny_model spec = tiny_of(illegal[i]);
        const char *family = strncmp(illegal[i], "bert", 4) == 0 ? "bert" : illegal[i];
        ck_fails(calm_rotate(ctx, tiny_model_write(&spec), &plain, &how, to, false), CALM_EUNSUPPORTED,
                 test_format("family %s cannot be rotated: ", family));
        ck_assert(!calm_path_exists(to));
    }
    const tiny_model spec = spec_of("llama", true);
    tiny_model broken = spec;
    ck_ok(calm_rotate(ctx, tiny_model_write(&spec), &plain, &how, to, false));
    ck_fails(calm_rotate(ctx, tiny_model_write(&spec), &plain, &how, to, false), CALM_EEXIST, "exists already");
    broken.nan_in = "model.layers.1.mlp.down_proj.weight";
    broken.nan_at = 11;
    ck_fails(calm_rotate(ctx, tiny_model_write(&broken), &plain, &how, test_format("%s/o", test_directory()), false),
             CALM_ENUMERIC, broken.nan_in);
}
END_OF_TEST

static const char *digest_of(const char *dir)
{
    char *text;
    size_t n;
    calm_sha256 sha;
    char *hex = test_format("%*s", CALM_SHA256_HEX, "");
    ck_ok(calm_read_file(ctx, test_format("%s/model.safetensors", dir), 1 << 24, &text, &n));
    calm_sha256_init(&sha);
    calm_sha256_update(&sha, text, n);
    ck_ok(calm_sha256_finish(ctx, &sha, hex));
    return hex;
}

/* Multiplies row or column `at` of a float32 tensor in the file by a power of two. */
static void scale_channel(const char *dir, const char *name, bool column, size_t at, float factor)
{
    const char *path = test_format("%s/model.safetensors", dir);
    calm_safetensors *set;
    char *bytes;
    size_t n;
    ck_ok(calm_read_file(ctx, path, 1 << 24, &bytes, &n));
    ck_ok(calm_safetensors_open(ctx, dir, &set));
    const calm_tensor *tensor = tensor_of(set, name);
    char *begin = memmem(bytes, n, tensor->data, tensor->bytes);
    const size_t width = tensor->n_dims > 1 ? tensor->shape[1] : 1, all = column ? tensor->shape[0] : width;
    ck_assert(begin != NULL);
    for (size_t i = 0; i < all; i++) {
        char *place = begin + 4 * (column ? i * width + at : at * width + i);
        float value;
        memcpy(&value, place, sizeof value);
        value *= factor;
        memcpy(place, &value, sizeof value);
    }
    calm_safetensors_close(set);
    ck_ok(calm_write_file(ctx, path, bytes, n));
}

/* A model whose channels between v and o, up and down are scaled and scaled back is balanced to the same bits:
 * factors are powers of two, and their fourth powers have exact roots. */
TEST(scaled_channels_are_balanced)
{
    const tiny_model spec = spec_of("llama", false);    /* 2 query heads share each KV head of 8 channels */
    const char *from = tiny_model_write(&spec), *twin = tiny_model_write(&spec);
    const char *to[2];
    scale_channel(twin, "model.layers.0.self_attn.v_proj.weight", false, 3, 16);
    scale_channel(twin, "model.layers.0.self_attn.v_proj.bias", false, 3, 16);
    scale_channel(twin, "model.layers.0.self_attn.o_proj.weight", true, 3, 0.0625F);
    scale_channel(twin, "model.layers.0.self_attn.o_proj.weight", true, spec.head_dim + 3, 0.0625F);
    scale_channel(twin, "model.layers.1.mlp.up_proj.weight", false, 90, 16);
    scale_channel(twin, "model.layers.1.mlp.up_proj.bias", false, 90, 16);
    scale_channel(twin, "model.layers.1.mlp.down_proj.weight", true, 90, 0.0625F);
    ck_assert(distance(from, twin, CALM_ROTATE_NONE) <= TOLERANCE);
    for (int i = 0; i < 2; i++) {
        const calm_rotate_options how = {CALM_ROTATE_R1R2R4, 7, CALM_N_DTYPES};
        calm_model *model;
        to[i] = test_format("%s/rotated", test_directory());
        ck_ok(calm_model_open(ctx, i ? twin : from, &model));
        ck_ok(calm_model_use_hadamard(ctx, model, false));
        ck_ok(calm_make_directories(ctx, to[i]));
        ck_ok(calm_rotate_write(ctx, model, &how, to[i]));
        calm_model_close(model);
    }
    ck_assert_str_eq(digest_of(to[0]), digest_of(to[1]));
}
END_OF_TEST

TEST(threads)
{
    const tiny_model spec = spec_of("qwen2_moe", false);
    const char *from = tiny_model_write(&spec);
    ctx->n_threads = 1;
    const char *one = digest_of(rotate(from, CALM_ROTATE_R1R2, CALM_N_DTYPES));
    ctx->n_threads = 4;
    ck_assert_str_eq(digest_of(rotate(from, CALM_ROTATE_R1R2, CALM_N_DTYPES)), one);
}
END_OF_TEST

/* Every allocation of either arena fails in turn. */
TEST(failing_allocations)
{
    const tiny_model spec = spec_of("phi3", true);
    const char *from = tiny_model_write(&spec);
    const calm_rotate_options how = {CALM_ROTATE_R1R2, 0, CALM_N_DTYPES};
    calm_model *model;
    ctx->n_threads = 1;
    ck_ok(calm_model_open(ctx, from, &model));
    calm_status status = CALM_ENOMEM;
    long i = 0;
    while (status != CALM_OK) {
        const char *dir = test_format("%s/%ld", test_directory(), ++i);
        ck_ok(calm_make_directories(ctx, dir));
        const size_t before = ctx->scratch->used_bytes;
        ctx->scratch->fail_in = i;
        status = calm_rotate_write(ctx, model, &how, dir);
        ctx->scratch->fail_in = 0;
        ck_assert_msg(status == CALM_OK || status == CALM_ENOMEM, "%s", ctx->message);
        calm_ctx_clear_failure(ctx);
        ck_assert_msg(ctx->scratch->used_bytes == before, "allocation %ld: %zu bytes are left", i,
                      ctx->scratch->used_bytes - before);
    }
    ck_assert_int_gt(i, 20);
    calm_model_close(model);
}
END_OF_TEST

/* The families of the fixtures, in float32 so that the tolerance is that of the arithmetic. */
TEST(fixtures)
{
    const char *root = fixtures_root();
    size_t n_run = 0;
    if (!root)
        return;
    calm_linalg_setup();
    char **names = fixture_entries("models", NULL);
    for (size_t i = 0; names[i]; i++) {
        const char *from = test_format("%s/models/%s", root, names[i]);
        calm_model *model;
        ck_ok(calm_model_open(ctx, from, &model));
        const bool refused = calm_rotate_allow(ctx, model, CALM_ROTATE_R1) != CALM_OK;
        calm_model_close(model);
        calm_ctx_clear_failure(ctx);
        ck_assert_int_eq(refused, strncmp(names[i], "bert", 4) == 0 || strncmp(names[i], "gemma", 5) == 0 ||
                                      strncmp(names[i], "olmo", 4) == 0);
        if (refused)
            continue;
        const double d = distance(from, rotate(from, CALM_ROTATE_R1R2, CALM_F32), CALM_ROTATE_NONE);
        ck_assert_msg(d <= TOLERANCE, "%s: %g", names[i], d);
        n_run++;
    }
    ck_assert_uint_ge(n_run, 10);
    /* Latent attention, whose keys lie between the heads of values: only R1. */
    static const char *const latent[] = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite"};
    for (size_t i = 0; i < sizeof latent / sizeof *latent; i++) {
        const char *from = test_format("%s/families/%s", root, latent[i]);
        if (!calm_is_directory(from))
            continue;
        const double d = distance(from, rotate(from, CALM_ROTATE_R1R2, CALM_F32), CALM_ROTATE_NONE);
        ck_assert_msg(d <= TOLERANCE, "%s: %g", latent[i], d);
    }
}
END_OF_TEST

/* Mixers without heads: only the residual stream is rotated. */
TEST(other_mixers)
{
    static const char *const families[] = {"lfm2", "lfm2_moe"};
    calm_linalg_setup();
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        tiny_model spec = tiny_of(families[i]);
        spec.dtype = CALM_F32;
        const char *from = tiny_model_write(&spec);
        const double d = distance(from, rotate(from, CALM_ROTATE_R1R2, CALM_F32), CALM_ROTATE_NONE);
        ck_assert_msg(d <= TOLERANCE, "%s: %g", families[i], d);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("rotate", (const TTest *[]){same_function, odd_widths, before_down, before_every_linear,
                                                 what_is_written, rounded_once, other_dtypes, refusals,
                                                 scaled_channels_are_balanced, threads, failing_allocations, fixtures,
                                                 other_mixers, NULL});
}
