/* Faults of a recipe document. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/recipe/document.h"
#include "ptq/recipe/document_shape.h"

#define DEPTH 8         /* more than the four levels of a recipe */
#define SHOWN_MAX 40    /* most bytes of a text in a message */
#define NAMES_MAX 64
#define MESSAGE_MAX 700    /* enough for every message of the table; longer ones are cut */

/* The state of a comparison. */
typedef struct comparison {
    calm_ctx *ctx;
    const char *path[DEPTH];    /* keys on the path to the value; NULL: an index */
    size_t index[DEPTH], depth;
    calm_faults *faults;
} comparison;

static calm_status compare(comparison *c, const calm_shape *shape, const calm_json *value);

/* ---- faults ---- */

/* Replaces control characters: keys and texts of untrusted documents are shown on terminals. */
static void make_plain(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

static void print_pointer(const comparison *c, const char *member, calm_text *out)
{
    for (size_t i = 0; i < c->depth + (member != NULL); i++) {
        const char *key = i < c->depth ? c->path[i] : member;
        calm_text_printf(out, "/");
        if (!key)
            calm_text_printf(out, "%zu", c->index[i]);
        for (const char *at = key; at && *at; at++)
            calm_text_append(out, *at == '~' ? "~0" : *at == '/' ? "~1" : at, *at == '~' || *at == '/' ? 2 : 1);
    }
}

/* Adds a fault of the value, or of its member. */
static calm_status __attribute__((format(printf, 3, 4))) add_fault(comparison *c, const char *member,
                                                                    const char *format, ...)
{
    CALM_SCOPED_TEXT(pointer);
    char message[MESSAGE_MAX], *where, *what;
    va_list values;
    if (c->faults->n == CALM_DOCUMENT_FAULTS)
        return CALM_OK;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    print_pointer(c, member, &pointer);
    CALM_TRY(calm_text_take(c->ctx, c->ctx->out, &pointer, &where, NULL));
    CALM_TRY(calm_strf(c->ctx, c->ctx->out, &what, "%s", message));
    make_plain(where);
    make_plain(what);
    c->faults->of[c->faults->n++] = (calm_document_fault){where, what};
    return CALM_OK;
}

/* Returns a value's text for a message. */
static const char *shown(const calm_json *value, char room[96])
{
    const char *text = calm_json_string(value, NULL);
    if (text)
        snprintf(room, 96, "\"%.*s\"%s", SHOWN_MAX, text, strlen(text) > SHOWN_MAX ? "..." : "");
    else if (calm_json_typeof(value) == CALM_JSON_INT)
        snprintf(room, 96, "%lld", (long long)calm_json_int(value, 0));
    else if (calm_json_typeof(value) == CALM_JSON_REAL)
        snprintf(room, 96, "%.15g", calm_json_number(value, 0));
    else if (calm_json_typeof(value) == CALM_JSON_BOOL)
        snprintf(room, 96, "%s", calm_json_bool(value, false) ? "true" : "false");
    else
        snprintf(room, 96, "%s", calm_json_type_name(calm_json_typeof(value)));
    return room;
}

static calm_status expected(comparison *c, const calm_json *value, const char *what)
{
    char room[96];
    return add_fault(c, NULL, "expected %s, found %s", what, shown(value, room));
}

/* ---- values ---- */

static bool is_number(const calm_json *value)
{
    return calm_json_typeof(value) == CALM_JSON_INT || calm_json_typeof(value) == CALM_JSON_REAL;
}

/* Returns true for a whole number; JSON has one type of numbers, so 4.0 is one too. */
static bool is_whole(const calm_json *value)
{
    return is_number(value) && floor(calm_json_number(value, 0)) == calm_json_number(value, 0);
}

static calm_status check_number(comparison *c, const calm_shape *shape, const calm_json *value)
{
    const double number = calm_json_number(value, 0);
    const bool whole = shape->kind == CALM_SHAPE_INT, from_min = whole || shape->from_min;
    char words[96];
    if (whole && !is_whole(value))
        return expected(c, value, "a whole number");
    if (number > shape->max)
        snprintf(words, sizeof words, "at most %.15g", shape->max);
    else if (from_min ? number < shape->min : number <= shape->min)
        snprintf(words, sizeof words, "%s %.15g", from_min ? "at least" : "more than", shape->min);
    else
        return CALM_OK;
    return expected(c, value, words);
}

/* Adds a fault if `n` is outside the shape's limits. */
static calm_status check_size(comparison *c, const calm_shape *shape, const char *words, size_t n, bool *fits)
{
    const bool few = (double)n < shape->min;
    *fits = !few && (double)n <= shape->max;
    if (*fits)
        return CALM_OK;
    return add_fault(c, NULL, "expected at %s %.0f %s, found %zu", few ? "least" : "most",
                     few ? shape->min : shape->max, words, n);
}

static calm_status check_text(comparison *c, const calm_shape *shape, const calm_json *value)
{
    const char *text = calm_json_string(value, NULL);
    const size_t n = calm_json_string_length(value);
    size_t characters = 0;
    char words[96];
    bool fits;
    for (size_t i = 0; i < n; i++)
        characters += ((unsigned char)text[i] & 0xc0) != 0x80;    /* UTF-8: one lead byte per character */
    CALM_TRY(check_size(c, shape, "characters", characters, &fits));
    if (!fits || !shape->pattern || (shape->pattern->fits(text) && strlen(text) == n))
        return CALM_OK;
    snprintf(words, sizeof words, "a text like %s", shape->pattern->regex);
    return expected(c, value, words);
}

static calm_status check_word(comparison *c, const calm_shape *shape, const calm_json *value)
{
    const char *names[NAMES_MAX], *text = calm_json_string(value, NULL);
    char all[400], listed[MESSAGE_MAX] = "", room[96], hint[CALM_HINT_MAX], *rest = all;
    size_t n = 0, used = 0;
    if (text && strlen(text) == calm_json_string_length(value) && calm_option_value_index(shape->values, text) >= 0)
        return CALM_OK;
    snprintf(all, sizeof all, "%s", shape->values);
    while (rest && n < NAMES_MAX && used < sizeof listed) {
        names[n] = strsep(&rest, "|");
        used += (size_t)snprintf(listed + used, sizeof listed - used, "%s\"%s\"", n ? ", " : "", names[n]);
        n++;
    }
    return add_fault(c, NULL, "expected one of %s, found %s%s", listed, shown(value, room),
                     text ? calm_did_you_mean(hint, text, names, n) : "");
}

static calm_status check_scalar(comparison *c, const calm_shape *shape, const calm_json *value)
{
    const calm_json_type type = calm_json_typeof(value);
    (void)shape;
    return type == CALM_JSON_BOOL || is_number(value) || type == CALM_JSON_STRING
               ? CALM_OK : expected(c, value, "true, false, a number or a text");
}

static calm_status check_false(comparison *c, const calm_shape *shape, const calm_json *value)
{
    (void)shape;
    return calm_json_bool(value, true) ? expected(c, value, "false") : CALM_OK;
}

static calm_status check_version(comparison *c, const calm_shape *shape, const calm_json *value)
{
    char words[32];
    snprintf(words, sizeof words, "%.0f", shape->max);
    return is_number(value) && calm_json_number(value, 0) == shape->max ? CALM_OK : expected(c, value, words);
}

/* ---- structure ---- */

static calm_status enter(comparison *c, const char *key, size_t index, const calm_shape *shape, const calm_json *value)
{
    c->path[c->depth] = key;    /* shapes nest less deep than DEPTH, even if a document nests deeper */
    c->index[c->depth++] = index;
    const calm_status status = compare(c, shape, value);
    c->depth--;
    return status;
}

static calm_status check_list(comparison *c, const calm_shape *shape, const calm_json *value)
{
    bool fits;
    CALM_TRY(check_size(c, shape, "items", calm_json_size(value), &fits));
    for (size_t i = 0; fits && i < calm_json_size(value); i++)
        CALM_TRY(enter(c, NULL, i, shape->item, calm_json_at(value, i)));
    return CALM_OK;
}

static calm_status check_map(comparison *c, const calm_shape *shape, const calm_json *value)
{
    const calm_json *member;
    const char *key;
    bool fits;
    CALM_TRY(check_size(c, shape, "members", calm_json_size(value), &fits));
    for (void *iter = NULL; fits && calm_json_next(value, &iter, &key, &member);) {
        if (shape->pattern && !shape->pattern->fits(key))
            CALM_TRY(add_fault(c, key, "its key: expected a text like %s", shape->pattern->regex));
        CALM_TRY(enter(c, key, 0, shape->item, member));
    }
    return CALM_OK;
}

/* Returns the row of a section's member; NULL: there is none. */
static const calm_document_row *find_row(const char *section, const char *key)
{
    size_t n;
    const calm_document_row *rows = calm_document_rows(&n);
    for (size_t i = 0; i < n; i++) {
        const char *of = calm_document_key(rows[i].place, section);
        if (of && strcmp(of, key) == 0)
            return &rows[i];
    }
    return NULL;
}

static calm_status unknown_key(comparison *c, const char *section, const char *key)
{
    const char *names[NAMES_MAX] = {NULL};
    char hint[CALM_HINT_MAX];
    size_t n_rows, n = 0;
    const calm_document_row *rows = calm_document_rows(&n_rows);
    for (size_t i = 0; i < n_rows && n < NAMES_MAX; i++) {
        names[n] = calm_document_key(rows[i].place, section);
        n += names[n] != NULL;
    }
    return add_fault(c, key, "unknown key%s", calm_did_you_mean(hint, key, names, n));
}

static calm_status check_object(comparison *c, const calm_shape *shape, const calm_json *value)
{
    const calm_json *member;
    const char *key, *section = shape->section;
    size_t n;
    const calm_document_row *rows = calm_document_rows(&n);
    for (size_t i = 0; i < n; i++) {
        const char *of = calm_document_key(rows[i].place, section);
        if (of && rows[i].required && !calm_json_get(value, of))
            CALM_TRY(add_fault(c, NULL, "the key \"%s\" is missing", of));
    }
    for (void *iter = NULL; calm_json_next(value, &iter, &key, &member);) {
        const calm_document_row *row = find_row(section, key);
        calm_shape room;
        CALM_TRY(row ? enter(c, key, 0, calm_document_shape(row, &room), member) : unknown_key(c, section, key));
    }
    return CALM_OK;
}

static calm_status check_either(comparison *c, const calm_shape *shape, const calm_json *value);

/* The check of each shape for a value of the JSON type `type`, which is `words` in messages and selects the alternative
 * of a shape.  words NULL: the check examines the type. */
static const struct {
    const char *words;
    calm_json_type type;
    calm_status (*check)(comparison *c, const calm_shape *shape, const calm_json *value);    /* NULL: only the type */
} kinds[] = {
    [CALM_SHAPE_BOOL] = {"true or false", CALM_JSON_BOOL, NULL},
    [CALM_SHAPE_INT] = {NULL, CALM_JSON_INT, check_number},
    [CALM_SHAPE_NUMBER] = {"a number", CALM_JSON_REAL, check_number},
    [CALM_SHAPE_TEXT] = {"a text", CALM_JSON_STRING, check_text},
    [CALM_SHAPE_WORD] = {NULL, CALM_JSON_STRING, check_word},
    [CALM_SHAPE_LIST] = {"a list", CALM_JSON_ARRAY, check_list},
    [CALM_SHAPE_MAP] = {"an object", CALM_JSON_OBJECT, check_map},
    [CALM_SHAPE_OBJECT] = {"an object", CALM_JSON_OBJECT, check_object},
    [CALM_SHAPE_ANY] = {"an object", CALM_JSON_OBJECT, NULL},
    [CALM_SHAPE_SCALAR] = {NULL, CALM_JSON_NULL, check_scalar},
    [CALM_SHAPE_FALSE] = {"false", CALM_JSON_BOOL, check_false},
    [CALM_SHAPE_VERSION] = {NULL, CALM_JSON_INT, check_version},
    [CALM_SHAPE_EITHER] = {NULL, CALM_JSON_NULL, check_either},
};

static bool is_of_type(const calm_shape *shape, const calm_json *value)
{
    return shape->kind == CALM_SHAPE_NUMBER ? is_number(value) : calm_json_typeof(value) == kinds[shape->kind].type;
}

static calm_status check_either(comparison *c, const calm_shape *shape, const calm_json *value)
{
    char words[64];
    if (is_of_type(shape->item, value))
        return compare(c, shape->item, value);
    if (is_of_type(shape->other, value))
        return compare(c, shape->other, value);
    snprintf(words, sizeof words, "%s or %s", kinds[shape->item->kind].words, kinds[shape->other->kind].words);
    return expected(c, value, words);
}

static calm_status compare(comparison *c, const calm_shape *shape, const calm_json *value)
{
    if (kinds[shape->kind].words && !is_of_type(shape, value))
        return expected(c, value, kinds[shape->kind].words);
    return kinds[shape->kind].check ? kinds[shape->kind].check(c, shape, value) : CALM_OK;
}

/* ---- the whole document ---- */

calm_status calm_document_faults(calm_ctx *ctx, const calm_json *document, calm_faults *faults)
{
    static const calm_shape root = {CALM_SHAPE_OBJECT, .section = ""};
    faults->n = 0;
    return compare(&(comparison){.ctx = ctx, .faults = faults}, &root, document);
}

calm_status calm_document_check(calm_ctx *ctx, const char *where, const calm_json *document)
{
    calm_faults faults;
    CALM_TRY(calm_document_faults(ctx, document, &faults));
    return faults.n == 0 ? CALM_OK
                         : calm_fail(ctx, CALM_EFORMAT, "%s: %s: %s", where,
                                     faults.of[0].pointer[0] ? faults.of[0].pointer : "the document",
                                     faults.of[0].message);
}

calm_status calm_document_read(calm_ctx *ctx, const char *path, calm_json **out)
{
    CALM_SCOPED_JSON(document);
    *out = NULL;
    CALM_TRY(calm_json_read(ctx, path, CALM_RECIPE_BYTES, &document));
    CALM_TRY(calm_document_check(ctx, path, document));
    *out = document;
    document = NULL;
    return CALM_OK;
}
