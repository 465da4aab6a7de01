/* String operations: white space, case, replacement, lines. */
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/text/unicode.h"

/* ---- strip ---- */

/* Returns whether the character of `n` bytes is in the set, or without a set is white space. */
static bool strips(const char *bytes, size_t n, uint32_t character, calm_jinja_string set)
{
    /* Python also strips the separators U+001C to U+001F. */
    if (!set.bytes)
        return calm_unicode_is_space(character) || (character >= 0x1C && character <= 0x1F);
    return set.n && memmem(set.bytes, set.n, bytes, n);
}

calm_jinja_string calm_jinja_strip(calm_jinja_string s, calm_jinja_string set, bool left, bool right)
{
    uint32_t character;
    while (left && s.n) {
        const size_t n = calm_utf8_decode(s.bytes, &character);
        if (!strips(s.bytes, n, character, set))
            break;
        s.bytes += n;
        s.n -= n;
    }
    while (right && s.n) {
        const size_t at = calm_utf8_step_back(s.bytes, s.n);
        calm_utf8_decode(s.bytes + at, &character);
        if (!strips(s.bytes + at, s.n - at, character, set))
            break;
        s.n = at;
    }
    return s;
}

calm_status calm_jinja_step_strip(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string set)
{
    size_t bytes;
    return calm_jinja_step_bytes(run, calm_size_mul(&bytes, s.n, set.n) ? bytes : SIZE_MAX);
}

/* ---- case ---- */

/* Returns whether the other case of a character is several characters: Latin and Armenian ones, ligatures, and
 * Greek ones with marks. */
static bool is_special(uint32_t c, bool upper)
{
    if (!upper)
        return c == 0x03A3;    /* its lower case depends on its position in the word */
    return c == 0xDF || c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3B0 || c == 0x587 ||
           (c >= 0x1E96 && c <= 0x1E9A) || (c >= 0x1F50 && c <= 0x1FFC) || (c >= 0xFB00 && c <= 0xFB17);
}

static calm_status put_case(calm_jinja_run *run, calm_jinja_buffer *to, uint32_t c, bool upper)
{
    uint32_t changed[2];
    char bytes[2 * CALM_UTF8_MAX];
    size_t n = 0, count = 1;
    if (is_special(c, upper))
        return calm_jinja_refuse(run, "the other case of U+%04X", (unsigned)c);
    if (upper)
        changed[0] = calm_unicode_upper(c);
    else
        count = calm_unicode_lower(c, changed);
    for (size_t i = 0; i < count; i++)
        n += calm_utf8_encode(changed[i], bytes + n);
    return calm_jinja_put(run, to, bytes, n);
}

/* Returns whether the next character begins a word for the filter title: the regular expression [-\s({\[<]+. */
static bool divides(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || calm_unicode_is_space(c);
}

calm_status calm_jinja_change_case(calm_jinja_run *run, calm_jinja_string s, calm_jinja_case to, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    uint32_t character;
    bool begins = true;
    for (size_t at = 0; at < s.n;) {
        at += calm_utf8_decode(s.bytes + at, &character);
        const bool upper = to == CALM_JINJA_UPPER || (begins && to != CALM_JINJA_LOWER);
        CALM_TRY(put_case(run, &buffer, character, upper));
        begins = to == CALM_JINJA_TITLE && divides(character);
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

/* ---- replace ---- */

calm_status calm_jinja_replace(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string old, calm_jinja_string by,
                               int64_t count, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    uint32_t character;
    size_t at = 0;
    /* An empty `old` is found before every character and at the end. */
    for (; count != 0 && at <= s.n; count--) {
        const char *found = old.n ? memmem(s.bytes + at, s.n - at, old.bytes, old.n) : s.bytes + at;
        if (!found)
            break;
        const size_t begin = (size_t)(found - s.bytes);
        CALM_TRY(calm_jinja_step(run, 1));
        CALM_TRY(calm_jinja_put(run, &buffer, s.bytes + at, begin - at));
        CALM_TRY(calm_jinja_put_string(run, &buffer, by));
        at = begin + old.n;
        if (old.n)
            continue;
        const size_t n = at < s.n ? calm_utf8_decode(s.bytes + at, &character) : 1;
        CALM_TRY(calm_jinja_put(run, &buffer, s.bytes + at, at < s.n ? n : 0));
        at += n;
    }
    if (at < s.n)
        CALM_TRY(calm_jinja_put(run, &buffer, s.bytes + at, s.n - at));
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

/* ---- lines ---- */

static bool ends_line(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool calm_jinja_next_line(calm_jinja_string s, size_t *at, calm_jinja_string *line)
{
    const size_t begin = *at;
    uint32_t character;
    if (begin >= s.n)
        return false;
    while (*at < s.n) {
        const size_t n = calm_utf8_decode(s.bytes + *at, &character);
        if (ends_line(character)) {
            *line = (calm_jinja_string){s.bytes + begin, *at - begin};
            *at += n + (character == '\r' && *at + 1 < s.n && s.bytes[*at + 1] == '\n');
            return true;
        }
        *at += n;
    }
    *line = (calm_jinja_string){s.bytes + begin, s.n - begin};
    return true;
}
