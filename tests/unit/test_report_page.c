/* The report of a run: its data are the store's, and its page holds them without markup from untrusted text. */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/report_page/report_page.h"
#include "ptq/base/file.h"
#include "ptq/text/unicode.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"
#include "tests/support/store_sample.h"
#include "tests/tools/synth_store.h"

/* ---- the data of a store ---- */

static calm_json *collect(const char *path, const char *first, const char *second)
{
    const char *words[] = {first, second};
    calm_json *data;
    ck_ok(calm_report_page_collect(ctx, path, words, first ? second ? 2 : 1 : 0, &data));
    return data;
}

static const calm_json *run_of(const calm_json *data)
{
    return calm_json_at(calm_json_get(data, "runs"), 0);
}

static const calm_json *unit_of(const calm_json *run, size_t i)
{
    return calm_json_at(calm_json_get(calm_json_get(run, "matrix"), "units"), i);
}

static const char *word_of(const calm_json *object, const char *key)
{
    return calm_json_string(calm_json_get(object, key), "");
}

/* Returns a column of a cell of the matrix: a number or a phrase. */
static const calm_json *cell_of(const calm_json *run, size_t unit, size_t cell, const char *column)
{
    const calm_json *matrix = calm_json_get(run, "matrix"), *columns = calm_json_get(matrix, "columns");
    const calm_json *row = calm_json_at(calm_json_get(unit_of(run, unit), "cells"), cell);
    size_t i = 0;
    while (i < calm_json_size(columns) && strcmp(calm_json_string(calm_json_at(columns, i), ""), column) != 0)
        i++;
    ck_assert_msg(i < calm_json_size(columns), "no column %s", column);
    const bool phrase = strcmp(column, "state") == 0 || strcmp(column, "reason") == 0;
    const calm_json *value = calm_json_at(row, i);
    return phrase ? calm_json_at(calm_json_get(matrix, "phrases"), (size_t)calm_json_int(value, -1)) : value;
}

TEST(the_matrix_is_the_store)
{
    calm_json *data = collect(inspect_sample(), "1", NULL);
    const calm_json *run = run_of(data);
    static const char *const decisions[] = {"rule", "pinned", "other", "float"};
    for (size_t u = 0; u < 4; u++)
        ck_assert_str_eq(word_of(unit_of(run, u), "decision"), decisions[u]);
    ck_assert_uint_eq(calm_json_size(calm_json_get(unit_of(run, 0), "cells")), 3);
    /* To the last digit: gptq, the recipe's second algorithm, has 1.04e-4 against 1e-4. */
    ck_assert_double_eq(calm_json_number(cell_of(run, 0, 1, "cka_token"), NAN), 1.04e-4);
    ck_assert_double_eq(calm_json_number(cell_of(run, 0, 1, "times_least"), NAN), 1 + (1.04e-4 - 1e-4) / 1e-4);
    ck_assert_str_eq(calm_json_string(cell_of(run, 0, 1, "state"), ""), "chosen");
    ck_assert_str_eq(calm_json_string(cell_of(run, 1, 1, "state"), ""), "failed");
    ck_has(calm_json_string(cell_of(run, 1, 1, "reason"), ""), "not positive definite");
    ck_assert_str_eq(calm_json_string(cell_of(run, 0, 0, "state"), ""), "lost");
    ck_has(calm_json_string(cell_of(run, 0, 0, "reason"), ""), "outside the shortlist");
    calm_json_free(data);
}
END_OF_TEST

/* Run 1's third unit lacks the rule's candidate: in a run for an engine it is held back by the target. */
TEST(held_back_by_a_target)
{
    static const struct {
        const char *recipe, *decision;
    } cases[] = {{"{\"target\":\"vllm\"}", "held_back"},
                 {"{\"target\":\"vllm\",\"select\":{\"target\":\"any\"}}", "other"},
                 {"{\"select\":{\"target\":\"vllm\"}}", "held_back"},
                 {"{}", "other"}};
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    const int64_t model = sample_number(store, "SELECT model_id FROM run WHERE id = 1");
    const int64_t calibration = sample_number(store, "SELECT calibration_id FROM run WHERE id = 1");
    const int64_t job = sample_number(store, "SELECT job_id FROM choice WHERE run_id = 1 AND unit LIKE '%.1.qkv'");
    const int64_t candidate = sample_number(store, "SELECT candidate_id FROM choice WHERE run_id = 1 AND unit LIKE "
                                                   "'%.1.qkv'");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const calm_store_run run = {.key = test_format("held %zu", i), .model_id = model,
                                    .calibration_id = calibration, .unit = "job", .recipe = cases[i].recipe,
                                    .rule = "token", .metric = "cka_token"};
        int64_t id;
        ck_ok(calm_store_run_begin(ctx, store, &run, &id, NULL));
        ck_ok(calm_store_run_pool(ctx, store, id, 1));
        ck_ok(calm_store_choice_put(ctx, store, &(calm_store_choice){.run_id = id, .job_id = job,
                                                                    .candidate_id = candidate,
                                                                    .unit = "model.layers.1.qkv", .reason = "r"}));
        calm_json *data = collect(path, test_format("%lld", (long long)id), NULL);
        ck_assert_str_eq(word_of(unit_of(run_of(data), 2), "decision"), cases[i].decision);
        ck_assert_str_eq(word_of(unit_of(run_of(data), 0), "decision"), "none");
        calm_json_free(data);
    }
    calm_store_close(store);
}
END_OF_TEST

/* Windows of 10 tokens with KL sums 1 and 3: the mean is 4/20; residuals -1 and 1, so the error is sqrt(2/1 * 2)/20. */
TEST(the_error_of_the_loss)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    const calm_store_window windows[] = {{.tokens = 10, .nll = 20, .kl = 1, .top1 = 5},
                                         {.tokens = 10, .nll = 20, .kl = 3, .top1 = 5}};
    const calm_store_evaluation evaluation = {.key = "w", .model_id = s.model, .subject = "hybrid", .text_name = "t",
                                              .window_tokens = 11, .tokens = 20, .nll = 2, .ppl = exp(2), .kl = 0.2,
                                              .top1 = 0.5, .windows = windows, .n_windows = 2};
    int64_t id;
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &id));
    ck_ok(calm_store_verdict_put(ctx, store, &(calm_store_verdict){s.run, id, "test", "hybrid", NAN, NAN}));
    ck_ok(calm_store_run_end(ctx, store, s.run, &(calm_store_outcome){"finished", "hybrid", "", 4, 10, 5}));
    calm_store_close(store);
    calm_json *data = collect(path, NULL, NULL);
    const calm_json *loss = calm_json_get(run_of(data), "loss");
    ck_assert_int_eq(calm_json_int(calm_json_get(loss, "windows"), 0), 2);
    ck_assert_double_eq_tol(calm_json_number(calm_json_get(loss, "mean"), NAN), 0.2, 1e-15);
    ck_assert_double_eq_tol(calm_json_number(calm_json_get(loss, "se"), NAN), 0.1, 1e-15);
    calm_json_free(data);
}
END_OF_TEST

/* Sentences with cosines 0.9 and 0.7: the mean of 1 - cosine is 0.2; residuals -0.1 and 0.1: sqrt(2/1 * 0.02) / 2. */
TEST(the_error_of_an_encoder)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    const calm_store_window windows[] = {{.error = 0.1, .cosine = 0.9}, {.error = 0.3, .cosine = 0.7}};
    const calm_store_evaluation evaluation = {.key = "w", .model_id = s.model, .subject = "hybrid", .text_name = "t",
                                              .window_tokens = 11, .kind = CALM_STORE_EMBEDDINGS, .pairs = 1,
                                              .error = 0.2, .cosine = 0.8, .cosine_min = 0.7, .spearman = NAN,
                                              .windows = windows, .n_windows = 2};
    int64_t id;
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &id));
    ck_ok(calm_store_verdict_put(ctx, store, &(calm_store_verdict){s.run, id, "test", "hybrid", NAN, NAN}));
    ck_ok(calm_store_run_end(ctx, store, s.run, &(calm_store_outcome){"finished", "hybrid", "", 4, 10, 5}));
    calm_store_close(store);
    calm_json *data = collect(path, NULL, NULL);
    const calm_json *loss = calm_json_get(run_of(data), "loss");
    CALM_SCOPED_TEXT(markdown);
    ck_assert_str_eq(word_of(loss, "name"), "one_minus_cosine");
    ck_assert_double_eq_tol(calm_json_number(calm_json_get(loss, "mean"), NAN), 0.2, 1e-15);
    ck_assert_double_eq_tol(calm_json_number(calm_json_get(loss, "se"), NAN), 0.1, 1e-15);
    ck_ok(calm_report_page_markdown(ctx, data, &markdown));
    ck_has(markdown.data, "| 1 - cosine |  | 0.20000 +- 0.10000 |");
    calm_json_free(data);
}
END_OF_TEST

TEST(two_runs)
{
    const char *path = inspect_sample();
    calm_json *data = collect(path, "1", "2");
    const calm_json *diff = calm_json_get(data, "diff");
    ck_assert_uint_eq(calm_json_size(calm_json_get(data, "runs")), 2);
    ck_assert_uint_gt(calm_json_size(calm_json_get(diff, "choices")), 0);
    ck_assert_uint_gt(calm_json_size(calm_json_get(diff, "scores")), 0);
    CALM_SCOPED_TEXT(markdown);
    ck_ok(calm_report_page_markdown(ctx, data, &markdown));
    ck_has(markdown.data, "### calm run 1: qwen, finished");
    ck_has(markdown.data, "### calm run 2: qwen, finished");
    ck_has(markdown.data, "### What differs");
    ck_has(markdown.data, "| gptq | w4a16_g128 | 3 | 24576 |");
    calm_json_free(data);
    const char *const same[] = {"2", "2"};
    ck_assert_int_eq(calm_report_page_collect(ctx, path, same, 2, &data), CALM_EARG);
    calm_ctx_clear_failure(ctx);
    /* Three runs have no difference; each may be given once. */
    const char *const three[] = {"3", "1", "2"}, *const again[] = {"3", "1", "3"};
    ck_ok(calm_report_page_collect(ctx, path, three, 3, &data));
    ck_assert_uint_eq(calm_json_size(calm_json_get(data, "runs")), 3);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(data, "diff")), CALM_JSON_NULL);
    calm_json_free(data);
    ck_fails(calm_report_page_collect(ctx, path, again, 3, &data), CALM_EARG, "run 3 twice");
    const char *const none[] = {"9"};
    ck_assert_int_eq(calm_report_page_collect(ctx, path, none, 1, &data), CALM_ENOTFOUND);
    ck_has(ctx->message, "no run 9; it has 1, 2, 3, 4");
    ck_assert_ptr_null(data);
    calm_ctx_clear_failure(ctx);
}
END_OF_TEST

/* ---- the page ---- */

/* Returns the text between two marks of the page, in ctx->out. */
static char *between(const char *page, const char *begin, const char *end)
{
    const char *from = strstr(page, begin);
    ck_assert_ptr_nonnull(from);
    from += strlen(begin);
    const char *to = strstr(from, end);
    ck_assert_ptr_nonnull(to);
    char *copy;
    ck_ok(CALM_NEW(ctx, ctx->out, copy, (size_t)(to - from) + 1));
    memcpy(copy, from, (size_t)(to - from));
    return copy;
}

static void ck_page(const calm_json *data, calm_text *page)
{
    CALM_SCOPED_TEXT(again);
    CALM_SCOPED_TEXT(json);
    CALM_SCOPED_JSON(parsed);
    ck_ok(calm_report_page_html(ctx, data, page));
    ck_assert_uint_eq(calm_utf8_invalid_at(page->data, page->length), page->length);
    /* The embedded data are what --json prints. */
    const char *embedded = between(page->data, "<script type=\"application/json\" id=\"data\">", "</script>");
    ck_ok(calm_json_parse(ctx, "page", embedded, strlen(embedded), &parsed));
    ck_ok(calm_json_write(ctx, parsed, 0, &again));
    ck_ok(calm_json_write(ctx, data, 0, &json));
    ck_assert_str_eq(again.data, json.data);
    const char *policy = between(page->data, "Content-Security-Policy\" content=\"", "\"");
    ck_has(policy, "default-src 'none'; script-src 'sha256-");
    ck_lacks(policy, "unsafe");
    ck_lacks(policy, "http");
}

TEST(strangers_words_are_no_markup)
{
    static const char hostile[] = "</script><script>alert(1)</script><img src=x onerror=alert(1)> @team & \"'";
    const char *path = sample_path(), *text;
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    calm_store_model model = sample_model;
    int64_t id;
    const sample s = sample_fill(store);
    model.name = hostile;
    ck_ok(calm_store_model_id(ctx, store, &model, &id));
    /* A token with a control character, a truncated UTF-8 sequence and a change of direction. */
    const calm_store_peak peak = {-7, 0, 1, 2, "<b>\033[31m\xe2\x82\xe2\x80\xae"};
    const uint64_t histogram[] = {0, 3, 4};
    const calm_store_activation activation = {
        .model_id = s.model, .calibration_id = s.calibration, .hook = "h<\xff>", .point = "p", .block = 0,
        .channels = 4, .count = 7, .n_tokens = 1, .max_abs = 7, .histogram = histogram, .n_bins = 3, .peaks = &peak,
        .n_peaks = 1};
    ck_ok(calm_store_activation_put(ctx, store, &activation));
    /* Hostile words around a token, in the calibration and in the test. */
    ck_ok(calm_store_context_put(ctx, store, s.calibration, 0, 1, hostile, "\x80\033]0;owned\a"));
    const calm_store_window window = {.tokens = 1, .nll = 2, .kl = 1};
    const calm_store_evaluation evaluation = {.key = "w", .model_id = s.model, .subject = "hybrid", .text_name = "t",
                                              .window_tokens = 2, .tokens = 1, .nll = 2, .ppl = 7, .kl = 1,
                                              .windows = &window, .n_windows = 1};
    const calm_store_quantile quantile = {1, 1};
    const calm_store_range range = {1, 1, 1, 1};
    const calm_store_token token = {0, 1, 1, 2, 1, hostile, "<b>\xe2\x82", "\xf0\x9f", "\xe2\x80\xae"};
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &id));
    ck_ok(calm_store_divergence_put(ctx, store, id, &(calm_store_divergence){&quantile, &range, &token, 1, 1, 1}));
    ck_ok(calm_store_verdict_put(ctx, store, &(calm_store_verdict){s.run, id, "test", "hybrid", NAN, NAN}));
    ck_ok(calm_store_run_end(ctx, store, s.run, &(calm_store_outcome){"finished", "hybrid", "", 4, 10, 5}));
    calm_store_close(store);
    calm_json *data = collect(path, NULL, NULL);
    CALM_SCOPED_TEXT(page);
    ck_page(data, &page);
    const calm_json *worst = calm_json_at(calm_json_get(calm_json_get(run_of(data), "worst"), "rows"), 0);
    ck_assert_str_eq(calm_json_string(calm_json_at(worst, 3), ""), hostile);
    ck_assert_str_eq(calm_json_string(calm_json_at(worst, 6), ""), "\xef\xbf\xbd");
    ck_lacks(page.data, "<script>alert");
    ck_lacks(page.data, "<img");
    ck_lacks(page.data, "<b>");
    text = between(page.data, "<title>", "</title>");
    ck_has(text, "&lt;/script&gt;&lt;script&gt;alert(1)");
    CALM_SCOPED_TEXT(markdown);
    ck_ok(calm_report_page_markdown(ctx, data, &markdown));
    ck_lacks(markdown.data, "<");
    ck_lacks(markdown.data, "@team");
    calm_json_free(data);
}
END_OF_TEST

TEST(a_store_without_runs)
{
    const char *path = sample_path();
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    calm_json *data = collect(path, NULL, NULL);
    CALM_SCOPED_TEXT(page);
    CALM_SCOPED_TEXT(markdown);
    ck_assert_uint_eq(calm_json_size(calm_json_get(data, "runs")), 0);
    ck_page(data, &page);
    ck_ok(calm_report_page_markdown(ctx, data, &markdown));
    ck_has(markdown.data, "the store has no runs");
    calm_json_free(data);
}
END_OF_TEST

/* Every run of the sample has a page: without choices, without evaluations, still running. */
TEST(any_run_has_a_page)
{
    const char *path = inspect_sample();
    for (int run = 1; run <= 4; run++) {
        calm_json *data = collect(path, test_format("%d", run), NULL);
        CALM_SCOPED_TEXT(page);
        CALM_SCOPED_TEXT(markdown);
        ck_page(data, &page);
        ck_ok(calm_report_page_markdown(ctx, data, &markdown));
        if (run > 2)
            ck_has(markdown.data, "Nothing was evaluated on a test text.");
        calm_json_free(data);
    }
}
END_OF_TEST

/* 1,000 units x 20 candidates with real widths of histograms: at most 5 MB, because histograms of some blocks are
 * left out. */
TEST(a_large_run_has_a_small_page)
{
    const char *path = sample_path();
    ck_ok(synth_store_make(ctx, path,
                           &(synth_store){.runs = 1, .jobs = 1000, .candidates = 20, .scores = 10, .models = 1}));
    calm_json *data = collect(path, NULL, NULL);
    CALM_SCOPED_TEXT(page);
    ck_page(data, &page);
    ck_assert_uint_eq(calm_json_size(calm_json_get(calm_json_get(run_of(data), "matrix"), "units")), 1000);
    ck_assert_uint_eq(calm_json_size(calm_json_get(unit_of(run_of(data), 999), "cells")), 20);
    ck_assert_uint_lt(page.length, 5000000);
    const int64_t every = calm_json_int(calm_json_get(run_of(data), "histograms_every"), 0);
    const calm_json *histograms = calm_json_get(run_of(data), "histograms");
    ck_assert_int_gt(every, 1);
    ck_assert_uint_lt(calm_json_size(histograms) * (size_t)every, 3000);
    ck_assert_uint_gt(calm_json_size(histograms) * (size_t)every, 1900);
    ck_assert_ptr_nonnull(calm_json_get(histograms, "model.layers.0.block_out"));
    ck_assert_ptr_null(calm_json_get(histograms, "model.layers.1.block_out"));
    ck_assert_ptr_nonnull(calm_json_get(histograms, test_format("model.layers.%d.block_out", (int)every)));
    calm_json_free(data);
}
END_OF_TEST

TEST(files_are_replaced_when_asked)
{
    const char *path = inspect_sample(), *file = test_format("%s/r.html", test_directory());
    char *text;
    size_t n;
    ck_ok(calm_report_page_target(ctx, file, false, true, NULL));
    ck_ok(calm_report_page_save(ctx, path, (const int64_t[]){2}, 1, file));
    ck_ok(calm_read_file(ctx, file, 1 << 24, &text, &n));
    ck_has(text, "<title>calm run 2: qwen</title>");
    ck_assert_int_eq(calm_report_page_target(ctx, file, false, true, NULL), CALM_EEXIST);
    calm_ctx_clear_failure(ctx);
    ck_ok(calm_report_page_target(ctx, file, true, true, NULL));
    ck_ok(calm_report_page_save(ctx, path, (const int64_t[]){4, 2, 1}, 3, file));
    ck_ok(calm_read_file(ctx, file, 1 << 24, &text, &n));
    ck_has(text, "<title>calm run 4: qwen, run 2: qwen and run 1: qwen</title>");
    ck_assert_int_eq(calm_report_page_target(ctx, test_directory(), true, true, NULL), CALM_EARG);
    calm_ctx_clear_failure(ctx);
    ck_assert_int_eq(calm_report_page_target(ctx, test_format("%s/below/it.html", file), true, true, NULL), CALM_EARG);
    ck_has(calm_error_text(ctx), "r.html is not a directory");
    calm_ctx_clear_failure(ctx);
    const char *below = test_format("%s/new/folder/r.html", test_directory());
    CALM_SCOPED_TEXT(words);
    calm_text_printf(&words, "words");
    ck_ok(calm_report_page_target(ctx, below, false, true, NULL));
    ck_ok(calm_report_page_write(ctx, below, &words));
    ck_assert(calm_is_file(below));
}
END_OF_TEST

int main(void)
{
    return run_tests("report_page", (const TTest *[]){the_matrix_is_the_store, held_back_by_a_target,
                                                      the_error_of_the_loss, the_error_of_an_encoder, two_runs,
                                                      strangers_words_are_no_markup, a_store_without_runs,
                                                      any_run_has_a_page, a_large_run_has_a_small_page,
                                                      files_are_replaced_when_asked, NULL});
}
