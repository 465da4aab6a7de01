/* Environment variables of the hub: the cache, the token and the endpoint. */
#include "ptq/hub/settings.h"

#include "ptq/base/file.h"
#include "tests/support/harness.h"

/* Unsets all variables, so that only the test's are set. */
static void clean_environment(void)
{
    static const char *const names[] = {"HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                                        "XDG_CACHE_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
                                        "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
                                        "HF_HUB_DOWNLOAD_TIMEOUT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
                                        "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", "/nonexistent/ann", 1);
}

static calm_hub_settings read_them(void)
{
    calm_hub_settings settings;
    ck_ok(calm_hub_settings_read(ctx, &settings));
    return settings;
}

TEST(the_cache_is_where_the_library_has_it)
{
    clean_environment();
    ck_assert_str_eq(read_them().cache, "/nonexistent/ann/.cache/huggingface/hub");
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    ck_assert_str_eq(read_them().cache, "/xdg/huggingface/hub");
    setenv("HF_HOME", "~/hf/$NONE_SUCH/${HOME}", 1);
    ck_assert_str_eq(read_them().cache, "/nonexistent/ann/hf/$NONE_SUCH//nonexistent/ann/hub");
    setenv("HF_HOME", "/home/hf", 1);
    ck_assert_str_eq(read_them().cache, "/home/hf/hub");
    setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
    ck_assert_str_eq(read_them().cache, "/old");
    setenv("HF_HUB_CACHE", "$HF_HOME/new", 1);
    ck_assert_str_eq(read_them().cache, "/home/hf/new");
    setenv("HF_HUB_CACHE", "", 1);    /* as if it were not set */
    ck_assert_str_eq(read_them().cache, "/old");
}
END_OF_TEST

TEST(the_token_comes_from_the_environment_or_its_file)
{
    const char *dir = test_directory();
    clean_environment();
    setenv("HF_HOME", dir, 1);
    ck_assert_ptr_null(read_them().token);
    ck_ok(calm_write_file(ctx, test_format("%s/token", dir), " hf_file\r\n", 10));
    ck_assert_str_eq(read_them().token, "hf_file");
    ck_assert_str_eq(read_them().token_source, test_format("%s/token", dir));
    ck_ok(calm_write_file(ctx, test_format("%s/other", dir), "hf_other", 8));
    setenv("HF_TOKEN_PATH", test_format("%s/other", dir), 1);
    ck_assert_str_eq(read_them().token, "hf_other");
    setenv("HUGGING_FACE_HUB_TOKEN", "hf_old", 1);
    ck_assert_str_eq(read_them().token, "hf_old");
    setenv("HF_TOKEN", "\thf_new \n", 1);
    ck_assert_str_eq(read_them().token, "hf_new");
    ck_assert_str_eq(read_them().token_source, "HF_TOKEN");
    setenv("HF_TOKEN", "  ", 1);
    ck_assert_ptr_null(read_them().token);
    setenv("HF_TOKEN", "hf_new", 1);
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
    ck_assert_ptr_null(read_them().token);
}
END_OF_TEST

TEST(a_token_that_would_be_two_headers_is_refused_unseen)
{
    calm_hub_settings settings;
    clean_environment();
    setenv("HF_TOKEN", "hf_a hf_b", 1);
    ck_assert_int_eq(calm_hub_settings_read(ctx, &settings), CALM_EARG);
    ck_assert_ptr_nonnull(strstr(ctx->message, "HF_TOKEN"));
    ck_assert_ptr_null(strstr(ctx->message, "hf_"));
    calm_ctx_clear_failure(ctx);
    setenv("HF_TOKEN", "hf_a\nX-Evil: 1", 1);
    ck_fails(calm_hub_settings_read(ctx, &settings), CALM_EARG, "HF_TOKEN");
}
END_OF_TEST

TEST(the_endpoint_is_an_address)
{
    static const char *const bad[] = {"huggingface.co", "ftp://host", "https://", "http:///", "https://host\nX: 1",
                                      "https://host?x", "https://host#x"};
    calm_hub_settings settings;
    clean_environment();
    ck_assert_str_eq(read_them().endpoint, "https://huggingface.co");
    setenv("HF_ENDPOINT", "http://127.0.0.1:80/mirror//", 1);
    ck_assert_str_eq(read_them().endpoint, "http://127.0.0.1:80/mirror");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("HF_ENDPOINT", bad[i], 1);
        ck_fails(calm_hub_settings_read(ctx, &settings), CALM_EARG, "HF_ENDPOINT");
    }
    setenv("HF_ENDPOINT", "https://ann:secret@host", 1);
    ck_assert_int_eq(calm_hub_settings_read(ctx, &settings), CALM_EARG);
    ck_assert_ptr_null(strstr(ctx->message, "secret"));
    calm_ctx_clear_failure(ctx);
}
END_OF_TEST

TEST(certificates)
{
    clean_environment();
    ck_assert_ptr_null(read_them().ca_file);
    setenv("REQUESTS_CA_BUNDLE", "/b.pem", 1);
    ck_assert_str_eq(read_them().ca_file, "/b.pem");
    setenv("SSL_CERT_FILE", "/a.pem", 1);
    ck_assert_str_eq(read_them().ca_file, "/a.pem");
}
END_OF_TEST

TEST(offline_and_times)
{
    calm_hub_settings settings;
    clean_environment();
    ck_assert(!read_them().offline);
    setenv("TRANSFORMERS_OFFLINE", "yes", 1);
    ck_assert(read_them().offline);
    setenv("HF_HUB_OFFLINE", "0", 1);    /* the other variable counts if this one is unset */
    ck_assert(!read_them().offline);
    setenv("HF_HUB_OFFLINE", "True", 1);
    ck_assert(read_them().offline);
    setenv("HF_HUB_OFFLINE", "11", 1);
    ck_assert(!read_them().offline);
    setenv("HF_HUB_OFFLINE", "on", 1);
    ck_assert(read_them().offline);
    setenv("HF_HUB_DOWNLOAD_TIMEOUT", "7", 1);
    ck_assert_int_eq(read_them().stall_seconds, 7);
    setenv("HF_HUB_DOWNLOAD_TIMEOUT", "0", 1);
    ck_fails(calm_hub_settings_read(ctx, &settings), CALM_EARG, "HF_HUB_DOWNLOAD_TIMEOUT");
    setenv("HF_HUB_DOWNLOAD_TIMEOUT", "7s", 1);
    ck_fails(calm_hub_settings_read(ctx, &settings), CALM_EARG, "HF_HUB_DOWNLOAD_TIMEOUT");
}
END_OF_TEST

int main(void)
{
    return run_tests("settings",
                     (const TTest *[]){the_cache_is_where_the_library_has_it,
                                       the_token_comes_from_the_environment_or_its_file,
                                       a_token_that_would_be_two_headers_is_refused_unseen, the_endpoint_is_an_address,
                                       certificates, offline_and_times, NULL});
}
