/* compressed-tensors: the format that transformers, vLLM and SGLang load (docs/formats.md section 3).
 *
 *   m.weight -> pack-quantized   m.weight_packed I32 [out, ceil(in b / 32)], m.weight_scale [out, G],
 *                                m.weight_shape I64 [2], m.weight_zero_point I32 [ceil(out b / 32), G] if asymmetric
 *   m.weight -> int-quantized    m.weight I8 [out, in] = code - 2^(b-1), m.weight_scale [out, G]
 *   all other tensors as they are, but for what input scales were folded into
 *
 * Order in the file: tensors outside the blocks, then block by block, by name: one block is in memory at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/hybrid/assemble.h"
#include "ptq/hybrid/ct_config.h"
#include "ptq/model/arch.h"
#include "ptq/quant/pack.h"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

typedef enum entry_kind { COPY, NORM, BIAS, WEIGHT, PACKED, CODES, SCALE, SHAPE, ZERO } entry_kind;

/* One tensor of the output. */
typedef struct entry {
    entry_kind kind;
    long block;                     /* -1: outside the blocks */
    int part;                       /* calm_role or calm_sublayer */
    const calm_tensor *source;      /* of the float checkpoint */
} entry;

typedef struct layout {
    entry *entries;
    calm_tensor *tensors;    /* [n] the same as headers see them */
    size_t n;
} layout;

/* ---- which tensors ---- */

/* Number of the block a tensor belongs to and its name within; -1 for none. */
static long block_of(const calm_model *model, const char *name, const char **rest)
{
    char prefix[64], *end;
    int length = snprintf(prefix, sizeof prefix, "%slayers.", calm_model_config(model)->arch->prefix);
    if (strncmp(name, prefix, (size_t)length) != 0)
        return -1;
    unsigned long block = strtoul(name + length, &end, 10);
    if (end == name + length || *end != '.' || block >= calm_model_config(model)->n_blocks)
        return -1;
    *rest = end + 1;
    return (long)block;
}

static calm_status add(calm_ctx *ctx, layout *out, entry e, const char *suffix, calm_dtype dtype, int n_dims,
                       size_t rows, size_t cols)
{
    char *name;
    const size_t stem = strlen(e.source->name) - (suffix ? strlen("weight") : 0);
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%.*s%s", (int)stem, e.source->name, suffix ? suffix : ""));
    out->entries[out->n] = e;
    out->tensors[out->n++] = (calm_tensor){.name = name, .dtype = dtype, .n_dims = n_dims, .shape = {rows, cols}};
    return CALM_OK;
}

static calm_status add_copy(calm_ctx *ctx, layout *out, entry e)
{
    CALM_TRY(add(ctx, out, e, NULL, e.source->dtype, e.source->n_dims, 0, 0));
    memcpy(out->tensors[out->n - 1].shape, e.source->shape, sizeof e.source->shape);
    return CALM_OK;
}

static calm_status add_quantized(calm_ctx *ctx, layout *out, entry e, const calm_scheme *scheme)
{
    const size_t rows = e.source->shape[0], cols = e.source->shape[1], groups = calm_scheme_groups(scheme, cols);
    if (calm_ct_is_int_quantized(scheme)) {
        e.kind = CODES;
        CALM_TRY(add(ctx, out, e, "weight", CALM_I8, 2, rows, cols));
    } else {
        e.kind = PACKED;
        CALM_TRY(add(ctx, out, e, "weight_packed", CALM_I32, 2, rows, calm_pack_words(cols, scheme->bits)));
    }
    e.kind = SCALE;
    CALM_TRY(add(ctx, out, e, "weight_scale", scheme->scale_dtype, 2, rows, groups));
    if (calm_ct_is_int_quantized(scheme))
        return CALM_OK;
    e.kind = SHAPE;
    CALM_TRY(add(ctx, out, e, "weight_shape", CALM_I64, 1, 2, 0));
    if (scheme->symmetric)
        return CALM_OK;
    e.kind = ZERO;
    return add(ctx, out, e, "weight_zero_point", CALM_I32, 2, calm_pack_words(rows, scheme->bits), groups);
}

static calm_status add_source(calm_ctx *ctx, const calm_export_input *input, const calm_tensor *source, long block,
                              const char *rest, layout *out)
{
    entry e = {.kind = COPY, .block = block, .source = source};
    for (calm_role role = 0; block >= 0 && role < CALM_N_ROLES; role++) {
        const size_t length = strlen(calm_role_module(role));
        if (strncmp(rest, calm_role_module(role), length) != 0 || rest[length] != '.')
            continue;
        const calm_plan_job *job = calm_plan_at(input->plan, (size_t)block, calm_role_job(role));
        e.part = (int)role;
        e.kind = strcmp(rest + length, ".weight") == 0 ? WEIGHT : strcmp(rest + length, ".bias") == 0 ? BIAS : COPY;
        if (e.kind == WEIGHT && job->quantized)
            return add_quantized(ctx, out, e, &job->scheme);
        return add_copy(ctx, out, e);
    }
    if (block >= 0 && strcmp(rest, "input_layernorm.weight") == 0)
        e = (entry){NORM, block, CALM_SUBLAYER_ATTENTION, source};
    if (block >= 0 && strcmp(rest, "post_attention_layernorm.weight") == 0)
        e = (entry){NORM, block, CALM_SUBLAYER_MLP, source};
    return add_copy(ctx, out, e);
}

static calm_status lay_out(calm_ctx *ctx, const calm_export_input *input, layout *out)
{
    const calm_safetensors *set = calm_model_tensors(input->model);
    const size_t n = calm_safetensors_count(set);
    const char *rest = NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->entries, 4 * n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->tensors, 4 * n));
    for (long block = -1; block < (long)input->plan->n_blocks; block++)
        for (size_t i = 0; i < n; i++) {
            const calm_tensor *source = calm_safetensors_at(set, i);
            if (block_of(input->model, source->name, &rest) == block)
                CALM_TRY(add_source(ctx, input, source, block, rest, out));
        }
    return CALM_OK;
}

/* ---- their bytes ---- */

static calm_status put_floats(calm_ctx *ctx, calm_safetensors_writer *writer, calm_dtype dtype, const float *values,
                              size_t n)
{
    void *bytes;
    CALM_TRY(calm_alloc(ctx, ctx->scratch, &bytes, n, calm_dtype_bytes(dtype), "a tensor"));
    CALM_TRY(calm_from_f32(ctx, dtype, values, n, bytes));
    return calm_safetensors_put(ctx, writer, bytes, n * calm_dtype_bytes(dtype));
}

static calm_status put_words(calm_ctx *ctx, calm_safetensors_writer *writer, const calm_qlinear *linear, bool zeros)
{
    const int bits = linear->scheme.bits;
    uint32_t *words;
    size_t n =
        zeros ? calm_pack_words(linear->out, bits) * linear->n_groups : linear->out * calm_pack_words(linear->in, bits);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, words, n));
    if (zeros)
        calm_pack_columns(linear->zeros, linear->out, linear->n_groups, bits, words);
    else
        calm_pack_rows(linear->codes, linear->out, linear->in, bits, words);
    return calm_safetensors_put(ctx, writer, words, n * sizeof *words);
}

static calm_status put_codes(calm_ctx *ctx, calm_safetensors_writer *writer, const calm_qlinear *linear)
{
    const size_t n = linear->out * linear->in;
    const int zero = 1 << (linear->scheme.bits - 1);
    int8_t *values;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, values, n));
    for (size_t i = 0; i < n; i++)
        values[i] = (int8_t)((int)linear->codes[i] - zero);
    return calm_safetensors_put(ctx, writer, values, n);
}

static calm_status put_entry(calm_ctx *ctx, calm_safetensors_writer *writer, const entry *e, const calm_qblock *block)
{
    const calm_qlinear *linear = e->kind == COPY || e->kind == NORM ? NULL : &block->linear[e->part];
    const int64_t shape[2] = {(int64_t)e->source->shape[0], (int64_t)e->source->shape[1]};
    const float *changed = NULL;
    switch (e->kind) {
    case PACKED:
        return put_words(ctx, writer, linear, false);
    case ZERO:
        return put_words(ctx, writer, linear, true);
    case CODES:
        return put_codes(ctx, writer, linear);
    case SCALE:
        return put_floats(ctx, writer, linear->scheme.scale_dtype, linear->scales, linear->out * linear->n_groups);
    case SHAPE:
        return calm_safetensors_put(ctx, writer, shape, sizeof shape);
    case NORM:
        changed = block->norm[e->part];
        break;
    case BIAS:
        changed = linear->bias;
        break;
    case WEIGHT:
        changed = linear->w;
        break;
    case COPY:
        break;
    }
    if (changed)
        return put_floats(ctx, writer, e->source->dtype, changed, e->source->n_elements);
    return calm_safetensors_put(ctx, writer, e->source->data, e->source->bytes);
}

/* All tensors of one block (or outside the blocks), starting at entry *next. */
static calm_status put_block(calm_ctx *ctx, const calm_export_input *input, const layout *plan, long index,
                             calm_safetensors_writer *writer, size_t *next)
{
    calm_qblock assembled = {0};
    if (index >= 0) {
        calm_block block;
        CALM_TRY(calm_model_load_block(ctx, input->model, (size_t)index, &block));
        CALM_TRY(calm_assemble_block(ctx, input->model, input->plan, &block, &assembled));
    }
    for (; *next < plan->n && plan->entries[*next].block == index; ++*next) {
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        CALM_TRY(put_entry(ctx, writer, &plan->entries[*next], &assembled));
        calm_arena_rewind(ctx->scratch, mark);
    }
    if (input->tick && index >= 0)
        input->tick(input->tick_user, (size_t)index + 1, input->plan->n_blocks);
    return CALM_OK;
}

static calm_status put_all(calm_ctx *ctx, const calm_export_input *input, const layout *plan,
                           calm_safetensors_writer *writer)
{
    size_t next = 0;
    calm_arena arena, *caller = ctx->out;
    calm_arena_init(&arena);
    ctx->out = &arena;
    calm_status status = CALM_OK;
    for (long block = -1; block < (long)input->plan->n_blocks && status == CALM_OK; block++) {
        status = put_block(ctx, input, plan, block, writer, &next);
        calm_arena_clear(&arena);
    }
    ctx->out = caller;
    return status;
}

/* ---- config.json ---- */

/* Put the entry before the closing brace of the float model's config.json: every other byte stays as it was. */
static calm_status splice(calm_ctx *ctx, const char *path, const char *quantization, calm_text *out)
{
    char *text;
    size_t n;
    CALM_TRY(calm_read_file(ctx, path, CONFIG_MAX, &text, &n));
    while (n && text[n - 1] != '}')
        n--;
    for (n -= n > 0; n && strchr(" \t\r\n", text[n - 1]); n--)
        continue;
    calm_text_append(out, text, n);
    calm_text_printf(out, "%s\n  \"quantization_config\": ", n && text[n - 1] == '{' ? "" : ",");
    for (const char *at = quantization; *at; at++)
        calm_text_printf(out, *at == '\n' ? "\n  " : "%c", *at);
    calm_text_printf(out, "\n}\n");
    return calm_text_check(ctx, out);
}

static calm_status write_config(calm_ctx *ctx, const calm_export_input *input, const char *dir)
{
    calm_json *quantization;
    calm_text text, config;
    char *from, *to;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &from, calm_model_dir(input->model), "config.json"));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &to, dir, "config.json"));
    CALM_TRY(calm_ct_config(ctx, input, &quantization));
    calm_text_init(&text);
    calm_text_init(&config);
    calm_status status = calm_json_write(ctx, quantization, 2, &text);
    if (status == CALM_OK)
        status = splice(ctx, from, text.data, &config);
    if (status == CALM_OK)
        status = calm_write_file(ctx, to, config.data, config.length);
    calm_text_clear(&text);
    calm_text_clear(&config);
    calm_json_free(quantization);
    return status;
}

/* ---- the exporter ---- */

/* Readers want groups that divide the row; propose the nearest usual one that does. */
static calm_status check_groups(calm_ctx *ctx, const calm_export_input *input, size_t block)
{
    static const size_t usual[] = {128, 64, 32, 16, 8};
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_plan_job *job = calm_plan_at(input->plan, block, calm_role_job(role));
        size_t out, in, proposal = 0;
        char *name;
        calm_config_role_shape(calm_model_config(input->model), role, &out, &in);
        if (!job->quantized || !job->scheme.group || in % job->scheme.group == 0)
            continue;
        for (size_t i = 0; i < sizeof usual / sizeof *usual && !proposal; i++)
            proposal = usual[i] < job->scheme.group && in % usual[i] == 0 ? usual[i] : 0;
        CALM_TRY(calm_model_linear_name(ctx, input->model, block, role, &name));
        if (!proposal)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "compressed-tensors: %s has %zu input columns, which groups of %zu do not "
                             "divide; use a scheme without groups",
                             name, in, job->scheme.group);
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "compressed-tensors: %s has %zu input columns, which groups of %zu do not "
                         "divide; groups of %zu do (--scheme w%da%d_g%zu)",
                         name, in, job->scheme.group, proposal, job->scheme.bits,
                         job->scheme.act_bits ? job->scheme.act_bits : 16, proposal);
    }
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_plan *plan = input->plan;
    bool three = false, evaluation_only = false, asymmetric = false;
    for (size_t block = 0; block < plan->n_blocks; block++)
        CALM_TRY(check_groups(ctx, input, block));
    for (size_t i = 0; i < plan->n_blocks * CALM_N_JOBS; i++) {
        const calm_plan_job *job = &plan->jobs[i];
        if (!job->quantized)
            continue;
        if (job->scheme.bits > 4 && job->scheme.bits < 8)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "compressed-tensors: %d bits: readers disagree on the layout; use 2, 3, 4 or 8",
                             job->scheme.bits);
        if (job->scheme.act_bits && !job->scheme.symmetric)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "compressed-tensors: quantized activations need symmetric weights");
        three |= job->scheme.bits == 3;
        asymmetric |= !job->scheme.symmetric;
        evaluation_only |= job->scheme.act_bits && (job->scheme.act_bits < 8 || job->scheme.bits < 8);
    }
    if (three)
        calm_log(ctx, CALM_LOG_WARNING,
                 "3 bits: compressed-tensors before 0.18 packs them differently; this checkpoint needs 0.18 or later");
    if (asymmetric)
        calm_log(
            ctx, CALM_LOG_WARNING,
            "asymmetric weights: compressed-tensors 0.18 to 0.20 do not load them in transformers; 0.14 to 0.17 do");
    if (evaluation_only)
        calm_log(ctx, CALM_LOG_WARNING,
                 "4-bit weights or activations with quantized activations: transformers computes them, "
                 "no engine has a kernel; this checkpoint is for evaluation");
    return CALM_OK;
}

static calm_status write_checkpoint(calm_ctx *ctx, const calm_export_input *input, const char *dir)
{
    layout plan = {0};
    calm_safetensors_writer writer;
    char *path;
    CALM_TRY(lay_out(ctx, input, &plan));
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, "model.safetensors"));
    if (calm_safetensors_begin(ctx, &writer, path, plan.tensors, plan.n) == CALM_OK)
        put_all(ctx, input, &plan, &writer);
    CALM_TRY(calm_safetensors_end(ctx, &writer));
    CALM_TRY(write_config(ctx, input, dir));
    return calm_export_copy_companions(ctx, input->model, dir);
}

const calm_exporter calm_export_compressed_tensors = {
    .name = "compressed_tensors",
    .summary = "safetensors with packed integers: transformers, vLLM, SGLang",
    .check = check,
    .write = write_checkpoint,
};
