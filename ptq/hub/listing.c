/* Parses answers of the hub's API, and checks every value before its use. */
#include "ptq/hub/listing.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/base/option.h"
#include "ptq/base/sha256.h"
#include "ptq/io/json.h"

#define FILE_BYTES_MAX ((int64_t)1 << 50)

/* Copies a string that may become part of a path, after checking it; *out in ctx->out. */
static calm_status take_name(calm_ctx *ctx, const char *where, const calm_json *value, const char **out)
{
    const char *name = calm_json_string(value, NULL);
    if (!name)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected the name of a file, found %s", where,
                         calm_json_type_name(calm_json_typeof(value)));
    const char *fault = calm_hub_name_fault(name, calm_json_string_length(value));
    if (fault)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: the file name \"%.120s\" %s; refused, since it could leave the cache's folder", where,
                         name, fault);
    return calm_strf(ctx, ctx->out, out, "%s", name);
}

/* Parses {"rfilename": ..., "size": ..., "blobId": ..., "lfs": {"sha256": ..., "size": ...}}; hubs that do not know
 * ?blobs=true give only the name. */
static calm_status take_file(calm_ctx *ctx, const char *where, const calm_json *entry, calm_hub_file *out)
{
    const calm_json *lfs = calm_json_get(entry, "lfs");
    const bool is_lfs = calm_json_typeof(lfs) == CALM_JSON_OBJECT;
    const size_t n = is_lfs ? CALM_SHA256_HEX - 1 : CALM_SHA1_HEX - 1;
    const char *etag;
    CALM_TRY(take_name(ctx, where, calm_json_get(entry, "rfilename"), &out->name));
    entry = is_lfs ? lfs : entry;
    CALM_TRY(calm_json_need_string(ctx, where, entry, is_lfs ? "sha256" : "blobId", "", &etag));
    CALM_TRY(calm_json_need_int(ctx, where, entry, "size", &(int64_t){-1}, -1, FILE_BYTES_MAX, &out->bytes));
    if (etag[0] && !calm_is_hex(etag, n))
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: %s \"%.80s\" is no %s", where, out->name,
                         is_lfs ? "lfs.sha256" : "blobId", etag, is_lfs ? "SHA-256" : "SHA-1");
    memcpy(out->etag, etag, strlen(etag) + 1);
    return CALM_OK;
}

calm_status calm_hub_listing_parse(calm_ctx *ctx, const char *where, const char *bytes, size_t n_bytes,
                                   calm_hub_listing *out)
{
    CALM_SCOPED_JSON(root);
    *out = (calm_hub_listing){.n_files = 0};
    CALM_TRY(calm_json_parse(ctx, where, bytes, n_bytes, &root));
    const calm_json *siblings = calm_json_get(root, "siblings");
    const char *commit = calm_json_string(calm_json_get(root, "sha"), "");
    if (!calm_hub_is_commit(commit) || calm_json_typeof(siblings) != CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: expected \"sha\" (a commit) and \"siblings\" (a list of files): this is no answer of a "
                         "hub; check HF_ENDPOINT", where);
    memcpy(out->commit, commit, CALM_HUB_COMMIT);
    out->n_files = calm_json_size(siblings);
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->files, out->n_files));
    for (size_t i = 0; i < out->n_files; i++)
        CALM_TRY(take_file(ctx, where, calm_json_at(siblings, i), &out->files[i]));
    return CALM_OK;
}

calm_hub_file *calm_hub_listing_find(const calm_hub_listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->n_files; i++)
        if (strcmp(listing->files[i].name, name) == 0)
            return &listing->files[i];
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const calm_hub_file *)a)->name, ((const calm_hub_file *)b)->name);
}

void calm_hub_files_sort(calm_hub_file *files, size_t n)
{
    qsort(files, n, sizeof *files, by_name);
}

calm_status calm_hub_index_shards(calm_ctx *ctx, const char *where, const char *bytes, size_t n_bytes,
                                  const char ***out, size_t *n)
{
    CALM_SCOPED_JSON(root);
    const char *tensor, *last = NULL;
    const calm_json *value;
    size_t n_names = 0, n_unique = 0;
    CALM_TRY(calm_json_parse(ctx, where, bytes, n_bytes, &root));
    const calm_json *map = calm_json_get(root, "weight_map");
    if (calm_json_typeof(map) != CALM_JSON_OBJECT || calm_json_size(map) == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected \"weight_map\": {tensor: file}", where);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, calm_json_size(map)));
    for (void *iter = NULL; calm_json_next(map, &iter, &tensor, &value);) {
        const char *name = calm_json_string(value, NULL);
        if (name && last && strcmp(name, last) == 0)    /* tensors of one shard are mostly consecutive */
            continue;
        CALM_TRY(take_name(ctx, where, value, &last));
        (*out)[n_names++] = last;
    }
    qsort(*out, n_names, sizeof **out, calm_words_compare);
    for (size_t i = 0; i < n_names; i++)
        if (n_unique == 0 || strcmp((*out)[n_unique - 1], (*out)[i]) != 0)
            (*out)[n_unique++] = (*out)[i];
    *n = n_unique;
    return CALM_OK;
}

calm_status calm_hub_listing_check_weights(calm_ctx *ctx, const char *repo, const calm_hub_listing *listing)
{
    static const char *const others[] = {".safetensors", ".bin", ".gguf", ".onnx", ".pth", ".pt", ".h5", ".msgpack"};
    const char *instead = NULL;
    if (calm_hub_listing_find(listing, CALM_HUB_INDEX) || calm_hub_listing_find(listing, CALM_HUB_SINGLE))
        return CALM_OK;
    for (size_t k = 0; k < sizeof others / sizeof *others && !instead; k++)
        for (size_t i = 0; i < listing->n_files && !instead; i++)
            if (calm_text_ends_with(listing->files[i].name, others[k]))
                instead = listing->files[i].name;
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: expected " CALM_HUB_SINGLE " or " CALM_HUB_INDEX " in the repository, found %s%s; calm reads "
                     "float safetensors checkpoints: look for the repository this one was made from, or one that was "
                     "converted", repo, instead ? instead : "no weights", instead ? " instead" : "");
}
