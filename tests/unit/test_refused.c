/* Each refusal of the hub has its own sentence, which says what to do and never contains the token. */
#include "ptq/hub/refused.h"

#include <stdio.h>

#include "tests/support/harness.h"

#define SECRET "hf_SecretOfTheTest"

static calm_hub_settings settings;
static bool pushes;    /* the next words are about uploads */
static calm_hub_name name;

/* Returns the sentence for a reply. */
static const char *words(const calm_http_reply *reply, const char *token, calm_status expected)
{
    settings = (calm_hub_settings){.endpoint = "https://hub.test",
                                   .token = token,
                                   .token_source = token ? "HF_TOKEN" : NULL,
                                   .stall_seconds = 30,
                                   .pushes = pushes};
    ck_ok(calm_hub_name_parse(ctx, "Org/name@v1", &name));
    const calm_status status = calm_hub_refused(ctx, &settings, &name, "Org/name: config.json", reply);
    const char *copy = test_format("%s", ctx->message);
    ck_assert_msg(status == expected, "%s: %s", calm_status_name(status), copy);
    ck_assert_ptr_null(strstr(copy, SECRET));
    ck_assert_ptr_nonnull(strstr(copy, "Org/name"));
    calm_ctx_clear_failure(ctx);
    return copy;
}

static const char *answer(long code, const char *error, const char *message, const char *token, calm_status expected)
{
    calm_http_reply reply = {.end = CALM_HTTP_ANSWERED, .code = code};
    snprintf(reply.error_code, sizeof reply.error_code, "%s", error);
    snprintf(reply.error_message, sizeof reply.error_message, "%s", message);
    return words(&reply, token, expected);
}

#define ck_has(text, part) ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" lacks \"%s\"", (text), (part))

TEST(answers_of_the_hub)
{
    const char *text = answer(401, "", "Invalid credentials in Authorization header", SECRET, CALM_EIO);
    ck_has(text, "refused the token from HF_TOKEN");
    ck_has(text, "https://hub.test/settings/tokens");
    ck_has(answer(401, "", "", SECRET, CALM_EIO), "refused the token");
    ck_has(answer(401, "RepoNotFound", "Invalid username or password.", SECRET, CALM_EIO), "refused the token");
    text = answer(401, "RepoNotFound", "", NULL, CALM_ENOTFOUND);    /* the hub's answer without a token */
    ck_has(text, "no such repository");
    ck_has(text, "set HF_TOKEN");
    ck_has(answer(404, "RepoNotFound", "", SECRET, CALM_ENOTFOUND), "this token may not see");
    ck_has(answer(404, "", "", NULL, CALM_ENOTFOUND), "no such repository");
    ck_has(answer(404, "RevisionNotFound", "", NULL, CALM_ENOTFOUND), "no revision \"v1\"");
    ck_has(answer(404, "EntryNotFound", "", NULL, CALM_ENOTFOUND), "Org/name: config.json: the repository lists");
    text = answer(401, "GatedRepo", "", NULL, CALM_EIO);
    ck_has(text, "accept its conditions at https://hub.test/Org/name");
    ck_has(text, "set HF_TOKEN to it");
    ck_has(answer(403, "GatedRepo", "", SECRET, CALM_EIO), "the account of the token from HF_TOKEN has no access");
    ck_has(answer(403, "", "", SECRET, CALM_EIO), "has the token from HF_TOKEN the right");
    ck_has(answer(403, "", "", NULL, CALM_EIO), "set HF_TOKEN");
    ck_has(answer(403, "", "Access to this resource is disabled.", NULL, CALM_EIO), "disabled");
    ck_has(answer(429, "", "", NULL, CALM_EIO), "too many requests");
    ck_has(answer(500, "", "Internal", NULL, CALM_EIO), "answered 500: Internal");
}
END_OF_TEST

TEST(no_answer)
{
    static const struct {
        calm_http_end end;
        const char *says;
    } cases[] = {{CALM_HTTP_UNREACHABLE, "no connection to https://hub.test (why)"},
                 {CALM_HTTP_UNTRUSTED, "no safe connection"},
                 {CALM_HTTP_STALLED, "nothing came for 30 s"},
                 {CALM_HTTP_CUT, "broke off (why)"},
                 {CALM_HTTP_MISLED, "redirected to where calm does not follow (why)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const calm_http_reply reply = {.end = cases[i].end, .detail = "why"};
        ck_has(words(&reply, SECRET, CALM_EIO), cases[i].says);
    }
    /* The cache replaces a download, but not an upload. */
    const calm_http_reply unreachable = {.end = CALM_HTTP_UNREACHABLE, .detail = "why"};
    ck_has(words(&unreachable, NULL, CALM_EIO), "HF_HUB_OFFLINE=1 uses what is in the cache");
    pushes = true;
    ck_has(words(&unreachable, NULL, CALM_EIO), "HF_ENDPOINT, and run the same command again");
    ck_assert_ptr_null(strstr(words(&unreachable, NULL, CALM_EIO), "OFFLINE"));
    pushes = false;
    const calm_http_reply storage = {.end = CALM_HTTP_ANSWERED, .code = 403, .foreign = true};
    ck_has(words(&storage, NULL, CALM_EIO), "storage host answered 403");
}
END_OF_TEST

TEST(what_may_pass)
{
    static const long passing[] = {408, 425, 429, 500, 502, 503, 504};
    static const long lasting[] = {200, 302, 400, 401, 403, 404, 416, 501};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        ck_assert(calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_ANSWERED, .code = passing[i]}));
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        ck_assert(!calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_ANSWERED, .code = lasting[i]}));
    ck_assert(calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_CUT}));
    ck_assert(calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_STALLED}));
    ck_assert(calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_UNREACHABLE, .met = true}));
    ck_assert(!calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_UNREACHABLE}));    /* no network at all */
    ck_assert(!calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_MISLED}));
    ck_assert(!calm_hub_is_temporary(&(calm_http_reply){.end = CALM_HTTP_UNTRUSTED}));
}
END_OF_TEST

int main(void)
{
    return run_tests("refused", (const TTest *[]){answers_of_the_hub, no_answer, what_may_pass, NULL});
}
