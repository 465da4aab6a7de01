/* Frames over sockets: sent and received, cut off anywhere, and invalid ones. */
#include "ptq/cluster/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/harness.h"

static int ends[2];

static void connect_ends(void)
{
    int listening, port;
    ck_ok(calm_wire_listen(ctx, &listening, &port));
    ck_assert_int_gt(port, 0);
    ck_ok(calm_wire_connect(ctx, "127.0.0.1", port, &ends[0]));
    ck_ok(calm_wire_accept(ctx, listening, 5, &ends[1]));
    close(listening);
}

static void close_ends(void)
{
    close(ends[0]);
    close(ends[1]);
}

TEST(there_and_back)
{
    calm_frame frame;
    char *bytes;
    connect_ends();
    ck_ok(calm_wire_send(ctx, ends[0], CALM_FRAME_FAILED, CALM_ENOSPC, "disk full", 10));
    ck_ok(calm_wire_send(ctx, ends[0], CALM_FRAME_DONE, CALM_OK, NULL, 0));
    ck_ok(calm_wire_receive(ctx, ends[1], ctx->out, &frame, &bytes));
    ck_assert_uint_eq(frame.kind, CALM_FRAME_FAILED);
    ck_assert_uint_eq(frame.status, CALM_ENOSPC);
    ck_assert_uint_eq(frame.n, 10);
    ck_assert_str_eq(bytes, "disk full");
    ck_ok(calm_wire_receive(ctx, ends[1], ctx->out, &frame, &bytes));
    ck_assert_uint_eq(frame.kind, CALM_FRAME_DONE);
    ck_assert_str_eq(bytes, "");
    close_ends();
}
END_OF_TEST

/* The other end closes after this many bytes of a frame. */
TEST(cut_off)
{
    const struct {
        calm_frame frame;
        char rest[8];
    } whole = {{CALM_FRAME_PLACE, CALM_OK, 8}, "block 3"};
    calm_frame frame;
    char *bytes;
    for (size_t n = 0; n < sizeof whole; n++) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        ck_assert_int_eq(write(ends[0], &whole, n), (ssize_t)n);
        close(ends[0]);
        ck_fails(calm_wire_receive(ctx, ends[1], ctx->out, &frame, &bytes), CALM_ENOTFOUND, "is gone");
        close(ends[1]);
    }
}
END_OF_TEST

TEST(no_frames)
{
    const calm_frame wrong[] = {{0, 0, 0}, {CALM_FRAME_ANSWER + 1, 0, 0}, {CALM_FRAME_ROWS, 0, CALM_FRAME_MAX + 1}};
    calm_frame frame;
    char *bytes;
    connect_ends();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(write(ends[0], &wrong[i], sizeof wrong[i]), (ssize_t)sizeof wrong[i]);
        ck_fails(calm_wire_receive(ctx, ends[1], ctx->out, &frame, &bytes), CALM_EFORMAT, "no message of calm");
    }
    ck_fails(calm_wire_send(ctx, ends[0], CALM_FRAME_ROWS, CALM_OK, "", CALM_FRAME_MAX + 1), CALM_EFORMAT, "too long");
    close_ends();
}
END_OF_TEST

/* A stranger that connects and says nothing. */
TEST(a_silent_end)
{
    calm_frame frame;
    char *bytes;
    connect_ends();
    calm_wire_set_patience(ends[1], 0.05);
    ck_fails(calm_wire_receive(ctx, ends[1], ctx->out, &frame, &bytes), CALM_ENOTFOUND, "is gone");
    calm_wire_set_patience(ends[1], 0);
    ck_ok(calm_wire_send(ctx, ends[0], CALM_FRAME_DONE, CALM_OK, NULL, 0));
    ck_ok(calm_wire_receive(ctx, ends[1], ctx->out, &frame, &bytes));
    close_ends();
}
END_OF_TEST

TEST(nobody_there)
{
    int listening, port, fd;
    ck_ok(calm_wire_listen(ctx, &listening, &port));
    ck_fails(calm_wire_accept(ctx, listening, 0.05, &fd), CALM_EIO, "not all ranks connected in time");
    close(listening);
    ck_fails(calm_wire_connect(ctx, "127.0.0.1", port, &fd), CALM_EIO, "cannot connect");
    ck_fails(calm_wire_connect(ctx, "no.such.host.invalid", port, &fd), CALM_EIO, "not known here");
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[1]);
    ck_fails(calm_wire_send(ctx, ends[0], CALM_FRAME_DONE, CALM_OK, NULL, 0), CALM_EIO, "is gone");
    close(ends[0]);
}
END_OF_TEST

int main(void)
{
    return run_tests("wire", (const TTest *[]){there_and_back, cut_off, no_frames, a_silent_end, nobody_there, NULL});
}
