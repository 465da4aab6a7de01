/* Views of a store: one per WHAT of `calm inspect STORE`.
 *
 * A view has sections, each a table under a name; inspect_section.c prints them as text, JSON or CSV.  The table of
 * views is in inspect_store.c. */
#pragma once

#include "cli/inspect/inspect.h"
#include "ptq/io/json.h"
#include "store/store.h"

/* SQL: the name of the uniform plan that equals the choices of a run: the name that the run's guard used, else the
 * algorithm of all quantized jobs; NULL: no uniform plan equals them. */
#define CALM_INSPECT_UNIFORM(run)                                                                                     \
    "coalesce((SELECT u.subject FROM run_evaluation h JOIN run_evaluation u ON u.run_id = h.run_id AND u.role = "     \
    "h.role AND u.evaluation_id = h.evaluation_id AND u.subject <> h.subject WHERE h.run_id = " run " AND h.role = "  \
    "'guard' AND h.subject = 'hybrid' ORDER BY u.subject LIMIT 1), (SELECT a.name FROM choice c JOIN candidate k ON " \
    "k.id = c.candidate_id JOIN algorithm a ON a.id = k.algorithm_id WHERE c.run_id = " run " GROUP BY c.run_id "     \
    "HAVING count(DISTINCT k.algorithm_id || ' ' || k.scheme) = 1))"

/* SQL: the name of a plan for display, from the name in the store: "hybrid", also "hybrid, learned", becomes the name
 * of the uniform plan if the choices are uniform. */
#define CALM_INSPECT_NAME(run, name)                                                                                  \
    "iif(" name " = 'hybrid' OR " name " LIKE 'hybrid,%', coalesce(" CALM_INSPECT_UNIFORM(run) " || substr(" name     \
    ", 7), " name "), " name ")"
#define CALM_INSPECT_RESULT CALM_INSPECT_NAME("r.id", "r.result") " AS result"

/* SQL for a row of run_evaluation v: the name of its plan; and whether to show the row: it is the hybrid's, or the
 * hybrid has no row for the same evaluation. */
#define CALM_INSPECT_SUBJECT CALM_INSPECT_NAME("v.run_id", "v.subject") " AS subject"
#define CALM_INSPECT_ONCE                                                                                             \
    "NOT EXISTS (SELECT 1 FROM run_evaluation h WHERE h.run_id = v.run_id AND h.role = v.role AND h.evaluation_id = " \
    "v.evaluation_id AND h.subject = 'hybrid' AND v.subject <> 'hybrid')"

#define CALM_INSPECT_SECTIONS ((size_t)12)    /* largest number of sections of a view */

typedef struct calm_inspect_section {
    const char *key;       /* member of the JSON, name in the CSV                          */
    const char *title;     /* heading if a view has several sections                       */
    const char *none;      /* text to print if there are no rows; NULL: print the headings */
    bool fields;           /* the text has one line per cell                               */
    const char *brief;     /* columns of the text, "entry|score"; NULL: all                */
    calm_table table;
    calm_json *json;       /* replaces the rows in the JSON; NULL: the rows; owned    */
    calm_text text;        /* replaces the table in the text; empty: the table; owned */
} calm_inspect_section;

/* A view while it is filled. */
typedef struct calm_inspection {
    const calm_inspect_query *query;
    calm_store *store;
    int64_t run, other;    /* runs to show; 0: all runs, or no run                               */
    bool headed;           /* the text begins with a line that names each run                    */
    bool raw;              /* the user named the columns, so their names choose no number format */
    bool streams;          /* rows go to stdout as CSV while the query runs                      */
    calm_inspect_section sections[CALM_INSPECT_SECTIONS];
    size_t n_sections;
} calm_inspection;

/* A section that a query or a function fills. */
typedef struct calm_inspect_list calm_inspect_list;
struct calm_inspect_list {
    const char *key, *title;    /* NULL ends an array */
    const char *sql;
    size_t n_params;            /* number of the query's parameters: ?1 is the run; in views of units ?2 .. ?4 are
                                 * those of calm_inspect_unit_params; in diff ?2 is the other run, ?3 the metric */
    const char *none;
    bool fields;
    const char *brief;          /* as in calm_inspect_section */
    calm_status (*fill)(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table);
};

/* ---- sections (inspect_section.c) ---- */

/* Adds a section without columns, owned by `in`. */
calm_inspect_section *calm_inspect_section_new(calm_inspection *in, const char *key, const char *title);

/* Adds and fills a section for each of `lists`.  Fails as calm_store_query. */
calm_status calm_inspect_fill(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *lists,
                              const calm_value *params);

/* Prints all sections to stdout in the form of the query; text begins with a line per run.  If a view has several
 * sections, CSV has a block per section, which begins with the section's name; an empty line separates blocks. */
calm_status calm_inspect_print_sections(calm_ctx *ctx, calm_inspection *in, bool several);

/* Frees the sections. */
void calm_inspection_clear(calm_inspection *in);

/* Frees the sections and closes the store. */
void calm_inspection_close(calm_inspection *in);

/* Copies a stored text to ctx->out in a form that is safe in a message or on a terminal. */
calm_status calm_inspect_printable(calm_ctx *ctx, const char *text, const char **out);

/* ---- runs (inspect_store.c) ---- */

/* Reads a run's number from a word; `owner` is the command, for the message.  CALM_EARG: no number from 1.
 * CALM_ENOTFOUND: no such run; the message lists the store's runs. */
calm_status calm_inspect_find_run(calm_ctx *ctx, calm_store *store, const char *owner, const char *word, int64_t *run);

/* Finds the newest run; 0: there is none. */
calm_status calm_inspect_newest_run(calm_ctx *ctx, calm_store *store, int64_t *run);

/* ---- views, one per file ---- */

/* Plain lists (inspect_lists.c). */
extern const calm_inspect_list calm_inspect_summary[], calm_inspect_runs[], calm_inspect_blocks[],
    calm_inspect_candidates[], calm_inspect_scores[], calm_inspect_choices[], calm_inspect_evaluations[],
    calm_inspect_ablation[];

/* All facts of one run (inspect_show.c); the largest activations, where they emerge, the tokens that carry them
 * (inspect_activations.c); differences between two runs (inspect_diff.c). */
extern const calm_inspect_list calm_inspect_show[], calm_inspect_activations[], calm_inspect_diff[];

/* Sizes of runs against their losses (inspect_rate.c). */
extern const calm_inspect_list calm_inspect_rate[];

/* Only for calm report; ?1 is the run: the 100 largest activations (inspect_activations.c); histograms of all hook
 * points, as a JSON object {hook: {"first": bin, "counts": []}} (inspect_maxima.c); experts, learned blocks, and the
 * windows of the run's test; the runs of the same model (inspect_lists.c). */
extern const calm_inspect_list calm_inspect_peaks[], calm_inspect_histograms[], calm_inspect_parts[],
    calm_inspect_model_runs[];

/* Fill functions: the INT8 error that a hook point's maximum causes, and how the maximum depends on the windows
 * (inspect_maxima.c). */
calm_status calm_inspect_int8(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table);
calm_status calm_inspect_subsets(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table);

/* Makes the view `layers`: a strip per unit with a cell per candidate of the pool (inspect_layers.c). */
calm_status calm_inspect_layers(calm_ctx *ctx, calm_inspection *in);

/* Makes the view `why`: the reasons for a unit's candidate (inspect_why.c). */
calm_status calm_inspect_why(calm_ctx *ctx, calm_inspection *in);
