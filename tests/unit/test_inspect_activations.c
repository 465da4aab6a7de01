/* calm inspect activations: maxima, emergence, tokens, hooks. */
#include <math.h>

#include "ptq/calib/activation.h"
#include "ptq/calib/maxima.h"
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"
#include "tests/support/store_sample.h"

TEST(maxima_and_their_tokens)
{
    const char *path = inspect_sample(), *csv = inspect_shown(path, "activations", "1", NULL, CALM_INSPECT_CSV);
    ck_has(csv, "maxima\r\nblock,point,max,times_median,channel,windows,window,position,token,hook\r\n"
                "1,block_out,-400,800,42,1,3,17,\"\033[31mred\n\",model.layers.1.block_out\r\n"
                "1,block_out,200,400,41,1,0,1,the,model.layers.1.block_out\r\n");
    ck_has(csv, "emergence\r\nemergence_block,largest_growth,max_block_out,blocks\r\n1,100,400,2\r\n");
    /* "the" has three of four peaks, at both hooks; its largest is 200 */
    ck_has(csv, "tokens\r\ntoken,peaks,percent,hooks,max,window,position\r\nthe,3,75,2,200,0,1\r\n");
    ck_has(csv, "\",1,25,1,400,3,17\r\n");
    ck_has(csv, "\r\nactivations\r\nblock,point,max,");
}
END_OF_TEST

TEST(for_people)
{
    const char *path = inspect_sample(), *text = inspect_shown(path, "activations", "1", NULL, CALM_INSPECT_TEXT);
    ck_lacks(text, "\033");
    ck_has(text, "\\u{1b}[31mred\\n");
    ck_has(text, "  emergence_block  1\n");
    ck_has(text, "Hook points\n");
    text = inspect_shown(path, "activations", "2", NULL, CALM_INSPECT_TEXT);    /* none of that calibration */
    ck_has(text, "Hook points\n");
    calm_json *root;
    const char *json = inspect_shown(path, "activations", "1", NULL, CALM_INSPECT_JSON);
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), &root));
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "activations")), 2);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "maxima")), 4);
    ck_assert_str_eq(calm_json_string(calm_json_get(calm_json_at(calm_json_get(root, "maxima"), 0), "token"), ""),
                     "\033[31mred\n");
    calm_json_free(root);
}
END_OF_TEST

/* Returns the rows of a section of the JSON form; the caller frees the document. */
static const calm_json *rows_of(const char *path, const char *section, calm_json **root)
{
    const char *json = inspect_shown(path, "activations", "1", NULL, CALM_INSPECT_JSON);
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), root));
    return calm_json_get(*root, section);
}

static double number(const calm_json *rows, size_t row, const char *column)
{
    return calm_json_number(calm_json_get(calm_json_at(rows, row), column), NAN);
}

/* The sample has two peaks at each hook, 400 and 200, in windows 3 and 0 of 128.  Of all subsets of m windows m /
 * 128 have the first; all others count as 200. */
TEST(positions_and_subsets)
{
    static const char *const names[] = {"half", "quarter", "eighth"};
    const char *path = inspect_sample();
    calm_json *root;
    const calm_json *rows = rows_of(path, "subsets", &root);
    ck_assert_uint_eq(calm_json_size(rows), 2);
    for (size_t i = 0; i < 3; i++) {
        const double p = ldexp(0.5, -(int)i), mean = 400 * p + 200 * (1 - p), sd = 200 * sqrt(p * (1 - p));
        /* Rounded to 4 decimals. */
        ck_near(number(rows, 1, names[i]), mean / 400, 0.5e-4);
        ck_near(number(rows, 1, test_format("%s_cv", names[i])), sd / mean, 0.5e-4);
    }
    /* 16 of 128 windows without either: 112 / 128 * 111 / 127. */
    ck_near(number(rows, 1, "unknown_percent"), 100 * 112.0 / 128 * 111 / 127, 0.5e-2);
    calm_json_free(root);
    rows = rows_of(path, "positions", &root);
    ck_near(number(rows, 0, "position"), 1, 0);
    ck_near(number(rows, 0, "percent"), 50, 0);
    ck_near(number(rows, 0, "first_percent"), 0, 0);
    ck_near(number(rows, 0, "channels"), 2, 0);
    calm_json_free(root);
}
END_OF_TEST

/* A hook whose values are all 1.25, or all in one bin, against calm_int8_check(). */
TEST(errors_in_int8)
{
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    uint64_t bins[CALM_ACT_BINS + 1] = {[240] = 90, [259] = 10};
    calm_store_activation row = {.model_id = 1, .calibration_id = 1, .hook = "model.layers.1.block_out",
                                 .point = "block_out", .block = 1, .channels = 10, .count = 100, .n_tokens = 10,
                                 .max_abs = 1.25, .mean_abs = 0.4, .rms = 0.5, .q999 = 0.5, .histogram = bins,
                                 .n_bins = CALM_ACT_BINS};
    const calm_magnitudes x = {bins, 100, 1.25, 0.4, 0.5};
    calm_int8_error all, clip;
    calm_json *root;
    calm_int8_check(&x, 1.25, &all);
    calm_int8_check(&x, 0.5, &clip);
    ck_ok(calm_store_activation_put(ctx, store, &row));
    calm_store_close(store);
    const calm_json *rows = rows_of(path, "int8", &root);
    ck_assert_uint_eq(calm_json_size(rows), 2);
    ck_assert(isnan(number(rows, 0, "sqnr_max")));    /* no histogram */
    ck_near(number(rows, 1, "rel_mae_clip"), clip.rel_mae, 0.005 * clip.rel_mae);    /* three digits */
    ck_near(number(rows, 1, "rel_rmse_max"), all.rel_rmse, 0.005 * all.rel_rmse);
    ck_near(number(rows, 1, "sqnr_max"), all.sqnr, 0.05);
    ck_near(number(rows, 1, "clipped_percent"), 10, 0.0005);
    calm_json_free(root);
    /* One bin too many. */
    bins[CALM_ACT_BINS] = 1;
    row.n_bins++;
    store = sample_open(path, CALM_STORE_WRITE);
    ck_ok(calm_store_activation_put(ctx, store, &row));
    calm_store_close(store);
    const char *run = "1";
    const calm_inspect_query query = {.what = "activations", .args = &run, .n_args = 1, .form = CALM_INSPECT_JSON};
    const char *text;
    ck_fails(inspect_printed(path, &query, &text), CALM_EFORMAT, "histogram has bins beyond the 512 of its scale");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_activations", (const TTest *[]){maxima_and_their_tokens, for_people,
                                                              positions_and_subsets, errors_in_int8, NULL});
}
