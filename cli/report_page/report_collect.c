/* Collects the store's data about one or several runs as one JSON value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/print.h"
#include "cli/report_page/report_page.h"
#include "ptq/state/measurement.h"

#define FORMAT 1    /* version of the data; raise it when a member changes its meaning or is removed */

/* Limits that keep a page below 5 MB for 20,000 candidates: bytes of histograms and matrix together, approximate
 * bytes per cell and per bin, and the number of bins that are always allowed. */
#define HISTOGRAMS_AND_MATRIX ((size_t)4000000)
#define CELL_BYTES ((size_t)140)
#define BIN_BYTES ((size_t)7)
#define BINS_MIN ((size_t)100000)

/* ---- sections of views as members ---- */

/* Adds lists to the data: `named`: rows are objects, for short lists; else columns and rows. */
static calm_status add_lists(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *lists, bool named,
                             calm_json *out)
{
    const calm_value params[] = {calm_value_int(in->run), calm_value_int(in->other),
                                 {.type = CALM_VALUE_NULL}, {.type = CALM_VALUE_NULL}};
    calm_inspection_clear(in);
    CALM_TRY(calm_inspect_fill(ctx, in, lists, params));
    for (size_t i = 0; i < in->n_sections; i++) {
        calm_inspect_section *section = &in->sections[i];
        calm_json *json = section->json;
        section->json = NULL;
        if (!json)
            json = (named ? calm_rows_json : calm_rows_json_columns)(ctx, &section->table);
        calm_json_set(out, section->key, json);
    }
    return ctx->status;
}

/* Adds those sections of a view that a report shows. */
static calm_status add_some(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *view, const char *const *keys,
                            calm_json *out)
{
    for (; view->key; view++)
        for (const char *const *key = keys; *key; key++)
            if (strcmp(view->key, *key) == 0) {
                const calm_inspect_list one[] = {*view, {0}};
                CALM_TRY(add_lists(ctx, in, one, false, out));
            }
    return CALM_OK;
}

/* ---- the result's loss and its standard error ---- */

/* Windows of the test evaluation, as calm_measure_compare reads them. */
typedef struct tested {
    size_t n, room;
    calm_eval_window *reference, *result;    /* decoder; the float model's windows have no divergence */
    double *cosines;                         /* encoder                                               */
} tested;

/* Finds a column of a {"columns", "rows"} table. */
static size_t find_column(const calm_json *table, const char *name)
{
    const calm_json *columns = calm_json_get(table, "columns");
    size_t i = 0;
    while (i < calm_json_size(columns) && strcmp(calm_json_string(calm_json_at(columns, i), ""), name) != 0)
        i++;
    return i;
}

static double cell(const calm_json *table, const calm_json *row, const char *name)
{
    return calm_json_number(calm_json_at(row, find_column(table, name)), NAN);
}

static calm_status read_windows(calm_ctx *ctx, const calm_json *windows, const char *result, tested *t)
{
    const calm_json *rows = calm_json_get(windows, "rows");
    const size_t n = calm_json_size(rows), subject = find_column(windows, "subject");
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, t->reference, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, t->result, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, t->cosines, n + 1));
    for (size_t i = 0; i < n; i++) {
        const calm_json *row = calm_json_at(rows, i);
        if (strcmp(calm_json_string(calm_json_at(row, subject), ""), result) != 0)
            continue;
        const double tokens = cell(windows, row, "tokens");
        t->cosines[t->n] = cell(windows, row, "cosine");
        t->result[t->n] = (calm_eval_window){.tokens = tokens > 0 ? (size_t)tokens : 0, .kl = cell(windows, row, "kl")};
        t->reference[t->n].tokens = t->result[t->n].tokens;
        t->n++;
    }
    return CALM_OK;
}

/* Adds the mean loss of the result on the test text with its standard error over windows; nothing if it was not
 * measured. */
static calm_status add_loss(calm_ctx *ctx, const char *result, calm_json *run)
{
    CALM_SCOPED_SCRATCH(ctx);
    tested t = {0};
    double loss = NAN, error = NAN;
    calm_embedding_distance *one, *same;
    CALM_TRY(read_windows(ctx, calm_json_get(run, "windows"), result, &t));
    const bool encoder = t.n && !isnan(t.cosines[0]);
    calm_measure float_model = {.kind = CALM_STORE_PREDICTIONS, .predictions = {.windows = t.reference}};
    calm_measure measured = {.kind = CALM_STORE_PREDICTIONS, .predictions = {.windows = t.result}};
    if (encoder) {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, one, t.n));
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, same, t.n));
        for (size_t i = 0; i < t.n; i++) {
            one[i] = (calm_embedding_distance){.cosine = t.cosines[i]};
            same[i] = (calm_embedding_distance){.cosine = 1};
        }
        float_model = (calm_measure){.kind = CALM_STORE_EMBEDDINGS, .embeddings = {.each = same}};
        measured = (calm_measure){.kind = CALM_STORE_EMBEDDINGS, .embeddings = {.each = one}};
    }
    if (t.n)
        calm_measure_compare(&float_model, &measured, t.n, &loss, &error);
    calm_json_set(run, "loss", CALM_OBJECT(CALM_KV("name", encoder ? "one_minus_cosine" : "kl"),
                                           CALM_KV("windows", t.n), CALM_KV("mean", loss), CALM_KV("se", error)));
    return CALM_OK;
}

/* ---- histograms ---- */

/* Returns the block in a hook's name, the first number in the name; 0: none. */
static size_t block_of(const char *hook)
{
    return strtoul(hook + strcspn(hook, "0123456789"), NULL, 10);
}

/* Keeps the histograms of every k-th block, with the least k for which the page has room next to its matrix. */
static void thin_histograms(calm_json *run)
{
    const calm_json *units = calm_json_get(calm_json_get(run, "matrix"), "units");
    const calm_json *all = calm_json_get(run, "histograms");
    calm_json *kept = calm_json_new_object();
    const calm_json *one;
    const char *hook;
    size_t cells = 0, bins = 0, k = 1;
    for (size_t u = 0; u < calm_json_size(units); u++)
        cells += calm_json_size(calm_json_get(calm_json_at(units, u), "cells"));
    for (void *at = NULL; calm_json_next(all, &at, &hook, &one);)
        bins += calm_json_size(calm_json_get(one, "counts"));
    while (k < bins && bins / k * BIN_BYTES + cells * CELL_BYTES > HISTOGRAMS_AND_MATRIX && bins / k > BINS_MIN)
        k++;
    for (void *at = NULL; calm_json_next(all, &at, &hook, &one);)
        if (block_of(hook) % k == 0)
            calm_json_set(kept, hook, calm_json_copy(one));
    calm_json_set(run, "histograms", kept);
    calm_json_set_int(run, "histograms_every", (int64_t)k);
}

/* ---- one run ---- */

static const char *result_of(const calm_json *run)
{
    return calm_json_string(calm_json_get(calm_json_at(calm_json_get(run, "run"), 0), "result"), "");
}

static calm_status add_run(calm_ctx *ctx, calm_inspection *in, calm_json *out)
{
    static const char *const activations[] = {"emergence", "tokens", "texts", "activations", NULL};
    calm_json *matrix;
    CALM_TRY(add_lists(ctx, in, calm_inspect_show, true, out));
    CALM_TRY(add_lists(ctx, in, calm_inspect_parts, false, out));
    CALM_TRY(add_loss(ctx, result_of(out), out));
    const calm_status status = calm_report_page_matrix(ctx, in, &matrix);
    calm_json_set(out, "matrix", matrix);
    CALM_TRY(status);
    CALM_TRY(add_some(ctx, in, calm_inspect_activations, activations, out));
    CALM_TRY(add_lists(ctx, in, calm_inspect_peaks, false, out));
    CALM_TRY(add_lists(ctx, in, calm_inspect_histograms, false, out));
    thin_histograms(out);
    CALM_TRY(add_lists(ctx, in, calm_inspect_ablation, false, out));
    return add_lists(ctx, in, calm_inspect_model_runs, false, out);
}

/* ---- the store ---- */

/* Finds the runs that words [n] name, into runs [1 + n] with a 0 at the end; n = 0: the newest run. */
static calm_status find_runs(calm_ctx *ctx, calm_store *store, const char *const *words, size_t n, int64_t *runs)
{
    if (!n)
        return calm_inspect_newest_run(ctx, store, &runs[0]);
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_inspect_find_run(ctx, store, "report", words[i], &runs[i]));
        for (size_t k = 0; k < i; k++)
            if (runs[k] == runs[i])
                return calm_fail(ctx, CALM_EARG, "calm report: run %lld twice; expected different runs, or one",
                                 (long long)runs[i]);
    }
    return CALM_OK;
}

static calm_status collect(calm_ctx *ctx, calm_inspection *in, const int64_t *runs, calm_json *root)
{
    calm_json *list = calm_json_new_array();
    calm_json_set(root, "runs", list);
    size_t n = 0;
    for (; runs[n]; n++) {
        calm_json *run = calm_json_new_object();
        calm_json_add(list, run);
        in->run = runs[n];
        in->other = 0;
        CALM_TRY(add_run(ctx, in, run));
    }
    calm_json *diff = n == 2 ? calm_json_new_object() : calm_json_new_null();
    calm_json_set(root, "diff", diff);
    if (n != 2)
        return CALM_OK;
    in->run = runs[0];
    in->other = runs[1];
    return add_lists(ctx, in, calm_inspect_diff, true, diff);
}

calm_status calm_report_page_collect(calm_ctx *ctx, const char *path, const char *const *words, size_t n,
                                     calm_json **out)
{
    static const calm_inspect_query query = {.what = "report", .form = CALM_INSPECT_JSON};
    CALM_SCOPED_JSON(root);
    calm_store *store;
    int64_t *runs;
    *out = NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->out, runs, n + 2));
    CALM_TRY(calm_store_open(ctx, path, NULL, &store));
    CALM_SCOPED(calm_inspection, calm_inspection_close) in = {.query = &query, .store = store};
    /* A transaction, so that all queries see the same state of a store while a run writes it. */
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(find_runs(ctx, store, words, n, runs));
    root = CALM_OBJECT(CALM_KV("format", (long long)FORMAT), CALM_KV("calm", CALM_VERSION), CALM_KV("store", path));
    CALM_TRY(collect(ctx, &in, runs, root));
    *out = root;
    root = NULL;
    return CALM_OK;
}
