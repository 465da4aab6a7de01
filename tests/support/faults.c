/* The calls that faults.h counts. */
#include "tests/support/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4400

static fault planned;
static atomic_long n_calls;
static int list_fd = -1;

void fault_plan(fault wanted)
{
    planned = wanted;
    atomic_store(&n_calls, 0);
}

long fault_calls(void)
{
    return atomic_load(&n_calls);
}

void fault_list(int fd)
{
    list_fd = fd;
}

/* ---- counting ---- */

static void note(long number, const char *call, const char *path, int fd)
{
    char line[LINE_MAX_BYTES], link[32], name[4096] = "";
    if (list_fd < 0)
        return;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, name, sizeof name - 1);
        name[n > 0 ? n : 0] = '\0';
    }
    const int n = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path ? path : name);
    syscall(SYS_write, list_fd, line, (size_t)n);
}

/* Counts a call on a path, or on a descriptor if the path is NULL; returns whether the fault is due. */
static bool is_due(const char *call, const char *path, int fd, bool frees)
{
    const long number = atomic_fetch_add(&n_calls, 1) + 1;
    note(number, call, path, fd);
    return planned.at && (number == planned.at || (planned.stays && number > planned.at && !frees));
}

/* Is the descriptor no terminal, pipe, socket or device? */
static bool on_disk(int fd)
{
    struct stat info;
    const int before = errno;
    const bool is = fd > STDERR_FILENO && fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
    errno = before;
    return is;
}

static bool due_on(const char *call, int fd)
{
    return on_disk(fd) && is_due(call, NULL, fd, false);
}

static bool due_at(const char *call, const char *path)
{
    return is_due(call, path, -1, false);
}

/* Kills the process or sets errno, instead of the call. */
static int strike(void)
{
    if (!planned.error)
        kill(getpid(), SIGKILL);
    errno = planned.error;
    return -1;
}

/* Should a write do half of its bytes before the kill, so that files end in the middle of data? */
static bool in_the_middle(void)
{
    return !planned.error && !planned.before;
}

/* ---- opening ---- */

/* Will the call create or truncate a file? */
static bool changes(int dir, const char *path, int flags)
{
    const int before = errno;
    const bool makes = (flags & O_CREAT) && faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    errno = before;
    return (makes || (flags & O_TRUNC)) && strncmp(path, "/dev/", 5) != 0;
}

static int open_at(const char *call, int dir, const char *path, int flags, mode_t mode)
{
    if (changes(dir, path, flags) && due_at(call, path))
        return strike();
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

#define MODE_OF(flags)                                                   \
    mode_t mode = 0;                                                     \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {              \
        va_list list;                                                    \
        va_start(list, flags);                                           \
        mode = va_arg(list, mode_t);                                     \
        va_end(list);                                                    \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at("open", AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at("open", AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at("openat", dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at("openat", dir, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
    return open_at("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* Opens a stream: the C library's streams do not call the functions of this file. */
static FILE *open_stream(const char *path, const char *how)
{
    static FILE *(*next)(const char *, const char *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    if (strpbrk(how, "wa+") && strncmp(path, "/dev/", 5) != 0 && due_at("fopen", path)) {
        strike();
        return NULL;
    }
    return next(path, how);
}

FILE *fopen(const char *restrict path, const char *restrict how)
{
    return open_stream(path, how);
}

FILE *fopen64(const char *restrict path, const char *restrict how)
{
    return open_stream(path, how);
}

/* ---- writing ---- */

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (!due_on("write", fd))
        return syscall(SYS_write, fd, bytes, n);
    if (in_the_middle())
        syscall(SYS_write, fd, bytes, n / 2);
    return strike();
}

static ssize_t write_at(int fd, const void *bytes, size_t n, off64_t offset)
{
    if (!due_on("pwrite", fd))
        return syscall(SYS_pwrite64, fd, bytes, n, offset);
    if (in_the_middle())
        syscall(SYS_pwrite64, fd, bytes, n / 2, offset);
    return strike();
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t offset)
{
    return write_at(fd, bytes, n, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    return write_at(fd, bytes, n, offset);
}

ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    if (!due_on("writev", fd))
        return syscall(SYS_writev, fd, pieces, n);
    if (in_the_middle())
        syscall(SYS_writev, fd, pieces, n / 2);
    return strike();
}

static ssize_t write_pieces_at(int fd, const struct iovec *pieces, int n, off64_t offset)
{
    if (!due_on("pwritev", fd))
        return syscall(SYS_pwritev, fd, pieces, n, offset, 0);
    if (in_the_middle())
        syscall(SYS_pwritev, fd, pieces, n / 2, offset, 0);
    return strike();
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int n, off64_t offset)
{
    return write_pieces_at(fd, pieces, n, offset);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t offset)
{
    return write_pieces_at(fd, pieces, n, offset);
}

/* Streams in memory have descriptor -1. */
size_t fwrite(const void *restrict bytes, size_t size, size_t n, FILE *restrict stream)
{
    if (!due_on("fwrite", fileno(stream)))
        return fwrite_unlocked(bytes, size, n, stream);
    if (in_the_middle()) {
        fwrite_unlocked(bytes, size, n / 2, stream);
        fflush_unlocked(stream);
    }
    strike();
    return 0;
}

int fflush(FILE *stream)
{
    if (!stream || !due_on("fflush", fileno(stream)))
        return fflush_unlocked(stream);
    return strike();
}

int fsync(int fd)
{
    return due_on("fsync", fd) ? strike() : 0;
}

int fdatasync(int fd)
{
    return due_on("fdatasync", fd) ? strike() : 0;
}

/* ---- sizes ---- */

int ftruncate64(int fd, off64_t n)
{
    return due_on("ftruncate", fd) ? strike() : (int)syscall(SYS_ftruncate, fd, n);
}

int ftruncate(int fd, off_t n)
{
    return due_on("ftruncate", fd) ? strike() : (int)syscall(SYS_ftruncate, fd, n);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t n)
{
    return due_on("fallocate", fd) ? strike() : (int)syscall(SYS_fallocate, fd, mode, offset, n);
}

int fallocate(int fd, int mode, off_t offset, off_t n)
{
    return fallocate64(fd, mode, offset, n);
}

/* Returns the error, not -1. */
int posix_fallocate64(int fd, off64_t offset, off64_t n)
{
    const int before = errno, reason = fallocate64(fd, 0, offset, n) == 0 ? 0 : errno;
    errno = before;
    return reason;
}

int posix_fallocate(int fd, off_t offset, off_t n)
{
    return posix_fallocate64(fd, offset, n);
}

/* ---- names ---- */

int rename(const char *from, const char *to)
{
    return due_at("rename", to) ? strike() : (int)syscall(SYS_rename, from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (planned.no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return due_at("renameat2", to) ? strike() : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int link(const char *from, const char *to)
{
    return due_at("link", to) ? strike() : (int)syscall(SYS_link, from, to);
}

int symlink(const char *content, const char *path)
{
    return due_at("symlink", path) ? strike() : (int)syscall(SYS_symlink, content, path);
}

int mkdir(const char *path, mode_t mode)
{
    return due_at("mkdir", path) ? strike() : (int)syscall(SYS_mkdir, path, mode);
}

int unlink(const char *path)
{
    return is_due("unlink", path, -1, true) ? strike() : (int)syscall(SYS_unlink, path);
}

int unlinkat(int dir, const char *path, int flags)
{
    return is_due("unlinkat", path, -1, true) ? strike() : (int)syscall(SYS_unlinkat, dir, path, flags);
}

int rmdir(const char *path)
{
    return is_due("rmdir", path, -1, true) ? strike() : (int)syscall(SYS_rmdir, path);
}
