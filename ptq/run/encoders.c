/* Evaluations of a run: of language models by their predictions, of encoders by their sentence embeddings.
 *
 * What the guard compares is one loss per window, its "kl": the divergence from the float model, or 1 - cosine to the
 * float model's embedding of the sentence that the window is. */
#include <math.h>

#include "ptq/run/run_impl.h"

/* An encoder's distances in the form that guard and store take. */
static calm_status as_result(calm_ctx *ctx, const calm_embedding_result *from, calm_eval_result *out)
{
    *out = (calm_eval_result){.tokens = from->n, .nll = from->error, .ppl = exp(from->error), .kl = 1 - from->cosine,
                              .top1 = from->spearman, .top5 = NAN};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->windows, from->n));
    for (size_t w = 0; w < from->n; w++)
        out->windows[w] = (calm_eval_window){1, from->each[w].error, 1 - from->each[w].cosine, 0, 0};
    return CALM_OK;
}

/* Ticks of several subjects as those of one evaluation. */
typedef struct shared_tick {
    calm_tick_fn *fn;
    void *user;
    size_t before, total;
} shared_tick;

static void tick(void *user, size_t done, size_t total)
{
    const shared_tick *shared = user;
    (void)total;
    if (shared->fn)
        shared->fn(shared->user, shared->before + done, shared->total);
}

calm_status calm_run_measure(calm_ctx *ctx, const calm_run *p, calm_eval_result *reference_result,
                                  const calm_subject *subjects, size_t n, calm_eval_result *results,
                                  calm_embedding_result *distances, const calm_windows *windows, calm_tick_fn *fn,
                                  void *user)
{
    const calm_subject reference = {.model = p->in.model};
    shared_tick shared = {fn, user, 0, windows->n * (n + 1)};
    calm_embeddings float_embeddings, found;
    calm_embedding_result distance;
    if (!calm_inputs_encode(&p->in))
        return calm_evaluate(ctx, &reference, reference_result, subjects, n, results, windows, fn, user);
    CALM_TRY(calm_encode(ctx, &reference, windows, tick, &shared, &float_embeddings));
    if (reference_result) {
        CALM_TRY(calm_embedding_compare(ctx, &float_embeddings, &float_embeddings, &distance));
        CALM_TRY(as_result(ctx, &distance, reference_result));
    }
    for (size_t i = 0; i < n; i++) {
        shared.before += windows->n;
        CALM_TRY(calm_encode(ctx, &subjects[i], windows, tick, &shared, &found));
        CALM_TRY(calm_embedding_compare(ctx, &float_embeddings, &found, &distance));
        CALM_TRY(as_result(ctx, &distance, &results[i]));
        if (distances)
            distances[i] = distance;
    }
    return CALM_OK;
}
