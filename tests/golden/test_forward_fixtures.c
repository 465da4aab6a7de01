/* `calm forward` on every model fixture: the tensors of the written file against those of the reference with the
 * same names, within the tolerance of fixtures/README.md (2e-4 of max(1, largest value), derived in
 * test_model_fixtures.c).  Rows of padding are 0. */
#include <stdio.h>

#include "cli/command.h"
#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"

#define TOLERANCE 2e-4

extern const calm_command calm_cmd_forward;

static int64_t integer(const calm_tensor *tensor, size_t i)
{
    int64_t value;
    memcpy(&value, tensor->data + 8 * i, sizeof value);
    return value;
}

/* Appends row `s` of an I64 tensor [S, T] as a JSON list; nothing if the tensor is NULL. */
static void append(calm_text *text, const char *before, const calm_tensor *tensor, size_t s)
{
    if (!tensor)
        return;
    calm_text_printf(text, "%s[", before);
    for (size_t t = 0; t < tensor->shape[1]; t++)
        calm_text_printf(text, "%s%lld", t ? ", " : "", (long long)integer(tensor, s * tensor->shape[1] + t));
    calm_text_printf(text, "]");
}

static void write_tokens(const calm_safetensors *reference, const char *path)
{
    const calm_tensor *ids = calm_safetensors_find(reference, "input_ids");
    calm_text text;
    calm_text_init(&text);
    ck_assert(ids && ids->dtype == CALM_I64 && ids->n_dims == 2);
    for (size_t s = 0; s < ids->shape[0]; s++) {
        append(&text, "{\"ids\": ", ids, s);
        append(&text, ", \"mask\": ", calm_safetensors_find(reference, "attention_mask"), s);
        append(&text, ", \"types\": ", calm_safetensors_find(reference, "token_type_ids"), s);
        calm_text_printf(&text, "}\n");
    }
    ck_ok(calm_text_check(ctx, &text));
    ck_ok(calm_write_file(ctx, path, text.data, text.length));
    calm_text_clear(&text);
}

static void run_forward(const char *model, const char *tokens, const char *output)
{
    char *argv[] = {(char[]){"forward"}, (char[]){"--model"}, test_format("%s", model), (char[]){"--tokens"},
                    test_format("%s", tokens), (char[]){"--output"}, test_format("%s", output), (char[]){"--hidden"},
                    (char[]){"--quiet"}};
    void *opts;
    ck_ok(calm_alloc(ctx, ctx->out, &opts, 1, calm_cmd_forward.opts_size, "options"));
    ck_ok(calm_args_parse(ctx, &calm_cmd_forward, (int)(sizeof argv / sizeof *argv), argv, opts));
    ck_ok(calm_cmd_forward.run(ctx, opts));
}

static float value_at(const calm_tensor *tensor, size_t i)
{
    float value;
    memcpy(&value, tensor->data + 4 * i, sizeof value);
    return value;
}

/* Compares tensors [S, T, width] or [S, width]; `mask` [S, T] or NULL. */
static void compare(const char *model, const calm_tensor *expected, const calm_tensor *found, const calm_tensor *mask)
{
    const size_t width = expected->shape[expected->n_dims - 1];
    double worst = 0, largest = 1;
    ck_assert_msg(found != NULL, "%s: %s was not written", model, expected->name);
    ck_assert(found->dtype == CALM_F32 && found->n_dims == expected->n_dims);
    for (int i = 0; i < found->n_dims; i++)
        ck_assert_uint_eq(found->shape[i], expected->shape[i]);
    for (size_t i = 0; i < expected->n_elements; i++) {
        const bool padding = mask && expected->n_dims == 3 && !integer(mask, i / width);
        const double difference = fabs((double)value_at(found, i) - (double)value_at(expected, i));
        ck_assert_msg(!padding || value_at(found, i) == 0, "%s: %s: element %zu of padding", model, expected->name, i);
        if (!padding)
            worst = test_worse(worst, difference);
        largest = fmax(largest, fabs((double)value_at(expected, i)));
    }
    ck_assert_msg(worst <= TOLERANCE * largest, "%s: %s: largest difference %g, tolerance %g", model, expected->name,
                  worst, TOLERANCE * largest);
}

static bool is_output(const char *name)
{
    return strncmp(name, "hidden.", 7) == 0 || strcmp(name, "logits") == 0 || strcmp(name, "last_hidden_state") == 0 ||
           strcmp(name, "pooler_output") == 0;
}

static void check_model(const char *name, const char *dir)
{
    const char *tokens = test_format("%s/tokens.jsonl", test_directory()), *output = test_format("%s.out", tokens);
    calm_safetensors *reference, *written;
    size_t n = 0;
    ck_ok(calm_safetensors_open(ctx, test_format("%s/reference.safetensors", dir), &reference));
    write_tokens(reference, tokens);
    run_forward(dir, tokens, output);
    ck_ok(calm_safetensors_open(ctx, output, &written));
    for (size_t i = 0; i < calm_safetensors_count(reference); i++) {
        const calm_tensor *expected = calm_safetensors_at(reference, i);
        if (!is_output(expected->name))
            continue;
        compare(name, expected, calm_safetensors_find(written, expected->name),
                calm_safetensors_find(reference, "attention_mask"));
        n++;
    }
    ck_assert_uint_eq(calm_safetensors_count(written), n);
    ck_assert_uint_ge(n, 3);
    calm_safetensors_close(written);
    calm_safetensors_close(reference);
}

TEST(forward_fixtures)
{
    const char *root = fixtures_root();
    if (!root)
        return;
    char **names = fixture_entries("models", NULL);
    for (size_t i = 0; names[i]; i++) {
        check_model(names[i], test_format("%s/models/%s", root, names[i]));
        printf("ok %s\n", names[i]);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("forward_fixtures", (const TTest *[]){forward_fixtures, NULL});
}
