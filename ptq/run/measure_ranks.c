/* Measuring on several ranks: each runs the models over a part of the windows.
 *
 * Rank 0 asks for the others' parts, measures its own, and joins all in the order of windows.  What is asked for names
 * blobs of the store and a folder that was written, which all ranks see; windows travel as ids, so that no other rank
 * needs the text. */
#include <string.h>

#include "ptq/cluster/wire.h"
#include "ptq/plan/assemble.h"
#include "ptq/run/checkpoint.h"
#include "ptq/run/division.h"
#include "ptq/run/rank_message.h"

/* What a question begins with.  The windows follow: where each begins, then ids; then each subject. */
typedef struct question {
    uint64_t n_windows, longest, n_subjects, first;    /* number of its first window */
    uint64_t most;                                     /* of calm_evaluate_worst     */
    bool worst, reference;                             /* what is wanted             */
} question;

/* A subject: a folder, whose name follows, or jobs [n_jobs] and, where `learned`, the blob of vectors of each block. */
typedef struct named {
    uint64_t first_block;
    bool folder, learned, free_scales;
} named;

typedef struct named_job {
    calm_scheme scheme;
    bool quantized;
    char blob[CALM_SHA256_HEX];
} named_job;

/* What an answer begins with: of each model its windows follow, then the worst positions and all divergences. */
typedef struct answer {
    uint64_t n_worst, n_kl;
} answer;

/* One evaluation, as calm_division_evaluate is asked for it. */
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

/* The evaluation on this rank alone. */
static calm_status evaluate(calm_ctx *ctx, const calm_run *p, const evaluation *e)
{
    const calm_subject reference = {.model = p->in.model};
    return e->worst ? calm_evaluate_worst(ctx, &reference, e->reference_result, e->subjects, e->results, e->windows,
                                          e->most, e->tick, e->tick_user, e->worst)
                    : calm_evaluate(ctx, &reference, e->reference_result, e->subjects, e->n, e->results, e->windows,
                                    e->tick, e->tick_user);
}

/* ---- questions ---- */

/* Is it worth dividing, and can the others see what is measured?  A model in this rank's memory, as with a rounded
 * table, they cannot.  Windows with positions of their own come from token
 * files, which are short. */
static bool divides(const calm_run *p, const evaluation *e)
{
    const calm_windows *w = e->windows;
    bool all = calm_cluster_ranks(p->cluster) > 1 && calm_cluster_rank(p->cluster) == 0 && !w->positions && !w->types &&
               calm_evaluation_batch(calm_model_config(p->in.model), w->n, w->longest) < w->n &&
               w->begin[w->n] < CALM_FRAME_MAX / sizeof(double) / 4;
    for (size_t i = 0; i < e->n; i++)
        all &= e->subjects[i].override == calm_plan_apply ||
               (p->written && e->subjects[i].model == p->written && p->output_shared);
    return all;
}

static void put_plan(const calm_run *p, const calm_plan *plan, calm_text *out)
{
    for (size_t j = 0; j < plan->n_jobs; j++) {
        named_job job = {.scheme = plan->jobs[j].scheme, .quantized = plan->jobs[j].quantized};
        if (job.quantized)
            memcpy(job.blob, ((const calm_candidate *)plan->jobs[j].source)->blob, sizeof job.blob);
        calm_rank_message_put(out, &job, sizeof job);
    }
    for (size_t b = 0; plan->blocks && b < calm_model_config(p->in.model)->n_blocks; b++) {
        const calm_learned *learned = plan->blocks[b];
        char blob[CALM_SHA256_HEX] = "";
        if (learned)
            memcpy(blob, learned->blob, sizeof blob);
        calm_rank_message_put(out, blob, sizeof blob);
    }
}

/* One part of an evaluation as a question. */
static calm_status encode(calm_ctx *ctx, const calm_run *p, const evaluation *e, const calm_windows *part, size_t first,
                          calm_text *out)
{
    const question q = {.n_windows = part->n, .longest = part->longest, .n_subjects = e->n, .first = first,
                        .most = e->most, .worst = e->worst != NULL, .reference = e->reference_result != NULL};
    calm_rank_message_put(out, &q, sizeof q);
    for (size_t w = 0; w <= part->n; w++) {
        const uint64_t begin = part->begin[w] - part->begin[0];
        calm_rank_message_put(out, &begin, sizeof begin);
    }
    calm_rank_message_put(out, part->ids + part->begin[0], (part->begin[part->n] - part->begin[0]) * sizeof *part->ids);
    for (size_t i = 0; i < e->n; i++) {
        const calm_subject *subject = &e->subjects[i];
        const calm_plan_override *override = subject->override ? subject->user : NULL;
        const named n = {.first_block = subject->first_block, .folder = !override,
                         .learned = override && override->plan->blocks,
                         .free_scales = override && override->plan->free_scales};
        calm_rank_message_put(out, &n, sizeof n);
        if (override)
            put_plan(p, override->plan, out);
        else
            calm_rank_message_put_text(out, calm_model_dir(subject->model));
    }
    return calm_text_check(ctx, out);
}

/* ---- reading a question ---- */

static calm_status read_windows(calm_ctx *ctx, calm_rank_message *in, const question *q, calm_windows *out)
{
    *out = (calm_windows){.n = (size_t)q->n_windows, .longest = (size_t)q->longest};
    CALM_TRY(calm_rank_message_array(ctx, in, q->n_windows + 1, sizeof *out->begin, &out->begin));
    bool sound = out->begin && out->begin[0] == 0;
    for (size_t w = 0; sound && w < out->n; w++)
        sound = out->begin[w + 1] >= out->begin[w] && out->begin[w + 1] - out->begin[w] <= out->longest;
    in->bad |= !sound;
    return sound ? calm_rank_message_array(ctx, in, out->begin[out->n], sizeof *out->ids, &out->ids) : CALM_OK;
}

/* The plan of a subject: nothing of it but blobs is looked at. */
static calm_status read_plan(calm_ctx *ctx, const calm_run *p, calm_rank_message *in, const named *n, calm_plan *out)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    calm_candidate *candidates;
    calm_learned *learned, **blocks;
    named_job *jobs;
    char (*blobs)[CALM_SHA256_HEX];
    size_t *choice;
    CALM_TRY(calm_choice_uniform(ctx, &p->in, CALM_STAYS_FLOAT, &choice));
    CALM_TRY(calm_plan_of_choice(ctx, &p->in, choice, out));
    out->free_scales = n->free_scales;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, candidates, layout->n_jobs));
    CALM_TRY(calm_rank_message_array(ctx, in, layout->n_jobs, sizeof *jobs, &jobs));
    for (size_t j = 0; jobs && j < layout->n_jobs; j++) {
        if (!jobs[j].quantized)
            continue;
        memcpy(candidates[j].blob, jobs[j].blob, CALM_SHA256_HEX - 1);
        out->jobs[j] = (calm_plan_job){true, jobs[j].scheme, "the candidate", &candidates[j]};
    }
    if (!n->learned)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, learned, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, blocks, n_blocks));
    CALM_TRY(calm_rank_message_array(ctx, in, n_blocks, sizeof *blobs, &blobs));
    for (size_t b = 0; blobs && b < n_blocks; b++) {
        learned[b].jobs = &candidates[layout->block_begin[b]];
        memcpy(learned[b].blob, blobs[b], CALM_SHA256_HEX - 1);
        blocks[b] = blobs[b][0] ? &learned[b] : NULL;
    }
    const calm_plan plain = *out;
    return calm_plan_learn(ctx, &p->in, &plain, blocks, out);
}

/* Subjects [n] in ctx->scratch, and in *written the one folder that was opened for them; the caller closes it. */
static calm_status read_subjects(calm_ctx *ctx, const calm_run *p, calm_rank_message *in, uint64_t n,
                                 calm_subject **out, calm_model **written)
{
    calm_plan *plans;
    calm_plan_override *overrides;
    in->bad |= n > CALM_TRIALS_AT_ONCE;
    const size_t room = in->bad ? 1 : (size_t)n;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, plans, room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, overrides, room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, room));
    for (size_t i = 0; !in->bad && i < n; i++) {
        named of;
        const char *folder;
        calm_rank_message_read(in, &of, sizeof of);
        if (!of.folder) {
            CALM_TRY(read_plan(ctx, p, in, &of, &plans[i]));
            overrides[i] = (calm_plan_override){p->in.model, &plans[i]};
            (*out)[i] = (calm_subject){p->in.model, calm_plan_apply, &overrides[i], (size_t)of.first_block};
            continue;
        }
        CALM_TRY(calm_rank_message_text(ctx, in, &folder));
        in->bad |= !folder || *written;
        if (!in->bad)
            CALM_TRY(calm_outputs_open(ctx, p->in.recipe, folder, written));
        (*out)[i] = (calm_subject){.model = *written, .first_block = (size_t)of.first_block};
    }
    return CALM_OK;
}

/* ---- answers ---- */

/* A calm_cluster_work_fn. */
static calm_status work(calm_ctx *ctx, void *user, const char *bytes, size_t n, calm_text *out)
{
    const calm_run *p = user;
    calm_rank_message in = {.at = bytes, .end = bytes + n};
    calm_windows windows;
    calm_subject *subjects;
    calm_eval_result reference, results[CALM_TRIALS_AT_ONCE];
    calm_eval_worst worst = {0};
    question q;
    CALM_SCOPED_MODEL(written);
    calm_rank_message_read(&in, &q, sizeof q);
    CALM_TRY(read_windows(ctx, &in, &q, &windows));
    CALM_TRY(read_subjects(ctx, p, &in, q.n_subjects, &subjects, &written));
    if (in.bad)
        return calm_fail(ctx, CALM_EFORMAT, "what rank 0 asks for is no evaluation of this run");
    calm_cluster_place(p->cluster, "the evaluation of windows %zu to %zu", (size_t)q.first,
                       (size_t)q.first + windows.n - 1);
    const evaluation e = {.reference_result = q.reference ? &reference : NULL, .subjects = subjects,
                          .n = (size_t)q.n_subjects, .results = results, .windows = &windows,
                          .most = (size_t)q.most, .worst = q.worst ? &worst : NULL};
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

calm_status calm_division_serve(calm_ctx *ctx, calm_run *p)
{
    return calm_cluster_serve(ctx, p->cluster, work, p);
}

/* ---- all parts ---- */

/* Parts [n] of an evaluation that have windows, in order: the rank that has each, and what it gives. */
typedef struct parts {
    size_t n;
    int *rank;
    calm_windows *windows;
    size_t *n_windows;
    calm_eval_result *result[CALM_TRIALS_AT_ONCE + 1];    /* [n] of each subject, then of the reference */
    calm_eval_worst *worst;
} parts;

/* Divide the windows, and ask the other ranks for their parts. */
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

/* Progress of one part as that of all: the others are taken to be as quick. */
typedef struct progress {
    const evaluation *of;
    size_t own;    /* windows */
} progress;

static void tick(void *user, size_t done, size_t total)
{
    const progress *own = user;
    const size_t all = own->of->windows->n;
    if (own->of->tick)
        own->of->tick(own->of->tick_user, done * all / own->own, total * all / own->own);
}

/* Rank 0's own part. */
static calm_status measure_own(calm_ctx *ctx, const calm_run *p, const evaluation *e, parts *in, size_t part)
{
    calm_eval_result results[CALM_TRIALS_AT_ONCE];
    progress ticks = {e, in->n_windows[part]};
    evaluation own = *e;
    own.reference_result = e->reference_result ? &in->result[e->n][part] : NULL;
    own.results = results;
    own.windows = &in->windows[part];
    own.tick = tick;
    own.tick_user = &ticks;
    own.worst = e->worst ? &in->worst[part] : NULL;
    CALM_TRY(evaluate(ctx, p, &own));
    for (size_t i = 0; i < e->n; i++)
        in->result[i][part] = results[i];
    return CALM_OK;
}

/* What another rank has found. */
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
    if (!calm_cluster_asked(p->cluster))
        calm_log(ctx, CALM_LOG_INFO, "windows to measure are divided among %d ranks", calm_cluster_ranks(p->cluster));
    {
        /* Parts of results are gone once they are joined. */
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
