/* Opens a GGUF file as a model. */
#include "ptq/gguf/gguf_model.h"
#include "ptq/io/gguf_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/file.h"
#include "ptq/gguf/gguf_config.h"
#include "ptq/gguf/gguf_names_impl.h"

/* Bounds what a wrong config.json next to the file makes us read. */
#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

/* The file and the list from which the set's tensors are read. */
typedef struct opened {
    calm_gguf *file;
    calm_gguf_list list;
} opened;

/* ---- tensors ---- */

/* Reads rows of a matrix, or elements of a vector (calm_tensor_source). */
static calm_status widen(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n, float *out)
{
    const opened *from = self;
    const calm_gguf_entry *entry = tensor->entry;
    const size_t cols = calm_gguf_entry_columns(entry);
    float *rows;
    if (first % cols == 0 && n % cols == 0)
        return calm_gguf_entry_to_f32(ctx, &from->list, entry, first / cols, n / cols, out);
    /* Parts of rows need whole rows, and blocks are decoded as a whole; this is rare, since embeddings are looked up by
     * rows. */
    const size_t begin = first / cols, end = (first + n + cols - 1) / cols;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, (end - begin) * cols));
    CALM_TRY(calm_gguf_entry_to_f32(ctx, &from->list, entry, begin, end - begin, rows));
    memcpy(out, rows + (first - begin * cols), n * sizeof *out);
    return CALM_OK;
}

/* Releases pages of a tensor, which may be one expert's part of a stored tensor. */
static void release(const void *self, const calm_tensor *tensor, size_t offset, size_t bytes)
{
    const opened *from = self;
    const calm_gguf_entry *entry = tensor->entry;
    calm_gguf_release_part(from->file, entry->stored, (size_t)(tensor->data - entry->stored->data) + offset, bytes);
    /* Its rows may be anywhere in the other part. */
    if (entry->rest && bytes == tensor->bytes)
        calm_gguf_release_part(from->file, entry->rest, 0, entry->rest->bytes);
}

static void close_file(void *self)
{
    opened *from = self;
    calm_gguf_close(from->file);
    free(from);
}

/* Describes an entry as a tensor.  Floats in a checkpoint's order need no source. */
static void fill_tensor(const opened *from, const calm_gguf_entry *entry, const calm_tensor_source *source,
                        calm_tensor *out)
{
    const calm_gguf_tensor *stored = entry->stored;
    const calm_dtype dtype = calm_ggml_dtype(stored->type);
    /* Quantized blocks have no dtype in checkpoints: they are read as float32. */
    const bool experts = entry->spot.expert >= 0;
    const size_t bytes = experts ? stored->bytes / calm_gguf_experts_in(stored) : stored->bytes;
    /* The experts of a projection share a tensor; each has an equal part of its bytes. */
    *out = (calm_tensor){.name = entry->name,
                         .dtype = dtype == CALM_N_DTYPES ? CALM_F32 : dtype,
                         .n_dims = entry->n_dims,
                         .shape = {entry->shape[0], entry->shape[1], entry->shape[2]},
                         .data = stored->data + (experts ? (size_t)entry->spot.expert * bytes : 0),
                         .bytes = bytes,
                         .n_elements = entry->shape[0] * entry->shape[1] * entry->shape[2],
                         .file = calm_gguf_path(from->file),
                         .entry = entry};
    /* Exporters copy tensors without a source byte by byte. */
    if (dtype == CALM_N_DTYPES || entry->order.form != CALM_GGUF_AS_IS || entry->spot.plus_one || entry->spot.minus_exp
        || entry->factor)
        out->source = source;
}

/* States a float file's dtype in config.json: that of the embedding. */
static void add_dtype(const opened *from, calm_gguf_opened *out)
{
    const calm_gguf_tensor *table = calm_gguf_find_tensor(from->file, "token_embd.weight");
    const calm_dtype dtype = table ? calm_ggml_dtype(table->type) : CALM_N_DTYPES;
    if (!out->quantized && dtype != CALM_N_DTYPES && !calm_json_get(out->config, "torch_dtype"))
        calm_json_set_string(out->config, "torch_dtype", calm_dtype_word(dtype));
}

/* Makes the set of the tensors that a checkpoint would have; the set then owns `from`. */
static calm_status make_set(calm_ctx *ctx, opened *from, calm_gguf_opened *out)
{
    const calm_tensor_source source = {.self = from, .widen = widen, .release = release, .close = close_file};
    calm_tensor *tensors = NULL;
    size_t n = 0;
    CALM_SCOPED_SCRATCH(ctx);
    /* From here on the set owns the file; if the set cannot be made, this function closes it. */
    if (CALM_NEW(ctx, ctx->scratch, tensors, from->list.n + 1) != CALM_OK) {
        close_file(from);
        return ctx->status;
    }
    for (size_t i = 0; i < from->list.n; i++) {
        const calm_gguf_entry *entry = &from->list.entries[i];
        if (!entry->name)    /* rope_freqs.weight, scales of activations: no tensors of a checkpoint */
            continue;
        fill_tensor(from, entry, &source, &tensors[n]);
        out->quantized |= calm_gguf_is_in_blocks(&tensors[n++]);
    }
    add_dtype(from, out);
    return calm_safetensors_of(ctx, tensors, n, &source, &out->tensors);
}

/* Returns the block type of a tensor that this file made. */
static const calm_ggml_info *info_of(const calm_tensor *tensor)
{
    const calm_gguf_entry *entry = tensor->entry;
    return calm_ggml_find(entry->stored->type);
}

const char *calm_gguf_stored_type(const calm_tensor *tensor)
{
    return info_of(tensor)->name;
}

bool calm_gguf_is_in_blocks(const calm_tensor *tensor)
{
    return info_of(tensor)->elements > 1;
}

/* ---- the file ---- */

/* Builds the configuration from the keys, or where they are incomplete reads a config.json next to the file. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_gguf_list *list, calm_json **out)
{
    char *beside;
    if (calm_gguf_config(ctx, list, NULL, NULL, out) != CALM_EUNSUPPORTED)
        return ctx->status;
    /* The message about the keys stays in the context unless there is such a file. */
    CALM_SCOPED_ARENA(arena);
    calm_ctx look;
    calm_ctx_init(&look, &arena, &arena);
    CALM_TRY(calm_path_beside(&look, &arena, &beside, path, "config.json"));
    if (!calm_path_exists(beside))
        return ctx->status;
    calm_ctx_clear_failure(ctx);
    return calm_json_read(ctx, beside, CONFIG_MAX, out);
}

/* Reads the dense layers dense_2.weight and dense_3.weight. */
static calm_status read_dense(calm_ctx *ctx, const opened *from, calm_gguf_opened *out)
{
    static const char *const names[2] = {"dense_2.weight", "dense_3.weight"};
    const calm_gguf_tensor *table = calm_gguf_find_tensor(from->file, "token_embd.weight");
    size_t in = table ? table->dims[0] : 0;
    const calm_gguf_tensor *found[2] = {calm_gguf_find_tensor(from->file, names[0]),
                                        calm_gguf_find_tensor(from->file, names[1])};
    if (!from->list.as->both_ways || (!found[0] && !found[1]))
        return CALM_OK;
    for (int i = 0; i < 2; i++) {
        float *w;
        if (!found[i] || found[i]->n_dims != 2 || found[i]->dims[0] != in || (i && found[i]->dims[1] != table->dims[0]))
            return calm_fail(ctx, CALM_EFORMAT,
                             "%s: tensor %s: expected two matrices, dense_2.weight of %zu columns and dense_3.weight "
                             "that leads back to as many rows", calm_gguf_path(from->file), names[i],
                             table ? table->dims[0] : 0);
        in = found[i]->dims[1];
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, found[i]->n_elements));
        CALM_TRY(calm_gguf_to_f32(ctx, from->file, found[i], 0, in, w));
        out->dense[i].in = found[i]->dims[0];
        out->dense[i].out = in;
        out->dense[i].w = w;
    }
    return CALM_OK;
}

/* Reads everything but the tensors' elements; after a failure the caller closes `from`. */
static calm_status read_file(calm_ctx *ctx, const char *path, opened *from, calm_gguf_opened *out)
{
    char name[96];
    CALM_TRY(calm_gguf_open_split(ctx, path, &from->file));
    CALM_TRY(calm_gguf_list_tensors(ctx, from->file, &from->list));
    snprintf(name, sizeof name, "%s.pooling_type", from->list.as->name);
    /* Its value is checked with the other keys. */
    calm_gguf_int(calm_gguf_find_key(from->file, name), 0, &out->pooling);
    CALM_TRY(read_dense(ctx, from, out));
    return read_config(ctx, path, &from->list, &out->config);
}

calm_status calm_gguf_open_model(calm_ctx *ctx, const char *path, calm_gguf_opened *out)
{
    opened *from = calloc(1, sizeof *from);
    *out = (calm_gguf_opened){0};
    if (!from)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    /* Each failing function closes the file: read_file leaves that to this one, make_set does it itself. */
    if (read_file(ctx, path, from, out) == CALM_OK)
        make_set(ctx, from, out);
    else
        close_file(from);
    if (ctx->status != CALM_OK) {
        calm_json_free(out->config);
        out->config = NULL;
    }
    return ctx->status;
}
