/* Properties of this program and this machine that determine the bytes of results, and the name of the CPU.
 *
 * Results depend on calm's version, the compiler, OpenBLAS with its kernel family, and the mathematical library, but
 * not on the number of threads. */
#include "ptq/state/environment.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <string.h>

#include "calm_commit.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/linalg.h"

#define LINE_MAX_BYTES 256

/* Returns "Intel(R) Xeon(R) Processor @ 2.80GHz"; "unknown" if /proc/cpuinfo has no name. */
static calm_status cpu_name(calm_ctx *ctx, char **out)
{
    char line[LINE_MAX_BYTES] = "";
    const char *value = NULL;
    FILE *stream = fopen("/proc/cpuinfo", "rb");
    while (stream && !value && fgets(line, sizeof line, stream))    /* without /proc there is no stream */
        if (strncmp(line, "model name", 10) == 0 && (value = strchr(line, ':')))
            value += 1 + strspn(value + 1, " ");
    if (stream)
        fclose(stream);
    /* `value` points into the line, so the name ends at the line's end. */
    line[strcspn(line, "\n")] = '\0';
    return calm_strf(ctx, ctx->out, out, "%s", value ? value : "unknown");
}

calm_status calm_environment_json(calm_ctx *ctx, calm_json **out)
{
    char *cpu, *libc;
    CALM_TRY(cpu_name(ctx, &cpu));
    CALM_TRY(calm_strf(ctx, ctx->out, &libc, "glibc %s", gnu_get_libc_version()));
    /* The order is part of the interface: locks and the store show it. */
    *out = CALM_OBJECT(CALM_KV("calm", CALM_VERSION), CALM_KV("commit", CALM_COMMIT[0] ? CALM_COMMIT : "unknown"),
                       CALM_KV("kernels", calm_linalg_kernels()), CALM_KV("openblas", calm_linalg_release()),
                       CALM_KV("libc", libc), CALM_KV("compiler", __VERSION__), CALM_KV("cpu", cpu),
                       CALM_KV("instructions", calm_instructions()));
    return CALM_OK;
}

calm_status calm_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id)
{
    CALM_SCOPED_JSON(facts);
    const calm_json *value;
    const char *name;
    CALM_TRY(calm_environment_json(ctx, &facts));
    CALM_SCOPED_TRANSACTION(ctx, store);
    for (void *iter = NULL; calm_json_next(facts, &iter, &name, &value);)
        CALM_TRY(calm_store_environment_put(ctx, store, run_id, name, calm_json_string(value, "")));
    return calm_store_commit(ctx, store);
}
