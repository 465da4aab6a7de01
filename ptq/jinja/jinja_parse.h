/* Parser: a template's tokens to a syntax tree. */
#pragma once

#include "ptq/jinja/jinja_lex.h"

typedef struct calm_jinja_parser {
    calm_ctx *ctx;
    calm_arena *arena;                /* of the tree */
    const char *where;
    const calm_jinja_token *at;       /* the next token */
    size_t depth;                     /* of nested expressions and statements */
    size_t loops;                     /* that the statement is in */
} calm_jinja_parser;

/* A node of the next token's line. */
calm_status calm_jinja_node_new(calm_jinja_parser *p, calm_jinja_type type, calm_jinja_node **out);

/* One level deeper; CALM_EFORMAT at CALM_JINJA_DEPTH_MAX.  The caller takes it back from p->depth. */
calm_status calm_jinja_deeper(calm_jinja_parser *p);

/* CALM_EFORMAT: "expected WHAT, found ..." the next token. */
calm_status calm_jinja_unexpected(calm_jinja_parser *p, const char *what);

/* Is the next token this word?  Skip this operator, this word; false, and nothing done, when the next token is
 * another. */
bool calm_jinja_at_word(const calm_jinja_parser *p, const char *word);
bool calm_jinja_skip_op(calm_jinja_parser *p, int op);
bool calm_jinja_skip_word(calm_jinja_parser *p, const char *word);

/* Skip it, or fail. */
calm_status calm_jinja_expect_op(calm_jinja_parser *p, int op);
calm_status calm_jinja_expect_name(calm_jinja_parser *p, const char **name);

/* An expression; without `choice` one that is not "a if b else c" outside brackets. */
calm_status calm_jinja_parse_expression(calm_jinja_parser *p, bool choice, calm_jinja_node **out);

/* The same, or several with commas as a tuple. */
calm_status calm_jinja_parse_tuple(calm_jinja_parser *p, bool choice, calm_jinja_node **out);

/* What a value is assigned to: a name, a tuple of them, and with `members` NAME.MEMBER of a namespace. */
calm_status calm_jinja_parse_target(calm_jinja_parser *p, bool members, calm_jinja_node **out);

/* "| filter ..." any number of times behind `base`; NULL: the body of a block. */
calm_status calm_jinja_parse_filters(calm_jinja_parser *p, calm_jinja_node *base, calm_jinja_node **out);

/* One filter without its bar. */
calm_status calm_jinja_parse_filter(calm_jinja_parser *p, calm_jinja_node *base, calm_jinja_node **out);

/* The statements of a whole template. */
calm_status calm_jinja_parse(calm_jinja_parser *p, calm_jinja_node **out);
