/* Parser: builds the syntax tree of a template from its tokens. */
#pragma once

#include "ptq/jinja/jinja_lex.h"

typedef struct calm_jinja_parser {
    calm_ctx *ctx;
    calm_arena *arena;                /* owns the tree */
    const char *where;
    const calm_jinja_token *at;       /* the next token */
    size_t depth;                     /* nesting depth of expressions and statements */
    size_t loops;                     /* loops around the current statement */
} calm_jinja_parser;

/* Creates a node with the line of the next token. */
calm_status calm_jinja_node_new(calm_jinja_parser *p, calm_jinja_type type, calm_jinja_node **out);

/* Increments p->depth, which the caller restores; CALM_EFORMAT at CALM_JINJA_DEPTH_MAX. */
calm_status calm_jinja_deeper(calm_jinja_parser *p);

/* Fails with CALM_EFORMAT: "expected WHAT, found ..." the next token. */
calm_status calm_jinja_unexpected(calm_jinja_parser *p, const char *what);

/* calm_jinja_at_word returns whether the next token is this word.  The other two skip the next token if it is this
 * operator or word, and return whether it was. */
bool calm_jinja_at_word(const calm_jinja_parser *p, const char *word);
bool calm_jinja_skip_op(calm_jinja_parser *p, int op);
bool calm_jinja_skip_word(calm_jinja_parser *p, const char *word);

/* Skip an operator, or a name, or fail. */
calm_status calm_jinja_expect_op(calm_jinja_parser *p, int op);
calm_status calm_jinja_expect_name(calm_jinja_parser *p, const char **name);

/* Parses an expression; without `choice`, one that is not "a if b else c" outside brackets. */
calm_status calm_jinja_parse_expression(calm_jinja_parser *p, bool choice, calm_jinja_node **out);

/* Parses an expression, or several separated by commas as a tuple. */
calm_status calm_jinja_parse_tuple(calm_jinja_parser *p, bool choice, calm_jinja_node **out);

/* Parses an assignment target: a name, a tuple of names, and with `members` NAME.MEMBER of a namespace. */
calm_status calm_jinja_parse_target(calm_jinja_parser *p, bool members, calm_jinja_node **out);

/* Parses any number of "| filter ..." behind `base`; NULL: the body of a block. */
calm_status calm_jinja_parse_filters(calm_jinja_parser *p, calm_jinja_node *base, calm_jinja_node **out);

/* Parses one filter without its bar. */
calm_status calm_jinja_parse_filter(calm_jinja_parser *p, calm_jinja_node *base, calm_jinja_node **out);

/* Parses the statements of a whole template. */
calm_status calm_jinja_parse(calm_jinja_parser *p, calm_jinja_node **out);
