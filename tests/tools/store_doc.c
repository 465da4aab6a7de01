/* store_doc: compares docs/store.md with the program.
 *
 * The tool makes the lines between <!-- schema --> and <!-- /schema --> from store/schema.sql and its comments.  Each
 * ```sql block that another block follows is a query, and that block its rows, from a store with make_store's rows
 * (synth_store.h).  Without --update it reports where the file differs; with it, it corrects the file. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/text/table.h"
#include "ptq/base/file.h"
#include "store/sql.h"
#include "tests/tools/page.h"
#include "tests/tools/synth_store.h"
#include "tests/tools/tool.h"

#define LEAST_QUERIES 2

typedef struct arguments {
    const char *docs;
    bool update, schema;
} arguments;

static const calm_option table[] = {
    {"docs", "docs/store.md", offsetof(arguments, docs), CALM_OPTION_STRING, .metavar = "FILE"},
    {"update", "put the file right", offsetof(arguments, update), CALM_OPTION_BOOL, .metavar = NULL},
    {"schema", "print the schema's section alone", offsetof(arguments, schema), CALM_OPTION_BOOL, .metavar = NULL},
    {0}};

/* ---- the schema ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Does the line declare this column?  A table's column is the first word, a view's the last, "... AS name,". */
static bool declares(const char *line, const char *comment, const char *name, bool view)
{
    const size_t n = strlen(name);
    const char *at = line + strspn(line, " ");
    if (!view)
        return strncmp(at, name, n) == 0 && at[n] == ' ';
    while (comment > line && strchr(" ,", comment[-1]))
        comment--;
    return comment - line > (long)n + 3 && strncmp(comment - n, name, n) == 0 && strncmp(comment - n - 3, "AS ", 3) == 0
           && !is_word(comment[-(long)n - 1]);
}

/* Finds the comment on the line that declares a column; `name` NULL: the comment on the first line. */
static calm_status comment_of(calm_ctx *ctx, const char *sql, const char *name, bool view, const char **out)
{
    for (const char *line = sql; *line;) {
        const size_t length = strcspn(line, "\n");
        const char *comment = strstr(line, "--");
        if (comment && comment < line + length && (!name || declares(line, comment, name, view))) {
            comment += 2 + strspn(comment + 2, " ");
            char *copy;
            CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%.*s", (int)(line + length - comment), comment));
            *out = copy;
            return CALM_OK;
        }
        line += length + (line[length] == '\n');
    }
    return calm_fail(ctx, CALM_EFORMAT, "store/schema.sql: \"%s\" has no comment: %.60s", name ? name : "it", sql);
}

/* Appends the single column of every row of a query with one parameter. */
static calm_status add_rows(calm_ctx *ctx, calm_sql *sql, const char *query, const char *param, calm_text *out)
{
    calm_statement *row;
    const char *text;
    CALM_TRY(calm_sql_first(ctx, sql, query, CALM_BIND(CALM_T(param)), &row));
    while (calm_sql_next(ctx, sql, row) && calm_sql_text(ctx, row, 0, &text) == CALM_OK)
        if (text)
            calm_text_printf(out, "%s", text);
    calm_sql_end(row);
    return ctx->status;
}

static calm_status add_columns(calm_ctx *ctx, calm_sql *sql, const char *name, const char *text, bool view,
                               calm_text *out)
{
    calm_statement *row;
    const char *column, *type, *comment;
    CALM_TRY(calm_sql_first(
        ctx, sql,
        "SELECT c.name, c.type || iif(c.\"notnull\" OR c.pk, '', ' or NULL') || coalesce((SELECT ', `' || f.\"table\" "
        "|| '.' || f.\"to\" || '`' FROM pragma_foreign_key_list(?1) f WHERE f.\"from\" = c.name), '') FROM "
        "pragma_table_info(?1) c",
        CALM_BIND(CALM_T(name)), &row));
    calm_text_printf(out, view ? "| column | meaning |\n|---|---|\n" : "| column | type | meaning |\n|---|---|---|\n");
    while (calm_sql_next(ctx, sql, row)) {
        if (calm_sql_text(ctx, row, 0, &column) != CALM_OK || calm_sql_text(ctx, row, 1, &type) != CALM_OK ||
            comment_of(ctx, text, column, view, &comment) != CALM_OK)
            break;
        calm_text_printf(out, "| `%s` | ", column);
        if (!view)
            calm_text_printf(out, "%s | ", type);
        page_cell(out, comment);
        calm_text_printf(out, " |\n");
    }
    calm_sql_end(row);
    return ctx->status;
}

/* Appends "Primary key: `run_id, job_id`." and other keys. */
static calm_status add_keys(calm_ctx *ctx, calm_sql *sql, const char *name, calm_text *out)
{
    CALM_TRY(add_rows(ctx, sql,
                      "SELECT 'Primary key: `' || group_concat(name, ', ') || '`.' FROM (SELECT name FROM"
                      " pragma_table_info(?1) WHERE pk ORDER BY pk)", name, out));
    CALM_TRY(
        add_rows(ctx, sql,
                 "SELECT '  Unique: `' || (SELECT group_concat(name, ', ') FROM pragma_index_info(l.name)) || '`.' FROM"
                 " pragma_index_list(?1) l WHERE l.origin = 'u' ORDER BY l.seq",
                 name, out));
    CALM_TRY(add_rows(
        ctx, sql,
        "SELECT '  Index `' || l.name || '`: `' || (SELECT group_concat(name, ', ') FROM"
        " pragma_index_info(l.name)) || '`.' FROM pragma_index_list(?1) l WHERE l.origin = 'c' ORDER BY l.name",
        name, out));
    CALM_TRY(add_rows(
        ctx, sql,
        "SELECT '  Goes with its ' || group_concat(name, ' and ') || '.' FROM (SELECT DISTINCT '`' || \"table\" || '`'"
        " AS name FROM pragma_foreign_key_list(?1) WHERE on_delete = 'CASCADE' ORDER BY id DESC)",
        name, out));
    return CALM_OK;
}

/* Appends "Check: `json_valid(recipe)`." for each check. */
static void add_checks(const char *text, calm_text *out)
{
    for (const char *at = text; (at = strstr(at, "\n  CHECK (")); at++) {
        const char *begin = at + strlen("\n  CHECK (");
        size_t n = strcspn(begin, "\n");
        while (n && begin[n - 1] != ')')
            n--;
        calm_text_printf(out, "  Check: `%.*s`.", (int)(n ? n - 1 : 0), begin);
    }
    calm_text_printf(out, "\n\n");
}

static calm_status add_object(calm_ctx *ctx, calm_sql *sql, const char *name, const char *text, bool view,
                              calm_text *out)
{
    const char *comment;
    CALM_TRY(comment_of(ctx, text, NULL, view, &comment));
    calm_text_printf(out, "### %s\n\n%s.\n\n", name, comment);
    CALM_TRY(add_columns(ctx, sql, name, text, view, out));
    calm_text_printf(out, "\n");
    if (view)
        return CALM_OK;
    CALM_TRY(add_keys(ctx, sql, name, out));
    add_checks(text, out);
    return CALM_OK;
}

static calm_status add_objects(calm_ctx *ctx, calm_sql *sql, bool view, calm_text *out)
{
    calm_statement *row;
    const char *name, *text;
    CALM_TRY(calm_sql_first(ctx, sql, "SELECT name, sql FROM sqlite_master WHERE type = ?1 ORDER BY rowid",
                            CALM_BIND(CALM_T(view ? "view" : "table")), &row));
    while (calm_sql_next(ctx, sql, row))
        if (calm_sql_text(ctx, row, 0, &name) != CALM_OK || calm_sql_text(ctx, row, 1, &text) != CALM_OK ||
            add_object(ctx, sql, name, text, view, out) != CALM_OK)
            break;
    calm_sql_end(row);
    return ctx->status;
}

static calm_status write_schema(calm_ctx *ctx, calm_text *out)
{
    calm_sql *sql;
    CALM_TRY(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &sql));
    calm_status status = calm_sql_script(ctx, sql, calm_store_schema());
    calm_text_printf(out, "## Tables\n\n");
    if (status == CALM_OK)
        status = add_objects(ctx, sql, false, out);
    calm_text_printf(out, "## Views\n\n");
    if (status == CALM_OK)
        status = add_objects(ctx, sql, true, out);
    calm_sql_close(sql);
    return status == CALM_OK ? calm_text_check(ctx, out) : status;
}

/* ---- queries ---- */

static calm_status add_row(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *values)
{
    calm_table *shown = user;
    (void)ctx;
    for (size_t i = 0; i < n; i++) {
        if (!values)
            calm_table_column(shown, names[i], CALM_ALIGN_LEFT);
        else if (values[i].type == CALM_VALUE_INTEGER)
            CALM_CELLS(shown, CALM_INT(values[i].integer));
        else if (values[i].type == CALM_VALUE_REAL)
            calm_table_format(shown, "%.6g", values[i].real);
        else
            calm_table_text(shown, values[i].type == CALM_VALUE_TEXT ? values[i].text : NULL);
    }
    return CALM_OK;
}

static calm_status write_rows(calm_ctx *ctx, calm_store *store, const char *query, calm_text *out)
{
    calm_table shown;
    shown = (calm_table){0};
    calm_status status = calm_store_query(ctx, store, query, NULL, 0, add_row, &shown);
    if (status == CALM_OK && calm_table_rows(&shown) == 0)
        status = calm_fail(ctx, CALM_EFORMAT, "a query without rows shows nothing: %.80s", query);
    if (status == CALM_OK)
        status = calm_table_write(ctx, &shown, 0, out);
    calm_table_clear(&shown);
    return status;
}

/* ---- the file ---- */

typedef struct document {
    const char *at;    /* the rest to copy */
    calm_text out;
    calm_store *store;
    int n_queries;
} document;

/* Copies up to and including the next `mark`; false if there is none. */
static bool copy_through(document *it, const char *mark)
{
    const char *found = strstr(it->at, mark);
    if (!found)
        return false;
    calm_text_append(&it->out, it->at, (size_t)(found - it->at) + strlen(mark));
    it->at = found + strlen(mark);
    return true;
}

static calm_status renew_schema(calm_ctx *ctx, document *it, const char *path)
{
    if (!copy_through(it, "<!-- schema -->\n") || !strstr(it->at, "<!-- /schema -->\n"))
        return calm_fail(ctx, CALM_EFORMAT, "%s: no lines <!-- schema --> and <!-- /schema -->", path);
    CALM_TRY(write_schema(ctx, &it->out));
    it->at = strstr(it->at, "<!-- /schema -->\n");
    return CALM_OK;
}

static calm_status renew_queries(calm_ctx *ctx, document *it, const char *path)
{
    while (copy_through(it, "\n```sql\n")) {
        char *query;
        const char *end = strstr(it->at, "\n```\n"), *begin = it->at;
        if (!end)
            return calm_fail(ctx, CALM_EFORMAT, "%s: a ```sql block without end", path);
        CALM_TRY(calm_strf(ctx, ctx->out, &query, "%.*s", (int)(end - begin), begin));
        copy_through(it, "\n```\n");
        if (strncmp(it->at, "\n```\n", 5) != 0)
            continue;
        copy_through(it, "\n```\n");
        CALM_TRY(write_rows(ctx, it->store, query, &it->out));
        /* An empty block has no line before its end. */
        const char *close = strncmp(it->at, "```\n", 4) == 0 ? it->at : strstr(it->at, "\n```\n");
        if (!close)
            return calm_fail(ctx, CALM_EFORMAT, "%s: a block of rows without end", path);
        it->at = close + (*close == '\n');
        it->n_queries++;
    }
    if (it->n_queries < LEAST_QUERIES)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %d queries with rows, expected %d", path, it->n_queries,
                         LEAST_QUERIES);
    return CALM_OK;
}

static calm_status renew(calm_ctx *ctx, const arguments *args, const char *folder)
{
    static const synth_store size = {.runs = 4, .jobs = 12, .candidates = 6, .scores = 8, .models = 1, .experts = 2};
    document it = {0};
    char *text, *path, *remedy;
    size_t n;
    CALM_TRY(calm_strf(ctx, ctx->out, &remedy, "store_doc --docs %s --update", args->docs));
    CALM_TRY(calm_read_file(ctx, args->docs, 1 << 22, &text, &n));
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, folder, "calm.db"));
    CALM_TRY(synth_store_make(ctx, path, &size));
    CALM_TRY(calm_store_open(ctx, path, NULL, &it.store));
    it.at = text;
    calm_text_init(&it.out);
    calm_status status = renew_queries(ctx, &it, args->docs);
    if (status == CALM_OK)
        status = renew_schema(ctx, &it, args->docs);
    calm_text_printf(&it.out, "%s", it.at);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &it.out);
    if (status == CALM_OK)
        status = page_settle(ctx, args->docs, text, it.out.data, args->update, remedy);
    calm_text_clear(&it.out);
    calm_store_close(it.store);
    return status;
}

static calm_status print_schema(calm_ctx *ctx)
{
    calm_text text;
    calm_text_init(&text);
    if (write_schema(ctx, &text) == CALM_OK)
        printf("%s", text.data);
    calm_text_clear(&text);
    return ctx->status;
}

static calm_status work(calm_ctx *ctx, void *opts)
{
    const arguments *args = opts;
    char folder[] = "/tmp/store_doc.XXXXXX";
    if (args->schema)
        return print_schema(ctx);
    if (!args->docs)
        return calm_fail(ctx, CALM_EARG, "--docs FILE is missing; --help explains");
    if (!mkdtemp(folder))
        return calm_fail(ctx, CALM_EIO, "%s: cannot create", folder);
    const calm_status status = renew(ctx, args, folder);
    calm_remove_tree(ctx, folder);
    return status;
}

int main(int argc, char **argv)
{
    arguments args;
    const tool it = {"store_doc", "--docs FILE", "Checks docs/store.md against the schema and a store.",
                     table,       &args,         work};
    return tool_main(&it, argc, argv);
}
