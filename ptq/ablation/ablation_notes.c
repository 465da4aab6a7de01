/* Notes on an ablation's rows: which scores order a unit's entries as their costs do, massive tokens, and the noise of
 * calibration.
 *
 * The cost of an entry in a unit is its probe_kl: the KL of the whole model with only that unit quantized. */
#include <math.h>
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/ablation/ablation_impl.h"

/* ---- scores and costs ---- */

/* Gathers scores and costs of a unit's entries that have both, and returns their number.  A unit's score is stored with
 * each of its jobs, except float jobs; an entry counts only if it succeeded in all of these. */
static size_t gather(const calm_run *p, size_t begin, size_t end, calm_point point, int score, double *scores,
                     double *costs)
{
    const calm_point unit_point = calm_unit_point(calm_point_unit(point));
    size_t n = 0;
    while (begin < end && calm_inputs_keeps(&p->in, begin))
        begin++;
    for (size_t entry = 0; entry < p->in.recipe->n_pool && begin < end; entry++) {
        const calm_score_set *set = &calm_candidate_at(&p->in, begin, entry)->scores;
        bool failed = false;
        for (size_t job = begin; job < end; job++)
            failed |= !calm_inputs_keeps(&p->in, job) && calm_candidate_at(&p->in, job, entry)->failure != NULL;
        scores[n] = set->value[point][score];    /* the next entry overwrites it unless it is counted */
        costs[n] = set->value[unit_point][CALM_SCORE_PROBE_KL];
        n += !failed && !isnan(scores[n]) && !isnan(costs[n]);
    }
    return n;
}

/* Returns the index of the first least value: ties go to the earlier entry, as in the rule. */
static size_t least(const double *values, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        at = values[i] < values[at] ? i : at;
    return at;
}

/* Correlates one score with costs over all units.  Units have equal weight: a rank correlation within a unit shows
 * whether its entries are in the right order, and scores of different units have no common scale. */
static calm_status correlate(calm_ctx *ctx, const calm_run *p, calm_point point, int score,
                             calm_ablation_correlation *out)
{
    const size_t n_pool = p->in.recipe->n_pool;
    double *values[4], sum = 0, hits = 0;    /* scores, costs, ranks of scores, ranks of costs */
    size_t first, end;
    CALM_SCOPED_SCRATCH(ctx);
    /* Used again for every unit; calm_ranks frees its own memory. */
    for (size_t i = 0; i < 4; i++)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, values[i], n_pool));
    *out = (calm_ablation_correlation){.unit = calm_unit_name(calm_point_unit(point)),
                                       .metric = calm_score_name(point, score)};
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first, unit_end; job < end; job = unit_end) {
        size_t begin;
        calm_layout_unit(calm_model_layout(p->in.model), calm_point_unit(point), job, &begin, &unit_end);
        const size_t n = gather(p, begin, unit_end, point, score, values[0], values[1]);
        if (n < 2)    /* no order */
            continue;
        CALM_TRY(calm_ranks(ctx, values[0], n, values[2]));
        CALM_TRY(calm_ranks(ctx, values[1], n, values[3]));
        const double rho = calm_rank_correlation(values[2], values[3], n);
        if (isnan(rho))    /* all values are equal, so there is no order */
            continue;
        sum += rho;
        hits += least(values[0], n) == least(values[1], n);
        out->units++;
    }
    out->rho = out->units ? sum / (double)out->units : NAN;
    out->hits = out->units ? hits / (double)out->units : NAN;
    return CALM_OK;
}

/* Sorts best first within a kind of unit.  Scores of the point delta belong to blocks too, so both points of blocks are
 * sorted together. */
static bool before(const calm_ablation_correlation *a, const calm_ablation_correlation *b)
{
    return strcmp(a->unit, b->unit) == 0 && a->rho > b->rho;
}

static calm_status correlate_all(calm_ctx *ctx, const calm_run *p, calm_arena *keep, calm_ablation *out)
{
    CALM_TRY(CALM_NEW(ctx, keep, out->correlations, (size_t)CALM_N_POINTS * CALM_N_SCORES));
    for (calm_point point = 0; point < CALM_N_POINTS && out->probes; point++)
        for (int score = 0; score <= CALM_SCORE_CKA_LINEAR; score++) {
            calm_ablation_correlation row;
            if (!calm_score_name(point, score))    /* the point has no such score */
                continue;
            CALM_TRY(correlate(ctx, p, point, score, &row));
            if (!row.units)
                continue;
            size_t at = out->n_correlations++;
            for (; at && before(&row, &out->correlations[at - 1]); at--)
                out->correlations[at] = out->correlations[at - 1];
            out->correlations[at] = row;
        }
    return CALM_OK;
}

/* ---- activations ---- */

/* Receives one row per kind of hook point. */
typedef struct hook_rows {
    calm_ablation *out;
    calm_arena *keep;
    size_t room;
} hook_rows;

static calm_status add_hook(calm_ctx *ctx, void *user, const calm_value *values)
{
    hook_rows *to = user;
    char *point;
    CALM_TRY(CALM_GROW(ctx, to->keep, to->out->hooks, to->out->n_hooks, &to->room, to->out->n_hooks + 1));
    CALM_TRY(calm_strf(ctx, to->keep, &point, "%s", values[0].text));
    to->out->hooks[to->out->n_hooks++] =
        (calm_ablation_hooks){point, values[1].integer, values[2].integer, calm_value_as_real(&values[3]),
                              calm_value_as_real(&values[4])};
    return CALM_OK;
}

/* Reads statistics per kind of hook point over all blocks: maxima of maxima, sums of counts.  They are the same for all
 * rows of the table. */
static calm_status read_hooks(calm_ctx *ctx, const calm_run *p, calm_arena *keep, calm_ablation *out)
{
    static const char sql[] =
        "SELECT point, sum(n_tokens), sum(n_massive), max(ratio_max), max(max_abs) FROM activation "
        "WHERE model_id = ?1 AND calibration_id = ?2 GROUP BY point ORDER BY point";
    const calm_value params[] = {calm_value_int(p->result.model_id), calm_value_int(p->result.calibration_id)};
    hook_rows to = {out, keep, 0};
    return calm_store_each(ctx, p->in.store, sql, params, 2, add_hook, &to);
}

/* Reads the number of rows that scores were computed from, and of rows that cka_drop left out.  All candidates of a job
 * are scored on the same rows, hence max. */
static calm_status read_dropped(calm_ctx *ctx, const calm_run *p, calm_ablation *out)
{
    static const char sql[] =
        "SELECT coalesce(sum(n), 0), coalesce(sum(d), 0) FROM (SELECT max(k.score_rows) AS n, "
        "max(k.dropped_rows) AS d FROM run_candidate rc JOIN candidate k ON k.id = rc.candidate_id "
        "WHERE rc.run_id = ?1 GROUP BY k.job_id)";
    const calm_value run = calm_value_int(p->result.run_id);
    calm_value row[2];
    CALM_TRY(calm_store_query_one(ctx, p->in.store, sql, &run, 1, row, 2));
    out->scored_rows = row[0].integer;
    out->dropped_rows = row[1].integer;
    return CALM_OK;
}

calm_status calm_ablation_notes(calm_ctx *ctx, const calm_run *p, calm_arena *keep, calm_ablation *out)
{
    CALM_TRY(correlate_all(ctx, p, keep, out));
    CALM_TRY(read_hooks(ctx, p, keep, out));
    return read_dropped(ctx, p, out);
}

/* ---- seeds ---- */

/* Computes mean and standard deviation (with n - 1) of a member of the seeds' rows of one name.  Two passes: the
 * deviations are small relative to the mean, so that sums of squares would cancel. */
static void spread(const calm_ablation *of, const char *name, size_t member, double *mean, double *sd, size_t *n)
{
    double sum = 0, squares = 0;
    *n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = of->n_rows - of->n_seed_rows; i < of->n_rows; i++) {
            const double value = *(const double *)((const char *)&of->rows[i] + member);
            if (strcmp(of->rows[i].name, name) != 0 || isnan(value))    /* a failed row has no value */
                continue;
            if (pass) {
                squares += (value - sum / (double)*n) * (value - sum / (double)*n);
            } else {
                sum += value;
                ++*n;
            }
        }
    *mean = *n ? sum / (double)*n : NAN;
    *sd = *n > 1 ? sqrt(squares / (double)(*n - 1)) : NAN;
}

calm_status calm_ablation_seeds(calm_ctx *ctx, calm_arena *keep, calm_ablation *out)
{
    const size_t begin = out->n_rows - out->n_seed_rows;
    CALM_TRY(CALM_NEW(ctx, keep, out->noise, out->n_seed_rows));
    for (size_t i = begin; i < out->n_rows; i++) {
        calm_ablation_noise row = {.name = out->rows[i].name};
        size_t n, seen = begin;
        /* Seeds repeat the same names: each is summed at its first row. */
        while (seen < i && strcmp(out->rows[seen].name, row.name) != 0)
            seen++;
        if (seen < i)
            continue;
        spread(out, row.name, offsetof(calm_ablation_row, loss), &row.mean, &row.sd, &row.n);
        spread(out, row.name, offsetof(calm_ablation_row, delta), &row.delta_mean, &row.delta_sd, &n);
        out->noise[out->n_noise++] = row;
    }
    return CALM_OK;
}
