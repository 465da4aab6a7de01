/* Token files: what they hold, as cut and whole windows, and lines that are refused. */
#include "ptq/data/token_file.h"

#include "ptq/base/file.h"
#include "ptq/data/windows.h"
#include "tests/support/harness.h"

static const char *file_of(const char *text)
{
    const char *path = test_format("%s/ids.jsonl", test_directory());
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

static calm_token_file read(const char *text)
{
    calm_token_file file;
    ck_ok(calm_token_file_read(ctx, file_of(text), 100, &file));
    return file;
}

/* Returns the numbers as "1 2 3". */
static const char *listed(const uint32_t *values, size_t n)
{
    const char *list = "";
    for (size_t i = 0; i < n; i++)
        list = test_format("%s%s%u", list, i ? " " : "", values[i]);
    return list;
}

TEST(sequences_as_they_stand)
{
    calm_token_file file = read("{\"ids\": [5, 17, 3]}\n\n  \n{\"ids\":[99],\"other\":null}\n{\"ids\": [1, 2]}");
    ck_assert_uint_eq(file.n, 3);
    ck_assert_uint_eq(file.longest, 3);
    ck_assert_str_eq(listed(file.ids, file.begin[3]), "5 17 3 99 1 2");
    ck_assert_uint_eq(file.begin[0], 0);
    ck_assert_uint_eq(file.begin[1], 3);
    ck_assert_uint_eq(file.begin[2], 4);
    ck_assert_ptr_null(file.mask);
    ck_assert_ptr_null(file.types);
}
END_OF_TEST

TEST(masks_and_types)
{
    calm_token_file file = read("{\"ids\": [5, 17], \"types\": [0, 7]}\n{\"ids\": [1, 2, 3], \"mask\": [0, 1, 0]}\n");
    ck_assert_mem_eq(file.mask, ((const uint8_t[]){1, 1, 0, 1, 0}), 5);
    ck_assert_mem_eq(file.types, ((const uint8_t[]){0, 7, 0, 0, 0}), 5);
}
END_OF_TEST

TEST(windows_are_cut_without_padding)
{
    calm_token_file file =
        read("{\"ids\": [1, 2, 3, 4, 5]}\n{\"ids\": [6, 7, 8, 9], \"mask\": [1, 0, 1, 0]}\n{\"ids\": [10]}\n");
    calm_windows_options how = {.seqlen = 2, .seed = -1};
    calm_windows w;
    ck_ok(calm_windows_from_tokens(ctx, &file, &how, &w));
    ck_assert_uint_eq(w.n, 3);
    ck_assert_str_eq(listed(w.ids, w.begin[3]), "1 2 3 4 6 8");
    ck_assert_uint_eq(w.n_tokens, 8);
    ck_assert_ptr_null(w.positions);
    how.n_windows = 1;
    ck_ok(calm_windows_from_tokens(ctx, &file, &how, &w));
    ck_assert_uint_eq(w.n, 1);
    ck_assert_uint_eq(w.n_available, 3);
    how.seqlen = 1;
    ck_fails(calm_windows_from_tokens(ctx, &file, &how, &w), CALM_EARG, "expected at least 2");
    calm_token_file single = read("{\"ids\": [1]}");
    how.seqlen = 4;
    ck_fails(calm_windows_from_tokens(ctx, &single, &how, &w), CALM_EARG, "expected at least one window of 4");
}
END_OF_TEST

TEST(whole_sequences_keep_their_positions)
{
    calm_token_file file =
        read("{\"ids\": [5, 17, 3], \"mask\": [0, 1, 1], \"types\": [1, 2, 3]}\n{\"ids\": [9, 8]}\n");
    calm_windows w, plain;
    ck_ok(calm_windows_from_sequences(ctx, &file, &w));
    ck_assert_uint_eq(w.n, 2);
    ck_assert_uint_eq(w.longest, 2);
    ck_assert_str_eq(listed(w.ids, w.begin[2]), "17 3 9 8");
    ck_assert_str_eq(listed(w.positions, 4), "1 2 0 1");
    ck_assert_mem_eq(w.types, ((const uint8_t[]){2, 3, 0, 0}), 4);
    ck_assert_uint_eq(calm_windows_reach(&w), 3);
    file = read("{\"ids\": [17, 3]}\n{\"ids\": [9, 8]}\n");
    ck_ok(calm_windows_from_sequences(ctx, &file, &plain));
    ck_assert_ptr_null(plain.positions);
    ck_assert_ptr_null(plain.types);
    ck_assert_str_ne(plain.sha256, w.sha256);
}
END_OF_TEST

TEST(bad_lines_are_refused)
{
    static const struct {
        const char *text;
        calm_status status;
        const char *words;
    } cases[] = {
        {"", CALM_EARG, "no sequence of ids"},
        {"\n \n", CALM_EARG, "no sequence of ids"},
        {"{\"ids\": [1]}\n{\"ids\": ", CALM_EFORMAT, "line 2: not valid JSON"},
        {"[1, 2]", CALM_EFORMAT, "line 1: expected {\"ids\": [...]}"},
        {"{\"ids\": []}", CALM_EFORMAT, "line 1: expected {\"ids\": [...]} with at least one id"},
        {"{\"ids\": 5}", CALM_EFORMAT, "line 1: expected {\"ids\""},
        {"{\"ids\": {\"a\": 1}}", CALM_EFORMAT, "line 1: expected {\"ids\""},
        {"\n{\"ids\": [1, 2.5]}", CALM_EFORMAT, "line 2: ids[1]: expected a whole number, found a number"},
        {"{\"ids\": [1, \"2\"]}", CALM_EFORMAT, "line 1: ids[1]: expected a whole number, found a string"},
        {"{\"ids\": [100]}", CALM_EFORMAT, "line 1: ids[0]: expected 0 to 99, found 100"},
        {"{\"ids\": [-1]}", CALM_EFORMAT, "line 1: ids[0]: expected 0 to 99, found -1"},
        {"{\"ids\": [1, 2], \"mask\": [1]}", CALM_EFORMAT, "line 1: \"mask\": expected an array of 2"},
        {"{\"ids\": [1, 2], \"mask\": true}", CALM_EFORMAT, "line 1: \"mask\": expected an array of 2"},
        {"{\"ids\": [1, 2], \"mask\": [1, 2]}", CALM_EFORMAT, "line 1: mask[1]: expected 0 to 1, found 2"},
        {"{\"ids\": [1, 2], \"mask\": [1, true]}", CALM_EFORMAT, "line 1: mask[1]: expected a whole number"},
        {"{\"ids\": [1, 2], \"mask\": [0, 0]}", CALM_EFORMAT, "line 1: \"mask\": all of the sequence is padding"},
        {"{\"ids\": [1, 2], \"types\": [0, 256]}", CALM_EFORMAT, "line 1: types[1]: expected 0 to 255"},
        {"{\"ids\": [1]}\n{\"ids\": [\"\xFF\"]}", CALM_EFORMAT, "line 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        calm_token_file file;
        const char *path = file_of(cases[i].text);
        ck_fails(calm_token_file_read(ctx, path, 100, &file), cases[i].status,
                 test_format("%s: %s", path, cases[i].words));
    }
    calm_token_file file;
    ck_fails(calm_token_file_read(ctx, test_format("%s/none", test_directory()), 0, &file), CALM_ENOTFOUND, "none");
    ck_ok(calm_token_file_read(ctx, file_of("{\"ids\": [4294967294]}"), 0, &file));
    ck_fails(calm_token_file_read(ctx, file_of("{\"ids\": [4294967295]}"), 0, &file), CALM_EFORMAT, "4294967295");
}
END_OF_TEST

int main(void)
{
    return run_tests("token_file",
                     (const TTest *[]){sequences_as_they_stand, masks_and_types, windows_are_cut_without_padding,
                                       whole_sequences_keep_their_positions, bad_lines_are_refused, NULL});
}
