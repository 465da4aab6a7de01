/* peak_memory CMD...: runs a command and prints its wall time, processor time and peak resident memory as a line on
 * standard error; the exit status is the command's (128 + signal if a signal ended it). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/threads.h"

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        fprintf(argc < 2 ? stderr : stdout,
                "peak_memory CMD...\nRuns CMD and prints its times and its peak resident memory (the largest of its "
                "processes) on standard error.\n");
        return argc < 2 ? 2 : EXIT_SUCCESS;
    }
    const double start = calm_seconds();
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[1], argv + 1);
        fprintf(stderr, "peak_memory: %s: %s\n", argv[1], strerror(errno));
        _exit(127);
    }
    int status = 0;
    struct rusage usage;
    pid_t ended;
    do
        ended = child < 0 ? -1 : wait4(child, &status, 0, &usage);
    while (ended < 0 && child > 0 && errno == EINTR);
    if (ended < 0) {
        perror("peak_memory");
        return 126;
    }
    fprintf(stderr, "peak_memory: wall %.2f s, user %.2f s, system %.2f s, peak %.1f MB\n", calm_seconds() - start,
            seconds(usage.ru_utime), seconds(usage.ru_stime), (double)usage.ru_maxrss * 1024e-6);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
