/* Measures models: decoders by their predictions, encoders by their sentence embeddings. */
#include <assert.h>
#include <string.h>

#include "ptq/measure/measure.h"

/* Encodes subjects [n], the first of them the float model.  On one rank they run together, so that a probe starts from
 * the float model's hidden states; several ranks divide the sentences of each subject. */
static calm_status encode(calm_ctx *ctx, const calm_run *p, const calm_subject *subjects, size_t n,
                          const calm_windows *windows, calm_tick_fn *fn, void *user, calm_embeddings *out)
{
    calm_shared_tick shared = {fn, user, 0, n * windows->n};
    if (!p->several)
        return calm_encode_all(ctx, subjects, n, windows, fn, user, out);
    for (size_t i = 0; i < n; i++, shared.before += windows->n)
        CALM_TRY(calm_division_encode(ctx, p, &subjects[i], windows, calm_tick_shared, &shared, &out[i]));
    return CALM_OK;
}

static calm_status measure_embeddings(calm_ctx *ctx, const calm_run *p, calm_measure *reference_measure,
                                      const calm_subject *subjects, size_t n, calm_measure *measures,
                                      const calm_windows *windows, calm_tick_fn *fn, void *user)
{
    /* The float model's embeddings are computed once for all subjects. */
    calm_subject all[CALM_SUBJECTS_AT_ONCE + 1] = {{.model = p->in.model}};
    calm_embeddings found[CALM_SUBJECTS_AT_ONCE + 1];
    memcpy(all + 1, subjects, n * sizeof *subjects);
    CALM_TRY(encode(ctx, p, all, n + 1, windows, fn, user, found));
    if (reference_measure) {
        reference_measure->kind = CALM_STORE_EMBEDDINGS;
        /* All distances are 0, but the row must be complete: the store treats the float model as any other. */
        CALM_TRY(calm_embedding_compare(ctx, &found[0], &found[0], &reference_measure->embeddings));
    }
    for (size_t i = 0; i < n; i++) {
        measures[i].kind = CALM_STORE_EMBEDDINGS;
        CALM_TRY(calm_embedding_compare(ctx, &found[0], &found[i + 1], &measures[i].embeddings));
    }
    return CALM_OK;
}

calm_status calm_run_measure(calm_ctx *ctx, const calm_run *p, calm_measure *reference_measure,
                             const calm_subject *subjects, size_t n, calm_measure *measures,
                             const calm_windows *windows, calm_tick_fn *fn, void *user)
{
    /* calm_evaluate needs its results as one array; measures are larger. */
    calm_eval_result of_reference, results[CALM_SUBJECTS_AT_ONCE];
    assert(n <= CALM_SUBJECTS_AT_ONCE);
    CALM_SCOPED_INTS(ctx, calm_run_ints(p));
    /* An encoder predicts no next token, and a decoder has no meaningful sentence embedding. */
    if (calm_inputs_encode(&p->in))
        return measure_embeddings(ctx, p, reference_measure, subjects, n, measures, windows, fn, user);
    CALM_TRY(calm_division_evaluate(ctx, p, reference_measure ? &of_reference : NULL, subjects, n, results, windows, fn,
                                    user, 0, NULL));
    for (size_t i = 0; i < n; i++)
        measures[i] = (calm_measure){CALM_STORE_PREDICTIONS, .predictions = results[i]};
    if (reference_measure)
        *reference_measure = (calm_measure){CALM_STORE_PREDICTIONS, .predictions = of_reference};
    return CALM_OK;
}
