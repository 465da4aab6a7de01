/* The control connection between rank 0 and another rank: frames over a TCP socket.
 *
 * MPI does not say that a rank has died; a socket does, at once where a process was killed and after seconds where its
 * machine is gone, and what was sent before arrives before that. */
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

/* The most of a frame: rows of one candidate, of one hook point; a part of a text. */
#define CALM_FRAME_MAX ((uint64_t)64 << 20)

/* Listen on a free port of this machine: *fd, and its number. */
calm_status calm_wire_listen(calm_ctx *ctx, int *fd, int *port);

/* Accept one connection within this many seconds, or one that waits where they are over.  CALM_EIO: none came. */
calm_status calm_wire_accept(calm_ctx *ctx, int listening, double seconds, int *fd);

/* Connect to a machine by its name, this one by its loopback.  CALM_EIO: no address of it answers. */
calm_status calm_wire_connect(calm_ctx *ctx, const char *host, int port, int *fd);

/* Send a frame and bytes [n].  CALM_EIO: the other end is gone. */
calm_status calm_wire_send(calm_ctx *ctx, int fd, calm_frame_kind kind, calm_status status, const void *bytes,
                           size_t n);

/* Receive one frame; *bytes [frame->n], with a NUL behind them, in `arena`.  CALM_ENOTFOUND: the other end is gone.
 * CALM_EFORMAT: what came is no frame. */
calm_status calm_wire_receive(calm_ctx *ctx, int fd, calm_arena *arena, calm_frame *frame, char **bytes);
