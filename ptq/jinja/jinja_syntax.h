/* The syntax tree of a template. */
#pragma once

#include "ptq/jinja/jinja_value.h"

/* Largest nesting depth of expressions and statements. */
#define CALM_JINJA_DEPTH_MAX 200

typedef enum calm_jinja_type {
    /* expressions */
    CALM_JINJA_CONSTANT,      /* constant */
    CALM_JINJA_NAME,          /* name */
    CALM_JINJA_LIST_OF,       /* items */
    CALM_JINJA_TUPLE_OF,      /* items */
    CALM_JINJA_DICT_OF,       /* items: keys and values in turn */
    CALM_JINJA_ATTRIBUTE,     /* a . name */
    CALM_JINJA_ITEM,          /* a [ b ] */
    CALM_JINJA_SLICE,         /* a [ items ]: start, stop, step; CALM_JINJA_NOTHING if omitted */
    CALM_JINJA_NOTHING,
    CALM_JINJA_CALL,          /* a ( items ) */
    CALM_JINJA_FILTER,        /* a | name ( items ); a NULL: the body of a block */
    CALM_JINJA_TEST,          /* a is name ( items ) */
    CALM_JINJA_UNARY,         /* op a */
    CALM_JINJA_BINARY,        /* a op b */
    CALM_JINJA_AND,           /* a, b */
    CALM_JINJA_OR,            /* a, b */
    CALM_JINJA_COMPARE,       /* a and items: CALM_JINJA_OPERAND */
    CALM_JINJA_OPERAND,       /* op a */
    CALM_JINJA_CONCAT,        /* items */
    CALM_JINJA_CHOICE,        /* a if b else c; c may be NULL */
    CALM_JINJA_KEYWORD,       /* name = a, in a call */
    CALM_JINJA_SPREAD,        /* *a, or with op '*' **a, in a call */
    CALM_JINJA_MEMBER,        /* name . text: assignment to a member of a namespace */
    /* statements */
    CALM_JINJA_TEXT,          /* constant */
    CALM_JINJA_PRINT,         /* a */
    CALM_JINJA_IF,            /* a: items, else more */
    CALM_JINJA_FOR,           /* a in b if c: items, else more */
    CALM_JINJA_SET,           /* a = b */
    CALM_JINJA_SET_BLOCK,     /* a = items through the filters b */
    CALM_JINJA_DEFINE,        /* macro name ( items: CALM_JINJA_PARAMETER ): more */
    CALM_JINJA_PARAMETER,     /* name, default a or NULL */
    CALM_JINJA_BREAK,
    CALM_JINJA_CONTINUE,
    CALM_JINJA_SCOPE,         /* items: CALM_JINJA_SET; more: the body */
    CALM_JINJA_FILTER_BLOCK,  /* items through the filters b */
} calm_jinja_type;

/* Operators of one character are that character. */
typedef enum calm_jinja_op {
    CALM_JINJA_EQ = 256, CALM_JINJA_NE, CALM_JINJA_LE, CALM_JINJA_GE, CALM_JINJA_FLOOR, CALM_JINJA_POWER,
    CALM_JINJA_IN, CALM_JINJA_NOT_IN, CALM_JINJA_NOT,
} calm_jinja_op;

typedef struct calm_jinja_node calm_jinja_node;
struct calm_jinja_node {
    calm_jinja_type type;
    int op;                         /* a character or calm_jinja_op */
    size_t line;
    const char *name, *text;
    calm_jinja_value constant;
    calm_jinja_node *a, *b, *c;
    calm_jinja_node *items, *more;    /* linked lists by `next` */
    calm_jinja_node *next;
};

struct calm_jinja_macro {
    const calm_jinja_node *node;
    struct calm_jinja_scope *scope;    /* scope of its definition */
};
