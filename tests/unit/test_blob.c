/* Blobs: whole or absent, verified when read, repaired when stored again. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/threads.h"
#include "store/blob.h"
#include "tests/support/harness.h"

/* The SHA-256 of "abc", from FIPS 180-4. */
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const calm_blob_piece abc[] = {{"a", 1}, {"", 0}, {"bc", 2}};

static int n_entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static const char *blob_path(const char *root, const char *digest)
{
    return test_format("%s/%.2s/%s", root, digest, digest + 2);
}

static void overwrite(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

TEST(pieces_round_trip)
{
    const char *root = test_format("%s/deep/x.blobs", test_directory());
    char digest[CALM_SHA256_HEX];
    calm_mapping map;
    ck_ok(calm_blob_put(ctx, root, abc, 3, digest));
    ck_assert_str_eq(digest, ABC);
    ck_assert(calm_blob_present(root, digest, 3));
    ck_assert(!calm_blob_present(root, digest, 4));
    ck_ok(calm_blob_get(ctx, root, digest, &map));
    ck_assert(map.bytes == 3 && memcmp(map.data, "abc", 3) == 0);
    calm_unmap_file(&map);
    ck_ok(calm_blob_put(ctx, root, abc, 3, digest));
    ck_assert_int_eq(n_entries(test_format("%s/tmp", root)), 0);
    ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
}
END_OF_TEST

TEST(empty_blob)
{
    const char *root = test_directory();
    char digest[CALM_SHA256_HEX];
    calm_mapping map;
    ck_ok(calm_blob_put(ctx, root, NULL, 0, digest));
    ck_ok(calm_blob_get(ctx, root, digest, &map));
    ck_assert_uint_eq(map.bytes, 0);
    calm_unmap_file(&map);
}
END_OF_TEST

TEST(absent_damaged_and_repaired)
{
    const char *root = test_directory();
    char digest[CALM_SHA256_HEX];
    calm_mapping map;
    ck_fails(calm_blob_get(ctx, root, ABC, &map), CALM_ENOTFOUND, root);
    ck_assert(!calm_blob_present(root, ABC, 3));
    ck_ok(calm_blob_put(ctx, root, abc, 3, digest));
    overwrite(blob_path(root, digest), "abd");
    ck_fails(calm_blob_get(ctx, root, digest, &map), CALM_EFORMAT, "damaged blob");
    ck_assert_ptr_null(map.data);
    ck_ok(calm_blob_put(ctx, root, abc, 3, digest));
    ck_ok(calm_blob_get(ctx, root, digest, &map));
    calm_unmap_file(&map);
}
END_OF_TEST

TEST(a_digest_is_no_path)
{
    calm_mapping map;
    const char *root = test_directory();
    static const char *const wrong[] = {"", "ab", "../../../../etc/passwd", "BA7816BF", ABC "0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_fails(calm_blob_get(ctx, root, wrong[i], &map), CALM_EFORMAT, "not a digest");
        ck_assert(!calm_blob_present(root, wrong[i], 0));
    }
}
END_OF_TEST

TEST(sweep_removes_temporaries_only)
{
    const char *root = test_directory();
    char digest[CALM_SHA256_HEX];
    ck_ok(calm_blob_sweep(ctx, test_format("%s/none", root)));
    ck_ok(calm_blob_put(ctx, root, abc, 3, digest));
    overwrite(test_format("%s/tmp/left-over", root), "half a bl");
    ck_ok(calm_blob_sweep(ctx, root));
    ck_assert_int_eq(n_entries(test_format("%s/tmp", root)), 0);
    ck_assert(calm_blob_present(root, digest, 3));
    ck_ok(calm_blob_put(ctx, root, abc, 3, digest));
}
END_OF_TEST

static calm_status put_one(calm_ctx *c, size_t index, void *user)
{
    char digest[CALM_SHA256_HEX];
    size_t content = index % 5;    /* several threads store equal blobs */
    calm_blob_piece piece = {&content, sizeof content};
    return calm_blob_put(c, user, &piece, 1, digest);
}

TEST(threads_put_at_once)
{
    const char *root = test_directory();
    ctx->n_threads = 4;
    ck_ok(calm_parallel_for(ctx, 60, put_one, (void *)(uintptr_t)root));
    ck_assert_int_eq(n_entries(test_format("%s/tmp", root)), 0);
    int n_blobs = 0;
    for (int i = 0; i < 256; i++)
        n_blobs += n_entries(test_format("%s/%02x", root, i));
    ck_assert_int_eq(n_blobs, 5);
}
END_OF_TEST

/* A limit of 64 KiB on file sizes stands in for a full disk, and needs no root. */
TEST(refused_write_leaves_nothing)
{
    const char *root = test_directory();
    char digest[CALM_SHA256_HEX];
    size_t n_bytes = 1 << 20;
    char *bytes;
    ck_ok(CALM_NEW(ctx, ctx->out, bytes, n_bytes));
    struct rlimit before, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 65536;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    calm_status status = calm_blob_put(ctx, root, &(calm_blob_piece){bytes, n_bytes}, 1, digest);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ck_fails(status, CALM_EIO, root);
    ck_assert_int_eq(n_entries(test_format("%s/tmp", root)), 0);
    ck_assert(!calm_path_exists(blob_path(root, digest)));
}
END_OF_TEST

TEST(full_disk_leaves_nothing)
{
    const char *root = test_directory();
    char digest[CALM_SHA256_HEX];
    size_t n_bytes = 1 << 20;
    char *bytes;
    if (mount("tmpfs", root, "tmpfs", 0, "size=256k") != 0) {
        puts("SKIP: full_disk_leaves_nothing: no right to mount a tmpfs (run the tests as root)");
        return;
    }
    ck_ok(CALM_NEW(ctx, ctx->out, bytes, n_bytes));
    calm_status status = calm_blob_put(ctx, root, &(calm_blob_piece){bytes, n_bytes}, 1, digest);
    int n_left = n_entries(test_format("%s/tmp", root));
    bool half_written = calm_path_exists(blob_path(root, digest));
    calm_status small = calm_blob_put(&(calm_ctx){.out = ctx->out, .scratch = ctx->scratch}, root, abc, 3, digest);
    ck_assert_int_eq(umount2(root, MNT_DETACH), 0);
    ck_fails(status, CALM_ENOSPC, root);
    ck_assert_int_eq(n_left, 0);
    ck_assert(!half_written);
    ck_assert_int_eq(small, CALM_OK);
}
END_OF_TEST

int main(void)
{
    return run_tests("blob", (const TTest *[]){pieces_round_trip, empty_blob, absent_damaged_and_repaired,
                                               a_digest_is_no_path, sweep_removes_temporaries_only,
                                               threads_put_at_once, refused_write_leaves_nothing,
                                               full_disk_leaves_nothing, NULL});
}
