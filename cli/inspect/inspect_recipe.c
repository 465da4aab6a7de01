/* Walks recipes as lists of values. */
#include "cli/inspect/inspect_recipe.h"

#include <stdio.h>
#include <string.h>

typedef struct walk {
    calm_inspect_value_fn *fn;
    void *user;
    calm_text *pointer;
} walk;

static bool is_inner(const calm_json *value)
{
    const calm_json_type type = calm_json_typeof(value);
    return (type == CALM_JSON_OBJECT || type == CALM_JSON_ARRAY) && calm_json_size(value) > 0;
}

static void put_key(calm_text *pointer, const char *key)
{
    calm_text_append(pointer, "/", 1);
    for (const char *at = key; *at; at++)
        calm_text_append(pointer, *at == '~' ? "~0" : *at == '/' ? "~1" : at, *at == '~' || *at == '/' ? 2 : 1);
}

static calm_status report(calm_ctx *ctx, walk *w, const calm_json *first, const calm_json *second)
{
    CALM_SCOPED_TEXT(one);
    CALM_SCOPED_TEXT(other);
    CALM_TRY(first ? calm_json_write(ctx, first, 0, &one) : CALM_OK);
    CALM_TRY(second ? calm_json_write(ctx, second, 0, &other) : CALM_OK);
    CALM_TRY(calm_text_check(ctx, w->pointer));
    return w->fn(ctx, w->user, w->pointer->data ? w->pointer->data : "", one.data, other.data);
}

static calm_status visit(calm_ctx *ctx, walk *w, const calm_json *first, const calm_json *second);

static calm_status visit_member(calm_ctx *ctx, walk *w, const char *key, const calm_json *first,
                                const calm_json *second)
{
    const size_t length = w->pointer->length;
    put_key(w->pointer, key);
    const calm_status status = visit(ctx, w, first, second);
    if (!w->pointer->failed)
        w->pointer->data[w->pointer->length = length] = '\0';
    return status;
}

/* Is a member the root's "document", the recipe file, which repeats the resolved recipe around it? */
static bool is_document(const walk *w, const char *key)
{
    return w->pointer->length == 0 && strcmp(key, "document") == 0;
}

static calm_status visit_object(calm_ctx *ctx, walk *w, const calm_json *first, const calm_json *second)
{
    const char *key;
    const calm_json *value;
    for (void *at = NULL; calm_json_next(first, &at, &key, &value);)
        if (!is_document(w, key))
            CALM_TRY(visit_member(ctx, w, key, value, calm_json_get(second, key)));
    for (void *at = NULL; calm_json_next(second, &at, &key, &value);)
        if (!calm_json_get(first, key) && !is_document(w, key))
            CALM_TRY(visit_member(ctx, w, key, NULL, value));
    return CALM_OK;
}

static calm_status visit_array(calm_ctx *ctx, walk *w, const calm_json *first, const calm_json *second)
{
    const size_t n = calm_json_size(first) > calm_json_size(second) ? calm_json_size(first) : calm_json_size(second);
    for (size_t i = 0; i < n; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        CALM_TRY(visit_member(ctx, w, key, calm_json_at(first, i), calm_json_at(second, i)));
    }
    return CALM_OK;
}

/* Walks two objects or two arrays; passes anything else to fn as a whole. */
static calm_status visit(calm_ctx *ctx, walk *w, const calm_json *first, const calm_json *second)
{
    const calm_json *sample = first ? first : second;
    const bool inner = (!first || is_inner(first)) && (!second || is_inner(second)) &&
                       (!first || !second || calm_json_typeof(first) == calm_json_typeof(second));
    if (!inner)
        return report(ctx, w, first, second);
    return calm_json_typeof(sample) == CALM_JSON_OBJECT ? visit_object(ctx, w, first, second)
                                                        : visit_array(ctx, w, first, second);
}

calm_status calm_inspect_walk(calm_ctx *ctx, const calm_json *first, const calm_json *second, calm_inspect_value_fn *fn,
                              void *user)
{
    CALM_SCOPED_TEXT(pointer);
    walk w = {fn, user, &pointer};
    return first || second ? visit(ctx, &w, first, second) : CALM_OK;
}
