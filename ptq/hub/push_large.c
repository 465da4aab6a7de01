/* Uploads large files to the storage host: the batch API of git LFS (docs/api/batch.md of git-lfs), with its transfers
 * "basic", one PUT, and "multipart", one PUT per part and a last request that names all parts. */
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/hub/push_impl.h"
#include "ptq/hub/refused.h"

#define BATCH     ((size_t)100)
#define PARTS_MAX ((size_t)10000)

/* Uploads bytes of a file by one PUT, repeated after temporary failures; `etag` gets the storage host's etag. */
static calm_status put_bytes(calm_ctx *ctx, const calm_hub_session *s, const char *what, const char *url,
                             const uint8_t *bytes, size_t n_bytes, char etag[CALM_HUB_ETAG])
{
    const calm_http_request request = {.url = url, .method = "PUT", .bytes = bytes, .n_bytes = n_bytes};
    calm_http_reply reply;
    int attempt = 0;
    do {
        CALM_TRY(calm_http_ask(ctx, s->http, &request, &reply));
        if (reply.end == CALM_HTTP_ANSWERED && reply.code / 100 == 2) {
            memcpy(etag, reply.stored, CALM_HUB_ETAG);
            return CALM_OK;
        }
    } while (calm_hub_retry(ctx, s, what, &reply, &attempt));
    return calm_hub_refused(ctx, s->settings, s->name, what, &reply);
}

static void count(calm_hub_session *s, size_t n_bytes)
{
    s->done_bytes += (int64_t)n_bytes;
    if (s->tick)
        s->tick(s->tick_user, (size_t)s->done_bytes, (size_t)s->total_bytes);
}

static calm_status bad_answer(calm_ctx *ctx, const char *what, const char *why)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: the hub's answer %s; check HF_ENDPOINT", what, why);
}

/* Returns the bytes of each part, after checking that each part has a URL; 0: the file is uploaded in one piece. */
static calm_status part_size(calm_ctx *ctx, const char *what, const calm_json *header, size_t bytes, size_t *out)
{
    const char *said = calm_json_string(calm_json_get(header, "chunk_size"), NULL);
    *out = 0;
    if (!said)
        return CALM_OK;
    char *end;
    const unsigned long long size = strtoull(said, &end, 10);
    if (*end || said[0] < '0' || said[0] > '9' || !size || size > (unsigned long long)SIZE_MAX ||
        (bytes + (size_t)size - 1) / (size_t)size > PARTS_MAX || bytes > SIZE_MAX - (size_t)size)
        return bad_answer(ctx, what, "has no usable chunk_size");
    *out = (size_t)size;
    return CALM_OK;
}

/* Uploads all parts, and sends the request that names them. */
static calm_status send_parts(calm_ctx *ctx, calm_hub_session *s, const calm_push_file *file, const char *what,
                              const calm_json *upload, size_t size, const calm_mapping *map)
{
    const calm_json *header = calm_json_get(upload, "header");
    const char *complete = calm_json_string(calm_json_get(upload, "href"), NULL);
    calm_json *parts = calm_json_new_array();
    calm_status status = complete ? CALM_OK : bad_answer(ctx, what, "has no address to end with");
    for (size_t at = 0, number = 1; status == CALM_OK && at < map->bytes; at += size, number++) {
        char key[24], etag[CALM_HUB_ETAG];
        const size_t n = map->bytes - at < size ? map->bytes - at : size;
        snprintf(key, sizeof key, "%zu", number);
        const char *url = calm_json_string(calm_json_get(header, key), NULL);
        status = url ? put_bytes(ctx, s, what, url, map->data + at, n, etag)
                     : bad_answer(ctx, what, "has too few addresses of parts");
        if (status == CALM_OK && !etag[0])
            status = bad_answer(ctx, what, "names no part");
        if (status != CALM_OK)
            break;
        calm_json_add(parts, CALM_OBJECT(CALM_KV("partNumber", number), CALM_KV("etag", (const char *)etag)));
        calm_mapping_release(map, at, n);
        count(s, n);
    }
    if (status != CALM_OK) {
        calm_json_free(parts);
        return status;
    }
    calm_push_call call = {.what = what, .url = complete, .type = CALM_PUSH_LFS_TYPE};
    status = calm_push_post_json(ctx, s, CALM_OBJECT(CALM_KV("oid", (const char *)file->sha256),
                                                     CALM_KV("parts", parts)), &call);
    calm_json_free(call.answer);
    return status;
}

/* Sends the request by which the hub verifies the upload, if it asked for one. */
static calm_status verify(calm_ctx *ctx, const calm_hub_session *s, const calm_push_file *file, const char *what,
                          const calm_json *actions)
{
    const char *url = calm_json_string(calm_json_get(calm_json_get(actions, "verify"), "href"), NULL);
    if (!url)
        return CALM_OK;
    calm_push_call call = {.what = what, .url = url};
    const calm_status status = calm_push_post_json(
        ctx, s, CALM_OBJECT(CALM_KV("oid", (const char *)file->sha256), CALM_KV("size", file->bytes)), &call);
    calm_json_free(call.answer);
    return status;
}

/* Uploads one file by the actions that the hub names. */
static calm_status send_file(calm_ctx *ctx, calm_hub_session *s, calm_push_file *file, const calm_json *actions)
{
    CALM_SCOPED_MAPPING(map);
    const calm_json *upload = calm_json_get(actions, "upload");
    const char *url = calm_json_string(calm_json_get(upload, "href"), NULL);
    char etag[CALM_HUB_ETAG], *what;
    size_t size;
    CALM_TRY(calm_strf(ctx, ctx->out, &what, "%s: %s", s->name->repo, file->name));
    CALM_TRY(calm_map_file(ctx, file->path, &map));
    if (map.bytes != file->bytes)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: has %zu bytes, and had %zu when the push began; run it again when "
                         "nothing writes there", file->path, map.bytes, file->bytes);
    if (!url)
        return bad_answer(ctx, what, "has no address to send to");
    CALM_TRY(part_size(ctx, what, calm_json_get(upload, "header"), file->bytes, &size));
    if (size) {
        CALM_TRY(send_parts(ctx, s, file, what, upload, size, &map));
    } else {
        CALM_TRY(put_bytes(ctx, s, what, url, map.data, map.bytes, etag));
        count(s, file->bytes);
    }
    file->sent = true;
    return verify(ctx, s, file, what, actions);
}

static calm_push_file *find(calm_push_file *const *files, size_t n, const char *oid)
{
    for (size_t i = 0; i < n && oid; i++)
        if (strcmp(files[i]->sha256, oid) == 0)
            return files[i];
    return NULL;
}

/* Handles the hub's answer for each file of a batch: an error, actions, or nothing to do. */
static calm_status send_batch(calm_ctx *ctx, calm_hub_session *s, calm_push_file *const *files, size_t n,
                              const calm_json *objects, size_t *sent)
{
    for (size_t i = 0; i < calm_json_size(objects); i++) {
        const calm_json *object = calm_json_at(objects, i), *error = calm_json_get(object, "error");
        const calm_json *actions = calm_json_get(object, "actions");
        calm_push_file *file = find(files, n, calm_json_string(calm_json_get(object, "oid"), NULL));
        if (!file)
            return bad_answer(ctx, s->name->repo, "is of files that were not asked about");
        if (calm_json_typeof(error) == CALM_JSON_OBJECT)
            return calm_fail(ctx, CALM_EIO, "%s: %s: the hub does not take the file (%.200s)", s->name->repo,
                             file->name, calm_json_string(calm_json_get(error, "message"), "no reason given"));
        if (calm_json_typeof(actions) != CALM_JSON_OBJECT) {
            count(s, file->bytes);    /* the storage host has it */
            continue;
        }
        CALM_TRY(send_file(ctx, s, file, actions));
        *sent += file->bytes;
    }
    return CALM_OK;
}

/* Sends the request for a batch. */
static calm_json *question(const calm_hub_session *s, calm_push_file *const *files, size_t n)
{
    calm_json *objects = calm_json_new_array(), *transfers = calm_json_new_array();
    calm_json_add_string(transfers, "basic");
    calm_json_add_string(transfers, "multipart");
    for (size_t i = 0; i < n; i++)
        calm_json_add(objects, CALM_OBJECT(CALM_KV("oid", (const char *)files[i]->sha256),
                                           CALM_KV("size", files[i]->bytes)));
    return CALM_OBJECT(CALM_KV("operation", "upload"), CALM_KV("transfers", transfers), CALM_KV("objects", objects),
                       CALM_KV("hash_algo", "sha256"),
                       CALM_KV("ref", CALM_OBJECT(CALM_KV("name", s->name->revision))));
}

calm_status calm_push_large(calm_ctx *ctx, calm_hub_session *s, calm_push_file *const *files, size_t n, size_t *sent)
{
    char *url, *what;
    CALM_TRY(calm_strf(ctx, ctx->out, &url, "%s/%s.git/info/lfs/objects/batch", s->settings->endpoint, s->name->repo));
    CALM_TRY(calm_strf(ctx, ctx->out, &what, "%s: large files", s->name->repo));
    for (size_t i = 0; i < n; i++)
        s->total_bytes += (int64_t)files[i]->bytes;
    for (size_t first = 0; first < n; first += BATCH) {
        const size_t m = n - first < BATCH ? n - first : BATCH;
        calm_push_call call = {.what = what, .url = url, .type = CALM_PUSH_LFS_TYPE};
        calm_status status = calm_push_post_json(ctx, s, question(s, files + first, m), &call);
        if (status == CALM_OK && calm_json_size(calm_json_get(call.answer, "objects")) != m)
            status = bad_answer(ctx, what, "is not of all files that were asked about");
        if (status == CALM_OK)
            status = send_batch(ctx, s, files + first, m, calm_json_get(call.answer, "objects"), sent);
        calm_json_free(call.answer);
        CALM_TRY(status);
    }
    return CALM_OK;
}
