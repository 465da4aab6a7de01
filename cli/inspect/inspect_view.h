/* Views of a store: one per WHAT of `calm inspect STORE`.
 *
 * A view fills sections, each a table under a name; inspect_section.c prints them as text, JSON or CSV.  The table of
 * views is in inspect_store.c. */
#ifndef CALM_CLI_INSPECT_INSPECT_VIEW_H
#define CALM_CLI_INSPECT_INSPECT_VIEW_H

#include "cli/inspect/inspect.h"
#include "ptq/io/json.h"
#include "store/store.h"

#define CALM_INSPECT_SECTIONS ((size_t)12)    /* at most, of one view */

typedef struct calm_inspect_section {
    const char *key;       /* member of the JSON, name in the CSV                                  */
    const char *title;     /* above it where a view has several sections                           */
    const char *none;      /* text that is printed when there are no rows; NULL: the headings      */
    bool fields;           /* text has one line per cell                                           */
    bool titled;           /* the title is printed even when there is no other section             */
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

/* ---- sections (inspect_section.c) ---- */

/* A new section without columns, owned by `in`. */
calm_inspect_section *calm_inspect_section_new(calm_inspection *in, const char *key, const char *title);

/* A new section with the rows of a query with params [n]; *out (NULL: not wanted) is it.  Fails as calm_store_query. */
calm_status calm_inspect_select(calm_ctx *ctx, calm_inspection *in, const char *key, const char *title, const char *sql,
                                const calm_value *params, size_t n, calm_inspect_section **out);

/* Print all sections to stdout in the form of the query; text begins with a line per run.  Of a view of several
 * sections CSV is one block per section, its name on a line of its own and an empty line between blocks. */
calm_status calm_inspect_print_sections(calm_ctx *ctx, calm_inspection *in, bool several);

/* Release the sections. */
void calm_inspection_clear(calm_inspection *in);

/* The form of a stored text that may stand in a message or on a terminal, in ctx->out. */
calm_status calm_inspect_printable(calm_ctx *ctx, const char *text, const char **out);

/* ---- views, one per file ---- */

/* Plain lists (inspect_lists.c). */
calm_status calm_inspect_summary(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_runs(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_blocks(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_candidates(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_scores(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_choices(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_evaluations(calm_ctx *ctx, calm_inspection *in);
calm_status calm_inspect_ablation(calm_ctx *ctx, calm_inspection *in);

/* One SELECT of the user (inspect_lists.c).  CALM_EARG: it is wrong, or would
 * write. */
calm_status calm_inspect_sql(calm_ctx *ctx, calm_inspection *in);

/* Everything about one run (inspect_show.c). */
calm_status calm_inspect_show(calm_ctx *ctx, calm_inspection *in);

/* A strip per unit, a cell per candidate of the pool (inspect_layers.c). */
calm_status calm_inspect_layers(calm_ctx *ctx, calm_inspection *in);

/* Why a unit has what it has (inspect_why.c). */
calm_status calm_inspect_why(calm_ctx *ctx, calm_inspection *in);

/* The largest activations, where they emerge, the tokens that carry them (inspect_activations.c). */
calm_status calm_inspect_activations(calm_ctx *ctx, calm_inspection *in);

/* What differs between two runs (inspect_diff.c). */
calm_status calm_inspect_diff(calm_ctx *ctx, calm_inspection *in);

#endif
