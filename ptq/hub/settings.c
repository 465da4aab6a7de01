/* The environment variables of huggingface_hub (its constants.py is the reference). */
#include "ptq/hub/settings.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"

#define ENDPOINT "https://huggingface.co"
#define TOKEN_FILE_MAX ((size_t)1 << 16)
#define CONNECT_SECONDS 15
#define STALL_SECONDS 30
#define ATTEMPTS 5
#define BACKOFF_MS 1000

/* Returns a variable; NULL if it is unset or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* Does the value mean yes, as in huggingface_hub, in upper or lower case?  NULL means no. */
static bool is_true(const char *text)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; text && i < sizeof yes / sizeof *yes; i++)
        if (strcasecmp(text, yes[i]) == 0)
            return true;
    return false;
}

static const char *home(void)
{
    const struct passwd *user;
    if (getenv("HOME"))
        return getenv("HOME");
    user = getpwuid(getuid());
    return user && user->pw_dir ? user->pw_dir : "/";
}

/* Appends the value of the variable whose name follows the dollar at `text`, or the dollar if there is none; returns
 * the rest of the text. */
static const char *expand_variable(const char *text, calm_text *out)
{
    const bool braces = text[1] == '{';
    const char *name = text + 1 + braces, *end = name;
    char copy[128];
    while (isalnum((unsigned char)*end) || *end == '_')
        end++;
    const size_t n = (size_t)(end - name);
    if (n && n < sizeof copy && (!braces || *end == '}')) {
        memcpy(copy, name, n);
        copy[n] = '\0';
        if (getenv(copy)) {
            calm_text_append(out, getenv(copy), strlen(getenv(copy)));
            return end + braces;
        }
    }
    calm_text_append(out, "$", 1);    /* an unknown name stays as it is */
    return text + 1;
}

/* Expands ~ and $NAME in a path, in ctx->out. */
static calm_status expand(calm_ctx *ctx, const char *path, const char **out)
{
    CALM_SCOPED_TEXT(text);
    if (path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
        calm_text_append(&text, home(), strlen(home()));
        path++;
    }
    while (*path)
        if (*path == '$')
            path = expand_variable(path, &text);
        else
            calm_text_append(&text, path++, 1);
    CALM_TRY(calm_text_check(ctx, &text));
    return calm_strf(ctx, ctx->out, out, "%s", text.data ? text.data : "");
}

/* Returns the expanded path of a variable, or else dir/name. */
static calm_status place(calm_ctx *ctx, const char *value, const char *dir, const char *name, const char **out)
{
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, name));
    return expand(ctx, value ? value : path, out);
}

/* Returns the text without line ends and without blanks around it; NULL if it is empty. */
static calm_status clean_token(calm_ctx *ctx, const char *raw, const char *source, calm_hub_settings *s)
{
    char *token;
    size_t n = 0;
    CALM_TRY(calm_strf(ctx, ctx->out, &token, "%s", raw + strspn(raw, " \t\r\n")));
    for (size_t i = 0; token[i]; i++)
        if (token[i] != '\r' && token[i] != '\n')
            token[n++] = token[i];
    while (n && (token[n - 1] == ' ' || token[n - 1] == '\t'))
        n--;
    token[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] >= 127)
            return calm_fail(ctx, CALM_EARG,
                             "%s: a token has no blanks, control or non-ASCII characters, this one does; copy it again",
                             source);
    s->token = n ? token : NULL;
    s->token_source = n ? source : NULL;
    return CALM_OK;
}

static calm_status read_token(calm_ctx *ctx, calm_hub_settings *s, const char *path)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    char *text;
    size_t n_bytes;
    if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN")))
        return CALM_OK;
    for (size_t i = 0; i < 2; i++)
        if (variable(names[i]))
            return clean_token(ctx, variable(names[i]), names[i], s);
    if (!calm_path_exists(path) || calm_is_directory(path))
        return CALM_OK;
    CALM_TRY(calm_read_file(ctx, path, TOKEN_FILE_MAX, &text, &n_bytes));
    return clean_token(ctx, text, path, s);
}

static calm_status read_endpoint(calm_ctx *ctx, calm_hub_settings *s)
{
    const char *value = variable("HF_ENDPOINT");
    char *copy;
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", value ? value : ENDPOINT));
    for (size_t n = strlen(copy); n && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    if (strchr(copy, '@'))
        return calm_fail(ctx, CALM_EARG, "HF_ENDPOINT: expected no user name or password in it; a token goes into "
                                         "HF_TOKEN");
    if ((strncmp(copy, "https://", 8) != 0 || !copy[8]) && (strncmp(copy, "http://", 7) != 0 || !copy[7]))
        return calm_fail(ctx, CALM_EARG, "HF_ENDPOINT: expected https://HOST, found \"%s\"", copy);
    for (const char *at = copy; *at; at++)
        if (*at <= ' ' || *at >= 127 || strchr("?#\\\"<>", *at))
            return calm_fail(ctx, CALM_EARG, "HF_ENDPOINT: expected https://HOST, found \"%s\"", copy);
    s->endpoint = copy;
    return CALM_OK;
}

/* Returns the file of certificates, for networks whose proxies intercept TLS. */
static const char *find_certificates(void)
{
    static const char *const names[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (variable(names[i]))
            return variable(names[i]);
    return NULL;
}

calm_status calm_hub_settings_read(calm_ctx *ctx, calm_hub_settings *out)
{
    const char *timeout = variable("HF_HUB_DOWNLOAD_TIMEOUT"), *offline = variable("HF_HUB_OFFLINE");
    const char *xdg = variable("XDG_CACHE_HOME"), *cache = variable("HF_HUB_CACHE"), *hf_home, *token_path;
    char *end;
    *out = (calm_hub_settings){.ca_file = find_certificates(),
                               .connect_seconds = CONNECT_SECONDS,
                               .stall_seconds = STALL_SECONDS,
                               .attempts = ATTEMPTS,
                               .backoff_ms = BACKOFF_MS};
    out->offline = is_true(offline ? offline : variable("TRANSFORMERS_OFFLINE"));
    if (timeout) {
        errno = 0;
        out->stall_seconds = strtol(timeout, &end, 10);
        if (*end || errno || out->stall_seconds < 1 || out->stall_seconds > 86400)
            return calm_fail(ctx, CALM_EARG, "HF_HUB_DOWNLOAD_TIMEOUT: expected seconds from 1 to 86400, found \"%s\"",
                             timeout);
    }
    CALM_TRY(place(ctx, variable("HF_HOME"), xdg ? xdg : "~/.cache", "huggingface", &hf_home));
    CALM_TRY(place(ctx, cache ? cache : variable("HUGGINGFACE_HUB_CACHE"), hf_home, "hub", &out->cache));
    CALM_TRY(place(ctx, variable("HF_TOKEN_PATH"), hf_home, "token", &token_path));
    CALM_TRY(read_endpoint(ctx, out));
    return read_token(ctx, out, token_path);
}
