/* Candidates of one block: quantizes, scores and stores them. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ptq/search/search_impl.h"
#include "ptq/base/threads.h"
#include "ptq/base/times.h"
#include "ptq/arch/kind.h"
#include "ptq/quant/qblob.h"

/* The inputs of o are the outputs of the query heads.  Heads that share a kv head depend on the same rows of v, so they
 * share a scale. */
static calm_status absorb_groups(calm_ctx *ctx, const calm_feed *feed, size_t width, uint32_t **groups, size_t *n)
{
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *groups, width));
    for (size_t i = 0; i < width; i++)
        (*groups)[i] = (uint32_t)calm_feed_number(feed, i);
    *n = calm_feed_rows(feed);
    return CALM_OK;
}

bool calm_run_absorbs(const calm_run *p, size_t job)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    return calm_recipe_folds_scale(p->in.recipe, layout, job) ||
           calm_recipe_frees_scale(p->in.recipe, &layout->jobs[job]);
}

size_t calm_captured_bytes(size_t n)
{
    return CALM_BYTES(calm_captured, n);
}

size_t calm_candidates_bytes(const calm_recipe *recipe, size_t n)
{
    return CALM_BYTES(calm_work, n * CALM_N_JOBS * recipe->n_pool);
}

bool calm_run_keeps_rows(const calm_run *p, size_t block, calm_sublayer sublayer, long expert)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    bool any = false;
    size_t begin, end;
    calm_layout_fold_set(layout, block, sublayer, expert, &begin, &end);
    for (size_t j = begin; j < end; j++)
        any |= calm_recipe_keeps_rows(p->in.recipe, calm_layout_biased(layout, &layout->jobs[j]));
    return any;
}

/* Describes the job for the algorithms, in ctx->scratch. */
static calm_status describe_job(calm_ctx *ctx, const calm_block_work *work, const calm_work *item, calm_job *out)
{
    const calm_layout *layout = calm_model_layout(work->p->in.model);
    const calm_job_ref *ref = &layout->jobs[item->job];
    const calm_scheme scheme = calm_scheme_at(&work->p->in.recipe->pool[item->entry].scheme, &ref->place);
    calm_linear *linears;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, linears, ref->n));
    *out = (calm_job){.name = ref->name, .linears = linears, .n_linears = ref->n,
                      .stats = &item->from->capture->job[ref->kind].stats,
                      .scheme = calm_scheme_for(&scheme, ref->in),
                      .can_absorb = calm_run_absorbs(work->p, item->job)};
    for (size_t i = 0; i < ref->n; i++) {
        const calm_weight *weight = &item->from->capture->weight[layout->linears[ref->first + i].role];
        linears[i] = (calm_linear){weight->name, weight->out, weight->in, weight->w, weight->bias != NULL};
    }
    calm_feed feed;
    if (calm_job_fold(work->block->config, ref->kind, ref->expert, &feed) == CALM_FOLD_ROWS && feed.groups) {
        uint32_t *groups;
        CALM_TRY(absorb_groups(ctx, &feed, ref->in, &groups, &out->n_absorb_groups));
        out->absorb_group = groups;
    }
    return CALM_OK;
}

/* Returns the algorithm that runs: the entry's, or for an expert with too few tokens one that needs no data. */
static const calm_algorithm *pick(const calm_run *p, const calm_capture *capture, size_t entry)
{
    const calm_algorithm *algorithm = p->in.recipe->pool[entry].algorithm;
    /* The tokens routed to the expert count, as in the store; if they are few, all may have been held out. */
    const bool starved = capture->expert >= 0 &&
                         (capture->tokens < calm_recipe_least_tokens(p->in.recipe) || !capture->rows);
    /* Statistics of a handful of tokens say more about those tokens than about the expert. */
    return starved && (calm_algorithm_caps(algorithm) & CALM_NEEDS_DATA) ? p->fallback : algorithm;
}

void calm_candidate_count(calm_block_work *work)
{
    for (size_t i = 0; i < work->n; i++) {
        calm_work *item = &work->items[i];
        item->used = pick(work->p, item->from->capture, item->entry);
        item->reads = calm_run_reads_factor(work->p->in.recipe, item->used);
        item->share->n_readers += item->reads;
    }
}

/* Stores a candidate's numerical failure in the item; other failures end the run. */
static calm_status settle(calm_ctx *ctx, calm_work *item, calm_status status)
{
    if (status != CALM_ENUMERIC && status != CALM_EUNSUPPORTED)
        return status;
    /* The message is copied, because the thread's next task overwrites the context's. */
    item->failed = true;
    memcpy(item->reason, ctx->message, sizeof item->reason);
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

/* Counts a finished task.  Tasks finish on any thread: the count is atomic, so that no number is reported twice. */
static void tick(calm_block_work *work, calm_stage stage)
{
    size_t done;
#pragma omp atomic capture
    done = ++work->n_done;
    calm_event(&work->p->events, stage, done, work->n_total);
}

/* Marks an item of a job that stays float as failed. */
static void leave_float(const calm_block_work *work, calm_work *item)
{
    const calm_job_ref *ref = &calm_model_layout(work->p->in.model)->jobs[item->job];
    item->qjob = (calm_qjob){.out = ref->out, .in = ref->in,
                             .scheme = work->p->in.recipe->pool[item->entry].scheme};
}

/* Task: quantize one item into its own arena. */
static calm_status quantize_one(calm_ctx *ctx, size_t index, void *user)
{
    calm_block_work *work = user;
    calm_work *item = &work->items[index];
    const double begun = calm_seconds();
    const calm_hessian *shared;
    calm_job job;
    /* The result outlives the task, whose scratch memory is used again. */
    ctx->out = &item->arena;
    calm_status status = calm_check_interrupt(ctx);
    if (status == CALM_OK)
        status = describe_job(ctx, work, item, &job);
    if (status == CALM_OK)
        status = calm_run_share_enter(ctx, work, item, &shared);
    if (status == CALM_OK && !job.scheme.bits)
        leave_float(work, item);
    else if (status == CALM_OK)
        status = calm_algorithm_run_shared(ctx, item->used, &job, shared, &item->qjob);
    calm_run_share_leave(item);
    /* The next task on this thread must not find the item's arena. */
    ctx->out = NULL;
    item->seconds = calm_seconds() - begun;
    tick(work, CALM_STAGE_QUANTIZE);
    return settle(ctx, item, status);
}

/* Runs as many tasks at once as memory allows; a single task uses all threads. */
static calm_status run_items(calm_ctx *ctx, calm_block_work *work, calm_task_fn *fn)
{
    /* A copy, because this step has another number of threads, and one task at a time has two other arenas. */
    calm_ctx fewer = *ctx;
    const size_t at_once = work->p->memory.knobs.candidates_at_once;
    calm_status status = CALM_OK;
    CALM_SCOPED_LEND(work->p->cluster);    /* tasks do not use the store */
    if (at_once != 1) {
        if (at_once)    /* 0: no limit, one per thread */
            fewer.n_threads = (int)calm_size_min((size_t)fewer.n_threads, at_once);
        status = calm_parallel_for(&fewer, work->n, fn, work);
    }
    /* One after the other, in this thread: the loops within an algorithm then use all threads. */
    for (size_t i = 0; at_once == 1 && i < work->n && status == CALM_OK; i++) {
        CALM_SCOPED_ARENA(scratch);
        fewer.scratch = &scratch;
        fewer.out = NULL;
        status = fn(&fewer, i, work);
    }
    return status == CALM_OK ? CALM_OK : calm_fail(ctx, status, "%s", fewer.message);
}

calm_status calm_block_quantize(calm_ctx *ctx, calm_block_work *work)
{
    {
        CALM_SCOPED_TIME(&work->p->result.times, CALM_TIME_FACTORS);
        CALM_TRY(calm_run_share_make(ctx, work));
    }
    CALM_SCOPED_TIME(&work->p->result.times, CALM_TIME_ALGORITHMS);
    return run_items(ctx, work, quantize_one);
}

/* ---- scoring ---- */

/* Adds a correction [out] to a copy of a linear's bias, if it has one. */
static calm_status correct_bias(calm_ctx *ctx, const float *delta, calm_weight *weight)
{
    float *bias;
    if (!weight->bias)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, bias, weight->out));
    for (size_t i = 0; i < weight->out; i++)
        bias[i] = weight->bias[i] + delta[i];
    weight->bias = bias;
    return CALM_OK;
}

calm_status calm_job_replace(calm_ctx *ctx, const calm_layout *layout, size_t job, const calm_qjob *qjob,
                             calm_weight *weight)
{
    const calm_job_ref *ref = &layout->jobs[job];
    const int act_bits = qjob->scheme.act_bits;
    float *w;
    size_t row = 0;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, w, qjob->out * qjob->in));
    /* Codes represent W diag(in_scale).  Weight-only kernels get weights divided by the input scale; with quantized
     * activations the input is divided at run time, because its codes depend on the scale. */
    if (act_bits)
        calm_qjob_dequantize(qjob, w);
    else
        calm_qjob_effective(qjob, w);
    /* The rows of the stacked matrix are divided among the linears in their order. */
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        calm_weight *replaced = &weight[layout->linears[i].role];
        replaced->w = w + row * qjob->in;
        replaced->in_scale = act_bits ? qjob->in_scale : NULL;
        replaced->act_bits = act_bits;
        replaced->act_asymmetric = qjob->scheme.act_asymmetric;
        replaced->act_rule = qjob->scheme.act_rule;
        replaced->act_global = qjob->act_global;
        if (qjob->bias_delta)
            CALM_TRY(correct_bias(ctx, qjob->bias_delta + row, replaced));
        row += replaced->out;
    }
    return CALM_OK;
}

/* Computes the weighted output of an expert for its scoring rows. */
static calm_status expert_output(calm_ctx *ctx, const calm_block *block, const calm_capture *capture,
                                 calm_job_kind kind, const calm_weight weight[CALM_N_ROLES], float *z)
{
    const calm_observation seen = {.expert = capture->expert};
    const float *input = capture->job[kind].score_input;
    const size_t n = capture->score_rows;
    calm_role last;
    /* The job's output is the expert's output. */
    if (calm_job_is_last(block->config, kind, &last))
        CALM_TRY(calm_weight_apply(ctx, &weight[last], input, n, z));
    else
        CALM_TRY(calm_mlp_run(ctx, block->config, weight, input, n, z, NULL, &seen));
    calm_job_rows_weigh(z, n, calm_expert_width(block->config, capture->expert), capture->score_weight, z);
    return CALM_OK;
}

calm_status calm_captured_output(calm_ctx *ctx, const calm_run *p, const calm_block *block,
                                 const calm_captured *captured, calm_job_kind kind,
                                 const calm_weight weight[CALM_N_ROLES], float *z)
{
    const calm_capture *capture = captured->capture;
    const calm_job_capture *from = &capture->job[calm_job_scored_from(block->config, kind)];
    const size_t width = from->width, hidden = block->config->hidden;
    const calm_batch windows = {.windows = &p->in.scoring, .n = p->in.scoring.n};
    calm_block replaced = *block;
    /* Rows of an expert are independent: one product over all windows. */
    if (capture->expert != CALM_NO_EXPERT)
        return expert_output(ctx, block, capture, kind, weight, z);
    memcpy(replaced.weight, weight, sizeof replaced.weight);
    /* Attention depends on earlier tokens of the window, so windows run one by one. */
    for (size_t w = 0; w < windows.n; w++) {
        calm_span span = calm_batch_span(&windows, w);
        const size_t row = calm_batch_row(&windows, w);
        CALM_SCOPED_SCRATCH(ctx);
        if (capture->score_carried)
            span.carried = capture->score_carried + row * block->config->carried;
        CALM_TRY(calm_block_from_job(ctx, &replaced, &p->rope, kind, from->score_input + row * width, &span,
                                     z + row * hidden));
    }
    return CALM_OK;
}

/* Computes the output of the sublayer for all scoring windows with only this candidate quantized. */
static calm_status candidate_output(calm_ctx *ctx, const calm_block_work *work, const calm_work *item, float *z)
{
    const calm_layout *layout = calm_model_layout(work->p->in.model);
    /* A copy of the pointers to float weights: tasks of other candidates read the same capture. */
    calm_weight weight[CALM_N_ROLES];
    memcpy(weight, item->from->capture->weight, sizeof weight);
    if (item->qjob.scheme.bits)
        CALM_TRY(calm_job_replace(ctx, layout, item->job, &item->qjob, weight));
    return calm_captured_output(ctx, work->p, work->block, item->from, layout->jobs[item->job].kind, weight, z);
}

/* Computes cka_linear in closed form, if there is a Gram matrix and the input stays float. */
static calm_status score_linear(calm_ctx *ctx, calm_work *item)
{
    const calm_cka_linear_ref *reference = item->from->linear[item->job - item->from->begin];
    float *w;
    /* The closed form holds for a linear map of the float input, not with quantized activations. */
    item->cka_linear = NAN;
    if (!reference || item->qjob.scheme.act_bits)
        return CALM_OK;
    item->cka_linear = 0;
    if (!item->qjob.scheme.bits)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, w, item->qjob.out * item->qjob.in));
    calm_qjob_effective(&item->qjob, w);
    return calm_cka_linear(ctx, reference, w, &item->cka_linear);
}

static float absmax(const float *w, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(w[i]));
    return most;
}

/* Returns true if the weights of a job are so small that every candidate of the scheme is all zeros.  Such a linear is
 * stored as zeros, like a linear of zeros; any other candidate of zeros is useless. */
static bool rounds_to_zeros(const calm_block_work *work, const calm_work *item)
{
    const calm_layout *layout = calm_model_layout(work->p->in.model);
    const calm_job_ref *job = &layout->jobs[item->job];
    float most = 0;
    for (size_t i = job->first; i < job->first + job->n; i++) {
        const calm_weight *weight = &item->from->capture->weight[layout->linears[i].role];
        most = fmaxf(most, absmax(weight->w, weight->out * weight->in));
    }
    return (double)most <= calm_scale_least(&item->qjob.scheme, most);
}

/* Replaces the logarithm of an error of 0 by that of float64's rounding, because the store has no infinities. */
static void bound_log(calm_scores *scores)
{
    const double least = 2 * log(DBL_EPSILON);
    double *value = &scores->value[CALM_METRIC_LOG_REL_MSE];
    *value = fmax(*value, least);
}

/* Task: scores one candidate; does nothing if too few rows were captured. */
static calm_status score_one(calm_ctx *ctx, size_t index, void *user)
{
    calm_block_work *work = user;
    calm_work *item = &work->items[index];
    const double begun = calm_seconds();
    float *z;
    calm_status status = CALM_OK;
    if (!item->failed && item->from->reference) {
        status = CALM_NEW_RAW(ctx, ctx->scratch, z,
                              item->from->capture->score_rows *
                                  calm_expert_width(work->block->config, item->from->capture->expert));
        if (status == CALM_OK)
            status = candidate_output(ctx, work, item, z);
        if (status == CALM_OK)
            status = calm_score(ctx, item->from->reference, z, &item->scores);
        if (!item->qjob.scheme.bits)
            bound_log(&item->scores);
        /* Every metric is undefined for a constant output, and the candidate is useless. */
        if (status == CALM_OK && item->scores.constant && !rounds_to_zeros(work, item))
            status = calm_fail(ctx, CALM_ENUMERIC, "score: the candidate's output is the same for all rows (dead)");
    }
    if (!item->failed && status == CALM_OK)
        status = score_linear(ctx, item);
    const double spent = calm_seconds() - begun;
/* Seconds summed over all threads: the report shows their share of the run. */
#pragma omp atomic
    work->p->result.score_seconds += spent;
    tick(work, CALM_STAGE_SCORE);
    return settle(ctx, item, status);
}

calm_status calm_block_score(calm_ctx *ctx, calm_block_work *work)
{
    CALM_SCOPED_TIME(&work->p->result.times, CALM_TIME_SCORES);
    return run_items(ctx, work, score_one);
}

/* ---- storing ---- */

/* Returns the algorithm's name for the store: the one that ran, and the one that it replaced. */
static calm_status name_algorithm(calm_ctx *ctx, const calm_work *item, const calm_algorithm *asked, const char **name)
{
    /* The content key is that of the requested algorithm, so that the candidate is found again. */
    *name = calm_algorithm_name(asked);
    return item->used == asked
               ? CALM_OK : calm_strf(ctx, ctx->scratch, name, "%s for %s", calm_algorithm_name(item->used), *name);
}

size_t calm_scores_as_rows(const calm_score_set *set, calm_point point, calm_store_score *rows)
{
    size_t n = 0;
    for (int score = 0; score < CALM_N_SCORES; score++)
        if (!isnan(set->value[point][score]))
            rows[n++] = (calm_store_score){calm_unit_name(calm_point_unit(point)), calm_score_name(point, score),
                                           set->value[point][score]};
    return n;
}

/* Stores the row, and that the run considered the candidate, in one transaction: a killed run then lists what it
 * has. */
static calm_status put_row(calm_ctx *ctx, const calm_run *p, const calm_store_candidate *row, calm_candidate *candidate)
{
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    CALM_TRY(calm_store_candidate_put(ctx, p->in.store, row, &candidate->id));
    CALM_TRY(calm_store_run_candidate(ctx, p->in.store, p->result.run_id, candidate->id));
    return calm_store_commit(ctx, p->in.store);
}

/* Stores a failed candidate, with the reason in its row. */
static calm_status keep_failure(calm_ctx *ctx, calm_run *p, const calm_work *item, calm_candidate *candidate,
                                calm_store_candidate *row)
{
    /* In the run's arena, because the choice reads it after this block. */
    CALM_TRY(calm_strf(ctx, p->arena, &candidate->failure, "%s", item->reason));
    row->failure = candidate->failure;
    return put_row(ctx, p, row, candidate);
}

/* Stores the codes; *again: their row is in the store and complete, and only the codes were deleted. */
static calm_status keep_blob(calm_ctx *ctx, const calm_run *p, const calm_work *item, calm_candidate *candidate,
                             calm_store_candidate *row, bool *again)
{
    calm_arena_mark mark = calm_arena_save(ctx->out);
    char before[CALM_SHA256_HEX];
    void *bytes;
    size_t n_bytes;
    memcpy(before, candidate->blob, sizeof before);
    if (item->qjob.scheme.bits) {
        CALM_TRY(calm_qblob_encode(ctx, &item->qjob, &bytes, &n_bytes));
    } else {    /* no codes; these bytes are never read, but a row without a blob would mean deleted codes */
        bytes = (void *)(uintptr_t)CALM_FLOAT;
        n_bytes = strlen(CALM_FLOAT);
    }
    /* The blob before the row: a row must never name a blob that is not on the disk. */
    CALM_TRY(calm_run_put_blob(ctx, p, bytes, n_bytes, candidate->blob));
    calm_arena_rewind(ctx->out, mark);
    *again = candidate->dropped && strcmp(before, candidate->blob) == 0;
    /* The stored scores belong to other codes. */
    if (candidate->dropped && !*again)
        calm_log(ctx, CALM_LOG_WARNING, "%s: %s computed again has other codes than before, as of other CPU kernels; "
                 "evaluations in the store are of those",
                 calm_model_layout(p->in.model)->jobs[item->job].name, p->in.recipe->pool[item->entry].name);
    candidate->dropped = false;
    candidate->blob_bytes = n_bytes;
    row->blob = candidate->blob;
    row->blob_bytes = (int64_t)n_bytes;
    return CALM_OK;
}

/* Stores blob and row of one item, and sets what the choice reads. */
static calm_status keep_one(calm_ctx *ctx, const calm_block_work *work, const calm_work *item)
{
    calm_run *p = work->p;
    const calm_entry *entry = &p->in.recipe->pool[item->entry];
    calm_candidate *candidate = calm_candidate_at(&p->in, item->job, item->entry);
    calm_store_score scores[CALM_N_POINTS * CALM_N_SCORES];
    const char *name;
    bool again;
    const calm_scheme own = calm_scheme_at(&entry->scheme, &calm_model_layout(p->in.model)->jobs[item->job].place);
    CALM_TRY(name_algorithm(ctx, item, entry->algorithm, &name));
    calm_store_candidate row = {.key = candidate->key, .calibration_id = p->result.calibration_id,
                                .job_id = p->job_ids[item->job], .algorithm = name,
                                .chain = calm_algorithm_canonical(item->used), .scheme = CALM_SCHEME_NAME(&own),
                                .seconds = item->seconds};
    if (item->failed)
        return keep_failure(ctx, p, item, candidate, &row);
    CALM_TRY(keep_blob(ctx, p, item, candidate, &row, &again));
    if (again)    /* its row may have more scores than this run computes */
        return calm_store_run_candidate(ctx, p->in.store, p->result.run_id, candidate->id);
    candidate->seconds = item->seconds;
    if (item->from->reference)
        calm_score_set_put(&candidate->scores, CALM_POINT_JOB, &item->scores);
    candidate->scores.value[CALM_POINT_JOB][CALM_SCORE_CKA_LINEAR] = item->cka_linear;
    candidate->bits_per_weight = calm_scheme_bits_per_weight(&own, item->qjob.out, item->qjob.in);
    row.bits_per_weight = candidate->bits_per_weight;
    row.damp = item->qjob.damp;
    row.score_rows = p->in.recipe->unscored ? -1 : (int64_t)item->scores.n_rows;
    row.dropped_rows = (int64_t)item->scores.n_dropped;
    row.scores = scores;
    for (calm_point point = 0; point < CALM_N_POINTS; point++)
        row.n_scores += calm_scores_as_rows(&candidate->scores, point, scores + row.n_scores);
    return put_row(ctx, p, &row, candidate);
}

calm_status calm_block_keep(calm_ctx *ctx, calm_block_work *work)
{
    CALM_SCOPED_TIME(&work->p->result.times, CALM_TIME_STORE);
    for (size_t i = 0; i < work->n; i++) {
        work->p->result.pool_seconds[work->items[i].entry] += work->items[i].seconds;
        /* One by one, in the items' order, so that ids of the store do not depend on threads. */
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(keep_one(ctx, work, &work->items[i]));
    }
    return CALM_OK;
}

/* ---- equal candidates ---- */

size_t calm_candidate_equal(const calm_run *p, const calm_captured *from, size_t job, size_t entry)
{
    const calm_entry *pool = p->in.recipe->pool;
    const calm_algorithm *used = pick(p, from->capture, entry);
    const bool absorbing = calm_run_absorbs(p, job);
    const calm_layout *layout = calm_model_layout(p->in.model);
    const bool biased = calm_layout_biased(layout, &layout->jobs[job]);
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < p->in.recipe->n_pool; i++) {
        const calm_candidate *other = calm_candidate_at(&p->in, job, i);
        /* If its codes were deleted, there is nothing to copy. */
        if (other->skipped || (other->dropped && !other->todo) || pool[i].of_scheme != pool[entry].of_scheme ||
            !calm_algorithm_agrees(pick(p, from->capture, i), used, absorbing, biased))
            continue;
        /* A stored candidate saves the computation. */
        if (!other->todo)
            return i;
        first = first == SIZE_MAX ? i : first;
    }
    return first;
}

/* Stores the row of one equal candidate, with its name and key: later runs find it as if it had been computed. */
static calm_status keep_twin(calm_ctx *ctx, const calm_block_work *work, calm_work *item)
{
    calm_run *p = work->p;
    const calm_entry *entry = &p->in.recipe->pool[item->entry];
    const calm_candidate *from = calm_candidate_at(&p->in, item->job, item->twin);
    calm_candidate *candidate = calm_candidate_at(&p->in, item->job, item->entry);
    calm_store_score scores[CALM_N_SCORES];
    calm_store_candidate row;
    int64_t id;
    /* From the store, because only its row has all fields (scored rows, damping, ...). */
    CALM_TRY(calm_store_candidate_find(ctx, p->in.store, from->key, &row, &id));
    if (candidate->dropped && strcmp(candidate->blob, from->blob) == 0) {
        candidate->dropped = false;    /* its row is complete */
        return calm_store_run_candidate(ctx, p->in.store, p->result.run_id, candidate->id);
    }
    if (!id)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: candidate %.16s of %s was removed while the run needed it",
                         calm_store_path(p->in.store), from->key, calm_model_layout(p->in.model)->jobs[item->job].name);
    item->used = pick(p, item->from->capture, item->entry);
    CALM_TRY(name_algorithm(ctx, item, entry->algorithm, &row.algorithm));
    row.key = candidate->key;
    row.chain = calm_algorithm_canonical(item->used);
    row.scores = scores;
    row.n_scores = 0;
    candidate->seconds = from->seconds;
    candidate->failure = from->failure;
    if (!from->failure) {
        /* Only scores of jobs: scores of larger units depend on the entry's candidates in the other jobs. */
        memcpy(candidate->scores.value[CALM_POINT_JOB], from->scores.value[CALM_POINT_JOB],
               sizeof candidate->scores.value[CALM_POINT_JOB]);
        memcpy(candidate->blob, from->blob, sizeof candidate->blob);
        candidate->blob_bytes = from->blob_bytes;
        candidate->dropped = false;
        candidate->bits_per_weight = from->bits_per_weight;
        row.n_scores = calm_scores_as_rows(&candidate->scores, CALM_POINT_JOB, scores);
    }
    return put_row(ctx, p, &row, candidate);
}

calm_status calm_candidate_store_equals(calm_ctx *ctx, calm_block_work *work)
{
    for (size_t i = 0; i < work->n_twins; i++) {
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(keep_twin(ctx, work, &work->items[work->n + i]));
    }
    return CALM_OK;
}
