/* For tests/tools/cover_cc: what gcc's --coverage has counted is written before a process leaves without exit(). */
#ifndef CALM_COVER_EXIT_H
#define CALM_COVER_EXIT_H
#include <signal.h>
#include <unistd.h>

/* libgcov's: write the counts now. */
void __gcov_dump(void);

/* There is no sanitizer here that finds leaks. */
static inline int cover_leaks(void)
{
    return 0;
}
#define _exit(code) (__gcov_dump(), (_exit)(code))
#define raise(signal) (__gcov_dump(), (raise)(signal))
#define __lsan_do_recoverable_leak_check cover_leaks
#endif
