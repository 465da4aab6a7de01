/* The table of views: the words and options that each takes, and the runs that they select. */
#include "ptq/base/file.h"
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

static calm_status ask(const char *path, const char *what, size_t n, const char *a, const char *b, const char *unit,
                       const char *metric)
{
    const char *args[] = {a, b}, *out;
    const calm_inspect_query query = {.what = what, .args = args, .n_args = n, .unit = unit, .metric = metric};
    return inspect_printed(path, &query, &out);
}

TEST(words_and_options)
{
    const char *path = inspect_sample();
    ck_fails(ask(path, "diff", 1, "1", NULL, NULL, NULL), CALM_EARG, "expected two runs, found 1 words");
    ck_fails(ask(path, "runs", 2, "1", "2", NULL, NULL), CALM_EARG, "expected at most one run");
    ck_fails(ask(path, "sql", 0, NULL, NULL, NULL, NULL), CALM_EARG, "expected one SELECT");
    ck_fails(ask(path, "runs", 0, NULL, NULL, "0.qkv", NULL), CALM_EARG, "takes no --unit");
    ck_fails(ask(path, "why", 0, NULL, NULL, "0.qkv", "cka"), CALM_EARG, "takes no --metric");
    ck_fails(ask(path, "lairs", 0, NULL, NULL, NULL, NULL), CALM_EARG, "did you mean \"layers\"?");
    ck_fails(ask(path, "show", 1, "-1", NULL, NULL, NULL), CALM_EARG, "expected a number from 1");
    ck_fails(ask(path, "show", 1, "1x", NULL, NULL, NULL), CALM_EARG, "RUN \"1x\"");
}
END_OF_TEST

TEST(runs_that_are_not_there)
{
    const char *path = inspect_sample();
    ck_fails(ask(path, "show", 1, "9", NULL, NULL, NULL), CALM_ENOTFOUND, "no run 9; it has 1, 2, 3, 4");
    ck_fails(ask(path, "diff", 2, "1", "9", NULL, NULL), CALM_ENOTFOUND, "no run 9");
    calm_store *store;
    const calm_store_how how = {.mode = CALM_STORE_WRITE};
    ck_ok(calm_store_open(ctx, path, &how, &store));
    for (int i = 5; i <= 20; i++) {
        int64_t id;
        ck_ok(calm_store_run_begin(ctx, store, &(calm_store_run){.key = test_format("n%d", i), .model_id = 1}, &id,
                                   NULL));
    }
    calm_store_close(store);
    ck_fails(ask(path, "show", 1, "99", NULL, NULL, NULL), CALM_ENOTFOUND,
             "no run 99; it has many, the newest are 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20");
}
END_OF_TEST

TEST(a_store_without_runs)
{
    const char *path = test_format("%s/empty.db", test_directory());
    const calm_store_how how = {.mode = CALM_STORE_WRITE};
    calm_store *store;
    size_t n;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    calm_store_close(store);
    const char *const *names = calm_inspect_views(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], "why") == 0 || strcmp(names[i], "diff") == 0 || strcmp(names[i], "sql") == 0)
            continue;
        ck_ok(ask(path, names[i], 0, NULL, NULL, NULL, NULL));
    }
    ck_fails(ask(path, "show", 1, "1", NULL, NULL, NULL), CALM_ENOTFOUND, "no run 1; it has none");
    ck_fails(ask(path, "why", 0, NULL, NULL, "0.qkv", NULL), CALM_ENOTFOUND, "there is no run");
    ck_fails(ask(path, "candidates", 0, NULL, NULL, "0.qkv", NULL), CALM_ENOTFOUND, "there is no run with a unit");
}
END_OF_TEST

TEST(every_form_of_every_view)
{
    const char *path = inspect_sample();
    size_t n;
    const char *const *names = calm_inspect_views(&n);
    ck_assert_uint_eq(n, 15);
    for (size_t i = 0; i < n; i++)
        for (calm_inspect_form form = CALM_INSPECT_TEXT; form <= CALM_INSPECT_CSV; form++) {
            const bool two = strcmp(names[i], "diff") == 0, select = strcmp(names[i], "sql") == 0;
            const char *args[] = {select ? "SELECT * FROM v_choices" : "1", "2"}, *out;
            const calm_inspect_query query = {.what = names[i], .args = args, .n_args = two ? 2 : 1, .form = form,
                                              .unit = strcmp(names[i], "why") == 0 ? "0.qkv" : NULL};
            ck_ok(inspect_printed(path, &query, &out));
            ck_assert_msg(*out, "%s prints nothing", names[i]);
            calm_json *root = NULL;
            if (form == CALM_INSPECT_JSON)
                ck_ok(calm_json_parse(ctx, names[i], out, strlen(out), &root));
            calm_json_free(root);
            const char *end = out + strlen(out);
            ck_assert(end[-1] == '\n' && (form != CALM_INSPECT_CSV || end[-2] == '\r'));
        }
}
END_OF_TEST

static bool is_word_in(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)); at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz_0123456789", at[strlen(word)]) &&
            !strchr("abcdefghijklmnopqrstuvwxyz_0123456789", at[-1]))
            return true;
    return false;
}

/* docs/inspect.md has the names of all columns of all sections, below the heading of their view. */
TEST(every_column_is_documented)
{
    const char *path = inspect_sample(), *file = CALM_SOURCE_DIR "/docs/inspect.md";
    size_t n, n_bytes, n_columns = 0;
    char *text;
    ck_ok(calm_read_file(ctx, file, 1 << 20, &text, &n_bytes));
    const char *const *names = calm_inspect_views(&n);
    for (size_t i = 0; i < n - 1; i++) {    /* sql has the user's columns */
        const char *from = strstr(text, test_format("\n## %s\n", names[i]));
        ck_assert_msg(from, "%s is not in %s", names[i], file);
        const char *to = strstr(from + 1, "\n## "), *args[] = {"1", "2"}, *out;
        const char *part = test_format("%.*s", (int)(to - from), from);
        const calm_inspect_query query = {.what = names[i], .args = args, .n_args = strcmp(names[i], "diff") ? 1 : 2,
                                          .form = CALM_INSPECT_JSON, .unit = strcmp(names[i], "why") ? NULL : "0.qkv"};
        calm_json *root;
        ck_ok(inspect_printed(path, &query, &out));
        ck_ok(calm_json_parse(ctx, names[i], out, strlen(out), &root));
        const char *key, *column;
        const calm_json *rows, *cell;
        for (void *at = NULL; calm_json_next(root, &at, &key, &rows);) {
            ck_assert_msg(is_word_in(text, key), "%s: section %s is not in %s", names[i], key, file);
            for (void *member = NULL; calm_json_next(calm_json_at(rows, 0), &member, &column, &cell); n_columns++)
                ck_assert_msg(is_word_in(strcmp(names[i], "show") && strcmp(names[i], "summary") ? part : text, column),
                              "%s: column %s of %s is not in %s", names[i], column, key, file);
        }
        calm_json_free(root);
    }
    ck_assert_uint_gt(n_columns, 150);
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_store",
                     (const TTest *[]){words_and_options, runs_that_are_not_there, a_store_without_runs,
                                       every_form_of_every_view, every_column_is_documented, NULL});
}
