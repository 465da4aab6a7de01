/* Arguments of built-in functions. */
#include "ptq/jinja/jinja_call.h"

#include <string.h>

#include "ptq/jinja/jinja_value_ops.h"

const calm_jinja_builtin *calm_jinja_find_builtin(const calm_jinja_builtin *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

/* ---- arguments ---- */

const calm_jinja_value *calm_jinja_named(const calm_jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (strcmp(args->names[i], name) == 0)
            return &args->named[i];
    return NULL;
}

/* Reads the next name of a list separated by blanks; returns its length, 0 at the end. */
static size_t next_name(const char **at, const char **name)
{
    *at += strspn(*at, " ");
    *name = *at;
    *at += strcspn(*at, " ");
    return (size_t)(*at - *name);
}

/* Finds the value of a parameter: the i-th argument, or the one with its name, which it counts in *used. */
static const calm_jinja_value *find_argument(const calm_jinja_args *args, size_t i, const char *name, size_t n,
                                             size_t *used)
{
    const calm_jinja_value *found = i < args->n ? &args->of[i] : NULL;
    for (size_t k = 0; k < args->n_named; k++)
        if (strlen(args->names[k]) == n && strncmp(args->names[k], name, n) == 0) {
            if (found)
                return NULL;    /* given twice: the named one stays unused */
            found = &args->named[k];
            ++*used;
        }
    return found;
}

/* Assigns arguments to the parameters, in their order. */
static calm_status bind(calm_jinja_run *run, const char *kind, const calm_jinja_builtin *f, const calm_jinja_args *args,
                        calm_jinja_value *a)
{
    const char *at = f->parameters, *name;
    size_t n = 0, used = 0;
    bool any = false;
    for (size_t length; (length = next_name(&at, &name)) > 0; n++) {
        any = any || *name == '*';
        if (*name == '*')
            break;
        const bool optional = name[length - 1] == '?';
        const calm_jinja_value *found = find_argument(args, n, name, length - optional, &used);
        if (!found && !optional)
            return calm_jinja_fail(run, "the %s \"%s\" needs %zu arguments", kind, f->name, n + 1);
        if (found)
            a[n] = *found;
    }
    if (!any && (args->n > n || used < args->n_named))
        return calm_jinja_fail(run, "the %s \"%s\" does not take these arguments", kind, f->name);
    return CALM_OK;
}

calm_status calm_jinja_invoke(calm_jinja_run *run, const char *kind, const calm_jinja_builtin *function,
                              const calm_jinja_args *args, calm_jinja_value *out)
{
    calm_jinja_value a[CALM_JINJA_PARAMETERS_MAX] = {0};
    if (!function->call)
        return calm_jinja_refuse(run, "the %s \"%s\"", kind, function->name);
    CALM_TRY(bind(run, kind, function, args, a));
    return function->call(run, a, args, out);
}

calm_status calm_jinja_int_argument(calm_jinja_run *run, calm_jinja_value v, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (!calm_jinja_given(v) || v.kind == CALM_JINJA_NONE)
        return CALM_OK;
    if (!calm_jinja_is_whole(v))
        return calm_jinja_fail(run, "an argument: expected a whole number, found a %s", calm_jinja_kind_name(v.kind));
    *out = v.integer;
    return CALM_OK;
}

calm_status calm_jinja_string_argument(calm_jinja_run *run, calm_jinja_value v, const char *fallback,
                                       calm_jinja_string *out)
{
    *out = (calm_jinja_string){fallback, fallback ? strlen(fallback) : 0};
    if (!calm_jinja_given(v) || v.kind == CALM_JINJA_NONE)
        return CALM_OK;
    if (!calm_jinja_is_string(v))
        return calm_jinja_fail(run, "an argument: expected a string, found a %s", calm_jinja_kind_name(v.kind));
    *out = v.text;
    return CALM_OK;
}
