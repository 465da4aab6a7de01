/* Downloads one file of the hub: ranges, attempts, checks. */
#include "ptq/hub/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/sha256.h"
#include "ptq/base/threads.h"
#include "ptq/hub/refused.h"

#define PAUSE_MAX_MS 60000L

/* ---- attempts ---- */

/* Returns the pause before attempt number `attempt` >= 1: twice as long each time, or what the server asks for. */
static long pause_ms(const calm_hub_settings *settings, int attempt, long retry_after)
{
    long ms = settings->backoff_ms;
    for (int i = 1; i < attempt && ms < PAUSE_MAX_MS; i++)
        ms *= 2;
    if (settings->backoff_ms && retry_after > 0) {
        const long asked_ms = retry_after < PAUSE_MAX_MS / 1000 ? retry_after * 1000 : PAUSE_MAX_MS;
        ms = ms > asked_ms ? ms : asked_ms;
    }
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

bool calm_hub_retry(calm_ctx *ctx, const calm_hub_session *s, const char *what, const calm_http_reply *reply,
                    int *attempt)
{
    if (calm_check_interrupt(ctx) != CALM_OK || !calm_hub_is_temporary(reply) || ++*attempt >= s->settings->attempts)
        return false;
    if (reply->end == CALM_HTTP_ANSWERED)
        calm_log(ctx, CALM_LOG_INFO, "%s: answer %ld, trying again (%d of %d)", what, reply->code, *attempt + 1,
                 s->settings->attempts);
    else
        calm_log(ctx, CALM_LOG_INFO, "%s: %s, trying again (%d of %d)", what,
                 reply->detail[0] ? reply->detail : "no answer", *attempt + 1, s->settings->attempts);
    return calm_sleep(ctx, pause_ms(s->settings, *attempt, reply->retry_after)) == CALM_OK;
}

/* ---- answers into memory ---- */

typedef struct collector {
    const char *what;
    size_t limit;
    calm_text *text;
} collector;

static calm_status collect(calm_ctx *ctx, void *user, const calm_http_reply *reply, const void *bytes, size_t n_bytes)
{
    collector *c = user;
    if (n_bytes > c->limit - c->text->length || reply->length > (int64_t)c->limit)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: the hub's answer is larger than %zu MiB; expected a list of files: check HF_ENDPOINT",
                         c->what, c->limit >> 20);
    calm_text_append(c->text, bytes, n_bytes);
    return calm_text_check(ctx, c->text);
}

calm_status calm_hub_get_text(calm_ctx *ctx, const calm_hub_session *s, const char *url, const char *what,
                              size_t limit, calm_text *out)
{
    collector c = {what, limit, out};
    const calm_http_request request = {.url = url, .sink = collect, .user = &c};
    calm_http_reply reply;
    int attempt = 0;
    do {
        calm_text_clear(out);
        CALM_TRY(calm_http_ask(ctx, s->http, &request, &reply));
        if (reply.end == CALM_HTTP_ANSWERED && reply.code == 200)
            return CALM_OK;
    } while (calm_hub_retry(ctx, s, what, &reply, &attempt));
    return calm_hub_refused(ctx, s->settings, s->name, what, &reply);
}

/* ---- addresses and paths ---- */

static calm_status file_url(calm_ctx *ctx, const calm_hub_session *s, const char *name, const char **out)
{
    char *quoted;
    CALM_TRY(calm_hub_quote(ctx, name, true, &quoted));
    return calm_strf(ctx, ctx->scratch, out, "%s/%s/resolve/%s/%s", s->settings->endpoint, s->name->repo, s->commit,
                     quoted);
}

static calm_status partial_path(calm_ctx *ctx, const calm_hub_session *s, const calm_hub_file *file, char **out)
{
    return calm_strf(ctx, ctx->scratch, out, "%s/blobs/%s.incomplete", s->repo_dir, file->etag);
}

bool calm_hub_has_blob(calm_ctx *ctx, const calm_hub_session *s, const calm_hub_file *file)
{
    char *path;
    struct stat info;
    return calm_hub_blob_path(ctx, s->repo_dir, file->etag, &path) == CALM_OK && stat(path, &info) == 0 &&
           S_ISREG(info.st_mode) && (file->bytes < 0 || info.st_size == file->bytes);
}

int64_t calm_hub_partial_bytes(calm_ctx *ctx, const calm_hub_session *s, const calm_hub_file *file)
{
    char *path;
    struct stat info;
    if (partial_path(ctx, s, file, &path) != CALM_OK || lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return 0;
    return file->bytes < 0 || info.st_size <= file->bytes ? (int64_t)info.st_size : 0;
}

calm_status calm_hub_get_metadata(calm_ctx *ctx, const calm_hub_session *s, calm_hub_file *file)
{
    calm_http_request request = {.head = true};
    calm_http_reply reply;
    char *what;
    int attempt = 0;
    CALM_TRY(file_url(ctx, s, file->name, &request.url));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &what, "%s: %s", s->name->repo, file->name));
    do {
        CALM_TRY(calm_http_ask(ctx, s->http, &request, &reply));
        if (reply.end == CALM_HTTP_ANSWERED && (reply.code == 200 || reply.code / 100 == 3)) {
            if (!reply.etag[0])
                return calm_fail(ctx, CALM_EFORMAT,
                                 "%s: the answer has no ETag, so that the file cannot be checked: this is no hub, or a "
                                 "proxy took it away; check HF_ENDPOINT", what);
            memcpy(file->etag, reply.etag, sizeof file->etag);
            file->bytes = reply.linked_bytes >= 0 ? reply.linked_bytes : reply.code == 200 ? reply.length : -1;
            return CALM_OK;
        }
    } while (calm_hub_retry(ctx, s, what, &reply, &attempt));
    return calm_hub_refused(ctx, s->settings, s->name, what, &reply);
}

/* ---- a transfer ---- */

typedef struct transfer {
    calm_hub_session *s;
    const calm_hub_file *file;
    char *what, *path;          /* its name for messages; path of the partial file */
    int fd;
    int64_t at;                 /* bytes in the partial file */
    int64_t counted;            /* bytes that s->done_bytes includes */
    bool began;                 /* begin() has checked this answer */
} transfer;

static void count(transfer *t)
{
    calm_hub_session *s = t->s;
    if (t->at > t->counted) {
        s->done_bytes += t->at - t->counted;
        t->counted = t->at;
        if (s->done_bytes > s->total_bytes)
            s->total_bytes = s->done_bytes;
        if (s->tick)
            s->tick(s->tick_user, (size_t)s->done_bytes, (size_t)s->total_bytes);
    }
}

static calm_status start_over(calm_ctx *ctx, transfer *t)
{
    t->at = 0;
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot empty it", t->path);
    return CALM_OK;
}

static calm_status wrong_size(calm_ctx *ctx, const transfer *t, int64_t found)
{
    return calm_fail(ctx, CALM_EMISMATCH,
                     "%s: expected %lld bytes, as the hub lists, found %lld%s; a proxy or a mirror may have changed "
                     "it: check HF_ENDPOINT and run the same command again", t->what, (long long)t->file->bytes,
                     (long long)found, found > t->file->bytes ? " or more" : "");
}

/* Checks the head of an answer: it must continue at t->at, or begin again. */
static calm_status begin(calm_ctx *ctx, transfer *t, const calm_http_reply *reply)
{
    /* Compare the announced size before a byte is written, to notice a proxy's login page at once. */
    const int64_t announced = reply->code == 206 ? reply->range_of : reply->length;
    t->began = true;
    if (reply->code == 206 && reply->range_begin != t->at)
        return calm_fail(ctx, CALM_EIO, "%s: asked for the bytes from %lld on, got those from %lld; a proxy that "
                                        "breaks ranges? Remove %s and run the same command again", t->what,
                         (long long)t->at, (long long)reply->range_begin, t->path);
    if (announced >= 0 && t->file->bytes >= 0 && announced != t->file->bytes)
        return wrong_size(ctx, t, announced);
    return reply->code == 200 && t->at ? start_over(ctx, t) : CALM_OK;    /* 200: the server ignores ranges */
}

static calm_status receive(calm_ctx *ctx, void *user, const calm_http_reply *reply, const void *bytes, size_t n_bytes)
{
    transfer *t = user;
    CALM_TRY(calm_check_interrupt(ctx));
    if (!t->began)
        CALM_TRY(begin(ctx, t, reply));
    if (t->file->bytes >= 0 && (int64_t)n_bytes > t->file->bytes - t->at)
        return wrong_size(ctx, t, t->at + (int64_t)n_bytes);
    for (size_t done = 0; done < n_bytes;) {
        const ssize_t n = write(t->fd, (const char *)bytes + done, n_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == ENOSPC || errno == EDQUOT))
            return calm_fail(ctx, CALM_ENOSPC,
                             "%s: the disk is full (%s); %lld bytes more are needed: make room, or set HF_HUB_CACHE to "
                             "another disk, and run the same command again: it continues where it stopped", t->what,
                             t->path, (long long)(t->s->total_bytes - t->s->done_bytes));
        if (n < 0)
            return calm_fail_errno(ctx, errno, "%s: cannot write", t->path);
        done += (size_t)n;
        t->at += n;
    }
    count(t);
    return CALM_OK;
}

/* Repeats requests until all bytes are there: each attempt continues where the last one stopped, and attempts that
 * bring new bytes do not count. */
static calm_status transfer_bytes(calm_ctx *ctx, transfer *t)
{
    calm_http_request request = {.sink = receive, .user = t};
    calm_http_reply reply;
    int attempt = 0;
    int64_t best = t->at;
    bool emptied = false, whole = t->file->bytes >= 0 && t->at == t->file->bytes;
    CALM_TRY(file_url(ctx, t->s, t->file->name, &request.url));
    while (!whole) {
        request.from = (uint64_t)t->at;
        t->began = false;
        CALM_TRY(calm_http_ask(ctx, t->s->http, &request, &reply));
        if (reply.end == CALM_HTTP_ANSWERED && (reply.code == 200 || reply.code == 206)) {
            if (!t->began)    /* an empty body */
                CALM_TRY(begin(ctx, t, &reply));
            whole = true;
        } else if (reply.end == CALM_HTTP_ANSWERED && reply.code == 416 && t->at && !emptied) {
            CALM_TRY(start_over(ctx, t));
            emptied = true;
        } else {
            attempt = t->at > best ? 0 : attempt;
            best = t->at > best ? t->at : best;
            if (!calm_hub_retry(ctx, t->s, t->what, &reply, &attempt))
                return calm_hub_refused(ctx, t->s->settings, t->s->name, t->what, &reply);
        }
    }
    return t->file->bytes >= 0 && t->at != t->file->bytes ? wrong_size(ctx, t, t->at) : CALM_OK;
}

/* Compares the file's digest with its etag; an etag of another form cannot be checked and counts as good. */
static calm_status check_digest(calm_ctx *ctx, const transfer *t, bool *good, char found[CALM_SHA256_HEX])
{
    const size_t n = strlen(t->file->etag);
    *good = true;
    if (!calm_is_hex(t->file->etag, CALM_SHA256_HEX - 1) && !calm_is_hex(t->file->etag, CALM_SHA1_HEX - 1))
        return CALM_OK;
    if (n == CALM_SHA256_HEX - 1)
        CALM_TRY(calm_sha256_file(ctx, t->path, found));
    else
        CALM_TRY(calm_git_blob_file(ctx, t->path, found));
    *good = strcmp(found, t->file->etag) == 0;
    return CALM_OK;
}

/* Transfers and checks the file; if bytes from an earlier call may be wrong, once more from the start. */
static calm_status transfer_and_check(calm_ctx *ctx, transfer *t)
{
    char found[CALM_SHA256_HEX] = "";
    bool good, resumed = t->at > 0;
    for (;;) {
        CALM_TRY(transfer_bytes(ctx, t));
        /* Flush before the digest and the rename, because a blob under its final name is never checked again. */
        if (fsync(t->fd) != 0)
            return calm_fail_errno(ctx, errno, "%s: cannot write", t->path);
        CALM_TRY(check_digest(ctx, t, &good, found));
        if (good)
            return CALM_OK;
        if (!resumed)
            return calm_fail(ctx, CALM_EMISMATCH,
                             "%s: wrong checksum: expected %s %s, found %s; the bytes were changed on the way and are "
                             "thrown away: run the same command again, and if that does not help check HF_ENDPOINT and "
                             "proxies", t->what, strlen(found) == 64 ? "SHA-256" : "git's SHA-1", t->file->etag, found);
        calm_log(ctx, CALM_LOG_INFO, "%s: what an earlier transfer left has a wrong checksum, fetching it anew",
                 t->what);
        resumed = false;
        CALM_TRY(start_over(ctx, t));
    }
}

static calm_status fetch_locked(calm_ctx *ctx, calm_hub_session *s, const calm_hub_file *file, const char *blob)
{
    transfer t = {.s = s, .file = file, .fd = -1};
    CALM_TRY(partial_path(ctx, s, file, &t.path));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &t.what, "%s: %s", s->name->repo, file->name));
    CALM_TRY(calm_make_parent(ctx, t.path));
    const int64_t partial = calm_hub_partial_bytes(ctx, s, file);
    t.fd = open(t.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (partial ? 0 : O_TRUNC), 0666);
    if (t.fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot open", t.path);
    t.at = t.counted = partial;
    if (lseek(t.fd, partial, SEEK_SET) != partial)
        calm_fail_errno(ctx, errno, "%s: cannot seek", t.path);
    else
        transfer_and_check(ctx, &t);
    if (close(t.fd) != 0)
        calm_fail_errno(ctx, errno, "%s: cannot write", t.path);
    if (ctx->status == CALM_OK && rename(t.path, blob) != 0)
        calm_fail_errno(ctx, errno, "%s: cannot rename to it", blob);
    if (ctx->status == CALM_EMISMATCH)
        unlink(t.path);
    return ctx->status;
}

calm_status calm_hub_fetch(calm_ctx *ctx, calm_hub_session *s, calm_hub_file *file)
{
    char *blob;
    int lock;
    CALM_TRY(calm_hub_blob_path(ctx, s->repo_dir, file->etag, &blob));
    CALM_TRY(calm_hub_lock(ctx, s->settings, s->name, file->etag, &lock));
    if (!calm_hub_has_blob(ctx, s, file)) {    /* another process may have fetched it meanwhile */
        fetch_locked(ctx, s, file, blob);
        file->fetched = ctx->status == CALM_OK;
    }
    calm_hub_unlock(lock);
    return ctx->status;
}
