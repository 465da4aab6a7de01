/* Members of values: methods, and members by name or key. */
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_value_ops.h"

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

/* Returns loop.NAME, except methods. */
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
    bool member = false;
    CALM_TRY(calm_jinja_item(run, v, key, out));
    if (out->kind != CALM_JINJA_UNDEFINED || !calm_jinja_is_string(key))
        return CALM_OK;
    if (v.kind == CALM_JINJA_DICT)
        CALM_TRY(calm_jinja_contains(run, v, key, &member));
    if (member)
        return CALM_OK;
    /* The undefined value's name is a NUL-terminated copy of the key. */
    const char *name = out->text.bytes;
    CALM_TRY(find_method(run, v, name, out));
    if (v.kind == CALM_JINJA_LOOP && out->kind == CALM_JINJA_UNDEFINED)
        *out = loop_member(v.loop, name);
    return CALM_OK;
}
