/* The small hub (hub_server.h): plain sockets, HTTP/1.1, one request per connection. */
#include "tests/support/hub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ptq/base/sha256.h"
#include "ptq/base/text.h"

#define HEAD_MAX 8192

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(EXIT_FAILURE);
    }
}

hub_file *hub_add(hub_server *hub, const char *name, const char *bytes, size_t n_bytes, bool lfs)
{
    must(hub->n_files < HUB_FILES_MAX, "hub_add");
    hub_file *file = &hub->files[hub->n_files++];
    *file = (hub_file){.name = name, .bytes = bytes, .n_bytes = n_bytes, .lfs = lfs};
    return file;
}

/* ---- answers ---- */

/* Sends all bytes, or stops when the client has closed. */
static void put(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        bytes += sent;
        n -= (size_t)sent;
    }
}

static void put_format(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_format(int fd, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(fd, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

static void put_status(int fd, int status)
{
    put_format(fd, "HTTP/1.1 %d Because\r\nConnection: close\r\n", status);
}

static void put_error(int fd, int status, const char *error, const char *message)
{
    static const char body[] = "{\"error\":\"no\"}";
    put_status(fd, status);
    if (error)
        put_format(fd, "X-Error-Code: %s\r\n", error);
    if (message)
        put_format(fd, "X-Error-Message: %s\r\n", message);
    put_format(fd, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
}

static void put_redirect(int fd, const char *location)
{
    put_status(fd, 302);
    put_format(fd, "Location: %s\r\nContent-Length: 0\r\n\r\n", location);
}

/* Sends the listing of the API, or with `tree` that of /tree/COMMIT, which huggingface_hub requests. */
static void put_listing(int fd, const hub_server *hub, bool tree)
{
    calm_text text;
    calm_text_init(&text);
    for (size_t i = 0; i < hub->listing_bytes; i += 1024)
        calm_text_printf(&text, "%1024s", "");
    if (hub->listing)
        calm_text_printf(&text, "%s", hub->listing);
    else if (!tree)
        calm_text_printf(&text, "{\"id\":\"%s\",\"sha\":\"" HUB_COMMIT "\",\"siblings\":[", hub->repo);
    else
        calm_text_printf(&text, "[");
    for (size_t i = 0; i < hub->n_files && !hub->listing; i++) {
        const hub_file *file = &hub->files[i];
        const size_t n = file->n_bytes + (size_t)file->extra;
        calm_text_printf(&text, "%s{\"%s\":\"%s\"", i ? "," : "", tree ? "type\":\"file\",\"path" : "rfilename",
                         file->name);
        if (!hub->no_blobs)
            calm_text_printf(&text, ",\"size\":%zu,\"%s\":\"%s\"", n, tree ? "oid" : "blobId", file->sha1);
        if (!hub->no_blobs && file->lfs)
            calm_text_printf(&text, ",\"lfs\":{\"%s\":\"%s\",\"size\":%zu,\"pointerSize\":135}",
                             tree ? "oid" : "sha256", file->sha256, n);
        calm_text_printf(&text, "}");
    }
    if (!hub->listing)
        calm_text_printf(&text, tree ? "]" : "]}");
    put_status(fd, 200);
    put_format(fd, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", text.length);
    put(fd, text.data ? text.data : "", text.length);
    calm_text_clear(&text);
}

/* Waits until the client closes, without a timeout. */
static void wait_for_end(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
        ;
}

static void put_metadata(int fd, const hub_file *file)
{
    put_format(fd, "X-Repo-Commit: " HUB_COMMIT "\r\nAccept-Ranges: bytes\r\n");
    if (file->lfs)
        put_format(fd, "X-Linked-Size: %zu\r\nX-Linked-Etag: \"%s\"\r\n", file->n_bytes, file->sha256);
    put_format(fd, "ETag: W/\"%s\"\r\n", file->lfs ? "etag-of-the-redirect" : file->sha1);
}

/* Sends the body of a file, with its faults. */
static void put_body(int fd, hub_file *file, const hub_request *request)
{
    size_t from = 0;
    if (!file->no_ranges && sscanf(request->range, "bytes=%zu-", &from) == 1 && from >= file->n_bytes) {
        put_error(fd, 416, NULL, NULL);
        return;
    }
    put_status(fd, from ? 206 : 200);
    if (from)
        put_format(fd, "Content-Range: bytes %zu-%zu/%zu\r\n", from - file->wrong_range, file->n_bytes - 1,
                   file->n_bytes);
    if (request->storage)    /* a storage host sends no headers about the repository */
        put_format(fd, "X-Repo-Commit: strange\r\nX-Linked-Etag: \"strange\"\r\nX-Linked-Size: 1\r\n"
                       "ETag: \"strange\"\r\n");
    else
        put_metadata(fd, file);
    if (!file->unannounced)
        put_format(fd, "Content-Length: %zu\r\n", file->n_bytes - from);
    put_format(fd, "\r\n");
    if (strcmp(request->method, "HEAD") == 0)
        return;
    size_t n = file->n_bytes - from;
    const bool cut = file->n_cuts > 0 && n > file->cut_at;
    if (cut || file->stalls)
        n = n < file->cut_at ? n : file->cut_at;
    file->n_cuts -= cut;
    if (file->flipped && n && !cut) {
        const char last = (char)~file->bytes[from + n - 1];
        put(fd, file->bytes + from, n - 1);
        put(fd, &last, 1);
    } else {
        put(fd, file->bytes + from, n);
    }
    if (file->stalls)
        wait_for_end(fd);
}

static hub_file *find_file(hub_server *hub, const char *name)
{
    for (size_t i = 0; i < hub->n_files; i++)
        if (strcmp(hub->files[i].name, name) == 0)
            return &hub->files[i];
    return NULL;
}

/* Answers /REPO/resolve/COMMIT/NAME. */
static void answer_resolve(int fd, hub_server *hub, hub_file *file, const hub_request *request)
{
    if (hub->loops) {
        put_redirect(fd, request->path);
    } else if (file->n_status > 0) {
        file->n_status--;
        put_error(fd, file->status, file->error, NULL);
    } else if (file->lfs || file->location) {
        put_status(fd, 302);
        put_metadata(fd, file);
        if (file->location)
            put_format(fd, "Location: %s\r\nContent-Length: 0\r\n\r\n", file->location);
        else
            put_format(fd, "Location: %s/%s?Signature=secret\r\nContent-Length: 0\r\n\r\n", hub->storage, file->name);
    } else {
        put_body(fd, file, request);
    }
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void answer_api(int fd, hub_server *hub, const char *path)
{
    char listing[256];
    snprintf(listing, sizeof listing, "/api/models/%s", hub->repo);
    if (hub->status) {
        put_error(fd, hub->status, hub->error, hub->message);
    } else if (hub->listing_location) {
        const char *location = hub->listing_location;
        hub->listing_location = NULL;
        put_redirect(fd, location);
    } else if (!begins(path, listing)) {
        put_error(fd, 404, "RepoNotFound", "Repository not found");
    } else {
        const char *rest = path + strlen(listing);
        if (begins(rest, "/revision/") && !begins(rest, "/revision/main") && !begins(rest, "/revision/" HUB_COMMIT) &&
            !begins(rest, "/revision/refs%2Fpr%2F1"))
            put_error(fd, 404, "RevisionNotFound", "Invalid rev id");
        else
            put_listing(fd, hub, begins(rest, "/tree/"));
    }
}

static void answer(int fd, hub_server *hub, const hub_request *request)
{
    char resolve[256], expected[256], name[512];
    snprintf(resolve, sizeof resolve, "/%s/resolve/" HUB_COMMIT "/", hub->repo);
    snprintf(expected, sizeof expected, "Bearer %s", hub->token ? hub->token : "");
    if (request->storage) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(request->path + 1, "?"), request->path + 1);
        hub_file *file = find_file(hub, name);
        if (file)
            put_body(fd, file, request);
        else
            put_error(fd, 403, NULL, NULL);
        return;
    }
    if (hub->token && strcmp(request->authorization, expected) != 0) {
        put_error(fd, 401, request->authorization[0] ? NULL : "RepoNotFound",
                  request->authorization[0] ? "Invalid credentials in Authorization header" : NULL);
    } else if (begins(request->path, resolve)) {
        hub_file *file = find_file(hub, request->path + strlen(resolve));
        if (file)
            answer_resolve(fd, hub, file, request);
        else
            put_error(fd, 404, "EntryNotFound", NULL);
    } else {
        answer_api(fd, hub, request->path);
    }
}

/* ---- requests ---- */

static void copy_header(const char *head, const char *name, char *out, size_t size)
{
    out[0] = '\0';
    for (const char *line = strstr(head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, strlen(name)) == 0)
            snprintf(out, size, "%.*s", (int)strcspn(line + 2 + strlen(name), "\r\n"), line + 2 + strlen(name));
}

/* Reads up to the empty line; false if the client closed before. */
static bool read_head(int fd, char head[HEAD_MAX])
{
    size_t n = 0;
    while (n < HEAD_MAX - 1) {
        const ssize_t got = recv(fd, head + n, HEAD_MAX - 1 - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
        head[n] = '\0';
        if (strstr(head, "\r\n\r\n"))
            return true;
    }
    return false;
}

static void serve(hub_server *hub, int listener, bool storage)
{
    char head[HEAD_MAX];
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        return;
    if (read_head(fd, head) && hub->n_requests < HUB_REQUESTS_MAX) {
        hub_request *request = &hub->requests[hub->n_requests];
        *request = (hub_request){.storage = storage};
        if (sscanf(head, "%7s %511s", request->method, request->path) == 2) {
            copy_header(head, "Range: ", request->range, sizeof request->range);
            copy_header(head, "Authorization: ", request->authorization, sizeof request->authorization);
            hub->n_requests++;
            answer(fd, hub, request);
        }
    }
    close(fd);
}

static void *run(void *user)
{
    hub_server *hub = user;
    struct pollfd wait[3] = {{.fd = hub->listeners[0], .events = POLLIN},
                             {.fd = hub->listeners[1], .events = POLLIN},
                             {.fd = hub->wake[0], .events = POLLIN}};
    while (poll(wait, 3, -1) >= 0 && !wait[2].revents)
        for (int i = 0; i < 2; i++)
            if (wait[i].revents)
                serve(hub, hub->listeners[i], i == 1);
    return NULL;
}

static int listen_somewhere(char address[64])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 64) == 0 &&
             getsockname(fd, (struct sockaddr *)&name, &length) == 0, "a port on 127.0.0.1");
    snprintf(address, 64, "http://127.0.0.1:%d", ntohs(name.sin_port));
    return fd;
}

/* Computes git's digest of the bytes through a file, because calm's function takes a file. */
static void name_blobs(calm_ctx *ctx, hub_file *file)
{
    char path[] = "/tmp/calm-hub-XXXXXX";
    const int fd = mkstemp(path);
    must(fd >= 0 && write(fd, file->bytes, file->n_bytes) == (ssize_t)file->n_bytes && close(fd) == 0, path);
    must(calm_git_blob_file(ctx, path, file->sha1) == CALM_OK, "SHA-1");
    must(calm_sha256_bytes(ctx, file->bytes, file->n_bytes, file->sha256) == CALM_OK, "SHA-256");
    unlink(path);
}

void hub_start(hub_server *hub)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "all_proxy", "ALL_PROXY", "HTTPS_PROXY"};
    calm_arena out, scratch;
    calm_ctx ctx;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    for (size_t i = 0; i < hub->n_files; i++)
        name_blobs(&ctx, &hub->files[i]);
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++)
        unsetenv(proxies[i]);
    hub->listeners[0] = listen_somewhere(hub->endpoint);
    hub->listeners[1] = listen_somewhere(hub->storage);
    must(pipe(hub->wake) == 0 && pthread_create(&hub->thread, NULL, run, hub) == 0, "a thread for the hub");
}

calm_hub_settings hub_settings(const hub_server *hub, const char *cache)
{
    return (calm_hub_settings){.endpoint = hub->endpoint,
                               .cache = cache,
                               .token = hub->token,
                               .token_source = hub->token ? "HF_TOKEN" : NULL,
                               .connect_seconds = 10,
                               .stall_seconds = 1,
                               .attempts = 3,
                               .backoff_ms = 0};
}

void hub_stop(hub_server *hub)
{
    must(write(hub->wake[1], "", 1) == 1 && pthread_join(hub->thread, NULL) == 0, "the hub's thread");
    for (int i = 0; i < 2; i++) {
        close(hub->listeners[i]);
        close(hub->wake[i]);
    }
}

size_t hub_count(const hub_server *hub, const char *method, const char *path)
{
    size_t n = 0;
    for (size_t i = 0; i < hub->n_requests; i++)
        n += (!method || strcmp(hub->requests[i].method, method) == 0) && begins(hub->requests[i].path, path);
    return n;
}
