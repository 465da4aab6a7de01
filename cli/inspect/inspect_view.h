/* Views of a store: one per WHAT of `calm inspect STORE`.
 *
 * A view has sections, each a table under a name; inspect_section.c prints them as text, JSON or CSV.  The table of
 * views is in inspect_store.c. */
#pragma once

#include "cli/inspect/inspect.h"
#include "ptq/io/json.h"
#include "store/store.h"

/* SQL: the uniform plan that the choices of a run are: as its guard calls it, else the algorithm of all quantized jobs;
 * NULL: they are no such plan. */
#define CALM_INSPECT_UNIFORM(run)                                                                                     \
    "coalesce((SELECT u.subject FROM run_evaluation h JOIN run_evaluation u ON u.run_id = h.run_id AND u.role = "     \
    "h.role AND u.evaluation_id = h.evaluation_id AND u.subject <> h.subject WHERE h.run_id = " run " AND h.role = "  \
    "'guard' AND h.subject = 'hybrid' ORDER BY u.subject LIMIT 1), (SELECT a.name FROM choice c JOIN candidate k ON " \
    "k.id = c.candidate_id JOIN algorithm a ON a.id = k.algorithm_id WHERE c.run_id = " run " GROUP BY c.run_id "     \
    "HAVING count(DISTINCT k.algorithm_id || ' ' || k.scheme) = 1))"

/* SQL: what a plan of a run is called, by the name that the store has for it: a uniform plan is no hybrid, learned or
 * not. */
#define CALM_INSPECT_NAME(run, name)                                                                                  \
    "iif(" name " = 'hybrid' OR " name " LIKE 'hybrid,%', coalesce(" CALM_INSPECT_UNIFORM(run) " || substr(" name     \
    ", 7), " name "), " name ")"
#define CALM_INSPECT_RESULT CALM_INSPECT_NAME("r.id", "r.result") " AS result"

/* SQL, of run_evaluation v: what the plan is called; is the row the only one of its plan, or that of the choices? */
#define CALM_INSPECT_SUBJECT CALM_INSPECT_NAME("v.run_id", "v.subject") " AS subject"
#define CALM_INSPECT_ONCE                                                                                             \
    "NOT EXISTS (SELECT 1 FROM run_evaluation h WHERE h.run_id = v.run_id AND h.role = v.role AND h.evaluation_id = " \
    "v.evaluation_id AND h.subject = 'hybrid' AND v.subject <> 'hybrid')"

#define CALM_INSPECT_SECTIONS ((size_t)12)    /* at most, of one view */

typedef struct calm_inspect_section {
    const char *key;       /* member of the JSON, name in the CSV                                  */
    const char *title;     /* above it where a view has several sections                           */
    const char *none;      /* text that is printed when there are no rows; NULL: the headings      */
    bool fields;           /* text has one line per cell                                           */
    const char *brief;     /* columns that the text has, "entry|score"; NULL: all of them          */
    calm_table table;
    calm_json *json;       /* in the JSON instead of the rows; NULL: the rows; owned               */
    calm_text text;        /* in the text form instead of the table; empty: the table; owned       */
} calm_inspect_section;

/* A view being filled. */
typedef struct calm_inspection {
    const calm_inspect_query *query;
    calm_store *store;
    int64_t run, other;    /* runs to show; 0: all of them, or there is none                       */
    bool headed;           /* text begins with a line that names each run                          */
    bool raw;              /* columns are the user's: no style goes by their names                 */
    bool streams;          /* rows go to stdout as CSV as they come                                */
    calm_inspect_section sections[CALM_INSPECT_SECTIONS];
    size_t n_sections;
} calm_inspection;

/* A section to be filled with the rows of a query, or by its own function. */
typedef struct calm_inspect_list calm_inspect_list;
struct calm_inspect_list {
    const char *key, *title;    /* NULL ends an array                                          */
    const char *sql;
    size_t n_params;            /* of the view's parameters: ?1 is the run; of a view of units ?2 .. ?4 as
                                 * calm_inspect_unit_params has them; of two runs ?2 the other one, ?3 the metric */
    const char *none;
    bool fields;
    const char *brief;          /* of a section                                                            */
    calm_status (*fill)(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table);
};

/* ---- sections (inspect_section.c) ---- */

/* A new section without columns, owned by `in`. */
calm_inspect_section *calm_inspect_section_new(calm_inspection *in, const char *key, const char *title);

/* A new section for each of `lists`.  Fails as calm_store_query. */
calm_status calm_inspect_fill(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *lists,
                              const calm_value *params);

/* Print all sections to stdout in the form of the query; text begins with a line per run.  Of a view of several
 * sections CSV is one block per section, its name on its own line and an empty line between blocks. */
calm_status calm_inspect_print_sections(calm_ctx *ctx, calm_inspection *in, bool several);

/* Release the sections. */
void calm_inspection_clear(calm_inspection *in);

/* The same; end the reading of the store and close it. */
void calm_inspection_close(calm_inspection *in);

/* The form of a stored text that may stand in a message or on a terminal, in ctx->out. */
calm_status calm_inspect_printable(calm_ctx *ctx, const char *text, const char **out);

/* ---- runs (inspect_store.c) ---- */

/* The run that a word names; `owner` is the command, for the message.  CALM_EARG: no number from 1.  CALM_ENOTFOUND: no
 * such run; the message lists those that there are. */
calm_status calm_inspect_find_run(calm_ctx *ctx, calm_store *store, const char *owner, const char *word, int64_t *run);

/* The newest run; 0: there is none. */
calm_status calm_inspect_newest_run(calm_ctx *ctx, calm_store *store, int64_t *run);

/* ---- views, one per file ---- */

/* Plain lists (inspect_lists.c). */
extern const calm_inspect_list calm_inspect_summary[], calm_inspect_runs[], calm_inspect_blocks[],
    calm_inspect_candidates[], calm_inspect_scores[], calm_inspect_choices[], calm_inspect_evaluations[],
    calm_inspect_ablation[];

/* Everything about one run (inspect_show.c); the largest activations, where they emerge, the tokens that carry them
 * (inspect_activations.c); what differs between two runs (inspect_diff.c). */
extern const calm_inspect_list calm_inspect_show[], calm_inspect_activations[], calm_inspect_diff[];

/* Bytes of runs against what they lose (inspect_rate.c). */
extern const calm_inspect_list calm_inspect_rate[];

/* For calm report alone, with ?1 the run: the 100 largest activations (inspect_activations.c); histograms of all hook
 * points, as a JSON object {hook: {"first": bin, "counts": []}} (inspect_maxima.c); experts, learned blocks, and the
 * windows of the run's test; the runs of the same model (inspect_lists.c). */
extern const calm_inspect_list calm_inspect_peaks[], calm_inspect_histograms[], calm_inspect_parts[],
    calm_inspect_model_runs[];

/* What a hook point's maximum costs in INT8, and how it depends on the windows (inspect_maxima.c): fill functions. */
calm_status calm_inspect_int8(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table);
calm_status calm_inspect_subsets(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *list, calm_table *table);

/* A strip per unit, a cell per candidate of the pool (inspect_layers.c). */
calm_status calm_inspect_layers(calm_ctx *ctx, calm_inspection *in);

/* Why a unit has what it has (inspect_why.c). */
calm_status calm_inspect_why(calm_ctx *ctx, calm_inspection *in);
