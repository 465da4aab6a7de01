/* calm check over a directory or a GGUF file from a stranger: an input is several files, each after a line "=== NAME".
 *
 * Whatever the bytes are, the check ends, with findings or a failure that has a sentence, within the memory that 1 MB
 * of input may take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ptq/check/check.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"config.json",         "model.safetensors",   "model.safetensors.index.json",
                                    "model-1.safetensors", "model-2.safetensors", "quantize_config.json",
                                    "tokenizer.json",      "model.gguf"};
#define N_NAMES (sizeof names / sizeof *names)

/* Finds the next "=== NAME\n", or the end. */
static const uint8_t *next_file(const uint8_t *at, const uint8_t *end, const char **name, const uint8_t **content)
{
    *name = NULL;
    for (; at < end && (at = memmem(at, (size_t)(end - at), "=== ", 4)); at++)
        for (size_t i = 0; i < N_NAMES; i++) {
            const size_t n = strlen(names[i]);
            if ((size_t)(end - at) > 4 + n && memcmp(at + 4, names[i], n) == 0 && at[4 + n] == '\n') {
                *name = names[i];
                *content = at + 4 + n + 1;
                return at;
            }
        }
    return end;
}

/* Writes the files; returns their folder. */
static const char *write_files(const uint8_t *data, size_t size)
{
    static char folder[4096];
    const uint8_t *end = data + size, *content, *following = data;
    const char *name, *next;
    for (size_t i = 0; i < N_NAMES; i++)
        unlink(fuzz_file(names[i], data, 0));
    for (const uint8_t *at = next_file(data, end, &name, &content); name; at = following, name = next) {
        const uint8_t *begin = content;
        following = next_file(begin, end, &next, &content);
        fuzz_file(name, begin, (size_t)((following ? following : end) - begin));
        (void)at;
    }
    const char *path = fuzz_file("unused", data, 0);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    return folder;
}

static void check(const char *path, calm_check_engine target)
{
    calm_ctx *ctx = fuzz_context();
    calm_check_report report;
    const calm_status status = calm_check(ctx, path, target, &report);
    size_t sum = 0;
    if ((status == CALM_OK) != (ctx->status == CALM_OK) || (status != CALM_OK && !ctx->message[0]) ||
        status == CALM_ENOMEM)
        abort();
    for (int i = 0; i < 3; i++)
        sum += report.n_severity[i];
    if (sum < report.n)
        abort();
    for (size_t i = 0; i < report.n; i++)
        if (!report.findings[i].rule || !report.findings[i].where || !report.findings[i].what)
            abort();
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    char gguf[4200];
#ifndef CALM_SANITIZED
    static bool limited = false;
    const struct rlimit limit = {(rlim_t)1500 << 20, (rlim_t)1500 << 20}; /* 1 GB next to the program and its stacks */
    if (!limited && setrlimit(RLIMIT_AS, &limit) != 0)
        abort();
    limited = true;
#endif
    const char *folder = write_files(data, size);
    snprintf(gguf, sizeof gguf, "%s/model.gguf", folder);
    check(access(gguf, F_OK) == 0 ? gguf : folder, (calm_check_engine)(size % (CALM_CHECK_MLX + 1)));
    return 0;
}
