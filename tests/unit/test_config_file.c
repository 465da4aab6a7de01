/* Members of config.json that a written checkpoint changes; all other bytes stay. */
#include "ptq/export/config_file_impl.h"

#include "tests/support/harness.h"

TEST(a_member_is_set)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{\"a\": 1e-05, \"tie\": true, \"b\": 2}", "{\"a\": 1e-05, \"tie\": false, \"b\": 2}"},
        {"{\n  \"tie\" :\n true\n}\n", "{\n  \"tie\" :\n false\n}\n"},
        {"{\"tie\":null}", "{\"tie\":false}"},
        {"{\"tie\": true, \"x\": {\"tie\": true}, \"tie\": true}",
         "{\"tie\": false, \"x\": {\"tie\": true}, \"tie\": false}"},
        {"{\"x\": [\"tie\", {\"tie\": true}], \"y\": \"tie\"}",
         "{\"x\": [\"tie\", {\"tie\": true}], \"y\": \"tie\",\n  \"tie\": false\n}\n"},
        {"{\"x\": \"\\\"tie\\\": true\"}\n", "{\"x\": \"\\\"tie\\\": true\",\n  \"tie\": false\n}\n"},
        {"{}", "{\n  \"tie\": false\n}\n"},
        {"{\"tie", NULL},    /* not JSON: nothing is read past the end */
        {"{\"tie\":", NULL},
        {"\"\\", NULL},
        {"", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CALM_SCOPED_TEXT(out);
        const size_t n = strlen(cases[i].text);
        char *exact;    /* without a terminator, for AddressSanitizer */
        ck_ok(CALM_NEW(ctx, ctx->out, exact, n + 1));
        memcpy(exact, cases[i].text, n);
        calm_export_set_member(exact, n, "tie", "false", &out);
        ck_ok(calm_text_check(ctx, &out));
        if (cases[i].expected)
            ck_assert_msg(strcmp(out.data, cases[i].expected) == 0, "%s: %s", cases[i].text, out.data);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("config_file", (const TTest *[]){a_member_is_set, NULL});
}
