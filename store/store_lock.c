/* The writer's lock: flock on <store>.lock, whose text names the holder.
 *
 *   4711 calm quantize --model qwen
 *
 * The kernel releases the lock when its holder dies, so a stale file never blocks.  The file is never removed, because
 * two processes could then lock two files of one name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "ptq/base/threads.h"
#include "store/store_impl.h"

#define HOLDER_MAX 400
#define POLL_MS 50L    /* between two looks at the lock */

/* Reads the holder from the file, which may be empty because the holder has not written it yet. */
static void read_holder(int fd, char holder[HOLDER_MAX])
{
    char text[HOLDER_MAX];
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    char *command = text;
    const char *number = strsep(&command, " ");
    if (command)
        snprintf(holder, HOLDER_MAX, "process %.20s (%.300s)", number, command);
    else
        snprintf(holder, HOLDER_MAX, "another process");
}

/* Writes the holder.  A failure is ignored, because a full disk must not keep a writer from locking. */
static void write_holder(int fd, const char *command)
{
    char text[HOLDER_MAX];
    int n = snprintf(text, sizeof text, "%ld %.300s\n", (long)getpid(), command ? command : "calm");
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) < 0)
        return;
}

static calm_status wait_for(calm_ctx *ctx, const char *path, const calm_store_how *how, int fd)
{
    const double begin = calm_seconds();
    char holder[HOLDER_MAX];
    for (bool warned = false; flock(fd, LOCK_EX | LOCK_NB) != 0; warned = true) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return calm_fail_errno(ctx, errno, "%s.lock: cannot lock", path);
        read_holder(fd, holder);
        if (how->wait_seconds >= 0 && calm_seconds() - begin >= how->wait_seconds)
            return calm_fail(ctx, CALM_EBUSY, "%s: %s is writing to this store", path, holder);
        if (!warned)
            calm_log(ctx, CALM_LOG_WARNING, "%s: waiting for %s, which is writing to this store", path, holder);
        CALM_TRY(calm_sleep(ctx, POLL_MS));
    }
    write_holder(fd, how->command);
    return CALM_OK;
}

calm_status calm_store_lock(calm_ctx *ctx, const char *path, const calm_store_how *how, int *fd)
{
    char *name;
    *fd = -1;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.lock", path));
    int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot create", name);
    calm_status status = wait_for(ctx, path, how, file);
    if (status == CALM_OK)
        *fd = file;
    else
        close(file);
    return status;
}

void calm_store_unlock(int fd)
{
    if (fd < 0)
        return;
    if (ftruncate(fd, 0) != 0)
        errno = 0;    /* the text is informative only */
    close(fd);
}
