/* Exports a checkpoint rounded to the nearest points of a scheme's grid, and the tensors that calm reads back:
 *
 *   write_gguf MODEL SCHEME[,SCHEME...] FOLDER [f32|f16]
 *
 *   FOLDER/model.gguf           schemes take turns over the jobs; f32, f16: dtype of float tensors; kv_b,
 *                               and jobs whose columns are no multiple of 32, stay float
 *   FOLDER/calm.safetensors     the tensors of the checkpoint in float32, as calm reads them from that file */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/export/export.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_plan.h"

#define MOST_SCHEMES 8

static char **words;

static void export(const tiny_plan *p, const char *folder)
{
    size_t n;
    const calm_export_options options = {.gguf_float = !words[4]                     ? CALM_EXPORT_AS_STORED
                                                       : strcmp(words[4], "f16") == 0 ? CALM_EXPORT_F16
                                                                                      : CALM_EXPORT_F32};
    const calm_export_input input = {.model = p->model, .plan = &p->plan, .options = &options};
    for (size_t i = 0; i < (calm_exporters(&n), n); i++) {
        const calm_exporter *exporter = calm_exporters(&n)[i];
        if (strcmp(exporter->name, "gguf") != 0)
            continue;
        ck_ok(exporter->check(ctx, &input));
        ck_ok(calm_exporter_write(ctx, exporter, &input, folder));
    }
}

static void read_back(const char *folder)
{
    calm_gguf *file;
    calm_gguf_list list;
    calm_tensor *tensors;
    calm_safetensors_writer writer;
    size_t n = 0;
    ck_ok(calm_gguf_open(ctx, test_format("%s/model.gguf", folder), &file));
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    ck_ok(CALM_NEW(ctx, ctx->out, tensors, list.n));
    for (size_t i = 0; i < list.n; i++)
        if (list.entries[i].name)
            tensors[n++] = (calm_tensor){.name = list.entries[i].name,
                                         .dtype = CALM_F32,
                                         .n_dims = list.entries[i].n_dims,
                                         .shape = {list.entries[i].shape[0], list.entries[i].shape[1],
                                                   list.entries[i].shape[2]}};
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/calm.safetensors", folder), tensors, n));
    for (size_t i = 0; i < list.n; i++) {
        const calm_gguf_entry *entry = &list.entries[i];
        const calm_arena_mark mark = calm_arena_save(ctx->scratch);
        const size_t elements = entry->shape[0] * calm_gguf_entry_columns(entry);
        float *values;
        if (!entry->name)
            continue;
        ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, values, elements));
        ck_ok(calm_gguf_entry_to_f32(ctx, &list, entry, 0, entry->shape[0], values));
        ck_ok(calm_safetensors_put(ctx, &writer, values, elements * sizeof *values));
        calm_arena_rewind(ctx->scratch, mark);
    }
    ck_ok(calm_safetensors_end(ctx, &writer));
    calm_gguf_close(file);
}

/* Checks that the keys describe the model; a file with llama3's factors is refused with a message. */
static void open_back(const char *folder)
{
    calm_model *model;
    const calm_status status = calm_model_open(ctx, test_format("%s/model.gguf", folder), &model);
    ck_assert_msg(status == CALM_OK || (status == CALM_EUNSUPPORTED && strstr(ctx->message, "rope_freqs.weight")), "%s",
                  ctx->message);
    if (status == CALM_OK)
        calm_model_close(model);
}

TEST(write_one)
{
    char *schemes[MOST_SCHEMES], *at = words[2];
    size_t n = 0;
    tiny_plan p;
    for (char *word; n < MOST_SCHEMES && (word = strsep(&at, ","));)
        schemes[n++] = word;
    ck_ok(calm_make_directories(ctx, words[3]));
    tiny_plan_open(&p, words[1]);
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++)    /* once for all experts */
        if (layout->jobs[j].in % 32 == 0 && layout->jobs[j].kind != CALM_JOB_KV_B)
            tiny_plan_quantize(&p, j, schemes[layout->jobs[j].expert >= 0 ? 0 : j % n], TINY_UNSCALED);
    export(&p, words[3]);
    calm_model_close(p.model);
    read_back(words[3]);
    open_back(words[3]);
}
END_OF_TEST

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fputs("usage: write_gguf MODEL SCHEME[,SCHEME...] FOLDER [f32|f16]\n", stderr);
        return 2;
    }
    words = argv;    /* ends with NULL */
    return run_tests("write_gguf", (const TTest *[]){write_one, NULL});
}
