/* Dequantize: lists the tensors to write first, each with its source, then writes them one by one. */
#include "ptq/io/gguf_split.h"
#include "ptq/export/dequantize.h"

#include <math.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/export/companions.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/io/folder.h"
#include "ptq/io/shards.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/weights/adapter.h"
#include "ptq/gguf/gguf_config.h"
#include "ptq/weights/published.h"
#include "ptq/weights/qformat.h"
#include "ptq/tensor/rotation.h"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)
#define MOST_EXPERTS ((size_t)1 << 16) /* largest number of experts of a block */
#define STACK ".switch_mlp."           /* mlx-lm's module with all experts of a block in one tensor */
#define ROWS_AT_ONCE ((size_t)1 << 22) /* elements of a tensor that are widened together */
#define TURNED ((size_t)32)            /* rows that are transposed together              */

/* The source of a tensor. */
typedef struct source {
    const calm_tensor *plain; /* copied or converted                           */
    bool turned;              /* to write as [in, out], while `plain` is [out, in] */
    const char *module;       /* name of the quantized module whose weight it is */
    calm_qformat_scheme scheme;
    const calm_gguf_entry *entry; /* tensor of a GGUF file                         */
} source;

typedef struct work {
    calm_ctx *ctx;
    const char *path;
    const calm_dequantize_options *options;
    calm_dequantize_result *result;
    calm_json *config; /* config.json to write */
    calm_json *read;   /* config.json as read  */
    const calm_safetensors *set;
    calm_safetensors *files; /* `set`, if it is not the model's */
    calm_model *model;       /* the model with an adapter; NULL: none */
    calm_published published;
    calm_qformat_reader *stored;
    calm_gguf *gguf;
    calm_gguf_list list;
    calm_tensor *tensors; /* [n] tensors to write */
    source *sources;      /* [n] */
    size_t n;
} work;

/* ---- the configuration ---- */

static const char *dtype_name(const calm_json *config, const char *fallback)
{
    return calm_json_string(calm_json_get(config, "dtype"),
                            calm_json_string(calm_json_get(config, "torch_dtype"), fallback));
}

static calm_dtype dtype_of(const calm_json *config, calm_dtype fallback)
{
    const calm_dtype dtype =
        calm_dtype_of_word(dtype_name(config, dtype_name(calm_json_get(config, "text_config"), "")));
    return dtype == CALM_N_DTYPES ? fallback : dtype;
}

/* Copies the members of config.json without those about quantization, and sets the weights' dtype. */
static calm_json *plain_config(const calm_json *read, calm_dtype asked)
{
    calm_json *out = calm_json_new_object();
    const calm_json *value;
    const char *key;
    for (void *iter = NULL; calm_json_next(read, &iter, &key, &value);) {
        const bool dtype = strcmp(key, "torch_dtype") == 0 || strcmp(key, "dtype") == 0;
        if (strcmp(key, "quantization_config") == 0 || strcmp(key, "quantization") == 0)
            continue;
        if (dtype && asked != CALM_N_DTYPES)
            calm_json_set_string(out, key, calm_dtype_word(asked));
        else
            calm_json_set(out, key, calm_json_copy(value));
    }
    return out;
}

/* ---- a directory ---- */

/* Returns the number of experts that share a tensor of codes; 0: the tensor is one matrix. */
static size_t n_stacked(const calm_tensor *tensor)
{
    return tensor->n_dims == 3 && tensor->dtype == CALM_U32 && strstr(tensor->name, STACK) ? tensor->shape[0] : 0;
}

/* Adds the weight of a module whose codes are in `tensor`; if experts share the tensor, of expert `expert`. */
static calm_status add_weight(work *w, const calm_tensor *tensor, const char *dot, calm_dtype dtype, size_t expert)
{
    const char *stack = tensor->n_dims == 3 ? strstr(tensor->name, STACK) : NULL;
    char *module;
    bool quantized = false;
    source *from = &w->sources[w->n];
    calm_tensor *to = &w->tensors[w->n];
    if (stack)
        CALM_TRY(calm_strf(w->ctx, w->ctx->out, &module, "%.*s.experts.%zu.%.*s", (int)(stack - tensor->name),
                           tensor->name, expert, (int)(dot - stack - (long)strlen(STACK)), stack + strlen(STACK)));
    else
        CALM_TRY(calm_strf(w->ctx, w->ctx->out, &module, "%.*s", (int)(dot - tensor->name), tensor->name));
    *to = (calm_tensor){.dtype = dtype, .n_dims = 2};
    CALM_TRY(calm_strf(w->ctx, w->ctx->out, &to->name, "%s.weight", module));
    CALM_TRY(calm_qformat_find(w->ctx, w->stored, w->set, module, &quantized, &from->scheme));
    if (!quantized)
        return calm_fail(w->ctx, CALM_EFORMAT,
                         "%s: %s has quantized tensors, but config.json says that it stays float; calm check says more",
                         w->path, module);
    /* The shape from the tensors; calm_qformat_load checks all of them against it. */
    CALM_TRY(calm_qformat_shape(w->ctx, calm_qformat_of(w->stored), w->set, module, &from->scheme, tensor,
                                &to->shape[0], &to->shape[1]));
    if (!to->shape[0] || !to->shape[1])
        return calm_fail(w->ctx, CALM_EFORMAT, "%s: tensor %s: expected a matrix of codes", tensor->file, tensor->name);
    from->module = module;
    w->n++;
    w->result->n_dequantized++;
    return CALM_OK;
}

/* Adds float tensors, including those of a quantized source; mixtures in mxfp4 are written in transformers' layout. */
static calm_status list_floats(work *w, calm_dtype dtype)
{
    const size_t n = calm_safetensors_count(w->set);
    CALM_TRY(CALM_NEW(w->ctx, w->ctx->out, w->tensors, n + 1));
    CALM_TRY(CALM_NEW(w->ctx, w->ctx->out, w->sources, n + 1));
    for (w->n = 0; w->n < n; w->n++) {
        const calm_tensor *tensor = calm_safetensors_at(w->set, w->n);
        calm_tensor *to = &w->tensors[w->n];
        *to = *tensor;
        w->sources[w->n] = (source){.plain = tensor};
        if (w->options->dtype != CALM_N_DTYPES && calm_dtype_is_float(tensor->dtype))
            to->dtype = dtype;
        if (!tensor->source || w->published.kind != CALM_PUBLISHED_MXFP4)
            continue;
        w->sources[w->n].turned = true;
        to->shape[1] = tensor->shape[2];
        to->shape[2] = tensor->shape[1];
    }
    return CALM_OK;
}

/* Is it the stored matrix of a transform, which a float model does not have? */
static calm_status is_transform(work *w, const char *name, bool *out)
{
    const size_t n = w->stored ? calm_qformat_matrix_module(name) : 0;
    size_t width = 0;
    char *module;
    if (n) {    /* the width of the input does not matter here */
        CALM_TRY(calm_strf(w->ctx, w->ctx->scratch, &module, "%.*s", (int)n, name));
        CALM_TRY(calm_qformat_hadamard(w->ctx, w->stored, module, 1, &width));
    }
    *out = width != 0;
    return CALM_OK;
}

static calm_status list_directory(work *w, calm_dtype dtype)
{
    const size_t n = calm_safetensors_count(w->set);
    size_t most = n;
    for (size_t i = 0; i < n; i++)
        if (n_stacked(calm_safetensors_at(w->set, i)) > MOST_EXPERTS)
            return calm_fail(w->ctx, CALM_EFORMAT, "%s: tensor %s: more than %zu experts", w->path,
                             calm_safetensors_at(w->set, i)->name, MOST_EXPERTS);
        else
            most += n_stacked(calm_safetensors_at(w->set, i));
    CALM_TRY(CALM_NEW(w->ctx, w->ctx->out, w->tensors, most));
    CALM_TRY(CALM_NEW(w->ctx, w->ctx->out, w->sources, most));
    for (size_t i = 0; i < n; i++) {
        const calm_tensor *tensor = calm_safetensors_at(w->set, i);
        const char *dot = strrchr(tensor->name, '.');
        calm_qformat_part part = CALM_QFORMAT_CODES;
        bool transform;
        CALM_SCOPED_SCRATCH(w->ctx);
        CALM_TRY(is_transform(w, tensor->name, &transform));
        const bool known = dot && calm_qformat_suffix_part(NULL, dot + 1, &part);
        const bool codes = known && (strcmp(dot, ".weight") != 0 || tensor->dtype == CALM_I8
                                     || tensor->dtype == CALM_U32 || tensor->dtype == CALM_F8_E4M3);
        /* Skip scales and zeros of weights, and scales of inputs and of the KV cache, which a float model does not
         * round. */
        if (transform || part != CALM_QFORMAT_CODES || (!codes && calm_published_of_inputs(tensor->name)))
            continue;
        for (size_t e = 0; codes && e < calm_size_max(1, n_stacked(tensor)); e++)
            CALM_TRY(add_weight(w, tensor, dot, dtype, e));
        if (codes)
            continue;
        w->tensors[w->n] = *tensor;
        if (w->options->dtype != CALM_N_DTYPES && calm_dtype_is_float(tensor->dtype))
            w->tensors[w->n].dtype = dtype;
        w->sources[w->n++].plain = tensor;
    }
    return CALM_OK;
}

/* Returns the index of the output tensor with this name, or a name that ends with it; n: none. */
static size_t find_written(const work *w, const char *end)
{
    size_t i = 0;
    while (i < w->n && !calm_text_ends_with(w->tensors[i].name, end))
        i++;
    return i;
}

/* Sets tie_word_embeddings to false if the head's values differ from the embedding's, as those of a separately
 * quantized head do. */
static void untie_own_head(work *w)
{
    const size_t head = find_written(w, "lm_head.weight"), embed = find_written(w, "embed_tokens.weight");
    if (head == w->n || !calm_json_bool(calm_json_get(w->config, "tie_word_embeddings"), true))
        return;
    const calm_tensor *a = w->sources[head].plain, *b = embed < w->n ? w->sources[embed].plain : NULL;
    const bool stored = a && b && !a->source && !b->source && a->dtype == b->dtype && a->bytes == b->bytes;
    if (!stored || memcmp(a->data, b->data, a->bytes) != 0)
        calm_json_set_bool(w->config, "tie_word_embeddings", false);
}

/* Opens a float model with an adapter, which is merged while the model is read. */
static calm_status open_merged(work *w)
{
    const bool asked = w->options->dtype != CALM_N_DTYPES;
    CALM_TRY(calm_model_open_floats(w->ctx, w->path, &w->options->how, &w->model));
    w->set = calm_model_tensors(w->model);
    w->result->format = "an adapter merged";
    w->result->dtype = asked ? w->options->dtype : calm_model_config(w->model)->dtype;
    w->config = plain_config(w->read, w->options->dtype);
    if (!calm_model_config(w->model)->tied)
        calm_json_set_bool(w->config, "tie_word_embeddings", false);
    return list_directory(w, w->result->dtype);
}

/* Finds the quantized format of a directory. */
static calm_status read_entry(work *w, const char *path)
{
    CALM_TRY(calm_published_read(w->ctx, path, w->read, false, &w->published));
    if (w->published.kind)
        return CALM_OK;
    CALM_TRY(calm_qformat_open(w->ctx, path, w->read, &w->stored));
    if (!w->stored)
        return calm_fail(w->ctx, CALM_EUNSUPPORTED, "%s: it is a float model: config.json has no quantization entry",
                         w->path);
    w->result->format = calm_qformat_of(w->stored)->label;
    return CALM_OK;
}

static calm_status open_directory(work *w)
{
    char *path, *format;
    CALM_TRY(calm_adapter_is_no_model(w->ctx, w->path));
    CALM_TRY(calm_folder_require_model(w->ctx, w->path));
    CALM_TRY(calm_path_join(w->ctx, w->ctx->out, &path, w->path, "config.json"));
    CALM_TRY(calm_json_read(w->ctx, path, CONFIG_MAX, &w->read));
    if (w->options->how.adapter)
        return open_merged(w);
    CALM_TRY(read_entry(w, path));
    CALM_TRY(calm_safetensors_open(w->ctx, w->path, &w->files));
    w->set = w->files;
    CALM_TRY(calm_safetensors_need_files(w->ctx, w->set));
    calm_safetensors_log_index(w->ctx, w->set);
    const bool asked = w->options->dtype != CALM_N_DTYPES;
    const calm_dtype dtype = asked ? w->options->dtype : dtype_of(w->read, CALM_BF16);
    w->result->dtype = dtype;
    w->config = plain_config(w->read, w->options->dtype);
    if (w->published.kind) {
        CALM_TRY(calm_strf(w->ctx, w->ctx->out, &format, "%s", w->published.text));
        w->result->format = format;
        calm_published_drop_entry(w->config);
        CALM_TRY(calm_published_widen(w->ctx, &w->published, dtype, w->files, &w->result->n_dequantized));
    }
    CALM_TRY((w->published.kind ? list_floats : list_directory)(w, dtype));
    untie_own_head(w);
    return CALM_OK;
}

/* ---- a GGUF file ---- */

static calm_status open_gguf(work *w)
{
    const bool asked = w->options->dtype != CALM_N_DTYPES;
    CALM_TRY(calm_folder_require_model(w->ctx, w->path));
    CALM_TRY(calm_gguf_open_split(w->ctx, w->path, &w->gguf));
    CALM_TRY(calm_gguf_list_tensors(w->ctx, w->gguf, &w->list));
    CALM_TRY(calm_gguf_config(w->ctx, &w->list, NULL, NULL, &w->config));
    const calm_gguf_tensor *table = calm_gguf_find_tensor(w->gguf, "token_embd.weight");
    const calm_ggml_type type = table ? table->type : CALM_GGML_F16;
    const calm_dtype own = type == CALM_GGML_F32 ? CALM_F32 : type == CALM_GGML_BF16 ? CALM_BF16 : CALM_F16;
    w->result->format = "gguf";
    w->result->dtype = asked ? w->options->dtype : own;
    calm_json_set_string(w->config, "torch_dtype", calm_dtype_word(w->result->dtype));
    CALM_TRY(CALM_NEW(w->ctx, w->ctx->out, w->tensors, w->list.n));
    CALM_TRY(CALM_NEW(w->ctx, w->ctx->out, w->sources, w->list.n));
    for (size_t i = 0; i < w->list.n; i++) {
        const calm_gguf_entry *entry = &w->list.entries[i];
        if (entry->is_rest)
            continue;
        if (!entry->name) {
            calm_log(w->ctx, CALM_LOG_WARNING, "%s: tensor %s has no place in a checkpoint and is left out", w->path,
                     entry->stored->name);
            continue;
        }
        w->tensors[w->n] = (calm_tensor){.name = entry->name,
                                         .dtype = w->result->dtype,
                                         .n_dims = entry->n_dims,
                                         .shape = {entry->shape[0], entry->shape[1], entry->shape[2]}};
        w->sources[w->n++].entry = entry;
        w->result->n_dequantized += calm_ggml_find(entry->stored->type)->elements > 1;
    }
    calm_log(w->ctx, CALM_LOG_WARNING,
             "%s: a GGUF file does not hold generation_config.json, modules.json nor the keys of config.json that "
             "change no weight",
             w->path);
    return CALM_OK;
}

/* ---- writing ---- */

/* Converts values [n] to the output dtype and writes them. */
static calm_status put_floats(work *w, calm_shards_writer *writer, const calm_tensor *to, const float *values, size_t n)
{
    if (to->dtype == CALM_F32) /* needs no copy of a large tensor */
        return calm_shards_put(w->ctx, writer, values, n * sizeof *values);
    for (size_t i = 0; i < n && to->dtype == CALM_F16; i++)
        if (fabsf(values[i]) >= 65520.0f) /* rounds to infinity */
            return calm_fail(w->ctx, CALM_ENUMERIC, "%s: %s: %g is beyond float16; take `dtype` bf16 or f32", w->path,
                             to->name, (double)values[i]);
    return calm_export_put_floats(w->ctx, writer, to->dtype, values, n);
}

/* Returns the block size of the Hadamard matrix that the forward pass multiplies a weight's input by; 0: none. */
static calm_status hadamard_of(work *w, const calm_tensor *to, size_t *width)
{
    const size_t length = strlen(to->name), suffix = strlen(".weight");
    char *module;
    *width = 0;
    if (!w->stored || to->n_dims != 2 || length < suffix || strcmp(to->name + length - suffix, ".weight") != 0)
        return CALM_OK;
    CALM_TRY(calm_strf(w->ctx, w->ctx->scratch, &module, "%.*s", (int)(length - suffix), to->name));
    return calm_qformat_hadamard(w->ctx, w->stored, module, to->shape[1], width);
}

/* Turns values [rows, columns], W H, into W by multiplying with H, because plain floats have no transform. */
static calm_status undo_hadamard(work *w, const calm_tensor *to, size_t width, float *values)
{
    const calm_rotation hadamard = calm_rotation_hadamard(width);
    if (to->shape[1] % width)
        return calm_fail(w->ctx, CALM_EUNSUPPORTED, "%s: %s: blocks of %zu channels of transform_config do not divide "
                                                    "its %zu columns", w->path, to->name, width, to->shape[1]);
    return calm_rotation_apply_rows(w->ctx, &hadamard, to->shape[0], to->shape[1], values);
}

/* Writes a float weight that has a transform. */
static calm_status put_turned(work *w, calm_shards_writer *writer, const calm_tensor *to, const calm_tensor *from,
                              size_t width)
{
    float *values;
    CALM_TRY(CALM_NEW_RAW(w->ctx, w->ctx->scratch, values, from->n_elements));
    CALM_TRY(calm_tensor_to_f32(w->ctx, from, values));
    CALM_TRY(undo_hadamard(w, to, width, values));
    return put_floats(w, writer, to, values, from->n_elements);
}

static calm_status put_plain(work *w, calm_shards_writer *writer, const calm_tensor *to, const calm_tensor *from)
{
    const bool same = to->dtype == from->dtype && !from->source;
    float *values;
    size_t width;
    CALM_TRY(hadamard_of(w, to, &width));
    if (width)
        return put_turned(w, writer, to, from, width);
    if (same)
        CALM_TRY(calm_shards_put(w->ctx, writer, from->data, from->bytes));
    else
        CALM_TRY(CALM_NEW_RAW(w->ctx, w->ctx->scratch, values, ROWS_AT_ONCE));
    for (size_t at = 0; at < from->n_elements && !same; at += ROWS_AT_ONCE) {
        const size_t n = calm_size_min(ROWS_AT_ONCE, from->n_elements - at);
        CALM_SCOPED_SCRATCH(w->ctx);
        CALM_TRY(calm_tensor_part_to_f32(w->ctx, from, at, n, values));
        CALM_TRY(put_floats(w, writer, to, values, n));
    }
    calm_safetensors_release(w->set, from);
    return CALM_OK;
}

/* Computes columns at .. at + n - 1 of a matrix [rows, columns] as rows of `out`, reading runs that share a scale. */
static calm_status turn_columns(work *w, const calm_tensor *from, size_t matrix, size_t at, size_t n, float *out)
{
    const size_t rows = from->shape[1], columns = from->shape[2];
    float run[TURNED];
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0, length; c < n; c += length) {
            length = calm_size_min(TURNED, n - c);
            CALM_TRY(calm_tensor_part_to_f32(w->ctx, from, (matrix * rows + r) * columns + at + c, length, run));
            for (size_t i = 0; i < length; i++)
                out[(c + i) * rows + r] = run[i];
        }
    return CALM_OK;
}

/* Writes matrices [rows, columns] as [columns, rows], some columns at a time. */
static calm_status put_transposed(work *w, calm_shards_writer *writer, const calm_tensor *to, const calm_tensor *from)
{
    const size_t rows = from->shape[1], columns = from->shape[2];
    const size_t step = calm_size_min(columns, calm_size_max(1, ROWS_AT_ONCE / rows / TURNED) * TURNED);
    float *values;
    CALM_TRY(CALM_NEW_RAW(w->ctx, w->ctx->scratch, values, step * rows));
    for (size_t matrix = 0; matrix < from->shape[0]; matrix++)
        for (size_t at = 0; at < columns; at += step) {
            const size_t n = calm_size_min(step, columns - at);
            CALM_SCOPED_SCRATCH(w->ctx);
            CALM_TRY(turn_columns(w, from, matrix, at, n, values));
            CALM_TRY(put_floats(w, writer, to, values, n * rows));
        }
    calm_safetensors_release(w->set, from);
    return CALM_OK;
}

static calm_status put_stored(work *w, calm_shards_writer *writer, const calm_tensor *to, const source *from)
{
    float *values;
    size_t n, width;
    if (!calm_size_mul(&n, to->shape[0], to->shape[1]))
        return calm_fail(w->ctx, CALM_EFORMAT, "%s: %s: its size overflows", w->path, to->name);
    CALM_TRY(CALM_NEW_RAW(w->ctx, w->ctx->scratch, values, n));
    CALM_TRY(
        calm_qformat_load(w->ctx, w->stored, w->set, from->module, &from->scheme, to->shape[0], to->shape[1], values,
                          NULL));
    CALM_TRY(hadamard_of(w, to, &width));
    if (width)
        CALM_TRY(undo_hadamard(w, to, width, values));
    return put_floats(w, writer, to, values, n);
}

static calm_status put_entry(work *w, calm_shards_writer *writer, const calm_tensor *to, const calm_gguf_entry *entry)
{
    const size_t rows = entry->shape[0], cols = calm_gguf_entry_columns(entry);
    const size_t step = calm_size_max(1, ROWS_AT_ONCE / calm_size_max(1, cols));
    float *values;
    CALM_TRY(CALM_NEW_RAW(w->ctx, w->ctx->scratch, values, step * cols));
    for (size_t at = 0; at < rows; at += step) {
        const size_t n = calm_size_min(step, rows - at);
        CALM_SCOPED_SCRATCH(w->ctx);
        CALM_TRY(calm_gguf_entry_to_f32(w->ctx, &w->list, entry, at, n, values));
        CALM_TRY(put_floats(w, writer, to, values, n * cols));
    }
    return CALM_OK;
}

static calm_status put_all(work *w, calm_shards_writer *writer)
{
    for (size_t i = 0; i < w->n; i++) {
        const source *from = &w->sources[i];
        CALM_SCOPED_SCRATCH(w->ctx);
        CALM_TRY(from->turned  ? put_transposed(w, writer, &w->tensors[i], from->plain)
                 : from->plain ? put_plain(w, writer, &w->tensors[i], from->plain)
                 : from->entry ? put_entry(w, writer, &w->tensors[i], from->entry)
                               : put_stored(w, writer, &w->tensors[i], from));
        if (w->options->tick)
            w->options->tick(w->options->tick_user, i + 1, w->n);
    }
    return CALM_OK;
}

static calm_status save(work *w, const char *dir, const char *name, const calm_json *json)
{
    char *path;
    CALM_TRY(calm_path_join(w->ctx, w->ctx->scratch, &path, dir, name));
    return calm_json_save(w->ctx, path, json);
}

/* Writes the GGUF file's tokenizer; if calm does not read its kind, logs a warning instead. */
static calm_status write_tokenizer(work *w, const char *dir)
{
    CALM_SCOPED_JSON(json);
    CALM_SCOPED_JSON(settings);
    const calm_status status = calm_gguf_tokenizer_json(w->ctx, w->gguf, &json);
    if (status == CALM_EUNSUPPORTED) {
        calm_log(w->ctx, CALM_LOG_WARNING, "%s; no tokenizer is written", w->ctx->message);
        calm_ctx_clear_failure(w->ctx);
        return CALM_OK;
    }
    CALM_TRY(status);
    CALM_TRY(calm_gguf_tokenizer_settings(w->ctx, w->gguf, &settings));
    CALM_TRY(save(w, dir, "tokenizer.json", json));
    return save(w, dir, "tokenizer_config.json", settings);
}

static calm_status write_into(work *w, const char *dir)
{
    calm_shards_writer writer;
    CALM_TRY(calm_shards_begin(w->ctx, &writer, dir, w->tensors, w->n, w->options->max_shard_bytes));
    const calm_status put = put_all(w, &writer), end = calm_shards_end(w->ctx, &writer);
    CALM_TRY(put);
    CALM_TRY(end);
    CALM_TRY(save(w, dir, "config.json", w->config));
    w->result->n_tensors = w->n;
    return w->gguf ? write_tokenizer(w, dir) : calm_export_copy_companions(w->ctx, w->path, dir);
}

static calm_status write_output(work *w)
{
    calm_export_place place;
    CALM_TRY(calm_export_begin(w->ctx, w->options->output, &place));
    if (write_into(w, place.temporary) != CALM_OK || calm_export_commit(w->ctx, &place, w->options->output) != CALM_OK)
        calm_export_abandon(w->ctx, &place);
    return w->ctx->status;
}

calm_status calm_dequantize(calm_ctx *ctx, const char *path, const calm_dequantize_options *options,
                            calm_dequantize_result *out)
{
    work w = {.ctx = ctx, .path = path, .options = options, .result = out};
    *out = (calm_dequantize_result){0};
    const calm_words inputs = {(const char *[]){path, options->how.adapter}, 2};
    CALM_TRY(calm_export_destination(ctx, options->output, options->force, &inputs));
    CALM_SCOPED_SCRATCH(ctx);
    calm_status status = calm_is_directory(path) ? open_directory(&w) : open_gguf(&w);
    if (status == CALM_OK)
        status = write_output(&w);
    calm_json_free(w.config);
    calm_json_free(w.read);
    calm_qformat_close(w.stored);
    calm_safetensors_close(w.files);
    calm_model_close(w.model);
    calm_gguf_close(w.gguf);
    return status;
}
