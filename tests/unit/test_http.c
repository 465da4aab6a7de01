/* HTTP: which requests have the token, redirects, and the ways in which a request can end. */
#include "ptq/hub/http.h"

#include "tests/support/harness.h"
#include "tests/support/hub_server.h"

#define SECRET "hf_SecretOfTheTest"
#define LISTING "/api/models/test/tiny/revision/main"

static const char bytes[] = "0123456789";

/* A hub with a small file and one behind a redirect, and a client with a token. */
typedef struct play {
    hub_server hub;
    calm_hub_settings settings;
    calm_http *http;
    calm_http_reply reply;
    char body[4096];
    size_t n_body;
    bool refuses;    /* the receiver of bytes fails */
} play;

static play *begin(void)
{
    static play p;
    memset(&p, 0, sizeof p);
    p.hub.repo = "test/tiny";
    hub_add(&p.hub, "small", bytes, 10, false);
    hub_add(&p.hub, "large", bytes, 10, true);
    return &p;
}

static void open_it(play *p)
{
    hub_start(&p->hub);
    p->settings = hub_settings(&p->hub, "/nonexistent");
    p->settings.token = SECRET;
    ck_ok(calm_http_open(ctx, &p->settings, &p->http));
}

static void end(play *p)
{
    calm_http_close(p->http);
    hub_stop(&p->hub);
}

static calm_status keep(calm_ctx *c, void *user, const calm_http_reply *reply, const void *piece, size_t n)
{
    play *p = user;
    ck_assert(reply->code == 200 || reply->code == 206);
    if (p->refuses)
        return calm_fail(c, CALM_ENOSPC, "no room");
    ck_assert_uint_le(p->n_body + n, sizeof p->body);
    memcpy(p->body + p->n_body, piece, n);
    p->n_body += n;
    return CALM_OK;
}

static calm_status ask(play *p, const char *path, bool head, uint64_t from)
{
    const calm_http_request request = {.url = test_format("%s%s", p->hub.endpoint, path),
                                       .head = head,
                                       .from = from,
                                       .sink = keep,
                                       .user = p};
    p->n_body = 0;
    return calm_http_ask(ctx, p->http, &request, &p->reply);
}

static const char *file_path(const char *name)
{
    return test_format("/test/tiny/resolve/" HUB_COMMIT "/%s", name);
}

TEST(the_token_stays_with_the_endpoint)
{
    play *p = begin();
    open_it(p);
    ck_ok(ask(p, file_path("large"), false, 4));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_ANSWERED);
    ck_assert_int_eq(p->reply.code, 206);
    ck_assert(p->reply.foreign);
    ck_assert_int_eq(p->reply.range_begin, 4);
    ck_assert_int_eq(p->reply.range_of, 10);
    ck_assert_int_eq(p->reply.length, 6);
    ck_assert_uint_eq(p->n_body, 6);
    ck_assert_mem_eq(p->body, "456789", 6);
    ck_assert_uint_eq(p->hub.n_requests, 2);
    const hub_request *first = &p->hub.requests[0], *second = &p->hub.requests[1];
    ck_assert(!first->storage);
    ck_assert_str_eq(first->authorization, "Bearer " SECRET);
    ck_assert(second->storage);    /* the same host, another port */
    ck_assert_str_eq(second->authorization, "");
    ck_assert_str_eq(second->range, "bytes=4-");
    ck_assert_str_eq(p->reply.etag, p->hub.files[1].sha256);    /* as the endpoint says, not the storage host */
    ck_assert_str_eq(p->reply.commit, HUB_COMMIT);
    ck_assert_int_eq(p->reply.linked_bytes, 10);
    end(p);
}
END_OF_TEST

TEST(redirects_within_the_endpoint_keep_the_token)
{
    play *p = begin();
    p->hub.listing_location = LISTING;    /* as for a renamed repository */
    open_it(p);
    ck_ok(ask(p, "/api/models/test/old/revision/main", false, 0));
    ck_assert_int_eq(p->reply.code, 200);
    ck_assert(!p->reply.foreign);
    ck_assert_uint_eq(p->hub.n_requests, 2);
    ck_assert_str_eq(p->hub.requests[1].path, LISTING);
    ck_assert_str_eq(p->hub.requests[1].authorization, "Bearer " SECRET);
    end(p);
}
END_OF_TEST

TEST(back_from_another_host_the_token_is_there_again)
{
    play *p = begin();
    open_it(p);
    /* The endpoint under another name is another host and gets no token, although it is the same machine. */
    const char *port = strrchr(p->hub.endpoint, ':');
    p->hub.files[0].location = test_format("http://localhost%s%s", port, LISTING);
    ck_ok(ask(p, file_path("small"), false, 0));
    ck_assert_int_eq(p->reply.code, 200);
    ck_assert(p->reply.foreign);
    ck_assert_uint_eq(p->hub.n_requests, 2);
    ck_assert_str_eq(p->hub.requests[1].authorization, "");
    end(p);
}
END_OF_TEST

TEST(a_head_request_does_not_leave_the_endpoint)
{
    play *p = begin();
    open_it(p);
    ck_ok(ask(p, file_path("large"), true, 0));
    ck_assert_int_eq(p->reply.code, 302);
    ck_assert_str_eq(p->reply.etag, p->hub.files[1].sha256);
    ck_assert_int_eq(p->reply.linked_bytes, 10);
    ck_assert_uint_eq(p->hub.n_requests, 1);
    ck_ok(ask(p, file_path("small"), true, 0));
    ck_assert_int_eq(p->reply.code, 200);
    ck_assert_str_eq(p->reply.etag, p->hub.files[0].sha1);    /* without W/ and quotes */
    ck_assert_int_eq(p->reply.linked_bytes, -1);
    ck_assert_int_eq(p->reply.length, 10);
    end(p);
}
END_OF_TEST

TEST(from_https_nothing_leads_to_http)
{
    play *p = begin();
    open_it(p);
    calm_http_close(p->http);
    p->settings.endpoint = "https://hub.invalid";
    ck_ok(calm_http_open(ctx, &p->settings, &p->http));
    ck_ok(ask(p, file_path("large"), false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_MISLED);
    ck_assert_str_eq(p->reply.detail, p->hub.storage);    /* without the signature */
    ck_assert_uint_eq(p->hub.n_requests, 1);
    ck_assert_str_eq(p->hub.requests[0].authorization, "");    /* not the endpoint */
    end(p);
}
END_OF_TEST

TEST(redirects_that_lead_nowhere)
{
    static const char *const places[] = {"file:///etc/passwd", "ftp://127.0.0.1/x", "http://", "gopher://a/b"};
    play *p = begin();
    open_it(p);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        p->hub.files[0].location = places[i];
        ck_ok(ask(p, file_path("small"), false, 0));
        ck_assert_msg(p->reply.end == CALM_HTTP_MISLED, "%s: end %d", places[i], (int)p->reply.end);
        ck_assert_uint_eq(p->n_body, 0);
    }
    p->hub.loops = true;
    ck_ok(ask(p, file_path("small"), false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_MISLED);
    ck_assert_ptr_nonnull(strstr(p->reply.detail, "redirects"));
    end(p);
}
END_OF_TEST

TEST(errors_have_words_and_no_body)
{
    play *p = begin();
    p->hub.status = 403;
    p->hub.error = "GatedRepo";
    p->hub.message = "Access to model is restricted";
    open_it(p);
    ck_ok(ask(p, LISTING, false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_ANSWERED);
    ck_assert_int_eq(p->reply.code, 403);
    ck_assert_str_eq(p->reply.error_code, "GatedRepo");
    ck_assert_str_eq(p->reply.error_message, "Access to model is restricted");
    ck_assert_uint_eq(p->n_body, 0);
    end(p);
}
END_OF_TEST

TEST(a_connection_that_ends_in_the_middle)
{
    play *p = begin();
    p->hub.files[0].cut_at = 4;
    p->hub.files[0].n_cuts = 1;
    open_it(p);
    ck_ok(ask(p, file_path("small"), false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_CUT);
    ck_assert_uint_eq(p->n_body, 4);
    ck_assert_uint_gt(strlen(p->reply.detail), 0);
    ck_ok(ask(p, file_path("small"), false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_ANSWERED);
    ck_assert_uint_eq(p->n_body, 10);
    end(p);
}
END_OF_TEST

TEST(a_body_that_stalls)
{
    play *p = begin();
    p->hub.files[0].cut_at = 4;
    p->hub.files[0].stalls = true;
    open_it(p);
    ck_ok(ask(p, file_path("small"), false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_STALLED);
    ck_assert_uint_eq(p->n_body, 4);
    end(p);
}
END_OF_TEST

TEST(a_sink_that_fails_ends_the_request)
{
    play *p = begin();
    p->refuses = true;
    open_it(p);
    ck_fails(ask(p, file_path("small"), false, 0), CALM_ENOSPC, "no room");
    ck_assert_int_eq(p->reply.end, CALM_HTTP_STOPPED);
    end(p);
}
END_OF_TEST

TEST(a_host_that_went_away)
{
    play *p = begin();
    open_it(p);
    ck_ok(ask(p, LISTING, false, 0));
    ck_assert(p->reply.met);
    hub_stop(&p->hub);
    ck_ok(ask(p, LISTING, false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_UNREACHABLE);
    ck_assert(p->reply.met);    /* it may be found again */
    calm_http_close(p->http);
}
END_OF_TEST

TEST(nobody_answers)
{
    play *p = begin();
    open_it(p);
    hub_stop(&p->hub);
    ck_ok(ask(p, LISTING, false, 0));
    ck_assert_int_eq(p->reply.end, CALM_HTTP_UNREACHABLE);
    ck_assert(!p->reply.met);
    calm_http_close(p->http);
    p->settings.endpoint = "http://[::1";
    ck_fails(calm_http_open(ctx, &p->settings, &p->http), CALM_EARG, "HF_ENDPOINT");
    calm_http_close(p->http);
    p->http = NULL;
    calm_http_close(p->http);
}
END_OF_TEST

int main(void)
{
    return run_tests("http",
                     (const TTest *[]){the_token_stays_with_the_endpoint, redirects_within_the_endpoint_keep_the_token,
                                       back_from_another_host_the_token_is_there_again,
                                       a_head_request_does_not_leave_the_endpoint, from_https_nothing_leads_to_http,
                                       redirects_that_lead_nowhere, errors_have_words_and_no_body,
                                       a_connection_that_ends_in_the_middle, a_body_that_stalls,
                                       a_sink_that_fails_ends_the_request, a_host_that_went_away,
                                       nobody_answers, NULL});
}
