/* Option tables: one typed table serves the parser, the help, the defaults and the canonical form.
 *
 * The same table type describes the options of an algorithm's part (`gptq(damp=0.02)`), of a recipe and of a
 * command line.  A table is a const array that ends with an entry whose name is NULL. */
#ifndef CALM_BASE_OPTION_H
#define CALM_BASE_OPTION_H

#include "ptq/base/context.h"
#include "ptq/base/text.h"

typedef enum calm_option_type {
    CALM_OPTION_BOOL,      /* bool      true|false                                     */
    CALM_OPTION_INT,       /* long long                                                */
    CALM_OPTION_DOUBLE,    /* double                                                   */
    CALM_OPTION_ENUM,      /* int       position of the word in `values` ("none|all")  */
    CALM_OPTION_STRING,    /* const char *, copied to ctx->out                         */
} calm_option_type;

typedef struct calm_option {
    const char *name;             /* [a-z0-9_-]+ ; NULL ends the table                             */
    const char *help;             /* one line, no full stop                                        */
    size_t offset;                /* of the field in the options struct                            */
    calm_option_type type;
    const char *fallback;         /* default, as text; NULL: false, 0 or a NULL string             */
    double min, max;              /* INT and DOUBLE, both ends included; both 0: unbounded         */
    const char *values;           /* ENUM: words joined by '|'                                     */
    const char *metavar;          /* command line only: the word for the value in the help         */
    char key;                     /* command line only: one-letter form, 0: none                   */
    bool list;                    /* command line only: STRING may be repeated, joined with ','    */
} calm_option;

/* Fill `opts` with the defaults of the table. */
calm_status calm_options_init(calm_ctx *ctx, const calm_option *table, void *opts);

/* Parse `value` into the field `name`.
 * CALM_EARG for an unknown name (with the nearest known one), a value that is not of the type, or out of range;
 * `owner` says in the message whose option it is ("gptq", "calm quantize"). */
calm_status calm_option_set(calm_ctx *ctx, const calm_option *table, void *opts, const char *owner,
                            const char *name, const char *value);

/* Append "a=1,b=x" with every option in table order, defaults too: the form that enters keys and the store.
 * Doubles are printed with the fewest digits that read back the same. */
void calm_options_canonical(const calm_option *table, const void *opts, calm_text *out);

/* Number of entries before the terminator; 0 for NULL. */
size_t calm_options_count(const calm_option *table);

/* Reads a comma list such as "rtn,gptq(damp=0.1,order=none)" item by item: *out is a copy of the first item of *list in
 * ctx->out, and *list advances past it and its comma.  At the end of the list *out is NULL.  A comma within parentheses
 * belongs to its item.  An item between two commas may be empty; after a last comma there is none.  CALM_ENOMEM. */
calm_status calm_list_next(calm_ctx *ctx, const char **list, char **out);

#endif
