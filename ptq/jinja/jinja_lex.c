/* Splits a template into tokens: text, tags, and their contents.
 *
 * trim_blocks removes the newline behind %} and #}, lstrip_blocks the blanks before {% and {# at the start of a
 * line; '-' removes all white space on its side, '+' disables both.  Source: lexer.py of Jinja 3.1. */
#include "ptq/jinja/jinja_lex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/text/unicode.h"

#define BRACKETS_MAX 256

typedef struct lexer {
    calm_ctx *ctx;
    calm_arena *arena;
    const char *where;
    char *text;              /* [n] NUL-terminated, with \n as the only line end           */
    size_t n, at, line;
    bool line_starts;        /* the last part read ended a line */
    calm_jinja_token *tokens;
    size_t n_tokens, capacity;
    char brackets[BRACKETS_MAX];    /* stack of closing brackets that are expected */
    size_t n_brackets;
} lexer;

static calm_status add(lexer *l, calm_jinja_token token)
{
    CALM_TRY(CALM_GROW(l->ctx, l->arena, l->tokens, l->n_tokens, &l->capacity, l->n_tokens + 1));
    token.line = l->line;
    l->tokens[l->n_tokens++] = token;
    return CALM_OK;
}

static calm_status fail(lexer *l, const char *what)
{
    return calm_fail(l->ctx, CALM_EFORMAT, "%s: line %zu: %s", l->where, l->line, what);
}

/* Advances and counts lines. */
static void advance(lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        l->line += l->text[l->at] == '\n';
}

static size_t skip_spaces(const lexer *l, size_t at)
{
    while (at < l->n) {
        uint32_t character;
        const size_t length = calm_utf8_decode(l->text + at, &character);
        if (!calm_unicode_is_space(character))
            break;
        at += length;
    }
    return at;
}

static bool has(const lexer *l, size_t at, const char *word)
{
    return strncmp(l->text + at, word, strlen(word)) == 0;
}

/* ---- text between tags ---- */

/* Returns the end of `text[from .. end)` without trailing white space. */
static size_t strip_end(const lexer *l, size_t from, size_t end)
{
    while (end > from) {
        uint32_t character;
        const size_t at = calm_utf8_step_back(l->text, end);
        calm_utf8_decode(l->text + at, &character);
        if (!calm_unicode_is_space(character))
            break;
        end = at;
    }
    return end;
}

/* Returns the end of the text before a tag with this sign. */
static size_t end_of_text(const lexer *l, size_t from, size_t end, char sign, bool print)
{
    if (sign == '-')
        return strip_end(l, from, end);
    if (sign == '+' || print)
        return end;
    size_t line = end;
    while (line > from && l->text[line - 1] != '\n')
        line--;
    const bool whole = line > from || l->line_starts;
    return whole && strip_end(l, line, end) == line ? line : end;
}

static calm_status add_text(lexer *l, size_t end)
{
    if (end > l->at)
        CALM_TRY(add(l, (calm_jinja_token){.type = CALM_JINJA_T_DATA,
                                           .value = calm_jinja_text(l->text + l->at, end - l->at)}));
    return CALM_OK;
}

/* Advances behind a tag whose last `n` characters are at `at`; `sign` is the character before them. */
static void close_tag(lexer *l, size_t at, size_t n, char sign, bool trim)
{
    size_t end = at + n;
    if (sign == '-')
        end = skip_spaces(l, end);
    else if (trim && sign != '+' && l->text[end] == '\n')
        end++;
    l->line_starts = l->text[end - 1] == '\n';
    advance(l, end);
}

static calm_status skip_comment(lexer *l, size_t from)
{
    const char *found = strstr(l->text + from, "#}");
    if (!found)
        return fail(l, "the comment {# has no end #}");
    const size_t at = (size_t)(found - l->text);
    close_tag(l, at, 2, at > from ? l->text[at - 1] : ' ', true);
    return CALM_OK;
}

/* ---- raw ---- */

/* Returns the length of "{% word %}" at `at`, 0: it is not there; *first and *last are its signs. */
static size_t match_word(const lexer *l, size_t at, const char *word, char *first, char *last)
{
    const size_t begin = at;
    if (!has(l, at, "{%"))
        return 0;
    at += 2;
    *first = l->text[at] == '-' || l->text[at] == '+' ? l->text[at++] : ' ';
    at = skip_spaces(l, at);
    if (!has(l, at, word))
        return 0;
    at = skip_spaces(l, at + strlen(word));
    *last = l->text[at] == '-' || l->text[at] == '+' ? l->text[at++] : ' ';
    return has(l, at, "%}") ? at + 2 - begin : 0;
}

/* Reads {% raw %} text {% endraw %}, whose first tag has `length` bytes. */
static calm_status read_raw(lexer *l, size_t length, char last)
{
    char first = ' ', end_sign = ' ';
    size_t at, found = 0;
    close_tag(l, l->at + length - 2, 2, last, false);
    for (at = l->at; at < l->n && !found; at += !found)
        found = match_word(l, at, "endraw", &first, &end_sign);
    if (!found)
        return fail(l, "{% raw %} has no {% endraw %}");
    CALM_TRY(add_text(l, end_of_text(l, l->at, at, first, false)));
    advance(l, at);
    close_tag(l, at + found - 2, 2, end_sign, true);
    return CALM_OK;
}

/* ---- contents of tags ---- */

static bool begins_name(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static calm_status read_name(lexer *l)
{
    const size_t begin = l->at;
    size_t end = begin;
    char *name;
    while (begins_name(l->text[end]) || isdigit((unsigned char)l->text[end]))
        end++;
    CALM_TRY(calm_strf(l->ctx, l->arena, &name, "%.*s", (int)(end - begin), l->text + begin));
    CALM_TRY(add(l, (calm_jinja_token){.type = CALM_JINJA_T_NAME, .value = calm_jinja_text(name, end - begin)}));
    advance(l, end);
    return CALM_OK;
}

/* Skips digits and single underscores between them. */
static size_t skip_digits(const lexer *l, size_t at)
{
    while (isdigit((unsigned char)l->text[at]) || (l->text[at] == '_' && isdigit((unsigned char)l->text[at + 1])))
        at++;
    return at;
}

static calm_status read_number(lexer *l)
{
    const bool behind_dot = l->at && l->text[l->at - 1] == '.';
    const bool prefixed = l->text[l->at] == '0' && strchr("xXoObB", l->text[l->at + 1]) && l->text[l->at + 1];
    char digits[64];
    size_t end = skip_digits(l, l->at), n = 0;
    bool real = false;
    if (prefixed)
        return fail(l, "expected a decimal number");
    if (!behind_dot && l->text[end] == '.' && isdigit((unsigned char)l->text[end + 1])) {
        end = skip_digits(l, end + 1);
        real = true;
    }
    if (!behind_dot && (l->text[end] == 'e' || l->text[end] == 'E')) {
        const size_t sign = end + 1 + (l->text[end + 1] == '+' || l->text[end + 1] == '-');
        real = real || isdigit((unsigned char)l->text[sign]);
        end = isdigit((unsigned char)l->text[sign]) ? skip_digits(l, sign) : end;
    }
    for (size_t i = l->at; i < end && n + 1 < sizeof digits; i++)
        if (l->text[i] != '_')
            digits[n++] = l->text[i];
    digits[n] = '\0';
    if (n > 40 || (!real && n > 18))
        return fail(l, "a number of more digits than are read");
    const calm_jinja_value value = real ? calm_jinja_real(strtod(digits, NULL))
                                        : calm_jinja_int(strtoll(digits, NULL, 10));
    CALM_TRY(add(l, (calm_jinja_token){.type = CALM_JINJA_T_NUMBER, .value = value}));
    advance(l, end);
    return CALM_OK;
}

/* Reads the `n` hexadecimal digits of \xNN, \uNNNN or \UNNNNNNNN at `at`. */
static calm_status read_code(lexer *l, size_t at, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = l->text[at + i];
        if (!isxdigit((unsigned char)c))
            return fail(l, "an escape in a string has too few digits");
        *out = *out * 16 + (uint32_t)(isdigit((unsigned char)c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (*out >= 0x110000 || (*out >= 0xD800 && *out < 0xE000))
        return fail(l, "an escape in a string is no character");
    return CALM_OK;
}

/* Reads the escape at the backslash `at`: appends its bytes to `to` [*n]; *length: bytes of its source. */
static calm_status read_escape(lexer *l, size_t at, char *to, size_t *n, size_t *length)
{
    static const char from[] = "abfnrtv\\'\"", into[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = l->text[at + 1];
    const char *known = c ? strchr(from, c) : NULL;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t character = 0;
    *length = 2;
    if (known) {
        to[(*n)++] = into[known - from];
    } else if (digits) {
        CALM_TRY(read_code(l, at + 2, digits, &character));
        *n += calm_utf8_encode(character, to + *n);
        *length += digits;
    } else if (c >= '0' && c <= '7') {
        size_t i = 1;
        for (; i <= 3 && l->text[at + i] >= '0' && l->text[at + i] <= '7'; i++)
            character = character * 8 + (uint32_t)(l->text[at + i] - '0');
        *n += calm_utf8_encode(character, to + *n);
        *length = i;
    } else if (c == 'N') {
        return calm_fail(l->ctx, CALM_EUNSUPPORTED, "%s: line %zu: \\N{...} in a string is not supported", l->where,
                         l->line);
    } else if (c != '\n') {    /* Python keeps an unknown escape as it is       */
        to[(*n)++] = '\\';
        *length = 1;
    }
    return CALM_OK;
}

static calm_status read_string(lexer *l)
{
    const char quote = l->text[l->at];
    size_t end = l->at + 1, n = 0, length;
    char *bytes;
    while (end < l->n && l->text[end] != quote)
        end += l->text[end] == '\\' && end + 1 < l->n ? 2 : 1;
    if (end >= l->n)
        return fail(l, "a string has no end");
    /* No escape has more bytes than its source. */
    CALM_TRY(CALM_NEW(l->ctx, l->arena, bytes, end - l->at + CALM_UTF8_MAX));
    for (size_t at = l->at + 1; at < end; at += length) {
        length = 1;
        if (l->text[at] == '\\')
            CALM_TRY(read_escape(l, at, bytes, &n, &length));
        else
            bytes[n++] = l->text[at];
    }
    CALM_TRY(add(l, (calm_jinja_token){.type = CALM_JINJA_T_STRING, .value = calm_jinja_text(bytes, n)}));
    advance(l, end + 1);
    return CALM_OK;
}

/* Pushes the closing bracket of an opening one, or pops a closing one. */
static calm_status match_bracket(lexer *l, char c)
{
    static const char open[] = "([{", close[] = ")]}";
    const char *opens = strchr(open, c), *closes = strchr(close, c);
    if (opens && l->n_brackets == BRACKETS_MAX)
        return fail(l, "too many brackets");
    if (opens)
        l->brackets[l->n_brackets++] = close[opens - open];
    if (closes && (!l->n_brackets || l->brackets[--l->n_brackets] != c))
        return calm_fail(l->ctx, CALM_EFORMAT, "%s: line %zu: unexpected '%c'", l->where, l->line, c);
    return CALM_OK;
}

static calm_status read_operator(lexer *l)
{
    static const struct { char text[3]; int op; } twos[] = {
        {"//", CALM_JINJA_FLOOR}, {"**", CALM_JINJA_POWER}, {"==", CALM_JINJA_EQ}, {"!=", CALM_JINJA_NE},
        {">=", CALM_JINJA_GE}, {"<=", CALM_JINJA_LE},
    };
    const char c = l->text[l->at];
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
        if (has(l, l->at, twos[i].text)) {
            advance(l, l->at + 2);
            return add(l, (calm_jinja_token){.type = CALM_JINJA_T_OP, .op = twos[i].op});
        }
    if (!c || !strchr("+-/*%~[](){}<>=.:|,", c))
        return calm_fail(l->ctx, CALM_EFORMAT, "%s: line %zu: unexpected character '%.*s'", l->where, l->line,
                         (int)calm_utf8_decode(l->text + l->at, &(uint32_t){0}), l->text + l->at);
    CALM_TRY(match_bracket(l, c));
    advance(l, l->at + 1);
    return add(l, (calm_jinja_token){.type = CALM_JINJA_T_OP, .op = c});
}

/* Returns whether the tag ends at the current position, and its sign. */
static bool ends_here(const lexer *l, const char *end, char *sign)
{
    const char c = l->text[l->at];
    const bool print = end[0] == '}', signs = c == '-' || (c == '+' && !print);
    *sign = signs ? c : ' ';
    return !l->n_brackets && has(l, l->at + signs, end);
}

/* Reads the contents of a tag up to `end`. */
static calm_status read_tag(lexer *l, const char *end)
{
    char sign;
    l->n_brackets = 0;
    for (;;) {
        advance(l, skip_spaces(l, l->at));
        if (l->at >= l->n)
            return calm_fail(l->ctx, CALM_EFORMAT, "%s: line %zu: expected \"%s\", found the end of the template",
                             l->where, l->line, end);
        const char c = l->text[l->at];
        if (ends_here(l, end, &sign)) {
            CALM_TRY(add(l, (calm_jinja_token){.type = CALM_JINJA_T_CLOSE}));
            close_tag(l, l->at + (sign != ' '), 2, sign, end[0] == '%');
            return CALM_OK;
        }
        CALM_TRY(begins_name(c) ? read_name(l) : isdigit((unsigned char)c) ? read_number(l)
                 : c == '"' || c == '\'' ? read_string(l) : read_operator(l));
    }
}

/* Reads the tag at `at`, and the text before it. */
static calm_status read_part(lexer *l, size_t at)
{
    const char kind = l->text[at + 1];
    char sign = l->text[at + 2], last = ' ';
    const size_t raw = match_word(l, at, "raw", &sign, &last);
    sign = raw ? sign : l->text[at + 2];
    CALM_TRY(add_text(l, end_of_text(l, l->at, at, sign, kind == '{')));
    advance(l, at);
    if (raw)
        return read_raw(l, raw, last);
    const size_t inside = at + 2 + (sign == '-' || sign == '+');
    if (kind == '#')
        return skip_comment(l, inside);
    CALM_TRY(add(l, (calm_jinja_token){.type = kind == '{' ? CALM_JINJA_T_PRINT : CALM_JINJA_T_BLOCK}));
    advance(l, inside);
    l->line_starts = false;
    return read_tag(l, kind == '{' ? "}}" : "%}");
}

/* Returns the position of the first tag from `at` on; n if there is none. */
static size_t find_tag(const lexer *l, size_t at)
{
    for (; at + 1 < l->n; at++)
        if (l->text[at] == '{' && (l->text[at + 1] == '{' || l->text[at + 1] == '%' || l->text[at + 1] == '#'))
            return at;
    return l->n;
}

/* Copies the template with \n for \r\n and \r, and without a final newline. */
static calm_status copy_text(lexer *l, const char *text, size_t n)
{
    CALM_TRY(CALM_NEW(l->ctx, l->arena, l->text, n + 4));
    for (size_t i = 0; i < n; i++)
        if (text[i] != '\r')
            l->text[l->n++] = text[i];
        else if (i + 1 == n || text[i + 1] != '\n')
            l->text[l->n++] = '\n';
    if (l->n && l->text[l->n - 1] == '\n')
        l->n--;
    l->text[l->n] = '\0';
    return CALM_OK;
}

calm_status calm_jinja_lex(calm_ctx *ctx, calm_arena *arena, const char *where, const char *text, size_t n,
                           calm_jinja_token **out)
{
    lexer l = {.ctx = ctx, .arena = arena, .where = where, .line = 1, .line_starts = true};
    const size_t bad = calm_utf8_invalid_at(text, n);
    if (bad < n || memchr(text, '\0', n))
        return calm_fail(ctx, CALM_EFORMAT, "%s: the template is not UTF-8 text without NUL", where);
    CALM_TRY(copy_text(&l, text, n));
    for (size_t at = find_tag(&l, 0); at < l.n; at = find_tag(&l, l.at))
        CALM_TRY(read_part(&l, at));
    CALM_TRY(add_text(&l, l.n));
    advance(&l, l.n);
    *out = l.tokens;
    CALM_TRY(add(&l, (calm_jinja_token){.type = CALM_JINJA_T_END}));
    *out = l.tokens;
    return CALM_OK;
}
