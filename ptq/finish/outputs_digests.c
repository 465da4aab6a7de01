/* Digests of written files, for artifacts and locks. */
#include "ptq/finish/finish.h"

#include "ptq/base/file.h"
#include "ptq/base/threads.h"

/* Tasks of hash_file. */
typedef struct file_work {
    const char *dir;
    calm_written_file *files;    /* [n] */
} file_work;

static calm_status hash_file(calm_ctx *ctx, size_t index, void *user)
{
    const file_work *work = user;
    char *path;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, work->dir, work->files[index].name));
    return calm_sha256_file(ctx, path, work->files[index].sha256);
}

calm_status calm_files_digests(calm_ctx *ctx, calm_arena *arena, const char *dir, const char *const *names, size_t n,
                              calm_written_file **out)
{
    file_work work = {.dir = dir};
    CALM_TRY(CALM_NEW(ctx, arena, work.files, n + 1));
    for (size_t i = 0; i < n; i++)
        work.files[i].name = names[i];
    CALM_TRY(calm_parallel_for(ctx, n, hash_file, &work));
    *out = work.files;
    return CALM_OK;
}

calm_status calm_outputs_digests(calm_ctx *ctx, const char *dir, calm_written_file **out, size_t *n)
{
    const char **names;
    CALM_TRY(calm_outputs_files(ctx, dir, &names, n));
    return calm_files_digests(ctx, ctx->out, dir, names, *n, out);
}
