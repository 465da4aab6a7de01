/* Evaluations: finds measures in the store by key, and stores them. */
#include <math.h>

#include "ptq/plan/key.h"
#include "ptq/measure/measure.h"
#include "ptq/quant/grid.h"

bool calm_run_ints(const calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        const calm_scheme *scheme = &recipe->schemes[i];
        any |= calm_actquant_has_codes(scheme->act_bits, scheme->act_asymmetric, scheme->act_rule);
    }
    return any && !recipe->exact_float;
}

calm_status calm_run_evaluation_key(calm_ctx *ctx, const calm_run *p, const char *subject_key,
                                    const calm_windows *windows, char key[CALM_SHA256_HEX])
{
    char *subject;
    /* Figures from float, integer and two-bfloat16 products are close, but not equal. */
    CALM_TRY(calm_strf(ctx, ctx->scratch, &subject, "%s%s%s", subject_key, calm_run_ints(p) ? " ints" : "",
                       p->in.recipe->operands == CALM_OPERANDS_BF16X2 ? " bf16x2" : ""));
    return calm_key_evaluation(ctx, p->model_key, subject, windows, key);
}

/* Converts a sum of the store: NULL (here NaN) means 0 in a window of an evaluation without a reference. */
static double sum_of(double value)
{
    return isnan(value) ? 0 : value;
}

/* Converts a row of the store to a result, with the windows that paired comparisons need. */
static calm_status read_predictions(calm_ctx *ctx, const calm_store_evaluation *row, calm_eval_result *out)
{
    *out = (calm_eval_result){
        .tokens = (size_t)row->tokens, .nll = row->nll, .ppl = row->ppl, .kl = row->kl, .top1 = row->top1,
        .top5 = NAN};    /* not in the store */
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->windows, row->n_windows));
    for (size_t w = 0; w < row->n_windows; w++) {
        const calm_store_window *from = &row->windows[w];
        out->windows[w] =
            (calm_eval_window){(size_t)from->tokens, from->nll, sum_of(from->kl), sum_of(from->top1), 0};
    }
    return CALM_OK;
}

/* Does the same for an encoder, where each window is a sentence. */
static calm_status read_embeddings(calm_ctx *ctx, const calm_store_evaluation *row, calm_embedding_result *out)
{
    *out = (calm_embedding_result){.n = row->n_windows, .pairs = (size_t)row->pairs, .error = row->error,
                                   .cosine = row->cosine, .cosine_min = row->cosine_min, .spearman = row->spearman};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->each, row->n_windows));
    for (size_t w = 0; w < row->n_windows; w++)
        out->each[w] = (calm_embedding_distance){row->windows[w].error, row->windows[w].cosine};
    return CALM_OK;
}

calm_status calm_run_find_evaluation(calm_ctx *ctx, const calm_run *p, const char *subject_key,
                                     const calm_windows *windows, calm_measure *out, int64_t *id)
{
    char key[CALM_SHA256_HEX];
    calm_store_evaluation row;
    /* By content: another run may have measured the same plan on the same windows. */
    CALM_TRY(calm_run_evaluation_key(ctx, p, subject_key, windows, key));
    CALM_TRY(calm_store_evaluation_find(ctx, p->in.store, key, &row, id));
    /* If windows are missing, paired comparisons are impossible: the plan is measured again. */
    if (*id == 0 || row.n_windows != windows->n) {
        *id = 0;
        return CALM_OK;
    }
    out->kind = row.kind;
    return row.kind == CALM_STORE_EMBEDDINGS ? read_embeddings(ctx, &row, &out->embeddings)
                                             : read_predictions(ctx, &row, &out->predictions);
}

/* Converts a result to a row of the store and its windows [row->n_windows]. */
static void write_predictions(const calm_eval_result *from, calm_store_evaluation *row, calm_store_window *windows)
{
    row->tokens = (int64_t)from->tokens;
    row->nll = from->nll;
    row->ppl = from->ppl;
    row->kl = from->kl;
    row->top1 = from->top1;
    for (size_t w = 0; w < row->n_windows; w++) {
        const calm_eval_window *window = &from->windows[w];
        /* Without a reference the sums are 0; the store gets NULL, because 0 would mean agreement. */
        windows[w] = (calm_store_window){.tokens = (int64_t)window->tokens, .nll = window->nll,
                                         .kl = isnan(from->kl) ? NAN : window->kl,
                                         .top1 = isnan(from->kl) ? NAN : window->top1};
    }
}

static void write_embeddings(const calm_embedding_result *from, calm_store_evaluation *row, calm_store_window *windows)
{
    row->pairs = (int64_t)from->pairs;
    row->error = from->error;
    row->cosine = from->cosine;
    row->cosine_min = from->cosine_min;
    row->spearman = from->spearman;
    for (size_t w = 0; w < row->n_windows; w++)
        windows[w] = (calm_store_window){.error = from->each[w].error, .cosine = from->each[w].cosine};
}

calm_status calm_run_put_evaluation(calm_ctx *ctx, const calm_run *p, const char *subject_key, const char *subject,
                                    const char *text_name, const calm_windows *windows, const calm_measure *measure,
                                    int64_t *id)
{
    char key[CALM_SHA256_HEX];
    calm_store_window *rows;
    CALM_TRY(calm_run_evaluation_key(ctx, p, subject_key, windows, key));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows, windows->n ? windows->n : 1));
    calm_store_evaluation row = {.key = key, .model_id = p->result.model_id, .subject = subject,
                                 .text_name = text_name, .window_tokens = (int64_t)windows->longest,
                                 .kind = measure->kind, .windows = rows, .n_windows = windows->n};
    if (measure->kind == CALM_STORE_EMBEDDINGS)
        write_embeddings(&measure->embeddings, &row, rows);
    else
        write_predictions(&measure->predictions, &row, rows);
    return calm_store_evaluation_put(ctx, p->in.store, &row, id);
}
