/* safetensors in shards, writing. */
#include "ptq/io/shards.h"

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/io/json.h"

#define MOST_SHARDS 99999u    /* five digits in a name */

static calm_status tensor_bytes(calm_ctx *ctx, const calm_tensor *tensor, size_t *bytes)
{
    size_t n_elements;
    if (!calm_tensor_size(tensor, &n_elements, bytes))
        return calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows", tensor->name);
    return CALM_OK;
}

/* Computes the first tensor of each file: a tensor that would exceed the limit begins the next file. */
static calm_status cut(calm_ctx *ctx, calm_shards_writer *writer, size_t limit)
{
    size_t held = 0, bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->out, writer->begin, writer->n + 2));
    writer->n_shards = 1;
    for (size_t i = 0; i < writer->n; i++) {
        CALM_TRY(tensor_bytes(ctx, &writer->tensors[i], &bytes));
        if (held && (bytes > limit || held > limit - bytes)) {
            writer->begin[writer->n_shards++] = i;
            held = 0;
        }
        held += bytes;
    }
    writer->begin[writer->n_shards] = writer->n;
    if (writer->n_shards > MOST_SHARDS)
        return calm_fail(ctx, CALM_EARG,
                         "%s: %zu files of at most %zu bytes; five digits number them: allow larger ones", writer->dir,
                         writer->n_shards, limit);
    return CALM_OK;
}

static calm_status name_files(calm_ctx *ctx, calm_shards_writer *writer)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, writer->paths, writer->n_shards));
    if (writer->n_shards == 1)
        return calm_path_join(ctx, ctx->out, &writer->paths[0], writer->dir, "model.safetensors");
    for (size_t i = 0; i < writer->n_shards; i++)
        CALM_TRY(calm_strf(ctx, ctx->out, &writer->paths[i], "%s/model-%05zu-of-%05zu.safetensors", writer->dir, i + 1,
                           writer->n_shards));
    return CALM_OK;
}

static calm_status open_shard(calm_ctx *ctx, calm_shards_writer *writer)
{
    const size_t first = writer->begin[writer->shard];
    return calm_safetensors_begin(ctx, &writer->file, writer->paths[writer->shard], writer->tensors + first,
                                  writer->begin[writer->shard + 1] - first);
}

calm_status calm_shards_begin(calm_ctx *ctx, calm_shards_writer *writer, const char *dir, const calm_tensor *tensors,
                              size_t n, size_t limit)
{
    *writer = (calm_shards_writer){.tensors = tensors, .n = n, .dir = dir};
    CALM_TRY(cut(ctx, writer, limit ? limit : CALM_SHARD_BYTES));
    CALM_TRY(name_files(ctx, writer));
    return open_shard(ctx, writer);
}

calm_status calm_shards_put(calm_ctx *ctx, calm_shards_writer *writer, const void *data, size_t bytes)
{
    if (writer->diverted) {
        memcpy(writer->diverted, data, bytes);
        writer->diverted += bytes;
        return CALM_OK;
    }
    if (writer->file.next == writer->file.n && writer->shard + 1 < writer->n_shards) {
        CALM_TRY(calm_safetensors_end(ctx, &writer->file));
        writer->shard++;
        CALM_TRY(open_shard(ctx, writer));
    }
    return calm_safetensors_put(ctx, &writer->file, data, bytes);
}

void calm_shards_divert(calm_shards_writer *writer, uint8_t *to)
{
    writer->diverted = to;
}

const calm_tensor *calm_shards_next(const calm_shards_writer *writer)
{
    const size_t next = writer->begin[writer->shard] + writer->file.next;
    return next < writer->n ? &writer->tensors[next] : NULL;
}

static calm_status write_index(calm_ctx *ctx, const calm_shards_writer *writer)
{
    CALM_SCOPED_JSON(root);
    calm_json *map = calm_json_new_object();
    size_t total = 0, bytes = 0;
    char *path;
    for (size_t shard = 0; shard < writer->n_shards; shard++)
        for (size_t i = writer->begin[shard]; i < writer->begin[shard + 1]; i++) {
            tensor_bytes(ctx, &writer->tensors[i], &bytes);    /* known to fit */
            total += bytes;
            calm_json_set_string(map, writer->tensors[i].name, calm_path_name(writer->paths[shard]));
        }
    root = CALM_OBJECT(CALM_KV("metadata", CALM_OBJECT(CALM_KV("total_size", total))), CALM_KV("weight_map", map));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, writer->dir, "model.safetensors.index.json"));
    return calm_json_save(ctx, path, root);
}

calm_status calm_shards_end(calm_ctx *ctx, calm_shards_writer *writer)
{
    CALM_TRY(calm_safetensors_end(ctx, &writer->file));
    return writer->n_shards > 1 ? write_index(ctx, writer) : CALM_OK;
}
