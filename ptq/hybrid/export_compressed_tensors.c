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

typedef enum entry_kind { COPY, NORM, NORM_BIAS, BIAS, WEIGHT, PACKED, CODES, SCALE, SHAPE, ZERO } entry_kind;

/* One tensor of the output. */
typedef struct entry {
    entry_kind kind;
    long block;                     /* -1: outside the blocks */
    const calm_job_ref *job;        /* of a linear's tensors; else NULL */
    calm_role role;                 /* likewise */
    calm_sublayer sublayer;         /* of a norm */
    const calm_tensor *source;      /* of the float checkpoint */
} entry;

typedef struct layout {
    entry *entries;
    calm_tensor *tensors;    /* [n] the same as headers see them */
    size_t n;
} layout;

/* ---- which tensors ---- */

/* A linear by its module's name. */
typedef struct named {
    const char *module;
    const calm_job_ref *job;
    calm_role role;
} named;

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const named *)a)->module, ((const named *)b)->module);
}

/* All linears, sorted by name. */
static calm_status index_linears(calm_ctx *ctx, const calm_model *model, named **out)
{
    const calm_layout *table = calm_model_layout(model);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, table->n_linears));
    for (size_t j = 0; j < table->n_jobs; j++)
        for (size_t i = table->jobs[j].first; i < table->jobs[j].first + table->jobs[j].n; i++)
            (*out)[i] = (named){table->linears[i].module, &table->jobs[j], table->linears[i].role};
    qsort(*out, table->n_linears, sizeof **out, compare_names);
    return CALM_OK;
}

/* Number of the block a tensor belongs to and its name within; -1 for none. */
static long block_of(const calm_model *model, const char *name, const char **rest)
{
    const calm_config *config = calm_model_config(model);
    char prefix[64], *end;
    int length = snprintf(prefix, sizeof prefix, "%s%s.", calm_model_prefix(model), config->arch->names->blocks);
    if (strncmp(name, prefix, (size_t)length) != 0)
        return -1;
    unsigned long block = strtoul(name + length, &end, 10);
    if (end == name + length || *end != '.' || block >= config->n_blocks)
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

/* Is it the norm before a sublayer, which scales fold into? */
static bool find_norm(const calm_names *names, const char *rest, entry *e)
{
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const char *norm = names->norm[s][CALM_NORM_IN];
        const size_t length = norm ? strlen(norm) : 0;
        if (!norm || strncmp(rest, norm, length) != 0)
            continue;
        e->sublayer = s;
        e->kind = strcmp(rest + length, ".weight") == 0 ? NORM : strcmp(rest + length, ".bias") == 0 ? NORM_BIAS : COPY;
        if (e->kind != COPY)
            return true;
    }
    return false;
}

static calm_status add_source(calm_ctx *ctx, const calm_export_input *input, const named *linears,
                              const calm_tensor *source, long block, const char *rest, layout *out)
{
    const calm_layout *table = calm_model_layout(input->model);
    entry e = {.kind = COPY, .block = block, .source = source};
    const char *dot = strrchr(source->name, '.');
    char *module;
    if (block < 0 || !dot || find_norm(calm_model_config(input->model)->arch->names, rest, &e))
        return add_copy(ctx, out, e);
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%.*s", (int)(dot - source->name), source->name));
    const named key = {module, NULL, 0};
    const named *found = bsearch(&key, linears, table->n_linears, sizeof *linears, compare_names);
    calm_arena_rewind(ctx->scratch, mark);
    if (!found)
        return add_copy(ctx, out, e);
    e.job = found->job;
    e.role = found->role;
    e.kind = strcmp(dot, ".weight") == 0 ? WEIGHT : strcmp(dot, ".bias") == 0 ? BIAS : COPY;
    const calm_plan_job *planned = &input->plan->jobs[e.job - table->jobs];
    if (e.kind == WEIGHT && planned->quantized)
        return add_quantized(ctx, out, e, &planned->scheme);
    return add_copy(ctx, out, e);
}

static calm_status lay_out(calm_ctx *ctx, const calm_export_input *input, layout *out)
{
    const calm_safetensors *set = calm_model_tensors(input->model);
    const size_t n = calm_safetensors_count(set);
    const char *rest = NULL;
    named *linears;
    CALM_TRY(index_linears(ctx, input->model, &linears));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->entries, 4 * n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->tensors, 4 * n));
    for (long block = -1; block < (long)calm_model_config(input->model)->n_blocks; block++)
        for (size_t i = 0; i < n; i++) {
            const calm_tensor *source = calm_safetensors_at(set, i);
            if (block_of(input->model, source->name, &rest) == block)
                CALM_TRY(add_source(ctx, input, linears, source, block, rest, out));
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

static calm_status put_entry(calm_ctx *ctx, calm_safetensors_writer *writer, const entry *e, const calm_qgroup *group)
{
    const calm_qlinear *linear = e->job ? &group->linear[e->role] : NULL;
    const float *changed = NULL;
    const int64_t shape[2] = {(int64_t)(linear ? linear->out : 0), (int64_t)(linear ? linear->in : 0)};
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
        changed = group->norm;
        break;
    case NORM_BIAS:
        changed = group->norm_bias;
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

/* A block being written: its attention and MLP (or shared expert), and one expert at a time. */
typedef struct assembled {
    const calm_export_input *input;
    calm_block block;
    calm_qgroup sublayer[CALM_N_SUBLAYERS];
    long expert;                 /* in `one`; < 0: none yet */
    calm_qgroup one;
    calm_arena arena;            /* of `one` */
} assembled;

static calm_status assemble_block(calm_ctx *ctx, size_t index, assembled *out)
{
    const calm_export_input *input = out->input;
    CALM_TRY(calm_model_load_block(ctx, input->model, index, &out->block));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const bool mixture = s == CALM_SUBLAYER_MLP && out->block.moe.router;
        const calm_group_ref group = {&out->block, s, mixture ? CALM_SHARED_EXPERT : CALM_NO_EXPERT,
                                      mixture ? out->block.moe.shared : out->block.weight};
        CALM_TRY(calm_assemble_group(ctx, input->model, input->plan, &group, &out->sublayer[s]));
    }
    return CALM_OK;
}

static calm_status assemble_expert(calm_ctx *ctx, long expert, assembled *out)
{
    calm_weight weight[CALM_N_ROLES] = {{0}};
    const calm_group_ref group = {&out->block, CALM_SUBLAYER_MLP, expert, weight};
    calm_arena *caller = ctx->out;
    calm_arena_clear(&out->arena);
    out->expert = expert;
    ctx->out = &out->arena;
    calm_status status = out->block.moe.load(out->block.moe.user, ctx, out->block.index, (size_t)expert, weight);
    if (status == CALM_OK)
        status = calm_assemble_group(ctx, out->input->model, out->input->plan, &group, &out->one);
    ctx->out = caller;
    return status;
}

/* The group an entry belongs to. */
static calm_status find_group(calm_ctx *ctx, const entry *e, assembled *from, const calm_qgroup **out)
{
    if (e->job && e->job->expert >= 0) {
        if (e->job->expert != from->expert)
            CALM_TRY(assemble_expert(ctx, e->job->expert, from));
        *out = &from->one;
        return CALM_OK;
    }
    *out = &from->sublayer[e->job ? calm_job_sublayer(e->job->kind) : e->sublayer];
    return CALM_OK;
}

/* All tensors of one block (or outside the blocks), starting at entry *next. */
static calm_status put_block(calm_ctx *ctx, const calm_export_input *input, const layout *plan, long index,
                             calm_safetensors_writer *writer, size_t *next)
{
    assembled from = {.input = input, .expert = CALM_NO_EXPERT};
    const size_t n_blocks = calm_model_config(input->model)->n_blocks;
    calm_arena_init(&from.arena);
    calm_status status = index >= 0 ? assemble_block(ctx, (size_t)index, &from) : CALM_OK;
    for (; status == CALM_OK && *next < plan->n && plan->entries[*next].block == index; ++*next) {
        const entry *e = &plan->entries[*next];
        const calm_qgroup *group;
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        status = find_group(ctx, e, &from, &group);
        if (status == CALM_OK)
            status = put_entry(ctx, writer, e, group);
        calm_safetensors_release(calm_model_tensors(input->model), e->source);
        calm_arena_rewind(ctx->scratch, mark);
    }
    calm_arena_clear(&from.arena);
    if (input->tick && index >= 0)
        input->tick(input->tick_user, (size_t)index + 1, n_blocks);
    return status;
}

static calm_status put_all(calm_ctx *ctx, const calm_export_input *input, const layout *plan,
                           calm_safetensors_writer *writer)
{
    size_t next = 0;
    calm_arena arena, *caller = ctx->out;
    calm_arena_init(&arena);
    ctx->out = &arena;
    calm_status status = CALM_OK;
    for (long block = -1; block < (long)calm_model_config(input->model)->n_blocks && status == CALM_OK; block++) {
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
static calm_status check_groups(calm_ctx *ctx, const calm_export_input *input, size_t index)
{
    static const size_t usual[] = {128, 64, 32, 16, 8};
    const calm_plan_job *job = &input->plan->jobs[index];
    const calm_job_ref *ref = &calm_model_layout(input->model)->jobs[index];
    const char *name = calm_model_layout(input->model)->linears[ref->first].module;
    size_t proposal = 0;
    if (!job->quantized || !job->scheme.group || ref->in % job->scheme.group == 0)
        return CALM_OK;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !proposal; i++)
        proposal = usual[i] < job->scheme.group && ref->in % usual[i] == 0 ? usual[i] : 0;
    if (!proposal)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "compressed-tensors: %s has %zu input columns, which groups of %zu do not "
                         "divide; use a scheme without groups",
                         name, ref->in, job->scheme.group);
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "compressed-tensors: %s has %zu input columns, which groups of %zu do not "
                     "divide; groups of %zu do (--scheme w%da%d_g%zu)",
                     name, ref->in, job->scheme.group, proposal, job->scheme.bits,
                     job->scheme.act_bits ? job->scheme.act_bits : 16, proposal);
}

/* Readers fuse the experts of a block: all of their linears have one scheme, or are float. */
static calm_status check_experts(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_layout *table = calm_model_layout(input->model);
    const calm_plan_job *jobs = input->plan->jobs;
    const calm_scheme floating = {0};
    size_t first = 0;    /* the block's first job of an expert */
    for (size_t j = 0; j < table->n_jobs; j++) {
        char name[CALM_SCHEME_NAME_MAX], other[CALM_SCHEME_NAME_MAX];
        if (table->jobs[j].expert < 0)
            continue;
        if (table->jobs[first].expert < 0 || table->jobs[first].block != table->jobs[j].block)
            first = j;
        calm_scheme_name(jobs[j].quantized ? &jobs[j].scheme : &floating, name);
        calm_scheme_name(jobs[first].quantized ? &jobs[first].scheme : &floating, other);
        if (strcmp(name, other) != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "compressed-tensors: %s is %s, but %s is %s: readers take one scheme "
                             "for all experts of a block",
                             table->jobs[j].name, name, table->jobs[first].name, other);
    }
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_plan *plan = input->plan;
    bool three = false, evaluation_only = false, asymmetric = false, unread_experts = false;
    CALM_TRY(check_experts(ctx, input));
    for (size_t i = 0; i < plan->n_jobs; i++) {
        const calm_plan_job *job = &plan->jobs[i];
        CALM_TRY(check_groups(ctx, input, i));
        if (!job->quantized)
            continue;
        if (job->scheme.bits > 4 && job->scheme.bits < 8)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "compressed-tensors: %d bits: readers disagree on the layout; use 2, 3, 4 or 8",
                             job->scheme.bits);
        if (job->scheme.act_bits && !job->scheme.symmetric)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "compressed-tensors: quantized activations need symmetric weights");
        unread_experts |= calm_model_layout(input->model)->jobs[i].expert >= 0 &&
                          (job->scheme.act_bits || !job->scheme.symmetric);
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
    if (unread_experts)
        calm_log(
            ctx, CALM_LOG_WARNING,
            "experts with quantized activations or asymmetric weights: transformers 5 reads symmetric packed experts "
            "alone; engines such as vLLM take 8-bit ones with 8-bit activations");
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
