/* JSON over jansson; the one user of jansson.h.  calm_json is jansson's json_t under another name, so values
 * are cast, never copied. */
#include "ptq/io/json.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"

static json_t *raw(const calm_json *value)
{
    return (json_t *)(uintptr_t)value;
}

static calm_json *wrap(const json_t *value)
{
    return (calm_json *)(uintptr_t)value;
}

calm_status calm_json_parse(calm_ctx *ctx, const char *name, const char *bytes, size_t n, calm_json **out)
{
    json_error_t error;
    *out = wrap(json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error));
    if (!*out)
        CALM_TRY(calm_refuse_pointer(ctx, name, bytes, n));
    if (!*out)
        return calm_fail(ctx, CALM_EFORMAT, "%s: not valid JSON: %s (line %d, column %d)", name, error.text,
                         error.line, error.column);
    return CALM_OK;
}

/* Returns the word at the start of text [n] for a number that JSON lacks; NULL: none. */
static const char *find_float(const char *text, size_t n)
{
    static const char *const words[] = {"Infinity", "-Infinity", "NaN"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n >= strlen(words[i]) && memcmp(text, words[i], strlen(words[i])) == 0)
            return words[i];
    return NULL;
}

/* Replaces such words outside strings by the spelling of transformers 5; false: there are none. */
static bool spell_floats(const char *text, size_t n, calm_text *out)
{
    bool quoted = false, found = false;
    for (size_t i = 0; i < n; i++) {
        const char *word = quoted ? NULL : find_float(text + i, n - i);
        if (word) {
            calm_text_printf(out, "{\"__float__\": \"%s\"}", word);
            i += strlen(word) - 1;
            found = true;
            continue;
        }
        /* The character after a backslash belongs to the string. */
        const size_t length = quoted && text[i] == '\\' && i + 1 < n ? 2 : 1;
        quoted ^= length == 1 && text[i] == '"';
        calm_text_append(out, text + i, length);
        i += length - 1;
    }
    return found;
}

calm_status calm_json_read(calm_ctx *ctx, const char *path, size_t limit, calm_json **out)
{
    CALM_SCOPED_MAPPING(map);
    CALM_SCOPED_TEXT(text);
    *out = NULL;
    CALM_TRY(calm_map_file_within(ctx, path, limit, &map));
    /* Python writes NaN and infinities, which JSON does not allow: search for them only after a failure. */
    const calm_status status = calm_json_parse(ctx, path, (const char *)map.data, map.bytes, out);
    if (status != CALM_EFORMAT || !spell_floats((const char *)map.data, map.bytes, &text))
        return status;
    CALM_TRY(calm_text_check(ctx, &text));
    calm_ctx_clear_failure(ctx);
    return calm_json_parse(ctx, path, text.data, text.length, out);
}

void calm_json_free(calm_json *root)
{
    json_decref(raw(root));
}

calm_json_type calm_json_typeof(const calm_json *value)
{
    static const calm_json_type types[] = {
        [JSON_OBJECT] = CALM_JSON_OBJECT, [JSON_ARRAY] = CALM_JSON_ARRAY, [JSON_STRING] = CALM_JSON_STRING,
        [JSON_INTEGER] = CALM_JSON_INT,   [JSON_REAL] = CALM_JSON_REAL,   [JSON_TRUE] = CALM_JSON_BOOL,
        [JSON_FALSE] = CALM_JSON_BOOL,    [JSON_NULL] = CALM_JSON_NULL};
    return value ? types[json_typeof(raw(value))] : CALM_JSON_NULL;
}

const char *calm_json_type_name(calm_json_type type)
{
    static const char *const names[] = {"null", "true or false", "a whole number", "a number", "a string",
                                        "an array", "an object"};
    return names[type];
}

const calm_json *calm_json_get(const calm_json *value, const char *key)
{
    return value ? wrap(json_object_get(raw(value), key)) : NULL;
}

const calm_json *calm_json_at(const calm_json *value, size_t index)
{
    return value ? wrap(json_array_get(raw(value), index)) : NULL;
}

size_t calm_json_size(const calm_json *value)
{
    return json_array_size(raw(value)) + json_object_size(raw(value));    /* of another type: 0, also of NULL */
}

int64_t calm_json_int(const calm_json *value, int64_t fallback)
{
    return value && json_is_integer(raw(value)) ? json_integer_value(raw(value)) : fallback;
}

double calm_json_number(const calm_json *value, double fallback)
{
    return value && json_is_number(raw(value)) ? json_number_value(raw(value)) : fallback;
}

bool calm_json_bool(const calm_json *value, bool fallback)
{
    return value && json_is_boolean(raw(value)) ? json_is_true(raw(value)) : fallback;
}

const char *calm_json_string(const calm_json *value, const char *fallback)
{
    return value && json_is_string(raw(value)) ? json_string_value(raw(value)) : fallback;
}

size_t calm_json_string_length(const calm_json *value)
{
    return value ? json_string_length(raw(value)) : 0;
}

bool calm_json_next(const calm_json *object, void **iter, const char **key, const calm_json **value)
{
    if (!object || !json_is_object(raw(object)))
        return false;
    *iter = *iter ? json_object_iter_next(raw(object), *iter) : json_object_iter(raw(object));
    if (!*iter)
        return false;
    *key = json_object_iter_key(*iter);
    *value = wrap(json_object_iter_value(*iter));
    return true;
}

/* ---- checked members ---- */

calm_status calm_json_expect(calm_ctx *ctx, const calm_json *value, calm_json_type type, const char *format, ...)
{
    const calm_json_type found = calm_json_typeof(value);
    char place[CALM_MESSAGE_MAX];
    va_list args;
    if (found == type || (type == CALM_JSON_REAL && found == CALM_JSON_INT))
        return CALM_OK;
    va_start(args, format);
    vsnprintf(place, sizeof place, format, args);
    va_end(args);
    return calm_fail(ctx, CALM_EFORMAT, "%s: expected %s, found %s", place, calm_json_type_name(type),
                     calm_json_type_name(found));
}

/* Finds a member and checks its type; NULL if it is optional and absent or null. */
static calm_status member(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                          calm_json_type type, bool optional, const calm_json **out)
{
    *out = calm_json_get(object, key);
    if (calm_json_typeof(*out) != CALM_JSON_NULL)
        return calm_json_expect(ctx, *out, type, "%s: \"%s\"", where, key);
    *out = NULL;
    return optional ? CALM_OK : calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\" is missing", where, key);
}

calm_status calm_json_need_int(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                               const int64_t *fallback, int64_t min, int64_t max, int64_t *out)
{
    const calm_json *value;
    CALM_TRY(member(ctx, where, object, key, CALM_JSON_INT, fallback, &value));
    *out = value ? calm_json_int(value, 0) : *fallback;
    if (value && (*out < min || *out > max))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected %lld to %lld, found %lld", where, key,
                         (long long)min, (long long)max, (long long)*out);
    return CALM_OK;
}

calm_status calm_json_need_number(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                  const double *fallback, double min, double max, double *out)
{
    const calm_json *value;
    CALM_TRY(member(ctx, where, object, key, CALM_JSON_REAL, fallback, &value));
    *out = value ? calm_json_number(value, 0) : *fallback;
    if (value && (!isfinite(*out) || *out < min || *out > max))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected %.15g to %.15g, found %.15g", where, key, min, max,
                         *out);
    return CALM_OK;
}

calm_status calm_json_need_bool(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                const bool *fallback, bool *out)
{
    const calm_json *value;
    CALM_TRY(member(ctx, where, object, key, CALM_JSON_BOOL, fallback, &value));
    *out = value ? calm_json_bool(value, false) : *fallback;
    return CALM_OK;
}

calm_status calm_json_need_string(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                  const char *fallback, const char **out)
{
    const calm_json *value;
    CALM_TRY(member(ctx, where, object, key, CALM_JSON_STRING, fallback, &value));
    *out = value ? calm_json_string(value, "") : fallback;
    if (value && strlen(*out) != calm_json_string_length(value))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": holds a zero byte", where, key);
    return CALM_OK;
}

/* ---- building: a failed allocation leaves a NULL, which calm_json_write reports ---- */

calm_json *calm_json_new_object(void)
{
    return wrap(json_object());
}

calm_json *calm_json_new_array(void)
{
    return wrap(json_array());
}

calm_json *calm_json_new_null(void)
{
    return wrap(json_null());
}

void calm_json_set(calm_json *object, const char *key, calm_json *value)
{
    json_object_set_new(raw(object), key, raw(value));
}

calm_json *calm_json_of_string(const char *value)
{
    json_t *text = value ? json_string(value) : NULL;
    return wrap(text ? text : json_null());
}

calm_json *calm_json_of_int(long long value)
{
    return wrap(json_integer(value));
}

calm_json *calm_json_of_size(size_t value)
{
    return wrap(json_integer((json_int_t)value));
}

calm_json *calm_json_of_number(double value)
{
    return wrap(isfinite(value) ? json_real(value) : json_null());
}

calm_json *calm_json_of_bool(bool value)
{
    return wrap(json_boolean(value));
}

calm_json *calm_json_of_json(calm_json *value)
{
    return value;
}

calm_json *calm_json_extend(calm_json *object, const calm_json_member *members)
{
    for (const calm_json_member *member = members; member->key; member++)
        if (member->value)
            calm_json_set(object, member->key, member->value);
    return object;
}

void calm_json_set_string(calm_json *object, const char *key, const char *value)
{
    calm_json_set(object, key, calm_json_of_string(value));
}

void calm_json_set_bytes(calm_json *object, const char *key, const char *bytes, size_t n)
{
    json_object_set_new(raw(object), key, json_stringn(bytes, n));
}

void calm_json_set_int(calm_json *object, const char *key, int64_t value)
{
    calm_json_set(object, key, calm_json_of_int(value));
}

void calm_json_set_number(calm_json *object, const char *key, double value)
{
    calm_json_set(object, key, calm_json_of_number(value));
}

void calm_json_set_bool(calm_json *object, const char *key, bool value)
{
    calm_json_set(object, key, calm_json_of_bool(value));
}

void calm_json_remove(calm_json *object, const char *key)
{
    json_object_del(raw(object), key);
}

void calm_json_add(calm_json *array, calm_json *value)
{
    json_array_append_new(raw(array), raw(value));
}

void calm_json_add_string(calm_json *array, const char *value)
{
    json_array_append_new(raw(array), json_string(value));
}

calm_json *calm_json_copy(const calm_json *value)
{
    return wrap(json_deep_copy(raw(value)));
}

static int append(const char *bytes, size_t n, void *user)
{
    calm_text_append(user, bytes, n);
    return 0;
}

/* Returns the fewest digits, 15 to 17, from which every number of the document reads back the same, so that 0.05 is
 * not written as 0.050000000000000003. */
static int digits_needed(const json_t *value)
{
    int most = 15;
    const char *key;
    json_t *child;
    size_t index;
    if (json_is_real(value))
        most = calm_digits_needed(json_real_value(value), most);
    json_object_foreach((json_t *)(uintptr_t)value, key, child) {
        const int digits = digits_needed(child);
        most = digits > most ? digits : most;
    }
    json_array_foreach(value, index, child) {
        const int digits = digits_needed(child);
        most = digits > most ? digits : most;
    }
    return most;
}

calm_status calm_json_write(calm_ctx *ctx, const calm_json *value, int indent, calm_text *out)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_INDENT((size_t)indent) | (indent ? 0 : JSON_COMPACT) |
                         JSON_REAL_PRECISION(digits_needed(raw(value)));
    if (!value || json_dump_callback(raw(value), append, out, flags) != 0)
        return calm_fail(ctx, CALM_ENOMEM, "cannot write JSON (out of memory)");
    return calm_text_check(ctx, out);
}

calm_status calm_json_text(calm_ctx *ctx, const calm_json *value, const char **out)
{
    CALM_SCOPED_TEXT(text);
    *out = NULL;
    CALM_TRY(calm_json_write(ctx, value, 0, &text));
    return calm_strf(ctx, ctx->out, out, "%s", text.data);
}

calm_status calm_json_save(calm_ctx *ctx, const char *path, const calm_json *value)
{
    CALM_SCOPED_TEXT(text);
    CALM_TRY(calm_json_write(ctx, value, 2, &text));
    calm_text_append(&text, "\n", 1);
    CALM_TRY(calm_text_check(ctx, &text));
    return calm_write_file(ctx, path, text.data, text.length);
}
