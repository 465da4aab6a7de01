/* Lexer: splits the text of a template into tokens. */
#pragma once

#include "ptq/jinja/jinja_syntax.h"

typedef enum calm_jinja_token_type {
    CALM_JINJA_T_END,          /* end of the template */
    CALM_JINJA_T_DATA,         /* text between tags */
    CALM_JINJA_T_PRINT,        /* {{ */
    CALM_JINJA_T_BLOCK,        /* {% */
    CALM_JINJA_T_CLOSE,        /* }} or %} */
    CALM_JINJA_T_NAME,
    CALM_JINJA_T_STRING,
    CALM_JINJA_T_NUMBER,       /* value */
    CALM_JINJA_T_OP,           /* op: a character or calm_jinja_op */
} calm_jinja_token_type;

typedef struct calm_jinja_token {
    calm_jinja_token_type type;
    int op;
    size_t line;
    calm_jinja_value value;    /* of data, strings and numbers; for a name its text, NUL-terminated      */
} calm_jinja_token;

/* Splits `text` [n] into tokens, the last of which is CALM_JINJA_T_END; tokens and their values are in `arena`.
 * CALM_EFORMAT, CALM_EUNSUPPORTED, CALM_ENOMEM. */
calm_status calm_jinja_lex(calm_ctx *ctx, calm_arena *arena, const char *where, const char *text, size_t n,
                           calm_jinja_token **out);
