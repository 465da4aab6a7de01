/* The hub's cache on disk: refs, links, missing files, locks. */
#include "ptq/hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "89abcdef0123456789abcdef0123456789abcdef"

static void put(const char *path, const char *text)
{
    ck_ok(calm_make_parent(ctx, path));
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
}

static const char *get(const char *path)
{
    char *text;
    size_t n_bytes;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &text, &n_bytes));
    return text;
}

TEST(places)
{
    const calm_hub_settings settings = {.cache = "/cache"};
    calm_hub_name name;
    char *path;
    ck_ok(calm_hub_name_parse(ctx, "Org/name", &name));
    ck_ok(calm_hub_repo_dir(ctx, &settings, &name, &path));
    ck_assert_str_eq(path, "/cache/models--Org--name");
    ck_ok(calm_hub_snapshot_dir(ctx, path, COMMIT, &path));
    ck_assert_str_eq(path, "/cache/models--Org--name/snapshots/" COMMIT);
    ck_ok(calm_hub_blob_path(ctx, "/r", "etag", &path));
    ck_assert_str_eq(path, "/r/blobs/etag");
}
END_OF_TEST

TEST(refs)
{
    const char *repo = test_directory();
    char commit[CALM_HUB_COMMIT];
    bool known;
    ck_ok(calm_hub_ref_read(ctx, repo, "main", commit, &known));
    ck_assert(!known);
    ck_ok(calm_hub_ref_read(ctx, repo, COMMIT, commit, &known));    /* a commit needs no file */
    ck_assert(known);
    ck_assert_str_eq(commit, COMMIT);
    ck_ok(calm_hub_ref_write(ctx, repo, "refs/pr/1", COMMIT));
    ck_assert_str_eq(get(test_format("%s/refs/refs/pr/1", repo)), COMMIT);    /* no newline, as the library writes it */
    ck_ok(calm_hub_ref_read(ctx, repo, "refs/pr/1", commit, &known));
    ck_assert(known);
    ck_assert_str_eq(commit, COMMIT);
    ck_ok(calm_hub_ref_write(ctx, repo, "refs/pr/1", OTHER));
    ck_ok(calm_hub_ref_read(ctx, repo, "refs/pr/1", commit, &known));
    ck_assert_str_eq(commit, OTHER);
    ck_ok(calm_hub_ref_write(ctx, repo, COMMIT, COMMIT));
    ck_assert(!calm_path_exists(test_format("%s/refs/" COMMIT, repo)));
    put(test_format("%s/refs/bad", repo), "../../../etc");
    ck_fails(calm_hub_ref_read(ctx, repo, "bad", commit, &known), CALM_EFORMAT, "expected a commit");
    put(test_format("%s/refs/line", repo), COMMIT "\n");
    ck_ok(calm_hub_ref_read(ctx, repo, "line", commit, &known));
    ck_assert_str_eq(commit, COMMIT);
}
END_OF_TEST

static const char *link_of(const char *path)
{
    static char target[512];
    const ssize_t n = readlink(path, target, sizeof target - 1);
    target[n < 0 ? 0 : n] = '\0';
    return target;
}

/* Returns a file's bytes as listed for the snapshot; -1 if it is not listed. */
static int64_t listed_bytes(const char *snapshot, const char *name)
{
    calm_hub_file *files;
    size_t n;
    ck_ok(calm_hub_snapshot_files(ctx, snapshot, &files, &n));
    for (size_t i = 0; i < n; i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].bytes;
    return -1;
}

TEST(links_are_relative)
{
    const char *repo = test_directory(), *snapshot = test_format("%s/snapshots/" COMMIT, repo);
    put(test_format("%s/blobs/etag", repo), "12345");
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "config.json", "etag"));
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "1_Pooling/config.json", "etag"));
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "deep/er/a.json", "etag"));
    ck_assert_str_eq(link_of(test_format("%s/config.json", snapshot)), "../../blobs/etag");
    ck_assert_str_eq(link_of(test_format("%s/deep/er/a.json", snapshot)), "../../../../blobs/etag");
    ck_assert_int_eq(listed_bytes(snapshot, "config.json"), 5);
    ck_assert_int_eq(listed_bytes(snapshot, "1_Pooling/config.json"), 5);
    ck_ok(calm_make_directories(ctx, test_format("%s/README", snapshot)));    /* a folder is no file */
    ck_assert_int_eq(listed_bytes(snapshot, "README"), -1);
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "config.json", "none"));    /* replaced, now a broken link */
    ck_assert_int_eq(listed_bytes(snapshot, "config.json"), -1);
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "config.json", "etag"));
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "config.json", "etag"));
    ck_assert_int_eq(listed_bytes(snapshot, "config.json"), 5);
    put(test_format("%s/copied.json", snapshot), "old");    /* as on systems without links */
    ck_ok(calm_hub_link(ctx, repo, COMMIT, "copied.json", "etag"));
    ck_assert_str_eq(link_of(test_format("%s/copied.json", snapshot)), "../../blobs/etag");
}
END_OF_TEST

static const char *missing(const char *repo, bool tokenizer)
{
    calm_text text;
    calm_text_init(&text);
    ck_ok(calm_hub_missing(ctx, repo, COMMIT, tokenizer, &text));
    const char *copy = test_format("%s", text.data ? text.data : "");
    calm_text_clear(&text);
    return copy;
}

TEST(what_is_missing)
{
    const char *repo = test_directory(), *snapshot = test_format("%s/snapshots/" COMMIT, repo);
    ck_assert_str_eq(missing(repo, true), "config.json, tokenizer.json, model.safetensors");
    put(test_format("%s/config.json", snapshot), "{}");
    put(test_format("%s/model.safetensors", snapshot), "");
    ck_assert_str_eq(missing(repo, true), "tokenizer.json");
    ck_assert_str_eq(missing(repo, false), "");
    ck_ok(calm_hub_mark_absent(ctx, repo, COMMIT, "tokenizer.json"));
    ck_ok(calm_hub_mark_absent(ctx, repo, COMMIT, "tokenizer.json"));
    ck_assert(calm_path_exists(test_format("%s/.no_exist/" COMMIT "/tokenizer.json", repo)));
    ck_assert_str_eq(missing(repo, true), "");
    put(test_format("%s/" CALM_HUB_INDEX, snapshot),
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    put(test_format("%s/2.safetensors", snapshot), "");
    ck_assert_str_eq(missing(repo, true), "1.safetensors");
    put(test_format("%s/" CALM_HUB_INDEX, snapshot), "{");
    calm_text text;
    calm_text_init(&text);
    ck_fails(calm_hub_missing(ctx, repo, COMMIT, true, &text), CALM_EFORMAT, CALM_HUB_INDEX);
    calm_text_clear(&text);
}
END_OF_TEST

TEST(the_files_of_a_snapshot)
{
    const char *snapshot = test_directory();
    calm_hub_file *files;
    size_t n;
    put(test_format("%s/model.safetensors", snapshot), "123");
    put(test_format("%s/config.json", snapshot), "{}");
    put(test_format("%s/1_Pooling/config.json", snapshot), "{ }");
    put(test_format("%s/pytorch_model.bin", snapshot), "x");
    ck_ok(calm_hub_snapshot_files(ctx, snapshot, &files, &n));
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(files[0].name, "1_Pooling/config.json");
    ck_assert_str_eq(files[1].name, "config.json");
    ck_assert_str_eq(files[2].name, "model.safetensors");
    ck_assert_int_eq(files[2].bytes, 3);
    ck_assert(!files[2].fetched);
    ck_fails(calm_hub_snapshot_files(ctx, test_format("%s/none", snapshot), &files, &n), CALM_ENOTFOUND, "none");
}
END_OF_TEST

TEST(the_lock_is_the_library_s)
{
    const calm_hub_settings settings = {.cache = test_directory()};
    calm_hub_name name;
    int lock;
    ck_ok(calm_hub_name_parse(ctx, "Org/name", &name));
    ck_ok(calm_hub_lock(ctx, &settings, &name, "etag", &lock));
    const int other = open(test_format("%s/.locks/models--Org--name/etag.lock", settings.cache), O_RDWR);
    ck_assert_int_ge(other, 0);
    ck_assert_int_ne(flock(other, LOCK_EX | LOCK_NB), 0);
    calm_hub_unlock(lock);
    ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    calm_hub_unlock(-1);
}
END_OF_TEST

TEST(a_wait_for_the_lock_can_be_interrupted)
{
    const calm_hub_settings settings = {.cache = test_directory()};
    atomic_bool stop = true;
    calm_hub_name name;
    int lock, other;
    ck_ok(calm_hub_name_parse(ctx, "Org/name", &name));
    ck_ok(calm_hub_lock(ctx, &settings, &name, "etag", &lock));
    ctx->stop = &stop;
    ck_fails(calm_hub_lock(ctx, &settings, &name, "etag", &other), CALM_EINTERRUPTED, "interrupted");
    ck_assert_int_eq(other, -1);
    ctx->stop = NULL;
    calm_hub_unlock(lock);
    ck_ok(calm_hub_lock(ctx, &settings, &name, "etag", &other));
    calm_hub_unlock(other);
}
END_OF_TEST

TEST(the_cache_is_tagged_once)
{
    const char *cache = test_directory(), *path = test_format("%s/CACHEDIR.TAG", cache);
    ck_ok(calm_hub_tag_cache(ctx, cache));
    ck_assert_ptr_nonnull(strstr(get(path), "Signature: 8a477f597d28d172789f06886806bc55\n"));
    put(path, "mine");
    ck_ok(calm_hub_tag_cache(ctx, cache));
    ck_assert_str_eq(get(path), "mine");
    ck_ok(calm_hub_tag_cache(ctx, test_format("%s/none", cache)));
}
END_OF_TEST

int main(void)
{
    return run_tests("cache",
                     (const TTest *[]){places, refs, links_are_relative, what_is_missing, the_files_of_a_snapshot,
                                       the_lock_is_the_library_s, a_wait_for_the_lock_can_be_interrupted,
                                       the_cache_is_tagged_once, NULL});
}
