/* Sections of a view: reads rows of queries into tables and prints tables as text, JSON or CSV. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect/inspect_view.h"
#include "cli/print.h"
#include "ptq/base/message.h"

#define STREAM_CELLS ((size_t)8192)    /* cells in memory while rows stream */

/* ---- errors ---- */

calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names, size_t n)
{
    CALM_SCOPED_TEXT(known);
    char hint[CALM_HINT_MAX];
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&known, "%s%s", i ? ", " : "", names[i]);
    return calm_fail(ctx, CALM_EARG, "%s: cannot show \"%s\"%s; known: %s", owner, what,
                     calm_did_you_mean(hint, what, names, n), known.data ? known.data : "");
}

/* ---- columns: how numbers are shown; everything else is text ---- */

typedef struct column {
    calm_cell cell;
    const char *names;    /* separated by spaces */
} column;

static const column numeric[] = {
    {CALM_INT(0), " run block candidate version models runs candidates failed scores activations choices id "
                   "blob_bytes bytes bytes_before bytes_after parameters blocks hidden_size vocab_size windows "
                   "window_tokens tokens seed score_windows out in weights channel channels window position massive "
                   "changed_units "},
    {CALM_BOOL(false), " chosen disagrees front holds same_text "},
    {CALM_FIXED(0, 1), " crest crest_max ratio_median ratio_max times_median percent "},
    {CALM_FIXED(0, 2), " seconds activation_max max largest_growth max_block_out "},
    {CALM_FIXED(0, 3), " bits bits_per_weight log_rel_mse q999 "},
    {CALM_FIXED(0, 4), " ppl ppl_float ppl_result ppl_first ppl_second top1 top1_first top1_second median rms mean std "
                     "size_ratio share "},
    {CALM_FIXED(0, 5), " nll kl kl_result kl_first kl_second delta_kl delta_se error one_minus_cosine "
                     "delta_one_minus_cosine "},
    {CALM_FIXED(0, 6), " cosine cosine_min cosine_result cosine_first cosine_second spearman "},
    {CALM_SCIENTIFIC(0, 1), " damp "},
    {CALM_SCIENTIFIC(0, 2), " one_minus_cka one_minus_cka_token rel_mse "},
    {CALM_SCIENTIFIC(0, 3), " value "},
};

/* Finds the number format of a column by its name; NULL: values in full. */
static const column *find_column(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof numeric / sizeof *numeric; i++)
        for (const char *at = numeric[i].names; (at = strstr(at, name)); at += n)
            if (n && at > numeric[i].names && at[-1] == ' ' && at[n] == ' ')
                return &numeric[i];
    return NULL;
}

/* ---- rows ---- */

/* Adds bytes in SQL's notation: X'00FF'. */
static calm_status add_blob(calm_ctx *ctx, calm_table *table, const calm_value *value)
{
    CALM_SCOPED_TEXT(text);
    calm_text_printf(&text, "X'");
    for (size_t i = 0; i < value->n_bytes; i++)
        calm_text_printf(&text, "%02X", (unsigned char)value->text[i]);
    calm_text_printf(&text, "'");
    CALM_TRY(calm_text_check(ctx, &text));
    calm_table_text(table, text.data);
    return CALM_OK;
}

static calm_status add_value(calm_ctx *ctx, calm_table *table, const column *how, const calm_value *value)
{
    calm_cell cell = value->type == CALM_VALUE_INTEGER ? (calm_cell)CALM_INT(0) : (calm_cell)CALM_NUMBER(0);
    if (value->type == CALM_VALUE_BLOB)
        return add_blob(ctx, table, value);
    if (value->type == CALM_VALUE_TEXT)
        cell = (calm_cell)CALM_TEXT(value->text);
    else if (value->type == CALM_VALUE_NULL)
        cell = (calm_cell)CALM_EMPTY;
    else if (how && how->cell.type != CALM_CELL_INT)
        cell = how->cell;
    cell.integer = value->integer;
    cell.number = value->type == CALM_VALUE_INTEGER ? (double)value->integer : value->real;
    calm_table_cells(table, &cell, 1);
    return CALM_OK;
}

/* Adds a heading.  Two columns of one name would be one member of a JSON row, so the second becomes "name:1". */
static void add_heading(calm_table *table, const char *const *names, size_t i, calm_align align)
{
    char name[256];
    size_t before = 0;
    for (size_t k = 0; k < i; k++)
        before += strcmp(names[k], names[i]) == 0;
    if (before)
        snprintf(name, sizeof name, "%.200s:%zu", names[i], before);
    calm_table_column(table, before ? name : names[i], align);
}

/* Aligns a column by its first value: columns without a style, and numeric ones that hold text. */
static void align_by(const calm_value *value, calm_table_heading *heading)
{
    if (value->type == CALM_VALUE_TEXT)
        heading->align = CALM_ALIGN_LEFT;
    else if (value->type == CALM_VALUE_INTEGER || value->type == CALM_VALUE_REAL)
        heading->align = CALM_ALIGN_RIGHT;
}

static calm_status add_row(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    calm_inspection *in = user;
    calm_table *table = &in->sections[in->n_sections - 1].table;
    for (size_t i = 0; i < n; i++) {
        const column *how = in->raw ? NULL : find_column(names[i]);
        if (values && table->n_cells == i && !(how && how->cell.type == CALM_CELL_BOOL))
            align_by(&values[i], &table->headings[i]);
        if (values)
            CALM_TRY(add_value(ctx, table, how, &values[i]));
        else
            add_heading(table, names, i, how && how->cell.type != CALM_CELL_BOOL ? CALM_ALIGN_RIGHT : CALM_ALIGN_LEFT);
    }
    return in->streams && table->n_cells >= STREAM_CELLS ? calm_print_csv(ctx, table, stdout) : CALM_OK;
}

calm_inspect_section *calm_inspect_section_new(calm_inspection *in, const char *key, const char *title)
{
    assert(in->n_sections < CALM_INSPECT_SECTIONS);
    calm_inspect_section *section = &in->sections[in->n_sections++];
    *section = (calm_inspect_section){.key = key, .title = title};
    return section;
}

calm_status calm_inspect_fill(calm_ctx *ctx, calm_inspection *in, const calm_inspect_list *lists,
                              const calm_value *params)
{
    for (const calm_inspect_list *list = lists; list->key; list++) {
        calm_inspect_section *section = calm_inspect_section_new(in, list->key, list->title);
        section->none = list->none;
        section->fields = list->fields;
        section->brief = list->brief;
        CALM_TRY(list->fill ? list->fill(ctx, in, list, &section->table)
                            : calm_store_query(ctx, in->store, list->sql, params, list->n_params, add_row, in));
    }
    return CALM_OK;
}

void calm_inspection_clear(calm_inspection *in)
{
    for (size_t i = 0; i < in->n_sections; i++) {
        calm_table_clear(&in->sections[i].table);
        calm_text_clear(&in->sections[i].text);
        calm_json_free(in->sections[i].json);
    }
    in->n_sections = 0;
}

void calm_inspection_close(calm_inspection *in)
{
    calm_inspection_clear(in);
    calm_store_close(in->store);
}

calm_status calm_inspect_printable(calm_ctx *ctx, const char *text, const char **out)
{
    CALM_SCOPED_TEXT(shown);
    calm_table_printable(text, &shown, NULL);
    return calm_text_take(ctx, ctx->out, &shown, out, NULL);
}

/* ---- printing ---- */

static calm_status print_json(calm_ctx *ctx, calm_inspection *in)
{
    calm_json *root = calm_json_new_object();
    for (size_t i = 0; i < in->n_sections && ctx->status == CALM_OK; i++) {
        calm_inspect_section *section = &in->sections[i];
        calm_json_set(root, section->key, section->json ? section->json : calm_rows_json(ctx, &section->table));
        section->json = NULL;
    }
    return calm_print_json(ctx, root);
}

static calm_status print_csv(calm_ctx *ctx, calm_inspection *in, bool several)
{
    CALM_SCOPED_TEXT(text);
    if (in->streams)
        return calm_print_csv(ctx, &in->sections[0].table, stdout);
    for (size_t i = 0; i < in->n_sections && ctx->status == CALM_OK; i++) {
        if (several)
            calm_text_printf(&text, "%s%s\r\n", i ? "\r\n" : "", in->sections[i].key);
        calm_table_write_csv(ctx, &in->sections[i].table, &text);
    }
    return calm_print_text(ctx, &text);
}

/* Appends "Run 3: qwen, finished". */
static calm_status write_run(calm_ctx *ctx, calm_store *store, int64_t run, calm_text *out)
{
    calm_value row[2];
    const char *shown[2];
    const calm_value param = calm_value_int(run);
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT m.name, r.status FROM run r JOIN model m ON m.id = r.model_id "
                                              "WHERE r.id = ?1", &param, 1, row, 2));
    for (size_t i = 0; i < 2; i++)
        CALM_TRY(calm_inspect_printable(ctx, row[i].type == CALM_VALUE_TEXT ? row[i].text : "", &shown[i]));
    calm_text_printf(out, "Run %lld: %s, %s\n", (long long)run, shown[0], shown[1]);
    return CALM_OK;
}

/* Appends the columns that fit; on a narrow terminal a line below names the others. */
static calm_status write_rows(calm_ctx *ctx, calm_table *table, size_t indent, bool raw, calm_text *out)
{
    CALM_SCOPED_TEXT(left);
    CALM_SCOPED_TEXT(line);
    if (!raw)
        CALM_TRY(calm_table_shorten(ctx, table, indent, &left));
    CALM_TRY(calm_table_write(ctx, table, indent, out));
    if (!left.length)
        return CALM_OK;
    calm_text_printf(&line, "%*snot shown here, but on a wider terminal, by --csv and --json: %s\n", (int)indent, "",
                     left.data);
    CALM_TRY(calm_text_check(ctx, &line));
    calm_table_fold(ctx, line.data, out);
    return CALM_OK;
}

static calm_status write_section(calm_ctx *ctx, calm_inspect_section *section, bool titled, bool raw,
                                 calm_text *out)
{
    const size_t indent = titled ? 2 : 0;
    if (titled)
        calm_table_fold(ctx, section->title, out);
    if (section->text.length) {
        calm_text_append(out, section->text.data, section->text.length);
        return calm_text_check(ctx, &section->text);
    }
    if ((section->none || !raw) && calm_table_rows(&section->table) == 0) {
        calm_text_printf(out, "%*s%s\n", (int)indent, "", section->none ? section->none : "none");
        return CALM_OK;
    }
    if (section->brief && !raw)
        calm_table_keep(&section->table, section->brief);
    if (section->fields)
        return calm_table_write_fields(ctx, &section->table, indent, out);
    if (!raw)
        calm_table_drop_empty(&section->table);
    return write_rows(ctx, &section->table, indent, raw, out);
}

static calm_status print_text(calm_ctx *ctx, calm_inspection *in, bool several)
{
    CALM_SCOPED_TEXT(text);
    if (in->headed)
        write_run(ctx, in->store, in->run, &text);
    if (in->headed && in->other && ctx->status == CALM_OK)
        write_run(ctx, in->store, in->other, &text);
    for (size_t i = 0; i < in->n_sections && ctx->status == CALM_OK; i++) {
        if (i || in->headed)
            calm_text_append(&text, "\n", 1);
        write_section(ctx, &in->sections[i], several, in->raw, &text);
    }
    return calm_print_text(ctx, &text);
}

calm_status calm_inspect_print_sections(calm_ctx *ctx, calm_inspection *in, bool several)
{
    if (in->query->form == CALM_INSPECT_JSON)
        return print_json(ctx, in);
    return in->query->form == CALM_INSPECT_CSV ? print_csv(ctx, in, several) : print_text(ctx, in, several);
}
