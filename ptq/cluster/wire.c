/* Sockets and frames. */
#include "ptq/cluster/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define HOST_MAX 256

/* Sets options with which a failed machine is noticed within about 8 s.  For a stopped process (SIGSTOP) the kernel
 * still answers. */
static void keep_alive(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},         {IPPROTO_TCP, TCP_NODELAY, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 2},        {IPPROTO_TCP, TCP_KEEPINTVL, 2},
                   {IPPROTO_TCP, TCP_KEEPCNT, 3},         {IPPROTO_TCP, TCP_USER_TIMEOUT, 8000}};
    /* Failures are ignored: without an option a death is only noticed later. */
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

calm_status calm_wire_listen(calm_ctx *ctx, int *fd, int *port)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in old = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    const int no = 0;
    *fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd >= 0) {
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (bind(*fd, (struct sockaddr *)&address, sizeof address) != 0) {
            close(*fd);
            *fd = -1;
        }
    }
    /* A kernel without IPv6. */
    if (*fd < 0 && (*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0 &&
        bind(*fd, (struct sockaddr *)&old, sizeof old) != 0) {
        close(*fd);
        *fd = -1;
    }
    if (*fd < 0 || listen(*fd, SOMAXCONN) != 0 || getsockname(*fd, (struct sockaddr *)&address, &size) != 0)
        return calm_fail_errno(ctx, errno, "rank 0: cannot listen for the other ranks");
    /* Both kinds of address have the port at the same offset. */
    *port = ntohs(address.sin6_port);
    return CALM_OK;
}

calm_status calm_wire_accept(calm_ctx *ctx, int listening, double seconds, int *fd)
{
    struct pollfd ready = {.fd = listening, .events = POLLIN};
    const int n = poll(&ready, 1, seconds > 0 ? (int)(seconds * 1000) : 0);
    *fd = n > 0 ? accept4(listening, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (*fd < 0)
        return calm_fail(ctx, CALM_EIO, "rank 0: not all ranks connected in time");
    keep_alive(*fd);
    return CALM_OK;
}

void calm_wire_set_patience(int fd, double seconds)
{
    const long microseconds = (long)(seconds * 1e6);
    const struct timeval limit = {.tv_sec = microseconds / 1000000, .tv_usec = microseconds % 1000000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

calm_status calm_wire_connect(calm_ctx *ctx, const char *host, int port, int *fd)
{
    struct addrinfo *found, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char own[HOST_MAX] = "", number[16];
    int error = 0;
    *fd = -1;
    gethostname(own, sizeof own - 1);
    snprintf(number, sizeof number, "%d", port);
    const char *name = strcmp(own, host) == 0 ? "127.0.0.1" : host;
    const int code = getaddrinfo(name, number, &hints, &found);
    if (code != 0)
        return calm_fail(ctx, CALM_EIO, "rank 0 is on %s, whose address is not known here: %s", host,
                         gai_strerror(code));
    for (struct addrinfo *at = found; at && *fd < 0; at = at->ai_next) {
        *fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
        if (*fd >= 0 && connect(*fd, at->ai_addr, at->ai_addrlen) != 0) {
            error = errno;
            close(*fd);
            *fd = -1;
        }
    }
    freeaddrinfo(found);
    if (*fd < 0)
        return calm_fail_errno(ctx, error, "rank 0 on %s, port %d: cannot connect", host, port);
    keep_alive(*fd);
    return CALM_OK;
}

/* ---- frames ---- */

static bool send_all(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

static bool receive_all(int fd, void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t got = recv(fd, (char *)bytes + at, n - at, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

calm_status calm_wire_send(calm_ctx *ctx, int fd, calm_frame_kind kind, calm_status status, const void *bytes,
                           size_t n)
{
    const calm_frame frame = {.kind = (uint32_t)kind, .status = (uint32_t)status, .n = n};
    if (n > CALM_FRAME_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "a message of %zu bytes to another rank is too long", n);
    if (!send_all(fd, &frame, sizeof frame) || !send_all(fd, bytes, n))
        return calm_fail(ctx, CALM_EIO, "a rank of this run is gone");
    return CALM_OK;
}

calm_status calm_wire_receive(calm_ctx *ctx, int fd, calm_arena *arena, calm_frame *frame, char **bytes)
{
    *bytes = NULL;
    if (!receive_all(fd, frame, sizeof *frame))
        return calm_fail(ctx, CALM_ENOTFOUND, "a rank of this run is gone");
    if (frame->kind < CALM_FRAME_HELLO || frame->kind > CALM_FRAME_ANSWER || frame->n > CALM_FRAME_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "what came from another rank is no message of calm");
    CALM_TRY(CALM_NEW_RAW(ctx, arena, *bytes, (size_t)frame->n + 1));
    (*bytes)[frame->n] = '\0';
    if (!receive_all(fd, *bytes, (size_t)frame->n))
        return calm_fail(ctx, CALM_ENOTFOUND, "a rank of this run is gone");
    return CALM_OK;
}
