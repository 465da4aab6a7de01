/* Exporters of one result, side by side. */
#include "cli/formats.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/pipeline.h"
#include "ptq/base/file.h"
#include "ptq/calib/importance.h"

/* ---- which ---- */

calm_status calm_formats_parse(calm_ctx *ctx, const char *list, calm_formats *out)
{
    char *item;
    out->n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->exporters, strlen(list) + 1));
    for (const char *at = list;;) {
        const calm_exporter *exporter;
        CALM_TRY(calm_list_next(ctx, &at, &item));
        if (!item)
            break;
        CALM_TRY(calm_exporter_find(ctx, item, &exporter));
        for (size_t i = 0; i < out->n; i++)
            if (out->exporters[i] == exporter)
                return calm_fail(ctx, CALM_EARG, "--format %s is named twice", item);
        out->exporters[out->n++] = exporter;
    }
    return out->n ? CALM_OK : calm_fail(ctx, CALM_EARG, "--format: expected a name, as compressed-tensors or gguf");
}

size_t calm_formats_count(const calm_formats *formats)
{
    return formats->n ? formats->n : 1;
}

const calm_exporter *calm_formats_at(const calm_formats *formats, size_t index)
{
    size_t n;
    return formats->n ? formats->exporters[index] : calm_exporters(&n)[0];
}

calm_status calm_format_name(calm_ctx *ctx, const calm_exporter *exporter, char **out)
{
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%s", exporter->name));
    for (char *at = *out; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return CALM_OK;
}

calm_status calm_formats_of_recipe(calm_ctx *ctx, const calm_json *recipe, calm_formats *out)
{
    const calm_json *several = calm_json_get(recipe, "formats");
    const char *name = calm_json_string(calm_json_get(recipe, "format"), "compressed_tensors");
    char *list;
    CALM_TRY(calm_strf(ctx, ctx->out, &list, "%s", several ? "" : name));
    for (size_t i = 0; i < calm_json_size(several); i++)
        CALM_TRY(calm_strf(ctx, ctx->out, &list, "%s%s%s", list, i ? "," : "",
                           calm_json_string(calm_json_at(several, i), "?")));
    return calm_formats_parse(ctx, list, out);
}

calm_status calm_formats_read_by(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target, char **out)
{
    *out = NULL;
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), out));
        if (calm_engine_reads(target, *out))
            return CALM_OK;
    }
    *out = NULL;
    return CALM_OK;
}

calm_tie calm_formats_tie(const calm_formats *formats)
{
    calm_tie tie = CALM_TIE_NONE;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        tie = calm_tie_both(tie, calm_formats_at(formats, i)->tie);
    return tie;
}

calm_status calm_formats_check(calm_ctx *ctx, const calm_formats *formats, const calm_model *model, const calm_plan *plan)
{
    const calm_export_input input = {.model = model, .plan = plan, .options = &formats->options};
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        CALM_TRY(calm_formats_at(formats, i)->check(ctx, &input));
    return CALM_OK;
}

calm_status calm_formats_describe(calm_ctx *ctx, const calm_formats *formats, calm_text *out)
{
    const size_t n = calm_formats_count(formats);
    for (size_t i = 0; i < n; i++) {
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), &name));
        calm_text_printf(out, "%s%s", i ? ", " : "", name);
    }
    calm_text_printf(out, "%s.\n\n", n > 1 ? ", a folder each" : "");
    if (n == 1 && strcmp(calm_formats_at(formats, 0)->name, "compressed_tensors") == 0)
        calm_text_printf(out, "    from transformers import AutoModelForCausalLM    # with compressed-tensors installed\n"
                              "    model = AutoModelForCausalLM.from_pretrained(\"DIRECTORY\")\n\n");
    return CALM_OK;
}

/* ---- where ---- */

/* The folder of one format, in ctx->scratch. */
static calm_status folder_of(calm_ctx *ctx, const calm_formats *formats, const char *dir, size_t index, char **out)
{
    char *name;
    if (calm_formats_count(formats) == 1)
        return calm_strf(ctx, ctx->scratch, out, "%s", dir);
    CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, index), &name));
    return calm_path_join(ctx, ctx->scratch, out, dir, name);
}

calm_status calm_formats_checkpoint(calm_ctx *ctx, const calm_formats *formats, const char *dir, char **out)
{
    *out = NULL;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        if (!calm_formats_at(formats, i)->file)
            return folder_of(ctx, formats, dir, i, out);
    return CALM_OK;
}

calm_status calm_formats_bytes(calm_ctx *ctx, const calm_formats *formats, const char *dir, int64_t *out)
{
    const calm_exporter *first = calm_formats_at(formats, 0);
    calm_safetensors *set;
    struct stat info;
    char *folder, *path;
    *out = 0;
    CALM_TRY(folder_of(ctx, formats, dir, 0, &folder));
    if (first->file) {
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, folder, first->file));
        if (stat(path, &info) != 0)
            return calm_fail_errno(ctx, errno, "%s: cannot stat", path);
        *out = info.st_size;
        return CALM_OK;
    }
    CALM_TRY(calm_safetensors_open(ctx, folder, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        *out += (int64_t)calm_safetensors_at(set, i)->bytes;
    calm_safetensors_close(set);
    return CALM_OK;
}

/* ---- writing ---- */

typedef struct ticks {
    calm_tick_fn *fn;
    void *user;
    size_t before, formats, n_blocks;
} ticks;

static void tick_one(void *user, size_t done, size_t total)
{
    const ticks *all = user;
    if (all->fn)
        all->fn(all->user, all->before * total + done, all->formats * total);
}

/* The blocks of every batch count as the model's once, as those of other formats do. */
static void tick_batches(void *user, size_t done, size_t total)
{
    const size_t n_blocks = ((const ticks *)user)->n_blocks;
    tick_one(user, done * n_blocks / total, n_blocks);
}

bool calm_formats_want_importance(const calm_formats *formats)
{
    bool any = false;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        any |= calm_formats_at(formats, i)->wants_importance;
    return any;
}

calm_status calm_formats_write(calm_ctx *ctx, calm_pipeline *p, const char *dir, calm_tick_fn *tick)
{
    const calm_formats *formats = &p->recipe->formats;
    ticks all = {tick, p, 0, calm_formats_count(formats), calm_model_config(p->model)->n_blocks};
    for (; all.before < all.formats; all.before++) {
        const calm_exporter *exporter = calm_formats_at(formats, all.before);
        calm_export_options options = formats->options;
        calm_importance importance;
        char *folder;
        CALM_TRY(folder_of(ctx, formats, dir, all.before, &folder));
        CALM_TRY(calm_make_directories(ctx, folder));
        if (exporter->wants_importance && p->calib.ids) {    /* without it the exporter says what it lacks */
            CALM_TRY(calm_importance_collect(ctx, p->model, &p->calib, p->recipe->calib_name, tick_batches, &all,
                                             &importance));
            options.importance = &importance;
        }
        const calm_export_input input = {p->model, &p->result, tick_one, &all, &options};
        CALM_TRY(exporter->write(ctx, &input, folder));
        tick_one(&all, all.n_blocks, all.n_blocks);    /* some hear of no blocks */
    }
    return CALM_OK;
}

/* ---- what was written ---- */

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

typedef struct file_list {
    char **names;
    size_t n, room;
} file_list;

static calm_status add_name(calm_ctx *ctx, file_list *list, const char *name)
{
    if (list->n == list->room) {
        char **names;
        const size_t room = list->room ? 2 * list->room : 32;
        CALM_TRY(CALM_NEW(ctx, ctx->out, names, room));
        if (list->n)
            memcpy(names, list->names, list->n * sizeof *names);
        list->names = names;
        list->room = room;
    }
    return calm_strf(ctx, ctx->out, &list->names[list->n++], "%s", name);
}

/* Files of dir/below, by names that begin with `below`. */
static calm_status add_files(calm_ctx *ctx, const char *dir, const char *below, file_list *list)
{
    struct dirent **entries;
    char *folder, *name, *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &folder, dir, below));
    const int found = scandir(folder, &entries, visible, alphasort);
    if (found < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", folder);
    calm_status status = CALM_OK;
    for (int i = 0; i < found; i++) {
        struct stat info;
        if (status == CALM_OK)
            status = calm_strf(ctx, ctx->scratch, &name, "%s%s%s", below, *below ? "/" : "", entries[i]->d_name);
        if (status == CALM_OK)
            status = calm_path_join(ctx, ctx->scratch, &path, dir, name);
        if (status == CALM_OK && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            status = add_name(ctx, list, name);
        else if (status == CALM_OK && !*below && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            status = add_files(ctx, dir, name, list);
        free(entries[i]);
    }
    free(entries);
    return status;
}

calm_status calm_output_files(calm_ctx *ctx, const char *dir, char ***names, size_t *n)
{
    file_list list = {0};
    CALM_TRY(add_files(ctx, dir, "", &list));
    *names = list.names;
    *n = list.n;
    return CALM_OK;
}
