/* Tables as aligned text.
 *
 * If ctx->columns limits the width of lines, columns of words become narrower and their cells are broken into
 * several lines; if that is not enough, each row is written as a list of its cells. */
#include <string.h>

#include "ptq/base/sha256.h"
#include "ptq/base/text.h"
#include "ptq/text/table_impl.h"
#include "ptq/text/unicode.h"

#define GAP "  "           /* between two columns                                      */
#define GAP_COLUMNS ((size_t)2)
#define LEAST ((size_t)12) /* minimum width of a column of words                       */
#define NAME ((size_t)24)  /* width of a name, "mkq-full w4a16_g128_asym"; longer texts are sentences or chains */
#define FEW ((size_t)3)    /* rows up to which lists are easier to read than broken words */
#define NARROW ((size_t)40)/* minimum width of a terminal; below it names would be broken into letters */

/* Ends a line, without trailing blanks. */
static void end_line(calm_text *out)
{
    while (out->length && out->data[out->length - 1] == ' ')
        out->data[--out->length] = '\0';
    calm_text_append(out, "\n", 1);
}

static void pad(calm_text *out, size_t n, const char *with)
{
    for (size_t i = 0; i < n; i++)
        calm_text_append(out, with, 1);
}

static void put(calm_text *out, const char *shown, size_t n, size_t columns, size_t width, calm_align align)
{
    if (align == CALM_ALIGN_RIGHT)
        pad(out, width - columns, " ");
    calm_text_append(out, shown, n);
    if (align == CALM_ALIGN_LEFT)
        pad(out, width - columns, " ");
}

/* ---- lines of a cell ---- */

/* A part of a text that fits into a width. */
typedef struct piece {
    size_t n, columns;    /* bytes, and their width in columns */
    size_t next;          /* offset of the next piece in bytes */
} piece;

/* Returns whether the blank at text[at] is next to the arrow of "31.52 -> 31.77". */
static bool is_joined(const char *text, size_t at)
{
    return strncmp(text + at, " -> ", 4) == 0 || (at >= 3 && strncmp(text + at - 3, " -> ", 4) == 0);
}

/* Returns the first line of `text` when broken to `width` columns: up to the last blank that fits, else behind the
 * last + or comma of a chain, else behind any character.  Cells contain no newlines. */
static piece first_line(const char *text, size_t width)
{
    piece all = {0}, words = {0}, parts = {0};
    while (text[all.n] && text[all.n] != '\n') {
        uint32_t character;
        const size_t length = calm_utf8_decode(text + all.n, &character);
        const size_t columns = (size_t)calm_unicode_columns(character);
        if (character == ' ' && !is_joined(text, all.n))
            words = (piece){all.n, all.columns, all.n + 1};
        if (all.n && all.columns + columns > width)
            return words.n ? words : parts.n ? parts : (piece){all.n, all.columns, all.n};
        all.n += length;
        all.columns += columns;
        if (character == '+' || character == ',')
            parts = (piece){all.n, all.columns, all.n};
    }
    all.next = all.n;
    return all;
}

/* Returns the width of the widest part of a text that may only be broken behind these characters. */
static size_t widest_part(const char *text, const char *breaks)
{
    size_t widest = 0, width = 0;
    while (*text) {
        uint32_t character;
        text += calm_utf8_decode(text, &character);
        width += character == ' ' ? 0 : (size_t)calm_unicode_columns(character);
        widest = calm_size_max(widest, width);
        if (character < 128 && strchr(breaks, (int)character))
            width = 0;
    }
    return widest;
}

/* ---- widths ---- */

typedef struct layout {
    size_t *width, *least;    /* [n_columns] width of each column; its minimum     */
} layout;

static void measure(const calm_table *table, layout *l)
{
    const size_t rows = calm_table_rows(table);
    for (size_t c = 0; c < table->n_columns; c++) {
        l->width[c] = table->headings[c].columns;
        l->least[c] = widest_part(table->headings[c].shown, " ");
    }
    for (size_t i = 0; i < rows * table->n_columns; i++) {
        const calm_table_cell *cell = &table->cells[i];
        const size_t c = i % table->n_columns;
        const size_t whole = rows > FEW ? LEAST : calm_size_max(LEAST, widest_part(cell->shown, " +,"));
        const size_t least = cell->type == CALM_CELL_TEXT ? calm_size_min(cell->columns, whole) : cell->columns;
        l->width[c] = calm_size_max(l->width[c], cell->columns);
        l->least[c] = calm_size_max(l->least[c], least);
    }
}

/* Returns whether a cell is a digest; its beginning is enough, so a digest is not broken into lines. */
static bool is_digest(const calm_table_cell *cell)
{
    return calm_is_hex(cell->shown, CALM_SHA256_HEX - 1);
}

/* Sets the minimum widths such that names, other texts as short as a name, and digests are not broken. */
static void keep_names(const calm_table *table, layout *l)
{
    for (size_t i = 0; i < calm_table_rows(table) * table->n_columns; i++) {
        const calm_table_cell *cell = &table->cells[i];
        const size_t c = i % table->n_columns, whole = is_digest(cell) ? cell->columns : NAME;
        l->least[c] = calm_size_max(l->least[c], calm_size_min(cell->columns, whole));
    }
}

/* Shrinks the widest columns until all fit into `limit` columns; returns false if the minimum widths do not fit. */
static bool shrink(const calm_table *table, size_t limit, layout *l)
{
    size_t total = GAP_COLUMNS * (table->n_columns - 1);
    for (size_t c = 0; c < table->n_columns; c++)
        total += l->width[c];
    while (total > limit) {
        size_t widest = table->n_columns;
        for (size_t c = 0; c < table->n_columns; c++)
            if (l->width[c] > l->least[c] && (widest == table->n_columns || l->width[c] > l->width[widest]))
                widest = c;
        if (widest == table->n_columns)
            return false;
        l->width[widest]--;
        total--;
    }
    return true;
}

/* ---- rows ---- */

/* Writes the headings or the cells of a row: texts [n_columns], each broken into lines of its column's width. */
static void write_lines(const calm_table *table, size_t indent, const size_t *width, const char **texts, calm_text *out)
{
    for (bool more = true; more;) {
        more = false;
        pad(out, indent, " ");
        for (size_t c = 0; c < table->n_columns; c++) {
            const piece line = first_line(texts[c], width[c]);
            put(out, texts[c], line.n, line.columns, calm_size_max(width[c], line.columns), table->headings[c].align);
            calm_text_append(out, GAP, sizeof GAP - 1);
            texts[c] += line.next;
            more |= *texts[c] != '\0';
        }
        end_line(out);
    }
}

static void write_table(const calm_table *table, size_t indent, const size_t *width, const char **texts, calm_text *out)
{
    for (size_t c = 0; c < table->n_columns; c++)
        texts[c] = table->headings[c].shown;
    write_lines(table, indent, width, texts, out);
    pad(out, indent, " ");
    for (size_t c = 0; c < table->n_columns; c++) {
        pad(out, width[c], "-");
        calm_text_append(out, GAP, sizeof GAP - 1);
    }
    end_line(out);
    for (size_t row = 0; row < calm_table_rows(table); row++) {
        for (size_t c = 0; c < table->n_columns; c++)
            texts[c] = table->cells[row * table->n_columns + c].shown;
        write_lines(table, indent, width, texts, out);
    }
}

/* Writes a value behind its name, with its further lines aligned to its beginning. */
static void write_value(const char *text, size_t at, size_t width, calm_text *out)
{
    for (bool begun = false; *text || !begun; begun = true) {
        const piece line = first_line(text, width);
        pad(out, begun ? at : 0, " ");
        calm_text_append(out, text, line.n);
        calm_text_append(out, "\n", 1);
        text += line.next;
    }
}

static void write_fields(const calm_ctx *ctx, const calm_table *table, size_t indent, bool apart, calm_text *out)
{
    size_t names = 0;
    for (size_t c = 0; c < table->n_columns; c++)
        names = calm_size_max(names, table->headings[c].columns);
    const size_t at = indent + names + GAP_COLUMNS, limit = calm_size_max(ctx->columns, NARROW);
    const size_t width = !ctx->columns ? SIZE_MAX : limit > at + LEAST ? limit - at : LEAST;
    for (size_t i = 0; i < calm_table_rows(table) * table->n_columns; i++) {
        const calm_table_heading *heading = &table->headings[i % table->n_columns];
        if (apart && i && i % table->n_columns == 0)
            calm_text_append(out, "\n", 1);
        if (table->cells[i].columns == 0)
            continue;
        pad(out, indent, " ");
        put(out, heading->shown, strlen(heading->shown), heading->columns, names, CALM_ALIGN_LEFT);
        calm_text_append(out, GAP, sizeof GAP - 1);
        if (table->cells[i].columns > width && is_digest(&table->cells[i]))
            calm_text_printf(out, "%.*s...\n", (int)(width - 3), table->cells[i].shown);
        else
            write_value(table->cells[i].shown, at, width, out);
    }
}

/* Computes the widths in ctx->scratch; sets *fits to whether the lines of rows fit into ctx->columns. */
static calm_status lay_out(calm_ctx *ctx, const calm_table *table, size_t indent, layout *l, bool *fits)
{
    const size_t limit = calm_size_max(ctx->columns, NARROW);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, l->width, table->n_columns + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, l->least, table->n_columns + 1));
    measure(table, l);
    *fits = !ctx->columns || !table->n_columns || shrink(table, limit - calm_size_min(indent, limit), l);
    return CALM_OK;
}

/* Returns the width of an unbroken line of the table without the columns of `names`. */
static size_t whole_width(const calm_table *table, size_t indent, const char *names)
{
    size_t total = indent, before = 0;
    for (size_t c = 0; c < table->n_columns; c++) {
        size_t widest = table->headings[c].columns;
        if (calm_text_listed(names, '|', table->headings[c].name))
            continue;
        for (size_t row = 0; row < calm_table_rows(table); row++)
            widest = calm_size_max(widest, table->cells[row * table->n_columns + c].columns);
        total += widest + (before++ ? GAP_COLUMNS : 0);
    }
    return total;
}

calm_status calm_table_narrow(calm_ctx *ctx, calm_table *table, size_t indent, const char *const *choices, size_t n)
{
    const size_t limit = calm_size_max(ctx->columns, NARROW);
    size_t chosen = 0;
    layout l;
    bool fits;
    CALM_SCOPED_SCRATCH(ctx);
    if (!ctx->columns || whole_width(table, indent, "") <= limit)
        return CALM_OK;
    CALM_TRY(lay_out(ctx, table, indent, &l, &fits));
    while (chosen < n && whole_width(table, indent, choices[chosen]) > limit)
        chosen++;
    if (chosen < n)
        calm_table_drop(table, choices[chosen]);
    else if (!fits && n)
        calm_table_drop(table, choices[n - 1]);
    return CALM_OK;
}

calm_status calm_table_shorten(calm_ctx *ctx, calm_table *table, size_t indent, calm_text *left)
{
    const size_t limit = calm_size_max(ctx->columns, NARROW);
    size_t used = indent, kept = 0;
    layout l;
    bool fits;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(lay_out(ctx, table, indent, &l, &fits));
    keep_names(table, &l);
    while (kept < table->n_columns && used + l.least[kept] <= limit)
        used += l.least[kept++] + GAP_COLUMNS;
    if (!ctx->columns || kept == table->n_columns || kept < FEW || calm_table_rows(table) <= FEW)
        return CALM_OK;
    for (size_t c = kept; c < table->n_columns; c++)
        calm_text_printf(left, "%s%s", c > kept ? ", " : "", table->headings[c].shown);
    while (table->n_columns > kept)
        calm_table_drop(table, table->headings[table->n_columns - 1].name);
    return calm_text_check(ctx, left);
}

calm_status calm_table_write(calm_ctx *ctx, const calm_table *table, size_t indent, calm_text *out)
{
    const char **texts;
    layout l;
    bool fits;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, texts, table->n_columns + 1));
    CALM_TRY(lay_out(ctx, table, indent, &l, &fits));
    if (!fits && calm_table_rows(table))
        write_fields(ctx, table, indent, true, out);
    else
        write_table(table, indent, l.width, texts, out);
    return calm_table_check(ctx, table, out);
}

calm_status calm_table_write_fields(calm_ctx *ctx, const calm_table *table, size_t indent, calm_text *out)
{
    write_fields(ctx, table, indent, false, out);
    return calm_table_check(ctx, table, out);
}

/* Returns the indent of the continuation lines of a line: the beginning of the text behind its label, or 2. */
static size_t hang(const char *line, size_t limit)
{
    const size_t n = strcspn(line, "\n");
    size_t at = 0;
    while (at + 1 < n && !(line[at] == ' ' && line[at + 1] == ' '))
        at++;
    if (at + 1 >= n)
        return 2;
    at += strspn(line + at, " ");
    return at < limit / 3 ? at : 2;
}

void calm_table_fold(const calm_ctx *ctx, const char *text, calm_text *out)
{
    const size_t limit = ctx->columns ? calm_size_max(ctx->columns, NARROW) : SIZE_MAX;
    while (*text) {
        const size_t blanks = calm_size_min(strspn(text, " "), NARROW / 4);
        const size_t below = hang(text + blanks, limit);
        bool begun = false;
        pad(out, blanks, " ");
        for (text += blanks; *text && *text != '\n'; begun = true) {
            const piece line = first_line(text, limit - blanks - (begun ? below : 0));
            pad(out, begun ? blanks + below : 0, " ");
            calm_text_append(out, text, line.n);
            text += line.next;
            if (*text && *text != '\n')
                calm_text_append(out, "\n", 1);
        }
        calm_text_append(out, "\n", 1);
        text += *text == '\n';
    }
}
