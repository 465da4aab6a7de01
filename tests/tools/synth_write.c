/* Writes a synthetic checkpoint: shards divided as on the hub, filled in pieces of fixed size by all threads. */
#include "tests/tools/synth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/threads.h"
#include "ptq/io/json.h"

#define PIECE ((size_t)1 << 18)             /* values of one task */
#define BUFFER_BYTES ((size_t)32 << 20)     /* size of the write buffer */
#define SPARE_BYTES ((uint64_t)64 << 20)    /* disk for headers, config.json, tokenizer and the file system */
#define DEFAULT_SHARD 5000000000u

/* Tensors begin .. end - 1 in order of name are one file. */
typedef struct shard { size_t begin, end; } shard;

/* A checkpoint while it is written. */
typedef struct job {
    const synth_options *options;
    synth_shape shape;          /* with the options' vocabulary */
    calm_dtype dtype;
    size_t blocks;
    synth_tensor *tensors;
    size_t n;
    shard *shards;
    size_t n_shards;
    uint64_t bytes;             /* size of all tensors */
    char *output, *directory;   /* final and temporary name */
    char *config;               /* config.json of SYNTH_CONFIGS; NULL: the shape's */
    uint8_t *buffer;
    synth_values *values;
} job;

/* ---- plan ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const synth_tensor *)a)->tensor.name, ((const synth_tensor *)b)->tensor.name);
}

/* Divides tensors in the order of the model; a new file begins when the next tensor would exceed the limit.  Each
 * file is sorted, as safetensors' writer does. */
static calm_status cut_shards(calm_ctx *ctx, job *w)
{
    const uint64_t limit = w->options->shard_size ? w->options->shard_size : DEFAULT_SHARD;
    uint64_t filled = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, w->shards, w->n));
    for (size_t i = 0; i < w->n; i++) {
        const uint64_t bytes = w->tensors[i].tensor.bytes;
        if (w->n_shards == 0 || (filled > 0 && filled + bytes > limit)) {
            w->shards[w->n_shards++].begin = i;
            filled = 0;
        }
        w->shards[w->n_shards - 1].end = i + 1;
        filled += bytes;
        w->bytes += bytes;
    }
    for (size_t s = 0; s < w->n_shards; s++)
        qsort(w->tensors + w->shards[s].begin, w->shards[s].end - w->shards[s].begin, sizeof *w->tensors, by_name);
    return CALM_OK;
}

static calm_status check_room(calm_ctx *ctx, const job *w)
{
    struct statvfs disk;
    if (statvfs(w->directory, &disk) != 0)
        return calm_fail_errno(ctx, errno, "%s", w->directory);
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize,
                   need = (w->options->hollow ? 0 : w->bytes) + SPARE_BYTES;
    if (room < need)
        return calm_fail(ctx, CALM_ENOSPC, "%s: the checkpoint needs %.1f GB, the disk has %.1f GB free",
                         w->output, (double)need * 1e-9, (double)room * 1e-9);
    return CALM_OK;
}

/* Scales a size `n` of the shape to another width. */
static size_t scaled(const synth_shape *known, size_t hidden, size_t n)
{
    return n * hidden / known->hidden;
}

/* Sets the requested width and number of experts. */
static calm_status resize(calm_ctx *ctx, const synth_options *options, synth_shape *shape)
{
    const synth_shape known = *shape;
    const size_t hidden = options->hidden ? options->hidden : known.hidden;
    shape->hidden = hidden;
    shape->inner = scaled(&known, hidden, known.inner);
    shape->heads = scaled(&known, hidden, known.heads);
    shape->kv = scaled(&known, hidden, known.kv);
    shape->expert_inner = scaled(&known, hidden, known.expert_inner);
    if (!shape->kv || shape->kv * known.heads != shape->heads * known.kv || known.kv * hidden % known.hidden)
        return calm_fail(ctx, CALM_EARG, "--hidden %zu: %s has %zu heads for %zu of keys at %zu; a multiple of %zu",
                         hidden, known.name, known.heads, known.kv, known.hidden, known.hidden / known.kv);
    if (options->experts && options->experts < known.top)
        return calm_fail(ctx, CALM_EARG, "--experts %zu: a token of %s has %zu", options->experts, known.name,
                         known.top);
    if (options->experts && !known.experts)
        return calm_fail(ctx, CALM_EARG, "--experts %zu: %s is no mixture", options->experts, known.name);
    shape->experts = options->experts ? options->experts : known.experts;
    return CALM_OK;
}

/* Lists the tensors of a named shape. */
static calm_status list_shape(calm_ctx *ctx, job *w)
{
    const synth_options *options = w->options;
    const synth_shape *known;
    CALM_TRY(synth_find(ctx, options->shape, &known));
    w->shape = *known;
    CALM_TRY(resize(ctx, options, &w->shape));
    if (options->vocab)
        w->shape.vocab = options->vocab;
    w->blocks = options->blocks ? options->blocks : known->blocks;
    w->dtype = options->dtype == CALM_N_DTYPES ? synth_dtype(known) : options->dtype;
    return synth_list(ctx, &w->shape, w->blocks, w->dtype, &w->tensors, &w->n);
}

/* Lists the tensors of a named shape or of a config.json. */
static calm_status list_tensors(calm_ctx *ctx, job *w)
{
    const synth_options *options = w->options;
    CALM_TRY(calm_strf(ctx, ctx->out, &w->config, SYNTH_CONFIGS "/%s.json", options->shape));
    if (!calm_path_exists(w->config)) {
        w->config = NULL;
        return list_shape(ctx, w);
    }
    if (!options->hollow || options->blocks || options->hidden || options->experts || options->vocab)
        return calm_fail(ctx, CALM_EARG, "--shape %s: its files are --hollow, and no other size is known",
                         options->shape);
    return synth_model_list(ctx, w->config, &w->tensors, &w->n);
}

static calm_status plan(calm_ctx *ctx, job *w)
{
    const synth_options *options = w->options;
    CALM_TRY(calm_strf(ctx, ctx->out, &w->output, "%s", options->output));
    for (size_t n = strlen(w->output); n > 1 && w->output[n - 1] == '/'; n--)
        w->output[n - 1] = 0;
    if (calm_path_exists(w->output))
        return calm_fail(ctx, CALM_EEXIST, "%s: already there", w->output);
    CALM_TRY(list_tensors(ctx, w));
    CALM_TRY(cut_shards(ctx, w));
    CALM_TRY(calm_strf(ctx, ctx->out, &w->directory, "%s.tmp.%ld", w->output, (long)getpid()));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w->buffer, BUFFER_BYTES));
    return CALM_NEW_RAW(ctx, ctx->out, w->values, 1);
}

/* ---- tensors ---- */

/* A range of values that tasks fill. */
typedef struct filling {
    const synth_values *values;
    size_t first, n, value_bytes;
    uint8_t *out;
} filling;

static calm_status fill_piece(calm_ctx *ctx, size_t index, void *user)
{
    const filling *run = user;
    const size_t begin = index * PIECE, n = run->n - begin < PIECE ? run->n - begin : PIECE;
    return synth_values_fill(ctx, run->values, run->first + begin, n, run->out + begin * run->value_bytes);
}

static calm_status write_tensor(calm_ctx *ctx, job *w, calm_safetensors_writer *writer, const synth_tensor *tensor)
{
    const size_t value_bytes = calm_dtype_bytes(tensor->tensor.dtype), whole = BUFFER_BYTES / value_bytes;
    synth_tensor scaled = *tensor;
    const float factor = synth_factor(w->options->factor, tensor->tensor.name);
    scaled.mean *= factor;
    scaled.spread *= factor;
    CALM_TRY(synth_values_init(ctx, w->values, &scaled, w->options->seed));
    for (size_t first = 0; first < tensor->tensor.n_elements; first += whole) {
        const size_t left = tensor->tensor.n_elements - first, n = left < whole ? left : whole;
        filling run = {.values = w->values, .first = first, .n = n, .value_bytes = value_bytes, .out = w->buffer};
        CALM_TRY(calm_parallel_for(ctx, (n + PIECE - 1) / PIECE, fill_piece, &run));
        CALM_TRY(calm_safetensors_put(ctx, writer, w->buffer, n * value_bytes));
    }
    return CALM_OK;
}

/* Extends the file without writing: the file system stores no blocks for these zeros. */
static calm_status leave_holes(calm_ctx *ctx, calm_safetensors_writer *writer, const char *path)
{
    uint64_t bytes = 0;
    struct stat file;
    for (size_t i = 0; i < writer->n; i++)
        bytes += writer->tensors[i].bytes;
    writer->next = writer->n;
    CALM_TRY(calm_safetensors_end(ctx, writer));
    if (stat(path, &file) != 0 || truncate(path, file.st_size + (off_t)bytes) != 0)
        return calm_fail_errno(ctx, errno, "%s", path);
    return CALM_OK;
}

static calm_status write_shard(calm_ctx *ctx, job *w, const shard *part, const char *path)
{
    calm_safetensors_writer writer;
    calm_tensor *tensors;
    const size_t n = part->end - part->begin;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, tensors, n));
    for (size_t i = 0; i < n; i++)
        tensors[i] = w->tensors[part->begin + i].tensor;
    CALM_TRY(calm_safetensors_begin(ctx, &writer, path, tensors, n));
    if (w->options->hollow)
        return leave_holes(ctx, &writer, path);
    for (size_t i = 0; i < n && ctx->status == CALM_OK; i++)
        write_tensor(ctx, w, &writer, &w->tensors[part->begin + i]);
    return calm_safetensors_end(ctx, &writer);
}

/* ---- files next to them ---- */

static void shard_name(const job *w, size_t index, char name[64])
{
    if (w->n_shards == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", index + 1, w->n_shards);
}

static calm_status write_text(calm_ctx *ctx, const job *w, const char *name, calm_text *text)
{
    char *path;
    calm_status status = calm_text_check(ctx, text);
    if (status == CALM_OK)
        status = calm_path_join(ctx, ctx->scratch, &path, w->directory, name);
    if (status == CALM_OK)
        status = calm_write_file(ctx, path, text->data, text->length);
    calm_text_clear(text);
    return status;
}

static calm_status write_index(calm_ctx *ctx, const job *w)
{
    calm_json *root = calm_json_new_object(), *metadata = calm_json_new_object(), *map = calm_json_new_object();
    calm_text text;
    calm_text_init(&text);
    calm_json_set_int(metadata, "total_size", (int64_t)w->bytes);
    for (size_t s = 0; s < w->n_shards; s++)
        for (size_t i = w->shards[s].begin; i < w->shards[s].end; i++) {
            char name[64];
            shard_name(w, s, name);
            calm_json_set_string(map, w->tensors[i].tensor.name, name);
        }
    calm_json_set(root, "metadata", metadata);
    calm_json_set(root, "weight_map", map);
    calm_status status = calm_json_write(ctx, root, 2, &text);
    calm_json_free(root);
    calm_text_append(&text, "\n", 1);
    if (status == CALM_OK)
        return write_text(ctx, w, "model.safetensors.index.json", &text);
    calm_text_clear(&text);
    return status;
}

static calm_status copy_tokenizer(calm_ctx *ctx, const job *w)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    const char *from = w->options->tokenizer ? w->options->tokenizer : CALM_SOURCE_DIR "/recipes/models/qwen-demo";
    for (size_t i = 0; i < 2; i++) {
        char *source, *target;
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &source, from, names[i]));
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &target, w->directory, names[i]));
        CALM_TRY(calm_copy_file(ctx, source, target));
    }
    return CALM_OK;
}

static calm_status write_config(calm_ctx *ctx, const job *w)
{
    calm_text text;
    char *target;
    if (w->config) {
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &target, w->directory, "config.json"));
        return calm_copy_file(ctx, w->config, target);
    }
    calm_text_init(&text);
    if (synth_config(ctx, &w->shape, w->blocks, w->dtype, w->options->newer, &text) == CALM_OK)
        return write_text(ctx, w, "config.json", &text);
    calm_text_clear(&text);
    return ctx->status;
}

/* ---- all of it ---- */

static calm_status write_directory(calm_ctx *ctx, job *w)
{
    CALM_TRY(write_config(ctx, w));
    CALM_TRY(copy_tokenizer(ctx, w));
    for (size_t s = 0; s < w->n_shards; s++) {
        char name[64], *path;
        shard_name(w, s, name);
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, w->directory, name));
        CALM_TRY(write_shard(ctx, w, &w->shards[s], path));
    }
    if (w->n_shards > 1)
        CALM_TRY(write_index(ctx, w));
    CALM_TRY(calm_sync_directory(ctx, w->directory));
    if (rename(w->directory, w->output) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot be renamed to %s", w->directory, w->output);
    return CALM_OK;
}

calm_status synth_write(calm_ctx *ctx, const synth_options *options)
{
    job w = {.options = options};
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(plan(ctx, &w));
    CALM_TRY(calm_make_directories(ctx, w.directory));
    calm_status status = check_room(ctx, &w);
    if (status == CALM_OK)
        status = write_directory(ctx, &w);
    if (status != CALM_OK) {
        calm_ctx cleanup = *ctx;    /* the first failure is the one to report */
        calm_ctx_clear_failure(&cleanup);
        calm_remove_tree(&cleanup, w.directory);
    }
    calm_arena_rewind(ctx->scratch, mark);
    return status;
}
