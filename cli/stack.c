/* Gives the program a larger stack if the system's is too small for OpenBLAS and SQLite. */
#include "cli/stack.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEAST_BYTES ((rlim_t)1 << 20)
#define STACK_BYTES ((size_t)8 << 20)

typedef struct call {
    int (*body)(int argc, char **argv);
    int argc, status;
    char **argv;
} call;

static void *enter(void *user)
{
    call *of = user;
    of->status = of->body(of->argc, of->argv);
    return NULL;
}

static bool is_small(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < LEAST_BYTES;
}

int calm_with_stack(int (*body)(int argc, char **argv), int argc, char **argv)
{
    call of = {.body = body, .argc = argc, .argv = argv};
    pthread_attr_t attributes;
    pthread_t thread;
    if (!is_small())
        return body(argc, argv);
    /* OpenMP reads OMP_STACKSIZE while it is loaded. */
    if (!getenv("OMP_STACKSIZE") && setenv("OMP_STACKSIZE", "8M", 1) == 0)
        execv("/proc/self/exe", argv);
    if (pthread_attr_init(&attributes) != 0)
        return body(argc, argv);
    const bool made = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                      pthread_create(&thread, &attributes, enter, &of) == 0;
    pthread_attr_destroy(&attributes);
    if (!made)
        return body(argc, argv);
    pthread_join(thread, NULL);
    return of.status;
}
