/* calm inspect activations: maxima, emergence, tokens, hook points. */
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

TEST(maxima_and_their_tokens)
{
    const char *path = inspect_sample(), *csv = inspect_shown(path, "activations", "1", NULL, CALM_INSPECT_CSV);
    ck_has(csv, "maxima\r\nblock,point,max,times_median,channel,window,position,token,hook\r\n"
                "1,block_out,-400,800,42,3,17,\"\033[31mred\n\",model.layers.1.block_out\r\n"
                "1,block_out,200,400,41,0,1,the,model.layers.1.block_out\r\n");
    ck_has(csv, "emergence\r\nemergence_block,largest_growth,max_block_out,blocks\r\n1,100,400,2\r\n");
    /* "the" carries three of four, in both hook points; its largest is 200 */
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

int main(void)
{
    return run_tests("inspect_activations", (const TTest *[]){maxima_and_their_tokens, for_people, NULL});
}
