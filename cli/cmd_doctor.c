/* calm doctor: says what this machine has for a run and what is missing; the first thing to paste into an issue. */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "ptq/base/file.h"
#include "ptq/base/memory.h"
#include "ptq/base/threads.h"
#include "ptq/hub/reach.h"
#include "ptq/recipe/model_names.h"
#include "ptq/state/environment.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/int_product.h"
#include "ptq/tensor/linalg.h"

/* With less memory calm quantizes only the bundled model and others of its size. */
#define LITTLE_MEMORY ((size_t)2 << 30)
#define LITTLE_DISK   ((size_t)5 << 30)
#define HUB_SECONDS   5
#define FACT_BYTES    4352
#define NAME_BYTES    128

typedef struct options {
    calm_common common;
    bool json, no_hub;
} options;

static const calm_option table[] = {
    CALM_OPT("no-hub", no_hub, BOOL, "do not ask whether the hub answers"),
    CALM_OPT("json", json, BOOL, "print {facts: {name: text}, warnings: [text]}"),
    CALM_OPT_COMMON,
    {0},
};

/* Facts, in the order of printing. */
typedef struct findings {
    calm_json *facts, *warnings;
} findings;

static void clear_findings(findings *f)
{
    calm_json_free(f->facts);
    calm_json_free(f->warnings);
}

/* Adds a fact, formatted as printf and cut to the length of a path. */
__attribute__((format(printf, 3, 4)))
static void note(findings *f, const char *name, const char *format, ...)
{
    char text[FACT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    calm_json_set_string(f->facts, name, text);
}

static void warn(findings *f, const char *what)
{
    calm_json_add_string(f->warnings, what);
}

/* ---- CPU and products ---- */

/* CALM_SIMD may name instructions that the CPU lacks; without it nothing can fail. */
static calm_status look_at_integers(calm_ctx *ctx, findings *f)
{
    calm_int_set integers;
    const calm_status status = calm_int_choose(ctx, &integers);
    if (status == CALM_OK) {
        note(f, "integers", "multiplied by %s", calm_int_set_names[integers]);
        return CALM_OK;
    }
    note(f, "integers", "not multiplied, as " CALM_INT_VARIABLE " is set");
    warn(f, calm_error_text(ctx));
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

static calm_status look_at_cpu(calm_ctx *ctx, findings *f)
{
    static const struct {
        unsigned bit;
        const char *name;
    } known[] = {{CALM_CPU_SSE42, "SSE4.2"}, {CALM_CPU_AVX, " AVX"}, {CALM_CPU_FMA, " FMA"}, {CALM_CPU_AVX2, " AVX2"},
                 {CALM_CPU_AVX_VNNI, " AVX-VNNI"}, {CALM_CPU_AVX512, " AVX-512"},
                 {CALM_CPU_AVX512_VNNI, " AVX512-VNNI"}, {CALM_CPU_AVX512_BF16, " AVX512-BF16"},
                 {CALM_CPU_AMX_INT8, " AMX-INT8"}, {CALM_CPU_AMX_BF16, " AMX-BF16"}};
    const unsigned features = calm_cpu_features();
    CALM_SCOPED_TEXT(names);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        calm_text_printf(&names, "%s", features & known[i].bit ? known[i].name : "");
    CALM_TRY(calm_text_check(ctx, &names));
    note(f, "features", "%s", names.data ? names.data : "");
    note(f, "cores", "%d that this process may use, %d threads", calm_n_cores(), ctx->n_threads);
    CALM_TRY(look_at_integers(ctx, f));
    if (calm_bf16_is_fast(CALM_OPERANDS_BF16X2))
        note(f, "bfloat16", "multiplied by AMX: --calib-dtype bf16x2 (auto) and bf16 save time");
    else if (calm_bf16_is_fast(CALM_OPERANDS_BF16))
        note(f, "bfloat16", "multiplied by the CPU: --calib-dtype bf16 saves time");
    else
        note(f, "bfloat16", "multiplied as float32 by the kernels %s", calm_linalg_kernels());
    if (!(features & CALM_CPU_AVX2))
        warn(f, "the CPU has no AVX2: products take several times as long");
    return CALM_OK;
}

static void look_at_kernels(findings *f)
{
    const char *variable = getenv(CALM_BLAS_VARIABLE), *loaded = calm_linalg_kernels();
    const char *best = calm_blas_choose(calm_cpu_features(), loaded, NULL, NULL), *own = calm_kernels_replaced();
    if (own)    /* calm set the variable before it replaced itself */
        note(f, "variable", CALM_BLAS_VARIABLE " is not set: OpenBLAS takes %s by itself, calm %s", own, loaded);
    else
        note(f, "variable", CALM_BLAS_VARIABLE " is %s", variable ? variable : "not set");
    if (strcasecmp(best, loaded) != 0)
        warn(f, CALM_BLAS_VARIABLE " keeps calm from faster kernels of this CPU: unset it");
}

/* ---- the system ---- */

/* Reads the distribution's name, as Debian, Fedora and others give it; "": none. */
static const char *distribution(char name[NAME_BYTES])
{
    FILE *file = fopen("/etc/os-release", "r");
    char line[NAME_BYTES];
    name[0] = '\0';
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "PRETTY_NAME=\"%127[^\"\n]", name) == 1)
            break;
    if (file)
        fclose(file);
    return name;
}

static void look_at_system(findings *f)
{
    char name[NAME_BYTES];
    struct utsname kernel;
    if (uname(&kernel) == 0)
        note(f, "system", "%s %s %s, %s", kernel.sysname, kernel.release, kernel.machine,
             *distribution(name) ? name : "which has no /etc/os-release");
#ifdef __clang__
    note(f, "compiler", "%s", __VERSION__);    /* begins with the compiler's name */
#else
    note(f, "compiler", "gcc %s", __VERSION__);
#endif
}

/* ---- memory and disk ---- */

static void look_at_memory(findings *f)
{
    const size_t available = calm_memory_available();
    const char *option = NULL;
    size_t limit = 0;
    const size_t left = calm_memory_left(&limit, &option);
    if (available)
        note(f, "memory", "%.1f GB available; a run takes at most 70 %% of it (--memory)", (double)available / 1e9);
    else
        note(f, "memory", "the system does not say how much is available");
    if (available && available < LITTLE_MEMORY)
        warn(f, "less than 2 GB of memory is available: models of more than 1 B parameters may not fit");
    if (left == SIZE_MAX) {
        note(f, "limits", "none on address space or data");
        return;
    }
    note(f, "limits", "%s: %.1f GB, of which %.1f GB are left", option, (double)limit / 1e9, (double)left / 1e9);
    warn(f, "a limit on address space or data counts mapped weights, too: a larger model cannot be opened");
}

/* The folder may not exist yet. */
static calm_status look_at_disk(calm_ctx *ctx, findings *f, const char *name, const char *path)
{
    double left;
    char *there;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_path_existing(ctx, path, &there));
    if (!calm_disk_free(there, &left)) {
        note(f, name, "%s: %s", path, strerror(errno));
        return CALM_OK;
    }
    note(f, name, "%s%s: %.1f GB free", path, strcmp(there, path) == 0 ? "" : ", not there yet", left / 1e9);
    if (left < (double)LITTLE_DISK)
        warn(f, "less than 5 GB of disk is free in a place where calm writes");
    return CALM_OK;
}

/* ---- the hub ---- */

static calm_status ask_hub(calm_ctx *ctx, const calm_hub_settings *settings, findings *f)
{
    const char *why;
    CALM_TRY(calm_hub_reach(ctx, settings, HUB_SECONDS, &why));
    note(f, "hub", "%s: %s", settings->endpoint, why ? why : "answers");
    if (why)
        warn(f, "the hub does not answer: models must be in its cache or in a directory (HF_ENDPOINT names a mirror, "
                "https_proxy a proxy)");
    return CALM_OK;
}

static calm_status look_at_hub(calm_ctx *ctx, const options *o, findings *f)
{
    calm_hub_settings settings;
    if (calm_hub_settings_read(ctx, &settings) == CALM_EARG) {
        warn(f, calm_error_text(ctx));
        calm_ctx_clear_failure(ctx);
        return CALM_OK;
    }
    CALM_TRY(ctx->status);
    CALM_TRY(look_at_disk(ctx, f, "cache", settings.cache));
    note(f, "token", "%s%s", settings.token ? "from " : "none", settings.token ? settings.token_source : "");
    if (settings.offline)
        note(f, "hub", "offline, as HF_HUB_OFFLINE says");
    return settings.offline || o->no_hub ? CALM_OK : ask_hub(ctx, &settings, f);
}

/* ---- all of it ---- */

static calm_status look_at_texts(calm_ctx *ctx, findings *f)
{
    const char *path;
    CALM_TRY(calm_recipes_path(ctx, "text/wikitext2-valid.txt", &path));
    note(f, "texts", "%s", path);
    if (!calm_path_exists(path))
        warn(f, "the bundled calibration text is not there: set CALM_HOME to calm's folder, or name a text by --calib");
    return CALM_OK;
}

static calm_status print(calm_ctx *ctx, const findings *f)
{
    const calm_json *value;
    const char *name;
    CALM_SCOPED_TEXT(text);
    for (void *iter = NULL; calm_json_next(f->facts, &iter, &name, &value);)
        calm_text_printf(&text, "%-13s %s\n", name, calm_json_string(value, ""));
    for (size_t i = 0; i < calm_json_size(f->warnings); i++)
        calm_text_printf(&text, "%s! %s\n", i ? "" : "\n", calm_json_string(calm_json_at(f->warnings, i), ""));
    if (!calm_json_size(f->warnings))
        calm_text_printf(&text, "\nnothing to warn of\n");
    return calm_print_folded(ctx, &text);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    CALM_SCOPED(findings, clear_findings) f = {NULL, calm_json_new_array()};
    CALM_TRY(calm_kernels_pin(ctx, NULL));
    CALM_TRY(calm_environment_json(ctx, &f.facts));
    look_at_system(&f);
    CALM_TRY(look_at_cpu(ctx, &f));
    look_at_kernels(&f);
    look_at_memory(&f);
    CALM_TRY(look_at_disk(ctx, &f, "disk", "."));
    CALM_TRY(look_at_texts(ctx, &f));
    CALM_TRY(look_at_hub(ctx, o, &f));
    if (!o->json)
        return print(ctx, &f);
    calm_json *root = CALM_OBJECT(CALM_KV("facts", f.facts), CALM_KV("warnings", f.warnings));
    f = (findings){NULL, NULL};
    return calm_print_json(ctx, root);
}

const calm_command calm_cmd_doctor = {
    .name = "doctor",
    .summary = "what this machine has for a run, and what is missing",
    .description =
        "Prints versions, CPU and kernels, memory and its limits, disk, the hub and whether there is a token, and "
        "warns of what makes runs slow or keeps them from starting.  It writes no file and does not show the token.  "
        "Put its output into an issue.",
    .examples = "  calm doctor\n"
                "  calm doctor --no-hub --json\n",
    CALM_COMMAND_PARTS,
};
