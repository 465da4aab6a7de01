/* The context: the first failure is kept, errno becomes a status, failed allocations are reported, the log. */
#include <errno.h>
#include <stdio.h>

#include "tests/support/harness.h"

TEST(first_failure_wins_until_it_is_forgiven)
{
    ck_assert_int_eq(calm_fail(ctx, CALM_EFORMAT, "shape [%d]", 3), CALM_EFORMAT);
    ck_assert_int_eq(calm_fail(ctx, CALM_EIO, "later"), CALM_EFORMAT);
    ck_assert_int_eq(calm_fail_errno(ctx, ENOSPC, "later still"), CALM_EFORMAT);
    ck_assert_int_eq(ctx->status, CALM_EFORMAT);
    ck_assert_str_eq(ctx->message, "shape [3]");
    calm_ctx_clear_failure(ctx);
    ck_assert_int_eq(ctx->status, CALM_OK);
    ck_assert_str_eq(ctx->message, "");
    ck_fails(calm_fail(ctx, CALM_EIO, "now"), CALM_EIO, "now");
}
END_OF_TEST

TEST(a_long_message_is_cut_and_terminated)
{
    char text[2 * CALM_MESSAGE_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    calm_fail(ctx, CALM_EIO, "%s", text);
    ck_assert_uint_eq(strlen(ctx->message), CALM_MESSAGE_MAX - 1);
}
END_OF_TEST

TEST(errno_becomes_a_status_with_its_reason)
{
    static const struct {
        int error_number;
        calm_status expected;
    } rows[] = {{ENOSPC, CALM_ENOSPC}, {EDQUOT, CALM_ENOSPC}, {ENOENT, CALM_ENOTFOUND},
                {ENOMEM, CALM_ENOMEM}, {EACCES, CALM_EIO},    {EIO, CALM_EIO}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_fails(calm_fail_errno(ctx, rows[i].error_number, "file %d", 7), rows[i].expected,
                 test_format("file 7: %s", strerror(rows[i].error_number)));
}
END_OF_TEST

TEST(allocation_is_zeroed_or_names_what_failed)
{
    int *numbers = NULL;
    ck_ok(CALM_NEW(ctx, ctx->scratch, numbers, 100));
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(numbers[i], 0);
    ck_fails(calm_alloc(ctx, ctx->scratch, &numbers, SIZE_MAX / 2, 4, "the gram matrix"), CALM_ENOMEM,
             "the gram matrix");
    ck_assert_ptr_null(numbers);
    ctx->scratch->fail_in = 1;
    ck_fails(CALM_NEW(ctx, ctx->scratch, numbers, 1), CALM_ENOMEM, "numbers");
}
END_OF_TEST

TEST(strf_prints_into_the_arena)
{
    char *text;
    ck_ok(calm_strf(ctx, ctx->out, &text, "%s-%d", "layer", 12));
    ck_assert_str_eq(text, "layer-12");
    ck_ok(calm_strf(ctx, ctx->out, &text, "%s", ""));
    ck_assert_str_eq(text, "");
    ctx->out->fail_in = 1;
    ck_fails(calm_strf(ctx, ctx->out, &text, "%s", "x"), CALM_ENOMEM, "out of memory");
    ck_assert_ptr_null(text);
}
END_OF_TEST

static void keep_line(void *user, calm_log_level level, const char *line)
{
    char *kept = user;
    sprintf(kept, "%d:%.200s", (int)level, line);
}

TEST(log_hands_over_one_line)
{
    char kept[256] = "nothing";
    calm_log(ctx, CALM_LOG_WARNING, "nobody listens");
    ck_assert_str_eq(kept, "nothing");
    ctx->log = keep_line;
    ctx->log_user = kept;
    calm_log(ctx, CALM_LOG_WARNING, "block %d", 4);
    ck_assert_str_eq(kept, "2:block 4");
}
END_OF_TEST

int main(void)
{
    return run_tests("context",
                     (const TTest *[]){first_failure_wins_until_it_is_forgiven, a_long_message_is_cut_and_terminated,
                                       errno_becomes_a_status_with_its_reason,
                                       allocation_is_zeroed_or_names_what_failed, strf_prints_into_the_arena,
                                       log_hands_over_one_line, NULL});
}
