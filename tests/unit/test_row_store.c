/* Rows in memory and in a file are the same to the code that reads them; errors of the system are reported with the
 * folder. */
#include "ptq/layers/row_store.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "tests/support/harness.h"

enum { N = 40, WIDTH = 7 };

static float value(size_t i)
{
    return (float)calm_rng_normal(1, 0, i);
}

static void write_all(const calm_row_store *rows)
{
    float *x;
    ck_ok(calm_row_store_get(ctx, rows, 0, N, &x));
    for (size_t i = 0; i < N * WIDTH; i++)
        x[i] = value(i);
    ck_ok(calm_row_store_put(ctx, rows, 0, N, x));
}

TEST(what_is_put_is_got)
{
    for (int in_file = 0; in_file < 2; in_file++) {
        calm_row_store rows;
        float *x;
        ck_ok(calm_row_store_open(ctx, ctx->out, N, WIDTH, in_file ? test_directory() : NULL, &rows));
        ck_assert_int_eq(rows.file >= 0, in_file);
        ck_assert_int_eq(rows.data == NULL, in_file);
        write_all(&rows);
        for (size_t first = 0; first < N; first++)
            for (size_t count = 0; count <= N - first; count += 3) {
                ck_ok(calm_row_store_get(ctx, &rows, first, count, &x));
                for (size_t i = 0; i < count * WIDTH; i++)
                    ck_assert(x[i] == value(first * WIDTH + i));
                calm_arena_clear(ctx->scratch);
            }
        ck_ok(calm_row_store_get(ctx, &rows, 13, 2, &x));
        for (size_t i = 0; i < 2 * WIDTH; i++)
            x[i] = -1;
        ck_ok(calm_row_store_put(ctx, &rows, 13, 2, x));
        ck_ok(calm_row_store_get(ctx, &rows, 12, 4, &x));
        ck_assert(x[WIDTH - 1] == value(13 * WIDTH - 1) && x[WIDTH] == -1 && x[3 * WIDTH - 1] == -1 &&
                  x[3 * WIDTH] == value(15 * WIDTH));
        calm_row_store_close(&rows);
        ck_assert_int_eq(rows.file, -1);
        calm_row_store_close(&rows);
    }
}
END_OF_TEST

/* A named file remains for the next process, and replaces an earlier one. */
TEST(named_files)
{
    const char *name = test_format("%s/rows", test_directory()), *path = test_format("%s.new", name);
    calm_row_store rows, again;
    float x[3 * WIDTH];
    ck_assert_int_eq(calm_row_store_reopen(ctx, name, WIDTH, &again), CALM_ENOTFOUND);
    calm_ctx_clear_failure(ctx);
    for (size_t n = N + 1; n >= N; n--) {
        ck_ok(calm_row_store_create(ctx, path, n, WIDTH, &rows));
        write_all(&rows);
        ck_ok(calm_row_store_publish(ctx, &rows, path, name));
        calm_row_store_close(&rows);
        ck_assert_int_ne(access(path, F_OK), 0);
        ck_ok(calm_row_store_reopen(ctx, name, WIDTH, &again));
        ck_assert_uint_eq(again.n, n);
        ck_ok(calm_row_store_read(ctx, &again, 2, 3, x));
        for (size_t i = 0; i < 3 * WIDTH; i++)
            ck_assert(x[i] == value(2 * WIDTH + i));
        calm_row_store_close(&again);
    }
    /* A file that became shorter is reported. */
    ck_assert_int_eq(truncate(name, 10), 0);
    ck_ok(calm_row_store_reopen(ctx, name, WIDTH, &again));
    ck_assert_uint_eq(again.n, 0);
    ck_assert_int_eq(calm_row_store_read(ctx, &again, 0, 1, x), CALM_EIO);
    calm_ctx_clear_failure(ctx);
    calm_row_store_close(&again);
    ck_assert_int_eq(calm_row_store_reopen(ctx, test_directory(), WIDTH, &again), CALM_EFORMAT);
    calm_ctx_clear_failure(ctx);
    ck_assert_int_ne(calm_row_store_create(ctx, test_format("%s/no/rows", test_directory()), N, WIDTH, &rows), CALM_OK);
    calm_ctx_clear_failure(ctx);
    ck_assert_int_eq(rows.file, -1);
}
END_OF_TEST

static calm_status add_one(calm_ctx *task, size_t i, void *user)
{
    const calm_row_store *rows = user;
    float *x;
    CALM_TRY(calm_row_store_get(task, rows, i, 1, &x));
    for (size_t k = 0; k < WIDTH; k++)
        x[k] += 1;
    return calm_row_store_put(task, rows, i, 1, x);
}

TEST(several_threads)
{
    calm_row_store rows;
    float *x;
    ck_ok(calm_row_store_open(ctx, ctx->out, N, WIDTH, test_directory(), &rows));
    write_all(&rows);
    ctx->n_threads = 3;
    ck_ok(calm_parallel_for(ctx, N, add_one, &rows));
    ck_ok(calm_row_store_get(ctx, &rows, 0, N, &x));
    for (size_t i = 0; i < N * WIDTH; i++)
        ck_assert(x[i] == value(i) + 1);
    calm_row_store_close(&rows);
}
END_OF_TEST

/* The file has no name: the folder stays empty, so a killed process leaves nothing. */
TEST(nameless)
{
    calm_row_store rows;
    const char *dir = test_directory();
    ck_ok(calm_row_store_open(ctx, ctx->out, N, WIDTH, dir, &rows));
    ck_assert_int_eq(rmdir(dir), 0);
    write_all(&rows);
    calm_row_store_close(&rows);
}
END_OF_TEST

/* Without rows no file is made; reading gives an address in memory. */
TEST(no_rows)
{
    const char *dir = test_directory();
    for (int in_file = 0; in_file < 2; in_file++) {
        calm_row_store rows = {.file = 5};
        float *x = NULL;
        ck_ok(calm_row_store_open(ctx, ctx->out, 0, WIDTH, in_file ? dir : NULL, &rows));
        ck_assert_int_eq(rows.file, -1);
        ck_assert_uint_eq(rows.n, 0);
        ck_assert_uint_eq(rows.width, WIDTH);
        ck_assert_ptr_nonnull(rows.data);
        ck_ok(calm_row_store_get(ctx, &rows, 0, 0, &x));
        ck_assert_ptr_eq(x, rows.data);
        ck_ok(calm_row_store_put(ctx, &rows, 0, 0, x));
        calm_row_store_close(&rows);
    }
    ck_assert_int_eq(rmdir(dir), 0);
}
END_OF_TEST

TEST(memory)
{
    calm_row_store rows;
    float *x;
    ck_memory(calm_row_store_open(ctx, ctx->out, N, WIDTH, NULL, &rows), calm_row_store_bytes(N, WIDTH), 0);
    ck_memory(calm_row_store_open(ctx, ctx->out, N, WIDTH, test_directory(), &rows), 0, 0);
    ck_memory(calm_row_store_get(ctx, &rows, 3, 11, &x), 0, calm_row_store_bytes(11, WIDTH));
    calm_row_store_close(&rows);
}
END_OF_TEST

TEST(refused)
{
    calm_row_store rows;
    const char *dir = test_directory(), *none = test_format("%s/none", dir);
    ck_fails(calm_row_store_open(ctx, ctx->out, N, WIDTH, none, &rows), CALM_ENOTFOUND, none);
    ck_assert_int_eq(rows.file, -1);
    ck_fails(calm_row_store_open(ctx, ctx->out, SIZE_MAX / 2, WIDTH, dir, &rows), CALM_ENOMEM, "overflows");
    /* A disk says that a file cannot be so large, a file system in memory that it has not so much space. */
    const calm_status full = calm_row_store_open(ctx, ctx->out, SIZE_MAX / 8, 1, dir, &rows);
    ck_assert_msg(full == CALM_EIO || full == CALM_ENOSPC, "%s", calm_status_name(full));
    ck_fails(full, full, "cannot reserve 9223372036854775804 bytes");
    ck_assert_int_eq(rows.file, -1);
    ctx->out->fail_in = 1;
    ck_fails(calm_row_store_open(ctx, ctx->out, N, WIDTH, NULL, &rows), CALM_ENOMEM, "");
}
END_OF_TEST

/* Space is reserved when the rows are opened, so that a disk that is too small (here: a limit on files) is found
 * before work. */
TEST(no_space)
{
    calm_row_store rows;
    float *x;
    struct rlimit limit, small;
    const char *dir = test_directory();
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = N * WIDTH * sizeof(float);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const calm_status fits = calm_row_store_open(ctx, ctx->out, N, WIDTH, dir, &rows);
    ck_ok(fits);
    write_all(&rows);
    calm_row_store bigger;
    ck_fails(calm_row_store_open(ctx, ctx->out, N + 1, WIDTH, dir, &bigger), CALM_EIO, "cannot reserve 1148 bytes");
    ck_assert_int_eq(bigger.file, -1);
    ck_ok(calm_row_store_get(ctx, &rows, 0, 1, &x));
    ck_fails(calm_row_store_put(ctx, &rows, N, 1, x), CALM_EIO, "cannot write hidden rows");
    ck_fails(calm_row_store_get(ctx, &rows, N, 1, &x), CALM_EIO, "cannot read hidden rows back");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    calm_row_store_close(&rows);
}
END_OF_TEST

TEST(closed_behind_our_back)
{
    calm_row_store rows;
    float *x;
    ck_ok(calm_row_store_open(ctx, ctx->out, N, WIDTH, test_directory(), &rows));
    ck_ok(calm_row_store_get(ctx, &rows, 0, 1, &x));
    close(rows.file);
    ck_fails(calm_row_store_get(ctx, &rows, 0, 1, &x), CALM_EIO, "cannot read hidden rows back");
    ck_fails(calm_row_store_put(ctx, &rows, 0, 1, x), CALM_EIO, "cannot write hidden rows");
}
END_OF_TEST

int main(void)
{
    return run_tests("row_store", (const TTest *[]){what_is_put_is_got, named_files, several_threads, nameless, no_rows,
                                                    memory, refused, no_space, closed_behind_our_back, NULL});
}
