/* Evaluates expressions. */
#include "ptq/jinja/jinja_eval.h"

#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_print.h"
#include "ptq/jinja/jinja_value_ops.h"

/* ---- arguments of calls ---- */

/* Collects the arguments of a call. */
typedef struct collector {
    calm_jinja_value positional, named;    /* a list; a dict by name  */
} collector;

/* Adds the elements of a list (*value) or the members of a dict (**value) to the arguments. */
static calm_status spread(calm_jinja_run *run, const calm_jinja_node *node, collector *c)
{
    calm_jinja_value value;
    const calm_jinja_list *list;
    CALM_TRY(calm_jinja_eval(run, node->a, &value));
    if (node->op == '*') {
        if (value.kind != CALM_JINJA_DICT)
            return calm_jinja_fail(run, "**: expected a dict, found a %s", calm_jinja_kind_name(value.kind));
        for (size_t i = 0; i < value.dict->n; i++)
            CALM_TRY(calm_jinja_store(run, c->named.dict, value.dict->of[i].key, value.dict->of[i].value));
        return CALM_OK;
    }
    CALM_TRY(calm_jinja_elements(run, value, &list));
    for (size_t i = 0; i < list->n; i++)
        CALM_TRY(calm_jinja_append(run, c->positional.list, list->of[i]));
    return CALM_OK;
}

static calm_status collect(calm_jinja_run *run, const calm_jinja_node *node, collector *c)
{
    for (; node; node = node->next) {
        calm_jinja_value value;
        if (node->type == CALM_JINJA_SPREAD) {
            CALM_TRY(spread(run, node, c));
            continue;
        }
        const bool keyword = node->type == CALM_JINJA_KEYWORD;
        CALM_TRY(calm_jinja_eval(run, keyword ? node->a : node, &value));
        if (keyword)
            CALM_TRY(calm_jinja_store(run, c->named.dict, calm_jinja_text(node->name, strlen(node->name)), value));
        else
            CALM_TRY(calm_jinja_append(run, c->positional.list, value));
    }
    return CALM_OK;
}

/* Converts the collected arguments, with NUL-terminated names of keywords. */
static calm_status finish(calm_jinja_run *run, const collector *c, calm_jinja_args *out)
{
    const calm_jinja_dict *named = c->named.dict;
    const char **names;
    calm_jinja_value *values;
    CALM_TRY(CALM_JINJA_NEW(run, names, named->n));
    CALM_TRY(CALM_JINJA_NEW(run, values, named->n));
    for (size_t i = 0; i < named->n; i++) {
        const calm_jinja_value key = named->of[i].key;
        char *name;
        if (!calm_jinja_is_string(key))
            return calm_jinja_fail(run, "the name of an argument is a %s", calm_jinja_kind_name(key.kind));
        CALM_TRY(CALM_JINJA_NEW(run, name, key.text.n + 1));
        memcpy(name, key.text.bytes, key.text.n);
        name[key.text.n] = '\0';
        names[i] = name;
        values[i] = named->of[i].value;
    }
    *out = (calm_jinja_args){.of = c->positional.list->of, .n = c->positional.list->n, .named = values, .names = names,
                             .n_named = named->n};
    return CALM_OK;
}

/* Evaluates the arguments of a call; `subject`, if any, is the first. */
static calm_status arguments(calm_jinja_run *run, const calm_jinja_value *subject, const calm_jinja_node *items,
                             calm_jinja_args *out)
{
    collector c;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, &c.positional));
    CALM_TRY(calm_jinja_new_dict(run, CALM_JINJA_DICT, &c.named));
    if (subject)
        CALM_TRY(calm_jinja_append(run, c.positional.list, *subject));
    CALM_TRY(collect(run, items, &c));
    return finish(run, &c, out);
}

/* ---- filters and tests ---- */

calm_status calm_jinja_call_filter(calm_jinja_run *run, const char *name, const calm_jinja_args *args,
                                   calm_jinja_value *out)
{
    const calm_jinja_builtin *found = calm_jinja_find_builtin(calm_jinja_text_filters, name);
    found = found ? found : calm_jinja_find_builtin(calm_jinja_list_filters, name);
    return found ? calm_jinja_invoke(run, "filter", found, args, out)
                 : calm_jinja_refuse(run, "the filter \"%.60s\"", name);
}

calm_status calm_jinja_call_test(calm_jinja_run *run, const char *name, const calm_jinja_args *args,
                                 calm_jinja_value *out)
{
    const calm_jinja_builtin *found = calm_jinja_find_builtin(calm_jinja_tests, name);
    return found ? calm_jinja_invoke(run, "test", found, args, out)
                 : calm_jinja_refuse(run, "the test \"%.60s\"", name);
}

/* Applies one filter or test to a value. */
static calm_status apply(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value value,
                         calm_jinja_value *out)
{
    calm_jinja_args args;
    CALM_TRY(arguments(run, &value, node->items, &args));
    run->line = node->line;
    return node->type == CALM_JINJA_TEST ? calm_jinja_call_test(run, node->name, &args, out)
                                         : calm_jinja_call_filter(run, node->name, &args, out);
}

calm_status calm_jinja_filter_body(calm_jinja_run *run, const calm_jinja_node *filters, calm_jinja_value body,
                                   calm_jinja_value *out)
{
    *out = body;
    if (!filters)
        return CALM_OK;
    CALM_TRY(calm_jinja_level(run));
    CALM_TRY(calm_jinja_filter_body(run, filters->a, body, out));
    run->levels--;
    return apply(run, filters, *out, out);
}

static calm_status eval_applied(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value value;
    CALM_TRY(calm_jinja_eval(run, node->a, &value));
    return apply(run, node, value, out);
}

/* ---- calls ---- */

/* Sets the parameters of a macro in its scope; parameters without an argument have their defaults. */
static calm_status set_parameters(calm_jinja_run *run, const calm_jinja_macro *macro, const calm_jinja_args *args)
{
    size_t i = 0, used = 0;
    for (const calm_jinja_node *p = macro->node->items; p; p = p->next, i++) {
        const calm_jinja_value *by_name = calm_jinja_named(args, p->name);
        calm_jinja_value value = calm_jinja_undefined(p->name);
        used += by_name != NULL;
        if (i < args->n && by_name)
            return calm_jinja_fail(run, "the macro \"%s\" has \"%s\" twice", macro->node->name, p->name);
        if (i < args->n || by_name)
            value = by_name ? *by_name : args->of[i];
        else if (p->a)
            CALM_TRY(calm_jinja_eval(run, p->a, &value));
        CALM_TRY(calm_jinja_set_name(run, run->scope, p->name, value));
    }
    if (args->n > i || used < args->n_named)
        return calm_jinja_fail(run, "the macro \"%s\" does not take these arguments", macro->node->name);
    return CALM_OK;
}

static calm_status call_macro(calm_jinja_run *run, const calm_jinja_macro *macro, const calm_jinja_args *args,
                              calm_jinja_value *out)
{
    calm_jinja_scope *const caller = run->scope, *own;
    calm_jinja_buffer *const outer = run->out, *buffer;
    const size_t line = run->line;
    CALM_TRY(CALM_JINJA_NEW(run, own, 1));    /* on the heap, since a macro defined inside may outlive the call */
    CALM_TRY(CALM_JINJA_NEW(run, buffer, 1));
    *own = (calm_jinja_scope){.parent = macro->scope};
    *buffer = (calm_jinja_buffer){0};
    run->scope = own;
    run->out = buffer;
    CALM_TRY(set_parameters(run, macro, args));
    CALM_TRY(run->body(run, macro->node->more));
    run->scope = caller;
    run->out = outer;
    run->line = line;
    *out = calm_jinja_of_buffer(buffer);
    return CALM_OK;
}

static calm_status eval_call(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value callee;
    calm_jinja_args args;
    CALM_TRY(calm_jinja_eval(run, node->a, &callee));
    const bool method = callee.kind == CALM_JINJA_METHOD;
    CALM_TRY(arguments(run, method ? &callee.method->subject : NULL, node->items, &args));
    run->line = node->line;
    if (method)
        return calm_jinja_invoke(run, "method", callee.method->function, &args, out);
    if (callee.kind == CALM_JINJA_FUNCTION)
        return calm_jinja_invoke(run, "function", callee.function, &args, out);
    if (callee.kind == CALM_JINJA_MACRO)
        return call_macro(run, callee.macro, &args, out);
    if (callee.kind == CALM_JINJA_UNDEFINED)
        return calm_jinja_undefined_failure(run, callee);
    return calm_jinja_fail(run, "a %s cannot be called", calm_jinja_kind_name(callee.kind));
}

/* ---- names and containers ---- */

/* Names that Jinja defines and calm does not. */
static bool is_special(const char *name)
{
    static const char *const names[] = {"varargs", "kwargs", "caller", "self"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static calm_status eval_name(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    const calm_jinja_value *found = calm_jinja_find_name(run->scope, node->name);
    const calm_jinja_builtin *function = found ? NULL : calm_jinja_find_builtin(calm_jinja_functions, node->name);
    if (!found && is_special(node->name))
        return calm_jinja_refuse(run, "the name \"%s\"", node->name);
    *out = found      ? *found
           : function ? (calm_jinja_value){.kind = CALM_JINJA_FUNCTION, .function = function}
                      : calm_jinja_undefined(node->name);
    return CALM_OK;
}

static calm_status eval_list(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value value;
    CALM_TRY(calm_jinja_new_list(run, node->type == CALM_JINJA_LIST_OF ? CALM_JINJA_LIST : CALM_JINJA_TUPLE, out));
    for (const calm_jinja_node *item = node->items; item; item = item->next) {
        CALM_TRY(calm_jinja_eval(run, item, &value));
        CALM_TRY(calm_jinja_append(run, out->list, value));
    }
    return CALM_OK;
}

static calm_status eval_dict(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value key, value;
    CALM_TRY(calm_jinja_new_dict(run, CALM_JINJA_DICT, out));
    for (const calm_jinja_node *item = node->items; item; item = item->next->next) {
        CALM_TRY(calm_jinja_eval(run, item, &key));
        CALM_TRY(calm_jinja_eval(run, item->next, &value));
        CALM_TRY(calm_jinja_store(run, out->dict, key, value));
    }
    return CALM_OK;
}

/* ---- members ---- */

static calm_status eval_attribute(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value value;
    CALM_TRY(calm_jinja_eval(run, node->a, &value));
    run->line = node->line;
    return calm_jinja_attribute(run, value, node->name, out);
}

static calm_status eval_item(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value value, key;
    CALM_TRY(calm_jinja_eval(run, node->a, &value));
    CALM_TRY(calm_jinja_eval(run, node->b, &key));
    run->line = node->line;
    return calm_jinja_subscript(run, value, key, out);
}

static calm_status eval_slice(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value value, parts[3];
    size_t i = 0;
    CALM_TRY(calm_jinja_eval(run, node->a, &value));
    for (const calm_jinja_node *item = node->items; item && i < 3; item = item->next)
        CALM_TRY(calm_jinja_eval(run, item, &parts[i++]));
    run->line = node->line;
    return calm_jinja_slice(run, value, parts, out);
}

/* ---- operators ---- */

static calm_status eval_unary(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value value;
    CALM_TRY(calm_jinja_eval(run, node->a, &value));
    if (node->op != CALM_JINJA_NOT)
        return calm_jinja_negate(run, node->op, value, out);
    *out = calm_jinja_bool(!calm_jinja_truth(value));
    return CALM_OK;
}

static calm_status eval_binary(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value a, b;
    CALM_TRY(calm_jinja_eval(run, node->a, &a));
    CALM_TRY(calm_jinja_eval(run, node->b, &b));
    run->line = node->line;
    return calm_jinja_operate(run, node->op, a, b, out);
}

/* "and" and "or" return one of their operands. */
static calm_status eval_logic(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    CALM_TRY(calm_jinja_eval(run, node->a, out));
    const bool decided = calm_jinja_truth(*out) == (node->type == CALM_JINJA_OR);
    return decided ? CALM_OK : calm_jinja_eval(run, node->b, out);
}

static calm_status compare(calm_jinja_run *run, int op, calm_jinja_value a, calm_jinja_value b, bool *out)
{
    int order;
    switch (op) {
    case CALM_JINJA_EQ:
    case CALM_JINJA_NE:
        CALM_TRY(calm_jinja_equal(run, a, b, out));
        *out = *out == (op == CALM_JINJA_EQ);
        return CALM_OK;
    case CALM_JINJA_IN:
    case CALM_JINJA_NOT_IN:
        CALM_TRY(calm_jinja_contains(run, b, a, out));
        *out = *out == (op == CALM_JINJA_IN);
        return CALM_OK;
    default:
        CALM_TRY(calm_jinja_order(run, a, b, &order));
        *out = op == '<' ? order < 0 : op == '>' ? order > 0 : op == CALM_JINJA_LE ? order <= 0 : order >= 0;
        return CALM_OK;
    }
}

/* Evaluates a < b < c; stops at the first comparison that is false. */
static calm_status eval_compare(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value a, b;
    bool holds = true;
    CALM_TRY(calm_jinja_eval(run, node->a, &a));
    for (const calm_jinja_node *item = node->items; item && holds; item = item->next, a = b) {
        CALM_TRY(calm_jinja_eval(run, item->a, &b));
        run->line = node->line;
        CALM_TRY(compare(run, item->op, a, b, &holds));
    }
    *out = calm_jinja_bool(holds);
    return CALM_OK;
}

static calm_status eval_concat(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    calm_jinja_value value;
    for (const calm_jinja_node *item = node->items; item; item = item->next) {
        CALM_TRY(calm_jinja_eval(run, item, &value));
        CALM_TRY(calm_jinja_print(run, &buffer, value));
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

static calm_status eval_choice(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    calm_jinja_value condition;
    CALM_TRY(calm_jinja_eval(run, node->b, &condition));
    if (calm_jinja_truth(condition))
        return calm_jinja_eval(run, node->a, out);
    *out = calm_jinja_undefined("the else of an if");
    return node->c ? calm_jinja_eval(run, node->c, out) : CALM_OK;
}

/* ---- dispatch ---- */

static calm_status eval_node(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    switch (node->type) {
    case CALM_JINJA_CONSTANT:
    case CALM_JINJA_NOTHING:
        *out = node->constant;
        return CALM_OK;
    case CALM_JINJA_NAME:
        return eval_name(run, node, out);
    case CALM_JINJA_LIST_OF:
    case CALM_JINJA_TUPLE_OF:
        return eval_list(run, node, out);
    case CALM_JINJA_DICT_OF:
        return eval_dict(run, node, out);
    case CALM_JINJA_ATTRIBUTE:
        return eval_attribute(run, node, out);
    case CALM_JINJA_ITEM:
        return eval_item(run, node, out);
    case CALM_JINJA_SLICE:
        return eval_slice(run, node, out);
    case CALM_JINJA_CALL:
        return eval_call(run, node, out);
    case CALM_JINJA_FILTER:
    case CALM_JINJA_TEST:
        return eval_applied(run, node, out);
    case CALM_JINJA_UNARY:
        return eval_unary(run, node, out);
    case CALM_JINJA_BINARY:
        return eval_binary(run, node, out);
    case CALM_JINJA_AND:
    case CALM_JINJA_OR:
        return eval_logic(run, node, out);
    case CALM_JINJA_COMPARE:
        return eval_compare(run, node, out);
    case CALM_JINJA_CONCAT:
        return eval_concat(run, node, out);
    case CALM_JINJA_CHOICE:
        return eval_choice(run, node, out);
    default:
        return calm_jinja_fail(run, "this expression has no value");
    }
}

calm_status calm_jinja_eval(calm_jinja_run *run, const calm_jinja_node *node, calm_jinja_value *out)
{
    run->line = node->line;
    CALM_TRY(calm_jinja_step(run, 1));
    CALM_TRY(calm_jinja_level(run));
    CALM_TRY(eval_node(run, node, out));
    run->levels--;
    return CALM_OK;
}
