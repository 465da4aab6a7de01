/* Files: whole reads, mappings, atomic writes, a full disk, directories and links. */
#include "ptq/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ptq/base/sha256.h"
#include "tests/support/harness.h"

static void put(const char *path, const char *text)
{
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
}

static const char *get(const char *path)
{
    char *text;
    size_t n_bytes;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &text, &n_bytes));
    ck_assert_uint_eq(strlen(text), n_bytes);
    return text;
}

/* Returns the number of entries of a directory, without . and .. . */
static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    int n = -2;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

TEST(what_is_written_is_read)
{
    const char *dir = test_directory(), *path = test_format("%s/a", dir);
    put(path, "first");
    put(path, "");
    ck_assert_str_eq(get(path), "");
    put(path, "second and longer");
    ck_assert_str_eq(get(path), "second and longer");
    ck_assert_int_eq(count_entries(dir), 1);    /* no temporary file stays */
}
END_OF_TEST

TEST(reading_checks_kind_and_size)
{
    const char *dir = test_directory(), *path = test_format("%s/a", dir);
    char *text;
    size_t n_bytes;
    put(path, "12345678");
    ck_ok(calm_read_file(ctx, path, 8, &text, &n_bytes));
    ck_fails(calm_read_file(ctx, path, 7, &text, &n_bytes), CALM_EFORMAT, "8 bytes, expected at most 7");
    ck_fails(calm_read_file(ctx, dir, 100, &text, &n_bytes), CALM_EARG, "found a directory");
    ck_fails(calm_read_file(ctx, "/dev/null", 100, &text, &n_bytes), CALM_EARG, "expected a file");
    ck_fails(calm_read_file(ctx, test_format("%s/none", dir), 100, &text, &n_bytes), CALM_ENOTFOUND, "none");
}
END_OF_TEST

TEST(a_mapping_shows_the_bytes)
{
    const char *path = test_format("%s/a", test_directory());
    static unsigned char bytes[3 * 65536 + 5];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 >> 4);
    ck_ok(calm_write_file(ctx, path, bytes, sizeof bytes));
    calm_mapping map;
    ck_ok(calm_map_file(ctx, path, &map));
    ck_assert_uint_eq(map.bytes, sizeof bytes);
    calm_mapping_release(&map, 1, sizeof bytes - 1);    /* read again from the file afterwards */
    calm_mapping_release(&map, sizeof bytes, 100);
    ck_assert_mem_eq(map.data, bytes, sizeof bytes);
    calm_unmap_file(&map);
    ck_assert_ptr_null(map.data);
    put(path, "");
    ck_ok(calm_map_file(ctx, path, &map));
    ck_assert_ptr_nonnull(map.data);
    ck_assert_uint_eq(map.bytes, 0);
    calm_unmap_file(&map);
    ck_assert_ptr_null(map.data);
    calm_unmap_file(&map);
    put(path, "four");
    ck_ok(calm_map_file_within(ctx, path, 4, &map));
    ck_assert_mem_eq(map.data, "four", 4);
    calm_unmap_file(&map);
    ck_fails(calm_map_file_within(ctx, path, 3, &map), CALM_EFORMAT, "4 bytes, expected at most 3");
    ck_assert_ptr_null(map.data);
}
END_OF_TEST

TEST(a_failed_write_keeps_the_old_file)
{
    const char *dir = test_directory(), *target = test_format("%s/folder", dir);
    ck_fails(calm_write_file(ctx, test_format("%s/none/a", dir), "x", 1), CALM_ENOTFOUND, "cannot create");
    ck_ok(calm_make_directories(ctx, target));
    ck_fails(calm_write_file(ctx, target, "x", 1), CALM_EIO, "folder: cannot rename");
    ck_assert_int_eq(count_entries(dir), 1);
    ck_assert(calm_is_directory(target));
}
END_OF_TEST

TEST(a_writer_counts_and_reports_a_full_device)
{
    calm_writer writer;
    const char *path = test_format("%s/a", test_directory());
    ck_ok(calm_writer_open(ctx, &writer, path));
    ck_ok(calm_writer_put(ctx, &writer, "abc", 3));
    ck_ok(calm_writer_put(ctx, &writer, NULL, 0));
    ck_ok(calm_writer_put(ctx, &writer, "de", 2));
    ck_assert_uint_eq(writer.written, 5);
    ck_ok(calm_writer_close(ctx, &writer));
    ck_assert_str_eq(get(path), "abcde");

    ck_ok(calm_writer_open(ctx, &writer, "/dev/full"));    /* small: fails when it is flushed */
    ck_ok(calm_writer_put(ctx, &writer, "x", 1));
    ck_fails(calm_writer_close(ctx, &writer), CALM_ENOSPC, "/dev/full: cannot write");
    static const char large[1 << 20];                      /* large: fails at once */
    ck_ok(calm_writer_open(ctx, &writer, "/dev/full"));
    ck_assert_int_eq(calm_writer_put(ctx, &writer, large, sizeof large), CALM_ENOSPC);
    ck_fails(calm_writer_close(ctx, &writer), CALM_ENOSPC, "/dev/full: cannot write");
}
END_OF_TEST

/* A file system with one page for data, which needs root and, in a container, further rights. */
TEST(a_full_disk_leaves_nothing_half_written)
{
    const char *dir = test_directory(), *path = test_format("%s/a", dir);
    if (mount("calm-test", dir, "tmpfs", 0, "size=64k") != 0) {
        puts("SKIP: a_full_disk_leaves_nothing_half_written: no right to mount a tmpfs (run the tests as root)");
        return;
    }
    static const char large[1 << 20];
    calm_status old = calm_write_file(ctx, path, "old", 3);
    calm_status full = calm_write_file(ctx, path, large, sizeof large);
    char message[CALM_MESSAGE_MAX];
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_clear_failure(ctx);
    char *text = NULL;
    size_t n_bytes = 0;
    calm_read_file(ctx, path, 100, &text, &n_bytes);
    int n_entries = count_entries(dir);
    ck_assert_int_eq(umount(dir), 0);    /* before anything can fail */
    ck_assert_int_eq(old, CALM_OK);
    ck_assert_int_eq(full, CALM_ENOSPC);
    ck_assert_ptr_nonnull(strstr(message, "cannot write"));
    ck_assert_uint_eq(n_bytes, 3);
    ck_assert_str_eq(text, "old");
    ck_assert_int_eq(n_entries, 1);
}
END_OF_TEST

/* Replacing a device by a file would remove it for the whole machine: calm report -o /dev/null, as root. */
TEST(devices_and_pipes_are_written_not_replaced)
{
    const char *pipe = test_format("%s/pipe", test_directory()), *link = test_format("%s.link", pipe);
    char text[8] = "";
    struct stat info;
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ck_assert_int_eq(symlink("pipe", link), 0);
    ck_assert(calm_path_is_special(pipe) && calm_path_is_special(link));
    const int fd = open(pipe, O_RDONLY | O_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    put(pipe, "one");
    put(link, "two");
    ck_assert(lstat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
    ck_assert(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    ck_assert_int_eq(read(fd, text, sizeof text), 6);
    ck_assert_str_eq(text, "onetwo");
    close(fd);
}
END_OF_TEST

/* Opening a pipe for reading waits for its writer, so a folder with one would make calm wait for ever. */
TEST(pipes_sockets_and_devices_are_not_read)
{
    const char *pipe = test_format("%s/pipe", test_directory());
    const struct {
        const char *path, *kind;
    } list[] = {{pipe, "a pipe"}, {"socket", "a socket"}, {"/dev/null", "a device"}};
    const struct sockaddr_un address = {AF_UNIX, "socket"};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(chdir(test_directory()), 0);
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const char *message = test_format("%s: expected a file, found %s", list[i].path, list[i].kind);
        char hex[CALM_SHA256_HEX];
        calm_mapping map;
        ck_assert(!calm_file_begins(list[i].path, "GGUF"));
        ck_fails(calm_map_file(ctx, list[i].path, &map), CALM_EARG, message);
        ck_fails(calm_sha256_file(ctx, list[i].path, hex), CALM_EARG, message);
    }
    close(fd);
}
END_OF_TEST

TEST(links_stay_and_their_ends_are_written)
{
    const char *dir = test_directory(), *link = test_format("%s/link", dir);
    struct stat info;
    ck_ok(calm_make_directories(ctx, test_format("%s/far", dir)));
    ck_assert_int_eq(symlink("far/a", link), 0);
    put(link, "new");    /* the target does not exist */
    put(link, "newer");
    ck_assert(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    ck_assert_str_eq(get(test_format("%s/far/a", dir)), "newer");
    ck_assert_int_eq(count_entries(test_format("%s/far", dir)), 1);
    ck_assert_int_eq(symlink("circle", test_format("%s/circle", dir)), 0);
    ck_fails(calm_write_file(ctx, test_format("%s/circle", dir), "x", 1), CALM_EARG, "a link that leads to itself");
}
END_OF_TEST

TEST(directories_are_made_with_their_parents)
{
    const char *dir = test_directory();
    ck_ok(calm_make_directories(ctx, test_format("%s/a/b//c/", dir)));
    ck_assert(calm_is_directory(test_format("%s/a/b/c", dir)));
    ck_ok(calm_make_directories(ctx, test_format("%s/a/b/c", dir)));
    ck_ok(calm_make_directories(ctx, "/"));
    put(test_format("%s/a/file", dir), "x");
    ck_fails(calm_make_directories(ctx, test_format("%s/a/file/d", dir)), CALM_EIO, "file: cannot create");
    ck_assert(calm_path_exists(test_format("%s/a/file", dir)));
    ck_assert(!calm_is_directory(test_format("%s/a/file", dir)));
    ck_assert(!calm_path_exists(test_format("%s/none", dir)));
}
END_OF_TEST

TEST(removing_a_tree_does_not_follow_links)
{
    const char *dir = test_directory(), *outside = test_format("%s/outside", dir), *tree = test_format("%s/tree", dir);
    const char *precious = test_format("%s/precious", outside), *link = test_format("%s/link", dir);
    ck_ok(calm_make_directories(ctx, outside));
    ck_ok(calm_make_directories(ctx, test_format("%s/x/y/z", tree)));
    put(precious, "kept");
    put(test_format("%s/x/y/z/file", tree), "gone");
    put(test_format("%s/file", tree), "gone");
    ck_assert_int_eq(symlink(outside, test_format("%s/x/to-outside", tree)), 0);
    ck_assert_int_eq(symlink("nowhere", test_format("%s/x/broken", tree)), 0);
    ck_assert_int_eq(symlink(outside, link), 0);

    ck_ok(calm_remove_tree(ctx, tree));
    ck_assert(!calm_path_exists(tree));
    ck_assert_str_eq(get(precious), "kept");
    ck_ok(calm_remove_tree(ctx, link));    /* the link, not its target */
    ck_assert(!calm_path_exists(link));
    ck_assert_str_eq(get(precious), "kept");
    ck_ok(calm_remove_tree(ctx, precious));
    ck_ok(calm_remove_tree(ctx, precious));    /* missing: no error */
    ck_assert(!calm_path_exists(precious));
}
END_OF_TEST

TEST(paths_are_joined_with_one_slash)
{
    char *path;
    ck_ok(calm_path_join(ctx, ctx->out, &path, "a/b", "c"));
    ck_assert_str_eq(path, "a/b/c");
    ck_ok(calm_path_join(ctx, ctx->out, &path, "/", "c"));
    ck_assert_str_eq(path, "/c");
}
END_OF_TEST

TEST(a_copy_has_the_same_bytes)
{
    const char *dir = test_directory(), *from = test_format("%s/from", dir), *to = test_format("%s/to", dir);
    put(from, "some bytes");
    ck_ok(calm_copy_file(ctx, from, to));
    ck_assert_str_eq(get(to), "some bytes");
    put(from, "");
    ck_ok(calm_copy_file(ctx, from, to));
    ck_assert_str_eq(get(to), "");
    ck_fails(calm_copy_file(ctx, test_format("%s/none", dir), to), CALM_ENOTFOUND, "none");
    ck_ok(calm_sync_directory(ctx, dir));
    ck_fails(calm_sync_directory(ctx, test_format("%s/none", dir)), CALM_ENOTFOUND, "none");
}
END_OF_TEST

/* Every allocation fails in turn. */
TEST(memory_that_runs_out_is_reported_and_leaves_no_file)
{
    const char *dir = test_directory(), *path = test_format("%s/a", dir);
    for (long k = 1;; k++) {
        ctx->scratch->fail_in = k;
        if (calm_write_file(ctx, path, "x", 1) == CALM_OK)
            break;
        ck_assert_int_eq(ctx->status, CALM_ENOMEM);
        ck_assert_int_eq(count_entries(dir), 0);
        calm_ctx_clear_failure(ctx);
        ck_assert_int_lt(k, 20);
    }
}
END_OF_TEST

TEST(what_exists_and_how_much_fits)
{
    const char *dir = test_directory();
    const struct {
        const char *path, *found;
    } list[] = {{dir, dir}, {test_format("%s/no/such", dir), dir}, {"/", "/"}, {"/no such/a", "/"}, {".", "."},
                {"no such/a", "."}, {"no such", "."}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *found;
        ck_ok(calm_path_existing(ctx, list[i].path, &found));
        ck_assert_str_eq(found, list[i].found);
    }
    ck_ok(calm_path_refuse_directory(ctx, test_format("%s/no", dir)));    /* opening it will fail */
    ck_fails(calm_path_refuse_directory(ctx, dir), CALM_EARG, "expected a file, found a directory");
    double bytes;
    ck_assert(calm_disk_free(dir, &bytes) && bytes > 0);
    ck_assert(!calm_disk_free(test_format("%s/no", dir), &bytes));
}
END_OF_TEST

int main(void)
{
    return run_tests("file",
                     (const TTest *[]){what_is_written_is_read, reading_checks_kind_and_size,
                                       a_mapping_shows_the_bytes, a_failed_write_keeps_the_old_file,
                                       a_writer_counts_and_reports_a_full_device,
                                       a_full_disk_leaves_nothing_half_written,
                                       devices_and_pipes_are_written_not_replaced,
                                       pipes_sockets_and_devices_are_not_read,
                                       links_stay_and_their_ends_are_written, directories_are_made_with_their_parents,
                                       removing_a_tree_does_not_follow_links, paths_are_joined_with_one_slash,
                                       a_copy_has_the_same_bytes, memory_that_runs_out_is_reported_and_leaves_no_file,
                                       what_exists_and_how_much_fits, NULL});
}
