/* What `calm forward` writes for tiny models: where rows go, what does not change them, and what is refused. */
#include "ptq/eval/forward_file.h"

#include <dirent.h>

#include "ptq/base/file.h"
#include "ptq/base/sha256.h"
#include "ptq/model/head.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_encoder.h"
#include "tests/support/tiny_model.h"

/* Logits and hidden states of tiny models are below 32 and pass through two blocks of sums of at most 48 terms, whose
 * order depends on how many rows OpenBLAS has at once: 2 * 4 linears * 48 * 32 * 2^-24 each at the worst. */
#define TOLERANCE 1e-3

static calm_model *open_tiny(size_t vocab)
{
    tiny_model spec = tiny_default;
    calm_model *model;
    spec.vocab = vocab;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    return model;
}

static calm_model *open_encoder(void)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_encoder_write(&tiny_encoder_default), &model));
    return model;
}

static calm_token_file read_tokens(const char *lines)
{
    const char *path = test_format("%s/ids.jsonl", test_directory());
    calm_token_file file;
    ck_ok(calm_write_file(ctx, path, lines, strlen(lines)));
    ck_ok(calm_token_file_read(ctx, path, 0, &file));
    return file;
}

static calm_safetensors *run(const calm_model *model, const char *lines, bool hidden)
{
    const calm_token_file tokens = read_tokens(lines);
    const calm_forward_request request = {.model = model, .tokens = &tokens, .hidden = hidden};
    const char *path = test_format("%s/a/out.safetensors", test_directory());
    calm_forward_result result;
    calm_safetensors *set;
    ck_ok(calm_forward_write(ctx, &request, path, &result));
    ck_ok(calm_safetensors_open(ctx, path, &set));
    ck_assert_uint_eq(calm_safetensors_count(set), result.n);
    return set;
}

/* Returns row `row` of all positions of a tensor [S, T, width]. */
static const float *row_of(const calm_safetensors *set, const char *name, size_t row)
{
    const calm_tensor *tensor = calm_safetensors_find(set, name);
    ck_assert_msg(tensor != NULL, "no %s", name);
    ck_assert(tensor->dtype == CALM_F32 && ((uintptr_t)tensor->data & 3) == 0);
    return (const float *)(const void *)tensor->data + row * tensor->shape[tensor->n_dims - 1];
}

static void check_rows(const float *a, const float *b, size_t width)
{
    for (size_t i = 0; i < width; i++)
        ck_near(a[i], b[i], TOLERANCE);
}

static bool is_zero(const float *x, size_t width)
{
    for (size_t i = 0; i < width; i++)
        if (x[i] != 0)
            return false;
    return true;
}

/* ---- where rows are written ---- */

/* The model is causal: a shorter sequence, padded or not, has the first rows of a longer one, and the rest are 0. */
TEST(shorter_sequences_end_in_zeros)
{
    calm_model *model = open_tiny(61);
    calm_safetensors *set = run(model, "{\"ids\": [3, 1, 4, 1, 5]}\n{\"ids\": [3, 1, 4]}\n"
                                       "{\"ids\": [3, 1, 9, 9], \"mask\": [1, 1, 0, 0]}\n", true);
    static const char *const names[] = {"hidden.embed", "hidden.00", "hidden.01", "hidden.final_norm", "logits"};
    ck_assert_uint_eq(calm_safetensors_count(set), 5);
    for (size_t k = 0; k < 5; k++) {
        const calm_tensor *tensor = calm_safetensors_find(set, names[k]);
        const size_t width = k == 4 ? 61 : 32;
        ck_assert_ptr_nonnull(tensor);
        ck_assert(tensor->n_dims == 3 && tensor->shape[0] == 3 && tensor->shape[1] == 5 && tensor->shape[2] == width);
        for (size_t t = 0; t < 5; t++) {
            ck_assert(!is_zero(row_of(set, names[k], t), width));
            for (size_t s = 1; s < 3; s++)
                if (t < 4 - s)
                    check_rows(row_of(set, names[k], 5 * s + t), row_of(set, names[k], t), width);
                else
                    ck_assert(is_zero(row_of(set, names[k], 5 * s + t), width));
        }
    }
    calm_safetensors_close(set);
    calm_model_close(model);
}
END_OF_TEST

/* Leading padding shifts the tokens' positions: with rotary embeddings the logits stay, with a table of positions
 * they change. */
TEST(tokens_keep_their_positions)
{
    calm_model *model = open_tiny(61), *encoder = open_encoder();
    const char *lines = "{\"ids\": [7, 7, 3, 1, 4], \"mask\": [0, 0, 1, 1, 1]}\n{\"ids\": [3, 1, 4]}\n";
    calm_safetensors *set = run(model, lines, false);
    ck_assert_uint_eq(calm_safetensors_count(set), 1);
    for (size_t t = 0; t < 3; t++)
        check_rows(row_of(set, "logits", 2 + t), row_of(set, "logits", 5 + t), 61);
    ck_assert(is_zero(row_of(set, "logits", 0), 61) && is_zero(row_of(set, "logits", 1), 61));
    calm_safetensors_close(set);
    set = run(encoder, lines, true);
    double difference = 0;
    for (size_t i = 0; i < 32; i++)
        difference = fmax(difference, fabs((double)row_of(set, "last_hidden_state", 2)[i] -
                                           (double)row_of(set, "last_hidden_state", 5)[i]));
    ck_assert(difference > 0.1);
    ck_assert(is_zero(row_of(set, "last_hidden_state", 0), 32) && is_zero(row_of(set, "hidden.embed", 1), 32));
    calm_safetensors_close(set);
    calm_model_close(model);
    calm_model_close(encoder);
}
END_OF_TEST

/* The pooler reads the first token after the padding. */
TEST(what_encoders_write)
{
    calm_model *model = open_encoder();
    calm_head head;
    float pooled[32];
    calm_safetensors *set = run(model, "{\"ids\": [3, 1, 4], \"types\": [0, 0, 1]}\n"
                                       "{\"ids\": [7, 3, 1], \"mask\": [0, 1, 1]}\n{\"ids\": [3, 1, 4]}\n", false);
    ck_assert_uint_eq(calm_safetensors_count(set), 2);
    ck_assert_int_eq(calm_safetensors_find(set, "pooler_output")->n_dims, 2);
    ck_ok(calm_model_load_head(ctx, model, &head));
    for (size_t s = 0; s < 3; s++) {
        ck_ok(calm_head_pool(ctx, &head, row_of(set, "last_hidden_state", 3 * s + (s == 1)), pooled));
        check_rows(pooled, row_of(set, "pooler_output", s), 32);
    }
    double difference = 0;    /* the type of the last token changes the output */
    for (size_t i = 0; i < 32; i++)
        difference = fmax(difference, fabs((double)row_of(set, "last_hidden_state", 2)[i] -
                                           (double)row_of(set, "last_hidden_state", 8)[i]));
    ck_assert(difference > 0.1);
    calm_safetensors_close(set);
    calm_model_close(model);
}
END_OF_TEST

/* 2^24 / 40001 = 419 rows are a piece, 2^20 / 32 tokens a tile. */
TEST(logits_in_pieces_and_tiles)
{
    const size_t vocab = 40001, tokens = 425;
    calm_model *model = open_tiny(vocab);
    const char *lines = "{\"ids\": [0";
    calm_head head;
    float *x, *logits;
    for (size_t i = 1; i < tokens; i++)
        lines = test_format("%s, %zu", lines, i * 94 % vocab);
    calm_safetensors *set = run(model, test_format("%s]}\n", lines), true);
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(CALM_NEW(ctx, ctx->out, x, head.hidden));
    ck_ok(CALM_NEW(ctx, ctx->out, logits, vocab));
    for (size_t row = 417; row < tokens; row++) {
        memcpy(x, row_of(set, "hidden.final_norm", row), head.hidden * sizeof *x);
        ck_ok(calm_head_tile_logits(ctx, &head, x, 1, 0, head.vocab, logits, head.vocab));
        check_rows(logits, row_of(set, "logits", row), vocab);
    }
    calm_safetensors_close(set);
    calm_model_close(model);
}
END_OF_TEST

/* ---- bytes ---- */

static const char *digest_of(calm_model *model, const calm_token_file *tokens, size_t memory, int threads)
{
    const calm_forward_request request = {.model = model, .tokens = tokens, .hidden = true, .memory = memory};
    const char *path = test_format("%s/out", test_directory());
    char digest[CALM_SHA256_HEX];
    calm_forward_result result;
    ctx->n_threads = threads;
    ck_ok(calm_forward_write(ctx, &request, path, &result));
    ck_ok(calm_sha256_file(ctx, path, digest));
    return test_format("%s", digest);
}

TEST(same_bytes_with_any_threads_and_from_a_file)
{
    calm_model *models[] = {open_tiny(61), open_encoder()};
    const calm_token_file tokens = read_tokens("{\"ids\": [3, 1, 4, 1, 5]}\n{\"ids\": [9, 2, 6], \"mask\": [1, 0, 1]}\n"
                                               "{\"ids\": [5, 3, 5, 8, 9, 7, 9]}\n");
    for (size_t i = 0; i < 2; i++) {
        const char *expected = digest_of(models[i], &tokens, 0, 1);
        ck_assert_str_eq(digest_of(models[i], &tokens, 0, 4), expected);
        ck_assert_str_eq(digest_of(models[i], &tokens, 1, 2), expected);    /* hidden states in a file */
        calm_model_close(models[i]);
    }
}
END_OF_TEST

/* ---- refusals ---- */

static void check_refused(const calm_model *model, const char *lines, calm_status status, const char *words)
{
    const calm_token_file tokens = read_tokens(lines);
    const calm_forward_request request = {.model = model, .tokens = &tokens};
    const char *dir = test_directory();
    struct dirent **left;
    calm_forward_result result;
    ck_fails(calm_forward_write(ctx, &request, test_format("%s/out", dir), &result), status, words);
    const int n = scandir(dir, &left, NULL, alphasort);
    ck_assert_int_eq(n, 2);    /* . and .. */
    for (int i = 0; i < n; i++)
        free(left[i]);
    free(left);
}

TEST(types_and_positions_that_are_not_there)
{
    calm_model *model = open_tiny(61), *encoder = open_encoder();
    const char *lines = "{\"ids\": [0";
    for (int i = 1; i < 41; i++)
        lines = test_format("%s, 0", lines);
    check_refused(model, "\n{\"ids\": [1, 2], \"types\": [0, 1]}\n", CALM_EFORMAT,
                  "ids.jsonl: line 2: types[1]: type 1 of a token, but the model has 1");
    check_refused(encoder, "{\"ids\": [1]}\n{\"ids\": [1, 2], \"types\": [2, 1]}\n", CALM_EFORMAT,
                  "line 2: types[0]: type 2");
    check_refused(encoder, test_format("%s]}\n", lines), CALM_EFORMAT,
                  "line 1: a token at position 40, but the model has 40");
    check_refused(model, "{\"ids\": [1, 61]}\n", CALM_EARG, "token id 61");
    calm_model_close(model);
    calm_model_close(encoder);
}
END_OF_TEST

TEST(a_failure_leaves_nothing)
{
    tiny_model spec = tiny_default;
    calm_model *model;
    spec.nan_in = "model.layers.1.mlp.up_proj.weight";
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    check_refused(model, "{\"ids\": [1, 2]}\n", CALM_ENUMERIC, "model.layers.1.mlp.up_proj.weight");
    const calm_token_file tokens = read_tokens("{\"ids\": [1, 2]}\n");
    const calm_forward_request request = {.model = model, .tokens = &tokens};
    calm_forward_result result;
    ck_fails(calm_forward_write(ctx, &request, test_directory(), &result), CALM_EARG, "found a directory");
    calm_model_close(model);
}
END_OF_TEST

/* Receives the ticks. */
static void hear(void *user, size_t done, size_t total)
{
    size_t *last = user;
    ck_assert(done > *last && done <= total && total == 4);
    *last = done;
}

TEST(ticks_reach_the_end)
{
    calm_model *model = open_tiny(61);
    const calm_token_file tokens = read_tokens("{\"ids\": [1, 2]}\n");
    size_t last = 0;
    const calm_forward_request request = {.model = model, .tokens = &tokens, .tick = hear, .tick_user = &last};
    calm_forward_result result;
    ck_ok(calm_forward_write(ctx, &request, test_format("%s/out", test_directory()), &result));
    ck_assert_uint_eq(last, 4);
    calm_model_close(model);
}
END_OF_TEST

int main(void)
{
    return run_tests("forward_file", (const TTest *[]){
        shorter_sequences_end_in_zeros, tokens_keep_their_positions, what_encoders_write, logits_in_pieces_and_tiles,
        same_bytes_with_any_threads_and_from_a_file, types_and_positions_that_are_not_there, a_failure_leaves_nothing,
        ticks_reach_the_end, NULL});
}
