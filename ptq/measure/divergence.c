/* The tokens where the result differs most from the float model, measured and stored with its final evaluation. */
#include "ptq/data/excerpt.h"
#include "ptq/eval/detail.h"
#include "ptq/measure/measure.h"

/* The most tokens of context that are stored before such a token. */
#define BEFORE ((size_t)16)

calm_status calm_run_measure_test(calm_ctx *ctx, const calm_run *p, calm_measure *reference_measure,
                                  const calm_subject *subject, calm_measure *measure, calm_tick_fn *fn, void *user,
                                  calm_eval_worst *worst)
{
    *worst = (calm_eval_worst){0};
    if (calm_inputs_encode(&p->in))
        return calm_run_measure(ctx, p, reference_measure, subject, 1, measure, &p->eval, fn, user);
    reference_measure->kind = measure->kind = CALM_STORE_PREDICTIONS;
    CALM_SCOPED_INTS(ctx, calm_run_ints(p));
    return calm_division_evaluate(ctx, p, &reference_measure->predictions, subject, 1, &measure->predictions, &p->eval,
                                  fn, user, CALM_RUN_WORST, worst);
}

static calm_status write_token(calm_ctx *ctx, const calm_run *p, const calm_eval_position *at, calm_store_token *out)
{
    const size_t before = calm_size_min(at->token, BEFORE);
    const uint32_t *ids = p->eval.ids + p->eval.begin[at->window] + at->token;
    char *texts[4];
    CALM_TRY(calm_excerpt(ctx, p->in.tokenizer, ids - before, before, &texts[0]));
    CALM_TRY(calm_excerpt(ctx, p->in.tokenizer, ids, 1, &texts[1]));
    CALM_TRY(calm_excerpt(ctx, p->in.tokenizer, &at->best, 1, &texts[2]));
    CALM_TRY(calm_excerpt(ctx, p->in.tokenizer, &at->reference_best, 1, &texts[3]));
    *out = (calm_store_token){(int64_t)at->window, (int64_t)at->token, at->kl, at->nll, at->reference_nll,
                              texts[0], texts[1], texts[2], texts[3]};
    return CALM_OK;
}

calm_status calm_run_put_divergence(calm_ctx *ctx, const calm_run *p, const calm_eval_worst *worst,
                                    int64_t evaluation_id)
{
    calm_eval_detail detail;
    calm_store_quantile quantiles[CALM_N_EVAL_QUANTILES];
    calm_store_range *ranges;
    calm_store_token *tokens;
    /* An encoder predicts no tokens; a text may be too short to predict any. */
    if (!worst->n_kl)
        return CALM_OK;
    const calm_arena_mark mark = calm_arena_save(ctx->out);
    CALM_TRY(calm_evaluate_detail(ctx, &p->eval, worst->kl, &detail));
    CALM_TRY(CALM_NEW(ctx, ctx->out, ranges, detail.n_bins));
    CALM_TRY(CALM_NEW(ctx, ctx->out, tokens, worst->n));
    for (size_t q = 0; q < CALM_N_EVAL_QUANTILES; q++)
        quantiles[q] = (calm_store_quantile){calm_eval_shares[q], detail.quantile[q]};
    for (size_t b = 0; b < detail.n_bins; b++) {
        const calm_eval_bin *bin = &detail.bins[b];
        ranges[b] = (calm_store_range){(int64_t)bin->begin, (int64_t)bin->end - 1, (int64_t)bin->tokens, bin->kl};
    }
    for (size_t i = 0; i < worst->n; i++)
        CALM_TRY(write_token(ctx, p, &worst->each[i], &tokens[i]));
    CALM_TRY(calm_store_divergence_put(ctx, p->in.store, evaluation_id,
                                       &(calm_store_divergence){quantiles, ranges, tokens, CALM_N_EVAL_QUANTILES,
                                                                detail.n_bins, worst->n}));
    calm_arena_rewind(ctx->out, mark);
    return CALM_OK;
}
