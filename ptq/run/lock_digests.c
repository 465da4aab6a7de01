/* Digests of directories and texts for locks.
 *
 * A file has one digest; each tensor has another, over its bytes alone, so that two checkpoints with other shards or
 * headers are seen to hold the same weights. */
#include <string.h>

#include "ptq/run/lock.h"
#include "ptq/base/file.h"
#include "ptq/base/threads.h"
#include "ptq/export/export.h"
#include "ptq/run/checkpoint.h"

/* Bytes of a tensor that are resident at a time, per thread. */
#define CHUNK_BYTES ((size_t)16 * 1024 * 1024)

typedef char calm_digest[CALM_SHA256_HEX];

/* ---- tensors ---- */

/* Tasks of hash_tensor: one per tensor, each with a digest to fill. */
typedef struct tensor_work {
    const calm_safetensors *set;
    calm_digest *digests;    /* [n] */
} tensor_work;

/* Pages are released as it goes, so that a large tensor is never resident whole. */
static calm_status hash_tensor(calm_ctx *ctx, size_t index, void *user)
{
    const tensor_work *work = user;
    const calm_tensor *tensor = calm_safetensors_at(work->set, index);
    calm_sha256 sha;
    calm_sha256_init(&sha);
    for (size_t at = 0; at < tensor->bytes; at += CHUNK_BYTES) {
        const size_t n = calm_size_min(tensor->bytes - at, CHUNK_BYTES);
        calm_sha256_update(&sha, tensor->data + at, n);
        calm_safetensors_release_part(work->set, tensor, at, n);
    }
    return calm_sha256_finish(ctx, &sha, work->digests[index]);
}

/* Digests of all tensors of a directory by name.  The set is mapped, so that nothing is read twice into memory. */
static calm_status hash_tensors(calm_ctx *ctx, const char *dir, calm_json *out)
{
    calm_safetensors *set;
    CALM_TRY(calm_safetensors_open(ctx, dir, &set));
    const size_t n = calm_safetensors_count(set);
    tensor_work work = {.set = set};
    calm_status status = CALM_NEW(ctx, ctx->scratch, work.digests, n + 1);
    if (status == CALM_OK)
        status = calm_parallel_for(ctx, n, hash_tensor, &work);
    for (size_t i = 0; i < n && status == CALM_OK; i++)    /* the set has them by name, whatever shard they are in */
        calm_json_set_string(out, calm_safetensors_at(set, i)->name, work.digests[i]);
    calm_safetensors_close(set);
    return status;
}

/* ---- files ---- */

/* Tasks of hash_file. */
typedef struct file_work {
    char **paths;            /* [n] */
    calm_digest *digests;    /* [n] */
} file_work;

static calm_status hash_file(calm_ctx *ctx, size_t index, void *user)
{
    const file_work *work = user;
    return calm_sha256_file(ctx, work->paths[index], work->digests[index]);
}

static calm_status hash_files(calm_ctx *ctx, const char *dir, char *const *names, size_t n, calm_json *out)
{
    file_work work;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, work.paths, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, work.digests, n + 1));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &work.paths[i], dir, names[i]));
    CALM_TRY(calm_parallel_for(ctx, n, hash_file, &work));
    for (size_t i = 0; i < n; i++)
        calm_json_set_string(out, names[i], work.digests[i]);
    return CALM_OK;
}

/* A checkpoint lies in `dir` itself; of several formats each has a folder, and its files' digests are enough. */
static bool is_safetensors(const char *name)
{
    const size_t length = strlen(name);
    return length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
}

/* ---- what a lock has ---- */

/* Free what was made for nothing; returns `status`. */
static calm_status drop_failed(calm_status status, calm_json **out)
{
    if (status != CALM_OK) {
        calm_json_free(*out);
        *out = NULL;
    }
    return status;
}

/* The files first: their names show whether there are tensors to open. */
calm_status calm_lock_outputs(calm_ctx *ctx, const char *dir, calm_json **out)
{
    char **names;
    size_t n;
    bool tensors = false;
    if (!calm_is_directory(dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory", dir);
    CALM_TRY(calm_outputs_files(ctx, dir, &names, &n));
    for (size_t i = 0; i < n; i++)
        tensors |= is_safetensors(names[i]) && !strchr(names[i], '/');
    calm_json *of_files = calm_json_new_object(), *of_tensors = calm_json_new_object();
    calm_status status = hash_files(ctx, dir, names, n, of_files);
    if (status == CALM_OK && tensors)
        status = hash_tensors(ctx, dir, of_tensors);
    *out = CALM_OBJECT(CALM_KV("files", of_files), CALM_KV("tensors", of_tensors));
    return drop_failed(status, out);
}

/* The files of a model that a run reads or copies, weights apart (those have a digest per tensor).  A licence that
 * changes changes the output, so it is an input. */
static calm_status hash_model_files(calm_ctx *ctx, const char *dir, calm_json *out)
{
    size_t n_companions, n = 0;
    const char *const *companions = calm_export_companions(&n_companions);
    char **names, *path;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n_companions + 1));
    for (size_t i = 0; i <= n_companions; i++) {
        const char *name = i ? companions[i - 1] : "config.json";
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, name));
        if (calm_path_exists(path))
            CALM_TRY(calm_strf(ctx, ctx->scratch, &names[n++], "%s", name));
    }
    return hash_files(ctx, dir, names, n, out);
}

static calm_status hash_text(calm_ctx *ctx, const char *name, const char *path, calm_json *out)
{
    calm_digest digest;
    if (!path)
        return CALM_OK;
    CALM_TRY(calm_sha256_file(ctx, path, digest));
    calm_json_set_string(out, name, digest);
    return CALM_OK;
}

/* Every byte of the model is read here.  The members are set also after a failure, so that one free releases them. */
calm_status calm_lock_inputs(calm_ctx *ctx, const calm_recipe *recipe, calm_json **out)
{
    calm_json *files = calm_json_new_object(), *tensors = calm_json_new_object(), *texts = calm_json_new_object();
    calm_status status = hash_model_files(ctx, recipe->model.dir, files);
    if (status == CALM_OK)
        status = hash_tensors(ctx, recipe->model.dir, tensors);
    if (status == CALM_OK)
        status = hash_text(ctx, "calibration", recipe->calib_path, texts);
    if (status == CALM_OK)
        status = hash_text(ctx, "evaluation", recipe->eval_path, texts);
    *out = CALM_OBJECT(CALM_KV("files", files), CALM_KV("tensors", tensors), CALM_KV("texts", texts));
    return drop_failed(status, out);
}
