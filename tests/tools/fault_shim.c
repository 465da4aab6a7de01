/* A machine that fails under any program:  LD_PRELOAD=libfault_shim.so CALM_FAULT_AT=57 CALM_FAULT_DO=kill calm ...
 *
 *   CALM_FAULT_AT=N         the N-th call that changes the disk fails (tests/support/faults.h lists these calls)
 *   CALM_FAULT_DO=WHAT      kill: SIGKILL before it; tear: SIGKILL after half of a write; ENOSPC, EIO: it fails
 *   CALM_FAULT_STICKY=1     all later calls fail too, as on a full disk; removing works
 *   CALM_FAULT_COUNT=FILE   file for the number of calls, written at the end
 *   CALM_FAULT_LIST=FILE    file for a line "NUMBER CALL PATH" per call
 *
 * Calls on these files do not count.  A malformed setting ends the program with status 99. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/faults.h"

static void give_up(const char *name)
{
    fprintf(stderr, "fault_shim: %s makes no sense\n", name);
    _exit(99);
}

static int open_raw(const char *name)
{
    const char *path = getenv(name);
    if (!path)
        return -1;
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        give_up(name);
    return fd;
}

static void read_what(const char *what, fault *out)
{
    if (!what)
        give_up("CALM_FAULT_DO");
    else if (strcmp(what, "ENOSPC") == 0)
        out->error = ENOSPC;
    else if (strcmp(what, "EIO") == 0)
        out->error = EIO;
    else if (strcmp(what, "kill") == 0)
        out->before = true;
    else if (strcmp(what, "tear") != 0)
        give_up("CALM_FAULT_DO");
}

__attribute__((constructor)) static void begin(void)
{
    fault wanted = {0};
    const char *at = getenv("CALM_FAULT_AT"), *sticky = getenv("CALM_FAULT_STICKY");
    char *end;
    fault_list(open_raw("CALM_FAULT_LIST"));
    if (at) {
        wanted.at = strtol(at, &end, 10);
        if (end == at || *end || wanted.at < 1)
            give_up("CALM_FAULT_AT");
        read_what(getenv("CALM_FAULT_DO"), &wanted);
    }
    wanted.stays = sticky && strcmp(sticky, "1") == 0;
    fault_plan(wanted);
}

__attribute__((destructor)) static void finish(void)
{
    char line[24];
    const int fd = open_raw("CALM_FAULT_COUNT");
    const int n = snprintf(line, sizeof line, "%ld\n", fault_calls());
    if (fd >= 0) {
        syscall(SYS_write, fd, line, (size_t)n);
        syscall(SYS_close, fd);
    }
}
