/* Translation of Oniguruma patterns to PCRE2.
 *
 * Oniguruma's tables are those of Unicode 16, PCRE2's are as old as the system's package (Unicode 14 in Debian 12).
 * The translation therefore adds the newer characters to each category. */
#include "ptq/text/regex_syntax.h"

#include <string.h>

/* ---- characters since Unicode 15, by category ---- */

#define LATE_LU "\\x{1C89}\\x{A7CB}-\\x{A7CC}\\x{A7DA}\\x{A7DC}\\x{10D50}-\\x{10D65}"
#define LATE_LL "\\x{1C8A}\\x{A7CD}\\x{A7DB}\\x{10D70}-\\x{10D85}\\x{1DF25}-\\x{1DF2A}"
#define LATE_LM \
    "\\x{10D4E}\\x{10D6F}\\x{16D40}-\\x{16D42}\\x{16D6B}-\\x{16D6C}\\x{1E030}-\\x{1E06D}\\x{1E4EB}"
#define LATE_LO \
    "\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D4D}\\x{10D4F}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}" \
    "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}" \
    "\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}" \
    "\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D43}-\\x{16D6A}\\x{18CFF}\\x{1B132}\\x{1B155}" \
    "\\x{1E4D0}-\\x{1E4EA}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define LATE_MN \
    "\\x{897}\\x{ECE}\\x{10D69}-\\x{10D6D}\\x{10EFC}-\\x{10EFF}\\x{11241}\\x{113BB}-\\x{113C0}\\x{113CE}" \
    "\\x{113D0}\\x{113D2}\\x{113E1}-\\x{113E2}\\x{11F00}-\\x{11F01}\\x{11F36}-\\x{11F3A}\\x{11F40}\\x{11F42}" \
    "\\x{11F5A}\\x{13440}\\x{13447}-\\x{13455}\\x{1611E}-\\x{16129}\\x{1612D}-\\x{1612F}\\x{1E08F}" \
    "\\x{1E4EC}-\\x{1E4EF}\\x{1E5EE}-\\x{1E5EF}"
#define LATE_MC \
    "\\x{CF3}\\x{113B8}-\\x{113BA}\\x{113C2}\\x{113C5}\\x{113C7}-\\x{113CA}\\x{113CC}-\\x{113CD}\\x{113CF}" \
    "\\x{1171E}\\x{11F03}\\x{11F34}-\\x{11F35}\\x{11F3E}-\\x{11F3F}\\x{11F41}\\x{1612A}-\\x{1612C}"
#define LATE_ND \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}" \
    "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"
#define LATE_NO "\\x{1D2C0}-\\x{1D2D3}"
#define LATE_PD "\\x{10D6E}"
#define LATE_PO \
    "\\x{1B4E}-\\x{1B4F}\\x{1B7F}\\x{113D4}-\\x{113D5}\\x{113D7}-\\x{113D8}\\x{11B00}-\\x{11B09}\\x{11BE1}" \
    "\\x{11F43}-\\x{11F4F}\\x{16D6D}-\\x{16D6F}\\x{1E5FF}"
#define LATE_SM "\\x{10D8E}-\\x{10D8F}"
#define LATE_SO \
    "\\x{2427}-\\x{2429}\\x{2FFC}-\\x{2FFF}\\x{31E4}-\\x{31E5}\\x{31EF}\\x{1CC00}-\\x{1CCEF}\\x{1CD00}-\\x{1CEB3}" \
    "\\x{1F6DC}\\x{1F774}-\\x{1F776}\\x{1F77B}-\\x{1F77F}\\x{1F7D9}\\x{1F8B2}-\\x{1F8BB}\\x{1F8C0}-\\x{1F8C1}" \
    "\\x{1FA75}-\\x{1FA77}\\x{1FA87}-\\x{1FA89}\\x{1FA8F}\\x{1FAAD}-\\x{1FAAF}\\x{1FABB}-\\x{1FABF}\\x{1FAC6}" \
    "\\x{1FACE}-\\x{1FACF}\\x{1FADA}-\\x{1FADC}\\x{1FADF}\\x{1FAE8}-\\x{1FAE9}\\x{1FAF7}-\\x{1FAF8}" \
    "\\x{1FBCB}-\\x{1FBEF}"
#define LATE_CF "\\x{13439}-\\x{1343F}"
#define LATE_HAN "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"

#define LATE_L LATE_LU LATE_LL LATE_LM LATE_LO
#define LATE_M LATE_MN LATE_MC
#define LATE_N LATE_ND LATE_NO
#define LATE_P LATE_PD LATE_PO
#define LATE_S LATE_SM LATE_SO

/* General categories (and one script) that need newer characters, by their names in patterns. */
static const struct category {
    const char *name, *late;
} categories[] = {
    {"L", LATE_L},   {"Letter", LATE_L}, {"Lu", LATE_LU}, {"Ll", LATE_LL}, {"Lm", LATE_LM},
    {"Lo", LATE_LO}, {"M", LATE_M},      {"Mark", LATE_M}, {"Mn", LATE_MN}, {"Mc", LATE_MC},
    {"N", LATE_N},   {"Number", LATE_N}, {"Nd", LATE_ND}, {"No", LATE_NO}, {"P", LATE_P},
    {"Pd", LATE_PD}, {"Po", LATE_PO},    {"Punctuation", LATE_P},          {"S", LATE_S},
    {"Symbol", LATE_S}, {"Sm", LATE_SM}, {"So", LATE_SO}, {"Cf", LATE_CF}, {"Han", LATE_HAN},
};

/* ---- escapes ---- */

#define SPACES                                                                                                         \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NOT_SPACES                                                                                             \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"                \
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
/* Circled and squared letters are alphabetic symbols; the superscript digits and fractions of Latin-1 are in a
 * separate table of Oniguruma. */
#define WORDS                                                                                                     \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"                                        \
    "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}" LATE_L LATE_M LATE_ND
#define BEFORE "(?<=[" WORDS "])"
#define NOT_BEFORE "(?<![" WORDS "])"
#define BEHIND "(?=[" WORDS "])"
#define NOT_BEHIND "(?![" WORDS "])"

/* Replacements of escapes outside and inside a set; NULL: the escape is refused there. */
static const struct rewrite {
    char letter;
    const char *outside, *inside;
} rewrites[] = {
    {'s', "[" SPACES "]", SPACES},
    {'S', "[^" SPACES "]", NOT_SPACES},
    {'w', "[" WORDS "]", WORDS},
    {'W', "[^" WORDS "]", NULL},
    {'d', "[\\p{Nd}" LATE_ND "]", "\\p{Nd}" LATE_ND},
    {'D', "[^\\p{Nd}" LATE_ND "]", "\\P{Nd}"},
    {'b', "(?:" BEFORE NOT_BEHIND "|" NOT_BEFORE BEHIND ")", "\\b"},
    {'B', "(?:" BEFORE BEHIND "|" NOT_BEFORE NOT_BEHIND ")", NULL},
    {'h', NULL, NULL},
    {'H', NULL, NULL},
};

/* POSIX classes, which occur inside sets; PCRE2 has no tables for the others. */
static const struct rewrite_class {
    const char *name, *inside;
} classes[] = {
    {"[:space:]", SPACES},
    {"[:digit:]", "\\p{Nd}" LATE_ND},
    {"[:word:]", WORDS},
    {"[:punct:]", "\\p{P}\\p{S}" LATE_P LATE_S},
};

static void put(calm_text *out, const char *text)
{
    calm_text_append(out, text, strlen(text));
}

/* Translates the category at pattern[at] ("\\p{Lu}", "\\P{Lu}" or "\\p{^Lu}"); returns the offset of its end, or 0
 * if it needs no newer characters. */
static size_t copy_category(const char *pattern, size_t n, size_t at, bool in_set, calm_text *out)
{
    if (at + 2 >= n || pattern[at + 2] != '{')
        return 0;
    const char *name = pattern + at + 3, *close = memchr(name, '}', n - at - 3);
    bool negative = pattern[at + 1] == 'P';
    if (!close)
        return 0;
    if (*name == '^') {
        negative = !negative;
        name++;
    }
    const size_t length = (size_t)(close - name);
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        const struct category *category = &categories[i];
        if (strlen(category->name) != length || memcmp(category->name, name, length) != 0)
            continue;
        /* A long name begins with its short one.  In a set, a negated category cannot exclude the newer characters,
         * so it is copied unchanged. */
        const int letters = strcmp(category->name, "Han") == 0 ? 3 : length == 2 ? 2 : 1;
        const char *brackets = in_set ? "" : negative ? "[^" : "[";
        calm_text_printf(out, "%s\\%c{%.*s}%s%s", brackets, in_set && negative ? 'P' : 'p', letters, category->name,
                         in_set && negative ? "" : category->late, in_set ? "" : "]");
        return (size_t)(close - pattern) + 1;
    }
    return 0;
}

/* Copies the escape at pattern[at]; returns the offset of its end, or 0 if it is refused. */
static size_t copy_escape(const char *pattern, size_t n, size_t at, bool in_set, calm_text *out)
{
    if (at + 1 == n) {
        put(out, "\\");
        return n;
    }
    const char letter = pattern[at + 1];
    for (size_t i = 0; i < sizeof rewrites / sizeof *rewrites; i++) {
        if (letter != rewrites[i].letter)
            continue;
        const char *text = in_set ? rewrites[i].inside : rewrites[i].outside;
        if (!text)
            return 0;
        put(out, text);
        return at + 2;
    }
    size_t end = letter == 'p' || letter == 'P' ? copy_category(pattern, n, at, in_set, out) : 0;
    if (end)
        return end;
    end = at + 2;
    if (letter == 'u' && n - end >= 4) {
        calm_text_printf(out, "\\x{%.4s}", pattern + end);
        return end + 4;
    }
    if (letter == 'Q') {
        const char *close = memmem(pattern + end, n - end, "\\E", 2);
        end = close ? (size_t)(close - pattern) + 2 : n;
    } else if ((letter == 'p' || letter == 'P' || letter == 'x') && end < n && pattern[end] == '{') {
        const char *close = memchr(pattern + end, '}', n - end);
        end = close ? (size_t)(close - pattern) + 1 : n;
    }
    calm_text_append(out, pattern + at, end - at);
    return end;
}

/* ---- sets ---- */

/* Translates what a '[' inside a set begins, a POSIX class or a nested set, whose members are added to the outer
 * set.  Returns the offset at which copying continues, or 0 if it is refused. */
static size_t copy_bracket(const char *pattern, size_t n, size_t at, size_t *depth, calm_text *out)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const size_t length = strlen(classes[i].name);
        if (n - at >= length && memcmp(pattern + at, classes[i].name, length) == 0) {
            put(out, classes[i].inside);
            return at + length;
        }
    }
    if (at + 1 >= n || strchr(":^]", pattern[at + 1]))
        return 0;
    ++*depth;
    return at + 1;
}

/* Copies the set that begins at pattern[at]; returns the offset of its end, or 0 if a part of it is refused. */
static size_t copy_set(const char *pattern, size_t n, size_t at, calm_text *out)
{
    size_t first = at + 1 < n && pattern[at + 1] == '^' ? at + 2 : at + 1, depth = 0;
    calm_text_append(out, pattern + at, first - at);
    for (at = first; at < n;) {
        if (pattern[at] == '\\') {
            at = copy_escape(pattern, n, at, true, out);
        } else if (pattern[at] == '[') {
            at = copy_bracket(pattern, n, at, &depth, out);
        } else if (pattern[at] == '&' && at + 1 < n && pattern[at + 1] == '&') {
            at = 0;
        } else if (pattern[at] == ']' && at > first && depth > 0) {
            depth--;
            at++;
        } else {
            calm_text_append(out, pattern + at, 1);
            if (pattern[at++] == ']' && at - 1 > first)
                return at;
        }
        if (at == 0)
            return 0;
    }
    return n;
}

/* ---- patterns ---- */

/* Deepest nesting of groups that is tracked; deeper groups are copied. */
#define DEPTH_MAX 64

/* Operand of the next repetition: offsets in `out` of the last atom and of the open groups. */
typedef struct atoms {
    size_t last, open[DEPTH_MAX], depth;
} atoms;

/* Returns the offset of the end of the interval, as "{1,3}", at pattern[at], or `at` if there is no interval. */
static size_t interval_end(const char *pattern, size_t n, size_t at)
{
    size_t end = at + 1, digits = 0;
    for (; end < n && (pattern[end] == ',' || (pattern[end] >= '0' && pattern[end] <= '9')); end++)
        digits += pattern[end] != ',';
    return digits && end < n && pattern[end] == '}' ? end + 1 : at;
}

/* Copies an interval.  Oniguruma reads a + behind it as a second repetition, PCRE2 as possessive: such an operand
 * and its interval are put into a group. */
static size_t copy_interval(const char *pattern, size_t n, size_t at, const atoms *seen, calm_text *out)
{
    const size_t end = interval_end(pattern, n, at);
    if (end == at) {
        put(out, "{");
        return at + 1;
    }
    if (end == n || pattern[end] != '+') {
        calm_text_append(out, pattern + at, end - at);
        return end;
    }
    const size_t tail = out->length - seen->last;
    put(out, "(?:");
    if (!out->failed) {
        memmove(out->data + seen->last + 3, out->data + seen->last, tail);
        memcpy(out->data + seen->last, "(?:", 3);
    }
    calm_text_append(out, pattern + at, end - at);
    put(out, ")+");
    return end + 1;
}

/* Copies a character outside of sets and updates the offsets of atoms and groups. */
static void copy_character(char c, atoms *seen, calm_text *out)
{
    if (c == '(') {
        if (seen->depth < DEPTH_MAX)
            seen->open[seen->depth] = out->length;
        seen->depth++;
    } else if (c == ')' && seen->depth > 0) {
        seen->depth--;
        if (seen->depth < DEPTH_MAX)
            seen->last = seen->open[seen->depth];
    } else if (!strchr("*+?|^$", c) && ((unsigned char)c & 0xC0) != 0x80) {
        seen->last = out->length;
    }
    calm_text_append(out, &c, 1);
}

bool calm_regex_translate(const char *pattern, size_t n, calm_text *out)
{
    atoms seen = {0};
    for (size_t at = 0; at < n;) {
        const size_t begin = out->length;
        if (pattern[at] == '\\') {
            at = copy_escape(pattern, n, at, false, out);
            seen.last = begin;
        } else if (pattern[at] == '[') {
            at = copy_set(pattern, n, at, out);
            seen.last = begin;
        } else if (pattern[at] == '{') {
            at = copy_interval(pattern, n, at, &seen, out);
        } else {
            copy_character(pattern[at++], &seen, out);
        }
        if (at == 0)
            return false;
    }
    return true;
}
