/* Regular expressions of tokenizers and module patterns; the only user of PCRE2.
 *
 * Patterns are written for Oniguruma (tokenizer.json) or Python (`re:` targets) and match characters, not bytes.
 * Constructs that PCRE2 interprets differently are rewritten or refused:
 *
 *   \s \S   White_Space property (PCRE2 alone would add U+180E)
 *   \w \W   letters, marks, decimal and letter numbers, connectors (PCRE2 alone would omit marks); \b \B likewise
 *   \p{L}   and other categories: with the characters since Unicode 15 that the system's PCRE2 may not know
 *   ^ $     at every line
 *   {1,3}+  repeats the quantified expression (PCRE2 alone would make it possessive)
 *   \uHHHH  a character
 *   [a[bc]] a set inside a set
 *   \h \H, a complement inside a set, && in a set, [:alpha:] and the like: CALM_EUNSUPPORTED
 *
 * A calm_regex is compiled once and used by any number of threads, each with its own matcher.  Every search has a
 * limit on backtracking, so an exponential pattern causes an error and not a hang. */
#pragma once

#include <stdint.h>

#include "ptq/base/scope.h"

typedef struct calm_regex calm_regex;
typedef struct calm_matcher calm_matcher;    /* workspace of one thread for one regex */

/* Compiles `pattern` [n] (well-formed UTF-8; borrowed only during the call).
 *
 *   where  appears in error messages, also of later searches ("tokenizer.json: pre_tokenizer.pattern")
 *   out    freed with calm_regex_free; NULL on failure
 *
 * CALM_EFORMAT (not a pattern, too long), CALM_EUNSUPPORTED, CALM_ENOMEM. */
calm_status calm_regex_new(calm_ctx *ctx, const char *where, const char *pattern, size_t n, calm_regex **out);
void calm_regex_free(calm_regex *regex);

/* Step limit of a pattern over module names: dozens of alternatives of block numbers need a few hundred steps. */
#define CALM_NAME_STEPS 2000

/* Limits searches to about `steps` steps instead of millions: for untrusted patterns that are matched against many
 * names. */
void calm_regex_limit(calm_regex *regex, uint32_t steps);

/* Creates a matcher, which borrows the regex and is freed before it.  CALM_ENOMEM. */
calm_status calm_matcher_new(calm_ctx *ctx, const calm_regex *regex, calm_matcher **out);
void calm_matcher_free(calm_matcher *matcher);

/* Declare `calm_regex *name = NULL`, or a matcher, which is freed at the end of its scope. */
#define CALM_SCOPED_REGEX(name) CALM_SCOPED(calm_regex, calm_regex_release) *name = NULL
static inline void calm_regex_release(calm_regex **regex)
{
    calm_regex_free(*regex);
}
#define CALM_SCOPED_MATCHER(name) CALM_SCOPED(calm_matcher, calm_matcher_release) *name = NULL
static inline void calm_matcher_release(calm_matcher **matcher)
{
    calm_matcher_free(*matcher);
}

/* Finds the leftmost match in `text` [n] that begins at or after byte `offset`; look-behind sees the text before
 * it.  `text` must be well-formed UTF-8 and `offset` the start of a character or n.
 *
 *   begin, end  range of the match in bytes; unchanged when *found is false
 *
 * CALM_EFORMAT, naming the pattern: the search exceeds its limits. */
calm_status calm_matcher_find(calm_ctx *ctx, calm_matcher *matcher, const char *text, size_t n, size_t offset,
                              bool *found, size_t *begin, size_t *end);

/* Returns whether the pattern matches at the beginning of `name` (Python's re.match).  For few and short names: it
 * creates a matcher.  Fails as calm_matcher_find does, and with CALM_EARG when `name` is not UTF-8. */
calm_status calm_regex_matches_prefix(calm_ctx *ctx, const calm_regex *regex, const char *name, bool *out);
