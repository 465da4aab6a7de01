/* Requests with a body, and messages about their refusals. */
#include <string.h>

#include "ptq/hub/push_impl.h"
#include "ptq/hub/refused.h"

#define ANSWER_MAX ((size_t)16 << 20)

typedef struct collector {
    const char *what;
    calm_text text;
} collector;

static void clear_collector(collector *c)
{
    calm_text_clear(&c->text);
}

static calm_status collect(calm_ctx *ctx, void *user, const calm_http_reply *reply, const void *bytes, size_t n_bytes)
{
    collector *c = user;
    (void)reply;
    if (n_bytes > ANSWER_MAX - c->text.length)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the hub's answer is larger than %zu MiB; check HF_ENDPOINT", c->what,
                         ANSWER_MAX >> 20);
    calm_text_append(&c->text, bytes, n_bytes);
    return calm_text_check(ctx, &c->text);
}

/* Returns the hub's own error message, or "". */
static const char *words_of(const calm_json *answer, const calm_http_reply *reply)
{
    const char *said = calm_json_string(calm_json_get(answer, "error"), NULL);
    return said ? said : reply->error_message;
}

/* Fails with the message of a refused write; other refusals have the messages of reading. */
static calm_status refuse(calm_ctx *ctx, const calm_hub_session *s, const calm_push_call *call,
                          const calm_http_reply *reply)
{
    const calm_hub_settings *settings = s->settings;
    const char *words = words_of(call->answer, reply);
    if (reply->end != CALM_HTTP_ANSWERED || reply->foreign)
        return calm_hub_refused(ctx, settings, s->name, call->what, reply);
    if (strcmp(reply->error_code, "GatedRepo") == 0)
        return calm_fail(ctx, CALM_EARG, "%s is gated, and the account of the token from %s has no access to it (%ld): "
                         "ask its owner, or push to a repository of your own", s->name->repo, settings->token_source,
                         reply->code);
    if (reply->code == 401)
        return calm_fail(ctx, CALM_EARG, "%s: the hub refused the token from %s (401): it is mistyped, expired or "
                         "revoked; make one with the right to write at %s/settings/tokens", s->name->repo,
                         settings->token_source, settings->endpoint);
    if (reply->code == 403)
        return calm_fail(ctx, CALM_EARG, "%s: the token from %s may not write there (403%s%.120s): make one with the "
                         "right to write at %s/settings/tokens, or push under your own name", s->name->repo,
                         settings->token_source, words[0] ? ": " : "", words, settings->endpoint);
    if (reply->code == 400 || reply->code == 409 || reply->code == 413 || reply->code == 422)
        return calm_fail(ctx, CALM_EIO, "%s: the hub refused it (%ld%s%.200s)", call->what, reply->code,
                         words[0] ? ": " : "", words);
    return calm_hub_refused(ctx, settings, s->name, call->what, reply);
}

calm_status calm_push_post(calm_ctx *ctx, const calm_hub_session *s, calm_push_call *call)
{
    CALM_SCOPED(collector, clear_collector) c = {.what = call->what};
    const calm_http_request request = {.url = call->url, .method = "POST", .type = call->type, .bytes = call->body,
                                       .n_bytes = call->n_body, .sink = collect, .user = &c};
    calm_http_reply reply;
    int attempt = 0;
    bool done;
    call->answer = NULL;
    do {
        calm_text_clear(&c.text);
        CALM_TRY(calm_http_ask(ctx, s->http, &request, &reply));
        done = reply.end == CALM_HTTP_ANSWERED &&
               (reply.code / 100 == 2 || (call->also && reply.code == call->also));
    } while (!done && calm_hub_retry(ctx, s, call->what, &reply, &attempt));
    call->code = reply.code;
    /* An answer that is not JSON has only its status. */
    if (c.text.length && calm_json_parse(ctx, call->what, c.text.data, c.text.length, &call->answer) == CALM_EFORMAT)
        calm_ctx_clear_failure(ctx);
    CALM_TRY(ctx->status);
    return done ? CALM_OK : refuse(ctx, s, call, &reply);
}

calm_status calm_push_post_json(calm_ctx *ctx, const calm_hub_session *s, calm_json *body, calm_push_call *call)
{
    CALM_SCOPED_TEXT(text);
    calm_status status = calm_json_write(ctx, body, 0, &text);
    calm_json_free(body);
    call->answer = NULL;
    CALM_TRY(status);
    call->body = text.data;
    call->n_body = text.length;
    if (!call->type)
        call->type = "application/json";
    status = calm_push_post(ctx, s, call);
    call->body = NULL;
    return status;
}
