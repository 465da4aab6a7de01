/* Checks and repairs of the bytes of a text file before they are parsed. */
#include "ptq/data/raw_text.h"

#include <string.h>

#define ESCAPE 6    /* bytes of an escape \uXXXX */

/* ---- formats that are not text ---- */

/* A format, its first bytes, and a command that converts FILE to text. */
typedef struct format {
    const char *magic;
    size_t n;
    const char *name, *convert;
} format;

static const format formats[] = {
    {"PAR1", 4, "Parquet", "python -c \"import pandas; pandas.read_parquet('FILE')"
                           ".to_json('texts.jsonl', orient='records', lines=True)\""},
    {"ARROW1", 6, "Arrow", "python -c \"import pandas; pandas.read_feather('FILE')"
                           ".to_json('texts.jsonl', orient='records', lines=True)\""},
    {"\xFF\xFF\xFF\xFF", 4, "an Arrow stream", "python -c \"import datasets; datasets.Dataset.from_file('FILE')"
                                               ".to_json('texts.jsonl')\""},
    {"\x28\xB5\x2F\xFD", 4, "Zstandard", "zstd -dc FILE > texts.jsonl"},
    {"BZh", 3, "bzip2", "bzip2 -dc FILE > texts.jsonl"},
    {"\xFD" "7zXZ", 5, "xz", "xz -dc FILE > texts.jsonl"},
    {"PK\x03\x04", 4, "zip", "unzip -p FILE > texts.jsonl"},
    {"\xFF\xFE", 2, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE > texts.txt"},
    {"\xFE\xFF", 2, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE > texts.txt"},
};

calm_status calm_raw_text_check(calm_ctx *ctx, const char *path, const char *bytes, size_t n)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (n >= formats[i].n && memcmp(bytes, formats[i].magic, formats[i].n) == 0)
            return calm_fail(ctx, CALM_EARG,
                             "%s: expected UTF-8 text or JSON, found %s; convert it with the file's name for FILE: %s",
                             path, formats[i].name, formats[i].convert);
    return CALM_OK;
}

/* ---- what the text begins with ---- */

size_t calm_raw_text_mark(const char *text, size_t n)
{
    return n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* Returns the offset, from `at` on, of the first byte that is not white space in JSON. */
static size_t skip_space(const char *text, size_t n, size_t at)
{
    while (at < n && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n'))
        at++;
    return at;
}

bool calm_raw_text_begins_json(const char *text, size_t n)
{
    const size_t first = skip_space(text, n, 0), second = skip_space(text, n, first + 1);
    if (second >= n || (text[first] != '[' && text[first] != '{'))
        return false;
    if (text[first] == '[' && text[second] == ']')
        return skip_space(text, n, second + 1) == n;
    return text[second] == '"' || text[second] == (text[first] == '[' ? '{' : '}');
}

/* ---- surrogates ---- */

/* Returns the code unit of an escape \uXXXX at the start of `text` [n], or 0 if there is none. */
static unsigned code_unit(const char *text, size_t n)
{
    unsigned unit = 0;
    if (n < ESCAPE || text[0] != '\\' || text[1] != 'u')
        return 0;
    for (size_t i = 2; i < ESCAPE; i++) {
        const char c = text[i], lower = (char)(c | 0x20);
        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'f'))
            return 0;
        unit = unit * 16 + (unsigned)(c <= '9' ? c - '0' : lower - 'a' + 10);
    }
    return unit;
}

/* Returns the bytes of the escape at the start of `text` [n > 0]; sets *lone if it is a surrogate without its pair. */
static size_t measure_escape(const char *text, size_t n, bool *lone)
{
    const unsigned unit = code_unit(text, n), next = unit ? code_unit(text + ESCAPE, n - ESCAPE) : 0;
    const bool pair = unit >= 0xD800 && unit < 0xDC00 && next >= 0xDC00 && next < 0xE000;
    *lone = unit >= 0xD800 && unit < 0xE000 && !pair;
    return pair ? 2 * ESCAPE : unit ? ESCAPE : n > 1 ? 2 : 1;
}

static bool is_surrogate(const char *text, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)text;
    return n >= 3 && bytes[0] == 0xED && (bytes[1] & 0xE0) == 0xA0 && (bytes[2] & 0xC0) == 0x80;
}

/* Returns the offset of the first lone surrogate from `at` on, or n if there is none. */
static size_t find_surrogate(const char *text, size_t n, size_t at, bool json)
{
    while (at < n) {
        bool lone = is_surrogate(text + at, n - at);
        size_t length = 1;
        if (json && text[at] == '\\')
            length = measure_escape(text + at, n - at, &lone);
        if (lone)
            return at;
        at += length;
    }
    return n;
}

/* Replaces the lone surrogates of `text` [n] from offset `at` on by U+FFFD, which has as many bytes. */
static void replace_surrogates(char *text, size_t n, size_t at, bool json)
{
    for (; at < n; at = find_surrogate(text, n, at, json)) {
        const bool escape = text[at] == '\\';
        memcpy(text + at, escape ? "\\ufffd" : "\xEF\xBF\xBD", escape ? ESCAPE : 3);
    }
}

/* ---- ends of lines ---- */

static size_t find_crlf(const char *text, size_t n)
{
    const char *at = text, *end = text + n;
    while ((at = memchr(at, '\r', (size_t)(end - at))) && (at + 1 == end || at[1] != '\n'))
        at++;
    return at ? (size_t)(at - text) : n;
}

/* Removes the CR of each CR LF from `text` [n]; returns the bytes that remain. */
static size_t drop_crlf(char *text, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != '\r' || i + 1 == n || text[i + 1] != '\n')
            text[kept++] = text[i];
    return kept;
}

calm_status calm_raw_text_repair(calm_ctx *ctx, bool json, calm_text *copy, const char **text, size_t *n)
{
    const size_t surrogate = find_surrogate(*text, *n, 0, json), crlf = json ? *n : find_crlf(*text, *n);
    if (surrogate == *n && crlf == *n)
        return CALM_OK;
    calm_text_append(copy, *text, *n);
    CALM_TRY(calm_text_check(ctx, copy));
    replace_surrogates(copy->data, *n, surrogate, json);
    if (crlf < *n)
        *n = drop_crlf(copy->data, *n);
    *text = copy->data;
    return CALM_OK;
}
