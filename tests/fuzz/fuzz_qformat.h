/* Quantized checkpoints of strangers, for one fuzz target per format: what config.json says is in range, and a module's
 * tensors are read within their bounds or refused with a message.
 *
 * An input is a config.json, a line "%%", and a safetensors file. */
#ifndef CALM_TESTS_FUZZ_QFORMAT_H
#define CALM_TESTS_FUZZ_QFORMAT_H

#include <stdlib.h>
#include <string.h>

#include "ptq/weights/qformat.h"
#include "tests/fuzz/fuzz.h"

/* A volatile sink, so that every weight is really read. */
static volatile float fuzz_sink;

static inline void fuzz_module(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                               const char *module, size_t out, size_t in)
{
    calm_qformat_scheme scheme;
    calm_qformat_tensor list[CALM_N_QFORMAT_PARTS];
    bool quantized = false;
    size_t n = 0;
    float *w;
    if (calm_qformat_find(ctx, reader, set, module, &quantized, &scheme) != CALM_OK || !quantized)
        return;
    if ((scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8) || scheme.act_bits < 0 ||
        scheme.act_bits > 8 || scheme.group > (size_t)1 << 24)
        abort();
    if (calm_qformat_tensors(ctx, reader, module, &scheme, out, in, list, &n) == CALM_OK && n > CALM_N_QFORMAT_PARTS)
        abort();
    if (!set || calm_alloc(ctx, ctx->out, &w, out * in, sizeof *w, "w") != CALM_OK)
        return;
    const calm_status checked = calm_qformat_check(ctx, reader, set, module, &scheme, out, in);
    const bool message = ctx->message[0];
    if ((checked != CALM_OK) != message)
        abort();
    const calm_status loaded = calm_qformat_load(ctx, reader, set, module, &scheme, out, in, w, NULL);
    for (size_t i = 0; loaded == CALM_OK && i < out * in; i++)
        fuzz_sink = w[i];
    if (checked != CALM_OK && loaded == CALM_OK)
        abort();
}

/* `format`: the others' inputs are left to their targets. */
static inline int fuzz_qformat(const char *format, const uint8_t *data, size_t size)
{
    static const struct {
        const char *module;
        size_t out, in;
    } modules[] = {
        {"model.layers.0.mlp.down_proj", 32, 64}, {"model.layers.0.mlp.up_proj", 64, 32}, {"lm_head", 8, 32},
                   {"model.layers.0.mlp.experts.2.up_proj", 64, 32}};
    calm_ctx *ctx = fuzz_context();
    const uint8_t *mark = size ? memmem(data, size, "\n%%\n", 4) : NULL;
    const size_t n = mark ? (size_t)(mark - data) : size;
    calm_json *config;
    calm_qformat_reader *reader;
    calm_safetensors *set = NULL;
    if (calm_json_parse(ctx, "config.json", (const char *)data, n, &config) != CALM_OK)
        return 0;
    const calm_status status = calm_qformat_open(ctx, "config.json", config, &reader);
    if ((status != CALM_OK && (reader || !ctx->message[0])) || (status == CALM_OK && ctx->message[0]))
        abort();
    calm_ctx_clear_failure(ctx);
    if (reader && mark &&
        calm_safetensors_open(ctx, fuzz_file("model.safetensors", mark + 4, size - n - 4), &set) != CALM_OK)
        set = NULL;
    calm_ctx_clear_failure(ctx);
    for (size_t i = 0;
         reader && strcmp(calm_qformat_of(reader)->name, format) == 0 && i < sizeof modules / sizeof *modules;
         i++) {
        fuzz_module(ctx, reader, set, modules[i].module, modules[i].out, modules[i].in);
        calm_ctx_clear_failure(ctx);
    }
    calm_qformat_close(reader);
    calm_safetensors_close(set);
    calm_json_free(config);
    return 0;
}

#endif
