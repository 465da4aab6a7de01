/* calm inspect STORE: has the table of views, and finds the runs to show. */
#include <string.h>

#include "cli/inspect/inspect_units.h"

/* Words that may follow WHAT. */
typedef enum words { RUNS_ALL, RUN_NEWEST, RUNS_TWO, SELECT } words;

/* One WHAT. */
typedef struct view {
    const char *name;
    words takes;          /* without a run's number RUNS_ALL shows all runs, RUN_NEWEST the newest */
    const calm_inspect_list *lists;
    calm_status (*fill)(calm_ctx *ctx, calm_inspection *in);    /* replaces the lists; neither: the SELECT */
    bool several;         /* has several sections */
    bool unit, metric;    /* takes --unit, --metric */
    bool needs_unit;
} view;

static const view views[] = {
    {"summary", RUNS_ALL, calm_inspect_summary, .several = true},
    {"runs", RUNS_ALL, calm_inspect_runs, .several = false},
    {"show", RUN_NEWEST, calm_inspect_show, .several = true},
    {"layers", RUN_NEWEST, .fill = calm_inspect_layers, .metric = true},
    {"blocks", RUN_NEWEST, calm_inspect_blocks, .unit = true},
    {"candidates", RUN_NEWEST, calm_inspect_candidates, .unit = true},
    {"scores", RUN_NEWEST, calm_inspect_scores, .unit = true},
    {"choices", RUN_NEWEST, calm_inspect_choices, .unit = true},
    {"why", RUN_NEWEST, .fill = calm_inspect_why, .several = true, .unit = true, .needs_unit = true},
    {"activations", RUN_NEWEST, calm_inspect_activations, .several = true},
    {"evaluations", RUN_NEWEST, calm_inspect_evaluations, .several = false},
    {"rate", RUNS_ALL, calm_inspect_rate, .several = false},
    {"ablation", RUNS_ALL, calm_inspect_ablation, .several = false},
    {"diff", RUNS_TWO, calm_inspect_diff, .several = true, .metric = true},
    {"sql", SELECT, .several = false},
};
#define N_VIEWS (sizeof views / sizeof *views)

const char *const *calm_inspect_views(size_t *n)
{
    static const char *names[N_VIEWS];
    for (size_t i = 0; i < N_VIEWS; i++)
        names[i] = views[i].name;
    *n = N_VIEWS;
    return names;
}

static calm_status find_view(calm_ctx *ctx, const char *path, const calm_inspect_query *query, const view **out)
{
    size_t n;
    const char *what = query->what ? query->what : "summary";
    *out = NULL;
    for (size_t i = 0; i < N_VIEWS && !*out; i++)
        *out = strcmp(views[i].name, what) == 0 ? &views[i] : NULL;
    if (!*out) {
        const char *const *names = calm_inspect_views(&n);
        return calm_inspect_unknown(ctx, path, what, names, n);
    }
    const size_t least = (*out)->takes == RUNS_TWO ? 2 : (*out)->takes == SELECT ? 1 : 0;
    const size_t most = least > 1 ? least : 1;
    if (query->n_args < least || query->n_args > most)
        return calm_fail(ctx, CALM_EARG, "calm inspect %s: expected %s, found %zu words", what,
                         least == 2 ? "two runs" : least == 1 ? "one SELECT" : "at most one run", query->n_args);
    if (query->unit && !(*out)->unit)
        return calm_fail(ctx, CALM_EARG, "calm inspect %s takes no --unit", what);
    if (query->metric && !(*out)->metric)
        return calm_fail(ctx, CALM_EARG, "calm inspect %s takes no --metric", what);
    if (!query->unit && (*out)->needs_unit)
        return calm_fail(ctx, CALM_EARG, "calm inspect %s: name a unit with --unit; calm inspect layers lists them",
                         what);
    return CALM_OK;
}

/* ---- runs ---- */

/* Fails with "it has 1, 2, 5"; with many runs it lists the newest. */
static calm_status no_run(calm_ctx *ctx, calm_store *store, int64_t asked)
{
    static const char sql[] =
        "SELECT group_concat(id, ', '), (SELECT count(*) FROM run) FROM "
        "(SELECT id FROM (SELECT id FROM run ORDER BY id DESC LIMIT 12) ORDER BY id)";
    calm_value row[2];
    CALM_TRY(calm_store_query_one(ctx, store, sql, NULL, 0, row, 2));
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld; it has %s%s", calm_store_path(store), (long long)asked,
                     row[1].integer > 12 ? "many, the newest are " : "", row[0].text ? row[0].text : "none");
}

calm_status calm_inspect_find_run(calm_ctx *ctx, calm_store *store, const char *owner, const char *word, int64_t *run)
{
    calm_value found;
    CALM_TRY(calm_stored_run_number(ctx, owner, word, run));
    const calm_value param = calm_value_int(*run);
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT count(*) FROM run WHERE id = ?1", &param, 1, &found, 1));
    return found.integer ? CALM_OK : no_run(ctx, store, *run);
}

calm_status calm_inspect_newest_run(calm_ctx *ctx, calm_store *store, int64_t *run)
{
    calm_value newest;
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT coalesce(max(id), 0) FROM run", NULL, 0, &newest, 1));
    *run = newest.integer;
    return CALM_OK;
}

/* Finds the runs to show; 0: all runs, or no run. */
static calm_status find_runs(calm_ctx *ctx, const view *shown, calm_inspection *in)
{
    if (shown->takes == SELECT)
        return CALM_OK;
    if (in->query->n_args > 0)
        CALM_TRY(calm_inspect_find_run(ctx, in->store, "inspect", in->query->args[0], &in->run));
    if (in->query->n_args > 1)
        return calm_inspect_find_run(ctx, in->store, "inspect", in->query->args[1], &in->other);
    if (in->run || shown->takes == RUNS_ALL)
        return CALM_OK;
    return calm_inspect_newest_run(ctx, in->store, &in->run);
}

/* ---- the command's part ---- */

/* Fills the sections of a view with the parameters that it takes: the run, --unit, or the other run and the metric. */
static calm_status fill(calm_ctx *ctx, const view *shown, calm_inspection *in)
{
    const calm_inspect_list select[] = {{"sql", "sql", .sql = in->query->n_args ? in->query->args[0] : NULL}, {0}};
    calm_value params[4] = {calm_value_int(in->run), calm_value_int(in->other), calm_value_text(in->query->metric)};
    if (shown->fill)
        return shown->fill(ctx, in);
    if (shown->unit)
        CALM_TRY(calm_inspect_unit_params(ctx, in, params + 1));
    return calm_inspect_fill(ctx, in, shown->lists ? shown->lists : select, params);
}

calm_status calm_inspect_store(calm_ctx *ctx, const char *path, const calm_inspect_query *query)
{
    const view *shown;
    calm_store *store;
    CALM_TRY(find_view(ctx, path, query, &shown));
    CALM_TRY(calm_store_open(ctx, path, NULL, &store));
    CALM_SCOPED(calm_inspection, calm_inspection_close) in = {.query = query, .store = store};
    /* A transaction, so that all queries of a view see the same state of a store while a run writes it. */
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(find_runs(ctx, shown, &in));
    in.headed = shown->takes != RUNS_ALL && in.run;
    in.raw = shown->takes == SELECT;
    in.streams = query->form == CALM_INSPECT_CSV && !shown->several;
    CALM_TRY(fill(ctx, shown, &in));
    return calm_inspect_print_sections(ctx, &in, shown->several);
}
