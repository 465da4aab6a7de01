/* Arguments of the tables' functions, and members of values. */
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

/* The next name of a list with blanks; its length, 0 at the end. */
static size_t next_name(const char **at, const char **name)
{
    *at += strspn(*at, " ");
    *name = *at;
    *at += strcspn(*at, " ");
    return (size_t)(*at - *name);
}

/* Find the value of a parameter: the i-th, or the one of its name, which is then `used`. */
static const calm_jinja_value *find_argument(const calm_jinja_args *args, size_t i, const char *name, size_t n,
                                             size_t *used)
{
    const calm_jinja_value *found = i < args->n ? &args->of[i] : NULL;
    for (size_t k = 0; k < args->n_named; k++)
        if (strlen(args->names[k]) == n && strncmp(args->names[k], name, n) == 0) {
            if (found)
                return NULL;    /* twice: it counts as unused */
            found = &args->named[k];
            ++*used;
        }
    return found;
}

/* Values of the parameters in their order. */
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

/* ---- members ---- */

static calm_status find_method(calm_jinja_run *run, calm_jinja_value v, const char *name, calm_jinja_value *out)
{
    const calm_jinja_builtin *table = v.kind == CALM_JINJA_STRING ? calm_jinja_string_methods
                                      : calm_jinja_is_list(v)     ? calm_jinja_list_methods
                                      : v.kind == CALM_JINJA_DICT ? calm_jinja_dict_methods
                                      : v.kind == CALM_JINJA_LOOP ? calm_jinja_loop_methods : NULL;
    const calm_jinja_builtin *found = table ? calm_jinja_find_builtin(table, name) : NULL;
    calm_jinja_method *method;
    if (!found)
        return CALM_OK;
    if (v.markup)
        return calm_jinja_refuse(run, "a method of text that the filter safe gave");
    CALM_TRY(CALM_JINJA_NEW(run, method, 1));
    *method = (calm_jinja_method){found, v};
    *out = (calm_jinja_value){.kind = CALM_JINJA_METHOD, .method = method};
    return CALM_OK;
}

/* loop.NAME that is no method. */
static calm_jinja_value loop_member(const calm_jinja_loop *loop, const char *name)
{
    const size_t i = loop->index, n = loop->items->n;
    const struct { const char *name; calm_jinja_value value; } members[] = {
        {"index", calm_jinja_int((int64_t)i + 1)}, {"index0", calm_jinja_int((int64_t)i)},
        {"revindex", calm_jinja_int((int64_t)(n - i))}, {"revindex0", calm_jinja_int((int64_t)(n - i) - 1)},
        {"first", calm_jinja_bool(i == 0)}, {"last", calm_jinja_bool(i + 1 == n)},
        {"length", calm_jinja_int((int64_t)n)}, {"depth", calm_jinja_int(1)}, {"depth0", calm_jinja_int(0)},
        {"previtem", i ? loop->items->of[i - 1] : calm_jinja_undefined("previtem")},
        {"nextitem", i + 1 < n ? loop->items->of[i + 1] : calm_jinja_undefined("nextitem")},
    };
    for (size_t k = 0; k < sizeof members / sizeof *members; k++)
        if (strcmp(members[k].name, name) == 0)
            return members[k].value;
    return calm_jinja_undefined(name);
}

calm_status calm_jinja_attribute(calm_jinja_run *run, calm_jinja_value v, const char *name, calm_jinja_value *out)
{
    *out = calm_jinja_undefined(name);
    if (v.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, v);
    CALM_TRY(find_method(run, v, name, out));
    if (out->kind == CALM_JINJA_METHOD)
        return CALM_OK;
    if (v.kind == CALM_JINJA_LOOP)
        *out = loop_member(v.loop, name);
    else if (v.kind == CALM_JINJA_MACRO && strcmp(name, "name") == 0)
        *out = calm_jinja_text(v.macro->node->name, strlen(v.macro->node->name));
    else if (v.kind == CALM_JINJA_DICT || v.kind == CALM_JINJA_NAMESPACE)
        return calm_jinja_item(run, v, calm_jinja_text(name, strlen(name)), out);
    return CALM_OK;
}

calm_status calm_jinja_subscript(calm_jinja_run *run, calm_jinja_value v, calm_jinja_value key, calm_jinja_value *out)
{
    CALM_TRY(calm_jinja_item(run, v, key, out));
    if (out->kind != CALM_JINJA_UNDEFINED || !calm_jinja_is_string(key))
        return CALM_OK;
    /* A copy of the key with a NUL behind it is the undefined value's name. */
    const char *name = out->text.bytes;
    CALM_TRY(find_method(run, v, name, out));
    if (v.kind == CALM_JINJA_LOOP && out->kind == CALM_JINJA_UNDEFINED)
        *out = loop_member(v.loop, name);
    return CALM_OK;
}
