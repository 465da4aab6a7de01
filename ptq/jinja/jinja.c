/* Templates: executes statements, and renders a template with its variables. */
#include "ptq/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/jinja/jinja_eval.h"
#include "ptq/jinja/jinja_parse.h"
#include "ptq/jinja/jinja_print.h"
#include "ptq/jinja/jinja_value_ops.h"

struct calm_jinja {
    calm_arena arena;
    const char *where;
    calm_jinja_node *body;
};

/* How the execution of a body ended. */
typedef enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;

static calm_status execute(calm_jinja_run *run, const calm_jinja_node *node, jump *how);

/* ---- assignments ---- */

/* Sets a member of a namespace; as in transformers, refuses names that begin with _. */
static calm_status set_member(calm_jinja_run *run, const calm_jinja_node *target, calm_jinja_value value)
{
    const calm_jinja_value *space = calm_jinja_find_name(run->scope, target->name);
    if (!space || space->kind != CALM_JINJA_NAMESPACE)
        return calm_jinja_fail(run, "\"%s\" is no namespace: its members cannot be set", target->name);
    if (target->text[0] == '_')
        return calm_jinja_fail(run, "a member of a namespace must not begin with _: \"%s\"", target->text);
    return calm_jinja_store(run, space->dict, calm_jinja_text(target->text, strlen(target->text)), value);
}

static calm_status assign(calm_jinja_run *run, const calm_jinja_node *target, calm_jinja_value value)
{
    const calm_jinja_list *list;
    size_t i = 0;
    if (target->type == CALM_JINJA_NAME)
        return calm_jinja_set_name(run, run->scope, target->name, value);
    if (target->type == CALM_JINJA_MEMBER)
        return set_member(run, target, value);
    CALM_TRY(calm_jinja_elements(run, value, &list));
    for (const calm_jinja_node *item = target->items; item; item = item->next, i++)
        if (i < list->n)
            CALM_TRY(assign(run, item, list->of[i]));
    return i == list->n ? CALM_OK : calm_jinja_fail(run, "%zu values for %zu names", list->n, i);
}

/* ---- bodies ---- */

static calm_status enter(calm_jinja_run *run, calm_jinja_scope **outer)
{
    calm_jinja_scope *scope;
    CALM_TRY(CALM_JINJA_NEW(run, scope, 1));
    *outer = run->scope;
    *scope = (calm_jinja_scope){.parent = run->scope};
    run->scope = scope;
    return CALM_OK;
}

/* Executes a body in a separate scope; run->body. */
static calm_status execute_body(calm_jinja_run *run, const calm_jinja_node *body)
{
    jump how = JUMP_NONE;
    return execute(run, body, &how);
}

/* Executes a body in a separate scope and returns its text. */
static calm_status capture(calm_jinja_run *run, const calm_jinja_node *body, calm_jinja_value *out)
{
    calm_jinja_buffer *const outer = run->out, *buffer;
    calm_jinja_scope *around;
    jump how = JUMP_NONE;
    CALM_TRY(enter(run, &around));
    CALM_TRY(CALM_JINJA_NEW(run, buffer, 1));
    *buffer = (calm_jinja_buffer){0};
    run->out = buffer;
    CALM_TRY(execute(run, body, &how));
    run->out = outer;
    run->scope = around;
    *out = calm_jinja_of_buffer(buffer);
    return CALM_OK;
}

static calm_status execute_set_block(calm_jinja_run *run, const calm_jinja_node *node)
{
    calm_jinja_value text;
    CALM_TRY(capture(run, node->items, &text));
    CALM_TRY(calm_jinja_filter_body(run, node->b, text, &text));
    return assign(run, node->a, text);
}

static calm_status execute_filter_block(calm_jinja_run *run, const calm_jinja_node *node)
{
    calm_jinja_value text;
    CALM_TRY(capture(run, node->items, &text));
    CALM_TRY(calm_jinja_filter_body(run, node->b, text, &text));
    return calm_jinja_print(run, run->out, text);
}

/* Executes with and generation: evaluates values in the outer scope, and sets names in the inner one. */
static calm_status execute_scope(calm_jinja_run *run, const calm_jinja_node *node, jump *how)
{
    calm_jinja_scope *outer, *inner;
    calm_jinja_value value;
    CALM_TRY(enter(run, &outer));
    inner = run->scope;
    for (const calm_jinja_node *set = node->items; set; set = set->next) {
        run->scope = outer;
        CALM_TRY(calm_jinja_eval(run, set->b, &value));
        run->scope = inner;
        CALM_TRY(assign(run, set->a, value));
    }
    CALM_TRY(execute(run, node->more, how));
    run->scope = outer;
    return CALM_OK;
}

static calm_status execute_macro(calm_jinja_run *run, const calm_jinja_node *node)
{
    calm_jinja_macro *macro;
    CALM_TRY(CALM_JINJA_NEW(run, macro, 1));
    *macro = (calm_jinja_macro){node, run->scope};
    return calm_jinja_set_name(run, run->scope, node->name,
                               (calm_jinja_value){.kind = CALM_JINJA_MACRO, .macro = macro});
}

static calm_status execute_if(calm_jinja_run *run, const calm_jinja_node *node, jump *how)
{
    calm_jinja_value condition;
    for (;;) {
        CALM_TRY(calm_jinja_eval(run, node->a, &condition));
        if (calm_jinja_truth(condition))
            return execute(run, node->items, how);
        /* elif: the only node of the else branch */
        if (!node->more || node->more->type != CALM_JINJA_IF || node->more->next)
            return execute(run, node->more, how);
        node = node->more;
    }
}

/* ---- loops ---- */

/* Keeps the elements for which the loop's "if" is true. */
static calm_status filter_elements(calm_jinja_run *run, const calm_jinja_node *node, const calm_jinja_list **items)
{
    calm_jinja_value kept, condition;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, &kept));
    for (size_t i = 0; i < (*items)->n; i++) {
        calm_jinja_scope *outer;
        CALM_TRY(enter(run, &outer));
        CALM_TRY(assign(run, node->a, (*items)->of[i]));
        CALM_TRY(calm_jinja_eval(run, node->c, &condition));
        run->scope = outer;
        if (calm_jinja_truth(condition))
            CALM_TRY(calm_jinja_append(run, kept.list, (*items)->of[i]));
    }
    *items = kept.list;
    return CALM_OK;
}

static calm_status execute_for(calm_jinja_run *run, const calm_jinja_node *node, jump *how)
{
    calm_jinja_value over;
    calm_jinja_loop *loop;
    jump inner = JUMP_NONE;
    CALM_TRY(calm_jinja_eval(run, node->b, &over));
    CALM_TRY(CALM_JINJA_NEW(run, loop, 1));
    *loop = (calm_jinja_loop){0};
    CALM_TRY(calm_jinja_elements(run, over, &loop->items));
    if (node->c)
        CALM_TRY(filter_elements(run, node, &loop->items));
    if (loop->items->n == 0)
        return execute(run, node->more, how);
    for (; loop->index < loop->items->n && inner != JUMP_BREAK; loop->index++) {
        calm_jinja_scope *outer;
        inner = JUMP_NONE;
        CALM_TRY(enter(run, &outer));
        CALM_TRY(calm_jinja_set_name(run, run->scope, "loop",
                                     (calm_jinja_value){.kind = CALM_JINJA_LOOP, .loop = loop}));
        CALM_TRY(assign(run, node->a, loop->items->of[loop->index]));
        CALM_TRY(execute(run, node->items, &inner));
        run->scope = outer;
    }
    return CALM_OK;
}

/* ---- statements ---- */

static calm_status execute_value(calm_jinja_run *run, const calm_jinja_node *node)
{
    calm_jinja_value value;
    CALM_TRY(calm_jinja_eval(run, node->type == CALM_JINJA_SET ? node->b : node->a, &value));
    return node->type == CALM_JINJA_SET ? assign(run, node->a, value) : calm_jinja_print(run, run->out, value);
}

static calm_status execute_node(calm_jinja_run *run, const calm_jinja_node *node, jump *how)
{
    switch (node->type) {
    case CALM_JINJA_TEXT:
        return calm_jinja_put_string(run, run->out, node->constant.text);
    case CALM_JINJA_PRINT:
    case CALM_JINJA_SET:
        return execute_value(run, node);
    case CALM_JINJA_IF:
        return execute_if(run, node, how);
    case CALM_JINJA_FOR:
        return execute_for(run, node, how);
    case CALM_JINJA_SET_BLOCK:
        return execute_set_block(run, node);
    case CALM_JINJA_FILTER_BLOCK:
        return execute_filter_block(run, node);
    case CALM_JINJA_DEFINE:
        return execute_macro(run, node);
    case CALM_JINJA_SCOPE:
        return execute_scope(run, node, how);
    case CALM_JINJA_BREAK:
    case CALM_JINJA_CONTINUE:
        *how = node->type == CALM_JINJA_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
        return CALM_OK;
    default:
        return calm_jinja_fail(run, "no statement");
    }
}

/* Executes statements until break or continue. */
static calm_status execute(calm_jinja_run *run, const calm_jinja_node *node, jump *how)
{
    CALM_TRY(calm_jinja_level(run));
    for (; node && *how == JUMP_NONE; node = node->next) {
        run->line = node->line;
        CALM_TRY(calm_jinja_step(run, 1));
        CALM_TRY(execute_node(run, node, how));
    }
    run->levels--;
    return CALM_OK;
}

/* ---- variables ---- */

static calm_status of_json(calm_jinja_run *run, const calm_json *json, calm_jinja_value *out);

static calm_status of_object(calm_jinja_run *run, const calm_json *json, calm_jinja_value *out)
{
    const calm_json *member;
    const char *key;
    calm_jinja_value value;
    CALM_TRY(calm_jinja_new_dict(run, CALM_JINJA_DICT, out));
    for (void *iter = NULL; calm_json_next(json, &iter, &key, &member);) {
        CALM_TRY(of_json(run, member, &value));
        CALM_TRY(calm_jinja_put_pair(run, out->dict, calm_jinja_text(key, strlen(key)), value));
    }
    return CALM_OK;
}

static calm_status of_array(calm_jinja_run *run, const calm_json *json, calm_jinja_value *out)
{
    calm_jinja_value value;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = 0; i < calm_json_size(json); i++) {
        CALM_TRY(of_json(run, calm_json_at(json, i), &value));
        CALM_TRY(calm_jinja_append(run, out->list, value));
    }
    return CALM_OK;
}

/* Converts a JSON value; strings are borrowed. */
static calm_status of_json(calm_jinja_run *run, const calm_json *json, calm_jinja_value *out)
{
    calm_status status = CALM_OK;
    CALM_TRY(calm_jinja_level(run));
    switch (calm_json_typeof(json)) {
    case CALM_JSON_NULL:
        *out = calm_jinja_none();
        break;
    case CALM_JSON_BOOL:
        *out = calm_jinja_bool(calm_json_bool(json, false));
        break;
    case CALM_JSON_INT:
        *out = calm_jinja_int(calm_json_int(json, 0));
        break;
    case CALM_JSON_REAL:
        *out = calm_jinja_real(calm_json_number(json, 0));
        break;
    case CALM_JSON_STRING:
        *out = calm_jinja_text(calm_json_string(json, ""), calm_json_string_length(json));
        break;
    case CALM_JSON_ARRAY:
        status = of_array(run, json, out);
        break;
    case CALM_JSON_OBJECT:
        status = of_object(run, json, out);
    }
    run->levels--;
    return status;
}

static calm_status set_variables(calm_jinja_run *run, const calm_json *variables)
{
    const calm_json *member;
    const char *name;
    calm_jinja_value value;
    for (void *iter = NULL; calm_json_next(variables, &iter, &name, &member);) {
        CALM_TRY(of_json(run, member, &value));
        CALM_TRY(calm_jinja_set_name(run, run->scope, name, value));
    }
    return CALM_OK;
}

/* ---- templates ---- */

calm_status calm_jinja_new(calm_ctx *ctx, const char *where, const char *text, size_t n, calm_jinja **out)
{
    calm_jinja_token *tokens;
    calm_jinja *jinja = *out = calloc(1, sizeof *jinja);
    if (!jinja)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", where);
    calm_arena_init(&jinja->arena);
    calm_jinja_parser parser = {.ctx = ctx, .arena = &jinja->arena};
    if (calm_strf(ctx, &jinja->arena, &jinja->where, "%s", where) == CALM_OK &&
        calm_jinja_lex(ctx, &jinja->arena, where, text, n, &tokens) == CALM_OK) {
        parser.where = jinja->where;
        parser.at = tokens;
        calm_jinja_parse(&parser, &jinja->body);
    }
    if (ctx->status == CALM_OK)
        return CALM_OK;
    calm_jinja_free(jinja);
    *out = NULL;
    return ctx->status;
}

void calm_jinja_free(calm_jinja *jinja)
{
    if (jinja)
        calm_arena_clear(&jinja->arena);
    free(jinja);
}

calm_status calm_jinja_render(calm_ctx *ctx, const calm_jinja *jinja, const calm_json *variables, calm_text *out)
{
    CALM_SCOPED_ARENA(arena);
    calm_jinja_scope names = {0}, body = {.parent = &names};
    calm_jinja_buffer text = {0};
    calm_jinja_run run = {.ctx = ctx, .arena = &arena, .where = jinja->where, .line = 1, .scope = &names, .out = &text,
                          .filter = calm_jinja_call_filter, .test = calm_jinja_call_test, .body = execute_body};
    jump how = JUMP_NONE;
    CALM_TRY(set_variables(&run, variables));
    run.scope = &body;
    CALM_TRY(execute(&run, jinja->body, &how));
    calm_text_append(out, text.data, text.n);
    return calm_text_check(ctx, out);
}
