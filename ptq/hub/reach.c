/* Sends one request without a body and accepts any answer. */
#include "ptq/hub/reach.h"

#include "ptq/hub/http.h"

calm_status calm_hub_reach(calm_ctx *ctx, const calm_hub_settings *settings, long seconds, const char **why)
{
    static const char *const words[] = {
        [CALM_HTTP_UNREACHABLE] = "no connection", [CALM_HTTP_UNTRUSTED] = "no safe connection",
        [CALM_HTTP_STALLED] = "nothing came", [CALM_HTTP_CUT] = "the connection broke off",
        [CALM_HTTP_MISLED] = "redirected to where calm does not follow"};
    calm_hub_settings brief = *settings;
    calm_http *http = NULL;
    calm_http_reply reply;
    char *text;
    brief.connect_seconds = brief.stall_seconds = seconds;
    brief.token = NULL;    /* the request needs no token */
    calm_status status = calm_http_open(ctx, &brief, &http);
    if (status == CALM_OK)
        status = calm_http_ask(ctx, http, &(calm_http_request){.url = brief.endpoint, .head = true}, &reply);
    calm_http_close(http);
    CALM_TRY(status);
    *why = NULL;
    if (reply.end == CALM_HTTP_ANSWERED)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s (%s)", words[reply.end], reply.detail));
    *why = text;
    return CALM_OK;
}
