/* Regular expressions through PCRE2, with its just-in-time compiler if the system allows it. */
#include "ptq/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/text.h"
#include "ptq/text/regex_syntax.h"
#include "ptq/text/unicode.h"

/* Bytes of the longest pattern: 60 times as many as any known tokenizer has; compiled within milliseconds. */
#define PATTERN_MAX 65536

/* PCRE2's default limit of backtracking steps, about a tenth of a second.  A search adds one step per byte of its
 * text: a greedy match over a long text gives back its characters one by one without being exponential. */
#define BASE_MATCH_LIMIT 10000000

/* Maximum bytes of the stack on which the compiled code backtracks; a search starts with 32 KiB. */
#define JIT_STACK_MAX ((size_t)16 * 1024 * 1024)

struct calm_regex {
    pcre2_code *code;
    char *where, *pattern;    /* for messages; the pattern as the caller wrote it */
    uint32_t steps;           /* step limit of a search; 0: BASE_MATCH_LIMIT           */
};

struct calm_matcher {
    const calm_regex *regex;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;    /* NULL until a search needs more than the 32 KiB on the machine stack */
};

/* ---- compiling ---- */

static calm_status compile(calm_ctx *ctx, calm_regex *regex, const calm_text *translated)
{
    int error;
    PCRE2_SIZE error_offset;
    const char *text = translated->data ? translated->data : "";
    regex->code = pcre2_compile((PCRE2_SPTR)text, translated->length, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error,
                                &error_offset, NULL);
    if (!regex->code) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(error, reason, sizeof reason);
        return calm_fail(ctx, CALM_EFORMAT, "%s: pattern \"%.300s\": %s", regex->where, regex->pattern,
                         (const char *)reason);
    }
    /* If the system forbids writable code, pcre2_jit_compile fails and the interpreter finds the same matches. */
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    return CALM_OK;
}

calm_status calm_regex_new(calm_ctx *ctx, const char *where, const char *pattern, size_t n, calm_regex **out)
{
    *out = NULL;
    if (n > PATTERN_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: pattern of %zu bytes, expected at most %d", where, n, PATTERN_MAX);
    calm_regex *regex = calloc(1, sizeof *regex);
    CALM_SCOPED_TEXT(translated);
    if (regex) {
        regex->where = strdup(where);
        regex->pattern = strndup(pattern, n);
    }
    if (!regex || !regex->where || !regex->pattern)
        calm_fail(ctx, CALM_ENOMEM, "%s: out of memory for a pattern", where);
    else if (!calm_regex_translate(pattern, n, &translated))
        calm_fail(ctx, CALM_EUNSUPPORTED,
                  "%s: pattern \"%.300s\": not supported: \\h, \\H, \\W in a set, [^ ] inside a set, &&, [:alpha:] and "
                  "other classes of letters", where, regex->pattern);
    else if (calm_text_check(ctx, &translated) == CALM_OK)
        compile(ctx, regex, &translated);
    if (regex && regex->code) {
        *out = regex;
        return CALM_OK;
    }
    calm_regex_free(regex);
    return ctx->status;
}

void calm_regex_free(calm_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex->where);
    free(regex->pattern);
    free(regex);
}

void calm_regex_limit(calm_regex *regex, uint32_t steps)
{
    regex->steps = steps;
}

/* ---- searching ---- */

calm_status calm_matcher_new(calm_ctx *ctx, const calm_regex *regex, calm_matcher **out)
{
    calm_matcher *matcher = calloc(1, sizeof *matcher);
    if (matcher) {
        matcher->regex = regex;
        matcher->match = pcre2_match_data_create(1, NULL);
        matcher->limits = pcre2_match_context_create(NULL);
    }
    *out = matcher;
    if (matcher && matcher->match && matcher->limits)
        return CALM_OK;
    calm_matcher_free(matcher);
    *out = NULL;
    return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory for a search", regex->where);
}

void calm_matcher_free(calm_matcher *matcher)
{
    if (!matcher)
        return;
    pcre2_match_data_free(matcher->match);
    pcre2_match_context_free(matcher->limits);
    pcre2_jit_stack_free(matcher->stack);
    free(matcher);
}

/* Returns PCRE2's result of one search; repeats the search on a larger stack if the first stack overflows. */
static int search(calm_matcher *matcher, const char *text, size_t n, size_t offset, uint32_t options)
{
    const pcre2_code *code = matcher->regex->code;
    const size_t base = matcher->regex->steps ? matcher->regex->steps : BASE_MATCH_LIMIT;
    const size_t limit = n < UINT32_MAX - base ? base + n : UINT32_MAX;
    pcre2_set_match_limit(matcher->limits, (uint32_t)limit);
    int result = pcre2_match(code, (PCRE2_SPTR)text, n, offset, options, matcher->match, matcher->limits);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT || matcher->stack)
        return result;
    matcher->stack = pcre2_jit_stack_create(65536, JIT_STACK_MAX, NULL);
    if (!matcher->stack)
        return PCRE2_ERROR_NOMEMORY;
    pcre2_jit_stack_assign(matcher->limits, NULL, matcher->stack);
    return pcre2_match(code, (PCRE2_SPTR)text, n, offset, options, matcher->match, matcher->limits);
}

static calm_status report(calm_ctx *ctx, const calm_matcher *matcher, int result)
{
    PCRE2_UCHAR reason[128] = "the match ends before it begins";
    if (result < 0)
        pcre2_get_error_message(result, reason, sizeof reason);
    return calm_fail(ctx, result == PCRE2_ERROR_NOMEMORY ? CALM_ENOMEM : CALM_EFORMAT,
                     "%s: pattern \"%.300s\": search given up: %s", matcher->regex->where, matcher->regex->pattern,
                     (const char *)reason);
}

calm_status calm_matcher_find(calm_ctx *ctx, calm_matcher *matcher, const char *text, size_t n, size_t offset,
                              bool *found, size_t *begin, size_t *end)
{
    int result = search(matcher, text, n, offset, PCRE2_NO_UTF_CHECK);
    *found = false;
    if (result == PCRE2_ERROR_NOMATCH)
        return CALM_OK;
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(matcher->match);
    /* With \K inside a look-ahead, a match can begin behind its end; such a match has no text. */
    if (result < 0 || span[0] > span[1] || span[0] < offset)
        return report(ctx, matcher, result);
    *found = true;
    *begin = span[0];
    *end = span[1];
    return CALM_OK;
}

calm_status calm_regex_matches_prefix(calm_ctx *ctx, const calm_regex *regex, const char *name, bool *out)
{
    CALM_SCOPED_MATCHER(matcher);
    size_t n = strlen(name), invalid = calm_utf8_invalid_at(name, n);
    *out = false;
    if (invalid != n)
        return calm_fail(ctx, CALM_EARG, "name \"%s\": not UTF-8 at byte %zu", name, invalid);
    CALM_TRY(calm_matcher_new(ctx, regex, &matcher));
    int result = search(matcher, name, n, 0, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        return report(ctx, matcher, result);
    *out = result >= 0;
    return CALM_OK;
}
