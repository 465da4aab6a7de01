/* Messages about refusals and network failures. */
#include "ptq/hub/refused.h"

#include <string.h>

bool calm_hub_is_temporary(const calm_http_reply *reply)
{
    const long code = reply->code;
    /* If no host has ever answered, there is no network, and another attempt would not help. */
    if (reply->end == CALM_HTTP_UNREACHABLE)
        return reply->met;
    if (reply->end != CALM_HTTP_ANSWERED)
        return reply->end == CALM_HTTP_STALLED || reply->end == CALM_HTTP_CUT;
    return code == 408 || code == 425 || code == 429 || code == 500 || code == 502 || code == 503 || code == 504;
}

/* Fails because no complete answer came. */
static calm_status no_answer(calm_ctx *ctx, const calm_hub_settings *s, const char *what, const calm_http_reply *reply)
{
    switch (reply->end) {
    case CALM_HTTP_UNREACHABLE:
        return calm_fail(ctx, CALM_EIO, "%s: no connection to %s (%s); check the network, a proxy (https_proxy) and "
                         "HF_ENDPOINT%s", what, s->endpoint, reply->detail,
                         s->pushes ? ", and run the same command again"
                                   : ". HF_HUB_OFFLINE=1 uses what is in the cache");
    case CALM_HTTP_UNTRUSTED:
        return calm_fail(ctx, CALM_EIO,
                         "%s: no safe connection to %s (%s); install ca-certificates, check the clock, and ask who "
                         "runs the network about a proxy that opens TLS (SSL_CERT_FILE names its certificate)", what,
                         s->endpoint, reply->detail);
    case CALM_HTTP_STALLED:
        return calm_fail(ctx, CALM_EIO,
                         "%s: nothing came for %ld s; run the same command again, it continues where it stopped "
                         "(HF_HUB_DOWNLOAD_TIMEOUT sets the seconds)", what, s->stall_seconds);
    case CALM_HTTP_MISLED:
        return calm_fail(ctx, CALM_EIO, "%s: redirected to where calm does not follow (%s); check HF_ENDPOINT", what,
                         reply->detail);
    default:
        return calm_fail(ctx, CALM_EIO,
                         "%s: the connection broke off (%s); run the same command again, it continues where it stopped",
                         what, reply->detail);
    }
}

static calm_status gated(calm_ctx *ctx, const calm_hub_settings *s, const calm_hub_name *name)
{
    if (s->token)
        return calm_fail(ctx, CALM_EIO,
                         "%s is gated, and the account of the token from %s has no access: accept its conditions at "
                         "%s/%s in a browser, wait until access is granted, and give the token the right to read gated "
                         "repositories", name->repo, s->token_source, s->endpoint, name->repo);
    return calm_fail(ctx, CALM_EIO,
                     "%s is gated: accept its conditions at %s/%s in a browser, make a token at %s/settings/tokens and "
                     "set HF_TOKEN to it", name->repo, s->endpoint, name->repo, s->endpoint);
}

static calm_status no_repository(calm_ctx *ctx, const calm_hub_settings *s, const calm_hub_name *name)
{
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "%s: no such repository at %s, or a private one that %s may not see; check the spelling%s",
                     name->repo, s->endpoint, s->token ? "this token" : "nobody without a token",
                     s->token ? "" : ", and set HF_TOKEN for a private one");
}

/* Fails because the endpoint answered with an error. */
static calm_status error_code(calm_ctx *ctx, const calm_hub_settings *s, const calm_hub_name *name, const char *what,
                              const calm_http_reply *reply)
{
    const bool bad_token = strncmp(reply->error_message, "Invalid credentials", 19) == 0 ||
                           strncmp(reply->error_message, "Invalid username or password", 28) == 0;
    if (strcmp(reply->error_code, "GatedRepo") == 0)
        return gated(ctx, s, name);
    if (strcmp(reply->error_code, "RevisionNotFound") == 0)
        return calm_fail(ctx, CALM_ENOTFOUND,
                         "%s: the repository has no revision \"%s\"; %s/%s/commits shows branches and commits",
                         name->repo, name->revision, s->endpoint, name->repo);
    if (strcmp(reply->error_code, "EntryNotFound") == 0)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: the repository lists this file but has it not; try again later",
                         what);
    if (strncmp(reply->error_message, "Access to this resource is disabled", 35) == 0)
        return calm_fail(ctx, CALM_EIO, "%s: the hub has disabled access to this repository", name->repo);
    if (reply->code == 401 && s->token && (bad_token || strcmp(reply->error_code, "RepoNotFound") != 0))
        return calm_fail(ctx, CALM_EIO,
                         "%s: the hub refused the token from %s (401): it is mistyped, expired or revoked; make a new "
                         "one at %s/settings/tokens, or unset it for a public repository", name->repo, s->token_source,
                         s->endpoint);
    if (strcmp(reply->error_code, "RepoNotFound") == 0 || reply->code == 401 || reply->code == 404)
        return no_repository(ctx, s, name);
    if (reply->code == 403)
        return calm_fail(ctx, CALM_EIO, "%s: the hub forbids it (403)%s%s%s", what,
                         s->token ? "; has the token from " : "; set HF_TOKEN", s->token ? s->token_source : "",
                         s->token ? " the right to read this repository?" : "");
    if (reply->code == 429)
        return calm_fail(ctx, CALM_EIO, "%s: the hub has had too many requests from here (429); wait some minutes%s",
                         what, s->token ? "" : ", or set HF_TOKEN for a higher limit");
    return calm_fail(ctx, CALM_EIO, "%s: %s answered %ld%s%s; try again later, and check HF_ENDPOINT", what,
                     s->endpoint, reply->code, reply->error_message[0] ? ": " : "", reply->error_message);
}

calm_status calm_hub_refused(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                             const char *what, const calm_http_reply *reply)
{
    if (reply->end != CALM_HTTP_ANSWERED)
        return no_answer(ctx, settings, what, reply);
    if (reply->foreign)
        return calm_fail(ctx, CALM_EIO, "%s: the hub's storage host answered %ld; try again later", what, reply->code);
    return error_code(ctx, settings, name, what, reply);
}
