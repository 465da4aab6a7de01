/* Words that name modules, as in `ignore` of llm-compressor: a module's full name, or "re:" and a pattern. */
#pragma once

#include "ptq/base/option.h"

/* Sets matched [n] to true for those of `names` [n] that the word names, and does not change the others; *any: there
 * was one.  A pattern must match at the beginning of a name (Python's re.match).
 * CALM_EARG: an invalid pattern; the message has the word. */
calm_status calm_model_module_word(calm_ctx *ctx, const char *word, const char *const *names, size_t n, bool *matched,
                             bool *any);
