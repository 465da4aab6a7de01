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
        break;
    }
    char *copy;
    const char *earlier;
    memcpy(&earlier, field, sizeof earlier);
    if (option->list && earlier)
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s,%s", earlier, value));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", value));
    memcpy(field, &copy, sizeof copy);
    return CALM_OK;
}

calm_status calm_options_init(calm_ctx *ctx, const calm_option *table, void *opts)
{
    static const char *const zero[] = {"false", "0", "0", NULL, NULL};
    for (const calm_option *option = table; option && option->name; option++) {
        const char *value = option->fallback ? option->fallback : zero[option->type];
        void *field = (char *)opts + option->offset;
        if (option->type == CALM_OPTION_STRING)
            memset(field, 0, sizeof(char *));
        if (!value && option->type == CALM_OPTION_ENUM)
            memset(field, 0, sizeof(int));
        if (value) {
            /* A default may lie outside the range a user may give: -1 for "not set". */
            calm_option unbounded = *option;
            unbounded.min = unbounded.max = 0;
            CALM_TRY(set_field(ctx, &unbounded, opts, "default", value));
        }
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
    }
}

void calm_options_canonical(const calm_option *table, const void *opts, calm_text *out)
{
    for (const calm_option *option = table; option && option->name; option++) {
        calm_text_printf(out, "%s%s=", option == table ? "" : ",", option->name);
        print_field(option, (const char *)opts + option->offset, out);
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
