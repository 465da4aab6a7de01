/* Measures decoders on several ranks: each runs the models over a part of the windows.
 *
 * Rank 0 asks the others for their parts, measures one itself, and joins all in the order of windows. */
#include "ptq/measure/measure.h"

/* The head of a question; windows and subjects follow. */
typedef struct question {
    uint64_t first, most;       /* number of the first window; `most` of calm_evaluate_worst */
    bool worst, reference;      /* which results are wanted */
} question;

/* The head of an answer; each model's windows, the worst positions and all divergences follow. */
typedef struct answer {
    uint64_t n_worst, n_kl;
} answer;

/* The arguments of calm_division_evaluate. */
typedef struct evaluation {
    calm_eval_result *reference_result;
    const calm_subject *subjects;
    size_t n;
    calm_eval_result *results;
    const calm_windows *windows;
    calm_tick_fn *tick;
    void *tick_user;
    size_t most;
    calm_eval_worst *worst;
} evaluation;

/* Evaluates on this rank alone. */
static calm_status evaluate(calm_ctx *ctx, const calm_run *p, const evaluation *e)
{
    calm_subject reference = {.model = p->in.model};
    if (p->guard)
        p->guard->rows(p, NULL, e->windows, &reference);
    return e->worst ? calm_evaluate_worst(ctx, &reference, e->reference_result, e->subjects, e->results, e->windows,
                                          e->most, e->tick, e->tick_user, e->worst)
                    : calm_evaluate(ctx, &reference, e->reference_result, e->subjects, e->n, e->results, e->windows,
                                    e->tick, e->tick_user);
}

/* ---- questions ---- */

/* Returns true if the evaluation is large enough to divide, and if the other ranks can build its subjects. */
static bool divides(const calm_run *p, const evaluation *e)
{
    const calm_windows *w = e->windows;
    return calm_rank_may_measure(p, e->subjects, e->n, w) &&
           calm_evaluation_batch(calm_model_config(p->in.model), w->n, w->longest) < w->n;
}

/* Writes one part of an evaluation as a question. */
static calm_status encode(calm_ctx *ctx, const calm_run *p, const evaluation *e, const calm_windows *part, size_t first,
                          calm_text *out)
{
    const uint64_t kind = CALM_RANK_PREDICTIONS;
    const question q = {first, e->most, e->worst != NULL, e->reference_result != NULL};
    calm_rank_message_put(out, &kind, sizeof kind);
    calm_rank_message_put(out, &q, sizeof q);
    calm_rank_put_windows(out, part);
    calm_rank_put_subjects(p, e->subjects, e->n, out);
    return calm_text_check(ctx, out);
}

/* ---- answers ---- */

calm_status calm_rank_predict(calm_ctx *ctx, calm_run *p, calm_rank_message *in, calm_text *out)
{
    calm_windows windows;
    calm_subject *subjects;
    size_t n;
    calm_eval_result reference, results[CALM_SUBJECTS_AT_ONCE];
    calm_eval_worst worst = {0};
    question q;
    CALM_SCOPED_MODEL(written);
    calm_rank_message_read(in, &q, sizeof q);
    CALM_TRY(calm_rank_read_windows(ctx, in, &windows));
    CALM_TRY(calm_rank_read_subjects(ctx, p, in, &n, &subjects, &written));
    if (in->bad)
        return calm_fail(ctx, CALM_EFORMAT, "what rank 0 asks for is no evaluation of this run");
    calm_cluster_place(p->cluster, "the evaluation of windows %zu to %zu", (size_t)q.first,
                       (size_t)q.first + windows.n - 1);
    const evaluation e = {.reference_result = q.reference ? &reference : NULL, .subjects = subjects,
                          .n = n, .results = results, .windows = &windows,
                          .most = (size_t)q.most, .worst = q.worst ? &worst : NULL};
    CALM_SCOPED_INTS(ctx, calm_run_ints(p));
    CALM_TRY(evaluate(ctx, p, &e));
    const answer a = {worst.n, worst.n_kl};
    calm_rank_message_put(out, &a, sizeof a);
    if (q.reference)
        calm_rank_message_put(out, reference.windows, windows.n * sizeof *reference.windows);
    for (size_t i = 0; i < e.n; i++)
        calm_rank_message_put(out, results[i].windows, windows.n * sizeof *results[i].windows);
    calm_rank_message_put(out, worst.each, worst.n * sizeof *worst.each);
    calm_rank_message_put(out, worst.kl, worst.n_kl * sizeof *worst.kl);
    return CALM_OK;
}

/* ---- all parts ---- */

/* The parts [n] that have windows, in order: the rank of each, and its results. */
typedef struct parts {
    size_t n;
    int *rank;
    calm_windows *windows;
    size_t *n_windows;
    calm_eval_result *result[CALM_SUBJECTS_AT_ONCE + 1];    /* [n] by subject; the reference last */
    calm_eval_worst *worst;
} parts;

/* Divides the windows, and asks the other ranks for their parts. */
static calm_status ask(calm_ctx *ctx, const calm_run *p, const evaluation *e, parts *out)
{
    const size_t ranks = (size_t)calm_cluster_ranks(p->cluster);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->rank, ranks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->windows, ranks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->n_windows, ranks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->worst, ranks));
    for (size_t i = 0; i <= e->n; i++)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->result[i], ranks));
    for (size_t r = 0; r < ranks; r++) {
        CALM_SCOPED_TEXT(message);
        calm_windows *part = &out->windows[out->n];
        size_t first;
        CALM_TRY(calm_evaluation_part(ctx, calm_model_config(p->in.model), e->windows, r, ranks, part, &first));
        if (!part->n)
            continue;
        out->rank[out->n] = (int)r;
        out->n_windows[out->n++] = part->n;
        if (r == 0)
            continue;
        CALM_TRY(encode(ctx, p, e, part, first, &message));
        CALM_TRY(calm_cluster_ask(ctx, p->cluster, (int)r, message.data, message.length));
    }
    return CALM_OK;
}

/* Measures rank 0's part. */
static calm_status measure_own(calm_ctx *ctx, const calm_run *p, const evaluation *e, parts *in, size_t part)
{
    calm_eval_result results[CALM_SUBJECTS_AT_ONCE];
    calm_rank_progress ticks = {e->tick, e->tick_user, in->n_windows[part], e->windows->n};
    evaluation own = *e;
    own.reference_result = e->reference_result ? &in->result[e->n][part] : NULL;
    own.results = results;
    own.windows = &in->windows[part];
    own.tick = calm_rank_tick;
    own.tick_user = &ticks;
    own.worst = e->worst ? &in->worst[part] : NULL;
    CALM_TRY(evaluate(ctx, p, &own));
    for (size_t i = 0; i < e->n; i++)
        in->result[i][part] = results[i];
    return CALM_OK;
}

/* Reads another rank's answer. */
static calm_status take_answer(calm_ctx *ctx, const calm_run *p, const evaluation *e, parts *in, size_t part)
{
    const size_t n = in->n_windows[part];
    calm_eval_worst *worst = &in->worst[part];
    char *bytes;
    size_t n_bytes;
    answer a;
    CALM_TRY(calm_cluster_answer(ctx, p->cluster, in->rank[part], &bytes, &n_bytes));
    calm_rank_message message = {.at = bytes, .end = bytes + n_bytes};
    calm_rank_message_read(&message, &a, sizeof a);
    if (e->reference_result)
        CALM_TRY(calm_rank_message_array(ctx, &message, n, sizeof(calm_eval_window), &in->result[e->n][part].windows));
    for (size_t i = 0; i < e->n; i++)
        CALM_TRY(calm_rank_message_array(ctx, &message, n, sizeof(calm_eval_window), &in->result[i][part].windows));
    *worst = (calm_eval_worst){.n = (size_t)a.n_worst, .most = e->most, .n_kl = (size_t)a.n_kl};
    CALM_TRY(calm_rank_message_array(ctx, &message, a.n_worst, sizeof *worst->each, &worst->each));
    CALM_TRY(calm_rank_message_array(ctx, &message, a.n_kl, sizeof *worst->kl, &worst->kl));
    return message.bad ? calm_fail(ctx, CALM_EFORMAT, "rank %d answers with what is no evaluation", in->rank[part])
                       : CALM_OK;
}

static calm_status evaluate_together(calm_ctx *ctx, const calm_run *p, const evaluation *e)
{
    parts all = {.n = 0};
    CALM_SCOPED_ARENA(results);
    CALM_SCOPED_SCRATCH(ctx);
    calm_rank_note(ctx, p);
    {
        /* Results of parts are freed after they are joined. */
        CALM_SCOPED_OUT(ctx, &results);
        CALM_TRY(ask(ctx, p, e, &all));
        for (size_t i = 0; i < all.n; i++)
            CALM_TRY((all.rank[i] == 0 ? measure_own : take_answer)(ctx, p, e, &all, i));
    }
    if (e->reference_result)
        CALM_TRY(calm_evaluate_join(ctx, all.result[e->n], all.n_windows, all.n, true, e->reference_result));
    for (size_t i = 0; i < e->n; i++)
        CALM_TRY(calm_evaluate_join(ctx, all.result[i], all.n_windows, all.n, true, &e->results[i]));
    return e->worst ? calm_evaluate_worst_join(ctx, all.worst, all.n_windows, all.n, e->worst) : CALM_OK;
}

calm_status calm_division_evaluate(calm_ctx *ctx, const calm_run *p, calm_eval_result *reference_result,
                                   const calm_subject *subjects, size_t n, calm_eval_result *results,
                                   const calm_windows *windows, calm_tick_fn *tick_fn, void *tick_user, size_t most,
                                   calm_eval_worst *worst)
{
    const evaluation e = {reference_result, subjects, n, results, windows, tick_fn, tick_user, most, worst};
    return divides(p, &e) ? evaluate_together(ctx, p, &e) : evaluate(ctx, p, &e);
}
