/* Findings of the check: adds a finding to the report if its rule applies to the requested engine. */
#pragma once

#include "ptq/check/check.h"
#include "ptq/weights/qformat.h"

/* The rules in the order of rules.def: CALM_CHECK_RULE_SHARD_HEADER, ... */
typedef enum calm_check_rule {
#define CALM_CHECK_RULE(id, name, ...) CALM_CHECK_RULE_##name,
#include "ptq/check/rules.def"
#undef CALM_CHECK_RULE
    CALM_N_CHECK_RULES
} calm_check_rule;

/* A check in progress (check_state.h). */
typedef struct calm_checking calm_checking;

/* Adds a finding about `where` (module, tensor, file, key) if the rule applies.  Copies both texts to ctx->out: the
 * formatted text up to 1023 bytes, `where` up to 512 bytes.  After 20000 findings only counts grow.  CALM_ENOMEM. */
calm_status calm_check_add(calm_checking *c, calm_check_rule rule, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Turns the failure in the context into a finding, and clears the failure.  CALM_ENOMEM, CALM_EIO and
 * CALM_EINTERRUPTED are no fault of the checkpoint: they are returned. */
calm_status calm_check_add_failure(calm_checking *c, calm_check_rule rule, const char *where);

/* ---- texts of findings ---- */

/* Returns true if both schemes give the same stored format. */
bool calm_check_same_scheme(const calm_qformat_scheme *a, const calm_qformat_scheme *b);

/* Writes "4 bits, group 128, symmetric" to `text` and returns it. */
const char *calm_check_scheme_text(const calm_qformat_scheme *scheme, char text[96]);

/* Returns true if `word` is in `list` [n]. */
bool calm_check_listed(const char *word, const char *const *list, size_t n);
#define CALM_CHECK_LISTED(word, list) calm_check_listed(word, list, sizeof(list) / sizeof *(list))
