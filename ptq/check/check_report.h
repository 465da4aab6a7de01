/* Findings of the check: which rules apply to the requested engine, and how a finding is added to the report. */
#pragma once

#include "ptq/check/check.h"
#include "ptq/model/qformat.h"

/* CALM_CHECK_RULE_SHARD_HEADER, ... in the order of rules.def. */
typedef enum calm_check_rule {
#define CALM_CHECK_RULE(id, name, ...) CALM_CHECK_RULE_##name,
#include "ptq/check/rules.def"
#undef CALM_CHECK_RULE
    CALM_N_CHECK_RULES
} calm_check_rule;

/* A check in progress (check_state.h). */
typedef struct calm_checking calm_checking;

/* Add a finding about `where` (module, tensor, file, key) if the rule applies.  Both texts are copied to ctx->out, the
 * formatted one cut at 1023 bytes, `where` at 512.  After 20000 findings only the counts grow.  CALM_ENOMEM. */
calm_status calm_check_say(calm_checking *c, calm_check_rule rule, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Make a finding of the failure in the context, and clear the failure.  CALM_ENOMEM, CALM_EIO and CALM_EINTERRUPTED are
 * no fault of the checkpoint: they stay, and are returned. */
calm_status calm_check_say_failure(calm_checking *c, calm_check_rule rule, const char *where);

/* ---- words of findings ---- */

/* Are the two schemes the same format? */
bool calm_check_same_scheme(const calm_qformat_scheme *a, const calm_qformat_scheme *b);

/* "4 bits, group 128, symmetric", in `text`. */
const char *calm_check_scheme_text(const calm_qformat_scheme *scheme, char text[96]);

/* Is `word` one of `list` [n]? */
bool calm_check_listed(const char *word, const char *const *list, size_t n);
#define CALM_CHECK_LISTED(word, list) calm_check_listed(word, list, sizeof(list) / sizeof *(list))
