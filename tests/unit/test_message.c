/* Prefixes of error messages, suggestions for unknown names, and lines that are logged once. */
#include "ptq/base/message.h"

#include "ptq/base/scope.h"
#include "tests/support/harness.h"

TEST(a_prefix_keeps_status_and_sentence)
{
    calm_fail(ctx, CALM_EFORMAT, "byte %d: not UTF-8", 7);
    ck_assert_int_eq(calm_fail_prefix(ctx, "%s: line %zu", "x.jsonl", (size_t)3), CALM_EFORMAT);
    ck_assert_int_eq(ctx->status, CALM_EFORMAT);
    ck_assert_str_eq(ctx->message, "x.jsonl: line 3: byte 7: not UTF-8");
    ck_assert_int_eq(calm_fail_prefix(ctx, "run"), CALM_EFORMAT);
    ck_assert_str_eq(ctx->message, "run: x.jsonl: line 3: byte 7: not UTF-8");
}
END_OF_TEST

TEST(without_a_failure_nothing_is_prefixed)
{
    ck_assert_int_eq(calm_fail_prefix(ctx, "x.jsonl"), CALM_OK);
    ck_assert_int_eq(ctx->status, CALM_OK);
    ck_assert_str_eq(ctx->message, "");
}
END_OF_TEST

TEST(what_is_too_long_is_cut)
{
    calm_fail(ctx, CALM_EIO, "%s", test_format("%01200d", 5));
    calm_fail_prefix(ctx, "%01200d", 6);
    ck_assert_uint_eq(strlen(ctx->message), CALM_MESSAGE_MAX - 1);
    ck_assert_int_eq(ctx->message[1199], '6');
    ck_assert_int_eq(strncmp(ctx->message + 1200, ": 000", 5), 0);
}
END_OF_TEST

TEST(hints)
{
    static const char *const names[] = {"rtn", "gptq", "mkq"};
    char hint[CALM_HINT_MAX];
    ck_assert_str_eq(calm_did_you_mean(hint, "gptk", names, 3), "; did you mean \"gptq\"?");
    ck_assert_ptr_eq(calm_did_you_mean(hint, "something", names, 3), hint);
    ck_assert_str_eq(hint, "");
    ck_assert_str_eq(calm_did_you_mean(hint, "gptk", names, 0), "");
    const char *const lengthy = test_format("%0500d", 1);
    calm_did_you_mean(hint, lengthy, &lengthy, 1);
    ck_assert_uint_lt(strlen(hint), CALM_HINT_MAX);
    ck_assert_str_eq(hint + strlen(hint) - 3, "0\"?");
}
END_OF_TEST

static void keep_line(void *user, calm_log_level level, const char *line)
{
    ck_assert_int_eq(level, CALM_LOG_WARNING);
    calm_text_printf(user, "%s|", line);
}

/* A line that is a prefix, suffix or part of an earlier line is another line. */
TEST(lines_are_said_once)
{
    static const char *const lines[] = {"0.down: not fused", "0.down", "not fused", "down", "0.down"};
    CALM_SCOPED_TEXT(kept);
    CALM_SCOPED_TEXT(said);
    calm_said_once once = {keep_line, &kept, &said};
    CALM_SCOPED_LOG(ctx, calm_log_once, &once);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        calm_log(ctx, CALM_LOG_WARNING, "%s", lines[i]);
    ck_assert_str_eq(kept.data, "0.down: not fused|0.down|not fused|down|");
}
END_OF_TEST

int main(void)
{
    return run_tests("message",
                     (const TTest *[]){a_prefix_keeps_status_and_sentence, without_a_failure_nothing_is_prefixed,
                                       what_is_too_long_is_cut, hints, lines_are_said_once, NULL});
}
