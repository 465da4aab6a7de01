/* OpenBLAS chooses its kernels while it is loaded, so that pinning them means execv. */
#include "cli/kernels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ptq/tensor/linalg.h"

#define VARIABLE "OPENBLAS_CORETYPE"
#define STARTED "CALM_KERNELS"    /* set before execv: a second attempt would loop */
#define WORDS_MAX 4096

/* Does the CPU have the instructions of these kernels?  OpenBLAS does not check, and an illegal instruction would end
 * the program. */
static bool cpu_runs(const char *name)
{
#if defined(__x86_64__)
    const bool avx = __builtin_cpu_supports("avx");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    const struct {
        const char *name;
        bool runs;
    } kernels[] = {{"SkylakeX", avx512}, {"Cooperlake", avx512}, {"SapphireRapids", avx512}, {"Haswell", avx2},
                   {"Zen", avx2}, {"Excavator", avx2}, {"Sandybridge", avx}, {"Bulldozer", avx}, {"Piledriver", avx},
                   {"Steamroller", avx}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcasecmp(name, kernels[i].name) == 0)
            return kernels[i].runs;
#else
    (void)name;
#endif
    return true;
}

/* The words of this process's command line, in ctx->scratch. */
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

static calm_status start_anew(calm_ctx *ctx, const char *name)
{
    char **argv;
    CALM_TRY(own_command(ctx, &argv));
    if (setenv(VARIABLE, name, 1) != 0 || setenv(STARTED, name, 1) != 0)
        return calm_fail(ctx, CALM_ENOMEM, "kernels %s: out of memory", name);
    execv("/proc/self/exe", argv);
    return calm_fail_errno(ctx, errno, "kernels %s: cannot start the program anew", name);
}

calm_status calm_kernels_pin(calm_ctx *ctx, const char *name)
{
    const char *started = getenv(STARTED), *have = calm_linalg_kernels();
    if (!name || strcasecmp(name, have) == 0)
        return CALM_OK;
    if (!cpu_runs(name))
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "kernels %s: this CPU lacks instructions that they need; it computes with %s", name, have);
    if (started && strcmp(started, name) == 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "kernels %s: OpenBLAS has no such kernels here; it computes with %s "
                                                 "(known: Nehalem, Sandybridge, Haswell, Zen, SkylakeX)", name, have);
    return start_anew(ctx, name);
}
