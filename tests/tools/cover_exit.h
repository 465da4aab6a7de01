/* For tests/tools/cover_cc: writes the counts of gcc's --coverage before a process ends without exit(). */
#ifndef CALM_COVER_EXIT_H
#define CALM_COVER_EXIT_H
#include <signal.h>
#include <unistd.h>

/* A function of libgcov that writes the counts now. */
void __gcov_dump(void);

/* Coverage builds have no leak sanitizer. */
static inline int cover_leaks(void)
{
    return 0;
}
#define _exit(code) (__gcov_dump(), (_exit)(code))
#define raise(signal) (__gcov_dump(), (raise)(signal))
#define __lsan_do_recoverable_leak_check cover_leaks
#endif
