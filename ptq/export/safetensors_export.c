/* Writes the safetensors formats and config.json. */
#include "ptq/export/safetensors_export.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/export/companions.h"
#include "ptq/export/config_file.h"
#include "ptq/export/module_names.h"
#include "ptq/model/tensor_use.h"
#include "ptq/quant/pack.h"

#define PIECE ((size_t)1 << 20)    /* elements of a tensor that are converted at a time */

/* One tensor of the output. */
typedef struct entry {
    calm_export_part of;
    size_t which;                   /* index among the tensors that a quantized weight becomes */
    const calm_scheme *outer;       /* scheme of a quantized embedding or head; else NULL */
    bool stacked;                   /* it holds all experts of the block */
    uint8_t *stack;                 /* its bytes, while the block is being written */
} entry;

typedef struct layout {
    entry *entries;
    calm_tensor *tensors;    /* [n] the tensors for the headers */
    size_t n;
} layout;

/* ---- the list of tensors ---- */

static void add(layout *out, entry e, calm_tensor tensor)
{
    out->entries[out->n] = e;
    out->tensors[out->n++] = tensor;
}

calm_status calm_export_stack_name(calm_ctx *ctx, const calm_export_input *input, const char *name, const char *stack,
                                   char **out)
{
    const char *experts = calm_model_config(input->model)->arch->names->moe.experts, *dot = strrchr(experts, '.');
    const char *at = strstr(name, dot ? dot : experts);
    const size_t length = strlen(dot ? dot : experts);
    const char *rest = at ? strchr(at + length + 1, '.') : NULL;    /* after the number */
    if (!rest)
        return calm_fail(ctx, CALM_EFORMAT, "%s: is no expert's", name);
    return calm_strf(ctx, ctx->out, out, "%.*s%s%s%s", (int)(at - name), name, dot ? "." : "", stack, rest);
}

/* Adds the tensors that a quantized weight becomes; stacked tensors of all experts are at the first expert's place. */
static calm_status add_quantized(calm_ctx *ctx, const calm_export_input *input, const calm_export_form *form,
                                 layout *out, entry e, const calm_scheme *scheme)
{
    calm_export_tensor list[CALM_EXPORT_TENSORS];
    const size_t n = form->tensors(scheme, e.of.source->shape[0], e.of.source->shape[1], list);
    const size_t experts = calm_model_config(input->model)->moe.n_experts;
    char *stack = NULL;
    e.of.kind = CALM_EXPORT_QUANTIZED;
    e.stacked = form->stack && e.of.job && e.of.job->expert >= 0;
    if (e.stacked && e.of.job->expert > 0)
        return CALM_OK;
    if (e.stacked)
        CALM_TRY(calm_export_stack_name(ctx, input, e.of.source->name, form->stack, &stack));
    const char *stem = stack ? stack : e.of.source->name;
    const int length = (int)(strlen(stem) - strlen("weight"));
    for (e.which = 0; e.which < n; e.which++) {
        const calm_export_tensor *from = &list[e.which];
        calm_tensor to = {.dtype = from->dtype, .n_dims = from->n_dims, .shape = {from->shape[0], from->shape[1]}};
        if (e.stacked)
            to = (calm_tensor){.dtype = from->dtype,
                               .n_dims = from->n_dims + 1,
                               .shape = {experts, from->shape[0], from->shape[1]}};
        CALM_TRY(calm_strf(ctx, ctx->out, &to.name, "%.*s%s", length, stem, from->suffix));
        add(out, e, to);
    }
    return CALM_OK;
}

/* Are the weights of this expert part of a float tensor? */
static calm_status is_part_of_floats(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job, bool *out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", calm_model_layout(model)->linears[job->first].module));
    const calm_tensor *weight = calm_safetensors_find(calm_model_tensors(model), name);
    *out = weight && weight->whole && !weight->whole->source;
    return CALM_OK;
}

/* *out: the tensor that this one is a part of, if that is written as it is in the file; NULL: it is not.  Where weights
 * are codes their biases are floats, and yet are written as the weights are, expert by expert. */
static calm_status find_whole(calm_ctx *ctx, const calm_export_input *input, const calm_export_form *form,
                              const entry *e, const calm_tensor **out)
{
    const calm_layout *of_model = calm_model_layout(input->model);
    const calm_job_ref *expert = NULL;
    bool floats = false;
    CALM_SCOPED_SCRATCH(ctx);
    *out = NULL;
    if (!form->whole || !e->of.source->whole)
        return CALM_OK;
    for (size_t j = of_model->block_begin[e->of.block]; j < of_model->block_begin[e->of.block + 1]; j++) {
        if (of_model->jobs[j].expert < 0)
            continue;
        if (input->plan->jobs[j].quantized)
            return CALM_OK;
        expert = expert ? expert : &of_model->jobs[j];
    }
    if (expert)
        CALM_TRY(is_part_of_floats(ctx, input->model, expert, &floats));
    *out = floats ? e->of.source->whole : NULL;
    return CALM_OK;
}

static calm_status add_source(calm_ctx *ctx, const calm_export_input *input, const calm_export_form *form, entry e,
                              layout *out)
{
    const calm_job_ref *jobs = calm_model_layout(input->model)->jobs;
    const calm_plan_job *planned = e.of.job ? &input->plan->jobs[e.of.job - jobs] : NULL;
    const calm_tensor *whole;
    CALM_TRY(find_whole(ctx, input, form, &e, &whole));
    if (whole) {
        /* In the place of its first part. */
        if (e.of.source->data == whole->data)
            add(out, (entry){.of = {.kind = CALM_EXPORT_COPY, .block = e.of.block, .source = whole}}, *whole);
        return CALM_OK;
    }
    if (e.of.kind == CALM_EXPORT_WEIGHT && planned->quantized)
        return add_quantized(ctx, input, form, out, e, &planned->scheme);
    e.outer = calm_outer_of(input->model, input->outer, e.of.source->name);
    if (e.outer)
        return add_quantized(ctx, input, form, out, e, e.outer);
    add(out, e, *e.of.source); /* same name, dtype and shape */
    return CALM_OK;
}

/* Is a tensor of the checkpoint written?  A head that is a copy of the embedding is not. */
static bool is_written(const calm_export_input *input, bool strict, const char *name)
{
    const calm_tensor_use use = calm_model_tensor_use(input->model, name);
    return use == CALM_TENSOR_READ || (!strict && use != CALM_TENSOR_COPY);
}

/* Adds the scales of the block's KV cache as tensors. */
static calm_status add_cache(calm_ctx *ctx, const calm_export_input *input, size_t block, layout *out)
{
    const calm_kv_scales *kv = input->options ? input->options->kv : NULL;
    if (!kv || !(kv[block].k > 0))
        return CALM_OK;
    for (int which = 0; which < 2; which++) {
        calm_tensor *tensor;
        CALM_TRY(CALM_NEW(ctx, ctx->out, tensor, 1));
        *tensor = (calm_tensor){.dtype = CALM_F32, .n_dims = 1, .shape = {1}, .n_elements = 1, .bytes = sizeof(float),
                                .data = (const uint8_t *)(which ? &kv[block].v : &kv[block].k)};
        CALM_TRY(calm_kv_name(ctx, calm_model_config(input->model), calm_model_prefix(input->model), block,
                              which ? 'v' : 'k', &tensor->name));
        add(out, (entry){.of = {.kind = CALM_EXPORT_COPY, .block = (long)block, .source = tensor}}, *tensor);
    }
    return CALM_OK;
}

static calm_status lay_out(calm_ctx *ctx, const calm_export_input *input, const calm_exporter *exporter, layout *out)
{
    const calm_safetensors *set = calm_model_tensors(input->model);
    const size_t n = calm_safetensors_count(set);
    const char *rest;
    long *blocks;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, blocks, n));
    const size_t most = CALM_EXPORT_TENSORS * n, kept = input->options && input->options->kv ? 2 : 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->entries, most + kept * calm_model_config(input->model)->n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->tensors, most + kept * calm_model_config(input->model)->n_blocks));
    for (size_t i = 0; i < n; i++)
        blocks[i] = calm_tensor_block(input->model, calm_safetensors_at(set, i)->name, &rest);
    for (long block = -1; block < (long)calm_model_config(input->model)->n_blocks; block++) {
        for (size_t i = 0; i < n; i++) {
            const calm_tensor *source = calm_safetensors_at(set, i);
            if (blocks[i] != block || !is_written(input, exporter->strict, source->name))
                continue;
            const entry e = {.of = calm_export_part_of(input->model, source)};
            CALM_TRY(add_source(ctx, input, exporter->form, e, out));
        }
        if (block >= 0)
            CALM_TRY(add_cache(ctx, input, (size_t)block, out));
    }
    return CALM_OK;
}

/* ---- bytes of tensors ---- */

calm_status calm_export_put_floats(calm_ctx *ctx, calm_shards_writer *writer, calm_dtype dtype, const float *values,
                                   size_t n)
{
    void *bytes;
    CALM_TRY(calm_alloc(ctx, ctx->scratch, &bytes, n, calm_dtype_bytes(dtype), "a tensor"));
    CALM_TRY(calm_from_f32(ctx, dtype, values, n, bytes));
    return calm_shards_put(ctx, writer, bytes, n * calm_dtype_bytes(dtype));
}

calm_status calm_export_put_tensor(calm_ctx *ctx, calm_shards_writer *writer, calm_dtype dtype,
                                   const calm_tensor *tensor)
{
    const size_t row = calm_size_max(1, tensor->n_dims ? tensor->shape[tensor->n_dims - 1] : 1);
    const size_t piece = calm_size_max(1, PIECE / row) * row;    /* some readers need whole rows */
    if (dtype == tensor->dtype && !tensor->source)
        return calm_shards_put(ctx, writer, tensor->data, tensor->bytes);
    for (size_t at = 0; at < tensor->n_elements; at += piece) {
        const size_t n = calm_size_min(piece, tensor->n_elements - at);
        float *values;
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, n));
        CALM_TRY(calm_tensor_part_to_f32(ctx, tensor, at, n, values));
        CALM_TRY(calm_export_put_floats(ctx, writer, dtype, values, n));
    }
    return CALM_OK;
}

calm_status calm_export_put_f16(calm_ctx *ctx, calm_shards_writer *writer, const float *values, size_t rows,
                                size_t columns)
{
    for (size_t i = 0; i < rows * columns; i++)
        if (calm_f16_to_f32(calm_f32_to_f16(values[i])) != values[i])
            return calm_fail(ctx, CALM_ENUMERIC,
                             "%s[%zu, %zu]: %.9g is no float16, which this format stores; compressed-tensors stores it",
                             calm_shards_next(writer)->name, i / columns, i % columns, (double)values[i]);
    return calm_export_put_floats(ctx, writer, CALM_F16, values, rows * columns);
}

calm_status calm_export_put_scales(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    const size_t groups = linear->n_groups, out = linear->out;
    float *scales;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scales, out * groups));
    for (size_t g = 0; g < groups; g++)
        for (size_t o = 0; o < out; o++)
            scales[g * out + o] = linear->scales[o * groups + g];
    return calm_export_put_f16(ctx, writer, scales, groups, out);
}

calm_status calm_export_transpose(calm_ctx *ctx, const uint8_t *in, uint8_t constant, size_t rows, size_t cols,
                                  const uint32_t *order, uint8_t **out)
{
    const size_t tile = 64;    /* columns whose lines of `out` stay in the cache */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *out, rows * cols));
    if (!in)
        memset(*out, constant, rows * cols);
    for (size_t first = 0; in && first < cols; first += tile)
        for (size_t r = 0; r < rows; r++)
            for (size_t c = first; c < cols && c < first + tile; c++)
                (*out)[(order ? order[c] : c) * rows + r] = in[r * cols + c];
    return CALM_OK;
}

calm_status calm_export_put_packed(calm_ctx *ctx, calm_shards_writer *writer, const uint8_t *codes, size_t rows,
                                   size_t cols, int bits, bool by_column)
{
    const size_t n = by_column ? calm_pack_words(rows, bits) * cols : rows * calm_pack_words(cols, bits);
    uint32_t *words;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, words, n));
    (by_column ? calm_pack_columns : calm_pack_rows)(codes, rows, cols, bits, words);
    return calm_shards_put(ctx, writer, words, n * sizeof *words);
}

/* The state of writing. */
typedef struct walk {
    const calm_export_input *input;
    const calm_export_form *form;
    layout plan;
    calm_shards_writer writer;
    size_t next;     /* next entry to write */
    bool asymmetric; /* the plan has zero points */
    calm_arena *arena;      /* memory of the whole table that is being written; its tensors are consecutive */
    const calm_tensor *outer_of;
    calm_qlinear outer;
} walk;

/* Quantizes all rows of an embedding or head, piece by piece. */
static calm_status quantize_outer(calm_ctx *ctx, walk *w, const entry *e)
{
    const calm_tensor *source = e->of.source;
    const size_t rows = source->shape[0], in = source->shape[1], most = calm_outer_piece(rows, in);
    calm_qjob all = {.out = rows, .in = in, .n_groups = calm_scheme_groups(e->outer, in), .scheme = *e->outer};
    CALM_SCOPED_ARENA(arena);
    calm_arena_clear(w->arena);
    CALM_SCOPED_OUT(ctx, w->arena);
    CALM_TRY(calm_qjob_new(ctx, 0, &all));
    w->outer = (calm_qlinear){.quantized = true, .scheme = *e->outer, .out = rows, .in = in,
                              .group = calm_scheme_group_size(e->outer, in), .n_groups = all.n_groups,
                              .codes = all.codes, .scales = all.scales, .zeros = all.zeros, .mins = all.mins};
    ctx->out = &arena;
    for (size_t first = 0, n; first < rows; first += n) {
        CALM_SCOPED_SCRATCH(ctx);
        const size_t cell = first * all.n_groups;
        calm_qlinear piece;
        n = calm_size_min(most, rows - first);
        CALM_TRY(w->input->outer->rows(w->input->outer->user, ctx, source, e->outer, first, n, &piece));
        memcpy(all.codes + first * in, piece.codes, n * in);
        memcpy(all.scales + cell, piece.scales, n * all.n_groups * sizeof *all.scales);
        if (all.zeros)
            memcpy(all.zeros + cell, piece.zeros, n * all.n_groups);
        if (all.mins)
            memcpy(all.mins + cell, piece.mins, n * all.n_groups * sizeof *all.mins);
        calm_arena_clear(&arena);
    }
    w->outer_of = source;
    return CALM_OK;
}

/* The block that is being written: its attention and MLP (or shared expert), and one expert at a time. */
typedef struct assembled {
    calm_block block;
    calm_fold_set sublayer[CALM_N_SUBLAYERS];
    long expert;                 /* the expert in `one`; < 0: none yet */
    calm_fold_set one;
    calm_arena *arena;           /* memory of `one` */
} assembled;

static calm_status assemble_expert(calm_ctx *ctx, const walk *w, long expert, assembled *out)
{
    calm_weight weight[CALM_N_ROLES] = {{0}};
    CALM_SCOPED_OUT(ctx, out->arena);
    calm_arena_clear(out->arena);
    out->expert = expert;
    return calm_assemble_expert(ctx, w->input->model, w->input->plan, &out->block, (size_t)expert, weight, &out->one);
}

bool calm_export_always_f16(const calm_scheme *scheme)
{
    (void)scheme;
    return true;
}

/* Writes a tensor of a quantized linear; before the first one, fits the linear to float16 scales if necessary. */
static calm_status put_quantized(calm_ctx *ctx, walk *w, const entry *e, calm_qlinear *linear)
{
    if (w->form->stores_f16 && w->form->stores_f16(&linear->scheme))
        CALM_TRY(calm_export_fit_f16(ctx, e->of.source->name, linear));
    linear->source = e->of.source;
    return w->form->put(ctx, &w->writer, linear, e->which, w->asymmetric);
}

/* Writes a tensor that is not stacked: a part of a quantized weight, floats that folding changed, or a copy. */
static calm_status put_entry(calm_ctx *ctx, walk *w, assembled *from, const entry *e)
{
    const bool expert = e->of.job && e->of.job->expert >= 0;
    if (e->outer && w->outer_of != e->of.source)
        CALM_TRY(quantize_outer(ctx, w, e));
    if (e->outer)
        return put_quantized(ctx, w, e, &w->outer);
    if (expert && e->of.job->expert != from->expert)
        CALM_TRY(assemble_expert(ctx, w, e->of.job->expert, from));
    calm_fold_set *set = expert ? &from->one : &from->sublayer[e->of.sublayer];
    const calm_tensor *source = e->of.source;
    if (e->of.kind == CALM_EXPORT_QUANTIZED)
        return put_quantized(ctx, w, e, &set->linear[e->of.role]);
    const float *changed = calm_export_part_floats(&e->of, set);
    return changed ? calm_export_put_floats(ctx, &w->writer, source->dtype, changed, source->n_elements)
                   : calm_export_put_tensor(ctx, &w->writer, source->dtype, source);
}

/* Computes the stacked tensors of a block from entry `first` on, in ctx->out, so that each expert is assembled once. */
static calm_status fill_stacks(calm_ctx *ctx, walk *w, assembled *from, size_t first)
{
    const size_t experts = calm_model_config(w->input->model)->moe.n_experts;
    entry *entries = w->plan.entries;
    size_t end = first, n_elements, bytes = 0;
    for (; end < w->plan.n && entries[end].of.block == entries[first].of.block; end++)
        if (entries[end].stacked) {
            if (!calm_tensor_size(&w->plan.tensors[end], &n_elements, &bytes))
                return calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows", w->plan.tensors[end].name);
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, entries[end].stack, bytes));
        }
    for (size_t e = 0; e < experts; e++) {
        CALM_TRY(assemble_expert(ctx, w, (long)e, from));
        for (size_t i = first; i < end; i++) {
            CALM_SCOPED_SCRATCH(ctx);
            if (!entries[i].stacked)
                continue;
            calm_tensor_size(&w->plan.tensors[i], &n_elements, &bytes);
            calm_shards_divert(&w->writer, entries[i].stack + bytes / experts * e);
            const calm_status status = put_quantized(ctx, w, &entries[i], &from->one.linear[entries[i].of.role]);
            calm_shards_divert(&w->writer, NULL);
            CALM_TRY(status);
        }
    }
    return CALM_OK;
}

/* Writes a stacked tensor; the first one of a block computes all of them. */
static calm_status put_stacked(calm_ctx *ctx, walk *w, assembled *from, size_t index)
{
    size_t n_elements, bytes = 0;
    if (!w->plan.entries[index].stack)
        CALM_TRY(fill_stacks(ctx, w, from, index));
    calm_tensor_size(&w->plan.tensors[index], &n_elements, &bytes);
    return calm_shards_put(ctx, &w->writer, w->plan.entries[index].stack, bytes);
}

static calm_status put_entries(calm_ctx *ctx, walk *w, assembled *from, long block)
{
    for (; w->next < w->plan.n && w->plan.entries[w->next].of.block == block; w->next++) {
        const entry *e = &w->plan.entries[w->next];
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(e->stacked ? put_stacked(ctx, w, from, w->next) : put_entry(ctx, w, from, e));
        calm_safetensors_release(calm_model_tensors(w->input->model), e->of.source);
    }
    return CALM_OK;
}

/* A calm_export_block_fn. */
static calm_status put_block(void *user, calm_ctx *ctx, long block)
{
    walk *w = user;
    CALM_SCOPED_ARENA(arena);
    assembled from = {.expert = CALM_NO_EXPERT, .arena = &arena};
    if (block >= 0)
        CALM_TRY(calm_assemble_parts(ctx, w->input->model, w->input->plan, (size_t)block, &from.block, from.sublayer));
    return put_entries(ctx, w, &from, block);
}

bool calm_export_is_asymmetric(const calm_export_input *input)
{
    const calm_scheme *head = calm_outer_own_head(input->model, input->outer);
    const calm_plan *plan = input->plan;
    bool asymmetric = head && !head->symmetric;
    for (size_t i = 0; i < plan->n_jobs; i++)
        asymmetric |= plan->jobs[i].quantized && !plan->jobs[i].scheme.symmetric;
    return asymmetric;
}

/* ---- memory ---- */

/* Returns the bytes of the largest tensor that a linear's weight becomes; *all: of all of them. */
static size_t tensors_bytes(const calm_export_form *form, const calm_scheme *scheme, size_t out, size_t in, size_t *all)
{
    calm_export_tensor list[CALM_EXPORT_TENSORS];
    const size_t n = form->tensors(scheme, out, in, list);
    size_t most = 0;
    *all = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = CALM_BYTES(uint8_t, calm_export_tensor_bytes(&list[i]));
        most = calm_size_max(most, bytes);
        *all += bytes;
    }
    return most;
}

/* Returns the peak bytes of writing the linears of jobs begin .. end - 1 one by one; *all: bytes of all their tensors.
 * */
static size_t put_bytes(const calm_model *model, const calm_export_form *form, const calm_scheme *scheme, size_t begin,
                        size_t end, size_t *all)
{
    const calm_layout *table = calm_model_layout(model);
    size_t most = 0, tensors;
    *all = 0;
    for (size_t j = begin; j < end; j++)
        for (size_t i = table->jobs[j].first; i < table->jobs[j].first + table->jobs[j].n; i++) {
            const calm_linear_ref *linear = &table->linears[i];
            const size_t largest = tensors_bytes(form, scheme, linear->out, linear->in, &tensors);
            most = calm_size_max(most, largest + CALM_BYTES(uint8_t, linear->out * linear->in));
            *all += tensors;
        }
    return most;
}

static size_t checkpoint_bytes(const calm_model *model, const calm_export_form *form, const calm_scheme *scheme,
                               unsigned extras)
{
    const calm_config *config = calm_model_config(model);
    const calm_layout *table = calm_model_layout(model);
    const size_t n = calm_safetensors_count(calm_model_tensors(model));
    size_t most = 0;
    for (size_t b = 0; b < config->n_blocks; b++) {
        const size_t begin = table->block_begin[b], end = table->block_begin[b + 1];
        size_t stacks = 0, outside, first = begin, last;
        while (first < end && table->jobs[first].expert < 0)
            first++;
        for (last = first; last < end && table->jobs[last].expert == 0;)
            last++;
        size_t put = calm_size_max(put_bytes(model, form, scheme, begin, first, &outside),
                                   put_bytes(model, form, scheme, first, last, &stacks));
        put = calm_size_max(put, calm_assemble_fold_set_scratch_bytes(model, begin, last, scheme));
        most = calm_size_max(most, calm_assembled_parts_bytes(model, b, scheme, extras) +
                                       calm_assembled_expert_bytes(model, b, scheme, extras) + put +
                                       (form->stack ? config->moe.n_experts * stacks : 0));
    }
    return most + CALM_EXPORT_TENSORS * (CALM_BYTES(entry, n) + CALM_BYTES(calm_tensor, n));
}

/* ---- writing ---- */

static calm_status write_config(calm_ctx *ctx, const calm_export_input *input, const calm_export_form *form,
                                const calm_json *quantization, const char *dir)
{
    CALM_SCOPED_TEXT(text);
    char *path;
    CALM_TRY(calm_json_write(ctx, quantization, 2, &text));
    CALM_TRY(calm_export_write_config(ctx, input->model, dir, form->keys, form->keys[1] ? 2 : 1, text.data));
    if (!form->entry_file)
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, form->entry_file));
    return calm_json_save(ctx, path, quantization);
}

static calm_status write_checkpoint(calm_ctx *ctx, const calm_export_input *input, const calm_exporter *exporter,
                                    const char *dir)
{
    const calm_export_form *form = exporter->form;
    const size_t limit = input->options ? input->options->max_shard_bytes : 0;
    CALM_SCOPED_ARENA(arena);
    walk w = {.input = input, .form = form, .asymmetric = calm_export_is_asymmetric(input), .arena = &arena};
    CALM_TRY(lay_out(ctx, input, exporter, &w.plan));
    if (calm_shards_begin(ctx, &w.writer, dir, w.plan.tensors, w.plan.n, limit) == CALM_OK)
        calm_export_each_block(ctx, input, put_block, &w);
    CALM_TRY(calm_shards_end(ctx, &w.writer)); /* the first failure is in the context */
    CALM_SCOPED(calm_json *, calm_json_release) quantization = calm_json_new_object();
    CALM_TRY(form->entry(ctx, input, quantization));
    CALM_TRY(write_config(ctx, input, form, quantization, dir));
    return calm_export_copy_companions(ctx, calm_model_dir(input->model), dir);
}

/* ---- sizes ---- */

static calm_status measure_parts(calm_ctx *ctx, const calm_export_input *input, const calm_exporter *exporter,
                                 size_t most, calm_file_parts *out)
{
    const size_t limit = input->options && input->options->max_shard_bytes ? input->options->max_shard_bytes
                                                                           : CALM_SHARD_BYTES;
    layout plan = {0};
    CALM_TRY(lay_out(ctx, input, exporter, &plan));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->of, plan.n));
    out->n = plan.n;
    for (size_t i = 0; i < plan.n; i++) {
        const entry *e = &plan.entries[i];
        const bool weight = e->of.kind == CALM_EXPORT_WEIGHT || (e->of.kind == CALM_EXPORT_QUANTIZED && e->of.job);
        size_t n_elements;
        out->of[i] = (calm_file_part){.job = weight ? e->of.job : NULL, .experts = e->stacked,
                                      .elements = e->which ? 0 : e->of.source->n_elements};
        if (e->stacked)
            out->of[i].elements *= calm_model_config(input->model)->moe.n_experts;
        if (!calm_tensor_size(&plan.tensors[i], &n_elements, &out->of[i].data))
            return calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows", plan.tensors[i].name);
        CALM_TRY(calm_safetensors_header_bytes(ctx, &plan.tensors[i], most, &out->of[i].label));
    }
    /* An upper bound: two consecutive files together hold more than the limit of one. */
    CALM_TRY(calm_safetensors_header_bytes(ctx, NULL, most, &out->head));
    out->head *= 1 + (most > limit ? 2 * (most / limit) : 0);
    return CALM_OK;
}

/* ---- exporters of either kind ---- */

calm_status calm_exporter_parts(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input,
                                size_t most, calm_file_parts *out)
{
    *out = (calm_file_parts){0};
    if (exporter->form)
        return measure_parts(ctx, input, exporter, most, out);
    return exporter->parts ? exporter->parts(ctx, input, out)
                           : calm_fail(ctx, CALM_EUNSUPPORTED, "`formats` %s: has no weights, so no size to keep to",
                                       exporter->name);
}

calm_status calm_exporter_write(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input,
                                const char *dir)
{
    return exporter->form ? write_checkpoint(ctx, input, exporter, dir) : exporter->write(ctx, input, dir);
}

size_t calm_exporter_write_bytes(const calm_exporter *exporter, const calm_model *model, const calm_scheme *scheme,
                                 unsigned extras)
{
    if (exporter->form)
        return checkpoint_bytes(model, exporter->form, scheme, extras);
    return exporter->write_bytes ? exporter->write_bytes(model, scheme, extras) : 0;
}
