/* calm inspect STORE layers: shows a heat strip, one row per unit, one cell per candidate of the pool.
 *
 * The shade of a cell is the candidate's score as a multiple of the unit's least: scores compare candidates of one
 * unit, not units. */
#include <math.h>
#include <string.h>

#include "cli/inspect/inspect_units.h"

/* ---- shades ---- */

typedef struct shade {
    double up_to;                       /* upper bound, as a multiple of the least */
    const char *block, *ascii, *colour; /* ANSI code                               */
} shade;

static const shade shades[] = {
    {1.05, "\u00b7", ".", "32"}, {1.25, "\u2591", "-", "36"},     {2, "\u2592", "+", "33"},
    {4, "\u2593", "*", "35"},             {INFINITY, "\u2588", "#", "31"},
};
static const shade failed = {0, "\u00d7", "x", "90"}, unscored = {0, "?", "?", "90"}, absent = {0, " ", " ", ""};

static const shade *shade_of(const calm_inspect_units *units, size_t unit, size_t column, double least)
{
    const calm_pool_cell *cell = calm_inspect_cell(units, unit, column);
    size_t i = 0;
    if (!cell)
        return &absent;
    if (calm_inspect_failure(units, unit, column))
        return &failed;
    const double times = calm_inspect_times(units->metric, cell->metric, least);
    if (isnan(times))
        return &unscored;
    while (times > shades[i].up_to)
        i++;
    return &shades[i];
}

/* ---- the strip ---- */

static void put_shade(const calm_inspect_query *query, const shade *how, bool chosen, calm_text *out)
{
    const char *mark = query->ascii ? how->ascii : how->block;
    const bool colour = query->colour && how->colour[0];
    calm_text_printf(out, "%s%s%s%s%s%s", chosen ? "[" : " ", colour ? "\033[" : "", colour ? how->colour : "",
                     colour ? "m" : "", mark, colour ? "\033[0m" : "");
    calm_text_printf(out, "%s", chosen ? "]" : " ");
}

#define LEGEND ((size_t)92)    /* columns of the legend on one line */

/* Appends the meaning of the shades and of the numbers in the header. */
static void put_legend(const calm_inspection *in, const calm_inspect_units *units, size_t width, calm_text *out)
{
    const char *apart = width && width < LEGEND ? "\n " : "";
    const calm_inspect_query *query = in->query;
    calm_table_printable(units->metric ? units->metric : "(no metric)", out, NULL);
    calm_text_printf(out, " of each candidate, as times the least of its ");
    calm_table_printable(units->run.unit, out, NULL);
    calm_text_printf(out, ":\n ");
    for (size_t i = 0; i < sizeof shades / sizeof *shades; i++) {
        calm_text_printf(out, "%s", i ? apart : "");
        put_shade(query, &shades[i], false, out);
        if (isfinite(shades[i].up_to))
            calm_text_printf(out, "up to %g ", shades[i].up_to);
        else
            calm_text_printf(out, "more ");
    }
    calm_text_printf(out, "%s", apart);
    put_shade(query, &failed, false, out);
    calm_text_printf(out, "failed  %s ?  no score  %s[ ] chosen\n\n", apart, apart);
    for (size_t c = 0; c < units->stored.pool.n_entries; c++) {
        calm_text_printf(out, "  %2zu  ", c + 1);
        calm_table_printable(units->stored.pool.entries[c].name, out, NULL);
        calm_text_printf(out, "\n");
    }
    calm_text_printf(out, "\n");
}

static const char *chosen_name(const calm_inspect_units *units, size_t unit)
{
    const calm_stored_run_choice *choice = calm_inspect_chosen(units, unit);
    const size_t entry = units->chosen[unit];
    if (!choice->decided)
        return "";
    return entry != CALM_INSPECT_NONE ? units->stored.pool.entries[entry].name
           : choice->candidate        ? "another"
                                      : "float";
}

static void put_strip(const calm_inspection *in, const calm_inspect_units *units, calm_text *out)
{
    const calm_pool *pool = &units->stored.pool;
    size_t width = strlen("unit"), columns;
    for (size_t u = 0; u < pool->n_units; u++) {
        CALM_SCOPED_TEXT(shown);
        calm_table_printable(calm_unit_short_name(calm_pool_unit(pool, u)), &shown, &columns);
        width = units->seen[u] ? calm_size_max(columns, width) : width;
    }
    calm_text_printf(out, "%-*s  ", (int)width, "unit");
    for (size_t c = 0; c < pool->n_entries; c++)
        calm_text_printf(out, "%2zu ", c + 1);
    calm_text_printf(out, "      least  chosen\n");
    for (size_t u = 0; u < pool->n_units; u++) {
        const double least = calm_inspect_least(units, u, false);
        if (!units->seen[u])
            continue;
        calm_table_printable(calm_unit_short_name(calm_pool_unit(pool, u)), out, &columns);
        calm_text_printf(out, "%*s", (int)(width + 2 - columns), "");
        for (size_t c = 0; c < pool->n_entries; c++)
            put_shade(in->query, shade_of(units, u, c, least), units->chosen[u] == c, out);
        if (isnan(least))
            calm_text_printf(out, "  %9s  ", "");
        else
            calm_text_printf(out, "  %9.2e  ", least);
        calm_table_printable(chosen_name(units, u), out, NULL);
        while (out->length && out->data[out->length - 1] == ' ')
            out->data[--out->length] = '\0';
        calm_text_printf(out, "\n");
    }
}

/* ---- rows for programs ---- */

static void add_cell(const calm_inspect_units *units, size_t unit, size_t column, double least, calm_table *table)
{
    const calm_pool *pool = &units->stored.pool;
    const size_t first = pool->unit_begin[unit];
    const calm_pool_cell *cell = calm_inspect_cell(units, unit, column);
    if (!cell)
        return;
    const char *failure = calm_inspect_failure(units, unit, column);
    CALM_CELLS(table, CALM_TEXT(calm_pool_unit(pool, unit)), CALM_INT(pool->jobs[first].block),
               CALM_TEXT(pool->entries[column].name),
               CALM_TEXT(units->stored.cells[first * pool->n_entries + column].algorithm),
               CALM_TEXT(pool->entries[column].scheme_name), CALM_TEXT(units->metric), CALM_NUMBER(cell->metric),
               CALM_NUMBER(failure ? NAN : calm_inspect_times(units->metric, cell->metric, least)),
               CALM_BOOL(units->chosen[unit] == column), CALM_TEXT(failure), CALM_INT(cell->id));
}

calm_status calm_inspect_layers(calm_ctx *ctx, calm_inspection *in)
{
    calm_inspect_section *section = calm_inspect_section_new(in, "layers", "Layers");
    calm_inspect_units units;
    bool seen = false;
    calm_table_columns(&section->table,
                       "unit|#block|entry|algorithm|scheme|metric|#score|#times_least|chosen|failure|#candidate");
    section->none = "there is no run";
    if (!in->run)
        return CALM_OK;
    CALM_TRY(calm_inspect_units_read(ctx, in->store, in->run, in->query->metric, &units));
    section->none = "this run has no candidates";
    for (size_t u = 0; u < units.stored.pool.n_units; u++) {
        const double least = calm_inspect_least(&units, u, false);
        seen |= units.seen[u];
        for (size_t c = 0; c < units.stored.pool.n_entries && in->query->form != CALM_INSPECT_TEXT; c++)
            add_cell(&units, u, c, least, &section->table);
    }
    if (!seen || in->query->form != CALM_INSPECT_TEXT)
        return CALM_OK;
    put_legend(in, &units, ctx->columns, &section->text);
    put_strip(in, &units, &section->text);
    return calm_text_check(ctx, &section->text);
}
