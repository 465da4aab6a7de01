/* Facts about this program and this machine that decide bytes, and the name of the CPU.
 *
 * Results depend on calm's version, the compiler, OpenBLAS with its kernel family, and the mathematical library; not
 * on the number of threads, which is no fact here. */
#include "ptq/run/environment.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <string.h>

#include "calm_commit.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/linalg.h"

#define LINE_MAX_BYTES 256

/* "Intel(R) Xeon(R) Processor @ 2.80GHz"; "unknown" where /proc/cpuinfo does not say. */
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
    /* `value` points into the line: its end is the name's end. */
    line[strcspn(line, "\n")] = '\0';
    return calm_strf(ctx, ctx->out, out, "%s", value ? value : "unknown");
}

typedef struct fact {
    const char *name;     /* "kernels" */
    const char *value;    /* "Haswell" */
} fact;

enum { N_FACTS = 8 };

static calm_status list_facts(calm_ctx *ctx, fact facts[N_FACTS])
{
    char *cpu, *libc;
    CALM_TRY(cpu_name(ctx, &cpu));
    CALM_TRY(calm_strf(ctx, ctx->out, &libc, "glibc %s", gnu_get_libc_version()));
    /* The order is part of the interface: locks and the store show it. */
    const fact all[N_FACTS] = {
        {"calm", CALM_VERSION}, {"commit", CALM_COMMIT[0] ? CALM_COMMIT : "unknown"},
        {"kernels", calm_linalg_kernels()}, {"openblas", calm_linalg_release()}, {"libc", libc},
        {"compiler", __VERSION__}, {"cpu", cpu}, {"instructions", calm_instructions()},
    };
    memcpy(facts, all, sizeof all);
    return CALM_OK;
}

calm_status calm_environment_json(calm_ctx *ctx, calm_json **out)
{
    fact facts[N_FACTS];
    CALM_TRY(list_facts(ctx, facts));
    *out = calm_json_new_object();
    for (size_t i = 0; i < N_FACTS; i++)
        calm_json_set_string(*out, facts[i].name, facts[i].value);
    return CALM_OK;
}

calm_status calm_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id)
{
    fact facts[N_FACTS];
    CALM_TRY(list_facts(ctx, facts));
    CALM_TRY(calm_store_begin(ctx, store));
    for (size_t i = 0; i < N_FACTS; i++)
        CALM_TRY(calm_store_environment_put(ctx, store, run_id, facts[i].name, facts[i].value));
    return calm_store_commit(ctx, store);
}
