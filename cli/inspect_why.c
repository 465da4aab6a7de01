/* calm inspect STORE why: what a unit has, the rule that decided, and why each other candidate lost. */
#include <math.h>
#include <string.h>

#include "cli/inspect_units.h"

/* ---- the unit ---- */

/* Does the stored choice follow from the stored scores?  In words. */
static const char *follows(const calm_inspect_units *units, const calm_inspect_unit *unit, size_t rule)
{
    const calm_inspect_job *job = &units->jobs[unit->first];
    if (!job->decided)
        return "nothing was chosen";
    if (rule == CALM_INSPECT_NONE)
        return "unknown: the rule cannot decide";
    if (unit->chosen == rule)
        return units->budget ? "yes, at its scheme; a budget of bits decided the scheme" : "yes";
    if (job->reason && strncmp(job->reason, "pinned", 6) == 0)
        return "no: pinned";
    return units->budget ? "no, and a budget of bits decides schemes alone" : "no";
}

static void put_name(calm_table *table, const calm_inspect_units *units, size_t column)
{
    calm_table_text(table, column == CALM_INSPECT_NONE ? NULL : units->columns[column].name);
}

static calm_status put_jobs(calm_ctx *ctx, calm_table *table, const calm_inspect_units *units,
                            const calm_inspect_unit *unit)
{
    calm_text names;
    calm_text_init(&names);
    for (size_t j = unit->first; j < unit->first + unit->n; j++)
        calm_text_printf(&names, "%s%s", j > unit->first ? " " : "", units->jobs[j].name);
    const calm_status status = calm_text_check(ctx, &names);
    if (status == CALM_OK)
        calm_table_text(table, names.data);
    calm_text_clear(&names);
    return status;
}

static calm_status fill_unit(calm_ctx *ctx, const calm_inspect_units *units, const calm_inspect_unit *unit, size_t rule,
                             const char *sentence, calm_inspect_section *section)
{
    const calm_inspect_job *job = &units->jobs[unit->first];
    const bool uniform = units->result && strncmp(units->result, "hybrid", 6) != 0;
    calm_table *table = &section->table;
    section->fields = true;
    calm_inspect_columns(table, "unit jobs chosen reason rule metric tie_metric rule_takes rule_says follows advice "
                                "disagrees result verdict");
    calm_table_text(table, unit->name);
    CALM_TRY(put_jobs(ctx, table, units, unit));
    if (job->decided && !job->chosen)
        calm_table_text(table, "float");
    else
        put_name(table, units, unit->chosen);
    calm_table_text(table, job->reason);
    calm_table_text(table, units->rule);
    calm_table_text(table, units->metric);
    calm_table_text(table, units->tie);
    put_name(table, units, rule);
    calm_table_text(table, sentence);
    calm_table_text(table, follows(units, unit, rule));
    calm_table_text(table, job->advice);
    calm_table_bool(table, job->disagrees);
    if (uniform)
        calm_table_format(table, "uniform %s: this unit has that in the checkpoint", units->result);
    else
        calm_table_text(table, units->result);
    calm_table_text(table, units->verdict);
    return CALM_OK;
}

/* ---- its candidates ---- */

typedef struct judged {
    const calm_inspect_units *units;
    const calm_inspect_unit *unit;
    size_t rule;           /* column that the rule takes */
    double least;          /* of the metric among those that compete with it */
} judged;

/* Why a candidate that could have been had is not what the rule takes. */
static calm_status beaten(calm_ctx *ctx, const judged *j, const calm_inspect_candidate *cell, char **out)
{
    const calm_inspect_candidate *winner = j->units->jobs[j->unit->first].cells[j->rule];
    const bool token = strcmp(j->units->rule, calm_rule_name(CALM_RULE_TOKEN)) == 0;
    const double times = calm_inspect_times(j->units->metric, cell->metric, j->least);
    if (!token && cell->metric > j->least)
        return calm_strf(ctx, ctx->out, out, "larger %s: %.3g times the least", j->units->metric, times);
    if (token && cell->metric > calm_near_tie(j->least))
        return calm_strf(ctx, ctx->out, out, "outside the shortlist: %s is %.3g times the least, over %g",
                         j->units->metric, times, CALM_NEAR_TIE);
    if (token && isnan(cell->tie) && !isnan(winner->tie))
        return calm_strf(ctx, ctx->out, out, "on the shortlist without a %s", j->units->tie);
    if (token && cell->tie != winner->tie && !isnan(cell->tie))
        return calm_strf(ctx, ctx->out, out, "on the shortlist with a larger %s, by %.3g", j->units->tie,
                         cell->tie - winner->tie);
    return calm_strf(ctx, ctx->out, out, "equal in all that the rule reads; the key decides");
}

static calm_status say_why(calm_ctx *ctx, const judged *j, size_t column, char **out)
{
    const calm_inspect_candidate *cell = j->units->jobs[j->unit->first].cells[column];
    const char *failure = calm_inspect_failure(j->units, j->unit, column);
    const size_t chosen = j->unit->chosen;
    if (column == chosen && failure)
        return calm_strf(ctx, ctx->out, out, "chosen, though it failed: %s", failure);
    if (column == chosen)
        return calm_strf(ctx, ctx->out, out, column == j->rule || j->rule == CALM_INSPECT_NONE
                                                 ? "chosen" : "chosen, but the rule takes another");
    if (failure)
        return calm_strf(ctx, ctx->out, out, "failed: %s", failure);
    if (calm_inspect_forbidden(j->units, j->unit, column))
        return calm_strf(ctx, ctx->out, out, "left out as asked (--forbid)");
    if (j->units->budget && chosen != CALM_INSPECT_NONE &&
        strcmp(j->units->columns[chosen].scheme, j->units->columns[column].scheme) != 0)
        return calm_strf(ctx, ctx->out, out, "another scheme: the budget of bits decided");
    if (j->rule == CALM_INSPECT_NONE)
        return calm_strf(ctx, ctx->out, out, "the rule cannot decide");
    if (column == j->rule)
        return calm_strf(ctx, ctx->out, out, "the rule takes this one");
    if (!isfinite(cell->metric))
        return calm_strf(ctx, ctx->out, out, "without a %s", j->units->metric);
    return beaten(ctx, j, cell, out);
}

/* The metrics of outputs that people know a candidate by, beside what the rule reads. */
static const char more_sql[] =
    "SELECT max(iif(metric = 'cka', value, NULL)), max(iif(metric = 'cka_token', value, NULL)), "
    "max(iif(metric = 'rel_mse', value, NULL)), max(iif(metric = 'probe_kl', value, NULL)) "
    "FROM score WHERE candidate_id = ?1 AND unit = ?2";

static calm_status add_candidate(calm_ctx *ctx, calm_store *store, const judged *j, size_t column, calm_table *table)
{
    const calm_inspect_candidate *cell = j->units->jobs[j->unit->first].cells[column];
    const calm_value params[] = {calm_value_int(cell->id), calm_value_text(j->units->unit)};
    calm_value more[4];
    char *why;
    CALM_TRY(say_why(ctx, j, column, &why));
    CALM_TRY(calm_store_query_one(ctx, store, more_sql, params, 2, more, 4));
    calm_table_text(table, j->units->columns[column].name);
    calm_table_bool(table, column == j->unit->chosen);
    calm_table_number(table, cell->metric);
    calm_table_number(table, cell->metric - j->least);
    calm_table_number(table, calm_inspect_times(j->units->metric, cell->metric, j->least));
    calm_table_number(table, cell->tie);
    calm_table_text(table, why);
    for (size_t i = 0; i < 4; i++)
        calm_table_scientific(table, more[i].type == CALM_VALUE_REAL ? more[i].real : NAN, 2);
    calm_table_fixed(table, cell->bits, 3);
    calm_table_text(table, cell->algorithm);
    calm_table_text(table, cell->scheme);
    calm_table_int(table, cell->id);
    return CALM_OK;
}

/* Is candidate a before b: what can win by its metric, then the rest, in the order of the pool? */
static bool before(const judged *j, size_t a, size_t b)
{
    const calm_inspect_candidate *const *cells = j->units->jobs[j->unit->first].cells, *x = cells[a], *y = cells[b];
    const bool x_can = !calm_inspect_failure(j->units, j->unit, a) && isfinite(x->metric);
    const bool y_can = !calm_inspect_failure(j->units, j->unit, b) && isfinite(y->metric);
    if (x_can != y_can)
        return x_can;
    return x_can && x->metric != y->metric ? x->metric < y->metric : a < b;
}

/* Least metric among those that the rule compared. */
static double least_of(const calm_inspect_units *units, const calm_inspect_unit *unit)
{
    double least = NAN;
    for (size_t c = 0; c < units->n_columns; c++) {
        const calm_inspect_candidate *cell = units->jobs[unit->first].cells[c];
        const bool competes = !units->budget || unit->chosen == CALM_INSPECT_NONE ||
                              strcmp(units->columns[c].scheme, units->columns[unit->chosen].scheme) == 0;
        if (cell && competes && isfinite(cell->metric) && !calm_inspect_forbidden(units, unit, c) &&
            !calm_inspect_failure(units, unit, c))
            least = fmin(least, cell->metric);
    }
    return least;
}

static calm_status fill_candidates(calm_ctx *ctx, calm_inspection *in, const judged *j, calm_inspect_section *section)
{
    size_t *order, n = 0, at;
    calm_inspect_columns(&section->table, "entry chosen #metric #over_least #times #tie_metric why #one_minus_cka "
                                          "#one_minus_cka_token #rel_mse #probe_kl #bits algorithm scheme #candidate");
    section->none = "it has no candidates";
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, order, j->units->n_columns));
    for (size_t c = 0; c < j->units->n_columns; c++) {
        if (!j->units->jobs[j->unit->first].cells[c])
            continue;
        for (at = n++; at && before(j, c, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_candidate(ctx, in->store, j, order[i], &section->table));
    return CALM_OK;
}

calm_status calm_inspect_why(calm_ctx *ctx, calm_inspection *in)
{
    calm_inspect_units units;
    size_t u, rule;
    char *sentence;
    if (!in->run)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: there is no run", calm_store_path(in->store));
    CALM_TRY(calm_inspect_units_read(ctx, in->store, in->run, NULL, &units));
    CALM_TRY(calm_inspect_unit_find(ctx, &units, in->query->unit, &u));
    const calm_inspect_unit *unit = &units.units[u];
    CALM_TRY(calm_inspect_choose(ctx, &units, unit, &rule, &sentence));
    const judged j = {&units, unit, rule, least_of(&units, unit)};
    CALM_TRY(fill_unit(ctx, &units, unit, rule, sentence, calm_inspect_section_new(in, "unit", "Unit")));
    return fill_candidates(ctx, in, &j, calm_inspect_section_new(in, "candidates", "Candidates"));
}
