/* Words that name modules, as `ignore` of llm-compressor has them: a module's full name, or "re:" and a pattern. */
#pragma once

#include "ptq/base/option.h"

/* Which of `names` [n] does the word name?  A pattern matches at a name's beginning (Python's re.match).  Sets
 * matched [n] true at those and leaves the others; *any: there was one.
 * CALM_EARG: the pattern is none; the message has the word. */
calm_status calm_model_module_word(calm_ctx *ctx, const char *word, const char *const *names, size_t n, bool *matched,
                             bool *any);
