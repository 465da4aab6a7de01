/* Translation of Oniguruma patterns to PCRE2 (regex.h lists the differences). */
#pragma once

#include "ptq/base/text.h"

/* Appends the PCRE2 pattern that is equivalent to `pattern` [n] in Oniguruma; false: there is none. */
bool calm_regex_translate(const char *pattern, size_t n, calm_text *out);
