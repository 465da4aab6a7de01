/* Evaluations: found in the store by key, or put there. */
#include <math.h>

#include "ptq/run/run_impl.h"
#include "ptq/plan/key.h"

calm_status calm_run_find_evaluation(calm_ctx *ctx, const calm_run *p, const char *subject_key,
                                          const calm_windows *windows, calm_eval_result *out, int64_t *id)
{
    char key[CALM_SHA256_HEX];
    calm_store_evaluation row;
    CALM_TRY(calm_key_evaluation(ctx, p->model_key, subject_key, windows, key));
    CALM_TRY(calm_store_evaluation_find(ctx, p->in.store, key, &row, id));
    if (*id == 0 || row.n_windows != windows->n) {
        *id = 0;
        return CALM_OK;
    }
    *out = (calm_eval_result){
        .tokens = (size_t)row.tokens, .nll = row.nll, .ppl = row.ppl, .kl = row.kl, .top1 = row.top1,
        .top5 = NAN};    /* which the store does not have */
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->windows, windows->n));
    for (size_t w = 0; w < windows->n; w++) {
        const calm_store_window *from = &row.windows[w];
        out->windows[w] = (calm_eval_window){(size_t)from->tokens, from->nll, isnan(from->kl) ? 0 : from->kl,
                                             isnan(from->top1) ? 0 : from->top1, 0};
    }
    return CALM_OK;
}

calm_status calm_run_put_evaluation(calm_ctx *ctx, const calm_run *p, const char *subject_key,
                                         const char *subject, const char *text_name, const calm_windows *windows,
                                         const calm_eval_result *result, int64_t *id)
{
    char key[CALM_SHA256_HEX];
    calm_store_window *rows;
    CALM_TRY(calm_key_evaluation(ctx, p->model_key, subject_key, windows, key));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows, windows->n ? windows->n : 1));
    for (size_t w = 0; w < windows->n; w++) {
        const calm_eval_window *from = &result->windows[w];
        rows[w] = (calm_store_window){(int64_t)from->tokens, from->nll, isnan(result->kl) ? NAN : from->kl,
                                      isnan(result->kl) ? NAN : from->top1};
    }
    const calm_store_evaluation row = {.key = key,
                                       .model_id = p->result.model_id,
                                       .subject = subject,
                                       .text_name = text_name,
                                       .window_tokens = (int64_t)windows->longest,
                                       .tokens = (int64_t)result->tokens,
                                       .nll = result->nll,
                                       .ppl = result->ppl,
                                       .kl = result->kl,
                                       .top1 = result->top1,
                                       .windows = rows,
                                       .n_windows = windows->n};
    return calm_store_evaluation_put(ctx, p->in.store, &row, id);
}

calm_status calm_encoding_find(calm_ctx *ctx, calm_store *store, int64_t id, calm_embedding_result *out)
{
    calm_store_encoding row;
    bool found;
    CALM_TRY(calm_store_encoding_find(ctx, store, id, &row, &found));
    *out = (calm_embedding_result){.n = (size_t)row.sentences,
                                   .pairs = (size_t)row.pairs,
                                   .error = row.error,
                                   .cosine = row.cosine,
                                   .cosine_min = row.cosine_min,
                                   .spearman = row.spearman};
    return found ? CALM_OK : calm_fail(ctx, CALM_EFORMAT, "%s: evaluation %lld does not have the figures of an encoder",
                                       calm_store_path(store), (long long)id);
}
