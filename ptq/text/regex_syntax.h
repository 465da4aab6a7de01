/* Patterns of Oniguruma, rewritten for PCRE2 (regex.h lists the differences). */
#pragma once

#include "ptq/base/text.h"

/* Append the pattern for PCRE2 that matches as `pattern` [n] does in Oniguruma; false when PCRE2 has no equivalent. */
bool calm_regex_translate(const char *pattern, size_t n, calm_text *out);
