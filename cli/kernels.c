/* While they are loaded, OpenBLAS chooses its kernels and OpenMP how long threads spin, so another choice needs
 * execv. */
#include "cli/kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/rank_options.h"
#include "ptq/base/threads.h"
#include "ptq/stored/stored.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/linalg_memory.h"

#define OWN_CHOICE "CALM_OWN_KERNELS"    /* tells the new process what OpenBLAS chose in the old one */
#define WORDS_MAX 4096

/* The user named kernels, so calm does not mention better ones. */
static bool wished;

/* libgomp's threads spin for some milliseconds at the end of every loop.  If another program uses one of the cores,
 * each end costs a time slice: learning, whose loops are short, took fifty times as long.  A thousand turns, some ten
 * microseconds, cost as much as waking up.  OpenBLAS's own threads, which calm leaves idle, spin when they are made. */
static bool spins(void)
{
    return !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT");
}

#define OWN_THREADS "OPENBLAS_NUM_THREADS"

/* While it is loaded, OpenBLAS makes threads, which ask for buffers until they get them. */
static bool starves(void)
{
    return calm_linalg_is_limited() && !getenv(OWN_THREADS);
}

#ifdef __GLIBC__    /* glibc's loader passes the arguments of main to constructors */
static bool has_own_threads(char *const *env)
{
    bool found = false;
    for (; *env && !found; env++)
        found = strncmp(*env, OWN_THREADS "=", sizeof OWN_THREADS) == 0;
    return found;
}

/* Replaces the program by itself with one OpenBLAS thread; returns if that fails. */
static void start_with_one_thread(char **argv, char **env)
{
    static char one[] = OWN_THREADS "=1", *with[WORDS_MAX + 2];
    size_t n = 0;
    while (env[n] && n < WORDS_MAX) {
        with[n] = env[n];
        n++;
    }
    if (env[n])    /* the environment does not fit */
        return;
    with[n] = one;
    execve("/proc/self/exe", argv, with);
}

/* Runs before the constructors of libraries, because OpenBLAS's would ask for memory without end.  The C library has
 * no environment yet, so setenv would have no effect. */
static void before_libraries(int argc, char **argv, char **env)
{
    char text[256];
    (void)argc;
    if (calm_linalg_cannot_load(text, sizeof text)) {
        dprintf(STDERR_FILENO, "calm: %s\n", text);
        _exit(calm_exit_status(CALM_ENOMEM));
    }
    if (calm_linalg_is_limited() && !has_own_threads(env))
        start_with_one_thread(argv, env);
}

__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_libraries;
#endif

static bool settle(void)
{
    return (!spins() || setenv("GOMP_SPINCOUNT", "1000", 1) == 0) && setenv(OWN_THREADS, "1", 0) == 0;
}

/* Reads the words of this process's command line into ctx->scratch. */
static calm_status own_command(calm_ctx *ctx, char ***argv)
{
    static const char path[] = "/proc/self/cmdline";
    char *word = NULL;
    size_t room = 0, n = 0;
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return calm_fail_errno(ctx, errno, "%s: cannot open", path);
    calm_status status = CALM_NEW(ctx, ctx->scratch, *argv, WORDS_MAX + 1);
    while (status == CALM_OK && n < WORDS_MAX && getdelim(&word, &room, '\0', stream) > 0)
        status = calm_strf(ctx, ctx->scratch, &(*argv)[n++], "%s", word);
    free(word);
    fclose(stream);
    return status;
}

/* Replaces the program by itself with kernels `name`; NULL: the loaded kernels.  `own`: OpenBLAS chose the loaded
 * kernels, and the user asked for no others. */
static calm_status start_anew(calm_ctx *ctx, const char *name, bool own)
{
    char **argv;
    CALM_TRY(own_command(ctx, &argv));
    if ((name && (own ? setenv(OWN_CHOICE, calm_linalg_kernels(), 1) : unsetenv(OWN_CHOICE)) != 0) ||
        (name && setenv(CALM_BLAS_VARIABLE, name, 1) != 0) || !settle())
        return calm_fail(ctx, CALM_ENOMEM, "cannot restart the program: out of memory");
    calm_parallel_unbind();
    execv("/proc/self/exe", argv);
    return calm_fail_errno(ctx, errno, "cannot restart the program");
}

calm_status calm_kernels_pin(calm_ctx *ctx, const char *name)
{
    const char *wanted = calm_linalg_wanted(name), *have = calm_linalg_kernels(), *set = getenv(CALM_BLAS_VARIABLE);
    wished = name != NULL;
    if (strcasecmp(wanted, have) == 0) {
        if (((ctx->n_threads > 1 && spins()) || starves()) && start_anew(ctx, NULL, false) != CALM_OK)
            calm_ctx_clear_failure(ctx);    /* calm works without it too */
        return calm_linalg_reserve(ctx);
    }
    if (!calm_blas_runs(calm_cpu_features(), wanted))
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "kernels %s: this CPU lacks instructions that they need; it computes with %s", wanted, have);
    /* OpenBLAS was asked for these kernels and took others; another start would do the same forever. */
    if (set && strcasecmp(set, wanted) == 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "kernels %s: OpenBLAS has no such kernels here; it computes with %s "
                                                 "(known: Nehalem, Sandybridge, Haswell, Zen, SkylakeX)", wanted, have);
    return start_anew(ctx, wanted, !name);
}

calm_status calm_kernels_pin_run(calm_ctx *ctx, const char *store, int64_t run)
{
    calm_store *open;
    const char *name = NULL;
    CALM_TRY(calm_store_open(ctx, store, NULL, &open));
    calm_status status = calm_stored_run_kernels(ctx, open, run, &name);
    calm_store_close(open);    /* before this process is replaced */
    if (status == CALM_OK)
        status = calm_kernels_pin(ctx, name);
    if (status != CALM_EUNSUPPORTED || !name)
        return status;
    calm_ctx_clear_failure(ctx);
    return calm_kernels_pin(ctx, NULL);
}

const char *calm_kernels_replaced(void)
{
    const char *own = getenv(OWN_CHOICE);
    return own && strcasecmp(own, calm_linalg_kernels()) != 0 ? own : NULL;
}

/* Returns the better family that this CPU runs if OPENBLAS_CORETYPE names a worse one; NULL: none. */
static const char *held_below(void)
{
    const char *set = getenv(CALM_BLAS_VARIABLE), *have = calm_linalg_kernels();
    if (wished || !set || !*set)
        return NULL;
    const char *best = calm_blas_choose(calm_cpu_features(), have, NULL, NULL);
    return strcasecmp(best, have) == 0 ? NULL : best;
}

void calm_kernels_note(calm_ctx *ctx)
{
    static bool noted;
    const char *own = calm_kernels_replaced(), *have = calm_linalg_kernels(), *best = held_below();
    if (own && !noted)
        calm_log(ctx, CALM_LOG_INFO,
                 "this OpenBLAS does not know the CPU and would use its %s kernels; calm computes with %s, which "
                 "the CPU runs (`kernels` or " CALM_BLAS_VARIABLE " choose others)", own, have);
    else if (best && !noted)
        calm_log(ctx, CALM_LOG_INFO,
                 CALM_BLAS_VARIABLE " is set: calm computes with %s kernels, though the CPU runs %s, which are faster",
                 have, best);
    noted = true;
    calm_linalg_note_limit(ctx);
}

void calm_kernels_print(FILE *stream)
{
    const char *own = getenv(OWN_CHOICE), *set = getenv(CALM_BLAS_VARIABLE), *best = held_below();
    if (own)
        fprintf(stream, "%s (OpenBLAS's own choice: %s)\n", calm_linalg_version(), own);
    else if (best)
        fprintf(stream, "%s (by " CALM_BLAS_VARIABLE ", though this CPU runs %s)\n", calm_linalg_version(), best);
    else
        fprintf(stream, "%s (%s)\n", calm_linalg_version(),
                set && *set ? "by " CALM_BLAS_VARIABLE : "OpenBLAS's own choice");
}
