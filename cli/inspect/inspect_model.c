/* calm inspect MODEL: shows a checkpoint directory or a GGUF file, float or quantized. */
#include "cli/inspect/inspect.h"
#include "cli/print.h"

#include <stdio.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/gguf/gguf_model.h"
#include "ptq/model/model.h"
#include "ptq/quant/scheme.h"

/* A stored linear. */
typedef struct stored_linear {
    const char *module;
    const calm_job_ref *job;
    size_t out, in, bytes;
    char scheme[CALM_SCHEME_NAME_MAX];    /* GGUF: the type */
    bool quantized, published;            /* published: calm reads its codes as floats */
} stored_linear;

typedef struct contents {
    const calm_model *model;
    const char *note;
    stored_linear *linears;    /* [n] block after block, in role order */
    size_t n, n_quantized, weights, bytes;
    size_t n_scales;           /* number of floats that are no parameters: scales, MLX's biases */
} contents;

static double bits_per_weight(size_t bytes, size_t weights)
{
    return 8.0 * (double)bytes / (double)weights;
}

/* ---- reading ---- */

/* Measures the stored bytes of the weight (codes, scales and zeros, or floats) and finds the dtype of its scales or
 * floats. */
static calm_status measure_linear(calm_ctx *ctx, const calm_model *model, const calm_qformat_scheme *scheme,
                                  stored_linear *linear, size_t *floats, calm_dtype *dtype)
{
    calm_qformat_tensor list[CALM_N_QFORMAT_PARTS] = {{.part = CALM_QFORMAT_CODES, .suffix = "weight"}};
    size_t n = 1;
    char *name;
    if (linear->quantized)
        CALM_TRY(calm_qformat_tensors(ctx, calm_model_qformat(model), linear->module, scheme, linear->out, linear->in,
                                      list, &n));
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", linear->module, list[i].suffix));
        const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
        /* Shapes and the order of columns (g_idx) do not count towards bits per weight. */
        if (!tensor || list[i].part == CALM_QFORMAT_SHAPE || list[i].part == CALM_QFORMAT_INDEX)
            continue;
        linear->bytes += tensor->bytes + tensor->scale_bytes;
        linear->published = tensor->scales != NULL;
        if (calm_dtype_is_float(tensor->dtype))
            *floats += tensor->n_elements;
        if (list[i].part == CALM_QFORMAT_SCALES || !linear->quantized)
            *dtype = tensor->dtype;
    }
    return CALM_OK;
}

/* Does the same for a GGUF file, whose types say all. */
static calm_status read_blocks(calm_ctx *ctx, const calm_model *model, stored_linear *out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", out->module));
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
    if (!tensor)
        return CALM_OK;
    out->bytes = tensor->bytes;
    out->quantized = calm_gguf_is_in_blocks(tensor);
    snprintf(out->scheme, sizeof out->scheme, "%s",
             out->quantized ? calm_gguf_stored_type(tensor) : calm_dtype_name(tensor->dtype));
    return CALM_OK;
}

static calm_status read_linear(calm_ctx *ctx, contents *to, const calm_job_ref *job, const calm_linear_ref *linear,
                               stored_linear *out)
{
    const calm_model *model = to->model;
    calm_qformat_scheme stored;
    calm_dtype dtype = CALM_BF16;
    size_t floats = 0;
    *out = (stored_linear){.job = job, .module = linear->module, .out = linear->out, .in = linear->in};
    if (calm_model_is_file(model))
        return read_blocks(ctx, model, out);
    if (calm_model_qformat(model))
        CALM_TRY(calm_qformat_find(ctx, calm_model_qformat(model), calm_model_tensors(model), linear->module,
                                   &out->quantized, &stored));
    CALM_TRY(measure_linear(ctx, model, &stored, out, &floats, &dtype));
    if (!out->quantized) {
        const char *name = out->published ? calm_model_published(model) : calm_dtype_name(dtype);
        snprintf(out->scheme, sizeof out->scheme, "%.*s", (int)strcspn(name, " "), name);
        return CALM_OK;
    }
    const calm_scheme scheme = calm_qformat_as_scheme(&stored, dtype);
    calm_scheme_name(&scheme, out->scheme);
    to->n_scales += floats;
    return CALM_OK;
}

static calm_status read_contents(calm_ctx *ctx, const calm_model *model, contents *out)
{
    const calm_layout *layout = calm_model_layout(model);
    out->model = model;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->linears, layout->n_linears));
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            stored_linear *linear = &out->linears[out->n++];
            CALM_TRY(read_linear(ctx, out, &layout->jobs[j], &layout->linears[i], linear));
            out->n_quantized += linear->quantized;
            out->weights += linear->out * linear->in;
            out->bytes += linear->bytes;
        }
    return CALM_OK;
}

/* Counts the parameters of the float model: stored floats without scales, and weights that are stored as codes.  calm
 * reads blocks of a GGUF file as floats and counts them as such. */
static size_t count_parameters(const contents *in)
{
    size_t total = calm_model_n_params(in->model) - in->n_scales;
    for (size_t i = 0; i < in->n && !calm_model_is_file(in->model); i++)
        total += in->linears[i].quantized ? in->linears[i].out * in->linears[i].in : 0;
    return total;
}

/* ---- tables ---- */

static void fill_summary(const contents *in, calm_table *table)
{
    const calm_config *config = calm_model_config(in->model);
    size_t sliding = 0;
    const char *published = calm_model_published(in->model);
    char dtype[160];
    snprintf(dtype, sizeof dtype, "%s%s%s", calm_dtype_name(config->dtype), published ? ", published as " : "",
             published ? published : "");
    for (size_t i = 0; i < config->n_blocks; i++)
        sliding += config->window[i] != 0;
    calm_table_columns(table, "path|architecture|parameters|dtype|bytes|blocks|hidden_size|intermediate_size|heads|"
                              "kv_heads|head_dim|vocab_size|max_positions|rope_theta|norm_eps|tied|attention_bias|"
                              "sliding_blocks|quantized_linears|linears|bits_per_weight|note");
    CALM_CELLS(table, CALM_TEXT(calm_model_dir(in->model)), CALM_TEXT(calm_model_class(in->model)),
               CALM_INT(count_parameters(in)), CALM_TEXT(dtype),
               CALM_INT(calm_model_bytes(in->model)), CALM_INT(config->n_blocks), CALM_INT(config->hidden),
               CALM_INT(config->inner), CALM_INT(config->n_heads), CALM_INT(config->n_kv), CALM_INT(config->head_dim),
               CALM_INT(config->vocab), CALM_INT(config->max_positions),
               CALM_FIXED(config->rope[CALM_ROPE_GLOBAL].theta, 0),
               CALM_SCIENTIFIC(calm_json_number(calm_json_get(calm_model_text_json(in->model), "rms_norm_eps"),
                                                (double)config->norm_eps), 0),
               CALM_BOOL(config->tied),
               CALM_BOOL(calm_job_biased(config, calm_slot_first_job(config, CALM_SUBLAYER_ATTENTION))),
               CALM_INT(sliding), CALM_INT(in->n_quantized), CALM_INT(in->n),
               CALM_FIXED(bits_per_weight(in->bytes, in->weights), 3),
               CALM_TEXT(in->note));
}

#define SIZE_COLUMNS "#out|#in|#weights|#bytes|scheme|#bits"

#define SIZE_CELLS(out, in, bytes, scheme)                                                                             \
    CALM_INT(out), CALM_INT(in), CALM_INT((out) * (in)), CALM_INT(bytes), CALM_TEXT(scheme),                           \
        CALM_FIXED(bits_per_weight((bytes), (out) * (in)), 3)

/* Returns a linear's name within its block: "self_attn.q_proj". */
static const char *short_name(const contents *in, const stored_linear *linear)
{
    const char *at = linear->module + strlen(calm_model_prefix(in->model));
    at += strlen(calm_model_config(in->model)->arch->names->blocks) + 1;
    at = strchr(at, '.');
    return at ? at + 1 : linear->module;
}

/* Adds a row per job; the linears of a job are consecutive. */
static void fill_blocks(const contents *in, calm_table *table)
{
    calm_table_columns(table, "#block|job|sublayer|" SIZE_COLUMNS "|linears");
    for (size_t first = 0, end; first < in->n; first = end) {
        const stored_linear *linear = &in->linears[first];
        const char *scheme = linear->scheme;
        size_t out = 0, bytes = 0;
        char modules[256] = "";
        for (end = first; end < in->n && in->linears[end].job == linear->job; end++) {
            const stored_linear *at = &in->linears[end];
            const size_t used = strlen(modules);
            snprintf(modules + used, sizeof modules - used, "%s%s", used ? " " : "", short_name(in, at));
            out += at->out;
            bytes += at->bytes;
            scheme = strcmp(at->scheme, scheme) == 0 ? scheme : "mixed";
        }
        CALM_CELLS(table, CALM_INT(linear->job->block), CALM_TEXT(linear->job->role),
                   CALM_TEXT(calm_sublayer_name(calm_job_sublayer(linear->job->kind))),
                   SIZE_CELLS(out, linear->in, bytes, scheme), CALM_TEXT(modules));
    }
}

static void fill_linears(const contents *in, calm_table *table)
{
    calm_table_columns(table, "#block|linear|" SIZE_COLUMNS);
    for (size_t i = 0; i < in->n; i++) {
        const stored_linear *linear = &in->linears[i];
        CALM_CELLS(table, CALM_INT(linear->job->block), CALM_TEXT(linear->module),
                   SIZE_CELLS(linear->out, linear->in, linear->bytes, linear->scheme));
    }
}

/* ---- the command's part ---- */

static const struct {
    const char *name;
    void (*fill)(const contents *in, calm_table *table);
} views[] = {{"summary", fill_summary}, {"blocks", fill_blocks}, {"linears", fill_linears}};

#define N_VIEWS (sizeof views / sizeof *views)

calm_status calm_inspect_model(calm_ctx *ctx, const char *dir, const char *note, const calm_inspect_query *query)
{
    const char *names[N_VIEWS];
    size_t view = N_VIEWS;
    CALM_SCOPED_MODEL(model);
    CALM_SCOPED_TABLE(table);
    CALM_SCOPED_TEXT(text);
    contents in = {.note = note};
    for (size_t i = 0; i < N_VIEWS; i++) {
        names[i] = views[i].name;
        if (strcmp(names[i], query->what ? query->what : "summary") == 0)
            view = i;
    }
    if (view == N_VIEWS)
        return calm_inspect_unknown(ctx, dir, query->what, names, N_VIEWS);
    if (query->n_args)
        return calm_fail(ctx, CALM_EARG, "%s: a model has no runs; RUN belongs to a store", dir);
    if (query->unit || query->metric)
        return calm_fail(ctx, CALM_EARG, "%s: a model has no scores; --%s belongs to a store", dir,
                         query->unit ? "unit" : "metric");
    CALM_TRY(calm_model_open_as(ctx, dir, &query->how, &model));
    CALM_TRY(read_contents(ctx, model, &in));
    views[view].fill(&in, &table);
    if (query->form == CALM_INSPECT_JSON)
        return calm_print_json(ctx, CALM_OBJECT(CALM_KV(views[view].name, calm_rows_json(ctx, &table))));
    if (query->form == CALM_INSPECT_CSV)
        calm_table_write_csv(ctx, &table, &text);
    else if (view == 0)    /* the summary has one row of many columns */
        calm_table_write_fields(ctx, &table, 0, &text);
    else
        calm_table_write(ctx, &table, 0, &text);
    return calm_print_text(ctx, &text);
}
