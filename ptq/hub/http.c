/* HTTP through libcurl. */
#include "ptq/hub/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOPS_MAX 10
#define IGNORED_MAX ((size_t)1 << 20)    /* bytes to read of a body that is ignored */
#define STALL_BYTES 64                   /* bytes per second; a slower transfer counts as stalled */

struct calm_http {
    const calm_hub_settings *settings;
    CURL *curl;
    char *origin;           /* scheme://host:port of the endpoint */
    char *authorization;    /* header line; NULL without a token */
    char error[CURL_ERROR_SIZE];
    bool met;               /* a host has answered */
};

/* One request of a chain of redirects. */
typedef struct hop {
    calm_ctx *ctx;
    CURL *curl;
    const calm_http_request *request;
    calm_http_reply *reply;
    bool trusted;           /* the endpoint itself answers, so headers about the repository are valid */
    bool linked;            /* X-Linked-Etag was set, so the redirect's own etag does not count */
    size_t n_ignored;
    size_t n_sent;          /* sent bytes of the request's body */
} hop;

/* Returns "scheme://host:port" in lower case, with the default port; freed by the caller.  NULL: not a URL. */
static char *origin_of(const char *url)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *out = NULL;
    CURLU *parsed = curl_url();
    if (parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        if (asprintf(&out, "%s://%s:%s", scheme, host, port) < 0)
            out = NULL;    /* undefined after a failure */
        for (char *c = out; c && *c; c++)
            *c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(parsed);
    return out;
}

calm_status calm_http_open(calm_ctx *ctx, const calm_hub_settings *settings, calm_http **out)
{
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return calm_fail(ctx, CALM_ENOMEM, "libcurl cannot start");
    calm_http *http = calloc(1, sizeof *http);
    if (!http) {
        curl_global_cleanup();
        return calm_fail(ctx, CALM_ENOMEM, "libcurl: out of memory");
    }
    http->settings = settings;
    http->curl = curl_easy_init();
    http->origin = origin_of(settings->endpoint);
    if (settings->token && asprintf(&http->authorization, "Authorization: Bearer %s", settings->token) < 0)
        http->authorization = NULL;
    *out = http;
    if (http->curl && !http->origin)
        return calm_fail(ctx, CALM_EARG, "HF_ENDPOINT: \"%s\" is no address", settings->endpoint);
    if (!http->curl || (settings->token && !http->authorization))
        return calm_fail(ctx, CALM_ENOMEM, "libcurl: out of memory");
    return CALM_OK;
}

void calm_http_close(calm_http *http)
{
    if (!http)
        return;
    if (http->curl)
        curl_easy_cleanup(http->curl);
    free(http->origin);
    free(http->authorization);
    free(http);
    curl_global_cleanup();
}

/* ---- headers ---- */

/* Copies a header's value, cut to `size`, with control characters replaced. */
static void copy_value(char *out, size_t size, const char *value, size_t n)
{
    snprintf(out, size, "%.*s", (int)n, value);
    for (char *c = out; *c; c++)    /* messages may contain it */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
}

/* Parses a count >= 0; -1: it is not one. */
static int64_t parse_count(const char *text)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    return end == text || *end || errno || value < 0 ? -1 : value;
}

/* Copies an etag, abc for W/"abc" and "abc"; "" for an etag that cannot be the name of a file. */
static void set_etag(char out[CALM_HUB_ETAG], const char *text)
{
    const char *from = text + (strncmp(text, "W/", 2) == 0 ? 2 : 0);
    from += strspn(from, "\"");
    snprintf(out, CALM_HUB_ETAG, "%.*s", (int)strcspn(from, "\""), from);
    if (!calm_hub_is_etag(out))
        out[0] = '\0';
}

static void parse_range(calm_http_reply *reply, const char *text)
{
    long long begin, end, total;
    if (sscanf(text, "bytes %lld-%lld/%lld", &begin, &end, &total) == 3 && begin >= 0 && end >= begin && total > end) {
        reply->range_begin = begin;
        reply->range_of = total;
    }
}

/* Reads the endpoint's headers about the repository. */
static void take_hub_header(hop *h, const char *name, const char *value)
{
    calm_http_reply *reply = h->reply;
    if (strcasecmp(name, "x-error-code") == 0)
        snprintf(reply->error_code, sizeof reply->error_code, "%.60s", value);
    else if (strcasecmp(name, "x-error-message") == 0)
        snprintf(reply->error_message, sizeof reply->error_message, "%.120s", value);
    else if (strcasecmp(name, "x-repo-commit") == 0)
        snprintf(reply->commit, sizeof reply->commit, "%.60s", value);
    else if (strcasecmp(name, "x-linked-size") == 0)
        reply->linked_bytes = parse_count(value);
    else if (strcasecmp(name, "x-linked-etag") == 0) {
        set_etag(reply->etag, value);
        h->linked = true;
    } else if (strcasecmp(name, "etag") == 0 && !h->linked)
        set_etag(reply->etag, value);
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    hop *h = user;
    char name[64], value[512];
    const size_t length = size * n;
    if (length >= 5 && strncmp(line, "HTTP/", 5) == 0) {    /* a new head, as after "100 Continue" */
        h->reply->length = h->reply->range_begin = h->reply->range_of = -1;
        return length;
    }
    const char *colon = memchr(line, ':', length);    /* the line has no NUL at its end */
    if (!colon || colon - line >= (ptrdiff_t)sizeof name)
        return length;
    const char *begin = colon + 1, *end = line + length;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    copy_value(name, sizeof name, line, (size_t)(colon - line));
    copy_value(value, sizeof value, begin, (size_t)(end - begin));
    if (strcasecmp(name, "etag") == 0)
        snprintf(h->reply->stored, sizeof h->reply->stored, "%.130s", value);
    if (strcasecmp(name, "content-length") == 0)
        h->reply->length = parse_count(value);
    else if (strcasecmp(name, "content-range") == 0)
        parse_range(h->reply, value);
    else if (h->trusted)
        take_hub_header(h, name, value);
    return length;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    hop *h = user;
    const size_t n_bytes = size * n;
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &h->reply->code);
    const bool wanted = h->reply->code == 200 || h->reply->code == 206 || h->request->method;
    if (h->request->sink && wanted)
        return h->request->sink(h->ctx, h->request->user, h->reply, bytes, n_bytes) == CALM_OK ? n_bytes : 0;
    h->n_ignored += n_bytes;
    return h->n_ignored > IGNORED_MAX ? 0 : n_bytes;    /* returning less than n_bytes stops curl */
}

/* ---- a body ---- */

static size_t on_read(char *out, size_t size, size_t n, void *user)
{
    hop *h = user;
    const size_t left = h->request->n_bytes - h->n_sent, taken = size * n < left ? size * n : left;
    memcpy(out, (const char *)h->request->bytes + h->n_sent, taken);
    h->n_sent += taken;
    return taken;
}

/* Lets curl send a body again if a kept connection had ended. */
static int on_seek(void *user, curl_off_t offset, int origin)
{
    hop *h = user;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > h->request->n_bytes)
        return CURL_SEEKFUNC_CANTSEEK;
    h->n_sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void set_up_body(CURL *curl, hop *h)
{
    const calm_http_request *request = h->request;
    const bool post = strcmp(request->method, "POST") == 0;
    h->n_sent = 0;
    curl_easy_setopt(curl, post ? CURLOPT_POST : CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, post ? CURLOPT_POSTFIELDSIZE_LARGE : CURLOPT_INFILESIZE_LARGE,
                     (curl_off_t)request->n_bytes);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(curl, CURLOPT_READDATA, h);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, h);
}

/* ---- one hop ---- */

static calm_http_end end_of(CURL *curl, CURLcode code)
{
    double connected = 0;
    switch (code) {
    case CURLE_OK: return CALM_HTTP_ANSWERED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return CALM_HTTP_UNREACHABLE;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR: return CALM_HTTP_UNTRUSTED;
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(curl, CURLINFO_CONNECT_TIME, &connected);
        return connected > 0 ? CALM_HTTP_STALLED : CALM_HTTP_UNREACHABLE;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return CALM_HTTP_MISLED;
    default: return CALM_HTTP_CUT;
    }
}

static void set_up(calm_http *http, hop *h, const char *url, struct curl_slist *headers)
{
    CURL *curl = http->curl;
    const calm_http_request *request = h->request;
    curl_easy_reset(curl);    /* connections stay */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 0L);    /* curl blocks SIGPIPE, which TLS could raise */
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "calm/" CALM_VERSION);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, http->settings->connect_seconds);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, http->settings->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->error);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, h);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, h);
    if (http->settings->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, http->settings->ca_file);
    if (request->head)
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    if (request->method)
        set_up_body(curl, h);
}

/* Makes the request's headers: the token only for the endpoint; Range as a header, because curl's option would fail if
 * a server ignores ranges. */
static calm_status make_headers(calm_ctx *ctx, const calm_http *http, const hop *h, struct curl_slist **out)
{
    char range[64], line[128];
    const char *type = h->request->method ? h->request->type : NULL;
    snprintf(line, sizeof line, "Accept: %.100s", type && strstr(type, "lfs") ? type : "*/*");
    struct curl_slist *list = curl_slist_append(NULL, line), *next = list;
    if (next && h->trusted && http->authorization)
        next = curl_slist_append(list, http->authorization);
    if (next && h->request->from) {
        snprintf(range, sizeof range, "Range: bytes=%llu-", (unsigned long long)h->request->from);
        next = curl_slist_append(list, range);
    }
    /* An empty value removes curl's own header, with which curl would ask before it sends, and wait for an answer. */
    if (next && h->request->method)
        next = curl_slist_append(list, "Expect:");
    snprintf(line, sizeof line, "Content-Type:%s%.100s", type ? " " : "", type ? type : "");
    if (next && h->request->method)
        next = curl_slist_append(list, line);
    if (!next) {
        curl_slist_free_all(list);
        return calm_fail(ctx, CALM_ENOMEM, "libcurl: out of memory");
    }
    *out = list;
    return CALM_OK;
}

static calm_status ask_once(calm_ctx *ctx, calm_http *http, hop *h, const char *url)
{
    struct curl_slist *headers = NULL;
    calm_http_reply *reply = h->reply;
    curl_off_t retry_after = 0;
    CALM_TRY(make_headers(ctx, http, h, &headers));
    http->error[0] = '\0';
    reply->code = 0;
    reply->length = reply->range_begin = reply->range_of = -1;
    set_up(http, h, url, headers);
    const CURLcode code = curl_easy_perform(http->curl);
    curl_slist_free_all(headers);
    curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &reply->code);
    curl_easy_getinfo(http->curl, CURLINFO_RETRY_AFTER, &retry_after);
    reply->retry_after = (long)retry_after;
    reply->met = http->met = http->met || reply->code;
    if (ctx->status != CALM_OK) {
        reply->end = CALM_HTTP_STOPPED;
        return ctx->status;
    }
    reply->end = h->n_ignored > IGNORED_MAX ? CALM_HTTP_ANSWERED : end_of(http->curl, code);
    if (code != CURLE_OK) {
        const char *words = http->error[0] ? http->error : curl_easy_strerror(code);
        copy_value(reply->detail, sizeof reply->detail, words, strlen(words));
    }
    return CALM_OK;
}

/* ---- redirects ---- */

static bool is_redirect(long code)
{
    return code == 301 || code == 302 || code == 303 || code == 307 || code == 308;
}

/* May a request go to `origin`?  With an https endpoint only https is allowed. */
static bool may_go(const calm_http *http, const char *origin)
{
    return strncmp(origin, "https://", 8) == 0 ||
           (strncmp(origin, "http://", 7) == 0 && strncmp(http->origin, "http://", 7) == 0);
}

/* Returns the next URL of a redirect in *next, freed by the caller; NULL: there is none.  Messages show only the origin
 * of a URL, because URLs of storage hosts contain signatures. */
static calm_status next_hop(calm_ctx *ctx, calm_http *http, const hop *h, char **next)
{
    char *target = NULL;
    *next = NULL;
    if (h->reply->end != CALM_HTTP_ANSWERED || !is_redirect(h->reply->code))
        return CALM_OK;
    curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &target);
    char *origin = target ? origin_of(target) : NULL;
    const bool resends = !h->request->method || h->reply->code == 307 || h->reply->code == 308;
    if (!origin || !may_go(http, origin) || !resends) {
        snprintf(h->reply->detail, sizeof h->reply->detail, "%.200s", origin ? origin : "no address");
        h->reply->end = CALM_HTTP_MISLED;
    } else if (!h->request->head || strcmp(origin, http->origin) == 0) {
        *next = strdup(target);
        if (!*next)
            calm_fail(ctx, CALM_ENOMEM, "libcurl: out of memory");
    }
    free(origin);
    return ctx->status;
}

calm_status calm_http_ask(calm_ctx *ctx, calm_http *http, const calm_http_request *request, calm_http_reply *reply)
{
    *reply = (calm_http_reply){.linked_bytes = -1, .length = -1, .range_begin = -1, .range_of = -1};
    hop h = {.ctx = ctx, .curl = http->curl, .request = request, .reply = reply};
    char *url = strdup(request->url);
    calm_status status = url ? CALM_OK : calm_fail(ctx, CALM_ENOMEM, "libcurl: out of memory");
    for (int i = 0; status == CALM_OK && url; i++) {
        char *origin = origin_of(url), *next = NULL;
        h.trusted = origin && strcmp(origin, http->origin) == 0;
        /* The URL of an upload comes from the hub's answer, so it is checked, too. */
        const bool goes = !request->method || (origin && may_go(http, origin));
        reply->foreign = !h.trusted;
        h.n_ignored = 0;
        free(origin);
        if (i > HOPS_MAX || !goes) {
            reply->end = CALM_HTTP_MISLED;
            snprintf(reply->detail, sizeof reply->detail, "%s", goes ? "too many redirects" : "no https");
        } else {
            status = ask_once(ctx, http, &h, url);
            if (status == CALM_OK)
                status = next_hop(ctx, http, &h, &next);
        }
        free(url);
        url = next;
    }
    return status;
}
