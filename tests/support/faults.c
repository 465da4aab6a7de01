/* The calls that faults.h counts. */
#include "tests/support/faults.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static fault planned;
static long n_calls;

void fault_plan(fault wanted)
{
    planned = wanted;
    n_calls = 0;
}

long fault_calls(void)
{
    return n_calls;
}

static bool is_due(void)
{
    n_calls++;
    return planned.at && (n_calls == planned.at || (planned.stays && n_calls > planned.at));
}

/* What happens instead of the call. */
static int strike(void)
{
    if (!planned.error)
        kill(getpid(), SIGKILL);
    errno = planned.error;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (fd <= STDERR_FILENO || !is_due())
        return syscall(SYS_write, fd, bytes, n);
    if (!planned.error)
        syscall(SYS_write, fd, bytes, n / 2);
    return strike();
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t offset)
{
    if (!is_due())
        return syscall(SYS_pwrite64, fd, bytes, n, offset);
    if (!planned.error)
        syscall(SYS_pwrite64, fd, bytes, n / 2, offset);
    return strike();
}

size_t fwrite(const void *restrict bytes, size_t size, size_t n, FILE *restrict stream)
{
    if (fileno(stream) <= STDERR_FILENO || !is_due())    /* in memory: -1 */
        return fwrite_unlocked(bytes, size, n, stream);
    if (!planned.error) {
        fwrite_unlocked(bytes, size, n / 2, stream);
        fflush_unlocked(stream);
    }
    strike();
    return 0;
}

int fflush(FILE *stream)
{
    if (!stream || fileno(stream) <= STDERR_FILENO || !is_due())
        return fflush_unlocked(stream);
    return strike();
}

int fsync(int fd)
{
    (void)fd;
    return is_due() ? strike() : 0;
}

int fdatasync(int fd)
{
    (void)fd;
    return is_due() ? strike() : 0;
}

int ftruncate64(int fd, off64_t n)
{
    return is_due() ? strike() : (int)syscall(SYS_ftruncate, fd, n);
}

int rename(const char *from, const char *to)
{
    return is_due() ? strike() : (int)syscall(SYS_rename, from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (planned.no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return is_due() ? strike() : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return is_due() ? strike() : (int)syscall(SYS_mkdir, path, mode);
}
