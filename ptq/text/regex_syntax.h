/* Patterns of Oniguruma, as PCRE2 must read them (regex.h says what differs). */
#ifndef CALM_TEXT_REGEX_SYNTAX_H
#define CALM_TEXT_REGEX_SYNTAX_H

#include "ptq/base/text.h"

/* Append what PCRE2 must compile for `pattern` [n]; false when it holds something that has no equal there. */
bool calm_regex_translate(const char *pattern, size_t n, calm_text *out);

#endif
