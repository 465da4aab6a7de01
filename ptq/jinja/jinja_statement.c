/* Parses statements. */
#include <string.h>

#include "ptq/jinja/jinja_parse.h"

/* A keyword, and the parser of the rest of its statement, to the end of its last tag. */
typedef calm_status statement(calm_jinja_parser *p, calm_jinja_node *node);
typedef struct keyword {
    const char *word;
    calm_jinja_type type;
    statement *parse;
} keyword;

static calm_status parse_body(calm_jinja_parser *p, const char *const *ends, calm_jinja_node **out);

/* Expects the end of a tag. */
static calm_status close(calm_jinja_parser *p)
{
    if (p->at->type != CALM_JINJA_T_CLOSE)
        return calm_jinja_unexpected(p, "the end of the tag");
    p->at++;
    return CALM_OK;
}

/* Parses the rest of a tag, and the body up to the tag {% END %}. */
static calm_status parse_block(calm_jinja_parser *p, const char *end, calm_jinja_node **out)
{
    const char *const ends[] = {end, NULL};
    CALM_TRY(close(p));
    CALM_TRY(parse_body(p, ends, out));
    p->at++;    /* the word that ended the body */
    return close(p);
}

static calm_status parse_if(calm_jinja_parser *p, calm_jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    /* elif is a nested choice in the tree, but parsed in a loop, since a chain may be long. */
    for (;;) {
        CALM_TRY(calm_jinja_parse_tuple(p, false, &node->a));
        CALM_TRY(close(p));
        CALM_TRY(parse_body(p, ends, &node->items));
        if (!calm_jinja_skip_word(p, "elif"))
            break;
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_IF, &node->more));
        node = node->more;
    }
    if (calm_jinja_skip_word(p, "else"))
        return parse_block(p, "endif", &node->more);
    p->at++;
    return close(p);
}

static calm_status parse_for(calm_jinja_parser *p, calm_jinja_node *node)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    CALM_TRY(calm_jinja_parse_target(p, false, &node->a));
    if (!calm_jinja_skip_word(p, "in"))
        return calm_jinja_unexpected(p, "\"in\"");
    CALM_TRY(calm_jinja_parse_tuple(p, false, &node->b));
    if (calm_jinja_skip_word(p, "if"))
        CALM_TRY(calm_jinja_parse_expression(p, true, &node->c));
    if (calm_jinja_at_word(p, "recursive"))
        return calm_fail(p->ctx, CALM_EUNSUPPORTED, "%s: line %zu: a recursive loop is not supported", p->where,
                         node->line);
    CALM_TRY(close(p));
    p->loops++;
    CALM_TRY(parse_body(p, ends, &node->items));
    p->loops--;
    if (calm_jinja_skip_word(p, "else"))
        return parse_block(p, "endfor", &node->more);
    p->at++;
    return close(p);
}

static calm_status parse_set(calm_jinja_parser *p, calm_jinja_node *node)
{
    CALM_TRY(calm_jinja_parse_target(p, true, &node->a));
    if (calm_jinja_skip_op(p, '=')) {
        CALM_TRY(calm_jinja_parse_tuple(p, true, &node->b));
        return close(p);
    }
    node->type = CALM_JINJA_SET_BLOCK;
    CALM_TRY(calm_jinja_parse_filters(p, NULL, &node->b));
    return parse_block(p, "endset", &node->items);
}

/* Parses parameters: name, name=default, ...) */
static calm_status parse_parameters(calm_jinja_parser *p, calm_jinja_node **tail)
{
    bool defaults = false;
    for (bool first = true; !calm_jinja_skip_op(p, ')'); first = false) {
        if (!first)
            CALM_TRY(calm_jinja_expect_op(p, ','));
        if (!first && calm_jinja_skip_op(p, ')'))
            break;
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_PARAMETER, tail));
        CALM_TRY(calm_jinja_expect_name(p, &(*tail)->name));
        if (calm_jinja_skip_op(p, '='))
            CALM_TRY(calm_jinja_parse_expression(p, true, &(*tail)->a));
        else if (defaults)
            return calm_jinja_unexpected(p, "a default, as the parameter before has one");
        defaults = (*tail)->a != NULL;
        tail = &(*tail)->next;
    }
    return CALM_OK;
}

/* Parses a block from which no surrounding loop can be left. */
static calm_status parse_apart(calm_jinja_parser *p, const char *end, calm_jinja_node **out)
{
    const size_t loops = p->loops;
    p->loops = 0;
    CALM_TRY(parse_block(p, end, out));
    p->loops = loops;
    return CALM_OK;
}

static calm_status parse_macro(calm_jinja_parser *p, calm_jinja_node *node)
{
    CALM_TRY(calm_jinja_expect_name(p, &node->name));
    CALM_TRY(calm_jinja_expect_op(p, '('));
    CALM_TRY(parse_parameters(p, &node->items));
    return parse_apart(p, "endmacro", &node->more);
}

/* Parses break and continue. */
static calm_status parse_jump(calm_jinja_parser *p, calm_jinja_node *node)
{
    if (!p->loops)
        return calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: \"%s\" outside of a loop", p->where, node->line,
                         node->type == CALM_JINJA_BREAK ? "break" : "continue");
    return close(p);
}

/* Parses {% generation %}: its body has a separate scope, as in transformers. */
static calm_status parse_generation(calm_jinja_parser *p, calm_jinja_node *node)
{
    return parse_apart(p, "endgeneration", &node->more);
}

static calm_status parse_with(calm_jinja_parser *p, calm_jinja_node *node)
{
    calm_jinja_node **tail = &node->items;
    while (p->at->type != CALM_JINJA_T_CLOSE) {
        if (node->items)
            CALM_TRY(calm_jinja_expect_op(p, ','));
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_SET, tail));
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_NAME, &(*tail)->a));
        CALM_TRY(calm_jinja_expect_name(p, &(*tail)->a->name));
        CALM_TRY(calm_jinja_expect_op(p, '='));
        CALM_TRY(calm_jinja_parse_expression(p, true, &(*tail)->b));
        tail = &(*tail)->next;
    }
    return parse_block(p, "endwith", &node->more);
}

static calm_status parse_filter_block(calm_jinja_parser *p, calm_jinja_node *node)
{
    CALM_TRY(calm_jinja_parse_filter(p, NULL, &node->b));
    CALM_TRY(calm_jinja_parse_filters(p, node->b, &node->b));
    return parse_block(p, "endfilter", &node->items);
}

static const keyword keywords[] = {
    {"if", CALM_JINJA_IF, parse_if},
    {"for", CALM_JINJA_FOR, parse_for},
    {"set", CALM_JINJA_SET, parse_set},
    {"macro", CALM_JINJA_DEFINE, parse_macro},
    {"break", CALM_JINJA_BREAK, parse_jump},
    {"continue", CALM_JINJA_CONTINUE, parse_jump},
    {"generation", CALM_JINJA_SCOPE, parse_generation},
    {"with", CALM_JINJA_SCOPE, parse_with},
    {"filter", CALM_JINJA_FILTER_BLOCK, parse_filter_block},
};

/* Refuses the statements of Jinja that calm does not have. */
static calm_status refuse_word(calm_jinja_parser *p)
{
    static const char *const others[] = {"include", "extends", "import", "from", "block", "call", "autoescape"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (calm_jinja_at_word(p, others[i]))
            return calm_fail(p->ctx, CALM_EUNSUPPORTED, "%s: line %zu: the statement \"%s\" is not supported",
                             p->where, p->at->line, others[i]);
    return calm_jinja_unexpected(p, "a statement");
}

static calm_status parse_statement(calm_jinja_parser *p, calm_jinja_node **out)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (!calm_jinja_at_word(p, keywords[i].word))
            continue;
        CALM_TRY(calm_jinja_node_new(p, keywords[i].type, out));
        p->at++;
        return keywords[i].parse(p, *out);
    }
    return refuse_word(p);
}

/* Returns whether the next tag ends the body. */
static bool at_end(const calm_jinja_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (p->at[1].type == CALM_JINJA_T_NAME && strcmp(p->at[1].value.text.bytes, *ends) == 0)
            return true;
    return false;
}

static calm_status parse_part(calm_jinja_parser *p, calm_jinja_node **out)
{
    if (p->at->type == CALM_JINJA_T_DATA) {
        CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_TEXT, out));
        (*out)->constant = p->at++->value;
        return CALM_OK;
    }
    const bool print = p->at++->type == CALM_JINJA_T_PRINT;
    if (!print)
        return parse_statement(p, out);
    CALM_TRY(calm_jinja_node_new(p, CALM_JINJA_PRINT, out));
    CALM_TRY(calm_jinja_parse_tuple(p, true, &(*out)->a));
    return close(p);
}

/* Parses text and statements up to a tag whose word is in `ends`, and moves to that word; without `ends`, up to the
 * end of the template. */
static calm_status parse_body(calm_jinja_parser *p, const char *const *ends, calm_jinja_node **tail)
{
    CALM_TRY(calm_jinja_deeper(p));
    while (p->at->type != CALM_JINJA_T_END) {
        if (p->at->type == CALM_JINJA_T_BLOCK && at_end(p, ends)) {
            p->at++;
            p->depth--;
            return CALM_OK;
        }
        CALM_TRY(parse_part(p, tail));
        tail = &(*tail)->next;
    }
    p->depth--;
    return *ends ? calm_fail(p->ctx, CALM_EFORMAT, "%s: line %zu: expected {%% %s %%}, found the end of the template",
                             p->where, p->at->line, *ends) : CALM_OK;
}

calm_status calm_jinja_parse(calm_jinja_parser *p, calm_jinja_node **out)
{
    static const char *const none[] = {NULL};
    *out = NULL;
    return parse_body(p, none, out);
}
