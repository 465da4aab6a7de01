/* Measures encoders on several ranks: each embeds a part of the sentences.
 *
 * Ranks send embeddings instead of distances, because cosines between sentences of different parts are ranked.  Rank 0
 * compares all embeddings, as on one machine. */
#include <string.h>

#include "ptq/cluster/wire.h"
#include "ptq/measure/measure.h"
#include "ptq/model/pooling.h"

/* The parts [n] that have sentences, in order. */
typedef struct parts {
    size_t n;
    int *rank;
    calm_windows *windows;
    size_t *first;       /* number of a part's first sentence */
} parts;

calm_status calm_rank_encode(calm_ctx *ctx, calm_run *p, calm_rank_message *in, calm_text *out)
{
    calm_windows windows;
    calm_subject *subject;
    calm_embeddings found;
    uint64_t first;
    size_t n;
    CALM_SCOPED_MODEL(written);
    calm_rank_message_read(in, &first, sizeof first);
    CALM_TRY(calm_rank_read_windows(ctx, in, &windows));
    CALM_TRY(calm_rank_read_subjects(ctx, p, in, &n, &subject, &written));
    if (in->bad || n != 1)
        return calm_fail(ctx, CALM_EFORMAT, "what rank 0 asks for are no sentences of this run");
    calm_cluster_place(p->cluster, "the embeddings of sentences %zu to %zu", (size_t)first,
                       (size_t)first + windows.n - 1);
    CALM_SCOPED_INTS(ctx, calm_run_ints(p));
    CALM_TRY(calm_encode(ctx, subject, &windows, NULL, NULL, &found));
    calm_rank_message_put(out, found.x, found.n * found.width * sizeof *found.x);
    return CALM_OK;
}

/* Divides the sentences, and asks the other ranks for their parts. */
static calm_status ask(calm_ctx *ctx, const calm_run *p, const calm_subject *subject, const calm_windows *windows,
                       parts *out)
{
    const size_t ranks = (size_t)calm_cluster_ranks(p->cluster);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->rank, ranks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->windows, ranks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->first, ranks));
    for (size_t r = 0; r < ranks; r++) {
        CALM_SCOPED_TEXT(message);
        calm_windows *part = &out->windows[out->n];
        const uint64_t kind = CALM_RANK_EMBEDDINGS;
        CALM_TRY(calm_encode_part(ctx, calm_model_config(p->in.model), windows, r, ranks, part, &out->first[out->n]));
        if (!part->n)
            continue;
        const uint64_t first = out->first[out->n];
        out->rank[out->n++] = (int)r;
        if (r == 0)
            continue;
        calm_rank_message_put(&message, &kind, sizeof kind);
        calm_rank_message_put(&message, &first, sizeof first);
        calm_rank_put_windows(&message, part);
        calm_rank_put_subjects(p, subject, 1, &message);
        CALM_TRY(calm_text_check(ctx, &message));
        CALM_TRY(calm_cluster_ask(ctx, p->cluster, (int)r, message.data, message.length));
    }
    return CALM_OK;
}

/* Copies the embeddings of one part to those of all. */
static calm_status take(calm_ctx *ctx, const calm_run *p, const calm_subject *subject, const parts *of, size_t part,
                        calm_rank_progress *ticks, calm_embeddings *all)
{
    const size_t n = of->windows[part].n, values = n * all->width;
    double *into = all->x + of->first[part] * all->width;
    char *bytes;
    size_t n_bytes;
    CALM_SCOPED_ARENA(own);
    CALM_SCOPED_OUT(ctx, &own);
    CALM_SCOPED_SCRATCH(ctx);
    if (of->rank[part] == 0) {
        calm_embeddings found;
        ticks->own = n;
        CALM_TRY(calm_encode(ctx, subject, &of->windows[part], calm_rank_tick, ticks, &found));
        memcpy(into, found.x, values * sizeof *into);
        return CALM_OK;
    }
    CALM_TRY(calm_cluster_answer(ctx, p->cluster, of->rank[part], &bytes, &n_bytes));
    if (n_bytes != values * sizeof *into)
        return calm_fail(ctx, CALM_EFORMAT, "rank %d answers with what are no embeddings", of->rank[part]);
    memcpy(into, bytes, n_bytes);
    return CALM_OK;
}

calm_status calm_division_encode(calm_ctx *ctx, const calm_run *p, const calm_subject *subject,
                                 const calm_windows *windows, calm_tick_fn *tick_fn, void *tick_user,
                                 calm_embeddings *out)
{
    const calm_config *config = calm_model_config(p->in.model);
    const size_t width = calm_pooling_width(config);
    calm_rank_progress ticks = {tick_fn, tick_user, 0, windows->n};
    parts of = {.n = 0};
    if (!calm_rank_may_measure(p, subject, 1, windows) || windows->n < 2 ||
        windows->n > CALM_FRAME_MAX / sizeof(double) / width)
        return calm_encode(ctx, subject, windows, tick_fn, tick_user, out);
    *out = (calm_embeddings){.n = windows->n, .width = width, .unit = calm_pooling_is_unit(config)};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->x, out->n * out->width));
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    calm_rank_note(ctx, p);
    CALM_TRY(ask(ctx, p, subject, windows, &of));
    for (size_t i = 0; i < of.n; i++)
        CALM_TRY(take(ctx, p, subject, &of, i, &ticks, out));
    return CALM_OK;
}
