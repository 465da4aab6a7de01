/* One rendering: memory, limits, output, names, and the callbacks between layers. */
#pragma once

#include "ptq/jinja/jinja_syntax.h"

/* Limits of one rendering.  A chat of a thousand messages needs a million steps. */
#define CALM_JINJA_STEPS_MAX  ((size_t)10 * 1000 * 1000)
#define CALM_JINJA_MEMORY_MAX ((size_t)512 * 1024 * 1024)
#define CALM_JINJA_LEVELS_MAX 400     /* nested evaluations and bodies, macros included     */

typedef struct calm_jinja_run calm_jinja_run;

/* Names of a body; `parent` has those of the enclosing body. */
typedef struct calm_jinja_scope calm_jinja_scope;
struct calm_jinja_scope {
    calm_jinja_scope *parent;
    const char **names;           /* [n], borrowed */
    calm_jinja_value *values;     /* [n] */
    size_t n, capacity, names_capacity;
};

struct calm_jinja_loop {
    const calm_jinja_list *items;
    size_t index;                 /* index of the current item, from 0 */
    calm_jinja_value changed;     /* last argument of loop.changed; not given: no call yet */
};

/* A byte buffer that grows in the arena of the rendering. */
typedef struct calm_jinja_buffer {
    char *data;
    size_t n, capacity;
} calm_jinja_buffer;

/* Arguments of a call: positional values, then named ones. */
typedef struct calm_jinja_args {
    const calm_jinja_value *of;         /* [n] */
    const calm_jinja_value *named;      /* [n_named] */
    const char *const *names;           /* [n_named] */
    size_t n, n_named;
} calm_jinja_args;

/* A function of the tables.  a[i] is the value of the i-th name in the row's `parameters`, not given
 * (calm_jinja_given) if the call omits it; the first is the subject of a filter, test or method.  `args` are the
 * arguments of the call. */
typedef calm_status calm_jinja_function(calm_jinja_run *run, const calm_jinja_value *a, const calm_jinja_args *args,
                                        calm_jinja_value *out);

/* A table row; a table ends with a row without a name.  parameters: names separated by blanks, '?' behind an
 * optional one; a final "*" allows any further arguments.  call NULL: Python has the function, calm does not. */
struct calm_jinja_builtin {
    const char *name, *parameters;
    calm_jinja_function *call;
};
#define CALM_JINJA_PARAMETERS_MAX 6

struct calm_jinja_run {
    calm_ctx *ctx;
    calm_arena *arena;
    const char *where;
    size_t line;                  /* line of the node that is evaluated */
    size_t steps, levels;
    calm_jinja_scope *scope;
    calm_jinja_buffer *out;
    /* Functions of higher layers, for map, select and macros. */
    calm_status (*filter)(calm_jinja_run *run, const char *name, const calm_jinja_args *args, calm_jinja_value *out);
    calm_status (*test)(calm_jinja_run *run, const char *name, const calm_jinja_args *args, calm_jinja_value *out);
    calm_status (*body)(calm_jinja_run *run, const calm_jinja_node *body);
};

/* Record a failure with file and line: CALM_EFORMAT; CALM_EUNSUPPORTED for features that calm does not have. */
calm_status calm_jinja_fail(calm_jinja_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
calm_status calm_jinja_refuse(calm_jinja_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Count the steps of `n` values; of `n` bytes.  CALM_EFORMAT at a limit. */
calm_status calm_jinja_step(calm_jinja_run *run, size_t n);
calm_status calm_jinja_step_bytes(calm_jinja_run *run, size_t n);

/* Increments run->levels, which the caller restores.  CALM_EFORMAT at the limit. */
calm_status calm_jinja_level(calm_jinja_run *run);

/* Allocates uninitialised memory of the rendering.  CALM_EFORMAT at its limit. */
calm_status calm_jinja_new_bytes(calm_jinja_run *run, size_t count, size_t size, void *out);
#define CALM_JINJA_NEW(run, ptr, count) calm_jinja_new_bytes((run), (count), sizeof *(ptr), &(ptr))

/* Append to a buffer. */
calm_status calm_jinja_put(calm_jinja_run *run, calm_jinja_buffer *to, const char *bytes, size_t n);
calm_status calm_jinja_put_text(calm_jinja_run *run, calm_jinja_buffer *to, const char *text);
static inline calm_status calm_jinja_put_string(calm_jinja_run *run, calm_jinja_buffer *to, calm_jinja_string s)
{
    return calm_jinja_put(run, to, s.bytes, s.n);
}
static inline calm_jinja_value calm_jinja_of_buffer(const calm_jinja_buffer *b)
{
    return calm_jinja_text(b->n ? b->data : "", b->n);
}

/* Create an empty list (or tuple); an empty dict (or namespace). */
calm_status calm_jinja_new_list(calm_jinja_run *run, calm_jinja_kind kind, calm_jinja_value *out);
calm_status calm_jinja_new_dict(calm_jinja_run *run, calm_jinja_kind kind, calm_jinja_value *out);

/* Append an element to a list; a member to a dict that does not have its key. */
calm_status calm_jinja_append(calm_jinja_run *run, calm_jinja_list *list, calm_jinja_value value);
calm_status calm_jinja_put_pair(calm_jinja_run *run, calm_jinja_dict *dict, calm_jinja_value key,
                                calm_jinja_value value);

/* Creates a tuple of two. */
calm_status calm_jinja_new_pair(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, calm_jinja_value *out);

/* calm_jinja_set_name sets a name in a scope; calm_jinja_find_name returns the value of a name in the scope or its
 * parents, NULL if it has none. */
calm_status calm_jinja_set_name(calm_jinja_run *run, calm_jinja_scope *scope, const char *name, calm_jinja_value value);
const calm_jinja_value *calm_jinja_find_name(const calm_jinja_scope *scope, const char *name);
