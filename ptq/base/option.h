/* Option tables: one typed table for parser, help, defaults and canonical form.
 *
 * The options of an algorithm's part (`gptq(damp=0.02)`), of a recipe and of a command line have the same table
 * type.  A table is a const array that ends with an entry whose name is NULL. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

typedef enum calm_option_type {
    CALM_OPTION_BOOL,      /* bool      true|false                                     */
    CALM_OPTION_INT,       /* long long                                                */
    CALM_OPTION_DOUBLE,    /* double                                                   */
    CALM_OPTION_ENUM,      /* int       index of the word in `values` ("none|all")     */
    CALM_OPTION_STRING,    /* const char *, copied to ctx->out                         */
    CALM_OPTION_WORDS,     /* calm_words    "rtn,gptq(damp=0.1)"; a second value is appended */
    CALM_OPTION_FILES,     /* calm_words    one name, which may contain commas; a second value is appended */
    CALM_OPTION_PAIRS,     /* calm_pairs    "*.down=gptq,0.o=rtn"; a second value is appended */
    CALM_OPTION_NUMBERS,   /* calm_numbers  "2.5,3"                                     */
    CALM_OPTION_RANGE,     /* calm_range    "0-3", or "3" for one                       */
} calm_option_type;

/* Lists and ranges; all zero is an empty list.  Arrays and strings are in ctx->out. */
typedef struct calm_words {
    const char **of;       /* [n] */
    size_t n;
} calm_words;

typedef struct calm_pair {
    const char *key, *value;
} calm_pair;

typedef struct calm_pairs {
    calm_pair *of;         /* [n] */
    size_t n;
} calm_pairs;

typedef struct calm_numbers {
    double *of;            /* [n] */
    size_t n;
} calm_numbers;

typedef struct calm_range {
    bool given;
    long long first, last; /* both included */
} calm_range;

typedef struct calm_option {
    const char *name;             /* [a-z0-9_-]+ ; NULL ends the table                             */
    const char *help;             /* one line, no full stop                                        */
    size_t offset;                /* of the field in the options struct                            */
    calm_option_type type;
    const char *fallback;         /* default, as text; NULL: false, 0 or a NULL string             */
    double min, max;              /* INT, DOUBLE, NUMBERS, RANGE: inclusive bounds; both 0: unbounded. STRING: most
                                   * bytes; 0: any.  Lists: most items */
    const char *values;           /* ENUM: words joined by '|'; WORDS: description of an item      */
    const char *metavar;          /* command line only: name of the value in the help              */
    char key;                     /* command line only: one-letter form; 0: none                   */
    bool basic;                   /* command line only: common option, which --help shows (cli/help.h)    */
    const char *place;            /* recipes only: place of the value in the document, "choice.budget" */
    const char *yields_to;        /* recipes only: options, joined by '|', that replace this one    */
} calm_option;

/* Fills `opts` with the defaults of the table. */
calm_status calm_options_init(calm_ctx *ctx, const calm_option *table, void *opts);

/* Parses `value` into the field `name`.  CALM_EARG: an unknown name (the message suggests the nearest), a value of
 * the wrong type, or out of range; `owner` names the options' owner in the message ("gptq", "calm quantize"). */
calm_status calm_option_set(calm_ctx *ctx, const calm_option *table, void *opts, const char *owner,
                            const char *name, const char *value);

/* Parses `value` into the field of one option; for a list, `value` is appended, or with `replace` replaces the
 * list.  Fails as calm_option_set. */
calm_status calm_option_set_one(calm_ctx *ctx, const calm_option *option, void *opts, const char *owner,
                                const char *value, bool replace);

/* Returns the option of this name in a table; NULL: there is none. */
const calm_option *calm_option_find(const calm_option *table, const char *name);

/* Splits a comma list into its items, as calm_list_next reads them. */
calm_status calm_words_split(calm_ctx *ctx, const char *list, calm_words *out);

/* Append an item to a list, in ctx->out. */
calm_status calm_words_add(calm_ctx *ctx, calm_words *words, const char *item);
calm_status calm_pairs_add(calm_ctx *ctx, calm_pairs *pairs, const char *key, const char *value);

/* Returns whether the list has this item.  NULL is an empty list. */
bool calm_words_have(const calm_words *words, const char *item);

/* Compares two strings by their bytes, for qsort on arrays of const char *. */
int calm_words_compare(const void *a, const void *b);

/* Returns the index of `word` in the values of an ENUM ("a|b|c"), or -1. */
int calm_option_value_index(const char *values, const char *word);

/* Appends the value of an option in the form that calm_option_set reads. */
void calm_option_print(const calm_option *option, const void *opts, calm_text *out);

/* Appends "a=1,b=x" with every option in table order, also those at their default: the form in candidates' keys and
 * in the store.  Doubles have the fewest digits that read back the same. */
void calm_options_canonical(const calm_option *table, const void *opts, calm_text *out);

/* Returns the number of entries before the terminator; 0 for NULL. */
size_t calm_options_count(const calm_option *table);

/* Reads the next item of a comma list such as "rtn,gptq(damp=0.1,order=none)": *out is a copy of the item in
 * ctx->out, NULL at the end of the list, and *list advances past the item and its comma.  A comma within
 * parentheses belongs to its item.  An item between two commas may be empty; a last comma starts no further item.
 * CALM_ENOMEM. */
calm_status calm_list_next(calm_ctx *ctx, const char **list, char **out);
