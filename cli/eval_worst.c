/* The positions where a model differs most from its reference, with the text around them. */
#include "cli/eval.h"
#include "ptq/data/excerpt.h"

/* Largest number of context tokens before a position. */
#define BEFORE ((size_t)8)

static calm_status add_position(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                const calm_eval_position *at, calm_table *table)
{
    const size_t n = at->token < BEFORE ? at->token : BEFORE;
    const uint32_t *ids = windows->ids + windows->begin[at->window] + at->token;
    char *before, *follows, *reference_best, *best;
    CALM_TRY(calm_excerpt(ctx, tokenizer, ids - n, n, &before));
    CALM_TRY(calm_excerpt(ctx, tokenizer, ids, 1, &follows));
    CALM_TRY(calm_excerpt(ctx, tokenizer, &at->reference_best, 1, &reference_best));
    CALM_TRY(calm_excerpt(ctx, tokenizer, &at->best, 1, &best));
    CALM_CELLS(table, CALM_INT(at->window), CALM_INT(at->token), CALM_FIXED(at->kl, 4),
               CALM_FIXED(at->reference_nll, 4), CALM_FIXED(at->nll, 4), CALM_TEXT(before), CALM_TEXT(follows),
               CALM_TEXT(reference_best), CALM_TEXT(best));
    return CALM_OK;
}

calm_status calm_eval_worst_table(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                  const calm_eval_worst *worst, calm_table *table)
{
    /* "context" is aligned to the right: it ends where "next" begins. */
    calm_table_columns(table, "#window|#position|#kl|#reference_nll|#nll|#context|next|reference_predicted|predicted");
    for (size_t i = 0; i < worst->n; i++) {
        const calm_arena_mark mark = calm_arena_save(ctx->out);
        CALM_TRY(add_position(ctx, tokenizer, windows, &worst->each[i], table));
        calm_arena_rewind(ctx->out, mark);    /* the table has copies */
    }
    return CALM_OK;
}
