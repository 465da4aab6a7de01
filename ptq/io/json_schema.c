/* JSON Schema: faults of a document. */
#include "ptq/io/json_schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/io/regex.h"

#define NAMES_MAX 128
#define SHOWN_MAX 40    /* bytes of a text in a message */

/* A comparison in progress. */
typedef struct comparison {
    calm_ctx *ctx;
    const calm_json *schema;               /* the whole document, for references                  */
    const char *path[CALM_SCHEMA_DEPTH];   /* keys that lead to the value; NULL: an index         */
    size_t index[CALM_SCHEMA_DEPTH];
    size_t depth, refs;                    /* members above the value; references being followed  */
    calm_json_fault faults[CALM_SCHEMA_FAULTS];
    size_t at[CALM_SCHEMA_FAULTS];         /* depth of each                                       */
    size_t n;
} comparison;

static calm_status compare(comparison *c, const calm_json *schema, const calm_json *value);

/* ---- faults ---- */

static void print_pointer(const comparison *c, const char *extra, calm_text *out)
{
    for (size_t i = 0; i < c->depth + (extra != NULL); i++) {
        const char *key = i < c->depth ? c->path[i] : extra;
        calm_text_printf(out, "/");
        if (!key)
            calm_text_printf(out, "%zu", c->index[i]);
        for (const char *at = key; at && *at; at++)
            calm_text_append(out, *at == '~' ? "~0" : *at == '/' ? "~1" : at, *at == '~' || *at == '/' ? 2 : 1);
    }
}

/* Keys and texts of strangers are shown on terminals: no control characters. */
static void make_plain(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

/* Add a fault of the value, or of its member `extra`. */
static calm_status add_fault(comparison *c, const char *extra, const char *message)
{
    calm_text pointer;
    char *where = NULL, *what;
    if (c->n == CALM_SCHEMA_FAULTS)
        return CALM_OK;
    calm_text_init(&pointer);
    print_pointer(c, extra, &pointer);
    calm_status status = calm_text_check(c->ctx, &pointer);
    if (status == CALM_OK)
        status = calm_strf(c->ctx, c->ctx->out, &where, "%s", pointer.data ? pointer.data : "");
    calm_text_clear(&pointer);
    CALM_TRY(status);
    CALM_TRY(calm_strf(c->ctx, c->ctx->out, &what, "%s", message));
    make_plain(where);
    make_plain(what);
    c->at[c->n] = c->depth + (extra != NULL);
    c->faults[c->n++] = (calm_json_fault){where, what};
    return CALM_OK;
}

/* A value for a message: numbers and short texts themselves, else their type. */
static const char *shown(const calm_json *value, char room[96])
{
    const char *text = calm_json_string(value, NULL);
    size_t n = text ? strlen(text) : 0;
    while (n > SHOWN_MAX && (n > SHOWN_MAX + 4 || ((unsigned char)text[n] & 0xc0) == 0x80))
        n = n > SHOWN_MAX + 4 ? SHOWN_MAX + 4 : n - 1;    /* not within a character */
    if (text)
        snprintf(room, 96, "\"%.*s%s\"", (int)n, text, text[n] ? "..." : "");
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
    char room[96], message[512];
    snprintf(message, sizeof message, "expected %s, found %s", what, shown(value, room));
    return add_fault(c, NULL, message);
}

/* ---- values ---- */

static bool is_number(const calm_json *value)
{
    return calm_json_typeof(value) == CALM_JSON_INT || calm_json_typeof(value) == CALM_JSON_REAL;
}

/* Equal as JSON: numbers by their values, arrays and objects never (our schemas compare none). */
static bool equal(const calm_json *a, const calm_json *b)
{
    if (is_number(a) && is_number(b))
        return calm_json_number(a, 0) == calm_json_number(b, 0);
    if (calm_json_typeof(a) != calm_json_typeof(b))
        return false;
    if (calm_json_typeof(a) == CALM_JSON_BOOL)
        return calm_json_bool(a, false) == calm_json_bool(b, false);
    if (calm_json_typeof(a) == CALM_JSON_STRING)
        return calm_json_string_length(a) == calm_json_string_length(b) &&
               memcmp(calm_json_string(a, ""), calm_json_string(b, ""), calm_json_string_length(a)) == 0;
    return calm_json_typeof(a) == CALM_JSON_NULL;
}

static const char *const type_names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

/* Position in type_names, or -1. */
static int find_type(const char *name)
{
    for (int i = 0; i < 7; i++)
        if (strcmp(type_names[i], name) == 0)
            return i;
    return -1;
}

static bool is_of(const calm_json *value, int type)
{
    static const calm_json_type plain[] = {CALM_JSON_NULL, CALM_JSON_BOOL, CALM_JSON_INT, CALM_JSON_REAL,
                                           CALM_JSON_STRING, CALM_JSON_ARRAY, CALM_JSON_OBJECT};
    const double number = calm_json_number(value, 0.5);
    if (type == 2)
        return is_number(value) && number == floor(number);
    return type == 3 ? is_number(value) : calm_json_typeof(value) == plain[type];
}

static const char *type_words(int type)
{
    static const char *const words[] = {"null", "true or false", "a whole number", "a number", "a text", "an array", "an object"};
    return words[type];
}

/* *fits: the value has the type, or one of the types. */
static calm_status compare_type(comparison *c, const calm_json *type, const calm_json *value, bool *fits)
{
    char words[256] = "";
    const size_t n = calm_json_typeof(type) == CALM_JSON_ARRAY ? calm_json_size(type) : 1;
    *fits = false;
    for (size_t i = 0; i < n && !*fits; i++) {
        const calm_json *one = calm_json_typeof(type) == CALM_JSON_ARRAY ? calm_json_at(type, i) : type;
        const int found = find_type(calm_json_string(one, ""));
        const size_t used = strlen(words);
        *fits = found >= 0 && is_of(value, found);
        snprintf(words + used, sizeof words - used, "%s%s", i ? " or " : "", found >= 0 ? type_words(found) : "?");
    }
    return *fits ? CALM_OK : expected(c, value, words);
}

static calm_status compare_enum(comparison *c, const calm_json *list, const calm_json *value)
{
    const char *names[NAMES_MAX], *text = calm_json_string(value, NULL);
    char words[400] = "", room[96], shown_value[96], message[700];
    size_t n = 0;
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *one = calm_json_at(list, i);
        const size_t used = strlen(words);
        if (equal(one, value))
            return CALM_OK;
        if (calm_json_string(one, NULL) && n < NAMES_MAX)
            names[n++] = calm_json_string(one, NULL);
        snprintf(words + used, sizeof words - used, "%s%s", i ? ", " : "", shown(one, room));
    }
    const char *near = text && n ? calm_nearest(text, names, n) : NULL;
    snprintf(message, sizeof message, "expected %s%s, found %s%s%s%s", calm_json_size(list) > 1 ? "one of " : "", words,
             shown(value, shown_value), near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    return add_fault(c, NULL, message);
}

static calm_status compare_number(comparison *c, const calm_json *schema, const calm_json *value)
{
    static const struct {
        const char *key, *words;
        int sign;          /* -1: from below */
        bool strict;
    } bounds[] = {{"minimum", "at least", -1, false}, {"exclusiveMinimum", "more than", -1, true},
                  {"maximum", "at most", 1, false}, {"exclusiveMaximum", "less than", 1, true}};
    const double number = calm_json_number(value, 0);
    for (size_t i = 0; i < 4; i++) {
        const calm_json *bound = calm_json_get(schema, bounds[i].key);
        const double over = bounds[i].sign * (number - calm_json_number(bound, 0));
        char words[64];
        if (!is_number(bound) || over < 0 || (over == 0 && !bounds[i].strict))
            continue;
        snprintf(words, sizeof words, "%s %.15g", bounds[i].words, calm_json_number(bound, 0));
        CALM_TRY(expected(c, value, words));
    }
    return CALM_OK;
}

/* "a size between": one fault when `n` is outside the two limits. */
static calm_status compare_size(comparison *c, const calm_json *schema, const char *least, const char *most,
                                const char *words, size_t n)
{
    const int64_t low = calm_json_int(calm_json_get(schema, least), 0);
    const int64_t high = calm_json_int(calm_json_get(schema, most), INT64_MAX);
    char message[160];
    if ((int64_t)n >= low && (int64_t)n <= high)
        return CALM_OK;
    snprintf(message, sizeof message, "expected at %s %lld %s, found %zu", (int64_t)n < low ? "least" : "most",
             (long long)((int64_t)n < low ? low : high), words, n);
    return add_fault(c, NULL, message);
}

/* *found: the pattern matches somewhere. */
static calm_status search(calm_ctx *ctx, const char *pattern, const char *text, size_t n, bool *found)
{
    calm_regex *regex;
    calm_matcher *matcher;
    size_t begin, end;
    *found = false;
    CALM_TRY(calm_regex_new(ctx, "schema", pattern, strlen(pattern), &regex));
    calm_status status = calm_matcher_new(ctx, regex, &matcher);
    if (status == CALM_OK) {
        status = calm_matcher_find(ctx, matcher, text, n, 0, found, &begin, &end);
        calm_matcher_free(matcher);
    }
    calm_regex_free(regex);
    return status;
}

static calm_status compare_string(comparison *c, const calm_json *schema, const calm_json *value)
{
    const char *text = calm_json_string(value, ""), *pattern = calm_json_string(calm_json_get(schema, "pattern"), NULL);
    const size_t bytes = calm_json_string_length(value);
    size_t characters = 0;
    bool found = true;
    for (size_t i = 0; i < bytes; i++)
        characters += ((unsigned char)text[i] & 0xc0) != 0x80;
    const size_t before = c->n;
    CALM_TRY(compare_size(c, schema, "minLength", "maxLength", "characters", characters));
    if (!pattern || c->n > before)
        return CALM_OK;
    CALM_TRY(search(c->ctx, pattern, text, bytes, &found));
    char words[256];
    snprintf(words, sizeof words, "a text like %s", pattern);
    return found ? CALM_OK : expected(c, value, words);
}

/* ---- structure ---- */

static calm_status enter(comparison *c, const char *key, size_t index, const calm_json *schema, const calm_json *value)
{
    if (c->depth == CALM_SCHEMA_DEPTH)
        return add_fault(c, NULL, "is nested too deep");
    c->path[c->depth] = key;
    c->index[c->depth++] = index;
    const calm_status status = compare(c, schema, value);
    c->depth--;
    return status;
}

static calm_status unknown_member(comparison *c, const calm_json *properties, const char *key)
{
    const char *names[NAMES_MAX] = {NULL}, *name;
    const calm_json *one;
    char message[256];
    size_t n = 0;
    for (void *iter = NULL; n < NAMES_MAX && calm_json_next(properties, &iter, &name, &one);)
        names[n++] = name;
    const char *near = calm_nearest(key, names, n);
    if (near)
        snprintf(message, sizeof message, "unknown key; did you mean \"%s\"?", near);
    else
        snprintf(message, sizeof message, "unknown key");
    return add_fault(c, key, message);
}

/* The key of a member as a value of its own. */
static calm_status compare_name(comparison *c, const calm_json *schema, const char *key)
{
    const size_t before = c->n;
    calm_json *object = calm_json_new_object();
    calm_json_set_string(object, "name", key);
    const calm_status status = compare(c, schema, calm_json_get(object, "name"));
    calm_json_free(object);
    for (size_t i = before; status == CALM_OK && i < c->n; i++) {    /* at the member, not at what holds it */
        char *message;
        CALM_TRY(calm_strf(c->ctx, c->ctx->out, &message, "its key: %s", c->faults[i].message));
        c->n = i;
        return add_fault(c, key, message);
    }
    return status;
}

static calm_status compare_object(comparison *c, const calm_json *schema, const calm_json *value)
{
    const calm_json *properties = calm_json_get(schema, "properties"), *required = calm_json_get(schema, "required");
    const calm_json *others = calm_json_get(schema, "additionalProperties"), *names = calm_json_get(schema, "propertyNames");
    const calm_json *member;
    const char *key;
    CALM_TRY(compare_size(c, schema, "minProperties", "maxProperties", "members", calm_json_size(value)));
    for (size_t i = 0; i < calm_json_size(required); i++) {
        char message[128];
        key = calm_json_string(calm_json_at(required, i), "");
        snprintf(message, sizeof message, "lacks the key \"%s\"", key);
        if (!calm_json_get(value, key))
            CALM_TRY(add_fault(c, NULL, message));
    }
    for (void *iter = NULL; calm_json_next(value, &iter, &key, &member);) {
        const calm_json *known = calm_json_get(properties, key);
        if (names)
            CALM_TRY(compare_name(c, names, key));
        if (known)
            CALM_TRY(enter(c, key, 0, known, member));
        else if (calm_json_typeof(others) == CALM_JSON_OBJECT)
            CALM_TRY(enter(c, key, 0, others, member));
        else if (!calm_json_bool(others, true))
            CALM_TRY(unknown_member(c, properties, key));
    }
    return CALM_OK;
}

static calm_status compare_array(comparison *c, const calm_json *schema, const calm_json *value)
{
    const calm_json *items = calm_json_get(schema, "items");
    CALM_TRY(compare_size(c, schema, "minItems", "maxItems", "items", calm_json_size(value)));
    for (size_t i = 0; items && i < calm_json_size(value); i++)
        CALM_TRY(enter(c, NULL, i, items, calm_json_at(value, i)));
    return CALM_OK;
}

/* ---- alternatives ---- */

/* How far into the value a refused alternative came: 0 when the value itself is of another type or another constant. */
static size_t nearness(const comparison *c, size_t first, size_t depth)
{
    size_t most = 0;
    for (size_t i = first; i < c->n; i++) {
        const size_t near = 2 * (c->at[i] - depth) + (strncmp(c->faults[i].message, "expected ", 9) != 0 ||
                                                      strncmp(c->faults[i].message, "expected at ", 12) == 0);
        most = near > most ? near : most;
    }
    return most;
}

/* Of several that refuse, the faults of the one that came deepest; of equal ones, all together in one sentence. */
static calm_status compare_choice(comparison *c, const calm_json *choice, bool one, const calm_json *value)
{
    comparison best = *c;
    size_t nearest = 0, fitting = 0;
    char words[400] = "", room[96], message[600];
    for (size_t i = 0; i < calm_json_size(choice); i++) {
        comparison trial = *c;
        CALM_TRY(compare(&trial, calm_json_at(choice, i), value));
        if (trial.n == c->n && c->n < CALM_SCHEMA_FAULTS) {
            fitting++;
            continue;
        }
        const size_t near = nearness(&trial, c->n, c->depth);
        const char *said = trial.n > c->n ? trial.faults[c->n].message : "", *cut = strstr(said, ", found ");
        const size_t used = strlen(words);
        if (strncmp(said, "expected ", 9) == 0 && cut)
            snprintf(words + used, sizeof words - used, "%s%.*s", used ? " or " : "", (int)(cut - said - 9), said + 9);
        if (near > nearest) {
            nearest = near;
            best = trial;
        }
    }
    if (fitting == 1 || (fitting && !one))
        return CALM_OK;
    if (fitting)
        return add_fault(c, NULL, "fits several of what it may be one of");
    if (nearest) {
        memcpy(c->faults, best.faults, sizeof c->faults);
        memcpy(c->at, best.at, sizeof c->at);
        c->n = best.n;
        return CALM_OK;
    }
    snprintf(message, sizeof message, "expected %s, found %s", words, shown(value, room));
    return add_fault(c, NULL, message);
}

static const calm_json *find_reference(const calm_json *root, const char *reference)
{
    static const char start[] = "#/$defs/";
    return strncmp(reference, start, sizeof start - 1) == 0
               ? calm_json_get(calm_json_get(root, "$defs"), reference + sizeof start - 1)
               : NULL;
}

static calm_status compare(comparison *c, const calm_json *schema, const calm_json *value)
{
    const calm_json *reference = calm_json_get(schema, "$ref"), *any = calm_json_get(schema, "anyOf");
    const calm_json *one = calm_json_get(schema, "oneOf"), *type = calm_json_get(schema, "type");
    const calm_json *list = calm_json_get(schema, "enum"), *constant = calm_json_get(schema, "const");
    bool fits = true;
    if (reference) {
        if (c->refs == CALM_SCHEMA_DEPTH)
            return add_fault(c, NULL, "is nested too deep");
        c->refs++;
        CALM_TRY(compare(c, find_reference(c->schema, calm_json_string(reference, "")), value));
        c->refs--;
    }
    if (type)
        CALM_TRY(compare_type(c, type, value, &fits));
    if (list)
        CALM_TRY(compare_enum(c, list, value));
    if (constant && !equal(constant, value)) {
        char room[96];
        CALM_TRY(expected(c, value, shown(constant, room)));
    }
    if (any)
        CALM_TRY(compare_choice(c, any, false, value));
    if (one)
        CALM_TRY(compare_choice(c, one, true, value));
    switch (calm_json_typeof(value)) {
    case CALM_JSON_INT:
    case CALM_JSON_REAL:
        return compare_number(c, schema, value);
    case CALM_JSON_STRING:
        return compare_string(c, schema, value);
    case CALM_JSON_ARRAY:
        return compare_array(c, schema, value);
    case CALM_JSON_OBJECT:
        return compare_object(c, schema, value);
    default:
        return CALM_OK;
    }
}

calm_status calm_json_schema_faults(calm_ctx *ctx, const calm_json *schema, const calm_json *value,
                                    calm_json_fault **faults, size_t *n)
{
    comparison c = {.ctx = ctx, .schema = schema};
    *n = 0;
    *faults = NULL;
    CALM_TRY(compare(&c, schema, value));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *faults, c.n + 1));
    memcpy(*faults, c.faults, c.n * sizeof *c.faults);
    *n = c.n;
    return CALM_OK;
}

calm_status calm_json_schema_expect(calm_ctx *ctx, const char *where, const calm_json *schema, const calm_json *value)
{
    calm_json_fault *faults;
    size_t n;
    CALM_TRY(calm_json_schema_faults(ctx, schema, value, &faults, &n));
    return n == 0 ? CALM_OK
                  : calm_fail(ctx, CALM_EFORMAT, "%s: %s: %s", where,
                              faults[0].pointer[0] ? faults[0].pointer : "the document", faults[0].message);
}

/* ---- the schema itself ---- */

typedef enum keyword_kind { FOR_PEOPLE, SCHEMA, SCHEMAS, NAMED_SCHEMAS, NUMBER, SIZE, TEXTS, TYPES, VALUES, VALUE, PATTERN,
                            REFERENCE, SCHEMA_OR_BOOL } keyword_kind;

static const struct {
    const char *name;
    keyword_kind kind;
} keywords[] = {
    {"$schema", FOR_PEOPLE}, {"$id", FOR_PEOPLE}, {"$comment", FOR_PEOPLE}, {"title", FOR_PEOPLE},
    {"description", FOR_PEOPLE}, {"examples", FOR_PEOPLE}, {"default", FOR_PEOPLE}, {"$defs", NAMED_SCHEMAS},
    {"$ref", REFERENCE}, {"type", TYPES}, {"properties", NAMED_SCHEMAS}, {"required", TEXTS},
    {"additionalProperties", SCHEMA_OR_BOOL}, {"propertyNames", SCHEMA}, {"minProperties", SIZE}, {"maxProperties", SIZE},
    {"items", SCHEMA}, {"minItems", SIZE}, {"maxItems", SIZE}, {"enum", VALUES}, {"const", VALUE}, {"minimum", NUMBER},
    {"maximum", NUMBER}, {"exclusiveMinimum", NUMBER}, {"exclusiveMaximum", NUMBER}, {"minLength", SIZE},
    {"maxLength", SIZE}, {"pattern", PATTERN}, {"anyOf", SCHEMAS}, {"oneOf", SCHEMAS},
};

static calm_status check_schema(calm_ctx *ctx, const char *where, const calm_json *root, const calm_json *schema,
                                size_t depth);

static bool all_texts(const calm_json *value, bool types)
{
    for (size_t i = 0; i < calm_json_size(value); i++) {
        const char *text = calm_json_string(calm_json_at(value, i), NULL);
        if (!text || (types && find_type(text) < 0))
            return false;
    }
    return calm_json_typeof(value) == CALM_JSON_ARRAY && calm_json_size(value) > 0;
}

static bool is_plain(const calm_json *value)
{
    return calm_json_typeof(value) != CALM_JSON_ARRAY && calm_json_typeof(value) != CALM_JSON_OBJECT;
}

static bool all_plain(const calm_json *value)
{
    for (size_t i = 0; i < calm_json_size(value); i++)
        if (!is_plain(calm_json_at(value, i)))
            return false;
    return calm_json_typeof(value) == CALM_JSON_ARRAY && calm_json_size(value) > 0;
}

/* Is the value of a keyword one that the interpreter reads?  Schemas in it are checked by check_inner. */
static calm_status check_value(calm_ctx *ctx, keyword_kind kind, const calm_json *root, const calm_json *value, bool *good)
{
    const calm_json_type type = calm_json_typeof(value);
    *good = true;
    switch (kind) {
    case FOR_PEOPLE:
        break;
    case SCHEMA:
        *good = type == CALM_JSON_OBJECT;
        break;
    case SCHEMA_OR_BOOL:
        *good = type == CALM_JSON_OBJECT || type == CALM_JSON_BOOL;
        break;
    case SCHEMAS:
        *good = type == CALM_JSON_ARRAY && calm_json_size(value) > 0;
        break;
    case NAMED_SCHEMAS:
        *good = type == CALM_JSON_OBJECT;
        break;
    case NUMBER:
        *good = is_number(value);
        break;
    case SIZE:
        *good = type == CALM_JSON_INT && calm_json_int(value, -1) >= 0;
        break;
    case TEXTS:
        *good = all_texts(value, false);
        break;
    case TYPES:
        *good = type == CALM_JSON_STRING ? find_type(calm_json_string(value, "")) >= 0 : all_texts(value, true);
        break;
    case VALUES:
        *good = all_plain(value);
        break;
    case VALUE:
        *good = is_plain(value);
        break;
    case PATTERN:
        *good = type == CALM_JSON_STRING;
        return *good ? search(ctx, calm_json_string(value, ""), "", 0, &(bool){false}) : CALM_OK;
    case REFERENCE:
        *good = calm_json_typeof(find_reference(root, calm_json_string(value, ""))) == CALM_JSON_OBJECT;
        break;
    }
    return CALM_OK;
}

/* Schemas within the value of a keyword. */
static calm_status check_inner(calm_ctx *ctx, const char *where, keyword_kind kind, const calm_json *root,
                               const calm_json *value, size_t depth)
{
    const char *key;
    const calm_json *member;
    if (kind == SCHEMA || (kind == SCHEMA_OR_BOOL && calm_json_typeof(value) == CALM_JSON_OBJECT))
        return check_schema(ctx, where, root, value, depth + 1);
    for (size_t i = 0; kind == SCHEMAS && i < calm_json_size(value); i++)
        CALM_TRY(check_schema(ctx, where, root, calm_json_at(value, i), depth + 1));
    for (void *iter = NULL; kind == NAMED_SCHEMAS && calm_json_next(value, &iter, &key, &member);)
        CALM_TRY(check_schema(ctx, where, root, member, depth + 1));
    return CALM_OK;
}

static calm_status check_schema(calm_ctx *ctx, const char *where, const calm_json *root, const calm_json *schema,
                                size_t depth)
{
    const char *key;
    const calm_json *value;
    if (calm_json_typeof(schema) != CALM_JSON_OBJECT || depth == CALM_SCHEMA_DEPTH)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: expected a schema, found %s", where,
                         depth == CALM_SCHEMA_DEPTH ? "one nested too deep" : calm_json_type_name(calm_json_typeof(schema)));
    for (void *iter = NULL; calm_json_next(schema, &iter, &key, &value);) {
        size_t i = 0;
        bool good;
        while (i < sizeof keywords / sizeof *keywords && strcmp(keywords[i].name, key) != 0)
            i++;
        if (i == sizeof keywords / sizeof *keywords)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: the schema's keyword \"%s\" is not read", where, key);
        CALM_TRY(check_value(ctx, keywords[i].kind, root, value, &good));
        if (!good)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: the schema's keyword \"%s\" has a value that is not read", where,
                             key);
        CALM_TRY(check_inner(ctx, where, keywords[i].kind, root, value, depth));
    }
    return CALM_OK;
}

calm_status calm_json_schema_check(calm_ctx *ctx, const char *where, const calm_json *schema)
{
    return check_schema(ctx, where, schema, schema, 0);
}
