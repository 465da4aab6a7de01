/* Option tables: parser, defaults and canonical form from one typed table. */
#include "ptq/base/option.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/base/message.h"
#include "ptq/base/text.h"

#define NAMES_MAX 64
#define FILE_BYTES 4096

size_t calm_options_count(const calm_option *table)
{
    size_t n = 0;
    while (table && table[n].name)
        n++;
    return n;
}

int calm_option_value_index(const char *values, const char *word)
{
    size_t length = strlen(word);
    int index = 0;
    for (const char *at = values;; index++) {
        size_t part = strcspn(at, "|");
        if (part == length && memcmp(at, word, length) == 0)
            return index;
        if (!at[part])
            return -1;
        at += part + 1;
    }
}

static calm_status wrong(calm_ctx *ctx, const calm_option *option, const char *owner, const char *expected,
                         const char *value)
{
    return calm_fail(ctx, CALM_EARG, "%s: option %s: expected %s, found \"%s\"", owner, option->name, expected, value);
}

static calm_status set_bool(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value)
{
    const bool yes = strcmp(value, "true") == 0;
    if (!yes && strcmp(value, "false") != 0)
        return wrong(ctx, option, owner, "true or false", value);
    memcpy(field, &yes, sizeof yes);
    return CALM_OK;
}

static bool in_range(const calm_option *option, double value)
{
    return (option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max);
}

static calm_status check_range(calm_ctx *ctx, const calm_option *option, const char *owner, const char *value,
                               double number)
{
    if (in_range(option, number))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "%s: option %s: %s is outside %.15g .. %.15g", owner, option->name, value,
                     option->min, option->max);
}

/* Returns the only number in a value like 4bit or int4; 0: there is none, or several. */
static long long number_within(const char *value)
{
    static const char digits[] = "0123456789";
    const char *begin = value + strcspn(value, digits);
    const size_t n = strspn(begin, digits);
    const bool alone = begin[n + strcspn(begin + n, digits)] == '\0' && value[0] != '-' && !strpbrk(value, "+.");
    return alone && n > 0 && n < 10 ? atoll(begin) : 0;
}

static calm_status set_int(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    const long long within = number_within(value);
    if ((end == value || *end || errno) && within && in_range(option, (double)within))
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected a whole number, found \"%s\"; did you mean %lld?",
                         owner, option->name, value, within);
    if (end == value || *end || errno)
        return wrong(ctx, option, owner, "a whole number", value);
    CALM_TRY(check_range(ctx, option, owner, value, (double)number));
    memcpy(field, &number, sizeof number);
    return CALM_OK;
}

static calm_status set_double(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                              const char *value)
{
    char *end;
    const double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number))
        return wrong(ctx, option, owner, "a number", value);
    CALM_TRY(check_range(ctx, option, owner, value, number));
    memcpy(field, &number, sizeof number);
    return CALM_OK;
}

static calm_status unknown_value(calm_ctx *ctx, const calm_option *option, const char *owner, const char *value)
{
    char words[256], hint[CALM_HINT_MAX] = "";
    const char *names[32];
    size_t n = 0;
    const int length = snprintf(words, sizeof words, "%s", option->values);
    if (length < (int)sizeof words)
        for (char *rest = words, *word; n < sizeof names / sizeof *names && (word = strsep(&rest, "|"));)
            names[n++] = word;
    calm_did_you_mean(hint, value, names, n);
    return calm_fail(ctx, CALM_EARG, "%s: option %s: expected %s, found \"%s\"%s", owner, option->name, option->values,
                     value, hint);
}

static calm_status set_enum(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value)
{
    const int index = calm_option_value_index(option->values, value);
    if (index < 0)
        return unknown_value(ctx, option, owner, value);
    memcpy(field, &index, sizeof index);
    return CALM_OK;
}

/* ---- lists ---- */

/* Makes room for one more item.  List structs are part of option values and have no capacity: their arrays have
 * room up to the next power of two. */
static calm_status grow(calm_ctx *ctx, void *array, size_t n, size_t size)
{
    size_t capacity = n & (n - 1) ? n + 1 : n;
    return calm_array_grow(ctx, ctx->out, array, n, &capacity, n + 1, size, "list");
}

calm_status calm_words_add(calm_ctx *ctx, calm_words *words, const char *item)
{
    CALM_TRY(grow(ctx, &words->of, words->n, sizeof *words->of));
    CALM_TRY(calm_strf(ctx, ctx->out, &words->of[words->n], "%s", item));
    words->n++;
    return CALM_OK;
}

bool calm_words_have(const calm_words *words, const char *item)
{
    for (size_t i = 0; words && i < words->n; i++)
        if (strcmp(words->of[i], item) == 0)
            return true;
    return false;
}

int calm_words_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

calm_status calm_pairs_add(calm_ctx *ctx, calm_pairs *pairs, const char *key, const char *value)
{
    CALM_TRY(grow(ctx, &pairs->of, pairs->n, sizeof *pairs->of));
    CALM_TRY(calm_strf(ctx, ctx->out, &pairs->of[pairs->n].key, "%s", key));
    CALM_TRY(calm_strf(ctx, ctx->out, &pairs->of[pairs->n].value, "%s", value));
    pairs->n++;
    return CALM_OK;
}

static calm_status add_number(calm_ctx *ctx, calm_numbers *numbers, double number)
{
    CALM_TRY(grow(ctx, &numbers->of, numbers->n, sizeof *numbers->of));
    numbers->of[numbers->n++] = number;
    return CALM_OK;
}

calm_status calm_words_split(calm_ctx *ctx, const char *list, calm_words *out)
{
    for (*out = (calm_words){0};;) {
        char *item;
        CALM_TRY(calm_list_next(ctx, &list, &item));
        if (!item)
            return CALM_OK;
        CALM_TRY(calm_words_add(ctx, out, item));
    }
}

static calm_status no_item(calm_ctx *ctx, const calm_option *option, const char *owner, const char *value)
{
    const char *expected = option->values ? option->values : option->metavar ? option->metavar : "a list";
    return wrong(ctx, option, owner, expected, value);
}

static calm_status add_word(calm_ctx *ctx, const calm_option *option, void *list, const char *owner, char *item)
{
    if (option->values && calm_option_value_index(option->values, item) < 0)
        return no_item(ctx, option, owner, item);
    return calm_words_add(ctx, list, item);
}

/* Parses NAME=VALUE; modifies `item`. */
static calm_status add_pair(calm_ctx *ctx, const calm_option *option, void *list, const char *owner, char *item)
{
    char *sign = strchr(item, '=');
    if (!sign || sign == item || !sign[1])
        return no_item(ctx, option, owner, item);
    *sign = '\0';
    return calm_pairs_add(ctx, list, item, sign + 1);
}

/* Fails if the list is full. */
static calm_status check_room(calm_ctx *ctx, const calm_option *option, const char *owner, size_t n)
{
    if (option->max > 0 && n >= (size_t)option->max)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected at most %.0f items", owner, option->name,
                         option->max);
    return CALM_OK;
}

/* Adds the items of a comma list. */
static calm_status add_items(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                             const char *value)
{
    const calm_words *words = field;
    const calm_pairs *pairs = field;
    const bool paired = option->type == CALM_OPTION_PAIRS;
    for (const char *at = value;;) {
        char *item;
        CALM_TRY(calm_list_next(ctx, &at, &item));
        if (!item)
            return *value ? CALM_OK : no_item(ctx, option, owner, value);
        CALM_TRY(check_room(ctx, option, owner, paired ? pairs->n : words->n));
        CALM_TRY((paired ? add_pair : add_word)(ctx, option, field, owner, item));
    }
}

/* Adds one file name unchanged: names may contain commas. */
static calm_status add_file(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                            const char *value)
{
    calm_words *files = field;
    if (!*value)
        return no_item(ctx, option, owner, value);
    if (strlen(value) > FILE_BYTES)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected at most %d bytes", owner, option->name, FILE_BYTES);
    CALM_TRY(check_room(ctx, option, owner, files->n));
    return calm_words_add(ctx, files, value);
}

/* Adds numbers of a comma list; only the length of the argument bounds their count. */
static calm_status add_numbers(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                               const char *value)
{
    for (const char *at = value;; at++) {
        char *end;
        const double number = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(number))
            return wrong(ctx, option, owner, "numbers, as 2.5,3", value);
        CALM_TRY(check_range(ctx, option, owner, value, number));
        CALM_TRY(add_number(ctx, field, number));
        at = end;
        if (!*at)
            return CALM_OK;
    }
}

static calm_status set_range(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                             const char *value)
{
    calm_range *range = field;
    char *end;
    range->given = true;
    range->first = range->last = strtoll(value, &end, 10);
    if (end != value && end[0] == '-' && end[1] >= '0' && end[1] <= '9')
        range->last = strtoll(end + 1, &end, 10);
    if (*end || end == value || value[0] == '-' || range->last < range->first || !in_range(option, (double)range->last))
        return wrong(ctx, option, owner, "one number, or FIRST-LAST, as 0-3", value);
    return CALM_OK;
}

static calm_status set_string(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                              const char *value)
{
    if (!*value && option->metavar)    /* `--store "$STORE"` with an unset variable             */
        return wrong(ctx, option, owner, option->metavar, value);
    if (option->max > 0 && (double)strlen(value) > option->max)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected at most %.0f bytes", owner, option->name,
                         option->max);
    return calm_strf(ctx, ctx->out, field, "%s", value);
}

/* ---- fields ---- */

static const struct kind {
    size_t size;
    calm_status (*set)(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value);
} kinds[] = {
    [CALM_OPTION_BOOL] = {sizeof(bool), set_bool},
    [CALM_OPTION_INT] = {sizeof(long long), set_int},
    [CALM_OPTION_DOUBLE] = {sizeof(double), set_double},
    [CALM_OPTION_ENUM] = {sizeof(int), set_enum},
    [CALM_OPTION_STRING] = {sizeof(char *), set_string},
    [CALM_OPTION_WORDS] = {sizeof(calm_words), add_items},
    [CALM_OPTION_FILES] = {sizeof(calm_words), add_file},
    [CALM_OPTION_PAIRS] = {sizeof(calm_pairs), add_items},
    [CALM_OPTION_NUMBERS] = {sizeof(calm_numbers), add_numbers},
    [CALM_OPTION_RANGE] = {sizeof(calm_range), set_range},
};

calm_status calm_option_set_one(calm_ctx *ctx, const calm_option *option, void *opts, const char *owner,
                                const char *value, bool replace)
{
    void *field = (char *)opts + option->offset;
    if (replace)
        memset(field, 0, kinds[option->type].size);
    return kinds[option->type].set(ctx, option, field, owner, value);
}

const calm_option *calm_option_find(const calm_option *table, const char *name)
{
    for (const calm_option *option = table; option && option->name; option++)
        if (strcmp(option->name, name) == 0)
            return option;
    return NULL;
}

calm_status calm_options_init(calm_ctx *ctx, const calm_option *table, void *opts)
{
    for (const calm_option *option = table; option && option->name; option++) {
        /* A default may be outside the range of user values: -1 for "not set". */
        calm_option unbounded = *option;
        unbounded.min = unbounded.max = 0;
        memset((char *)opts + option->offset, 0, kinds[option->type].size);
        if (option->fallback)
            CALM_TRY(calm_option_set_one(ctx, &unbounded, opts, "default", option->fallback, false));
    }
    return CALM_OK;
}

calm_status calm_option_set(calm_ctx *ctx, const calm_option *table, void *opts, const char *owner, const char *name,
                            const char *value)
{
    const char *names[NAMES_MAX] = {NULL};
    char hint[CALM_HINT_MAX];
    size_t n = 0;
    const calm_option *option = calm_option_find(table, name);
    if (option)
        return calm_option_set_one(ctx, option, opts, owner, value, false);
    for (option = table; option && option->name && n < NAMES_MAX; option++)
        names[n++] = option->name;
    return calm_fail(ctx, CALM_EARG, "%s: unknown option \"%s\"%s", owner, name,
                     n ? calm_did_you_mean(hint, name, names, n) : "; it takes none");
}

void calm_option_print(const calm_option *option, const void *opts, calm_text *out)
{
    const void *field = (const char *)opts + option->offset;
    const calm_words *words = field;
    const calm_pairs *pairs = field;
    const calm_numbers *numbers = field;
    const calm_range *range = field;
    const char *word = option->values;
    switch (option->type) {
    case CALM_OPTION_BOOL:
        calm_text_printf(out, "%s", *(const bool *)field ? "true" : "false");
        break;
    case CALM_OPTION_INT:
        calm_text_printf(out, "%lld", *(const long long *)field);
        break;
    case CALM_OPTION_DOUBLE:
        calm_text_number(out, *(const double *)field, 1);
        break;
    case CALM_OPTION_ENUM:
        for (int i = *(const int *)field; i > 0; i--)
            word += strcspn(word, "|") + 1;
        calm_text_append(out, word, strcspn(word, "|"));
        break;
    case CALM_OPTION_STRING:
        calm_text_printf(out, "%s", *(char *const *)field ? *(char *const *)field : "");
        break;
    case CALM_OPTION_WORDS:
    case CALM_OPTION_FILES:
        for (size_t i = 0; i < words->n; i++)
            calm_text_printf(out, "%s%s", i ? "," : "", words->of[i]);
        break;
    case CALM_OPTION_PAIRS:
        for (size_t i = 0; i < pairs->n; i++)
            calm_text_printf(out, "%s%s=%s", i ? "," : "", pairs->of[i].key, pairs->of[i].value);
        break;
    case CALM_OPTION_NUMBERS:
        for (size_t i = 0; i < numbers->n; i++) {
            calm_text_printf(out, "%s", i ? "," : "");
            calm_text_number(out, numbers->of[i], 1);
        }
        break;
    case CALM_OPTION_RANGE:
        if (range->given)
            calm_text_printf(out, "%lld-%lld", range->first, range->last);
        break;
    }
}

void calm_options_canonical(const calm_option *table, const void *opts, calm_text *out)
{
    for (const calm_option *option = table; option && option->name; option++) {
        calm_text_printf(out, "%s%s=", option == table ? "" : ",", option->name);
        calm_option_print(option, opts, out);
    }
}

/* Returns the bytes before the first comma outside parentheses, or before the end. */
static size_t item_length(const char *list)
{
    size_t i = 0;
    int depth = 0;
    for (; list[i] && !(list[i] == ',' && depth == 0); i++)
        depth += (list[i] == '(') - (list[i] == ')');
    return i;
}

calm_status calm_list_next(calm_ctx *ctx, const char **list, char **out)
{
    const size_t length = item_length(*list);
    *out = NULL;
    if (!**list)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%.*s", (int)length, *list));
    *list += length + ((*list)[length] == ',');
    return CALM_OK;
}
