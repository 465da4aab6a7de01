/* JSON: reading untrusted documents and writing stable ones; the only user of jansson.
 *
 * Readers name the file and the place (JSON pointer) in every error.  Duplicate keys are refused, and so is a
 * document nested deeper than jansson's limit.  Values are borrowed from the document. */
#pragma once

#include "ptq/base/scope.h"
#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"

typedef struct calm_json calm_json;    /* a value; opaque */

typedef enum calm_json_type {
    CALM_JSON_NULL, CALM_JSON_BOOL, CALM_JSON_INT, CALM_JSON_REAL, CALM_JSON_STRING, CALM_JSON_ARRAY, CALM_JSON_OBJECT
} calm_json_type;

/* ---- documents ---- */

/* Parse `n` bytes; `name` stands in error messages.  *out is freed with calm_json_free.  CALM_EFORMAT. */
calm_status calm_json_parse(calm_ctx *ctx, const char *name, const char *bytes, size_t n, calm_json **out);

/* Parse a file of at most `limit` bytes.  Python's Infinity, -Infinity and NaN are read as {"__float__": "NaN"}. */
calm_status calm_json_read(calm_ctx *ctx, const char *path, size_t limit, calm_json **out);
void calm_json_free(calm_json *root);

/* ---- reading: NULL values are allowed and have type NULL ---- */

/* Type, and its name for messages ("a whole number"). */
calm_json_type calm_json_typeof(const calm_json *value);
const char *calm_json_type_name(calm_json_type type);

/* Member or element; NULL when absent (or `value` is of another type). */
const calm_json *calm_json_get(const calm_json *value, const char *key);
const calm_json *calm_json_at(const calm_json *value, size_t index);

/* Number of elements or members; 0 for other types. */
size_t calm_json_size(const calm_json *value);

/* Plain accessors; `fallback` when the value is absent, null or of another type.  Strings are NUL-terminated UTF-8. */
int64_t calm_json_int(const calm_json *value, int64_t fallback);
double calm_json_number(const calm_json *value, double fallback);
bool calm_json_bool(const calm_json *value, bool fallback);
const char *calm_json_string(const calm_json *value, const char *fallback);
/* Bytes of a string value (it may hold U+0000); 0 otherwise. */
size_t calm_json_string_length(const calm_json *value);

/* The next member of an object in document order; iter is NULL before the first call.  False at the end. */
bool calm_json_next(const calm_json *object, void **iter, const char **key, const calm_json **value);

/* ---- checked values: errors name the place ---- */

/* CALM_EFORMAT, "PLACE: expected an array, found null", when the value is not of the type; a whole number is a
 * CALM_JSON_REAL too.  The place is printed by format. */
calm_status calm_json_expect(calm_ctx *ctx, const calm_json *value, calm_json_type type, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- checked members of an object: errors name `where` (a file) and the key ---- */

/* Integer in [min, max].  Absent: *out = *fallback, or CALM_EFORMAT when fallback is NULL.  JSON null counts as
 * absent. */
calm_status calm_json_need_int(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                               const int64_t *fallback, int64_t min, int64_t max, int64_t *out);
/* Finite number in [min, max]. */
calm_status calm_json_need_number(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                  const double *fallback, double min, double max, double *out);
calm_status calm_json_need_bool(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                const bool *fallback, bool *out);
/* String; *out borrowed from the document. */
calm_status calm_json_need_string(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                  const char *fallback, const char **out);

/* ---- building and writing ---- */

/* New values.  NULL when memory is out; the functions below accept it, and calm_json_write reports it. */
calm_json *calm_json_new_object(void);
calm_json *calm_json_new_array(void);
calm_json *calm_json_new_null(void);
/* Set members; a NULL string or a number that is not finite becomes null. */
void calm_json_set_string(calm_json *object, const char *key, const char *value);
/* `n` bytes of well-formed UTF-8, which may hold U+0000. */
void calm_json_set_bytes(calm_json *object, const char *key, const char *bytes, size_t n);
void calm_json_set_int(calm_json *object, const char *key, int64_t value);
void calm_json_set_number(calm_json *object, const char *key, double value);
void calm_json_set_bool(calm_json *object, const char *key, bool value);
/* Set a member, append an element; the object or array then owns `value`. */
void calm_json_set(calm_json *object, const char *key, calm_json *value);

/* A whole object as the list of its members, each of which becomes what the type of its value says:
 *
 *   calm_json *row = CALM_OBJECT(CALM_KV("name", trial->name), CALM_KV("kl", trial->kl), CALM_KV("tasks", tasks));
 *
 * char *: a string, NULL: null.  size_t, int64_t, long long: a whole number.  double: a number, null when not finite.
 * bool.  calm_json *: itself, taken over; NULL: no such member.  An int does not compile: most are comparisons, which
 * need a cast to bool. */
typedef struct calm_json_member {
    const char *key;
    calm_json *value;
} calm_json_member;

#define CALM_OBJECT(...) CALM_EXTEND(calm_json_new_object(), __VA_ARGS__)
#define CALM_EXTEND(object, ...) calm_json_extend((object), (const calm_json_member[]){__VA_ARGS__, {0}})
#define CALM_KV(key, value) {(key), CALM_JSON_OF(value)}
#define CALM_JSON_OF(value)                                                                                  \
    _Generic((value), char *: calm_json_of_string, const char *: calm_json_of_string, bool: calm_json_of_bool, \
             double: calm_json_of_number, size_t: calm_json_of_size, long: calm_json_of_int,                   \
             long long: calm_json_of_int, calm_json *: calm_json_of_json)(value)

/* Set the members of a list, which ends with a NULL key; returns `object`. */
calm_json *calm_json_extend(calm_json *object, const calm_json_member *members);

/* New values, as CALM_KV makes them. */
calm_json *calm_json_of_string(const char *value);
calm_json *calm_json_of_int(long long value);
calm_json *calm_json_of_size(size_t value);
calm_json *calm_json_of_number(double value);
calm_json *calm_json_of_bool(bool value);
calm_json *calm_json_of_json(calm_json *value);

/* Remove a member, if it is there. */
void calm_json_remove(calm_json *object, const char *key);

/* Append an element; owns `value` from now on. */
void calm_json_add(calm_json *array, calm_json *value);
void calm_json_add_string(calm_json *array, const char *value);
/* A deep copy that may be changed. */
calm_json *calm_json_copy(const calm_json *value);

/* Write with members in the order of insertion; `indent` 0 puts it on one line.  No newline at the end;
 * numbers with as many digits (15 to 17) as it takes to read them back the same.
 * Fails with CALM_ENOMEM, also when an earlier set ran out of memory. */
calm_status calm_json_write(calm_ctx *ctx, const calm_json *value, int indent, calm_text *out);

/* The same on one line, as a string in ctx->out; NULL on failure. */
calm_status calm_json_text(calm_ctx *ctx, const calm_json *value, const char **out);

/* Write it, indented by 2 and with a newline at the end, as the file `path`. */
calm_status calm_json_save(calm_ctx *ctx, const char *path, const calm_json *value);

/* For scopes: `calm_json *name = NULL` that is freed at their end. */
#define CALM_SCOPED_JSON(name) CALM_SCOPED(calm_json, calm_json_release) *name = NULL
static inline void calm_json_release(calm_json **json)
{
    calm_json_free(*json);
}
