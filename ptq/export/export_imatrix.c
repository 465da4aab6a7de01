/* imatrix: llama.cpp's importance matrix in its GGUF form, for llama-quantize --imatrix.
 *
 *   NAME.in_sum2   F32 [I] (experts: [I, E])   sums of squares of the inputs of weight NAME
 *   NAME.counts    F32 [1] ([1, E])            tokens that were summed
 * Sorted by name, as llama-imatrix writes them.  What it says of the text: imatrix.datasets, chunk_count, chunk_size.
 * Source: llama.cpp, tools/imatrix/imatrix.cpp. */
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/export/gguf_layout.h"
#include "ptq/io/gguf_write.h"
#include "ptq/io/imatrix.h"

/* One weight of the file. */
typedef struct weight {
    const char *name;      /* "blk.0.attn_q.weight" */
    size_t first, n;       /* its job, for experts expert 0's; number of experts */
} weight;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weight *)a)->name, ((const weight *)b)->name);
}

/* Returns the job of expert `expert` that corresponds to `job` of expert 0. */
static size_t job_of(const calm_layout *layout, size_t job, size_t expert)
{
    size_t begin, end;
    calm_layout_fold_set(layout, layout->jobs[job].block, CALM_SUBLAYER_MLP, (long)expert, &begin, &end);
    for (size_t j = begin; j < end; j++)
        if (layout->jobs[j].kind == layout->jobs[job].kind)
            return j;
    return job;
}

/* Lists the weights, sorted by name, in ctx->out. */
static calm_status list_weights(calm_ctx *ctx, const calm_model *model, weight **out, size_t *n)
{
    const calm_layout *layout = calm_model_layout(model);
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, layout->n_linears));
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t l = layout->jobs[j].first; l < layout->jobs[j].first + layout->jobs[j].n; l++) {
            calm_gguf_spot spot;
            char *name;
            if (layout->jobs[j].expert > 0)
                continue;
            CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", layout->linears[l].module));
            CALM_TRY(calm_gguf_need_spot(ctx, "imatrix", model, name, &spot));
            (*out)[(*n)++] = (weight){spot.name, j,
                                      layout->jobs[j].expert == 0 ? calm_model_config(model)->moe.n_experts : 1};
        }
    qsort(*out, *n, sizeof **out, by_name);
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    weight *weights;
    size_t n;
    return list_weights(ctx, input->model, &weights, &n);
}

static calm_status name_tensors(calm_ctx *ctx, const calm_importance *importance, const weight *weights, size_t n,
                                calm_gguf_tensor *tensors)
{
    for (size_t i = 0; i < n; i++) {
        calm_gguf_tensor *sums = &tensors[2 * i], *counts = sums + 1;
        *sums = *counts = (calm_gguf_tensor){.type = CALM_GGML_F32, .n_dims = 2, .dims = {1, weights[i].n}};
        sums->dims[0] = importance->jobs[weights[i].first].width;
        CALM_TRY(calm_strf(ctx, ctx->out, &sums->name, "%s" CALM_IMATRIX_SUMS, weights[i].name));
        CALM_TRY(calm_strf(ctx, ctx->out, &counts->name, "%s" CALM_IMATRIX_COUNTS, weights[i].name));
    }
    return CALM_OK;
}

static void add_keys(const calm_importance *importance, calm_gguf_keys *keys)
{
    size_t most = 0;
    for (size_t j = 0; j < importance->n_jobs; j++)
        most = importance->jobs[j].rows > most ? importance->jobs[j].rows : most;
    calm_gguf_add_string(keys, "general.type", CALM_IMATRIX_TYPE);
    calm_gguf_add_array(keys, "imatrix.datasets", CALM_GGUF_STRING, 1);
    calm_gguf_element_string(keys, importance->dataset, strlen(importance->dataset));
    calm_gguf_add_u32(keys, "imatrix.chunk_count",
                      (uint32_t)(importance->window ? (most + importance->window - 1) / importance->window : 0));
    calm_gguf_add_u32(keys, "imatrix.chunk_size", (uint32_t)importance->window);
}

static calm_status put_weight(calm_ctx *ctx, calm_gguf_writer *writer, const calm_export_input *input, const weight *w)
{
    const calm_importance *importance = input->options->importance;
    const calm_layout *layout = calm_model_layout(input->model);
    const size_t width = importance->jobs[w->first].width;
    CALM_SCOPED_SCRATCH(ctx);
    float *values;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, values, width));
    for (size_t e = 0; e < w->n; e++) {
        const calm_job_importance *job = &importance->jobs[w->n > 1 ? job_of(layout, w->first, e) : w->first];
        for (size_t i = 0; i < width; i++)
            values[i] = job->sumsq ? (float)job->sumsq[i] : 0;
        CALM_TRY(calm_gguf_put(ctx, writer, values, width * sizeof *values));
    }
    for (size_t e = 0; e < w->n; e++) {
        const float count = (float)importance->jobs[w->n > 1 ? job_of(layout, w->first, e) : w->first].rows;
        CALM_TRY(calm_gguf_put(ctx, writer, &count, sizeof count));
    }
    return CALM_OK;
}

/* Checks the sums; called when the file is written, because a plan is checked before they are computed. */
static calm_status check_importance(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_importance *importance = input->options ? input->options->importance : NULL;
    if (!importance)
        return calm_fail(ctx, CALM_EARG, "imatrix: it is made of a calibration text, and none was run");
    if (importance->n_jobs != calm_model_layout(input->model)->n_jobs)
        return calm_fail(ctx, CALM_EARG, "imatrix: sums of %zu jobs, but the model has %zu", importance->n_jobs,
                         calm_model_layout(input->model)->n_jobs);
    return CALM_OK;
}

static calm_status write(calm_ctx *ctx, const calm_export_input *input, const char *dir)
{
    CALM_SCOPED(calm_gguf_keys, calm_gguf_keys_clear) keys;
    calm_gguf_tensor *tensors;
    calm_gguf_writer writer;
    weight *weights;
    char *path;
    size_t n;
    calm_gguf_keys_init(&keys); /* before the first return, which clears them */
    CALM_TRY(check_importance(ctx, input));
    CALM_TRY(list_weights(ctx, input->model, &weights, &n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, tensors, 2 * n));
    CALM_TRY(name_tensors(ctx, input->options->importance, weights, n, tensors));
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, "imatrix.gguf"));
    add_keys(input->options->importance, &keys);
    calm_gguf_begin(ctx, &writer, path, &keys, tensors, 2 * n);
    for (size_t i = 0; i < n && ctx->status == CALM_OK; i++)
        put_weight(ctx, &writer, input, &weights[i]);
    return calm_gguf_end(ctx, &writer); /* the first failure is in the context */
}

const calm_exporter calm_export_imatrix = {
    .name = "imatrix",
    .summary = "imatrix.gguf: llama.cpp's importance matrix of the calibration text, for llama-quantize",
    .wants_importance = true,
    .file = "imatrix.gguf",
    .check = check,
    .write = write,
};
