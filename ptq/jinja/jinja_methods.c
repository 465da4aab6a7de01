/* Python's methods of strings.  a[0] is the string. */
#include <ctype.h>
#include <string.h>

#include "ptq/jinja/jinja_call.h"
#include "ptq/jinja/jinja_value_ops.h"
#include "ptq/text/unicode.h"

#define METHOD CALM_JINJA_BUILTIN

/* ---- strings ---- */

static calm_status strip(calm_jinja_run *run, const calm_jinja_value *a, bool left, bool right, calm_jinja_value *out)
{
    calm_jinja_string set;
    CALM_TRY(calm_jinja_string_argument(run, a[1], NULL, &set));
    CALM_TRY(calm_jinja_step_strip(run, a[0].text, set));
    const calm_jinja_string s = calm_jinja_strip(a[0].text, set, left, right);
    *out = calm_jinja_text(s.bytes, s.n);
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_strip) { return strip(run, a, true, true, out); }
CALM_JINJA_BUILTIN(string_lstrip) { return strip(run, a, true, false, out); }
CALM_JINJA_BUILTIN(string_rstrip) { return strip(run, a, false, true, out); }

/* Splits at white space, at most `most` times (< 0: all). */
static calm_status split_words(calm_jinja_run *run, calm_jinja_string s, int64_t most, calm_jinja_list *to)
{
    const calm_jinja_string space = {0};
    for (s = calm_jinja_strip(s, space, true, false); s.n; s = calm_jinja_strip(s, space, true, false)) {
        calm_jinja_string word = s;
        if (most-- == 0) {
            word = calm_jinja_strip(s, space, false, true);
            s.n = 0;
        } else {
            uint32_t character;
            size_t length;
            for (word.n = 0; word.n < s.n; word.n += length) {
                length = calm_utf8_decode(s.bytes + word.n, &character);
                if (calm_jinja_strip((calm_jinja_string){s.bytes + word.n, length}, space, true, false).n == 0)
                    break;
            }
            s = (calm_jinja_string){s.bytes + word.n, s.n - word.n};
        }
        CALM_TRY(calm_jinja_append(run, to, calm_jinja_text(word.bytes, word.n)));
    }
    return CALM_OK;
}

/* Sets *out to the last occurrence of `part` in `s`, or to NULL if there is none. */
static calm_status find_last(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string part, const char **out)
{
    *out = NULL;
    for (size_t at = s.n - part.n + 1; part.n <= s.n && at-- > 0 && !*out;) {
        if (part.n && s.bytes[at] != part.bytes[0])
            continue;
        CALM_TRY(calm_jinja_step_bytes(run, part.n));
        *out = memcmp(s.bytes + at, part.bytes, part.n) == 0 ? s.bytes + at : NULL;
    }
    return CALM_OK;
}

/* Splits at `by`, from the left. */
static calm_status split_by(calm_jinja_run *run, calm_jinja_string s, calm_jinja_string by, int64_t most,
                            calm_jinja_list *to)
{
    for (const char *found; most-- != 0 && (found = memmem(s.bytes, s.n, by.bytes, by.n));) {
        const size_t n = (size_t)(found - s.bytes);
        CALM_TRY(calm_jinja_append(run, to, calm_jinja_text(s.bytes, n)));
        s = (calm_jinja_string){found + by.n, s.n - n - by.n};
    }
    return calm_jinja_append(run, to, calm_jinja_text(s.bytes, s.n));
}

METHOD(string_split)
{
    calm_jinja_string by;
    int64_t most;
    CALM_TRY(calm_jinja_string_argument(run, a[1], NULL, &by));
    CALM_TRY(calm_jinja_int_argument(run, a[2], -1, &most));
    CALM_TRY(calm_jinja_step_bytes(run, a[0].text.n));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    if (!by.bytes)
        return split_words(run, a[0].text, most, out->list);
    if (by.n == 0)
        return calm_jinja_fail(run, "split: an empty separator");
    return split_by(run, a[0].text, by, most, out->list);
}

/* Splits from the right: finds the last part first. */
METHOD(string_rsplit)
{
    calm_jinja_string by, s = a[0].text;
    calm_jinja_value parts;
    int64_t most;
    CALM_TRY(calm_jinja_string_argument(run, a[1], NULL, &by));
    CALM_TRY(calm_jinja_int_argument(run, a[2], -1, &most));
    if (!by.n)
        return by.bytes ? calm_jinja_fail(run, "rsplit: an empty separator")
                        : calm_jinja_refuse(run, "rsplit at white space");
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, &parts));
    for (const char *found; most-- != 0;) {
        CALM_TRY(find_last(run, s, by, &found));
        if (!found)
            break;
        const size_t n = (size_t)(found - s.bytes);
        CALM_TRY(calm_jinja_step_bytes(run, s.n - n));
        CALM_TRY(calm_jinja_append(run, parts.list, calm_jinja_text(found + by.n, s.n - n - by.n)));
        s.n = n;
    }
    CALM_TRY(calm_jinja_append(run, parts.list, calm_jinja_text(s.bytes, s.n)));
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t i = parts.list->n; i-- > 0;)
        CALM_TRY(calm_jinja_append(run, out->list, parts.list->of[i]));
    return CALM_OK;
}

/* Returns the text before the separator, the separator, and the text behind; without a match the whole text is at
 * one end. */
static calm_status partition(calm_jinja_run *run, const calm_jinja_value *a, bool last, calm_jinja_value *out)
{
    calm_jinja_string by, s = a[0].text;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &by));
    if (by.n == 0)
        return calm_jinja_fail(run, "partition: an empty separator");
    CALM_TRY(calm_jinja_step_bytes(run, s.n));
    const char *found = last ? NULL : memmem(s.bytes, s.n, by.bytes, by.n);
    if (last)
        CALM_TRY(find_last(run, s, by, &found));
    const size_t n = found ? (size_t)(found - s.bytes) : last ? 0 : s.n, behind = found ? n + by.n : n;
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_TUPLE, out));
    CALM_TRY(calm_jinja_append(run, out->list, calm_jinja_text(s.bytes, n)));
    CALM_TRY(calm_jinja_append(run, out->list, calm_jinja_text(by.bytes, found ? by.n : 0)));
    return calm_jinja_append(run, out->list, calm_jinja_text(s.bytes + behind, s.n - behind));
}

CALM_JINJA_BUILTIN(string_partition) { return partition(run, a, false, out); }
CALM_JINJA_BUILTIN(string_rpartition) { return partition(run, a, true, out); }

/* Returns whether the string begins (or ends) with the argument, or one of a tuple. */
static calm_status has_end(calm_jinja_run *run, const calm_jinja_value *a, bool first, calm_jinja_value *out)
{
    const calm_jinja_string s = a[0].text;
    const bool tuple = a[1].kind == CALM_JINJA_TUPLE;
    *out = calm_jinja_bool(false);
    for (size_t i = 0; i < (tuple ? a[1].list->n : 1) && !out->integer; i++) {
        calm_jinja_string end;
        CALM_TRY(calm_jinja_string_argument(run, tuple ? a[1].list->of[i] : a[1], "", &end));
        out->integer = end.n <= s.n && memcmp(first ? s.bytes : s.bytes + s.n - end.n, end.bytes, end.n) == 0;
    }
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_startswith) { return has_end(run, a, true, out); }
CALM_JINJA_BUILTIN(string_endswith) { return has_end(run, a, false, out); }

METHOD(string_removeprefix)
{
    calm_jinja_string end;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &end));
    CALM_TRY(has_end(run, a, true, out));
    const size_t n = out->integer ? end.n : 0;
    *out = calm_jinja_text(a[0].text.bytes + n, a[0].text.n - n);
    return CALM_OK;
}

METHOD(string_removesuffix)
{
    calm_jinja_string end;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &end));
    CALM_TRY(has_end(run, a, false, out));
    *out = calm_jinja_text(a[0].text.bytes, a[0].text.n - (out->integer ? end.n : 0));
    return CALM_OK;
}

METHOD(string_replace)
{
    calm_jinja_string old, by;
    int64_t count;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &old));
    CALM_TRY(calm_jinja_string_argument(run, a[2], "", &by));
    CALM_TRY(calm_jinja_int_argument(run, a[3], -1, &count));
    return calm_jinja_replace(run, a[0].text, old, by, count, out);
}

CALM_JINJA_BUILTIN(string_upper) { return calm_jinja_change_case(run, a[0].text, CALM_JINJA_UPPER, out); }
CALM_JINJA_BUILTIN(string_lower) { return calm_jinja_change_case(run, a[0].text, CALM_JINJA_LOWER, out); }
CALM_JINJA_BUILTIN(string_capitalize) { return calm_jinja_change_case(run, a[0].text, CALM_JINJA_CAPITALIZE, out); }

/* Implements str.title(): unlike in the filter, a word begins behind every character that is not a letter. */
METHOD(string_title)
{
    calm_jinja_buffer buffer = {0};
    const calm_jinja_string s = a[0].text;
    for (size_t i = 0; i < s.n; i++) {
        const unsigned char c = (unsigned char)s.bytes[i];
        if (c >= 128)
            return calm_jinja_refuse(run, "the method \"title\" of text that is not ASCII");
        const char changed = (char)(i && isalpha((unsigned char)s.bytes[i - 1]) ? tolower(c) : toupper(c));
        CALM_TRY(calm_jinja_put(run, &buffer, &changed, 1));
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

/* Returns the index of a part in characters; -1: not found. */
static calm_status find(calm_jinja_run *run, const calm_jinja_value *a, bool last, calm_jinja_value *out)
{
    const calm_jinja_string s = a[0].text;
    calm_jinja_string part;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &part));
    CALM_TRY(calm_jinja_step_bytes(run, s.n));
    const char *found = last || !part.n ? s.bytes : memmem(s.bytes, s.n, part.bytes, part.n);
    if (last)
        CALM_TRY(find_last(run, s, part, &found));
    *out = calm_jinja_int(found ? (int64_t)calm_utf8_count(s.bytes, (size_t)(found - s.bytes)) : -1);
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_find) { return find(run, a, false, out); }
CALM_JINJA_BUILTIN(string_rfind) { return find(run, a, true, out); }

METHOD(string_index)
{
    CALM_TRY(find(run, a, false, out));
    return out->integer < 0 ? calm_jinja_fail(run, "index: the part is not in the string") : CALM_OK;
}

METHOD(string_count)
{
    calm_jinja_string s = a[0].text, part;
    int64_t n = 0;
    CALM_TRY(calm_jinja_string_argument(run, a[1], "", &part));
    CALM_TRY(calm_jinja_step_bytes(run, s.n));
    for (const char *at; part.n && (at = memmem(s.bytes, s.n, part.bytes, part.n)); n++)
        s = (calm_jinja_string){at + part.n, s.n - (size_t)(at - s.bytes) - part.n};
    *out = calm_jinja_int(part.n ? n : (int64_t)calm_utf8_count(s.bytes, s.n) + 1);
    return CALM_OK;
}

METHOD(string_join)
{
    const calm_jinja_list *list;
    calm_jinja_buffer buffer = {0};
    CALM_TRY(calm_jinja_elements(run, a[1], &list));
    for (size_t i = 0; i < list->n; i++) {
        if (!calm_jinja_is_string(list->of[i]))
            return calm_jinja_fail(run, "join: expected strings, found a %s", calm_jinja_kind_name(list->of[i].kind));
        CALM_TRY(calm_jinja_put(run, &buffer, a[0].text.bytes, i ? a[0].text.n : 0));
        CALM_TRY(calm_jinja_put_string(run, &buffer, list->of[i].text));
    }
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_format) { return calm_jinja_format_braces(run, a[0].text, args, out); }

METHOD(string_splitlines)
{
    calm_jinja_string line;
    if (calm_jinja_truth(a[1]))
        return calm_jinja_refuse(run, "splitlines with ends of lines");
    CALM_TRY(calm_jinja_new_list(run, CALM_JINJA_LIST, out));
    for (size_t at = 0; calm_jinja_next_line(a[0].text, &at, &line);)
        CALM_TRY(calm_jinja_append(run, out->list, calm_jinja_text(line.bytes, line.n)));
    return CALM_OK;
}

/* Returns whether there are characters and all belong to an ASCII class. */
static calm_status all_are(calm_jinja_run *run, calm_jinja_string s, const char *name, int (*is)(int),
                           calm_jinja_value *out)
{
    *out = calm_jinja_bool(s.n > 0);
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.bytes[i] >= 128)
            return calm_jinja_refuse(run, "the method \"%s\" of text that is not ASCII", name);
        out->integer &= is((unsigned char)s.bytes[i]) != 0;
    }
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_isdigit) { return all_are(run, a[0].text, "isdigit", isdigit, out); }
CALM_JINJA_BUILTIN(string_isalpha) { return all_are(run, a[0].text, "isalpha", isalpha, out); }
CALM_JINJA_BUILTIN(string_isalnum) { return all_are(run, a[0].text, "isalnum", isalnum, out); }

METHOD(string_isspace)
{
    const calm_jinja_string none = {0};
    *out = calm_jinja_bool(a[0].text.n && calm_jinja_strip(a[0].text, none, true, false).n == 0);
    return CALM_OK;
}

/* Returns whether the string has letters, and all of one case. */
static calm_status one_case(calm_jinja_run *run, const calm_jinja_value *a, calm_jinja_case to, calm_jinja_value *out)
{
    calm_jinja_value same, other;
    bool equal, letters;
    CALM_TRY(calm_jinja_change_case(run, a[0].text, to, &same));
    CALM_TRY(calm_jinja_change_case(run, a[0].text, to == CALM_JINJA_UPPER ? CALM_JINJA_LOWER : CALM_JINJA_UPPER,
                                    &other));
    CALM_TRY(calm_jinja_equal(run, a[0], same, &equal));
    CALM_TRY(calm_jinja_equal(run, a[0], other, &letters));
    *out = calm_jinja_bool(equal && !letters);
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_isupper) { return one_case(run, a, CALM_JINJA_UPPER, out); }
CALM_JINJA_BUILTIN(string_islower) { return one_case(run, a, CALM_JINJA_LOWER, out); }

/* Pads to a width, on the left or on the right. */
static calm_status pad(calm_jinja_run *run, const calm_jinja_value *a, bool left, calm_jinja_value *out)
{
    calm_jinja_buffer buffer = {0};
    calm_jinja_string fill;
    int64_t width;
    size_t n;
    CALM_TRY(calm_jinja_int_argument(run, a[1], 0, &width));
    CALM_TRY(calm_jinja_string_argument(run, a[2], " ", &fill));
    CALM_TRY(calm_jinja_length(run, a[0], &n));
    if (!left)
        CALM_TRY(calm_jinja_put_string(run, &buffer, a[0].text));
    for (int64_t i = (int64_t)n; i < width; i++)
        CALM_TRY(calm_jinja_put_string(run, &buffer, fill));
    if (left)
        CALM_TRY(calm_jinja_put_string(run, &buffer, a[0].text));
    *out = calm_jinja_of_buffer(&buffer);
    return CALM_OK;
}

CALM_JINJA_BUILTIN(string_ljust) { return pad(run, a, false, out); }
CALM_JINJA_BUILTIN(string_rjust) { return pad(run, a, true, out); }

const calm_jinja_builtin calm_jinja_string_methods[] = {
    {"strip", "self chars?", string_strip}, {"lstrip", "self chars?", string_lstrip},
    {"rstrip", "self chars?", string_rstrip}, {"split", "self sep? maxsplit?", string_split},
    {"rsplit", "self sep? maxsplit?", string_rsplit}, {"partition", "self sep", string_partition},
    {"rpartition", "self sep", string_rpartition}, {"startswith", "self prefix", string_startswith},
    {"endswith", "self suffix", string_endswith}, {"removeprefix", "self prefix", string_removeprefix},
    {"removesuffix", "self suffix", string_removesuffix}, {"replace", "self old new count?", string_replace},
    {"upper", "self", string_upper}, {"lower", "self", string_lower}, {"capitalize", "self", string_capitalize},
    {"title", "self", string_title}, {"find", "self sub", string_find}, {"rfind", "self sub", string_rfind},
    {"index", "self sub", string_index}, {"count", "self sub", string_count}, {"join", "self iterable", string_join},
    {"format", "self *", string_format}, {"splitlines", "self keepends?", string_splitlines},
    {"isdigit", "self", string_isdigit}, {"isalpha", "self", string_isalpha}, {"isalnum", "self", string_isalnum},
    {"isspace", "self", string_isspace}, {"isupper", "self", string_isupper}, {"islower", "self", string_islower},
    {"ljust", "self width fillchar?", string_ljust}, {"rjust", "self width fillchar?", string_rjust},
    {"casefold", NULL, NULL}, {"center", NULL, NULL}, {"encode", NULL, NULL}, {"expandtabs", NULL, NULL},
    {"format_map", NULL, NULL}, {"isascii", NULL, NULL}, {"isdecimal", NULL, NULL}, {"isidentifier", NULL, NULL},
    {"isnumeric", NULL, NULL}, {"isprintable", NULL, NULL}, {"istitle", NULL, NULL}, {"maketrans", NULL, NULL},
    {"rindex", NULL, NULL}, {"swapcase", NULL, NULL}, {"translate", NULL, NULL}, {"zfill", NULL, NULL},
    {0},
};
