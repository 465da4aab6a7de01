/* Values of templates: the Python types that chat templates use. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

typedef enum calm_jinja_kind {
    CALM_JINJA_UNDEFINED,    /* text: its name; NULL: an argument that was not given */
    CALM_JINJA_NONE,
    CALM_JINJA_BOOL,         /* integer: 0 or 1 */
    CALM_JINJA_INT,
    CALM_JINJA_REAL,
    CALM_JINJA_STRING,
    CALM_JINJA_LIST,
    CALM_JINJA_TUPLE,        /* list */
    CALM_JINJA_GENERATOR,    /* list: result of map, select and similar; iterates once, and has no length            */
    CALM_JINJA_DICT,
    CALM_JINJA_NAMESPACE,    /* dict */
    CALM_JINJA_MACRO,
    CALM_JINJA_FUNCTION,     /* function */
    CALM_JINJA_METHOD,       /* method: a function with its subject */
    CALM_JINJA_LOOP,
} calm_jinja_kind;

typedef struct calm_jinja_list calm_jinja_list;
typedef struct calm_jinja_dict calm_jinja_dict;
typedef struct calm_jinja_macro calm_jinja_macro;
typedef struct calm_jinja_method calm_jinja_method;
typedef struct calm_jinja_loop calm_jinja_loop;
typedef struct calm_jinja_builtin calm_jinja_builtin;

/* Bytes of well-formed UTF-8, borrowed. */
typedef struct calm_jinja_string {
    const char *bytes;
    size_t n;
} calm_jinja_string;

/* A value.  Lists and dicts are shared by all values that point to them. */
typedef struct calm_jinja_value {
    calm_jinja_kind kind;
    bool markup;             /* of a string: result of the filter safe; strings appended to it are escaped */
    union {
        int64_t integer;
        double real;
        calm_jinja_string text;
        calm_jinja_list *list;
        calm_jinja_dict *dict;
        const calm_jinja_macro *macro;
        const calm_jinja_builtin *function;
        const calm_jinja_method *method;
        calm_jinja_loop *loop;
    };
} calm_jinja_value;

struct calm_jinja_list {
    calm_jinja_value *of;    /* [n] */
    size_t n, capacity;
};

typedef struct calm_jinja_pair {
    calm_jinja_value key, value;
} calm_jinja_pair;

/* Members in the order of insertion. */
struct calm_jinja_dict {
    calm_jinja_pair *of;    /* [n] */
    size_t n, capacity;
};

struct calm_jinja_method {
    const calm_jinja_builtin *function;
    calm_jinja_value subject;
};

/* Make a plain value. */
static inline calm_jinja_value calm_jinja_none(void)
{
    return (calm_jinja_value){.kind = CALM_JINJA_NONE};
}
static inline calm_jinja_value calm_jinja_bool(bool truth)
{
    return (calm_jinja_value){.kind = CALM_JINJA_BOOL, .integer = truth};
}
static inline calm_jinja_value calm_jinja_int(int64_t integer)
{
    return (calm_jinja_value){.kind = CALM_JINJA_INT, .integer = integer};
}
static inline calm_jinja_value calm_jinja_real(double real)
{
    return (calm_jinja_value){.kind = CALM_JINJA_REAL, .real = real};
}
static inline calm_jinja_value calm_jinja_text(const char *bytes, size_t n)
{
    return (calm_jinja_value){.kind = CALM_JINJA_STRING, .text = {bytes, n}};
}

/* Return whether an argument was given; whether a value is a string, a list or tuple, an integer (or bool), a
 * number; and calm_jinja_number the value of a number. */
static inline bool calm_jinja_given(calm_jinja_value v)
{
    return v.kind != CALM_JINJA_UNDEFINED || v.text.bytes;
}
static inline bool calm_jinja_is_string(calm_jinja_value v)
{
    return v.kind == CALM_JINJA_STRING;
}
static inline bool calm_jinja_is_list(calm_jinja_value v)
{
    return v.kind == CALM_JINJA_LIST || v.kind == CALM_JINJA_TUPLE;
}
static inline bool calm_jinja_is_whole(calm_jinja_value v)
{
    return v.kind == CALM_JINJA_INT || v.kind == CALM_JINJA_BOOL;
}
static inline bool calm_jinja_is_number(calm_jinja_value v)
{
    return calm_jinja_is_whole(v) || v.kind == CALM_JINJA_REAL;
}
static inline double calm_jinja_number(calm_jinja_value v)
{
    return v.kind == CALM_JINJA_REAL ? v.real : (double)v.integer;
}
