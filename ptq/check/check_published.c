/* Check: weights that were published as small floats with scales, which calm reads as floats. */
#include "ptq/base/threads.h"
#include "ptq/check/check_state.h"
#include "ptq/weights/published.h"

#define PIECE ((size_t)1 << 20) /* elements that one task converts */

/* Turns a reader's failure into a finding; its message has key or tensor, found and expected. */
static calm_status say_failure(calm_checking *c, const char *where)
{
    const calm_status status = c->ctx->status;
    c->unread = true;
    return calm_check_add_failure(c, status == CALM_EUNSUPPORTED ? CALM_CHECK_RULE_METHOD_UNCHECKED
                                     : where                     ? CALM_CHECK_RULE_CONFIG_VALUE
                                     : status == CALM_ENOTFOUND  ? CALM_CHECK_RULE_PART_MISSING
                                                                 : CALM_CHECK_RULE_PART_SHAPE,
                                  where ? where : c->path);
}

calm_status calm_check_published(calm_checking *c)
{
    calm_published from;
    char *text;
    if (!c->config)
        return CALM_OK;
    if (calm_published_read(c->ctx, c->config_path, c->config, false, &from) != CALM_OK)
        return say_failure(c, "config.json");
    /* Those of compressed-tensors have separate checks. */
    if (from.kind != CALM_PUBLISHED_FP8 && from.kind != CALM_PUBLISHED_MXFP4)
        return CALM_OK;
    CALM_TRY(calm_strf(c->ctx, c->ctx->out, &text, "%s", from.text));
    c->published = text;
    return calm_published_widen(c->ctx, &from, CALM_BF16, c->set, NULL) == CALM_OK ? CALM_OK : say_failure(c, NULL);
}

/* ---- values ---- */

/* Rows of a tensor that one task converts. */
typedef struct piece {
    const calm_tensor *tensor;
    size_t first, n;
    bool bad;
} piece;

typedef struct pieces {
    piece *at;
    size_t n;
} pieces;

static calm_status widen_piece(calm_ctx *ctx, const piece *p)
{
    float *values;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, p->n));
    return calm_tensor_part_to_f32(ctx, p->tensor, p->first, p->n, values);
}

static calm_status look_at_piece(calm_ctx *ctx, size_t index, void *user)
{
    pieces *all = user;
    const calm_status status = widen_piece(ctx, &all->at[index]);
    all->at[index].bad = status == CALM_ENUMERIC;
    if (!all->at[index].bad)
        return status;
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

/* Returns true for blocks or codes; false for floats in another order, which are a part of a tensor of all experts. */
static bool is_coded(const calm_tensor *tensor)
{
    return tensor->source && (!tensor->whole || tensor->whole->source);
}

static calm_status list_pieces(calm_checking *c, pieces *out)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members; i++)
        n += c->members[i].tensor->source ? c->members[i].tensor->n_elements / PIECE + 1 : 0;
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, out->at, n));
    for (size_t i = 0; i < c->n_members; i++) {
        const calm_tensor *tensor = c->members[i].tensor;
        for (size_t at = 0; tensor->source && at < tensor->n_elements; at += PIECE)
            out->at[out->n++] = (piece){tensor, at, calm_size_min(PIECE, tensor->n_elements - at), false};
    }
    return CALM_OK;
}

calm_status calm_check_sources(calm_checking *c)
{
    pieces all = {0};
    CALM_SCOPED_SCRATCH(c->ctx);
    for (size_t i = 0; i < c->n_members; i++)
        c->report->n_quantized += is_coded(c->members[i].tensor);
    CALM_TRY(list_pieces(c, &all));
    CALM_TRY(calm_parallel_for(c->ctx, all.n, look_at_piece, &all));
    for (size_t i = 0; i < c->n_members; i++)
        calm_safetensors_release(c->set, c->members[i].tensor);
    /* One finding per tensor: the first fault, in the reader's words. */
    for (size_t i = 0; i < all.n; i++)
        if (all.at[i].bad && (i == 0 || !all.at[i - 1].bad || all.at[i - 1].tensor != all.at[i].tensor)
            && widen_piece(c->ctx, &all.at[i]) != CALM_OK)
            CALM_TRY(calm_check_add_failure(c, CALM_CHECK_RULE_FLOAT_NONFINITE, all.at[i].tensor->name));
    return CALM_OK;
}
