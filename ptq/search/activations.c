/* Activation statistics of a run, into the store. */

#include "ptq/data/excerpt.h"
#include "ptq/search/search_impl.h"

/* The most peaks that are stored for an expert's hook point: there are many such points. */
#define EXPERT_PEAKS 10

/* Tokens of context before and after a peak's token. */
#define CONTEXT_BEFORE ((size_t)8)
#define CONTEXT_AFTER  ((size_t)4)

calm_status calm_activations_kept(calm_ctx *ctx, const calm_run *p, long block, bool *out)
{
    /* A block's output is stored after its other hook points, so the output shows that all are stored.  Stores of
     * earlier versions have the output without the router's logits. */
    static const calm_hook outside[] = {CALM_HOOK_EMBED, CALM_HOOK_FINAL_NORM},
                           inside[] = {CALM_HOOK_BLOCK_OUT, CALM_HOOK_ROUTER_LOGITS};
    const calm_hook *hooks = block < 0 ? outside : inside;
    const bool one = block >= 0 && !calm_model_config(p->in.model)->moe.sparse[block];
    *out = true;
    for (size_t i = 0; i < (one ? 1 : 2) && *out; i++) {
        char *name;
        CALM_TRY(calm_run_hook_name(ctx, p, block, CALM_NO_EXPERT, hooks[i], &name));
        CALM_TRY(
            calm_store_activation_exists(ctx, p->in.store, p->result.model_id, p->result.calibration_id, name, out));
    }
    return CALM_OK;
}

/* Stores the words around a peak's token, once per token: many peaks are at the same few tokens. */
static calm_status keep_context(calm_ctx *ctx, const calm_run *p, const calm_actstat_peak *peak)
{
    const calm_windows *windows = &p->in.calib;
    const int64_t calibration = p->result.calibration_id;
    const size_t begin = windows->begin[peak->window], at = begin + peak->token;
    const size_t before = calm_size_min(peak->token, CONTEXT_BEFORE);
    const size_t after = calm_size_min(windows->begin[peak->window + 1] - at - 1, CONTEXT_AFTER);
    char *texts[2];
    bool known;
    CALM_TRY(calm_store_context_exists(ctx, p->in.store, calibration, peak->window, peak->token, &known));
    if (known || !p->in.tokenizer)
        return CALM_OK;
    const calm_arena_mark mark = calm_arena_save(ctx->out);
    CALM_TRY(calm_excerpt(ctx, p->in.tokenizer, windows->ids + at - before, before, &texts[0]));
    CALM_TRY(calm_excerpt(ctx, p->in.tokenizer, windows->ids + at + 1, after, &texts[1]));
    CALM_TRY(calm_store_context_put(ctx, p->in.store, calibration, peak->window, peak->token, texts[0], texts[1]));
    calm_arena_rewind(ctx->out, mark);
    return CALM_OK;
}

static calm_status keep(calm_ctx *ctx, const calm_run *p, int64_t calibration, long block, long expert, calm_hook hook,
                        const calm_actstat_acc *acc)
{
    calm_actstat_summary s;
    calm_store_peak *peaks;
    char *name;
    /* A block of a mixture has hundreds of hook points: only one point's peaks are in memory. */
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_run_hook_name(ctx, p, block, expert, hook, &name));
    calm_actstat_summarize(acc, &s);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, peaks, CALM_ACT_TOP));
    const size_t n_peaks = expert >= 0 ? calm_size_min(acc->n_top, EXPERT_PEAKS) : acc->n_top;
    for (size_t i = 0; i < n_peaks; i++) {
        const calm_actstat_peak *peak = &acc->top[i];
        /* The token of a maximum is informative: often it is the first token or a full stop. */
        const uint32_t id = p->in.calib.ids[p->in.calib.begin[peak->window] + peak->token];
        peaks[i] = (calm_store_peak){(double)peak->value, peak->window, peak->token, peak->channel,
                                     /* Without a tokenizer (windows of token ids) the text is unknown. */
                                     p->in.tokenizer ? calm_tokenizer_token(p->in.tokenizer, id) : NULL};
        CALM_TRY(keep_context(ctx, p, peak));
    }
    /* Member by member, because the store must not include ptq/calib.  Quantiles are in the order of
     * CALM_ACT_QUANTILES. */
    const calm_store_activation row = {
        .model_id = p->result.model_id, .calibration_id = calibration, .hook = name,
        .point = calm_hook_name(hook), .block = block, .channels = (int64_t)s.channels, .count = (int64_t)s.count,
        .zeros = (int64_t)s.zeros, .n_tokens = (int64_t)s.n_tokens, .n_massive = (int64_t)s.n_massive, .mean = s.mean,
        .std = s.std, .mean_abs = s.mean_abs, .rms = s.rms, .min = s.min, .max = s.max, .max_abs = s.max_abs,
        .q25 = s.quantile[0], .q50 = s.quantile[1], .q75 = s.quantile[2], .q90 = s.quantile[3], .q99 = s.quantile[4],
        .q999 = s.quantile[5], .peak_median = s.peak_median, .ratio_median = s.ratio_median, .ratio_max = s.ratio_max,
        .ratio_mean = s.ratio_mean, .ratio_std = s.ratio_std, .crest_median = s.crest_median,
        .crest_max = s.crest_max, .histogram = acc->histogram, .n_bins = CALM_ACT_BINS, .peaks = peaks,
        .n_peaks = n_peaks};
    return calm_store_activation_put(ctx, p->in.store, &row);
}

calm_status calm_activation_keep(calm_ctx *ctx, const calm_run *p, long block, long expert, calm_hook hook,
                                 const calm_actstat_acc *acc, calm_actstat_acc *const *of_text)
{
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    CALM_TRY(keep(ctx, p, p->result.calibration_id, block, expert, hook, acc));
    for (size_t i = 0; of_text && i < p->in.calib.n_texts; i++)
        CALM_TRY(keep(ctx, p, p->text_ids[i], block, expert, hook, of_text[i]));
    return calm_store_commit(ctx, p->in.store);
}

calm_status calm_activations_keep(calm_ctx *ctx, const calm_run *p, size_t block, const calm_capture *capture)
{
    /* One transaction per sublayer: a killed run leaves either none or all of its hook points. */
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        if (capture->activations[hook])
            CALM_TRY(calm_activation_keep(ctx, p, (long)block, capture->expert, hook, capture->activations[hook],
                                          capture->of_text[hook]));
    return calm_store_commit(ctx, p->in.store);
}
