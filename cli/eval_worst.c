/* The positions where a model differs most from its reference, with the text around them. */
#include <stdio.h>

#include "cli/eval.h"
#include "cli/print.h"

/* Tokens of the window that are shown before the one that follows. */
#define BEFORE ((size_t)8)

/* Text of ids [n], in ctx->out, or the ids themselves.  A model may put an id first for which the tokenizer has no
 * token: vocabularies are padded. */
static calm_status show(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids, size_t n, char **out)
{
    size_t n_bytes;
    if (tokenizer && (n > 1 || calm_tokenizer_token(tokenizer, ids[0])[0]))
        return calm_tokenizer_decode(ctx, tokenizer, ids, n, true, out, &n_bytes);
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%s", ""));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_strf(ctx, ctx->out, out, "%s%s%u", *out, i ? " " : "", ids[i]));
    return CALM_OK;
}

static calm_status add_position(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                const calm_eval_position *at, calm_table *table)
{
    const size_t n = at->token < BEFORE ? at->token : BEFORE;
    const uint32_t *ids = windows->ids + windows->begin[at->window] + at->token;
    char *before, *follows, *reference_best, *best;
    CALM_TRY(show(ctx, tokenizer, ids - n, n, &before));
    CALM_TRY(show(ctx, tokenizer, ids, 1, &follows));
    CALM_TRY(show(ctx, tokenizer, &at->reference_best, 1, &reference_best));
    CALM_TRY(show(ctx, tokenizer, &at->best, 1, &best));
    calm_table_int(table, (int64_t)at->window);
    calm_table_int(table, (int64_t)at->token);
    calm_table_fixed(table, at->kl, 4);
    calm_table_fixed(table, at->reference_nll, 4);
    calm_table_fixed(table, at->nll, 4);
    calm_table_text(table, before);
    calm_table_text(table, follows);
    calm_table_text(table, reference_best);
    calm_table_text(table, best);
    return CALM_OK;
}

/* A table to be cleared, whatever comes of it. */
static calm_status fill(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                        const calm_eval_worst *worst, calm_table *table)
{
    static const char *const numbers[] = {"window", "token", "kl", "reference_nll", "nll", "before"};
    static const char *const texts[] = {"follows", "reference_best", "best"};
    calm_table_init(table);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)    /* "before" ends where "follows" begins */
        calm_table_column(table, numbers[i], CALM_ALIGN_RIGHT);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        calm_table_column(table, texts[i], CALM_ALIGN_LEFT);
    for (size_t i = 0; i < worst->n; i++) {
        const calm_arena_mark mark = calm_arena_save(ctx->out);
        CALM_TRY(add_position(ctx, tokenizer, windows, &worst->each[i], table));
        calm_arena_rewind(ctx->out, mark);    /* the table has copies */
    }
    return CALM_OK;
}

calm_status calm_eval_print_worst(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                  const calm_eval_worst *worst)
{
    calm_table table;
    calm_status status = fill(ctx, tokenizer, windows, worst, &table);
    if (status == CALM_OK) {
        printf("\n");
        status = calm_print_table(ctx, &table, stdout);
    }
    calm_table_clear(&table);
    return status;
}

calm_status calm_eval_worst_json(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                 const calm_eval_worst *worst, calm_json **out)
{
    calm_table table;
    calm_status status = fill(ctx, tokenizer, windows, worst, &table);
    if (status == CALM_OK)
        status = calm_rows_json(ctx, &table, out);
    calm_table_clear(&table);
    return status;
}
