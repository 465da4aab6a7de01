/* Option tables: parser, defaults and canonical form from one typed table. */
#include "ptq/base/option.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64

size_t calm_options_count(const calm_option *table)
{
    size_t n = 0;
    while (table && table[n].name)
        n++;
    return n;
}

/* Position of `word` in "a|b|c", or -1. */
static int word_index(const char *values, const char *word)
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

static calm_status set_bool(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value)
{
    bool yes = strcmp(value, "true") == 0;
    if (!yes && strcmp(value, "false") != 0)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected true or false, found \"%s\"", owner,
                         option->name, value);
    memcpy(field, &yes, sizeof yes);
    return CALM_OK;
}

static calm_status out_of_range(calm_ctx *ctx, const calm_option *option, const char *owner, const char *value)
{
    return calm_fail(ctx, CALM_EARG, "%s: option %s: %s is outside %.15g .. %.15g", owner, option->name, value,
                     option->min, option->max);
}

static bool in_range(const calm_option *option, double value)
{
    return (option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max);
}

static calm_status set_int(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || errno)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected a whole number, found \"%s\"", owner,
                         option->name, value);
    if (!in_range(option, (double)number))
        return out_of_range(ctx, option, owner, value);
    memcpy(field, &number, sizeof number);
    return CALM_OK;
}

static calm_status set_double(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                              const char *value)
{
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number))
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected a number, found \"%s\"", owner, option->name, value);
    if (!in_range(option, number))
        return out_of_range(ctx, option, owner, value);
    memcpy(field, &number, sizeof number);
    return CALM_OK;
}

static calm_status set_enum(calm_ctx *ctx, const calm_option *option, void *field, const char *owner, const char *value)
{
    int index = word_index(option->values, value);
    if (index < 0)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected %s, found \"%s\"", owner, option->name,
                         option->values, value);
    memcpy(field, &index, sizeof index);
    return CALM_OK;
}

/* ---- lists ---- */

/* Lists grow by doubling; the arena keeps the old arrays until it is cleared, at most as much again. */
static calm_status grow(calm_ctx *ctx, void *array, size_t n, size_t size)
{
    void *old, *larger;
    if (n & (n - 1))    /* there is room up to the next power of two */
        return CALM_OK;
    memcpy(&old, array, sizeof old);
    CALM_TRY(calm_alloc(ctx, ctx->out, &larger, n ? 2 * n : 1, size, "list"));
    if (n)
        memcpy(larger, old, n * size);
    memcpy(array, &larger, sizeof larger);
    return CALM_OK;
}

calm_status calm_words_add(calm_ctx *ctx, calm_words *words, const char *item)
{
    char *copy;
    CALM_TRY(grow(ctx, &words->of, words->n, sizeof *words->of));
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", item));
    words->of[words->n++] = copy;
    return CALM_OK;
}

calm_status calm_pairs_add(calm_ctx *ctx, calm_pairs *pairs, const char *key, const char *value)
{
    char *key_copy, *value_copy;
    CALM_TRY(grow(ctx, &pairs->of, pairs->n, sizeof *pairs->of));
    CALM_TRY(calm_strf(ctx, ctx->out, &key_copy, "%s", key));
    CALM_TRY(calm_strf(ctx, ctx->out, &value_copy, "%s", value));
    pairs->of[pairs->n++] = (calm_pair){key_copy, value_copy};
    return CALM_OK;
}

calm_status calm_numbers_add(calm_ctx *ctx, calm_numbers *numbers, double number)
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
    return calm_fail(ctx, CALM_EARG, "%s: option %s: expected %s, found \"%s\"", owner, option->name,
                     option->values     ? option->values
                     : option->metavar  ? option->metavar
                                        : "a list", value);
}

static calm_status too_many(calm_ctx *ctx, const calm_option *option, const char *owner)
{
    return calm_fail(ctx, CALM_EARG, "%s: option %s: expected at most %.0f items", owner, option->name, option->max);
}

static bool is_full(const calm_option *option, size_t n)
{
    return option->max > 0 && n >= (size_t)option->max;
}

static calm_status add_words(calm_ctx *ctx, const calm_option *option, calm_words *words, const char *owner,
                             const char *value)
{
    for (const char *at = value;;) {
        char *item;
        CALM_TRY(calm_list_next(ctx, &at, &item));
        if (!item)
            return *value ? CALM_OK : no_item(ctx, option, owner, value);
        if (option->values && word_index(option->values, item) < 0)
            return no_item(ctx, option, owner, item);
        if (is_full(option, words->n))
            return too_many(ctx, option, owner);
        CALM_TRY(calm_words_add(ctx, words, item));
    }
}

static calm_status add_pairs(calm_ctx *ctx, const calm_option *option, calm_pairs *pairs, const char *owner,
                             const char *value)
{
    for (const char *at = value;;) {
        char *item;
        CALM_TRY(calm_list_next(ctx, &at, &item));
        if (!item)
            return *value ? CALM_OK : no_item(ctx, option, owner, value);
        char *sign = strchr(item, '=');
        if (!sign || sign == item || !sign[1])
            return no_item(ctx, option, owner, item);
        if (is_full(option, pairs->n))
            return too_many(ctx, option, owner);
        *sign = '\0';
        CALM_TRY(calm_pairs_add(ctx, pairs, item, sign + 1));
    }
}

/* NUMBERS have no bound on their count but the length of what a person types. */
static calm_status add_numbers(calm_ctx *ctx, const calm_option *option, calm_numbers *numbers, const char *owner,
                               const char *value)
{
    for (const char *at = value;; at++) {
        char *end;
        const double number = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(number))
            return calm_fail(ctx, CALM_EARG, "%s: option %s: expected numbers, as 2.5,3, found \"%s\"", owner,
                             option->name, value);
        if (!in_range(option, number))
            return out_of_range(ctx, option, owner, value);
        CALM_TRY(calm_numbers_add(ctx, numbers, number));
        at = end;
        if (!*at)
            return CALM_OK;
    }
}

static calm_status set_range(calm_ctx *ctx, const calm_option *option, calm_range *range, const char *owner,
                             const char *value)
{
    char *end;
    range->given = true;
    range->first = range->last = strtoll(value, &end, 10);
    if (end != value && *end == '-')
        range->last = strtoll(end + 1, &end, 10);
    if (*end || end == value || value[0] == '-' || range->last < range->first || !in_range(option, (double)range->last))
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected one number, or FIRST-LAST, as 0-3, found \"%s\"",
                         owner, option->name, value);
    return CALM_OK;
}

static calm_status set_string(calm_ctx *ctx, const calm_option *option, void *field, const char *owner,
                              const char *value)
{
    char *copy;
    if (option->max > 0 && (double)strlen(value) > option->max)
        return calm_fail(ctx, CALM_EARG, "%s: option %s: expected at most %.0f bytes", owner, option->name,
                         option->max);
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", value));
    memcpy(field, &copy, sizeof copy);
    return CALM_OK;
}

/* ---- fields ---- */

static size_t field_size(calm_option_type type)
{
    static const size_t sizes[] = {sizeof(bool),       sizeof(long long),  sizeof(double),       sizeof(int),
                                   sizeof(char *),     sizeof(calm_words), sizeof(calm_pairs),   sizeof(calm_numbers),
                                   sizeof(calm_range)};
    return sizes[type];
}

static calm_status set_field(calm_ctx *ctx, const calm_option *option, void *opts, const char *owner, const char *value)
{
    void *field = (char *)opts + option->offset;
    switch (option->type) {
    case CALM_OPTION_BOOL:
        return set_bool(ctx, option, field, owner, value);
    case CALM_OPTION_INT:
        return set_int(ctx, option, field, owner, value);
    case CALM_OPTION_DOUBLE:
        return set_double(ctx, option, field, owner, value);
    case CALM_OPTION_ENUM:
        return set_enum(ctx, option, field, owner, value);
    case CALM_OPTION_STRING:
        return set_string(ctx, option, field, owner, value);
    case CALM_OPTION_WORDS:
        return add_words(ctx, option, field, owner, value);
    case CALM_OPTION_PAIRS:
        return add_pairs(ctx, option, field, owner, value);
    case CALM_OPTION_NUMBERS:
        return add_numbers(ctx, option, field, owner, value);
    case CALM_OPTION_RANGE:
        return set_range(ctx, option, field, owner, value);
    }
    return CALM_OK;
}

calm_status calm_option_set_one(calm_ctx *ctx, const calm_option *option, void *opts, const char *owner,
                                const char *value, bool replace)
{
    if (replace)
        memset((char *)opts + option->offset, 0, field_size(option->type));
    return set_field(ctx, option, opts, owner, value);
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
        /* A default may lie outside the range a user may give: -1 for "not set". */
        calm_option unbounded = *option;
        unbounded.min = unbounded.max = 0;
        memset((char *)opts + option->offset, 0, field_size(option->type));
        if (option->fallback)
            CALM_TRY(set_field(ctx, &unbounded, opts, "default", option->fallback));
    }
    return CALM_OK;
}

calm_status calm_option_set(calm_ctx *ctx, const calm_option *table, void *opts, const char *owner, const char *name,
                            const char *value)
{
    const char *names[NAMES_MAX] = {NULL};
    size_t n = 0;
    for (const calm_option *option = table; option && option->name; option++) {
        if (strcmp(option->name, name) == 0)
            return set_field(ctx, option, opts, owner, value);
        if (n < NAMES_MAX)
            names[n++] = option->name;
    }
    const char *near = calm_nearest(name, names, n);
    if (near)
        return calm_fail(ctx, CALM_EARG, "%s: unknown option \"%s\"; did you mean \"%s\"?", owner, name, near);
    return calm_fail(ctx, CALM_EARG, "%s: unknown option \"%s\"%s", owner, name, n ? "" : "; it takes none");
}

/* The fewest digits that read back the same. */
static void print_double(calm_text *out, double value)
{
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    calm_text_printf(out, "%s", digits);
}

static void print_enum(calm_text *out, const char *values, int index)
{
    const char *at = values;
    while (index-- > 0)
        at += strcspn(at, "|") + 1;
    calm_text_append(out, at, strcspn(at, "|"));
}

static void print_words(const calm_words *words, calm_text *out)
{
    for (size_t i = 0; i < words->n; i++)
        calm_text_printf(out, "%s%s", i ? "," : "", words->of[i]);
}

static void print_pairs(const calm_pairs *pairs, calm_text *out)
{
    for (size_t i = 0; i < pairs->n; i++)
        calm_text_printf(out, "%s%s=%s", i ? "," : "", pairs->of[i].key, pairs->of[i].value);
}

static void print_numbers(const calm_numbers *numbers, calm_text *out)
{
    for (size_t i = 0; i < numbers->n; i++) {
        calm_text_printf(out, "%s", i ? "," : "");
        print_double(out, numbers->of[i]);
    }
}

static void print_field(const calm_option *option, const void *field, calm_text *out)
{
    switch (option->type) {
    case CALM_OPTION_BOOL:
        calm_text_printf(out, "%s", *(const bool *)field ? "true" : "false");
        break;
    case CALM_OPTION_INT:
        calm_text_printf(out, "%lld", *(const long long *)field);
        break;
    case CALM_OPTION_DOUBLE:
        print_double(out, *(const double *)field);
        break;
    case CALM_OPTION_ENUM:
        print_enum(out, option->values, *(const int *)field);
        break;
    case CALM_OPTION_STRING:
        calm_text_printf(out, "%s", *(char *const *)field ? *(char *const *)field : "");
        break;
    case CALM_OPTION_WORDS:
        print_words(field, out);
        break;
    case CALM_OPTION_PAIRS:
        print_pairs(field, out);
        break;
    case CALM_OPTION_NUMBERS:
        print_numbers(field, out);
        break;
    case CALM_OPTION_RANGE:
        if (((const calm_range *)field)->given)
            calm_text_printf(out, "%lld-%lld", ((const calm_range *)field)->first, ((const calm_range *)field)->last);
        break;
    }
}

void calm_option_print(const calm_option *option, const void *opts, calm_text *out)
{
    print_field(option, (const char *)opts + option->offset, out);
}

void calm_options_canonical(const calm_option *table, const void *opts, calm_text *out)
{
    for (const calm_option *option = table; option && option->name; option++) {
        calm_text_printf(out, "%s%s=", option == table ? "" : ",", option->name);
        calm_option_print(option, opts, out);
    }
}

/* Bytes before the first comma that is not within parentheses, or before the end. */
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
