/* Memory, limits and names of one rendering. */
#include "ptq/jinja/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes that count as one step. */
#define BYTES_A_STEP 64

/* ---- failures and limits ---- */

/* Fails with the current line, the message and an ending. */
static calm_status fail_at(calm_jinja_run *run, calm_status status, const char *end, const char *format, va_list list)
{
    char message[CALM_MESSAGE_MAX];
    vsnprintf(message, sizeof message, format, list);
    return calm_fail(run->ctx, status, "%s: line %zu: %s%s", run->where, run->line, message, end);
}

calm_status calm_jinja_fail(calm_jinja_run *run, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const calm_status status = fail_at(run, CALM_EFORMAT, "", format, list);
    va_end(list);
    return status;
}

calm_status calm_jinja_refuse(calm_jinja_run *run, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const calm_status status = fail_at(run, CALM_EUNSUPPORTED, " is not supported", format, list);
    va_end(list);
    return status;
}

calm_status calm_jinja_step(calm_jinja_run *run, size_t n)
{
    run->steps += n;
    if (n > CALM_JINJA_STEPS_MAX || run->steps > CALM_JINJA_STEPS_MAX)
        return calm_jinja_fail(run, "the template takes more than %zu steps", CALM_JINJA_STEPS_MAX);
    return CALM_OK;
}

calm_status calm_jinja_step_bytes(calm_jinja_run *run, size_t n)
{
    return calm_jinja_step(run, 1 + n / BYTES_A_STEP);
}

calm_status calm_jinja_level(calm_jinja_run *run)
{
    if (++run->levels > CALM_JINJA_LEVELS_MAX)
        return calm_jinja_fail(run, "the template nests deeper than %d", CALM_JINJA_LEVELS_MAX);
    return CALM_OK;
}

/* ---- memory ---- */

calm_status calm_jinja_new_bytes(calm_jinja_run *run, size_t count, size_t size, void *out)
{
    size_t bytes;
    if (!calm_size_mul(&bytes, count, size) || bytes > CALM_JINJA_MEMORY_MAX ||
        run->arena->used_bytes > CALM_JINJA_MEMORY_MAX - bytes)
        return calm_jinja_fail(run, "the template takes more than %zu MiB", CALM_JINJA_MEMORY_MAX >> 20);
    return calm_alloc_raw(run->ctx, run->arena, out, count, size, "values of a template");
}

/* Makes room for `need` items, of which the first n are kept: doubles the capacity. */
static calm_status grow(calm_jinja_run *run, void *items, size_t n, size_t need, size_t *capacity, size_t size)
{
    void **old = items, *larger;
    if (need <= *capacity)
        return CALM_OK;
    const size_t wanted = calm_size_max(need, calm_size_max(2 * *capacity, 64 / size));
    CALM_TRY(calm_jinja_new_bytes(run, wanted, size, &larger));
    if (n)
        memcpy(larger, *old, n * size);
    *old = larger;
    *capacity = wanted;
    return CALM_OK;
}

calm_status calm_jinja_put(calm_jinja_run *run, calm_jinja_buffer *to, const char *bytes, size_t n)
{
    if (n == 0)
        return CALM_OK;
    CALM_TRY(calm_jinja_step_bytes(run, n));
    CALM_TRY(grow(run, &to->data, to->n, to->n + n, &to->capacity, 1));
    memcpy(to->data + to->n, bytes, n);
    to->n += n;
    return CALM_OK;
}

calm_status calm_jinja_put_text(calm_jinja_run *run, calm_jinja_buffer *to, const char *text)
{
    return calm_jinja_put(run, to, text, strlen(text));
}

calm_status calm_jinja_new_list(calm_jinja_run *run, calm_jinja_kind kind, calm_jinja_value *out)
{
    calm_jinja_list *list;
    CALM_TRY(CALM_JINJA_NEW(run, list, 1));
    *list = (calm_jinja_list){0};
    *out = (calm_jinja_value){.kind = kind, .list = list};
    return CALM_OK;
}

calm_status calm_jinja_new_dict(calm_jinja_run *run, calm_jinja_kind kind, calm_jinja_value *out)
{
    calm_jinja_dict *dict;
    CALM_TRY(CALM_JINJA_NEW(run, dict, 1));
    *dict = (calm_jinja_dict){0};
    *out = (calm_jinja_value){.kind = kind, .dict = dict};
    return CALM_OK;
}

calm_status calm_jinja_append(calm_jinja_run *run, calm_jinja_list *list, calm_jinja_value value)
{
    CALM_TRY(calm_jinja_step(run, 1));
    CALM_TRY(grow(run, &list->of, list->n, list->n + 1, &list->capacity, sizeof *list->of));
    list->of[list->n++] = value;
    return CALM_OK;
}

calm_status calm_jinja_put_pair(calm_jinja_run *run, calm_jinja_dict *dict, calm_jinja_value key,
                                calm_jinja_value value)
{
    CALM_TRY(calm_jinja_step(run, 1));
    CALM_TRY(grow(run, &dict->of, dict->n, dict->n + 1, &dict->capacity, sizeof *dict->of));
    dict->of[dict->n++] = (calm_jinja_pair){key, value};
    return CALM_OK;
}

calm_status calm_jinja_new_pair(calm_jinja_run *run, calm_jinja_value a, calm_jinja_value b, calm_jinja_value *out)
{
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_TUPLE, out));
    CALM_TRY(calm_jinja_append(run, out->list, a));
    return calm_jinja_append(run, out->list, b);
}

/* ---- names ---- */

static calm_jinja_value *find_here(const calm_jinja_scope *scope, const char *name)
{
    for (size_t i = 0; i < scope->n; i++)
        if (strcmp(scope->names[i], name) == 0)
            return &scope->values[i];
    return NULL;
}

calm_status calm_jinja_set_name(calm_jinja_run *run, calm_jinja_scope *scope, const char *name, calm_jinja_value value)
{
    calm_jinja_value *there = find_here(scope, name);
    if (there) {
        *there = value;
        return CALM_OK;
    }
    CALM_TRY(grow(run, &scope->names, scope->n, scope->n + 1, &scope->names_capacity, sizeof *scope->names));
    CALM_TRY(grow(run, &scope->values, scope->n, scope->n + 1, &scope->capacity, sizeof *scope->values));
    scope->names[scope->n] = name;
    scope->values[scope->n++] = value;
    return CALM_OK;
}

const calm_jinja_value *calm_jinja_find_name(const calm_jinja_scope *scope, const char *name)
{
    const calm_jinja_value *found = NULL;
    for (; scope && !found; scope = scope->parent)
        found = find_here(scope, name);
    return found;
}
