/* The control connection between rank 0 and another rank: frames over a TCP socket.
 *
 * MPI does not report that a rank has died.  A socket does, at once if the process was killed and after seconds if its
 * machine failed; and bytes sent before arrive first. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ptq/base/context.h"

typedef enum calm_frame_kind {
    CALM_FRAME_HELLO = 1,    /* to rank 0: token, rank, process and machine   */
    CALM_FRAME_PLACE,        /* what the sender works on, as text             */
    CALM_FRAME_ROWS,         /* to rank 0: rows of the store                  */
    CALM_FRAME_DONE,         /* to rank 0: no more rows come                  */
    CALM_FRAME_FAILED,       /* to rank 0: status, then a sentence            */
    CALM_FRAME_END,          /* from rank 0: status; the run is over          */
    CALM_FRAME_WORK,         /* from rank 0: something to compute             */
    CALM_FRAME_ANSWER,       /* to rank 0: the result; the last kind         */
} calm_frame_kind;

typedef struct calm_frame {
    uint32_t kind, status;
    uint64_t n;              /* bytes that follow */
} calm_frame;

/* The largest number of bytes in a frame: the rows of one candidate or hook point, or a part of a text. */
#define CALM_FRAME_MAX ((uint64_t)64 << 20)

/* Listens on a free port of this machine; returns the socket and the port. */
calm_status calm_wire_listen(calm_ctx *ctx, int *fd, int *port);

/* Accepts one connection within this many seconds; with seconds <= 0 only one that already waits.  CALM_EIO: none
 * came. */
calm_status calm_wire_accept(calm_ctx *ctx, int listening, double seconds, int *fd);

/* Sets how many seconds a receive waits for the next bytes, after which the other end counts as gone; 0: without
 * limit. */
void calm_wire_set_patience(int fd, double seconds);

/* Connects to a machine by its name, to this machine through the loopback.  CALM_EIO: no address of it answers. */
calm_status calm_wire_connect(calm_ctx *ctx, const char *host, int port, int *fd);

/* Sends a frame and bytes [n].  CALM_EIO: the other end has closed the connection. */
calm_status calm_wire_send(calm_ctx *ctx, int fd, calm_frame_kind kind, calm_status status, const void *bytes,
                           size_t n);

/* Receives one frame; *bytes [frame->n], followed by a NUL, in `arena`.  CALM_ENOTFOUND: the other end has closed the
 * connection.  CALM_EFORMAT: the bytes are not a frame. */
calm_status calm_wire_receive(calm_ctx *ctx, int fd, calm_arena *arena, calm_frame *frame, char **bytes);
