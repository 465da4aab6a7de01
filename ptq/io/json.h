/* JSON: reading untrusted documents and writing stable ones; the only user of jansson.
 *
 * Every error of a reader names the file and the place (JSON pointer).  Duplicate keys are refused, and so is a
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

/* Parses `n` bytes; `name` appears in error messages.  *out is freed with calm_json_free.  CALM_EFORMAT. */
calm_status calm_json_parse(calm_ctx *ctx, const char *name, const char *bytes, size_t n, calm_json **out);

/* Parses a file of at most `limit` bytes.  Python's Infinity, -Infinity and NaN are read as {"__float__": "NaN"}. */
calm_status calm_json_read(calm_ctx *ctx, const char *path, size_t limit, calm_json **out);
void calm_json_free(calm_json *root);

/* ---- reading: NULL values are allowed and have type NULL ---- */

/* Return the type of a value; the name of a type for messages ("a whole number"). */
calm_json_type calm_json_typeof(const calm_json *value);
const char *calm_json_type_name(calm_json_type type);

/* Return a member of an object, an element of an array; NULL when absent (or `value` has another type). */
const calm_json *calm_json_get(const calm_json *value, const char *key);
const calm_json *calm_json_at(const calm_json *value, size_t index);

/* Returns the number of elements or members; 0 for other types. */
size_t calm_json_size(const calm_json *value);

/* Return the value; `fallback` when it is absent, null or of another type.  Strings are NUL-terminated UTF-8. */
int64_t calm_json_int(const calm_json *value, int64_t fallback);
double calm_json_number(const calm_json *value, double fallback);
bool calm_json_bool(const calm_json *value, bool fallback);
const char *calm_json_string(const calm_json *value, const char *fallback);
/* Returns the bytes of a string value (which may contain U+0000); 0 for other types. */
size_t calm_json_string_length(const calm_json *value);

/* Reads the next member of an object in document order; *iter is NULL before the first call.  False at the end. */
bool calm_json_next(const calm_json *object, void **iter, const char **key, const calm_json **value);

/* ---- checked values: errors name the place ---- */

/* Fails with CALM_EFORMAT, "PLACE: expected an array, found null", when the value has another type; a whole number
 * is accepted as CALM_JSON_REAL.  `format` prints the place. */
calm_status calm_json_expect(calm_ctx *ctx, const calm_json *value, calm_json_type type, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- checked members of an object: errors name `where` (a file) and the key ---- */

/* Reads an integer in [min, max].  Absent: *out = *fallback, or CALM_EFORMAT when fallback is NULL.  JSON null
 * counts as absent. */
calm_status calm_json_need_int(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                               const int64_t *fallback, int64_t min, int64_t max, int64_t *out);
/* Reads a finite number in [min, max]. */
calm_status calm_json_need_number(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                  const double *fallback, double min, double max, double *out);
calm_status calm_json_need_bool(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                const bool *fallback, bool *out);
/* Reads a string; *out is borrowed from the document. */
calm_status calm_json_need_string(calm_ctx *ctx, const char *where, const calm_json *object, const char *key,
                                  const char *fallback, const char **out);

/* ---- building and writing ---- */

/* Create values.  NULL when memory is exhausted; the functions below accept NULL, and calm_json_write reports it. */
calm_json *calm_json_new_object(void);
calm_json *calm_json_new_array(void);
calm_json *calm_json_new_null(void);
/* Set members; a NULL string or a number that is not finite becomes null. */
void calm_json_set_string(calm_json *object, const char *key, const char *value);
/* Sets a string of `n` bytes of well-formed UTF-8, which may contain U+0000. */
void calm_json_set_bytes(calm_json *object, const char *key, const char *bytes, size_t n);
void calm_json_set_int(calm_json *object, const char *key, int64_t value);
void calm_json_set_number(calm_json *object, const char *key, double value);
void calm_json_set_bool(calm_json *object, const char *key, bool value);
/* Sets a member; the object then owns `value`. */
void calm_json_set(calm_json *object, const char *key, calm_json *value);

/* Builds an object from a list of members, each of which becomes the JSON type of its C type:
 *
 *   calm_json *row = CALM_OBJECT(CALM_KV("name", trial->name), CALM_KV("kl", trial->kl), CALM_KV("tasks", tasks));
 *
 * char *: a string, NULL: null.  size_t, int64_t, long long: a whole number.  double: a number, null if not finite.
 * bool.  calm_json *: the value itself, which the object then owns; NULL: no member.  An int does not compile: most
 * are comparisons, which need a cast to bool. */
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

/* Sets the members of a list that ends with a NULL key; returns `object`. */
calm_json *calm_json_extend(calm_json *object, const calm_json_member *members);

/* Create values, for CALM_KV. */
calm_json *calm_json_of_string(const char *value);
calm_json *calm_json_of_int(long long value);
calm_json *calm_json_of_size(size_t value);
calm_json *calm_json_of_number(double value);
calm_json *calm_json_of_bool(bool value);
calm_json *calm_json_of_json(calm_json *value);

/* Removes a member, if it exists. */
void calm_json_remove(calm_json *object, const char *key);

/* Append an element; the array then owns `value`. */
void calm_json_add(calm_json *array, calm_json *value);
void calm_json_add_string(calm_json *array, const char *value);
/* Returns a deep copy that may be changed. */
calm_json *calm_json_copy(const calm_json *value);

/* Writes a value with members in the order of insertion; `indent` 0: on one line.  No newline at the end; numbers
 * have the fewest digits (15 to 17) that read back the same.  CALM_ENOMEM, also if an earlier call ran out of
 * memory. */
calm_status calm_json_write(calm_ctx *ctx, const calm_json *value, int indent, calm_text *out);

/* Writes a value on one line, as a string in ctx->out; NULL on failure. */
calm_status calm_json_text(calm_ctx *ctx, const calm_json *value, const char **out);

/* Writes a value to the file `path`, indented by 2 and with a newline at the end. */
calm_status calm_json_save(calm_ctx *ctx, const char *path, const calm_json *value);

/* For scopes: `calm_json *name = NULL` that is freed at their end. */
#define CALM_SCOPED_JSON(name) CALM_SCOPED(calm_json, calm_json_release) *name = NULL
static inline void calm_json_release(calm_json **json)
{
    calm_json_free(*json);
}
