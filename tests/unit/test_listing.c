/* Answers of a hub: the fields that are used, and values that no hub gives. */
#include "ptq/hub/listing.h"

#include "tests/support/harness.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static calm_status parse(const char *text, calm_hub_listing *out)
{
    return calm_hub_listing_parse(ctx, "a/b: the answer", text, strlen(text), out);
}

static const char *with_file(const char *entry)
{
    return test_format("{\"sha\":\"" COMMIT "\",\"siblings\":[%s]}", entry);
}

TEST(files_have_sizes_and_etags)
{
    calm_hub_listing listing;
    ck_ok(parse(with_file("{\"rfilename\":\"config.json\",\"size\":12,\"blobId\":\"" COMMIT "\",\"lfs\":null},"
                          "{\"rfilename\":\"model.safetensors\",\"size\":5000000000,\"blobId\":\"" COMMIT "\","
                          "\"lfs\":{\"sha256\":\"" SHA256 "\",\"size\":5000000000,\"pointerSize\":135}},"
                          "{\"rfilename\":\"a/b\"}"), &listing));
    ck_assert_str_eq(listing.commit, COMMIT);
    ck_assert_uint_eq(listing.n_files, 3);
    const calm_hub_file *file = calm_hub_listing_find(&listing, "config.json");
    ck_assert_int_eq(file->bytes, 12);
    ck_assert_str_eq(file->etag, COMMIT);
    file = calm_hub_listing_find(&listing, "model.safetensors");
    ck_assert_int_eq(file->bytes, 5000000000LL);
    ck_assert_str_eq(file->etag, SHA256);
    file = calm_hub_listing_find(&listing, "a/b");    /* a mirror that gives only names */
    ck_assert_int_eq(file->bytes, -1);
    ck_assert_str_eq(file->etag, "");
    ck_assert_ptr_null(calm_hub_listing_find(&listing, "b"));
    ck_ok(parse(with_file(""), &listing));
    ck_assert_uint_eq(listing.n_files, 0);
}
END_OF_TEST

TEST(answers_that_no_hub_gives)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "a/b: the answer"},
               {"<html>Log in</html>", "a/b: the answer"},
               {"[]", "no answer of a hub"},
               {"{}", "no answer of a hub"},
               {"{\"sha\":\"" COMMIT "\"}", "no answer of a hub"},
               {"{\"sha\":\"../../x\",\"siblings\":[]}", "no answer of a hub"},
               {"{\"sha\":\"" COMMIT "\",\"siblings\":{}}", "no answer of a hub"},
               {"{\"sha\":7,\"siblings\":[]}", "no answer of a hub"}};
    static const struct {
        const char *entry, *says;
    } files[] = {{"7", "expected the name of a file"},
                 {"{\"rfilename\":null}", "expected the name of a file"},
                 {"{\"rfilename\":\"../x\"}", "\"../x\" goes up with \"..\""},
                 {"{\"rfilename\":\"/etc/x\"}", "is absolute"},
                 {"{\"rfilename\":\"a//x\"}", "has an empty part"},
                 {"{\"rfilename\":\"a\\\\x\"}", "has a backslash"},
                 {"{\"rfilename\":\"\"}", "is empty"},
                 {"{\"rfilename\":\"a\\u0000b\"}", "NUL"},
                 {"{\"rfilename\":\"a\",\"size\":-5}", "size"},
                 {"{\"rfilename\":\"a\",\"size\":1e99}", "size"},
                 {"{\"rfilename\":\"a\",\"size\":9223372036854775807}", "size"},
                 {"{\"rfilename\":\"a\",\"size\":\"7\"}", "size"},
                 {"{\"rfilename\":\"a\",\"blobId\":\"../../../x\"}", "no SHA-1"},
                 {"{\"rfilename\":\"a\",\"lfs\":{\"sha256\":\"" COMMIT "\"}}", "no SHA-256"}};
    calm_hub_listing listing;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_fails(parse(bad[i].text, &listing), CALM_EFORMAT, bad[i].says);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        ck_fails(parse(with_file(files[i].entry), &listing), CALM_EFORMAT, files[i].says);
}
END_OF_TEST

static calm_status shards(const char *text, const char ***names, size_t *n)
{
    return calm_hub_index_shards(ctx, "index", text, strlen(text), names, n);
}

TEST(an_index_names_each_shard_once)
{
    const char **names;
    size_t n;
    ck_ok(shards("{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", &names,
                 &n));
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(names[0], "1.safetensors");
    ck_assert_str_eq(names[1], "2.safetensors");
    ck_fails(shards("{}", &names, &n), CALM_EFORMAT, "weight_map");
    ck_fails(shards("{\"weight_map\":{}}", &names, &n), CALM_EFORMAT, "weight_map");
    ck_fails(shards("{\"weight_map\":{\"a\":1}}", &names, &n), CALM_EFORMAT, "name of a file");
    ck_fails(shards("{\"weight_map\":{\"a\":\"../../x\"}}", &names, &n), CALM_EFORMAT, "goes up");
}
END_OF_TEST

TEST(weights_of_another_kind_are_named)
{
    calm_hub_listing listing;
    ck_ok(parse(with_file("{\"rfilename\":\"model.safetensors\"}"), &listing));
    ck_ok(calm_hub_listing_check_weights(ctx, "a/b", &listing));
    ck_ok(parse(with_file("{\"rfilename\":\"model.safetensors.index.json\"}"), &listing));
    ck_ok(calm_hub_listing_check_weights(ctx, "a/b", &listing));
    ck_ok(parse(with_file("{\"rfilename\":\"x\"},{\"rfilename\":\"pytorch_model.bin\"}"), &listing));
    ck_fails(calm_hub_listing_check_weights(ctx, "a/b", &listing), CALM_EUNSUPPORTED,
             "found pytorch_model.bin instead");
    ck_ok(parse(with_file("{\"rfilename\":\"x\"}"), &listing));
    ck_fails(calm_hub_listing_check_weights(ctx, "a/b", &listing), CALM_EUNSUPPORTED, "found no weights");
}
END_OF_TEST

int main(void)
{
    return run_tests("listing",
                     (const TTest *[]){files_have_sizes_and_etags, answers_that_no_hub_gives,
                                       an_index_names_each_shard_once, weights_of_another_kind_are_named, NULL});
}
