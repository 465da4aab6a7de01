/* Lists the files of a push. */
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/hub/push_impl.h"
#include "ptq/io/folder.h"

/* Does the folder have config.json or a GGUF file?  Files below it may have their own config.json: folders of several
 * formats, and modules of sentence-transformers. */
static calm_status check_model(calm_ctx *ctx, const char *dir, const calm_folder_file *files, size_t n)
{
    bool any = false, gguf = false;
    for (size_t i = 0; i < n; i++) {
        any |= strcmp(calm_path_name(files[i].name), "config.json") == 0;
        gguf |= calm_text_ends_with(files[i].name, ".gguf");
    }
    if (!any && !gguf)
        return calm_fail(ctx, CALM_EARG, "%s: no config.json and no GGUF file in it; expected a checkpoint that calm "
                         "quantize has written", dir);
    return gguf || !calm_path_has(dir, "config.json") ? CALM_OK : calm_folder_require_model(ctx, dir);
}

calm_status calm_hub_push_files(calm_ctx *ctx, const char *dir, calm_push_file **out, size_t *n)
{
    calm_folder_file *files;
    CALM_TRY(calm_folder_files(ctx, dir, 0, &files, n));
    for (size_t i = 0; i < *n; i++) {
        const char *fault = calm_hub_name_fault(files[i].name, strlen(files[i].name));
        if (fault)
            return calm_fail(ctx, CALM_EARG, "%s: a repository cannot have this name: it %s", files[i].path, fault);
    }
    CALM_TRY(check_model(ctx, dir, files, *n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, *n));
    for (size_t i = 0; i < *n; i++)
        (*out)[i] = (calm_push_file){.name = files[i].name, .path = files[i].path, .bytes = files[i].bytes};
    return CALM_OK;
}
