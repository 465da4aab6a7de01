/* Parses expressions.  The order of precedence levels is that of parser.py of Jinja 3.1. */
#include <string.h>

#include "ptq/jinja/jinja_parse.h"

/* ---- tokens ---- */

calm_status calm_jinja_node_new(calm_jinja_parser *p, calm_jinja_type type, calm_jinja_node **out)
{
    CALM_TRY(CALM_NEW(p->ctx, p->arena, *out, 1));
    (*out)->type = type;
    (*out)->line = p->at->line;
    return CALM_OK;
}

calm_status calm_jinja_deeper(calm_jinja_parser *p)
{
    if (++p->depth > CALM_JINJA_DEPTH_MAX)
        return calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: nested deeper than %d", p->where, p->at->line,
                         CALM_JINJA_DEPTH_MAX);
    return CALM_OK;
}

calm_status calm_jinja_unexpected(calm_jinja_parser *p, const char *what)
{
    static const char *const kinds[] = {"the end of the template", "text", "\"{{\"", "\"{%\"", "the end of the tag",
                                        NULL, "a string", "a number", "an operator"};
    const calm_jinja_token *t = p->at;
    if (t->type == CALM_JINJA_T_NAME)
        return calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: expected %s, found \"%.60s\"", p->where, t->line, what,
                         t->value.text.bytes);
    if (t->type == CALM_JINJA_T_OP && t->op < 128)
        return calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: expected %s, found '%c'", p->where, t->line, what, t->op);
    return calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: expected %s, found %s", p->where, t->line, what,
                     kinds[t->type]);
}

static bool at_op(const calm_jinja_parser *p, int op)
{
    return p->at->type == CALM_JINJA_T_OP && p->at->op == op;
}

static bool is_word(const calm_jinja_token *token, const char *word)
{
    return token->type == CALM_JINJA_T_NAME && strcmp(token->value.text.bytes, word) == 0;
}

bool calm_jinja_at_word(const calm_jinja_parser *p, const char *word)
{
    return is_word(p->at, word);
}

bool calm_jinja_skip_op(calm_jinja_parser *p, int op)
{
    const bool found = at_op(p, op);
    p->at += found;
    return found;
}

bool calm_jinja_skip_word(calm_jinja_parser *p, const char *word)
{
    const bool found = calm_jinja_at_word(p, word);
    p->at += found;
    return found;
}

calm_status calm_jinja_expect_op(calm_jinja_parser *p, int op)
{
    const char what[] = {'\'', (char)op, '\'', '\0'};
    return calm_jinja_skip_op(p, op) ? CALM_OK : calm_jinja_unexpected(p, what);
}

calm_status calm_jinja_expect_name(calm_jinja_parser *p, const char **name)
{
    if (p->at->type != CALM_JINJA_T_NAME)
        return calm_jinja_unexpected(p, "a name");
    *name = p->at++->value.text.bytes;
    return CALM_OK;
}

/* ---- literals and names ---- */

static calm_status parse_string(calm_jinja_parser *p, calm_jinja_node *node)
{
    size_t n = 0;
    char *bytes;
    const calm_jinja_token *first = p->at;
    for (; p->at->type == CALM_JINJA_T_STRING; p->at++)
        n += p->at->value.text.n;
    node->constant = first->value;
    if (p->at == first + 1)
        return CALM_OK;
    /* Adjacent string literals are concatenated. */
    CALM_TRY(CALM_NEW(p->ctx, p->arena, bytes, n));
    node->constant = calm_jinja_text(bytes, n);
    for (; first < p->at; bytes += first++->value.text.n)
        memcpy(bytes, first->value.text.bytes, first->value.text.n);
    return CALM_OK;
}

static calm_status parse_name(calm_jinja_parser *p, bool members, calm_jinja_node *node)
{
    const char *name = p->at++->value.text.bytes;
    const bool truth = strcmp(name, "true") == 0 || strcmp(name, "True") == 0;
    node->type = CALM_JINJA_CONSTANT;
    if (truth || strcmp(name, "false") == 0 || strcmp(name, "False") == 0) {
        node->constant = calm_jinja_bool(truth);
    } else if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0) {
        node->constant = calm_jinja_none();
    } else {
        node->type = CALM_JINJA_NAME;
        node->name = name;
        if (members && calm_jinja_skip_op(p, '.')) {
            node->type = CALM_JINJA_MEMBER;
            return calm_jinja_expect_name(p, &node->text);
        }
    }
    return CALM_OK;
}

/* Parses values separated by commas up to the bracket `close`; a dict has ':' between keys and values. */
static calm_status parse_elements(calm_jinja_parser *p, int close, calm_jinja_node *node)
{
    calm_jinja_node **tail = &node->items;
    while (!calm_jinja_skip_op(p, close)) {
        if (node->items)
            CALM_TRY(calm_jinja_expect_op(p, ','));
        if (calm_jinja_skip_op(p, close))
            break;
        CALM_TRY(calm_jinja_parse_expression(p, true, tail));
        tail = &(*tail)->next;
        if (close == '}') {
            CALM_TRY(calm_jinja_expect_op(p, ':'));
            CALM_TRY(calm_jinja_parse_expression(p, true, tail));
            tail = &(*tail)->next;
        }
    }
    return CALM_OK;
}

static calm_status parse_brackets(calm_jinja_parser *p, calm_jinja_node **out)
{
    if (calm_jinja_skip_op(p, '(')) {
        if (calm_jinja_skip_op(p, ')')) {
            (*out)->type = CALM_JINJA_TUPLE_OF;
            return CALM_OK;
        }
        CALM_TRY(calm_jinja_parse_tuple(p, true, out));
        return calm_jinja_expect_op(p, ')');
    }
    const bool list = calm_jinja_skip_op(p, '[');
    if (!list && !calm_jinja_skip_op(p, '{'))
        return calm_jinja_unexpected(p, "an expression");
    (*out)->type = list ? CALM_JINJA_LIST_OF : CALM_JINJA_DICT_OF;
    return parse_elements(p, list ? ']' : '}', *out);
}

static calm_status parse_primary(calm_jinja_parser *p, bool members, calm_jinja_node **out)
{
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_CONSTANT, out));
    if (p->at->type == CALM_JINJA_T_NAME)
        return parse_name(p, members, *out);
    if (p->at->type == CALM_JINJA_T_STRING)
        return parse_string(p, *out);
    if (p->at->type != CALM_JINJA_T_NUMBER)
        return parse_brackets(p, out);
    (*out)->constant = p->at++->value;
    return CALM_OK;
}

/* ---- postfix operators ---- */

/* Parses arguments behind '(' into the items of `call`. */
static calm_status parse_arguments(calm_jinja_parser *p, calm_jinja_node *call)
{
    calm_jinja_node **tail = &call->items;
    bool named = false;
    while (!calm_jinja_skip_op(p, ')')) {
        if (call->items)
            CALM_TRY(calm_jinja_expect_op(p, ','));
        if (calm_jinja_skip_op(p, ')'))
            break;
        calm_jinja_node *argument;
        const bool keyword = p->at->type == CALM_JINJA_T_NAME && p->at[1].type == CALM_JINJA_T_OP && p->at[1].op == '=',
                   two = at_op(p, CALM_JINJA_POWER), spread = two || at_op(p, '*');
        if (keyword || spread) {
            CALM_TRY(calm_jinja_node_new(p, keyword ? CALM_JINJA_KEYWORD : CALM_JINJA_SPREAD, &argument));
            argument->name = keyword ? p->at->value.text.bytes : NULL;
            argument->op = two ? '*' : 0;
            p->at += keyword ? 2 : 1;
            CALM_TRY(calm_jinja_parse_expression(p, true, &argument->a));
        } else if (named) {
            return calm_jinja_unexpected(p, "NAME=VALUE behind arguments with names");
        } else {
            CALM_TRY(calm_jinja_parse_expression(p, true, &argument));
        }
        named = named || keyword || spread;
        *tail = argument;
        tail = &argument->next;
    }
    return CALM_OK;
}

/* Parses start:stop:step; `first` is the part before the first ':', or NULL. */
static calm_status parse_slice(calm_jinja_parser *p, calm_jinja_node *first, calm_jinja_node *slice)
{
    calm_jinja_node **tail = &slice->items;
    slice->type = CALM_JINJA_SLICE;
    for (int i = 0; i < 3; i++) {
        if (first) {
            *tail = first;
            first = NULL;
        } else if (at_op(p, ':') || at_op(p, ']') || (i == 2 && p->at[-1].op != ':')) {
            CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_NOTHING, tail));
        } else {
            CALM_TRY(calm_jinja_parse_expression(p, true, tail));
        }
        tail = &(*tail)->next;
        if (i < 2)
            calm_jinja_skip_op(p, ':');
    }
    return CALM_OK;
}

static calm_status parse_subscript(calm_jinja_parser *p, calm_jinja_node *node)
{
    calm_jinja_node *first = NULL;
    if (!at_op(p, ':'))
        CALM_TRY(calm_jinja_parse_expression(p, true, &first));
    if (at_op(p, ':'))
        CALM_TRY(parse_slice(p, first, node));
    node->b = first;
    return calm_jinja_expect_op(p, ']');
}

/* Parses one of .name .0 [...] (...) behind *out; *found: there is one. */
static calm_status parse_follower(calm_jinja_parser *p, bool call_alone, calm_jinja_node **out, bool *found)
{
    const int op = p->at->type == CALM_JINJA_T_OP ? p->at->op : 0;
    calm_jinja_node *node;
    *found = op == '(' || (!call_alone && (op == '.' || op == '['));
    if (!*found)
        return CALM_OK;
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_CALL, &node));
    p->at++;
    node->a = *out;
    *out = node;
    if (op == '(')
        return parse_arguments(p, node);
    node->type = CALM_JINJA_ITEM;
    if (op == '[')
        return parse_subscript(p, node);
    if (p->at->type == CALM_JINJA_T_NUMBER && p->at->value.kind == CALM_JINJA_INT)
        return parse_primary(p, false, &node->b);
    node->type = CALM_JINJA_ATTRIBUTE;
    return calm_jinja_expect_name(p, &node->name);
}

static calm_status parse_postfix(calm_jinja_parser *p, calm_jinja_node **out)
{
    for (bool found = true; found;)
        CALM_TRY(parse_follower(p, false, out, &found));
    return CALM_OK;
}

/* Parses the name of a filter or test, which may have dots. */
static calm_status parse_dotted(calm_jinja_parser *p, const char **name)
{
    const char *part = NULL;
    CALM_TRY(calm_jinja_expect_name(p, name));
    while (calm_jinja_skip_op(p, '.')) {
        CALM_TRY(calm_jinja_expect_name(p, &part));
        CALM_TRY(calm_strf(p->ctx, p->arena, name, "%.100s.%.100s", *name, part));
    }
    return CALM_OK;
}

calm_status calm_jinja_parse_filter(calm_jinja_parser *p, calm_jinja_node *base, calm_jinja_node **out)
{
    calm_jinja_node *node;
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_FILTER, &node));
    CALM_TRY(parse_dotted(p, &node->name));
    node->a = base;
    *out = node;
    return calm_jinja_skip_op(p, '(') ? parse_arguments(p, node) : CALM_OK;
}

calm_status calm_jinja_parse_filters(calm_jinja_parser *p, calm_jinja_node *base, calm_jinja_node **out)
{
    *out = base;
    while (calm_jinja_skip_op(p, '|'))
        CALM_TRY(calm_jinja_parse_filter(p, *out, out));
    return CALM_OK;
}

/* Returns whether the next token begins the argument of a test without brackets. */
static bool begins_argument(const calm_jinja_parser *p)
{
    const calm_jinja_token *t = p->at;
    if (t->type == CALM_JINJA_T_OP)
        return t->op == '[' || t->op == '{';
    if (t->type == CALM_JINJA_T_NAME)
        return !is_word(t, "else") && !is_word(t, "or") && !is_word(t, "and");
    return t->type == CALM_JINJA_T_STRING || t->type == CALM_JINJA_T_NUMBER;
}

/* Parses a test behind "is". */
static calm_status parse_test(calm_jinja_parser *p, calm_jinja_node **out)
{
    calm_jinja_node *node, *negated;
    const bool negate = calm_jinja_skip_word(p, "not");
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_TEST, &node));
    CALM_TRY(parse_dotted(p, &node->name));
    node->a = *out;
    *out = node;
    if (calm_jinja_skip_op(p, '(')) {
        CALM_TRY(parse_arguments(p, node));
    } else if (begins_argument(p)) {
        if (calm_jinja_at_word(p, "is"))
            return calm_jinja_unexpected(p, "one test");
        CALM_TRY(parse_primary(p, false, &node->items));
        CALM_TRY(parse_postfix(p, &node->items));
    }
    if (!negate)
        return CALM_OK;
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_UNARY, &negated));
    negated->op = CALM_JINJA_NOT;
    negated->a = node;
    *out = negated;
    return CALM_OK;
}

/* Parses filters, tests and calls behind a value. */
static calm_status parse_filtered(calm_jinja_parser *p, calm_jinja_node **out)
{
    for (bool found = true; found;) {
        if (calm_jinja_skip_op(p, '|'))
            CALM_TRY(calm_jinja_parse_filter(p, *out, out));
        else if (calm_jinja_skip_word(p, "is"))
            CALM_TRY(parse_test(p, out));
        else
            CALM_TRY(parse_follower(p, true, out, &found));
    }
    return CALM_OK;
}

/* ---- operators, from the highest precedence to the lowest ---- */

static calm_status parse_unary(calm_jinja_parser *p, bool filters, calm_jinja_node **out)
{
    CALM_TRY(calm_jinja_deeper(p));
    if (at_op(p, '-') || at_op(p, '+')) {
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_UNARY, out));
        (*out)->op = p->at++->op;
        CALM_TRY(parse_unary(p, false, &(*out)->a));
    } else {
        CALM_TRY(parse_primary(p, false, out));
    }
    CALM_TRY(parse_postfix(p, out));
    p->depth--;
    return filters ? parse_filtered(p, out) : CALM_OK;
}

typedef calm_status level(calm_jinja_parser *p, calm_jinja_node **out);

/* Parses next OP next OP next ..., left-associative, with operators in `ops`, which ends with 0. */
static calm_status parse_left(calm_jinja_parser *p, const int *ops, level *next, calm_jinja_node **out)
{
    CALM_TRY(next(p, out));
    for (const int *op = ops; *op;) {
        if (!at_op(p, *op)) {
            op++;
            continue;
        }
        calm_jinja_node *node;
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_BINARY, &node));
        p->at++;
        node->op = *op;
        node->a = *out;
        *out = node;
        CALM_TRY(next(p, &node->b));
        op = ops;
    }
    return CALM_OK;
}

static calm_status parse_filtered_unary(calm_jinja_parser *p, calm_jinja_node **out)
{
    return parse_unary(p, true, out);
}

static calm_status parse_power(calm_jinja_parser *p, calm_jinja_node **out)
{
    static const int ops[] = {CALM_JINJA_POWER, 0};
    return parse_left(p, ops, parse_filtered_unary, out);
}

static calm_status parse_product(calm_jinja_parser *p, calm_jinja_node **out)
{
    static const int ops[] = {'*', '/', CALM_JINJA_FLOOR, '%', 0};
    return parse_left(p, ops, parse_power, out);
}

static calm_status parse_concat(calm_jinja_parser *p, calm_jinja_node **out)
{
    CALM_TRY(parse_product(p, out));
    if (!at_op(p, '~'))
        return CALM_OK;
    calm_jinja_node *node, **tail;
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_CONCAT, &node));
    node->items = *out;
    *out = node;
    for (tail = &node->items->next; calm_jinja_skip_op(p, '~'); tail = &(*tail)->next)
        CALM_TRY(parse_product(p, tail));
    return CALM_OK;
}

static calm_status parse_sum(calm_jinja_parser *p, calm_jinja_node **out)
{
    static const int ops[] = {'+', '-', 0};
    return parse_left(p, ops, parse_concat, out);
}

/* Skips a comparison operator and returns it; 0: there is none. */
static int skip_comparison(calm_jinja_parser *p)
{
    static const int ops[] = {CALM_JINJA_EQ, CALM_JINJA_NE, CALM_JINJA_LE, CALM_JINJA_GE, '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (calm_jinja_skip_op(p, ops[i]))
            return ops[i];
    if (calm_jinja_skip_word(p, "in"))
        return CALM_JINJA_IN;
    if (!calm_jinja_at_word(p, "not") || !is_word(p->at + 1, "in"))
        return 0;
    p->at += 2;
    return CALM_JINJA_NOT_IN;
}

static calm_status parse_comparison(calm_jinja_parser *p, calm_jinja_node **out)
{
    CALM_TRY(parse_sum(p, out));
    calm_jinja_node *node = NULL, **tail = NULL;
    for (int op; (op = skip_comparison(p));) {
        if (!node) {
            CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_COMPARE, &node));
            node->a = *out;
            *out = node;
            tail = &node->items;
        }
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_OPERAND, tail));
        (*tail)->op = op;
        CALM_TRY(parse_sum(p, &(*tail)->a));
        tail = &(*tail)->next;
    }
    return CALM_OK;
}

static calm_status parse_not(calm_jinja_parser *p, calm_jinja_node **out)
{
    if (!calm_jinja_at_word(p, "not"))
        return parse_comparison(p, out);
    CALM_TRY(calm_jinja_deeper(p));
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_UNARY, out));
    p->at++;
    (*out)->op = CALM_JINJA_NOT;
    CALM_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return CALM_OK;
}

/* Parses next WORD next ..., left-associative. */
static calm_status parse_words(calm_jinja_parser *p, const char *word, calm_jinja_type type, level *next,
                               calm_jinja_node **out)
{
    CALM_TRY(next(p, out));
    while (calm_jinja_at_word(p, word)) {
        calm_jinja_node *node;
        CALM_TRY(calm_jinja_node_new(p, type, &node));
        p->at++;
        node->a = *out;
        *out = node;
        CALM_TRY(next(p, &node->b));
    }
    return CALM_OK;
}

static calm_status parse_and(calm_jinja_parser *p, calm_jinja_node **out)
{
    return parse_words(p, "and", CALM_JINJA_AND, parse_not, out);
}

static calm_status parse_or(calm_jinja_parser *p, calm_jinja_node **out)
{
    return parse_words(p, "or", CALM_JINJA_OR, parse_and, out);
}

static calm_status parse_choice(calm_jinja_parser *p, calm_jinja_node **out)
{
    CALM_TRY(parse_or(p, out));
    while (calm_jinja_at_word(p, "if")) {
        calm_jinja_node *node;
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_CHOICE, &node));
        p->at++;
        node->a = *out;
        *out = node;
        CALM_TRY(parse_or(p, &node->b));
        if (calm_jinja_skip_word(p, "else"))
            CALM_TRY(calm_jinja_parse_expression(p, true, &node->c));
    }
    return CALM_OK;
}

calm_status calm_jinja_parse_expression(calm_jinja_parser *p, bool choice, calm_jinja_node **out)
{
    CALM_TRY(calm_jinja_deeper(p));
    CALM_TRY(choice ? parse_choice(p, out) : parse_or(p, out));
    p->depth--;
    return CALM_OK;
}

/* ---- tuples and targets ---- */

static bool ends_tuple(const calm_jinja_parser *p)
{
    return p->at->type == CALM_JINJA_T_CLOSE || at_op(p, ')') || calm_jinja_at_word(p, "in") ||
           at_op(p, '=');
}

/* Parses the further elements of a tuple behind its first element *out. */
static calm_status parse_rest(calm_jinja_parser *p, bool target, bool choice, calm_jinja_node **out)
{
    calm_jinja_node *node, **tail = &(*out)->next;
    if (!at_op(p, ','))
        return CALM_OK;
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_TUPLE_OF, &node));
    node->items = *out;
    *out = node;
    while (calm_jinja_skip_op(p, ',') && !ends_tuple(p)) {
        CALM_TRY(target ? parse_primary(p, choice, tail) : calm_jinja_parse_expression(p, choice, tail));
        tail = &(*tail)->next;
    }
    return CALM_OK;
}

calm_status calm_jinja_parse_tuple(calm_jinja_parser *p, bool choice, calm_jinja_node **out)
{
    CALM_TRY(calm_jinja_parse_expression(p, choice, out));
    return parse_rest(p, false, choice, out);
}

/* Returns whether a node can be assigned to: a name, a member, or a tuple of these. */
static bool may_be_set(const calm_jinja_node *node)
{
    if (node->type != CALM_JINJA_TUPLE_OF)
        return node->type == CALM_JINJA_NAME || node->type == CALM_JINJA_MEMBER;
    for (const calm_jinja_node *item = node->items; item; item = item->next)
        if (!may_be_set(item))
            return false;
    return true;
}

calm_status calm_jinja_parse_target(calm_jinja_parser *p, bool members, calm_jinja_node **out)
{
    const size_t line = p->at->line;
    CALM_TRY(calm_jinja_deeper(p));
    CALM_TRY(parse_primary(p, members, out));
    CALM_TRY(parse_rest(p, true, members, out));
    p->depth--;
    if (!may_be_set(*out))
        return calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: expected a name to set", p->where, line);
    return CALM_OK;
}
