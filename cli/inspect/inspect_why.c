/* calm inspect STORE why: shows a unit's candidate, the rule that decided, and why each other candidate lost. */
#include <math.h>
#include <string.h>

#include "cli/inspect/inspect_why.h"

/* ---- the unit ---- */

const char *calm_inspect_consistent(const calm_inspect_units *units, size_t unit, size_t rule)
{
    const calm_stored_run_choice *choice = calm_inspect_chosen(units, unit);
    if (!choice->decided)
        return "nothing was chosen";
    if (rule == CALM_INSPECT_NONE)
        return "unknown: the rule cannot decide";
    if (units->chosen[unit] == rule)
        return units->budget ? "yes, at its scheme; a budget of bits decided the scheme" : "yes";
    if (choice->reason && strncmp(choice->reason, "pinned", 6) == 0)
        return "no: pinned";
    return units->budget ? "no, and a budget of bits decides schemes alone" : "no";
}

static const char *name_of(const calm_inspect_units *units, size_t entry)
{
    return entry == CALM_INSPECT_NONE ? NULL : units->stored.pool.entries[entry].name;
}

/* Returns the candidate that all quantized units have; CALM_INSPECT_NONE: they differ. */
static size_t common_choice(const calm_inspect_units *units)
{
    size_t common = CALM_INSPECT_NONE;
    for (size_t unit = 0; unit < units->stored.pool.n_units; unit++) {
        if (units->chosen[unit] == CALM_INSPECT_NONE || units->chosen[unit] == common)
            continue;
        if (common != CALM_INSPECT_NONE)
            return CALM_INSPECT_NONE;
        common = units->chosen[unit];
    }
    return common;
}

static calm_status fill_unit(calm_ctx *ctx, const calm_inspect_units *units, size_t unit, size_t rule,
                             const char *sentence, calm_inspect_section *section)
{
    const calm_stored_run_choice *choice = calm_inspect_chosen(units, unit);
    const calm_pool *pool = &units->stored.pool;
    const char *result = units->run.result;
    calm_table *table = &section->table;
    CALM_SCOPED_TEXT(jobs);
    section->fields = true;
    /* The lines must fit on a screen: jobs appear only if there are several, the rule's reason only if it differs. */
    const bool several = pool->unit_begin[unit + 1] - pool->unit_begin[unit] > 1;
    const bool other = !choice->reason || !sentence || strcmp(choice->reason, sentence) != 0;
    section->brief = several && other ? "unit|jobs|chosen|reason|rule|rule_choice|rule_reason|consistent|advice|result|"
                                        "verdict"
                     : several ? "unit|jobs|chosen|reason|rule|rule_choice|consistent|advice|result|verdict"
                     : other   ? "unit|chosen|reason|rule|rule_choice|rule_reason|consistent|advice|result|verdict"
                               : "unit|chosen|reason|rule|rule_choice|consistent|advice|result|verdict";
    calm_table_columns(table, "unit|jobs|chosen|reason|rule|metric|tie_metric|rule_choice|rule_reason|consistent|"
                              "advice|disagrees|result|verdict");
    for (size_t j = pool->unit_begin[unit]; j < pool->unit_begin[unit + 1]; j++)
        calm_text_printf(&jobs, "%s%s", j > pool->unit_begin[unit] ? " " : "", pool->jobs[j].name);
    CALM_TRY(calm_text_check(ctx, &jobs));
    CALM_CELLS(table, CALM_TEXT(calm_pool_unit(pool, unit)), CALM_TEXT(jobs.data),
               CALM_TEXT(choice->decided && !choice->candidate ? "float" : name_of(units, units->chosen[unit])),
               CALM_TEXT(choice->reason), CALM_TEXT(units->rule), CALM_TEXT(units->metric), CALM_TEXT(units->tie),
               CALM_TEXT(name_of(units, rule)), CALM_TEXT(sentence),
               CALM_TEXT(calm_inspect_consistent(units, unit, rule)),
               CALM_TEXT(choice->advice), CALM_BOOL(choice->disagrees));
    if (result && strncmp(result, "hybrid", 6) != 0)
        calm_table_format(table, "uniform %s: this unit has that in the checkpoint", result);
    else if (result && common_choice(units) != CALM_INSPECT_NONE)
        calm_table_format(table, "%s%s", name_of(units, common_choice(units)), result + strlen("hybrid"));
    else
        calm_table_text(table, result);
    calm_table_text(table, units->run.reason);
    return CALM_OK;
}

/* ---- its candidates ---- */

/* Says why the rule did not choose a candidate that did not fail and is not excluded. */
static calm_status beaten(calm_ctx *ctx, const calm_inspect_judged *j, const calm_pool_cell *cell, char **out)
{
    const calm_pool_cell *winner = calm_inspect_cell(j->units, j->unit, j->rule);
    const bool token = j->units->stored.pool.rule == CALM_CHOICE_RULE_TOKEN;
    const double times = calm_inspect_times(j->units->metric, cell->metric, j->least);
    if (!token && cell->metric > j->least)
        return calm_strf(ctx, ctx->out, out, "larger %s: %.3g times the least", j->units->metric, times);
    const double factor = j->units->stored.pool.shortlist;
    if (token && cell->metric > calm_shortlist_bound(j->units->metric, j->least, factor))
        return calm_strf(ctx, ctx->out, out, "outside the shortlist: %s is %.3g times the least, over %g",
                         j->units->metric, times, factor);
    if (token && isnan(cell->tie) && !isnan(winner->tie))
        return calm_strf(ctx, ctx->out, out, "on the shortlist without a %s", j->units->tie);
    if (token && cell->tie != winner->tie && !isnan(cell->tie))
        return calm_strf(ctx, ctx->out, out, "on the shortlist with a larger %s, by %.3g", j->units->tie,
                         cell->tie - winner->tie);
    return calm_strf(ctx, ctx->out, out, "equal in all that the rule reads; the first of the pool is taken");
}

calm_status calm_inspect_reason(calm_ctx *ctx, const calm_inspect_judged *j, size_t entry, char **out)
{
    const calm_pool_cell *cell = calm_inspect_cell(j->units, j->unit, entry);
    const char *failure = calm_inspect_failure(j->units, j->unit, entry);
    const size_t chosen = j->units->chosen[j->unit];
    if (entry == chosen && failure)
        return calm_strf(ctx, ctx->out, out, "chosen, though it failed: %s", failure);
    if (entry == chosen)
        return calm_strf(ctx, ctx->out, out, entry == j->rule || j->rule == CALM_INSPECT_NONE
                                                 ? "chosen" : "chosen, but the rule takes another");
    if (failure)
        return calm_strf(ctx, ctx->out, out, "failed: %s", failure);
    if (calm_inspect_forbidden(j->units, j->unit, entry))
        return calm_strf(ctx, ctx->out, out, "left out as asked (--forbid)");
    if (calm_inspect_other_scheme(j->units, j->unit, entry))
        return calm_strf(ctx, ctx->out, out, "another scheme: the budget of bits decided");
    if (j->rule == CALM_INSPECT_NONE)
        return calm_strf(ctx, ctx->out, out, "the rule cannot decide");
    if (entry == j->rule)
        return calm_strf(ctx, ctx->out, out, "the rule takes this one");
    if (!isfinite(cell->metric))
        return calm_strf(ctx, ctx->out, out, "without a %s", j->units->metric);
    return beaten(ctx, j, cell, out);
}

/* Common metrics of the candidate's output, in addition to those that the rule compares. */
static const char more_sql[] =
    "SELECT max(iif(metric = 'cka', value, NULL)), max(iif(metric = 'cka_token', value, NULL)), "
    "max(iif(metric = 'rel_mse', value, NULL)), max(iif(metric = 'probe_kl', value, NULL)) "
    "FROM score WHERE candidate_id = ?1 AND unit = ?2";

static calm_status add_candidate(calm_ctx *ctx, calm_store *store, const calm_inspect_judged *j, size_t entry,
                                 calm_table *table)
{
    const calm_pool *pool = &j->units->stored.pool;
    const calm_stored_run_cell *stored = &j->units->stored.cells[pool->unit_begin[j->unit] * pool->n_entries + entry];
    const calm_pool_cell *cell = calm_inspect_cell(j->units, j->unit, entry);
    const calm_value params[] = {calm_value_int(cell->id), calm_value_text(j->units->run.unit)};
    calm_value more[4];
    char *why;
    CALM_TRY(calm_inspect_reason(ctx, j, entry, &why));
    CALM_TRY(calm_store_query_one(ctx, store, more_sql, params, 2, more, 4));
    CALM_CELLS(table, CALM_TEXT(pool->entries[entry].name), CALM_BOOL(entry == j->units->chosen[j->unit]),
               CALM_NUMBER(cell->metric), CALM_NUMBER(cell->metric - j->least),
               CALM_NUMBER(calm_inspect_times(j->units->metric, cell->metric, j->least)), CALM_NUMBER(cell->tie),
               CALM_TEXT(why), CALM_SCIENTIFIC(calm_value_as_real(&more[0]), 2),
               CALM_SCIENTIFIC(calm_value_as_real(&more[1]), 2), CALM_SCIENTIFIC(calm_value_as_real(&more[2]), 2),
               CALM_SCIENTIFIC(calm_value_as_real(&more[3]), 2), CALM_FIXED(stored->bits_per_weight, 3),
               CALM_TEXT(stored->algorithm), CALM_TEXT(pool->entries[entry].scheme_name), CALM_INT(cell->id));
    return CALM_OK;
}

/* Does entry a come before b?  First entries that can win, by their metric, then the others in the order of the
 * pool. */
static bool before(const calm_inspect_judged *j, size_t a, size_t b)
{
    const calm_pool_cell *x = calm_inspect_cell(j->units, j->unit, a), *y = calm_inspect_cell(j->units, j->unit, b);
    const bool x_can = !calm_inspect_failure(j->units, j->unit, a) && isfinite(x->metric);
    const bool y_can = !calm_inspect_failure(j->units, j->unit, b) && isfinite(y->metric);
    if (x_can != y_can)
        return x_can;
    return x_can && x->metric != y->metric ? x->metric < y->metric : a < b;
}

static calm_status fill_candidates(calm_ctx *ctx, calm_inspection *in, const calm_inspect_judged *j,
                                   calm_inspect_section *section)
{
    const size_t n_entries = j->units->stored.pool.n_entries;
    size_t *order, n = 0, at;
    calm_table_columns(&section->table, "entry|chosen|#score|#above_least|#times_least|#tie_score|reason|"
                                        "#one_minus_cka|#one_minus_cka_token|#rel_mse|#probe_kl|#bits|algorithm|scheme|"
                                        "#candidate");
    section->none = "it has no candidates";
    section->brief = "entry|score|reason";
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, order, n_entries));
    for (size_t i = 0; i < n_entries; i++) {
        if (!calm_inspect_cell(j->units, j->unit, i))
            continue;
        for (at = n++; at && before(j, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_candidate(ctx, in->store, j, order[i], &section->table));
    return CALM_OK;
}

/* The result of learning for a job's candidate, if the run learned its block. */
static const char learned_sql[] =
    "SELECT j.name, s.candidate_id, d.loss_before, d.loss_after, d.changed, d.kept, d.learner"
    " FROM run_learned l JOIN learned d ON d.id = l.learned_id JOIN learned_candidate s ON s.learned_id = d.id"
    " JOIN candidate k ON k.id = s.candidate_id JOIN job j ON j.id = k.job_id"
    " WHERE l.run_id = ?1 AND k.job_id = ?2";

/* Adds a row to the section `learned`, which exists only if the run learned. */
typedef struct learned_rows {
    calm_inspection *in;
    calm_inspect_section *section;
} learned_rows;

static calm_status add_learned(calm_ctx *ctx, void *user, const calm_value *v)
{
    learned_rows *rows = user;
    (void)ctx;
    if (!rows->section) {
        rows->section = calm_inspect_section_new(rows->in, "learned", "Learned");
        calm_table_columns(&rows->section->table,
                           "job|#candidate|#loss_before|#loss_after|#changed_in_block|kept|learner");
    }
    CALM_CELLS(&rows->section->table, CALM_TEXT(calm_value_as_string(&v[0])), CALM_INT(calm_value_as_int(&v[1])),
               CALM_FIXED(calm_value_as_real(&v[2]), 5), CALM_FIXED(calm_value_as_real(&v[3]), 5),
               CALM_INT(calm_value_as_int(&v[4])), CALM_TEXT(calm_value_as_string(&v[5])),
               CALM_TEXT(calm_value_as_string(&v[6])));
    return CALM_OK;
}

static calm_status fill_learned(calm_ctx *ctx, calm_inspection *in, const calm_inspect_judged *j)
{
    const calm_pool *pool = &j->units->stored.pool;
    learned_rows rows = {.in = in};
    for (size_t job = pool->unit_begin[j->unit]; job < pool->unit_begin[j->unit + 1]; job++) {
        const calm_value params[] = {calm_value_int(j->units->run.id), calm_value_int(pool->jobs[job].id)};
        CALM_TRY(calm_store_each(ctx, in->store, learned_sql, params, 2, add_learned, &rows));
    }
    return CALM_OK;
}

calm_status calm_inspect_why(calm_ctx *ctx, calm_inspection *in)
{
    calm_inspect_units units;
    size_t unit, rule;
    const char *sentence;
    if (!in->run)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: there is no run", calm_store_path(in->store));
    CALM_TRY(calm_inspect_units_read(ctx, in->store, in->run, NULL, &units));
    CALM_TRY(calm_inspect_unit_find(ctx, &units.stored.pool, in->run, in->query->unit, &unit));
    CALM_TRY(calm_inspect_choose(ctx, &units, unit, &rule, &sentence));
    const calm_inspect_judged j = {&units, unit, rule, calm_inspect_least(&units, unit, true)};
    CALM_TRY(fill_unit(ctx, &units, unit, rule, sentence, calm_inspect_section_new(in, "unit", "Unit")));
    CALM_TRY(fill_candidates(ctx, in, &j, calm_inspect_section_new(in, "candidates", "Candidates")));
    return fill_learned(ctx, in, &j);
}
