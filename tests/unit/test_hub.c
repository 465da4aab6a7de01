/* Models by name: what is fetched and where it is stored, what is found again, and failures on the way. */
#include "ptq/hub/hub.h"

#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"
#include "tests/support/hub_server.h"

#define SECRET "hf_SecretOfTheTest"
#define INDEX "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}"

static hub_server hub;
static calm_hub_settings settings;

static hub_file *add(const char *name, const char *text, bool lfs)
{
    return hub_add(&hub, name, text, strlen(text), lfs);
}

/* Starts a hub with a repository of sharded weights and many files that calm does not need. */
static void begin(void)
{
    memset(&hub, 0, sizeof hub);
    hub.repo = "test/tiny";
    add("config.json", "{\"model_type\":\"x\"}", false);
    add("tokenizer.json", "{\"large\":1}", true);
    add("model.safetensors.index.json", INDEX, false);
    add("model-1.safetensors", "shard one", true);
    add("model-2.safetensors", "shard two!", true);
    add("1_Pooling/config.json", "{}", false);
    add("README.md", "read me", false);
    add("consolidated.safetensors", "the same again", true);
    add("model-3.safetensors", "of another index", true);
    add("pytorch_model.bin", "pickled", true);
    add("model.gguf", "gguf", true);
    add("onnx/model.onnx", "onnx", true);
}

static void start(void)
{
    hub_start(&hub);
    settings = hub_settings(&hub, test_format("%s/not/yet", test_directory()));
}

static calm_status pull(const char *word, calm_hub_snapshot *out)
{
    calm_hub_name name;
    ck_ok(calm_hub_name_parse(ctx, word, &name));
    return calm_hub_pull(ctx, &settings, &name, NULL, NULL, out);
}

static calm_hub_snapshot find(const char *word)
{
    calm_hub_snapshot out;
    calm_hub_name name;
    ck_ok(calm_hub_name_parse(ctx, word, &name));
    ck_ok(calm_hub_find(ctx, &settings, &name, &out));
    return out;
}

static const char *read_text(const char *path)
{
    char *text;
    size_t n_bytes;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &text, &n_bytes));
    return text;
}

static size_t n_fetched(const calm_hub_snapshot *snapshot)
{
    size_t n = 0;
    for (size_t i = 0; i < snapshot->n_files; i++)
        n += snapshot->files[i].fetched;
    return n;
}

TEST(what_calm_needs_comes_and_nothing_else)
{
    static const char *const names[] = {"1_Pooling/config.json", "README.md", "config.json", "model-1.safetensors",
                                        "model-2.safetensors", "model.safetensors.index.json", "tokenizer.json"};
    calm_hub_snapshot got;
    begin();
    start();
    ck_ok(pull("test/tiny", &got));
    ck_assert_str_eq(got.commit, HUB_COMMIT);
    ck_assert_str_eq(got.path, test_format("%s/models--test--tiny/snapshots/" HUB_COMMIT, settings.cache));
    ck_assert_ptr_null(got.missing);
    ck_assert_uint_eq(got.n_files, 7);
    ck_assert_uint_eq(n_fetched(&got), 7);
    for (size_t i = 0; i < 7; i++)
        ck_assert_str_eq(got.files[i].name, names[i]);
    ck_assert_str_eq(read_text(test_format("%s/model-2.safetensors", got.path)), "shard two!");
    const char *repo = test_format("%s/models--test--tiny", settings.cache);
    ck_assert_str_eq(read_text(test_format("%s/refs/main", repo)), HUB_COMMIT);
    ck_assert_str_eq(read_text(test_format("%s/blobs/%s", repo, hub.files[3].sha256)), "shard one");
    ck_assert_str_eq(read_text(test_format("%s/blobs/%s", repo, hub.files[5].sha1)), "{}");
    ck_assert(calm_path_exists(test_format("%s/.no_exist/" HUB_COMMIT "/generation_config.json", repo)));
    ck_assert(!calm_path_exists(test_format("%s/.no_exist/" HUB_COMMIT "/config.json", repo)));
    ck_assert_uint_eq(hub.n_requests, 1 + 4 + 2 * 3);    /* listing, small files, redirected ones */
    ck_ok(pull("test/tiny", &got));                      /* again: only the listing */
    ck_assert_uint_eq(n_fetched(&got), 0);
    ck_assert_uint_eq(got.n_files, 7);
    ck_assert_uint_eq(hub.n_requests, 1 + 4 + 2 * 3 + 1);
    hub_stop(&hub);
}
END_OF_TEST

TEST(what_was_pulled_is_found_without_the_hub)
{
    calm_hub_snapshot got, found;
    begin();
    start();
    ck_assert_ptr_null(find("test/tiny").path);
    ck_ok(pull("test/tiny@refs/pr/1", &got));
    hub_stop(&hub);
    settings.offline = true;
    found = find("test/tiny@refs/pr/1");
    ck_assert(found.usable);
    ck_assert_ptr_null(found.missing);
    ck_assert_str_eq(found.path, got.path);
    ck_assert_uint_eq(found.n_files, 7);
    ck_assert(find("test/tiny@" HUB_COMMIT).usable);
    ck_assert(!find("test/tiny@main").usable);
    ck_ok(pull("test/tiny@refs/pr/1", &got));    /* offline: what is there */
    ck_assert_str_eq(got.path, found.path);
    ck_fails(pull("test/tiny@main", &got), CALM_ENOTFOUND, "revision main is not in the cache");
    ck_assert_int_eq(unlink(test_format("%s/tokenizer.json", found.path)), 0);
    found = find("test/tiny@refs/pr/1");
    ck_assert(found.usable);
    ck_assert_str_eq(found.missing, "tokenizer.json");
    ck_assert_int_eq(unlink(test_format("%s/model-1.safetensors", found.path)), 0);
    ck_fails(pull("test/tiny@refs/pr/1", &got), CALM_ENOTFOUND, "the cache lacks tokenizer.json, model-1.safetensors");
}
END_OF_TEST

TEST(a_broken_pull_is_gone_on_with)
{
    calm_hub_snapshot got;
    begin();
    hub.files[4].cut_at = 4;
    hub.files[4].n_cuts = 1;
    start();
    settings.attempts = 1;
    ck_fails(pull("test/tiny", &got), CALM_EIO, "test/tiny: model-2.safetensors: the connection broke off");
    const calm_hub_snapshot found = find("test/tiny");    /* the revision is known, and what it lacks */
    ck_assert(!found.usable);
    ck_assert_str_eq(found.missing, "model-2.safetensors");
    hub.n_requests = 0;
    ck_ok(pull("test/tiny", &got));
    ck_assert_uint_eq(n_fetched(&got), 1);
    ck_assert_uint_eq(hub.n_requests, 3);
    ck_assert_str_eq(hub.requests[2].range, "bytes=4-");
    hub_stop(&hub);
}
END_OF_TEST

TEST(a_mirror_that_lists_names_alone)
{
    calm_hub_snapshot got;
    begin();
    hub.no_blobs = true;
    start();
    ck_ok(pull("test/tiny", &got));
    ck_assert_uint_eq(n_fetched(&got), 7);
    ck_assert_uint_eq(hub_count(&hub, "HEAD", "/test/tiny/resolve/"), 7);
    ck_assert_str_eq(got.files[3].etag, hub.files[3].sha256);
    hub.files[3].flipped = true;
    ck_assert_int_eq(unlink(test_format("%s/models--test--tiny/blobs/%s", settings.cache, hub.files[3].sha256)), 0);
    ck_fails(pull("test/tiny", &got), CALM_EMISMATCH, "model-1.safetensors: wrong checksum");
    hub_stop(&hub);
}
END_OF_TEST

TEST(tokens_and_gates)
{
    calm_hub_snapshot got;
    begin();
    hub.token = SECRET;
    start();
    ck_ok(pull("test/tiny", &got));
    for (size_t i = 0; i < hub.n_requests; i++)
        ck_assert_str_eq(hub.requests[i].authorization, hub.requests[i].storage ? "" : "Bearer " SECRET);
    settings.token = "hf_SecretButWrong";
    ck_assert_int_eq(pull("test/tiny", &got), CALM_EIO);
    ck_assert_ptr_nonnull(strstr(ctx->message, "refused the token from HF_TOKEN"));
    ck_assert_ptr_null(strstr(ctx->message, "hf_Secret"));
    calm_ctx_clear_failure(ctx);
    settings.token = NULL;
    ck_fails(pull("test/tiny", &got), CALM_ENOTFOUND, "no such repository");
    hub_stop(&hub);
}
END_OF_TEST

TEST(what_is_not_there)
{
    calm_hub_snapshot got;
    begin();
    start();
    ck_fails(pull("test/none", &got), CALM_ENOTFOUND, "test/none: no such repository");
    ck_fails(pull("test/tiny@v9", &got), CALM_ENOTFOUND, "no revision \"v9\"");
    ck_assert(!calm_path_exists(settings.cache));    /* nothing was written */
    hub.status = 500;
    ck_fails(pull("test/tiny", &got), CALM_EIO, "answered 500");
    hub_stop(&hub);
    ck_fails(pull("test/tiny", &got), CALM_EIO, "no connection");
}
END_OF_TEST

TEST(hostile_answers)
{
    calm_hub_snapshot got;
    begin();
    hub.listing = "{\"sha\":\"" HUB_COMMIT "\",\"siblings\":[{\"rfilename\":\"config.json\"},"
                  "{\"rfilename\":\"../../x\"}]}";
    start();
    ck_fails(pull("test/tiny", &got), CALM_EFORMAT, "\"../../x\" goes up");
    hub.listing = "<html>please log in</html>";
    ck_fails(pull("test/tiny", &got), CALM_EFORMAT, "the answer of http://127.0.0.1");
    hub.listing = NULL;
    hub.listing_bytes = CALM_HUB_LISTING_MAX + 1;
    ck_fails(pull("test/tiny", &got), CALM_EFORMAT, "larger than 16 MiB");
    hub.listing_bytes = 0;
    ck_fails(pull("test/tiny@" "ffffffffffffffffffffffffffffffffffffffff", &got), CALM_ENOTFOUND, "no revision");
    hub.listing = "{\"sha\":\"ffffffffffffffffffffffffffffffffffffffff\",\"siblings\":[]}";
    ck_fails(pull("test/tiny@" HUB_COMMIT, &got), CALM_EFORMAT, "the hub answered with ffff");
    ck_assert(!calm_path_exists(settings.cache));
    hub_stop(&hub);
}
END_OF_TEST

TEST(hostile_indexes)
{
    static const struct {
        const char *index, *says;
    } cases[] = {{"{\"weight_map\":{\"a\":\"../../../x.safetensors\"}}", "goes up"},
                 {"{\"weight_map\":{\"a\":\"/x.safetensors\"}}", "is absolute"},
                 {"{\"weight_map\":{\"a\":\"model-9.safetensors\"}}", "names model-9.safetensors, which the repo"},
                 {"{", "model.safetensors.index.json"}};
    calm_hub_snapshot got;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        hub.files[2].bytes = cases[i].index;
        hub.files[2].n_bytes = strlen(cases[i].index);
        start();
        ck_fails(pull("test/tiny", &got), CALM_EFORMAT, cases[i].says);
        hub_stop(&hub);
    }
}
END_OF_TEST

TEST(repositories_that_calm_cannot_read)
{
    calm_hub_snapshot got;
    memset(&hub, 0, sizeof hub);
    hub.repo = "test/tiny";
    add("model.safetensors", "w", true);
    start();
    ck_fails(pull("test/tiny", &got), CALM_EUNSUPPORTED, "expected config.json");
    hub_stop(&hub);
    memset(&hub, 0, sizeof hub);
    hub.repo = "test/tiny";
    add("config.json", "{}", false);
    add("pytorch_model.bin", "w", true);
    start();
    ck_fails(pull("test/tiny", &got), CALM_EUNSUPPORTED, "found pytorch_model.bin instead");
    hub_stop(&hub);
}
END_OF_TEST

TEST(no_room)
{
    calm_hub_snapshot got;
    begin();
    /* A petabyte: more than any disk has. */
    hub.listing = "{\"sha\":\"" HUB_COMMIT "\",\"siblings\":["
                  "{\"rfilename\":\"config.json\",\"size\":2,\"blobId\":\"" HUB_COMMIT "\"},"
                  "{\"rfilename\":\"model.safetensors\",\"size\":1000000000000000,\"lfs\":{\"sha256\":\""
                  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":1000000000000000}}]}";
    start();
    ck_fails(pull("test/tiny", &got), CALM_ENOSPC, "1000000.00 GB are to be fetched");
    ck_assert_uint_eq(hub.n_requests, 1);    /* before any file */
    hub_stop(&hub);
}
END_OF_TEST

TEST(a_new_commit_replaces_the_old_one_when_it_is_whole)
{
    calm_hub_snapshot got;
    begin();
    start();
    const char *repo = test_format("%s/models--test--tiny", settings.cache), *ref = test_format("%s/refs/main", repo);
    static const char old[] = "ffffffffffffffffffffffffffffffffffffffff";
    ck_ok(calm_make_parent(ctx, ref));
    ck_ok(calm_write_file(ctx, ref, old, 40));
    hub.files[4].flipped = true;
    ck_fails(pull("test/tiny", &got), CALM_EMISMATCH, "wrong checksum");
    ck_assert_str_eq(read_text(ref), old);
    hub.files[4].flipped = false;
    ck_ok(pull("test/tiny", &got));
    ck_assert_str_eq(read_text(ref), HUB_COMMIT);
    hub_stop(&hub);
}
END_OF_TEST

int main(void)
{
    return run_tests("hub",
                     (const TTest *[]){what_calm_needs_comes_and_nothing_else, what_was_pulled_is_found_without_the_hub,
                                       a_broken_pull_is_gone_on_with, a_mirror_that_lists_names_alone,
                                       tokens_and_gates, what_is_not_there, hostile_answers, hostile_indexes,
                                       repositories_that_calm_cannot_read, no_room,
                                       a_new_commit_replaces_the_old_one_when_it_is_whole, NULL});
}
