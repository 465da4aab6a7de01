/* calm gc: removes what no kept run needs. */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/command.h"
#include "cli/print.h"
#include "store/gc.h"

#define MOST_RUNS 100000

typedef struct options {
    calm_common common;
    const char *store;
    calm_words drop;
    long long keep;
    bool dry_run, json;
} options;

static const calm_option table[] = {
    CALM_OPT_STORE,
    CALM_OPT("keep", keep, INT, "keep only the newest N runs, interrupted ones included (default: all)",
             .fallback = "-1", .min = 0, .max = 1e9, .metavar = "N"),
    CALM_OPT("drop", drop, WORDS, "runs to drop: 1,4,7", .max = MOST_RUNS, .metavar = "RUN,RUN"),
    CALM_OPT("dry-run", dry_run, BOOL, "say what calm would remove, and change nothing"),
    CALM_OPT("json", json, BOOL, "print {store, dry_run, dropped: [run], kept: [run], freed: [{kind, rows, bytes}], "
             "file: {bytes_before, bytes_after}, note}"),
    CALM_OPT_COMMON,
    {0},
};

/* Parses numbers from 1. */
static calm_status parse_runs(calm_ctx *ctx, const calm_words *words, calm_gc_plan *plan)
{
    int64_t *runs;
    CALM_TRY(CALM_NEW(ctx, ctx->out, runs, words->n));
    plan->drop = runs;
    for (size_t i = 0; i < words->n; i++) {
        char *end;
        errno = 0;
        const long long run = strtoll(words->of[i], &end, 10);
        if (!isdigit((unsigned char)words->of[i][0]) || errno || run < 1 || *end)
            return calm_fail(ctx, CALM_EARG, "calm gc: --drop: expected numbers of runs, as 1,4,7, found \"%.40s\"",
                             words->of[i]);
        runs[plan->n_drop++] = run;
    }
    return CALM_OK;
}

/* ---- what is printed ---- */

static void add_rows(const calm_gc_result *freed, bool all, calm_table *rows)
{
    calm_table_columns(rows, "kind|#rows|#bytes");
    for (size_t i = 0; i < freed->n_kinds; i++)
        if (all || freed->kinds[i].rows)
            CALM_CELLS(rows, CALM_TEXT(freed->kinds[i].kind), CALM_INT(freed->kinds[i].rows),
                       CALM_INT(freed->kinds[i].bytes));
}

static calm_json *numbers(const int64_t *ids, size_t n)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < n; i++)
        calm_json_add(list, calm_json_of_int(ids[i]));
    return list;
}

static calm_status print_json(calm_ctx *ctx, const options *o, const calm_gc_result *freed, calm_table *rows)
{
    return calm_print_json(
        ctx, CALM_OBJECT(CALM_KV("store", o->store), CALM_KV("dry_run", o->dry_run),
                         CALM_KV("dropped", numbers(freed->dropped, freed->n_dropped)),
                         CALM_KV("kept", numbers(freed->kept, freed->n_kept)),
                         CALM_KV("freed", calm_rows_json(ctx, rows)),
                         CALM_KV("file", CALM_OBJECT(CALM_KV("bytes_before", freed->bytes_before),
                                                     CALM_KV("bytes_after", freed->bytes_after))),
                         CALM_KV("note", freed->note)));
}

/* Writes ids as "1, 3-7". */
static void write_runs(calm_text *text, const char *words, const int64_t *ids, size_t n)
{
    calm_text_printf(text, "%s", words);
    for (size_t i = 0, last; i < n; i = last + 1) {
        for (last = i; last + 1 < n && ids[last + 1] == ids[last] + 1;)
            last++;
        calm_text_printf(text, "%s%lld", i ? ", " : " ", (long long)ids[i]);
        if (last > i)
            calm_text_printf(text, "-%lld", (long long)ids[last]);
    }
    calm_text_printf(text, "%s\n", n ? "" : " none");
}

static calm_status print_text(calm_ctx *ctx, const options *o, const calm_gc_result *freed, calm_table *rows)
{
    const double beside = (double)freed->beside_bytes / 1e6,
                 shrunk = (double)(freed->bytes_before - freed->bytes_after) / 1e6;
    CALM_SCOPED_TEXT(text);
    write_runs(&text, o->dry_run ? "Runs that would go:" : "Runs dropped:", freed->dropped, freed->n_dropped);
    write_runs(&text, o->dry_run ? "Runs that would stay:" : "Runs kept:", freed->kept, freed->n_kept);
    calm_text_append(&text, "\n", 1);
    if (calm_table_rows(rows))
        calm_table_write(ctx, rows, 2, &text);
    else
        calm_text_printf(&text, "Every row and blob is needed by a run.\n");
    if (o->dry_run)
        calm_text_printf(&text, "\nWould free %.1f MB of blobs, and what the rows take of the %.1f MB of %s.\n",
                         beside, (double)freed->bytes_before / 1e6, o->store);
    else
        calm_text_printf(&text, "\nFreed %.1f MB: %.1f MB of blobs, %.1f MB of %s, which has %.1f MB now.\n",
                         beside + shrunk, beside, shrunk, o->store, (double)freed->bytes_after / 1e6);
    if (freed->note)
        calm_text_printf(&text, "%s: %s.\n", o->store, freed->note);
    return calm_print_text(ctx, &text);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_gc_plan plan = {.keep = o->keep, .dry_run = o->dry_run};
    calm_gc_result freed;
    CALM_SCOPED_TABLE(rows);
    CALM_TRY(parse_runs(ctx, &o->drop, &plan));
    CALM_TRY(calm_store_gc_file(ctx, o->store, "calm gc", &plan, &freed));
    add_rows(&freed, o->json, &rows);
    return o->json ? print_json(ctx, o, &freed, &rows) : print_text(ctx, o, &freed, &rows);
}

const calm_command calm_cmd_gc = {
    .name = "gc",
    .summary = "remove from a store what no kept run needs",
    .description =
        "Drops runs from a store, then every row and blob that no remaining run needs, and compacts the file.  "
        "Without --keep and --drop all runs stay, and calm removes only the leftovers of killed runs.  A run that "
        "did not finish keeps everything that it needs to continue.",
    .examples = "  calm gc --dry-run                    what calm would remove\n"
                "  calm gc --keep 5                     the newest five runs stay\n"
                "  calm gc --drop 3,4 --store calm.db\n\n"
                "The size of rows is that of their values; the size of blobs, and of the hidden\n"
                "states of a guard that no run continues, is that of the files.  While a run\n"
                "writes to the store, calm gc names that run and does nothing; --dry-run works.\n"
                "Checkpoints of runs stay.\n",
    CALM_COMMAND_PARTS,
};
