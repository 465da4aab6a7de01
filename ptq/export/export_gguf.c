/* GGUF: writes the file that llama.cpp loads (docs/formats.md section 6).
 *
 *   keys       the architecture (gguf_arch.c) and the tokenizer (gguf_tokenizer.c)
 *   linears    codes and scales as ggml's blocks, without a change of values (gguf_linear.c)
 *   the rest   float; vectors float32; Gemma's norms with their 1 added
 * If rows have another order in GGUF (gguf_order.h), codes and scales move with them.  Memory holds one block at a
 * time, of a mixture one expert; an expert's three projections are in three tensors, so it is assembled three times. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/io/gguf_split.h"
#include "ptq/plan/assemble.h"
#include "ptq/export/gguf_arch.h"
#include "ptq/export/gguf_factors.h"
#include "ptq/export/gguf_layout.h"
#include "ptq/export/gguf_linear.h"
#include "ptq/export/gguf_tokenizer.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/arch/arch.h"
#include "ptq/model/pooling.h"

/* Number of elements that are converted at once. */
#define PIECE ((size_t)64 * 1024)

/* ---- bytes ---- */

typedef struct output {
    const calm_export_input *input;
    const calm_gguf_layout *layout;
    calm_gguf_writer writer;
    size_t next; /* next part to write */
    const char *path;
    const calm_gguf_keys *keys;
    size_t *file_begin;    /* [n_files + 1] first tensor of each file */
    size_t n_files, file;  /* number of files; the open one */
    float *factors; /* [experts, or 1] 1 / global scale of the matrix that was written last */
} output;

static calm_status put_floats(calm_ctx *ctx, output *to, const calm_gguf_part *part, calm_ggml_type type,
                              const float *values, size_t n)
{
    const size_t size = calm_dtype_bytes(calm_ggml_dtype(type));
    CALM_SCOPED_SCRATCH(ctx);
    uint8_t *bytes;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, bytes, n * size));
    CALM_TRY(calm_from_f32(ctx, calm_ggml_dtype(type), values, n, bytes));
    if (type == CALM_GGML_F16)    /* float16 ends at 65504 */
        for (size_t i = 0; i < n; i++)
            if ((bytes[2 * i + 1] & 0x7c) == 0x7c)
                return calm_fail(ctx, CALM_ENUMERIC,
                                 "gguf: tensor %s: the value %g is out of float16's range; write bf16 or f32",
                                 part->of.source->name, (double)values[i]);
    return calm_gguf_put(ctx, &to->writer, bytes, n * size);
}

/* Writes a vector: `values`, or if NULL the checkpoint's. */
static calm_status put_vector(calm_ctx *ctx, output *to, const calm_gguf_part *part, const float *values)
{
    const size_t n = part->of.source->n_elements;
    float *out;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out, 2 * n));
    if (!values) {
        CALM_TRY(calm_tensor_to_f32(ctx, part->of.source, out + n));
        values = out + n;
    }
    for (size_t i = 0; i < n; i++) {
        const float value = values[calm_gguf_order_row(&part->order, i)];
        out[i] = part->spot.minus_exp ? -expf(value) : value + (part->spot.plus_one ? 1 : 0);
    }
    return put_floats(ctx, to, part, CALM_GGML_F32, out, n);
}

/* Writes rows of keys as columns, head by head: [rank] rows of `nope` values. */
static calm_status put_keys(calm_ctx *ctx, output *to, const calm_gguf_part *part, const calm_tensor *source,
                            calm_ggml_type type, const float *values)
{
    const calm_gguf_widths *w = part->order.widths;
    const size_t rank = source->shape[1], n = w->nope * rank;
    float *rows, *turned;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, turned, n));
    for (size_t head = 0; head < w->heads; head++) {
        const size_t from = head * (w->nope + w->value) * rank;
        if (!values)
            CALM_TRY(calm_tensor_part_to_f32(ctx, source, from, n, rows));
        for (size_t i = 0; i < w->nope; i++)
            for (size_t c = 0; c < rank; c++)
                turned[c * w->nope + i] = (values ? values + from : rows)[i * rank + c];
        CALM_TRY(put_floats(ctx, to, part, type, turned, n));
    }
    return CALM_OK;
}

/* Copies one row with its columns in the file's order. */
static const float *order_columns(const calm_gguf_part *part, const float *row, size_t cols, float *room)
{
    if (part->order.form != CALM_GGUF_VALUE_COLUMNS)
        return row;
    for (size_t c = 0; c < cols; c++)
        room[c] = row[calm_gguf_order_column(&part->order, c)];
    return room;
}

/* Writes rows of a float matrix: of `values`, or if NULL of `source`. */
static calm_status put_matrix(calm_ctx *ctx, output *to, const calm_gguf_part *part, const calm_tensor *source,
                              calm_ggml_type type, const float *values)
{
    const bool ordered = part->order.form != CALM_GGUF_AS_IS, columns = part->order.form == CALM_GGUF_VALUE_COLUMNS;
    const size_t rows = part->n_rows, cols = source->n_elements / source->shape[0];
    const size_t most = ordered || cols >= PIECE ? 1 : PIECE / cols;
    const bool raw = !values && !source->source && source->dtype == calm_ggml_dtype(type) && !columns;
    float *piece;
    if (part->order.form == CALM_GGUF_KV_KEYS)
        return put_keys(ctx, to, part, source, type, values);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, piece, 2 * most * cols));
    for (size_t row = 0; row < rows; row += most) {
        const size_t n = rows - row < most ? rows - row : most;
        const size_t from = calm_gguf_order_row(&part->order, row);
        if (!values)
            CALM_TRY(
                calm_tensor_part_to_f32(ctx, source, from * cols, n * cols, piece)); /* refuses infinity and NaN */
        if (raw)
            CALM_TRY(calm_gguf_put(ctx, &to->writer, source->data + from * cols * calm_dtype_bytes(source->dtype),
                                   n * cols * calm_dtype_bytes(source->dtype)));
        else
            CALM_TRY(put_floats(ctx, to, part, type,
                                order_columns(part, values ? values + from * cols : piece, cols, piece + most * cols),
                                n * cols));
    }
    return CALM_OK;
}

/* Repeats the first row, which transformers uses for ids beyond a table. */
static calm_status repeat_row(calm_ctx *ctx, output *to, const calm_gguf_part *part, calm_ggml_type type)
{
    const size_t cols = part->of.source->shape[1];
    float *row;
    if (!part->n_repeats)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, cols));
    CALM_TRY(calm_tensor_part_to_f32(ctx, part->of.source, 0, cols, row));
    for (size_t i = 0; i < part->n_repeats; i++)
        CALM_TRY(put_floats(ctx, to, part, type, row, cols));
    return CALM_OK;
}

/* Writes zeros for a tensor that the loader requires and nothing reads. */
static calm_status put_zeros(calm_ctx *ctx, output *to, const calm_gguf_part *part, calm_ggml_type type)
{
    const size_t *shape = part->of.source->shape, cols = part->of.source->n_dims == 2 ? shape[1] : 1;
    float *zeros;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, zeros, cols));
    for (size_t row = 0; row < shape[0]; row++)
        CALM_TRY(put_floats(ctx, to, part, type, zeros, cols));
    return CALM_OK;
}

/* Writes the matrices of all streams but one; the part has the first of them. */
static calm_status put_streams(calm_ctx *ctx, output *to, const calm_gguf_part *part, calm_ggml_type type)
{
    const calm_model *model = to->input->model;
    const char *first = part->of.source->name;
    const size_t stem = strlen(first) - strlen("0.weight");
    for (size_t i = 0; i + 1 < calm_model_config(model)->streams.n; i++) {
        const calm_tensor *source;
        CALM_SCOPED_SCRATCH(ctx);
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%.*s%zu.weight", (int)stem, first, i));
        CALM_TRY(calm_safetensors_need(ctx, calm_model_tensors(model), name, 2, part->of.source->shape, &source));
        CALM_TRY(put_matrix(ctx, to, part, source, type, NULL));
    }
    return CALM_OK;
}

/* Writes a linear's weight: codes, floats that folding changed, or the checkpoint's floats. */
static calm_status put_linear(calm_ctx *ctx, output *to, const calm_gguf_part *part, const calm_tensor *source,
                              calm_ggml_type type, calm_qlinear *linear, float *factor)
{
    if (!linear->quantized)
        return put_matrix(ctx, to, part, source, type, linear->w);
    CALM_TRY(calm_export_fit_f16(ctx, source->name, linear));
    *factor = linear->global > 0 ? 1 / linear->global : 1;
    for (size_t row = 0; row < part->n_rows; row++)
        CALM_TRY(calm_gguf_put_row(ctx, &to->writer, linear, source->name, calm_gguf_order_row(&part->order, row),
                                   &part->order, type));
    return CALM_OK;
}

/* Writes a quantized embedding or head, some rows at a time. */
static calm_status put_table(calm_ctx *ctx, output *to, const calm_gguf_part *part, calm_ggml_type type)
{
    const calm_tensor *source = part->of.source;
    const size_t rows = source->shape[0], most = calm_outer_piece(rows, source->shape[1]);
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    for (size_t first = 0, n; first < rows; first += n) {
        CALM_SCOPED_SCRATCH(ctx);
        calm_qlinear piece;
        n = calm_size_min(most, rows - first);
        CALM_TRY(to->input->outer->rows(to->input->outer->user, ctx, source, part->table, first, n, &piece));
        for (size_t row = 0; row < n; row++)
            CALM_TRY(calm_gguf_put_row(ctx, &to->writer, &piece, source->name, row, &part->order, type));
        calm_arena_clear(&arena);
    }
    return CALM_OK;
}

/* Writes a layer after the pooling, read from its own folder. */
static calm_status put_dense(calm_ctx *ctx, output *to, const calm_gguf_part *part, calm_ggml_type type)
{
    const bool last = strcmp(part->spot.name, "dense_2.weight") != 0;
    calm_pooling_step step = calm_model_config(to->input->model)->pooling->steps[last];
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_pooling_load_step(ctx, &step));
    return put_matrix(ctx, to, part, part->of.source, type, step.w);
}

/* ---- blocks ---- */

/* The block that is being written: its attention, and its MLP or shared expert. */
typedef struct assembled {
    calm_block block;
    calm_fold_set sublayer[CALM_N_SUBLAYERS];
} assembled;

/* Writes the weights or biases of all experts; the part has expert 0's. */
static calm_status put_experts(calm_ctx *ctx, output *to, const assembled *from, const calm_gguf_part *part,
                               calm_ggml_type type)
{
    const calm_model *model = to->input->model;
    const calm_config *config = calm_model_config(model);
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    for (size_t e = 0; e < config->moe.n_experts; e++) {
        calm_weight weight[CALM_N_ROLES] = {{0}};
        const calm_tensor *source;
        calm_fold_set one;
        char *module, *name;
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(calm_assemble_expert(ctx, model, to->input->plan, &from->block, e, weight, &one));
        CALM_TRY(calm_role_module(ctx, config, calm_model_prefix(model), (size_t)part->of.block, part->of.role, (long)e,
                                  &module));
        const bool bias = part->of.source->n_dims == 1;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.%s", module, bias ? "bias" : "weight"));
        CALM_TRY(calm_safetensors_need(ctx, calm_model_tensors(model), name, bias ? 1 : 2, part->of.source->shape,
                                       &source));
        if (bias) {
            calm_gguf_part own = *part;
            own.of.source = source;
            CALM_TRY(put_vector(ctx, to, &own, one.linear[part->of.role].bias));
        } else {
            CALM_TRY(put_linear(ctx, to, part, source, type, &one.linear[part->of.role], &to->factors[e]));
        }
        calm_safetensors_release(calm_model_tensors(model), source);
        calm_arena_clear(&arena);
    }
    return CALM_OK;
}

static calm_status put_part(calm_ctx *ctx, output *to, assembled *from, const calm_gguf_part *part,
                            calm_ggml_type type)
{
    calm_fold_set *set = &from->sublayer[part->of.sublayer];
    float *factors;
    if (part->factor)
        return put_floats(ctx, to, part, type, to->factors, to->layout->tensors[to->next].dims[0]);
    if (part->table)
        return put_table(ctx, to, part, type);
    if (part->of.kind == CALM_EXPORT_DENSE)
        return put_dense(ctx, to, part, type);
    if (part->of.kind == CALM_EXPORT_EXPERTS)
        return put_experts(ctx, to, from, part, type);
    if (part->of.kind == CALM_EXPORT_WEIGHT)
        return put_linear(ctx, to, part, part->of.source, type, &set->linear[part->of.role], to->factors);
    if (part->of.kind == CALM_EXPORT_ROPE_FACTORS) {
        CALM_TRY(calm_gguf_rope_factors(ctx, to->input->model, &factors));
        return put_floats(ctx, to, part, type, factors, part->of.source->shape[0]);
    }
    if (part->of.kind == CALM_EXPORT_ZEROS)
        return put_zeros(ctx, to, part, type);
    if (part->of.kind == CALM_EXPORT_STREAMS)
        return put_streams(ctx, to, part, type);
    if (part->of.source->n_dims < 2)
        return put_vector(ctx, to, part, calm_export_part_floats(&part->of, set));
    CALM_TRY(put_matrix(ctx, to, part, part->of.source, type, NULL));
    return repeat_row(ctx, to, part, type);
}

/* ---- files ---- */

/* Begins a file with its tensors; of several files only the first has the model's keys, and each has its number. */
static calm_status begin_file(calm_ctx *ctx, output *to)
{
    CALM_SCOPED(calm_gguf_keys, calm_gguf_keys_clear) own = {0};
    const size_t first = to->file_begin[to->file], n = to->file_begin[to->file + 1] - first;
    char *path;
    CALM_TRY(calm_gguf_split_path(ctx, to->path, to->file, to->n_files, &path));
    if (to->n_files == 1)
        return calm_gguf_begin(ctx, &to->writer, path, to->keys, to->layout->tensors, n);
    if (!to->file) {
        calm_text_append(&own.bytes, to->keys->bytes.data, to->keys->bytes.length);
        own.n = to->keys->n;
    }
    calm_gguf_add_u16(&own, "split.no", (uint16_t)to->file);
    calm_gguf_add_u16(&own, "split.count", (uint16_t)to->n_files);
    calm_gguf_add_i32(&own, "split.tensors.count", (int32_t)to->layout->n);
    return calm_gguf_begin(ctx, &to->writer, path, &own, to->layout->tensors + first, n);
}

static calm_status next_file(calm_ctx *ctx, output *to)
{
    CALM_TRY(calm_gguf_end(ctx, &to->writer));
    to->file++;
    return begin_file(ctx, to);
}

/* Divides the tensors among files: a file ends before the tensor with which its data would exceed `most` bytes; 0: one
 * file. */
static calm_status divide(calm_ctx *ctx, output *to, size_t most)
{
    size_t in_file = 0, label, bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->file_begin, to->layout->n + 2));
    to->n_files = 1;
    for (size_t i = 0; i < to->layout->n; i++) {
        calm_gguf_sizes(&to->layout->tensors[i], &bytes, &label);
        if (most && in_file && bytes > most - calm_size_min(in_file, most)) {
            to->file_begin[to->n_files++] = i;
            in_file = 0;
        }
        in_file += bytes;
    }
    to->file_begin[to->n_files] = to->layout->n;
    if (to->n_files > UINT16_MAX)
        return calm_fail(ctx, CALM_EARG, "gguf: `export.max_shard_size` makes %zu files, more than the format's %d; "
                         "take a larger one", to->n_files, UINT16_MAX);
    return CALM_OK;
}

/* A calm_export_block_fn. */
static calm_status put_block(void *user, calm_ctx *ctx, long block)
{
    output *to = user;
    const calm_model *model = to->input->model;
    assembled from = {0};
    if (block >= 0)
        CALM_TRY(calm_assemble_parts(ctx, model, to->input->plan, (size_t)block, &from.block, from.sublayer));
    for (; to->next < to->layout->n && to->layout->parts[to->next].of.block == block; to->next++) {
        if (to->next == to->file_begin[to->file + 1])
            CALM_TRY(next_file(ctx, to));
        const calm_gguf_part *part = &to->layout->parts[to->next];
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(put_part(ctx, to, &from, part, to->layout->tensors[to->next].type));
        if (part->of.source->data)
            calm_safetensors_release(calm_model_tensors(model), part->of.source);
    }
    return CALM_OK;
}

/* ---- the exporter ---- */

/* Computes layout and keys, which includes all refusals. */
static calm_status prepare(calm_ctx *ctx, const calm_export_input *input, calm_gguf_layout *layout,
                           calm_gguf_keys *keys)
{
    const calm_tensor *table;
    CALM_TRY(calm_gguf_check_arch(ctx, input->model));
    CALM_TRY(calm_gguf_lay_out(ctx, input, layout));
    CALM_TRY(calm_gguf_add_arch(ctx, input->model, layout->file_type, keys));
    CALM_TRY(calm_model_table(ctx, input->model, false, &table));
    return calm_gguf_add_tokenizer(ctx, calm_model_dir(input->model), calm_model_text_json(input->model),
                                   table->shape[0], calm_model_config(input->model)->arch->encoder,
                                   input->options ? input->options->gguf_pre : NULL, keys);
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    CALM_SCOPED(calm_gguf_keys, calm_gguf_keys_clear) keys = {0};
    calm_gguf_layout layout;
    return prepare(ctx, input, &layout, &keys);
}

static calm_status write(calm_ctx *ctx, const calm_export_input *input, const char *dir)
{
    CALM_SCOPED(calm_gguf_keys, calm_gguf_keys_clear) keys = {0};
    calm_gguf_layout layout;
    output to = {.input = input, .layout = &layout};
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, "model.gguf"));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to.factors, calm_size_max(1, calm_model_config(input->model)->moe.n_experts)));
    {
        CALM_SCOPED_SILENCE(ctx);    /* the check has already warned */
        CALM_TRY(prepare(ctx, input, &layout, &keys));
    }
    to.path = path;
    to.keys = &keys;
    CALM_TRY(divide(ctx, &to, input->options ? input->options->max_shard_bytes : 0));
    if (begin_file(ctx, &to) == CALM_OK)
        calm_export_each_block(ctx, input, put_block, &to);
    return calm_gguf_end(ctx, &to.writer); /* the first failure is in the context */
}

static calm_status parts(calm_ctx *ctx, const calm_export_input *input, calm_file_parts *out)
{
    CALM_SCOPED(calm_gguf_keys, calm_gguf_keys_clear) keys = {0};
    calm_gguf_layout layout;
    CALM_TRY(prepare(ctx, input, &layout, &keys));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->of, layout.n));
    out->n = layout.n;
    for (size_t i = 0; i < layout.n; i++) {
        const calm_export_part *of = &layout.parts[i].of;
        const bool all = of->kind == CALM_EXPORT_EXPERTS;
        const bool matrix = of->source->n_dims > 1 && (all || of->kind == CALM_EXPORT_WEIGHT);
        out->of[i] = (calm_file_part){.job = matrix ? of->job : NULL, .experts = all,
                                      .elements = layout.parts[i].n_elements};
        if (of->kind >= CALM_EXPORT_ZEROS || layout.parts[i].factor)    /* of no tensor of the model */
            out->of[i].elements = 0;
        calm_gguf_sizes(&layout.tensors[i], &out->of[i].data, &out->of[i].label);
    }
    out->head = calm_gguf_head_bytes(&keys);
    return CALM_OK;
}

/* A block and one of its experts, and a piece of floats: read, permuted, and as they are written. */
static size_t write_bytes(const calm_model *model, const calm_scheme *scheme, unsigned extras)
{
    const calm_config *config = calm_model_config(model);
    const calm_layout *layout = calm_model_layout(model);
    /* Of latent attention the keys of a head. */
    size_t most = 0, widest = calm_size_max(PIECE, config->latent.nope * config->latent.kv_rank);
    /* A row of the table of all blocks' inputs. */
    widest = calm_size_max(widest, config->n_blocks * config->per_layer);
    for (size_t j = 0; j < layout->n_jobs; j++)
        widest = calm_size_max(widest, calm_size_max(layout->jobs[j].in, layout->jobs[j].out));
    for (size_t b = 0; b < config->n_blocks; b++) {
        const size_t begin = layout->block_begin[b], end = layout->block_begin[b + 1];
        const size_t put = calm_size_max(3 * CALM_BYTES(float, widest),
                                         calm_assemble_fold_set_scratch_bytes(model, begin, end, scheme));
        most = calm_size_max(most, calm_assembled_parts_bytes(model, b, scheme, extras) +
                                       calm_assembled_expert_bytes(model, b, scheme, extras) + put);
    }
    size_t dense = 0;
    for (size_t i = 0; config->pooling && i < config->pooling->n_steps; i++)
        dense = calm_size_max(dense, calm_pooling_step_bytes(&config->pooling->steps[i]));
    return calm_size_max(most, dense + 3 * CALM_BYTES(float, widest));
}

/* Returns the default as llama-quantize: 8 bits if all weights have 8 bits, else Q6_K for the head and a tied table,
 * and the scheme of most weights for an untied embedding. */
static calm_scheme outer_default(calm_outer which, const calm_scheme *most, bool tied)
{
    const bool bytes = !most->family && most->bits == 8, head = tied || which == CALM_OUTER_HEAD;
    calm_scheme out = *most;
    const bool none = most->family == CALM_FAMILY_NVFP4;    /* not a type of tables, which become Q8_0 */
    if (!most->family || none)    /* Q8_0, Q4_1 or Q4_0: groups of 32 whatever the plan has */
        out = (calm_scheme){.bits = bytes || none ? 8 : 4, .group = 32, .symmetric = bytes || most->symmetric,
                            .scale_dtype = CALM_F16};
    if (head && !bytes)
        out = (calm_scheme){.bits = calm_families[CALM_FAMILY_Q6_K].bits, .symmetric = true, .scale_dtype = CALM_BF16,
                            .group = calm_families[CALM_FAMILY_Q6_K].group, .family = CALM_FAMILY_Q6_K};
    out.act_bits = 0;
    return out;
}

static calm_status check_outer(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in)
{
    calm_ggml_type type;
    /* Rows of an embedding are looked up, and a tied table's scale would count for both. */
    if (scheme->family == CALM_FAMILY_NVFP4)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "gguf: %s is nvfp4a16: llama.cpp takes no global scale for tables; "
                         "use q6_k or w8a16_g32 for it", module);
    return calm_gguf_type_of(ctx, scheme, module, in, &type);
}

const calm_exporter calm_export_gguf = {
    .name = "gguf",
    .summary = "one model.gguf for llama.cpp: int4 as Q4_0 or Q4_1, int8 as Q8_0, k-quants, with its tokenizer",
    .file = "model.gguf",
    .serve = "llama-server -m",
    .strict = true,    /* llama.cpp refuses some of the others, and applies some that config.json switches off */
    .families = CALM_GGUF_FAMILIES,
    .tie = CALM_TIE_PROJECTION,
    .parts_apart = true,
    .outer = outer_default,
    .check_outer = check_outer,
    .outer_pool = "q6_k,w8a16_g32,q5_k,q4_k,q3_k,q2_k",
    .refuses = calm_export_gguf_refuses,
    .bits = calm_export_gguf_bits,
    .check = check,
    .write_bytes = write_bytes,
    .write = write,
    .parts = parts,
};
