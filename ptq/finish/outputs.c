/* Outputs: the files of each format, and their folders. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/calib/importance.h"
#include "ptq/export/export.h"
#include "ptq/io/gguf_split.h"
#include "ptq/io/safetensors.h"
#include "ptq/finish/finish.h"

/* The most nested folders, because a link may lead back. */
#define MOST_DEPTH 4

/* Returns the folder of one format, in ctx->scratch. */
static calm_status folder_of(calm_ctx *ctx, const calm_formats *formats, const char *dir, size_t index, char **out)
{
    char *name;
    /* A single format is in the output folder, several have a subfolder each. */
    if (calm_formats_count(formats) == 1)
        return calm_strf(ctx, ctx->scratch, out, "%s", dir);
    CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, index), &name));
    return calm_path_join(ctx, ctx->scratch, out, dir, name);
}

calm_status calm_outputs_measured(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan,
                                  const calm_exporter **exporter, calm_outer_plan *outer)
{
    const calm_formats *formats = &in->recipe->formats;
    const size_t n = calm_formats_count(formats);
    *exporter = NULL;
    for (int files = 0; files < 2 && !*exporter; files++)
        for (size_t i = 0; i < n && !*exporter; i++) {
            const calm_exporter *at = calm_formats_at(formats, i);
            if ((at->file != NULL) != files)
                continue;
            CALM_TRY(calm_formats_outer(ctx, formats, at, in->model, plan, outer));
            /* A file with float embedding and head contains no more than the plan. */
            if (!files || outer->scheme[CALM_OUTER_EMBEDDING].bits || outer->scheme[CALM_OUTER_HEAD].bits)
                *exporter = at;
        }
    return CALM_OK;
}

calm_status calm_outputs_quantize_head(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan, bool *out)
{
    const calm_formats *formats = &in->recipe->formats;
    *out = false;
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        calm_outer_plan outer;
        CALM_TRY(calm_formats_outer(ctx, formats, calm_formats_at(formats, i), in->model, plan, &outer));
        *out |= outer.scheme[CALM_OUTER_HEAD].bits > 0;
    }
    return CALM_OK;
}

calm_status calm_outputs_place(calm_ctx *ctx, const calm_formats *formats, const calm_exporter *exporter,
                               const char *dir, char **out)
{
    size_t index = 0;
    char *folder;
    while (calm_formats_at(formats, index) != exporter)
        index++;
    CALM_TRY(folder_of(ctx, formats, dir, index, &folder));
    *out = folder;
    if (!exporter->file)
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &folder, folder, exporter->file));
    return calm_gguf_split_find(ctx, folder, out);    /* the first of several files */
}

calm_status calm_outputs_checkpoint(calm_ctx *ctx, const calm_formats *formats, const char *dir, char **out)
{
    *out = NULL;
    for (int files = 0; files < 2; files++)
        for (size_t i = 0; i < calm_formats_count(formats); i++) {
            const calm_exporter *at = calm_formats_at(formats, i);
            if (!at->file && !files)
                return folder_of(ctx, formats, dir, i, out);
            if (at->file && files && at->serve)    /* a model, not a list of types */
                return calm_outputs_place(ctx, formats, at, dir, out);
        }
    return CALM_OK;
}

/* Computes the bytes of a format's only file, or of all its parts. */
static calm_status file_bytes(calm_ctx *ctx, const char *path, int64_t *out)
{
    struct stat info;
    size_t n = 1;
    char *first, *name;
    CALM_TRY(calm_gguf_split_find(ctx, path, &first));
    if (strcmp(first, path) != 0)
        n = strtoul(first + strlen(first) - strlen("00001.gguf"), NULL, 10);
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_gguf_split_path(ctx, path, i, n, &name));
        if (stat(name, &info) != 0)
            return calm_fail_errno(ctx, errno, "%s: cannot stat", name);
        *out += info.st_size;
    }
    return CALM_OK;
}

calm_status calm_outputs_bytes(calm_ctx *ctx, const calm_formats *formats, const char *dir, int64_t *out)
{
    const calm_exporter *first = calm_formats_at(formats, 0);
    calm_safetensors *set;
    char *folder, *path;
    *out = 0;
    CALM_TRY(folder_of(ctx, formats, dir, 0, &folder));
    /* The bytes to compare with the float checkpoint: the file, or the tensors without headers and tokenizer. */
    if (first->file) {
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, folder, first->file));
        return file_bytes(ctx, path, out);
    }
    CALM_TRY(calm_safetensors_open(ctx, folder, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        *out += (int64_t)calm_safetensors_at(set, i)->bytes;
    calm_safetensors_close(set);
    return CALM_OK;
}

/* ---- engines ---- */

bool calm_outputs_taken(const calm_result *r, const calm_engine *engine, const char *format)
{
    for (size_t i = 0; i < r->plan.n_jobs; i++) {
        const calm_job_ref *job = &r->layout->jobs[i];
        const calm_engine_linear linear = {.out = job->out, .in = job->in, .expert = job->expert >= 0};
        if (r->plan.jobs[i].quantized &&
            calm_engine_verdict(engine, format, &linear, &r->plan.jobs[i].scheme) != CALM_ENGINE_TAKES)
            return false;
    }
    return true;
}

/* Only vLLM may lack kernels; other engines read all that calm writes for them. */
bool calm_outputs_served(const calm_result *r, const char *format)
{
    const calm_engine *engine = calm_engine_find("vllm");
    return !r->encoder && (!calm_engine_reads(engine, format) || calm_outputs_taken(r, engine, format));
}

/* ---- writing ---- */

/* Reports the events of several formats as one stage. */
typedef struct ticks {
    const calm_events *events;
    size_t before, formats, n_blocks;
} ticks;

static void tick_one(void *user, size_t done, size_t total)
{
    const ticks *all = user;
    calm_event(all->events, CALM_STAGE_ASSEMBLE, all->before * total + done, all->formats * total);
}

/* Counts all batches of blocks as one pass over the model's blocks, as for other formats. */
static void tick_batches(void *user, size_t done, size_t total)
{
    const size_t n_blocks = ((const ticks *)user)->n_blocks;
    tick_one(user, done * n_blocks / total, n_blocks);
}

/* Computes the scales of an 8-bit KV cache from the peaks of the float model's keys and values; in ctx->out. */
static calm_status find_cache(calm_ctx *ctx, const calm_inputs *in, const calm_kv_peaks *peaks,
                              const calm_kv_scales **out)
{
    const size_t n = calm_model_config(in->model)->n_blocks;
    calm_kv_scales *scales;
    CALM_TRY(CALM_NEW(ctx, ctx->out, scales, n));
    for (size_t b = 0; b < n; b++)
        if (calm_kv_has(calm_model_config(in->model), b))
            scales[b] = (calm_kv_scales){calm_kv_scale(peaks[b].k), calm_kv_scale(peaks[b].v)};
    *out = scales;
    return CALM_OK;
}

/* Computes what an exporter needs from the calibration windows, by one pass of the float model; fails without
 * windows. */
static calm_status look_at_windows(calm_ctx *ctx, const calm_inputs *in, const calm_exporter *exporter, ticks *all,
                                   calm_importance *room, calm_export_options *options)
{
    const bool caches = in->recipe->kv_cache && exporter->caches;
    calm_kv_peaks *peaks = NULL;
    if (!in->calib.ids || (!exporter->wants_importance && !caches))
        return caches ? calm_fail(ctx, CALM_EARG, "`kv_cache` needs calibration windows") : CALM_OK;
    if (caches)
        CALM_TRY(CALM_NEW(ctx, ctx->out, peaks, calm_model_config(in->model)->n_blocks));
    CALM_TRY(calm_importance_collect(ctx, in->model, &in->calib, in->recipe->calib_name, peaks, tick_batches, all,
                                     room));
    if (exporter->wants_importance)
        options->importance = room;
    return caches ? find_cache(ctx, in, peaks, &options->kv) : CALM_OK;
}

calm_status calm_outputs_write(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir)
{
    const calm_inputs *in = checkpoint->in;
    const calm_formats *formats = &in->recipe->formats;
    ticks all = {checkpoint->events, 0, calm_formats_count(formats), calm_model_config(in->model)->n_blocks};
    /* One format after the other, because each exporter holds one block in memory. */
    for (; all.before < all.formats; all.before++) {
        const calm_exporter *exporter = calm_formats_at(formats, all.before);
        calm_export_options options = formats->options;
        calm_importance importance;
        char *folder;
        CALM_TRY(folder_of(ctx, formats, dir, all.before, &folder));
        CALM_TRY(calm_make_directories(ctx, folder));
        CALM_TRY(look_at_windows(ctx, in, exporter, &all, &importance, &options));
        calm_outer_plan outer;
        CALM_TRY(calm_formats_outer(ctx, formats, exporter, in->model, &checkpoint->result->plan, &outer));
        outer.rows = calm_outer_rows;
        outer.user = (void *)(uintptr_t)checkpoint->fit;    /* only read */
        const calm_export_input input = {in->model, &checkpoint->result->plan, tick_one, &all, &options, &outer};
        CALM_TRY(calm_exporter_write(ctx, exporter, &input, folder));
        tick_one(&all, all.n_blocks, all.n_blocks);    /* some exporters report no blocks */
    }
    return CALM_OK;
}

/* ---- written files ---- */

/* A filter for scandir: temporary files and folders begin with a dot, and a signature is added after the run. */
static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, CALM_OUTPUT_SIGNATURE) != 0;
}

/* Adds the files of dir/below, with names relative to `dir`; depth: number of folders above. */
static calm_status add_files(calm_ctx *ctx, const char *dir, const char *below, int depth, calm_words *list)
{
    struct dirent **entries;
    char *folder, *name, *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &folder, dir, below));
    /* alphasort uses the locale, which calm leaves at C: by bytes.  Locks list the files in this order. */
    const int found = scandir(folder, &entries, visible, alphasort);
    if (found < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", folder);
    calm_status status = CALM_OK;
    for (int i = 0; i < found; i++) {
        struct stat info;
        /* After a failure the loop only frees the entries. */
        if (status == CALM_OK)
            status = calm_strf(ctx, ctx->scratch, &name, "%s%s%s", below, *below ? "/" : "", entries[i]->d_name);
        if (status == CALM_OK)
            status = calm_path_join(ctx, ctx->scratch, &path, dir, name);
        if (status == CALM_OK && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            status = calm_words_add(ctx, list, name);
        /* Folders of formats, with folders of chat templates and Python packages in them. */
        else if (status == CALM_OK && depth < MOST_DEPTH && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            status = add_files(ctx, dir, name, depth + 1, list);
        free(entries[i]);
    }
    free(entries);
    return status;
}

calm_status calm_outputs_files(calm_ctx *ctx, const char *dir, const char ***names, size_t *n)
{
    calm_words list = {0};
    CALM_TRY(add_files(ctx, dir, "", 0, &list));
    *names = list.of;
    *n = list.n;
    return CALM_OK;
}
