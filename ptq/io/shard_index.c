/* safetensors in shards, reading: model.safetensors.index.json next to the files that it names.
 *
 * Only tensors that are read must exist, as in engines: transformers loads every tensor of the files that the index
 * names, whatever the index says about the tensor, and vLLM the tensors of those files that exist. */
#include <stdlib.h>
#include <string.h>

#include "ptq/base/option.h"
#include "ptq/io/safetensors_impl.h"

/* ---- the files ---- */

static bool is_file_name(const calm_json *value)
{
    const char *file = calm_json_string(value, NULL);
    return file && file[0] && !strchr(file, '/') && strlen(file) == calm_json_string_length(value);
}

bool calm_shard_index_names(const calm_json *map, const char *file)
{
    const char *name;
    const calm_json *value;
    for (void *iter = NULL; calm_json_next(map, &iter, &name, &value);)
        if (strcmp(calm_json_string(value, ""), file) == 0)
            return true;
    return false;
}

calm_status calm_shard_index_list(calm_ctx *ctx, calm_safetensors *set, const char *dir, const char *index_path,
                                  const calm_json *map)
{
    size_t n = calm_json_size(map), used = 0;
    const char **files, *name;
    const calm_json *value;
    set->fault = CALM_SHARD_INDEX;
    if (calm_json_typeof(map) != CALM_JSON_OBJECT || n == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"weight_map\": expected an object that is not empty", index_path);
    CALM_TRY(CALM_NEW(ctx, &set->arena, files, n));
    for (void *iter = NULL; calm_json_next(map, &iter, &name, &value);)
        if (!is_file_name(value))
            CALM_TRY(calm_safetensors_survive(
                ctx, set, name,
                calm_fail(ctx, CALM_EFORMAT, "%s: \"weight_map\": %s: expected a file name in the same folder",
                          index_path, name),
                NULL));
        else
            files[used++] = calm_json_string(value, NULL);
    qsort(files, used, sizeof *files, calm_words_compare);
    CALM_TRY(CALM_NEW(ctx, &set->arena, set->shards, used + 1));
    for (size_t i = 0; i < used; i++) {
        if (i && strcmp(files[i], files[i - 1]) == 0)
            continue;
        CALM_TRY(calm_path_join(ctx, &set->arena, &set->shards[set->n_shards].path, dir, files[i]));
        set->n_shards++;
    }
    return CALM_OK;
}

static int compare_file(const void *name, const void *file)
{
    return strcmp(name, calm_path_name(((const calm_shard *)file)->path));
}

/* Returns whether the shard with this name was opened.  Tensors of a missing shard are not reported one by one. */
static bool is_open(const calm_safetensors *set, const char *file)
{
    const calm_shard *found =
        set->n_shards ? bsearch(file, set->shards, set->n_shards, sizeof *set->shards, compare_file) : NULL;
    return found && found->header;
}

/* ---- the tensors ---- */

static calm_status add_absent(calm_ctx *ctx, calm_safetensors *set, const char *name, const char *file, size_t room)
{
    calm_index_gaps *gaps = &set->gaps;
    if (!gaps->absent)
        CALM_TRY(CALM_NEW(ctx, &set->arena, gaps->absent, room));
    calm_absent *to = &gaps->absent[gaps->n_absent];
    CALM_TRY(calm_strf(ctx, &set->arena, &to->name, "%s", name));
    CALM_TRY(calm_strf(ctx, &set->arena, &to->file, "%s", file));
    to->no_file = !is_open(set, file);
    gaps->n_absent++;
    return CALM_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const calm_absent *)a)->name, ((const calm_absent *)b)->name);
}

/* Handles one entry of the index whose tensor (NULL: none) is not in the file that it names. */
static calm_status check_entry(calm_ctx *ctx, calm_safetensors *set, const char *index_path, const char *name,
                               const char *file, const calm_tensor *tensor, size_t room)
{
    set->fault = CALM_SHARD_PLACE;
    if (set->report)
        return is_open(set, file)
                   ? calm_safetensors_survive(ctx, set, name,
                                              calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s is not in %s", index_path,
                                                        name, file),
                                              NULL)
                   : CALM_OK;
    if (!tensor)
        return add_absent(ctx, set, name, file, room);
    if (set->gaps.n_elsewhere++)
        return CALM_OK;
    set->gaps.elsewhere = tensor->name;
    set->gaps.elsewhere_file = calm_path_name(tensor->file);
    return CALM_OK;
}

static calm_status check_map(calm_ctx *ctx, calm_safetensors *set, const char *index_path, const calm_json *map)
{
    const char *name;
    const calm_json *value;
    for (void *iter = NULL; calm_json_next(map, &iter, &name, &value);) {
        const calm_tensor *tensor = calm_safetensors_find(set, name);
        const char *file = calm_json_string(value, "");
        if (!tensor || strcmp(calm_path_name(tensor->file), file) != 0)
            CALM_TRY(check_entry(ctx, set, index_path, name, file, tensor, calm_json_size(map)));
    }
    if (set->gaps.n_absent)
        qsort(set->gaps.absent, set->gaps.n_absent, sizeof *set->gaps.absent, by_name);
    return CALM_OK;
}

/* Reports tensors that are missing from the index, and a wrong total size; no reader needs these. */
static calm_status check_completeness(calm_ctx *ctx, calm_safetensors *set, const char *index_path,
                                      const calm_json *index)
{
    const calm_json *map = calm_json_get(index, "weight_map");
    const calm_json *total = calm_json_get(calm_json_get(index, "metadata"), "total_size");
    bool whole = true;
    int64_t sum = 0;
    for (size_t i = 0; i < set->n_tensors; i++) {
        const calm_tensor *at = &set->tensors[i];
        sum += (int64_t)at->bytes;
        set->fault = CALM_SHARD_UNLISTED;
        if (!calm_json_get(map, at->name))
            CALM_TRY(calm_safetensors_survive(ctx, set, at->name,
                                              calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s of %s is not in it",
                                                        index_path, at->name, calm_path_name(at->file)),
                                              NULL));
    }
    for (size_t i = 0; i < set->n_shards; i++)
        whole &= set->shards[i].header != NULL;
    set->fault = CALM_SHARD_TOTAL;
    if (whole && calm_json_typeof(total) == CALM_JSON_INT && calm_json_int(total, 0) != sum)
        return calm_fail(ctx, CALM_EFORMAT, "%s: metadata.total_size is %lld, the tensors have %lld bytes", index_path,
                         (long long)calm_json_int(total, 0), (long long)sum);
    return CALM_OK;
}

calm_status calm_shard_index_check(calm_ctx *ctx, calm_safetensors *set, const char *index_path, const calm_json *index)
{
    CALM_TRY(check_map(ctx, set, index_path, calm_json_get(index, "weight_map")));
    return set->report
               ? calm_safetensors_survive(ctx, set, NULL, check_completeness(ctx, set, index_path, index), NULL)
               : CALM_OK;
}

/* ---- messages about differences ---- */

calm_status calm_safetensors_missing(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                     const size_t *shape)
{
    const calm_index_gaps *gaps = &set->gaps;
    const calm_absent key = {.name = name}, *found = NULL;
    char wanted[128];
    calm_shape_text(n_dims, shape, wanted);
    if (gaps->n_absent)
        found = bsearch(&key, gaps->absent, gaps->n_absent, sizeof key, by_name);
    if (!found)
        return calm_fail(ctx, CALM_ENOTFOUND, "tensor %s is missing (config.json asks for it, shape %s)", name, wanted);
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "tensor %s is missing (config.json asks for it, shape %s): %s says that it is in %s, which %s",
                     name, wanted, gaps->path, found->file,
                     found->no_file ? "is not there; download that file again" : "does not have it");
}

calm_status calm_safetensors_need_files(calm_ctx *ctx, const calm_safetensors *set)
{
    for (size_t i = 0; i < set->n_shards; i++)
        if (!set->shards[i].header)
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file, which %s names; download it again",
                             set->shards[i].path, set->gaps.path);
    return CALM_OK;
}

/* Logs "INDEX: 3 tensors of the index (first, ...) are WHERE and are left out". */
static void log_absent(calm_ctx *ctx, const calm_index_gaps *gaps, bool no_file)
{
    const calm_absent *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < gaps->n_absent; i++)
        if (gaps->absent[i].no_file == no_file && !n++)
            first = &gaps->absent[i];
    if (!n)
        return;
    const char *more = n == 1 ? "" : ", ...", *are = n == 1 ? "is" : "are";
    calm_log(ctx, CALM_LOG_WARNING, "%s: %zu tensor%s of the index (%s%s) %s in %s%s%s and %s left out", gaps->path, n,
             n == 1 ? "" : "s", first->name, more, are, no_file ? first->file : "no file", no_file ? more : "",
             no_file ? ", which is missing," : "", are);
}

void calm_safetensors_log_index(calm_ctx *ctx, const calm_safetensors *set)
{
    const calm_index_gaps *gaps = &set->gaps;
    if (gaps->passed_over)
        calm_log(ctx, CALM_LOG_WARNING, "%s: not read, as model.safetensors exists and the index names other "
                 "files; transformers reads model.safetensors too, vLLM the files of the index", gaps->path);
    log_absent(ctx, gaps, true);
    log_absent(ctx, gaps, false);
    if (gaps->n_elsewhere)
        calm_log(ctx, CALM_LOG_WARNING, "%s: %zu tensor%s in another file than the index says (%s: in %s)", gaps->path,
                 gaps->n_elsewhere, gaps->n_elsewhere == 1 ? " is" : "s are", gaps->elsewhere, gaps->elsewhere_file);
    if (gaps->n_twice)
        calm_log(ctx, CALM_LOG_WARNING, "%s: %zu tensor%s in two files; calm reads %s from %s%s%s", gaps->path,
                 gaps->n_twice, gaps->n_twice == 1 ? " is" : "s are", gaps->twice, gaps->twice_taken,
                 strcmp(gaps->twice_taken, gaps->twice_last) == 0 ? "" : ", as the index says; transformers and vLLM "
                 "read it from ",
                 strcmp(gaps->twice_taken, gaps->twice_last) == 0 ? "" : gaps->twice_last);
}
