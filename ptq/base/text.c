/* Growing strings, and the nearest word for "did you mean". */
#include "ptq/base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void calm_text_init(calm_text *text)
{
    memset(text, 0, sizeof *text);
}

void calm_text_clear(calm_text *text)
{
    free(text->data);
    memset(text, 0, sizeof *text);
}

static bool reserve(calm_text *text, size_t extra)
{
    size_t need, capacity = text->capacity ? text->capacity : 256;
    text->failed = text->failed || !calm_size_add(&need, text->length, extra) || !calm_size_add(&need, need, 1);
    if (text->failed || need <= text->capacity)
        return !text->failed;
    while (capacity < need)
        if (!calm_size_mul(&capacity, capacity, 2))
            capacity = need;
    char *data = realloc(text->data, capacity);
    text->failed = !data;
    text->data = data ? data : text->data;
    text->capacity = data ? capacity : text->capacity;
    return data;
}

void calm_text_append(calm_text *text, const char *bytes, size_t n_bytes)
{
    if (!reserve(text, n_bytes))
        return;
    if (n_bytes)
        memcpy(text->data + text->length, bytes, n_bytes);
    text->length += n_bytes;
    text->data[text->length] = '\0';
}

void calm_text_printf(calm_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        text->failed = true;
    } else if (reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

calm_status calm_text_check(calm_ctx *ctx, const calm_text *text)
{
    if (text->failed)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory for a text of %zu bytes", text->length);
    return CALM_OK;
}

int calm_digits_needed(double value, int least)
{
    char text[40];
    for (; least < 17; least++) {    /* 17 tell any two doubles apart */
        snprintf(text, sizeof text, "%.*g", least, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return least;
}

void calm_text_number(calm_text *text, double value, int least)
{
    calm_text_printf(text, "%.*g", calm_digits_needed(value, least), value);
}

calm_status calm_text_take(calm_ctx *ctx, calm_arena *arena, calm_text *text, calm_string_out out, size_t *n)
{
    char *copy = NULL;
    if (calm_text_check(ctx, text) == CALM_OK)
        calm_alloc(ctx, arena, &copy, text->length + 1, 1, "a text");
    if (copy && text->length)
        memcpy(copy, text->data, text->length);
    memcpy(out.text, &copy, sizeof copy);    /* of either type */
    if (n)
        *n = text->length;
    calm_text_clear(text);
    return copy ? CALM_OK : ctx->status;
}

bool calm_text_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

const char *calm_text_last_word(const char *text)
{
    const char *dot = strrchr(text, '.');
    return dot ? dot + 1 : text;
}

bool calm_text_listed(const char *list, char separator, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; at && *at;) {
        const char *end = strchr(at, separator);
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        if (n == length && strncmp(at, word, n) == 0)
            return true;
        /* Skip the separator, if there is one. */
        at += n + (end != NULL);
    }
    return false;
}

#define WORD_MAX ((size_t)63)

/* Computes the Levenshtein distance, ignoring case. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n_a = strnlen(a, WORD_MAX), n_b = strnlen(b, WORD_MAX);
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t change = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            size_t least = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < least ? change : least;
        }
    }
    return row[n_b];
}

const char *calm_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = 0;
    for (size_t i = 0; i < n; i++) {
        size_t distance = edit_distance(word, names[i]);
        if (distance > (calm_size_max(strlen(word), strlen(names[i])) + 2) / 3)
            continue;
        if (!best || distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

/* Parses a size in bytes; false: not a size, or out of bounds. */
static bool parse_size(const char *text, double least, size_t *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},      {"B", 1},     {"K", 1e3},     {"KB", 1e3},     {"M", 1e6},       {"MB", 1e6},
                 {"G", 1e9},   {"GB", 1e9},  {"T", 1e12},    {"TB", 1e12},    {"Ki", 1024.0},   {"KiB", 1024.0},
                 {"Mi", 1048576.0}, {"MiB", 1048576.0}, {"Gi", 1073741824.0}, {"GiB", 1073741824.0}};
    char *end;
    const double value = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++)
        if (strcasecmp(end, units[i].suffix) == 0 && value * units[i].factor >= least &&
            value * units[i].factor <= (double)CALM_FILE_BYTES_MAX) {
            *out = (size_t)(value * units[i].factor);
            return true;
        }
    return false;
}

calm_status calm_size_parse(calm_ctx *ctx, const char *key, const char *text, size_t *out)
{
    return parse_size(text, 1e6, out) ? CALM_OK
                                      : calm_fail(ctx, CALM_EARG, "`%s` %s: expected a size of at least 1 MB: 2GB, "
                                                  "1.5GiB, 800M", key, text);
}

calm_status calm_size_parse_file(calm_ctx *ctx, const char *key, const char *text, size_t *out)
{
    return parse_size(text, CALM_FILE_BYTES_MIN, out) ? CALM_OK
                                      : calm_fail(ctx, CALM_EARG, "`%s` %s: expected the size of a file, at least "
                                                  "1 KB: 3.0MB, 350MB, 1.5GiB", key, text);
}
