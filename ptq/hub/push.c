/* The steps of a push, in order. */

#include <string.h>

#include "ptq/base/base64.h"
#include "ptq/base/file.h"
#include "ptq/hub/push_impl.h"

#define SAMPLE_BYTES  512                  /* beginning of a file, from which the hub finds whether it is text  */
#define ASKED_AT_ONCE ((size_t)256)
#define REGULAR_MAX   ((size_t)64 << 20)   /* bytes of all small files, which are one request                   */
#define CARD_MAX      ((size_t)4 << 20)
#define CARD          "README.md"
#define STALL_SECONDS 120L                 /* longer, because the hub makes the commit before it answers        */

typedef struct push {
    calm_hub_session s;
    const calm_push_options *options;
    calm_push_result *out;
} push;

/* Returns the URL of an API call, "preupload" or "commit", for the name's revision. */
static calm_status model_url(calm_ctx *ctx, const push *p, const char *verb, char **out)
{
    char *revision;
    CALM_TRY(calm_hub_quote(ctx, p->s.name->revision, false, &revision));
    return calm_strf(ctx, ctx->out, out, "%s/api/models/%s/%s/%s", p->s.settings->endpoint, p->s.name->repo, verb,
                     revision);
}

static calm_status can_write(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name)
{
    if (settings->offline)
        return calm_fail(ctx, CALM_EARG, "%s: HF_HUB_OFFLINE is set: unset it to push", name->repo);
    if (!settings->token)
        return calm_fail(ctx, CALM_EARG, "%s: a push needs a token: make one with the right to write at "
                         "%s/settings/tokens and set HF_TOKEN to it", name->repo, settings->endpoint);
    return CALM_OK;
}

/* ---- the repository ---- */

/* Checks that an existing repository is empty, as after an interrupted push, unless `force`. */
static calm_status check_existing(calm_ctx *ctx, const push *p)
{
    const calm_hub_settings *settings = p->s.settings;
    CALM_SCOPED_TEXT(text);
    CALM_SCOPED_JSON(root);
    char *url;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &url, "%s/api/models/%s", settings->endpoint, p->s.name->repo));
    CALM_TRY(calm_hub_get_text(ctx, &p->s, url, p->s.name->repo, CALM_HUB_LISTING_MAX, &text));
    CALM_TRY(calm_json_parse(ctx, p->s.name->repo, text.data ? text.data : "", text.length, &root));
    const calm_json *siblings = calm_json_get(root, "siblings");
    for (size_t i = 0; i < calm_json_size(siblings) && !p->options->force; i++) {
        const char *name = calm_json_string(calm_json_get(calm_json_at(siblings, i), "rfilename"), "");
        if (strcmp(name, ".gitattributes") != 0)
            return calm_fail(ctx, CALM_EARG, "%s is there already, and has %.120s: --force adds a commit to it (what "
                             "it has stays in its history), or push under another name", p->s.name->repo, name);
    }
    return CALM_OK;
}

static calm_status create(calm_ctx *ctx, push *p)
{
    const char *repo = p->s.name->repo, *slash = strchr(repo, '/');
    char *url, *org, *what;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &url, "%s/api/repos/create", p->s.settings->endpoint));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &org, "%.*s", (int)(slash - repo), repo));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &what, "%s: a new repository", repo));
    calm_push_call call = {.what = what, .url = url, .also = 409};
    const calm_status status = calm_push_post_json(
        ctx, &p->s, CALM_OBJECT(CALM_KV("name", slash + 1), CALM_KV("organization", org), CALM_KV("type", "model"),
                                CALM_KV("private", p->options->hidden)), &call);
    calm_json_free(call.answer);
    CALM_TRY(status);
    p->out->created = call.code != 409;
    return p->out->created ? CALM_OK : check_existing(ctx, p);
}

/* ---- the card ---- */

/* Returns the first fault that the hub finds in the card's front matter. */
static calm_status refuse_card(calm_ctx *ctx, const push *p, const calm_json *answer)
{
    const calm_json *errors = calm_json_get(answer, "errors");
    const char *said = calm_json_string(calm_json_get(calm_json_at(errors, 0), "message"), "no reason given");
    return calm_fail(ctx, CALM_EARG, "%s/" CARD ": the hub does not take its front matter: %.300s; correct the lines "
                     "between --- at its top", p->options->dir, said);
}

/* Lets the hub check the card before anything is uploaded.  Mirrors without this check answer 404. */
static calm_status check_card(calm_ctx *ctx, const push *p)
{
    char *path, *text, *url, *what;
    size_t n;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, p->options->dir, CARD));
    if (!calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(calm_read_file(ctx, path, CARD_MAX, &text, &n));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &url, "%s/api/validate-yaml", p->s.settings->endpoint));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &what, "%s: " CARD, p->s.name->repo));
    calm_json *body = CALM_OBJECT(CALM_KV("repoType", "model"));
    calm_json_set_bytes(body, "content", text, n);
    calm_push_call call = {.what = what, .url = url, .also = 400};
    calm_status status = calm_push_post_json(ctx, &p->s, body, &call);
    if (status == CALM_ENOTFOUND) {
        calm_ctx_clear_failure(ctx);
        status = CALM_OK;
    }
    if (status == CALM_OK && call.code == 400)
        status = refuse_card(ctx, p, call.answer);
    for (size_t i = 0; status == CALM_OK && i < calm_json_size(calm_json_get(call.answer, "warnings")); i++)
        calm_log(ctx, CALM_LOG_WARNING, "%s: " CARD ": %.300s", p->s.name->repo,
                 calm_json_string(calm_json_get(calm_json_at(calm_json_get(call.answer, "warnings"), i), "message"),
                                  ""));
    calm_json_free(call.answer);
    return status;
}

/* ---- which files are large ---- */

static calm_status add_question(calm_ctx *ctx, const calm_push_file *file, calm_json *list)
{
    CALM_SCOPED_MAPPING(map);
    CALM_SCOPED_TEXT(sample);
    CALM_TRY(calm_map_file(ctx, file->path, &map));
    calm_base64_append(&sample, map.data, map.bytes < SAMPLE_BYTES ? map.bytes : SAMPLE_BYTES);
    CALM_TRY(calm_text_check(ctx, &sample));
    calm_json_add(list, CALM_OBJECT(CALM_KV("path", file->name), CALM_KV("size", file->bytes),
                                    CALM_KV("sample", sample.data ? sample.data : "")));
    return CALM_OK;
}

/* Reads {"files": [{"path", "uploadMode": "lfs" or "regular", "shouldIgnore"}]}. */
static calm_status take_modes(calm_ctx *ctx, const char *what, const calm_json *answer, calm_push_file *files, size_t n)
{
    const calm_json *list = calm_json_get(answer, "files");
    for (size_t i = 0; i < n; i++) {
        const char *mode = NULL;
        for (size_t k = 0; k < calm_json_size(list) && !mode; k++) {
            const calm_json *entry = calm_json_at(list, k);
            if (strcmp(calm_json_string(calm_json_get(entry, "path"), ""), files[i].name) != 0)
                continue;
            mode = calm_json_string(calm_json_get(entry, "uploadMode"), "");
            files[i].ignored = calm_json_bool(calm_json_get(entry, "shouldIgnore"), false);
        }
        if (!mode || (strcmp(mode, "lfs") != 0 && strcmp(mode, "regular") != 0))
            return calm_fail(ctx, CALM_EFORMAT, "%s: the hub does not say how %s is sent; check HF_ENDPOINT", what,
                             files[i].name);
        files[i].large = strcmp(mode, "lfs") == 0;
    }
    return CALM_OK;
}

static calm_status ask_modes(calm_ctx *ctx, const push *p)
{
    char *url, *what;
    CALM_TRY(model_url(ctx, p, "preupload", &url));
    CALM_TRY(calm_strf(ctx, ctx->out, &what, "%s: which files are large", p->s.name->repo));
    for (size_t first = 0; first < p->out->n_files; first += ASKED_AT_ONCE) {
        const size_t n = calm_size_min(p->out->n_files - first, ASKED_AT_ONCE);
        calm_json *list = calm_json_new_array();
        calm_push_call call = {.what = what, .url = url};
        calm_status status = CALM_OK;
        for (size_t i = 0; i < n && status == CALM_OK; i++)
            status = add_question(ctx, &p->out->files[first + i], list);
        calm_json *body = CALM_OBJECT(CALM_KV("files", list));
        if (status == CALM_OK)
            status = calm_push_post_json(ctx, &p->s, body, &call);
        else
            calm_json_free(body);
        if (status == CALM_OK)
            status = take_modes(ctx, what, call.answer, p->out->files + first, n);
        calm_json_free(call.answer);
        CALM_TRY(status);
    }
    return CALM_OK;
}

/* Lists the large files, each content once, and computes their digests. */
static calm_status send_large(calm_ctx *ctx, push *p)
{
    calm_push_file **large;
    size_t n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, large, p->out->n_files + 1));
    for (size_t i = 0; i < p->out->n_files; i++) {
        calm_push_file *file = &p->out->files[i];
        bool twice = false;
        if (!file->large || file->ignored)
            continue;
        CALM_TRY(calm_sha256_file(ctx, file->path, file->sha256));
        for (size_t k = 0; k < n; k++)
            twice |= strcmp(large[k]->sha256, file->sha256) == 0;
        if (!twice)
            large[n++] = file;
    }
    return calm_push_large(ctx, &p->s, large, n, &p->out->sent_bytes);
}

/* ---- the commit ---- */

/* Appends one line of the request, {"key": KEY, "value": VALUE}, and releases the value. */
static calm_status add_line(calm_ctx *ctx, const char *key, calm_json *value, calm_text *out)
{
    CALM_SCOPED_JSON(line);
    line = CALM_OBJECT(CALM_KV("key", key), CALM_KV("value", value));
    CALM_TRY(calm_json_write(ctx, line, 0, out));
    calm_text_append(out, "\n", 1);
    return calm_text_check(ctx, out);
}

static calm_status add_regular(calm_ctx *ctx, const calm_push_file *file, calm_text *out)
{
    CALM_SCOPED_MAPPING(map);
    CALM_SCOPED_TEXT(content);
    CALM_TRY(calm_map_file(ctx, file->path, &map));
    if (map.bytes > REGULAR_MAX || out->length > REGULAR_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the hub wants it in the commit itself, with more than %zu MiB; check "
                         "HF_ENDPOINT", file->path, REGULAR_MAX >> 20);
    calm_base64_append(&content, map.data, map.bytes);
    CALM_TRY(calm_text_check(ctx, &content));
    return add_line(ctx, "file", CALM_OBJECT(CALM_KV("content", content.data ? content.data : ""),
                                             CALM_KV("path", file->name), CALM_KV("encoding", "base64")), out);
}

static calm_status write_commit(calm_ctx *ctx, const push *p, calm_text *out)
{
    const calm_push_result *r = p->out;
    CALM_TRY(add_line(ctx, "header", CALM_OBJECT(CALM_KV("summary", "calm " CALM_VERSION ": quantized model"),
                                                 CALM_KV("description", "")), out));
    for (size_t i = 0; i < r->n_files; i++) {
        const calm_push_file *file = &r->files[i];
        if (file->ignored)
            continue;
        CALM_TRY(file->large ? add_line(ctx, "lfsFile",
                                        CALM_OBJECT(CALM_KV("path", file->name), CALM_KV("algo", "sha256"),
                                                    CALM_KV("oid", (const char *)file->sha256),
                                                    CALM_KV("size", file->bytes)), out)
                             : add_regular(ctx, file, out));
    }
    return CALM_OK;
}

static calm_status commit(calm_ctx *ctx, push *p)
{
    CALM_SCOPED_TEXT(body);
    char *url, *what, *oid;
    CALM_TRY(model_url(ctx, p, "commit", &url));
    CALM_TRY(calm_strf(ctx, ctx->out, &what, "%s: commit", p->s.name->repo));
    CALM_TRY(write_commit(ctx, p, &body));
    calm_push_call call = {.what = what, .url = url, .type = "application/x-ndjson", .body = body.data,
                           .n_body = body.length};
    calm_status status = calm_push_post(ctx, &p->s, &call);
    if (status == CALM_OK)
        status = calm_strf(ctx, ctx->out, &oid, "%.80s",
                           calm_json_string(calm_json_get(call.answer, "commitOid"), ""));
    calm_json_free(call.answer);
    CALM_TRY(status);
    p->out->commit = oid;
    return CALM_OK;
}

/* ---- push ---- */

static calm_status run(calm_ctx *ctx, push *p)
{
    char *url;
    CALM_TRY(calm_strf(ctx, ctx->out, &url, "%s/%s", p->s.settings->endpoint, p->s.name->repo));
    p->out->url = url;
    CALM_TRY(check_card(ctx, p));
    CALM_TRY(create(ctx, p));
    CALM_TRY(ask_modes(ctx, p));
    CALM_TRY(send_large(ctx, p));
    return commit(ctx, p);
}

calm_status calm_hub_push(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          const calm_push_options *options, calm_tick_fn *tick, void *tick_user,
                          calm_push_result *out)
{
    calm_hub_settings patient = *settings;
    patient.pushes = true;
    calm_http *http = NULL;
    *out = (calm_push_result){.commit = ""};
    CALM_TRY(calm_hub_push_files(ctx, options->dir, &out->files, &out->n_files));
    CALM_TRY(can_write(ctx, settings, name));
    if (patient.stall_seconds < STALL_SECONDS)
        patient.stall_seconds = STALL_SECONDS;
    push p = {{.settings = &patient, .name = name, .tick = tick, .tick_user = tick_user}, options, out};
    calm_status status = calm_http_open(ctx, &patient, &http);
    p.s.http = http;
    if (status == CALM_OK)
        status = run(ctx, &p);
    calm_http_close(http);
    return status;
}
