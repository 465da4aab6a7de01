/* Models, evaluations and checkpoints through calm.h. */
#include <math.h>

#include "ptq/api/library.h"
#include "ptq/arch/arch.h"
#include "ptq/base/option.h"
#include "ptq/base/scope.h"
#include "ptq/check/check.h"
#include "ptq/eval/tasks.h"
#include "ptq/export/dequantize.h"
#include "ptq/recipe/model_names.h"
#include "ptq/state/eval_text.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tokenizer/gguf_vocab.h"

/* Tokens per window if a request does not say. */
#define SEQLEN 512

calm_status calm_find(calm_ctx *ctx, const char *name, const char **dir)
{
    calm_named_model found;
    CALM_ENTER(ctx, name && dir);
    calm_stage_events stage = {calm_library_events(ctx), CALM_STAGE_PULL};
    CALM_TRY(calm_model_find(ctx, name, calm_stage_tick, &stage, &found));
    *dir = found.dir;
    return CALM_OK;
}

/* ---- evaluation ---- */

/* The open models and tokenizer of a request. */
typedef struct opened {
    calm_model *model, *reference;
    calm_tokenizer *tokenizer;
    calm_stage_events stage;
} opened;

static calm_status open_named(calm_ctx *ctx, const char *name, calm_model **out, const char **dir)
{
    CALM_TRY(calm_find(ctx, name, dir));
    return calm_model_open(ctx, *dir, out);
}

static calm_status open_request(calm_ctx *ctx, const calm_measure_request *request, opened *o)
{
    const char *dir, *reference_dir;
    char *path;
    o->stage = (calm_stage_events){calm_library_events(ctx), CALM_STAGE_EVALUATE};
    CALM_TRY(open_named(ctx, request->model, &o->model, &dir));
    if (request->reference)
        CALM_TRY(open_named(ctx, request->reference, &o->reference, &reference_dir));
    CALM_TRY(calm_gguf_tokenizer_find(ctx, dir, &path));
    CALM_TRY(calm_tokenizer_open(ctx, path, &o->tokenizer));
    const bool encoder = calm_model_config(o->model)->arch->encoder;
    if (o->reference && calm_model_config(o->reference)->arch->encoder != encoder)
        return calm_fail(ctx, CALM_EARG, "%s and %s: one is an encoder, the other is not", request->model,
                         request->reference);
    return CALM_OK;
}

/* Closes a request, at the end of a scope. */
static void close_request(opened *o)
{
    calm_tokenizer_close(o->tokenizer);
    calm_model_close(o->reference);
    calm_model_close(o->model);
}

static calm_status read_windows(calm_ctx *ctx, const calm_measure_request *request, const opened *o, calm_windows *out)
{
    const calm_eval_text text = {.text = request->text, .samples = request->samples,
                                    .seqlen = request->seqlen ? request->seqlen : SEQLEN,
                                    .no_special = request->no_special};
    return calm_eval_text_windows(ctx, o->model, o->tokenizer, &text, out);
}

static calm_status measure_encoder(calm_ctx *ctx, const calm_measure_request *request, opened *o,
                                   const calm_windows *windows, calm_figures *out)
{
    calm_embedding_result found;
    if (!o->reference)
        return calm_fail(ctx, CALM_EARG,
                         "%s is an encoder, which is judged by its distance to the float one: a reference is missing",
                         request->model);
    CALM_TRY(calm_eval_text_embeddings(ctx, o->model, o->reference, windows, calm_stage_tick, &o->stage, &found));
    out->n_tokens = windows->begin[windows->n];
    out->error = found.error;
    out->cosine = found.cosine;
    out->cosine_min = found.cosine_min;
    out->spearman = found.spearman;
    return CALM_OK;
}

static calm_status measure_decoder(calm_ctx *ctx, opened *o, const calm_windows *windows, calm_figures *out)
{
    const calm_subject subject = {.model = o->model}, against = {.model = o->reference};
    calm_eval_result found;
    CALM_TRY(calm_evaluate(ctx, o->reference ? &against : NULL, NULL, &subject, 1, &found, windows, calm_stage_tick,
                           &o->stage));
    out->n_tokens = found.tokens;
    out->nll = found.nll;
    out->ppl = found.ppl;
    out->kl = found.kl;
    out->top1 = found.top1;
    out->top5 = found.top5;
    return CALM_OK;
}

calm_status calm_measure_model(calm_ctx *ctx, const calm_measure_request *request, calm_figures *out)
{
    CALM_SCOPED(opened, close_request) o = {NULL};
    calm_windows windows;
    CALM_ENTER(ctx, request && request->model && out);
    *out = (calm_figures){.nll = NAN, .ppl = NAN, .kl = NAN, .top1 = NAN, .top5 = NAN, .error = NAN, .cosine = NAN,
                          .cosine_min = NAN, .spearman = NAN};
    CALM_TRY(open_request(ctx, request, &o));
    CALM_SCOPED_INTS(ctx, true);    /* as runs and calm eval measure */
    CALM_SCOPED_OPERANDS(ctx, calm_bf16_auto());
    CALM_TRY(read_windows(ctx, request, &o, &windows));
    out->n_windows = windows.n;
    return calm_model_config(o.model)->arch->encoder ? measure_encoder(ctx, request, &o, &windows, out)
                                                     : measure_decoder(ctx, &o, &windows, out);
}

calm_status calm_embed(calm_ctx *ctx, const calm_measure_request *request, const double **x, size_t *n, size_t *width)
{
    CALM_SCOPED(opened, close_request) o = {NULL};
    calm_embeddings found;
    calm_windows windows;
    CALM_ENTER(ctx, request && request->model && x && n && width);
    *x = NULL;
    *n = *width = 0;
    CALM_TRY(open_request(ctx, request, &o));
    if (!calm_model_config(o.model)->arch->encoder)
        return calm_fail(ctx, CALM_EARG, "%s is no encoder: it has no sentence embeddings", request->model);
    CALM_TRY(read_windows(ctx, request, &o, &windows));
    const calm_subject subject = {.model = o.model};
    CALM_TRY(calm_encode(ctx, &subject, &windows, calm_stage_tick, &o.stage, &found));
    *x = found.x;
    *n = found.n;
    *width = found.width;
    return CALM_OK;
}

calm_status calm_answer(calm_ctx *ctx, const calm_measure_request *request, calm_task_figures *out)
{
    CALM_SCOPED(opened, close_request) o = {NULL};
    calm_tasks_result found;
    CALM_ENTER(ctx, request && request->model && request->text && out);
    calm_task_options options = {.samples = request->samples};
    CALM_TRY(open_request(ctx, request, &o));
    const calm_subject subject = {.model = o.model}, against = {.model = o.reference};
    CALM_SCOPED_INTS(ctx, true);
    CALM_TRY(calm_eval_text_task_options(ctx, o.model, o.reference, o.tokenizer, &options));
    CALM_TRY(calm_tasks_evaluate(ctx, request->text, o.tokenizer, &options, o.reference ? &against : NULL, &subject,
                                 calm_stage_tick, &o.stage, &found));
    *out = (calm_task_figures){.n_tasks = found.n, .acc = found.model.acc, .acc_norm = found.model.acc_norm,
                               .acc_se = found.model.acc_se, .acc_norm_se = found.model.acc_norm_se,
                               .reference_acc = o.reference ? found.reference.acc : NAN, .same = found.same};
    return CALM_OK;
}

/* ---- checkpoints ---- */

calm_status calm_check_path(calm_ctx *ctx, const char *path, const char *engine, calm_check_outcome *out)
{
    calm_check_report report;
    calm_check_fault *faults;
    CALM_ENTER(ctx, path && engine && out);
    const int number = calm_option_value_index(CALM_CHECK_ENGINE_NAMES, engine);
    if (number < 0)
        return calm_fail(ctx, CALM_EARG, "calm_check_path: no engine \"%.40s\"; expected %s", engine,
                         CALM_CHECK_ENGINE_NAMES);
    CALM_TRY(calm_check(ctx, path, (calm_check_engine)number, &report));
    CALM_TRY(CALM_NEW(ctx, ctx->out, faults, report.n));
    for (size_t i = 0; i < report.n; i++)
        faults[i] = (calm_check_fault){.rule = report.findings[i].rule->id,
                                       .severity = calm_severity_name(report.findings[i].rule->severity),
                                       .where = report.findings[i].where, .what = report.findings[i].what,
                                       .remedy = report.findings[i].rule->remedy};
    *out = (calm_check_outcome){.format = report.format, .n_tensors = report.n_tensors,
                                .n_quantized = report.n_quantized, .n_faults = report.n,
                                .n_errors = report.n_severity[CALM_SEVERITY_ERROR], .faults = faults};
    return CALM_OK;
}

calm_status calm_dequantize_to(calm_ctx *ctx, const char *path, const char *output, const char *dtype, bool force)
{
    static const calm_dtype types[] = {CALM_F32, CALM_F16, CALM_BF16};
    calm_dequantize_result result;
    CALM_ENTER(ctx, path && output);
    const int number = dtype ? calm_option_value_index("f32|f16|bf16", dtype) : 0;
    if (number < 0)
        return calm_fail(ctx, CALM_EARG, "calm_dequantize_to: no type \"%.40s\"; expected f32, f16 or bf16", dtype);
    const calm_dequantize_options options = {.output = output, .force = force,
                                             .dtype = dtype ? types[number] : CALM_N_DTYPES};
    return calm_dequantize(ctx, path, &options, &result);
}
