/* Models and windows in messages between ranks. */
#include "ptq/ranks/ranks.h"

#include <string.h>

#include "ptq/cluster/wire.h"

/* The head of windows in a message; the begin of each window follows, then ids. */
typedef struct sizes {
    uint64_t n, longest;
} sizes;

/* The head of a plan; jobs [n_jobs] follow and, if `learned`, the blob of vectors of each block. */
typedef struct named_plan {
    bool learned, free_scales;
} named_plan;

/* A job of a plan; its codes are in the blob folder that the ranks share. */
typedef struct named_job {
    calm_scheme scheme;
    bool quantized;
    char blob[CALM_SHA256_HEX];
} named_job;

/* The head of a subject: a plan of the run's model, the float model, or a folder, whose name follows. */
typedef enum kind {
    PLAN = 1,
    FLOAT,
    FOLDER,
} kind;

typedef struct named {
    uint64_t kind, first_block;
} named;

/* ---- windows ---- */

void calm_rank_put_windows(calm_text *out, const calm_windows *w)
{
    const sizes s = {w->n, w->longest};
    calm_rank_message_put(out, &s, sizeof s);
    for (size_t i = 0; i <= w->n; i++) {
        const uint64_t begin = w->begin[i] - w->begin[0];
        calm_rank_message_put(out, &begin, sizeof begin);
    }
    calm_rank_message_put(out, w->ids + w->begin[0], (w->begin[w->n] - w->begin[0]) * sizeof *w->ids);
}

calm_status calm_rank_read_windows(calm_ctx *ctx, calm_rank_message *in, calm_windows *out)
{
    sizes s;
    calm_rank_message_read(in, &s, sizeof s);
    *out = (calm_windows){.n = (size_t)s.n, .longest = (size_t)s.longest};
    CALM_TRY(calm_rank_message_array(ctx, in, s.n + 1, sizeof *out->begin, &out->begin));
    /* Begins that fall or exceed the number of ids would let a reader read beyond the ids. */
    bool sound = out->begin && out->begin[0] == 0;
    for (size_t w = 0; sound && w < out->n; w++)
        sound = out->begin[w + 1] >= out->begin[w] && out->begin[w + 1] - out->begin[w] <= out->longest;
    in->bad |= !sound;
    return sound ? calm_rank_message_array(ctx, in, out->begin[out->n], sizeof *out->ids, &out->ids) : CALM_OK;
}

/* ---- plans ---- */

void calm_rank_put_plan(const calm_run *p, const calm_plan *plan, calm_text *out)
{
    const named_plan of = {plan->blocks != NULL, plan->free_scales};
    calm_rank_message_put(out, &of, sizeof of);
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

calm_status calm_rank_read_plan(calm_ctx *ctx, const calm_run *p, calm_rank_message *in, calm_plan *out)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    calm_candidate *candidates;
    calm_learned *learned, **blocks;
    named_job *jobs;
    char (*blobs)[CALM_SHA256_HEX];
    size_t *choice;
    named_plan of;
    calm_rank_message_read(in, &of, sizeof of);
    CALM_TRY(calm_choice_uniform(ctx, &p->in, CALM_STAYS_FLOAT, &choice));
    CALM_TRY(calm_plan_of_choice(ctx, &p->in, choice, out));
    out->free_scales = of.free_scales;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, candidates, layout->n_jobs));
    CALM_TRY(calm_rank_message_array(ctx, in, layout->n_jobs, sizeof *jobs, &jobs));
    for (size_t j = 0; jobs && j < layout->n_jobs; j++) {
        if (!jobs[j].quantized)
            continue;
        memcpy(candidates[j].blob, jobs[j].blob, CALM_SHA256_HEX - 1);
        out->jobs[j] = (calm_plan_job){true, jobs[j].scheme, "the candidate", &candidates[j]};
    }
    if (!of.learned)
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

/* ---- subjects ---- */

void calm_rank_note(calm_ctx *ctx, const calm_run *p)
{
    if (!calm_cluster_asked(p->cluster))
        calm_log(ctx, CALM_LOG_INFO, "windows to measure are divided among %d ranks", calm_cluster_ranks(p->cluster));
}

void calm_rank_tick(void *user, size_t done, size_t total)
{
    const calm_rank_progress *of = user;
    if (of->tick)
        of->tick(of->user, done * of->all / of->own, total * of->all / of->own);
}

bool calm_rank_may_measure(const calm_run *p, const calm_subject *subjects, size_t n, const calm_windows *w)
{
    bool all = calm_cluster_ranks(p->cluster) > 1 && calm_cluster_rank(p->cluster) == 0 && !w->positions && !w->types &&
               w->begin[w->n] < CALM_FRAME_MAX / sizeof(double) / 4;
    for (size_t i = 0; i < n; i++)
        all &= subjects[i].override == calm_plan_apply || (!subjects[i].override && subjects[i].model == p->in.model) ||
               (p->written && subjects[i].model == p->written && p->ranks->output_shared);
    return all;
}

void calm_rank_put_subjects(const calm_run *p, const calm_subject *subjects, size_t n, calm_text *out)
{
    const uint64_t number = n;
    calm_rank_message_put(out, &number, sizeof number);
    for (size_t i = 0; i < n; i++) {
        const calm_subject *subject = &subjects[i];
        const calm_plan_override *override = subject->override ? subject->user : NULL;
        const named of = {override ? PLAN : subject->model == p->in.model ? FLOAT : FOLDER, subject->first_block};
        calm_rank_message_put(out, &of, sizeof of);
        if (of.kind == PLAN)
            calm_rank_put_plan(p, override->plan, out);
        else if (of.kind == FOLDER)
            calm_rank_message_put_text(out, calm_model_dir(subject->model));
    }
}

calm_status calm_rank_read_subjects(calm_ctx *ctx, const calm_run *p, calm_rank_message *in, size_t *n,
                                    calm_subject **out, calm_model **written)
{
    calm_plan *plans;
    calm_plan_override *overrides;
    uint64_t number;
    calm_rank_message_read(in, &number, sizeof number);
    in->bad |= number > CALM_SUBJECTS_AT_ONCE;
    *n = in->bad ? 0 : (size_t)number;
    const size_t room = calm_size_max(*n, 1);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, plans, room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, overrides, room));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, room));
    for (size_t i = 0; !in->bad && i < *n; i++) {
        named of;
        const char *folder = NULL;
        calm_rank_message_read(in, &of, sizeof of);
        (*out)[i] = (calm_subject){.model = p->in.model, .first_block = (size_t)of.first_block};
        if (of.kind == PLAN) {
            CALM_TRY(calm_rank_read_plan(ctx, p, in, &plans[i]));
            overrides[i] = (calm_plan_override){p->in.model, &plans[i]};
            (*out)[i].override = calm_plan_apply;
            (*out)[i].user = &overrides[i];
        } else if (of.kind == FOLDER) {
            CALM_TRY(calm_rank_message_text(ctx, in, &folder));
            in->bad |= !folder || *written;
            if (!in->bad)
                CALM_TRY(calm_inputs_open_written(ctx, p->in.recipe, folder, written));
            (*out)[i].model = *written;
        } else {
            in->bad |= of.kind != FLOAT;
        }
    }
    return CALM_OK;
}
