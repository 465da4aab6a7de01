/* Perplexity with BOS at the start of every window: the loss of calm eval on a text equals the mean loss of windows
 * that the test assembles one by one from bos_token_id of config.json and the next tokens of the text.  Every model
 * fixture whose tokenizer has a template is tested, Gemma's, which need BOS, among them.
 *
 * Tolerance: float32 sums over a single window and over a batch of windows may have different orders, which moves a
 * logit by at most 3e-5 (fixtures/README.md) and a mean negative log-likelihood by no more. */
#include <stdio.h>

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/eval/evaluate.h"
#include "ptq/io/json.h"
#include "ptq/plan/key.h"
#include "ptq/state/eval_text.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

#define SEQLEN 24
#define WINDOWS 6
#define TOLERANCE 3e-5

/* A model, its tokenizer, and the path of an English text. */
typedef struct bench {
    calm_model *model;
    calm_tokenizer *tokenizer;
    const char *text;
} bench;

static bench open_bench(const char *name)
{
    const char *dir = test_format("%s/models/%s", fixtures_root(), name);
    bench b = {.text = test_format("%s/text.txt", test_directory())};
    calm_mapping map;
    ck_ok(calm_model_open(ctx, dir, &b.model));
    ck_ok(calm_tokenizer_open(ctx, test_format("%s/tokenizer.json", dir), &b.tokenizer));
    ck_ok(calm_map_file(ctx, CALM_SOURCE_DIR "/recipes/text/wikitext2-test.txt", &map));
    ck_ok(calm_write_file(ctx, b.text, map.data, 2000));
    calm_unmap_file(&map);
    return b;
}

static void close_bench(bench *b)
{
    calm_tokenizer_close(b->tokenizer);
    calm_model_close(b->model);
    calm_arena_clear(ctx->out);
}

static double nll_of(const bench *b, const calm_windows *windows)
{
    const calm_subject subject = {.model = b->model};
    calm_eval_result result;
    ck_ok(calm_evaluate(ctx, NULL, NULL, &subject, 1, &result, windows, NULL, NULL));
    return result.nll;
}

static calm_windows read_text(const bench *b, bool no_special)
{
    const calm_eval_text text = {.text = b->text, .seqlen = SEQLEN, .samples = WINDOWS, .no_special = no_special};
    calm_windows windows;
    ck_ok(calm_eval_text_windows(ctx, b->model, b->tokenizer, &text, &windows));
    ck_assert_uint_eq(windows.n, WINDOWS);
    return windows;
}

/* Returns the mean loss over windows of BOS and SEQLEN - 1 tokens of the text, each evaluated separately. */
static double by_hand(const bench *b, uint32_t bos)
{
    calm_mapping map;
    uint32_t *ids, window[SEQLEN] = {bos};
    size_t n, begin[2] = {0, SEQLEN};
    double sum = 0;
    ck_ok(calm_map_file(ctx, b->text, &map));
    ck_ok(calm_tokenizer_encode(ctx, b->tokenizer, (const char *)map.data, map.bytes, false, &ids, &n));
    calm_unmap_file(&map);
    ck_assert_uint_ge(n, WINDOWS * (SEQLEN - 1));
    for (size_t w = 0; w < WINDOWS; w++) {
        memcpy(window + 1, ids + w * (SEQLEN - 1), (SEQLEN - 1) * sizeof *ids);
        sum += nll_of(b, &(calm_windows){.ids = window, .begin = begin, .n = 1, .longest = SEQLEN});
    }
    return sum / WINDOWS;
}

/* Returns the store's key for an evaluation on these windows. */
static const char *key_of(const calm_windows *windows)
{
    char key[CALM_SHA256_HEX];
    ck_ok(calm_key_evaluation(ctx, "model", "subject", windows, key));
    return test_format("%s", key);
}

TEST(every_window_begins_with_bos)
{
    size_t n_gemma = 0, n_plain = 0;
    if (!fixtures_root())
        return;
    for (char **names = fixture_entries("models", NULL); *names; names++) {
        bench b = open_bench(*names);
        const uint32_t *head;
        const size_t n = calm_tokenizer_head(b.tokenizer, &head);
        if (calm_model_config(b.model)->arch->encoder) {
            close_bench(&b);
            continue;
        }
        const calm_windows windows = read_text(&b, false), alone = read_text(&b, true);
        if (n == 0) {    /* no template: the tokenizer adds no BOS */
            ck_assert_str_eq(windows.sha256, alone.sha256);
            n_plain++;
            close_bench(&b);
            continue;
        }
        ck_assert_uint_eq(n, 1);
        ck_assert_int_eq(head[0], calm_json_int(calm_json_get(calm_model_json(b.model), "bos_token_id"), -1));
        const double found = nll_of(&b, &windows), expected = by_hand(&b, head[0]), without = nll_of(&b, &alone);
        printf("%s: mean NLL %.6f, without BOS %.6f\n", *names, found, without);
        ck_near(found, expected, TOLERANCE);
        ck_assert(fabs(found - without) > 100 * TOLERANCE);
        ck_assert_str_ne(key_of(&windows), key_of(&alone));
        n_gemma += strncmp(*names, "gemma", 5) == 0;
        close_bench(&b);
    }
    ck_assert_uint_ge(n_gemma, 2);
    ck_assert_uint_ge(n_plain, 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("bos_fixtures", (const TTest *[]){every_window_begins_with_bos, NULL});
}
