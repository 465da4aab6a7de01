/* Unicode through utf8proc.
 *
 * utf8proc normalizes whole strings, but sorts combining marks by exchanging neighbours, which is quadratic in the
 * length of a run of marks.  Here utf8proc decomposes single characters and composes sorted ones; a stable counting
 * sort orders the marks in between. */
#include "ptq/text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "ptq/base/scope.h"
#include "ptq/text/unicode_classes.h"

/* Properties of the normalization forms.  `first`: first character that a form changes; a mark (the first is U+0300)
 * may also join the character before it.  `decomposed`: characters of the longest decomposition (U+1F82 has four,
 * U+FDFA eighteen).  `growth`: maximum bytes of UTF-8 per byte of the input (UAX #15, section 9). */
static const struct form {
    bool composes;
    int options;
    uint32_t first;
    size_t decomposed, growth;
} forms[] = {
    [CALM_NFC] = {true, UTF8PROC_DECOMPOSE, CALM_UNICODE_FIRST_MARK, 4, 3},
    [CALM_NFD] = {false, UTF8PROC_DECOMPOSE, 0xC0, 4, 3},
    [CALM_NFKC] = {true, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0xA0, 18, 11},
    [CALM_NFKD] = {false, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0xA0, 18, 11},
};

/* ---- UTF-8 ---- */

/* Returns the length of the character at `text` [n], n > 0; or 0 if it is malformed, with the number of bytes to
 * skip in *bad.  The ranges of the second byte are those of table 3-7 of the Unicode Standard. */
static size_t well_formed(const unsigned char *text, size_t n, size_t *bad)
{
    unsigned char lead = text[0], low = 0x80, high = 0xBF;
    *bad = 1;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead == 0xE0)
        low = 0xA0;
    else if (lead == 0xED)
        high = 0x9F;
    else if (lead == 0xF0)
        low = 0x90;
    else if (lead == 0xF4)
        high = 0x8F;
    for (size_t i = 1; i < length; i++) {
        *bad = i;
        if (i >= n || text[i] < low || text[i] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

/* Returns the number of ASCII bytes at the start of `text` [n]. */
static size_t ascii_run(const char *text, size_t n)
{
    size_t at = 0;
    uint64_t word;
    for (; n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, text + at, sizeof word);
        if (word & UINT64_C(0x8080808080808080))
            break;
    }
    while (at < n && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

size_t calm_utf8_invalid_at(const char *text, size_t n)
{
    size_t at = 0, bad;
    while (at < n) {
        at += ascii_run(text + at, n - at);
        if (at == n)
            break;
        size_t length = well_formed((const unsigned char *)text + at, n - at, &bad);
        if (length == 0)
            return at;
        at += length;
    }
    return n;
}

size_t calm_utf8_decode(const char *text, uint32_t *out)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *out = s[0];
        return 1;
    }
    if (s[0] < 0xE0) {
        *out = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
        return 2;
    }
    if (s[0] < 0xF0) {
        *out = (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
        return 3;
    }
    *out = (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
    return 4;
}

size_t calm_utf8_step_back(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

size_t calm_utf8_count(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

size_t calm_utf8_encode(uint32_t character, char out[CALM_UTF8_MAX])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)character, (utf8proc_uint8_t *)out);
}

void calm_utf8_repair(const char *text, size_t n, calm_text *out)
{
    size_t at = 0, bad;
    while (at < n) {
        size_t good = calm_utf8_invalid_at(text + at, n - at);
        calm_text_append(out, text + at, good);
        at += good;
        if (at < n) {
            well_formed((const unsigned char *)text + at, n - at, &bad);
            calm_text_append(out, "\xEF\xBF\xBD", 3);
            at += bad;
        }
    }
}

/* ---- classes ---- */

bool calm_unicode_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Other_Alphabetic without the marks: circled, squared and similar letters, whose category is symbol. */
static bool is_enclosed_letter(uint32_t c)
{
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}

/* Sets of general categories, one bit per category. */
#define CATEGORY(name) (UINT32_C(1) << UTF8PROC_CATEGORY_##name)
#define LETTERS        (CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT) | CATEGORY(LM) | CATEGORY(LO))
#define MARKS          (CATEGORY(MN) | CATEGORY(MC) | CATEGORY(ME))
#define NUMBERS        (CATEGORY(ND) | CATEGORY(NL) | CATEGORY(NO))
#define SEPARATORS     (CATEGORY(ZL) | CATEGORY(ZP))    /* of lines; spaces are printable     */

static bool is_of(uint32_t c, uint32_t categories)
{
    return UINT32_C(1) << utf8proc_category((utf8proc_int32_t)c) & categories;
}

bool calm_unicode_is_word(uint32_t c)
{
    return is_of(c, LETTERS | MARKS | CATEGORY(ND) | CATEGORY(NL) | CATEGORY(PC)) || c == 0x200C || c == 0x200D ||
           is_enclosed_letter(c) || calm_unicode_is_late_word(c);
}

bool calm_unicode_is_number(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : is_of(c, NUMBERS) || calm_unicode_is_late_number(c);
}

/* Capital letters since Unicode 15.1: `first` + k has the lower case `lower` + k; also irregular ones. */
static const struct late_capital {
    uint32_t first, last, lower;
} late_capitals[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},     {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},     {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB},
};

size_t calm_unicode_lower(uint32_t c, uint32_t out[2])
{
    if (c == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    for (size_t i = 0; c >= 0x1C89 && i < sizeof late_capitals / sizeof *late_capitals; i++)
        if (c >= late_capitals[i].first && c <= late_capitals[i].last)
            out[0] = late_capitals[i].lower + (c - late_capitals[i].first);
    return 1;
}

uint32_t calm_unicode_upper(uint32_t c)
{
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

size_t calm_unicode_grapheme(const char *text, size_t n)
{
    utf8proc_int32_t state = 0;
    uint32_t previous, next;
    size_t at = calm_utf8_decode(text, &previous);
    while (at < n) {
        const size_t length = calm_utf8_decode(text + at, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)previous, (utf8proc_int32_t)next, &state))
            break;
        at += length;
        previous = next;
    }
    return at;
}

bool calm_unicode_is_unprintable(uint32_t c)
{
    return is_of(c, CATEGORY(CN) | CATEGORY(CC) | CATEGORY(CF) | CATEGORY(CO) | CATEGORY(CS) | SEPARATORS);
}

int calm_unicode_columns(uint32_t character)
{
    return utf8proc_charwidth((utf8proc_int32_t)character);
}

/* ---- normalization forms ---- */

static unsigned mark_class(utf8proc_int32_t c)
{
    const unsigned class = c < CALM_UNICODE_FIRST_MARK ? 0 : (unsigned)utf8proc_get_property(c)->combining_class;
    return class && calm_unicode_is_mark((uint32_t)c) ? class : 0;
}

/* Sorts a run of marks by combining class, stably: by insertion up to 16 marks, by counting beyond. */
static void sort_marks(utf8proc_int32_t *marks, size_t n, utf8proc_int32_t *spare)
{
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t mark = marks[i];
            size_t j = i;
            for (; j > 0 && mark_class(marks[j - 1]) > mark_class(mark); j--)
                marks[j] = marks[j - 1];
            marks[j] = mark;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[mark_class(marks[i]) + 1]++;
    for (size_t k = 1; k < 257; k++)
        start[k] += start[k - 1];
    for (size_t i = 0; i < n; i++)
        spare[start[mark_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

static void order_canonically(utf8proc_int32_t *characters, size_t n, utf8proc_int32_t *spare)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && mark_class(characters[end]) != 0)
            end++;
        if (end > i + 1)
            sort_marks(characters + i, end - i, spare);
        i = end > i ? end : i + 1;
    }
}

/* Returns the maximum number of characters in the decomposition of a segment of n bytes: all of its characters but
 * the first have two bytes or more. */
static size_t decomposed_max(const struct form *form, size_t n)
{
    return (n / 2 + 1) * form->decomposed;
}

/* Normalizes a segment that does not interact with its neighbours; returns the bytes written to `out`.
 *   wide [2][decomposed_max(n)]  room for the characters and for sorting them */
static size_t convert(const struct form *form, const char *text, size_t n, utf8proc_int32_t *wide, char *out)
{
    size_t count = 0, written = 0;
    uint32_t c;
    for (size_t at = 0; at < n;) {
        at += calm_utf8_decode(text + at, &c);
        if (calm_unicode_stays_whole(c))
            wide[count++] = (utf8proc_int32_t)c;
        else
            count += (size_t)utf8proc_decompose_char((utf8proc_int32_t)c, wide + count,
                                                     (utf8proc_ssize_t)form->decomposed, form->options, NULL);
    }
    order_canonically(wide, count, wide + decomposed_max(form, n));
    if (form->composes)
        count = (size_t)utf8proc_normalize_utf32(wide, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (size_t i = 0; i < count; i++)
        written += calm_utf8_encode((uint32_t)wide[i], out + written);
    return written;
}

/* Finds the next segment of `text` [n] from *begin on that the form may change: a run of non-ASCII characters with
 * one at or above form->first, and the ASCII character before it, which a mark may join.  An ASCII character never
 * joins what precedes it.  Returns false if there is no such segment. */
static bool next_segment(const struct form *form, const char *text, size_t n, size_t *begin, size_t *end)
{
    size_t at = *begin;
    while (at < n) {
        at += ascii_run(text + at, n - at);
        size_t start = at > *begin ? at - 1 : at;
        bool may_change = false;
        uint32_t c;
        for (; at < n && (unsigned char)text[at] >= 0x80; may_change |= c >= form->first)
            at += calm_utf8_decode(text + at, &c);
        if (may_change) {
            *begin = start;
            *end = at;
            return true;
        }
    }
    return false;
}

calm_status calm_unicode_normalize(calm_ctx *ctx, calm_unicode_form name, const char *text, size_t n, const char **out,
                                   size_t *n_out)
{
    const struct form *form = &forms[name];
    size_t begin = 0, end, longest = 0, changing = 0, room;
    *out = text;
    *n_out = n;
    while (next_segment(form, text, n, &begin, &end)) {
        longest = end - begin > longest ? end - begin : longest;
        changing += end - begin;
        begin = end;
    }
    if (changing == 0)
        return CALM_OK;

    char *result;
    utf8proc_int32_t *wide;
    if (!calm_size_mul(&room, changing, form->growth) || !calm_size_add(&room, room, n))
        return calm_fail(ctx, CALM_ENOMEM, "out of memory to normalize %zu bytes", n);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, result, room));
    CALM_SCOPED_SCRATCH(ctx);    /* behind the result, which remains */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, wide, 2 * decomposed_max(form, longest)));
    size_t copied = 0, written = 0;
    for (begin = 0; next_segment(form, text, n, &begin, &end); begin = end) {
        memcpy(result + written, text + copied, begin - copied);
        written += begin - copied;
        written += convert(form, text + begin, end - begin, wide, result + written);
        copied = end;
    }
    memcpy(result + written, text + copied, n - copied);
    written += n - copied;
    *out = result;
    *n_out = written;
    return CALM_OK;
}
