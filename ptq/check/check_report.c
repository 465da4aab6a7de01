/* Check: decides which rules apply, and adds findings to the report. */
#include "ptq/check/check_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/check/check_state.h"

#define MOST_FINDINGS ((size_t)20000)    /* stored per checkpoint; further ones are only counted */

/* ---- findings ---- */

/* Returns true if the rule reports something as missing. */
static bool is_absence(calm_check_rule rule)
{
    static const calm_check_rule list[] = {
        CALM_CHECK_RULE_MODEL_MISSING,  CALM_CHECK_RULE_PART_MISSING,   CALM_CHECK_RULE_TARGET_NOTHING,
        CALM_CHECK_RULE_IGNORE_NOTHING, CALM_CHECK_RULE_TARGETED_FLOAT, CALM_CHECK_RULE_DYNAMIC_NOTHING,
        CALM_CHECK_RULE_SHAPE_MISSING,  CALM_CHECK_RULE_MLX_NO_SCALES,  CALM_CHECK_RULE_ENTRY_MISSING,
        CALM_CHECK_RULE_FLOAT_MODEL};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == rule)
            return true;
    return false;
}

/* Returns true if the rule applies: not if it is about other engines than the requested one, and not if it reports
 * something as missing while parts of the checkpoint could not be read. */
static bool applies(const calm_checking *c, calm_check_rule rule)
{
    size_t n;
    if (c->partial && is_absence(rule))
        return false;
    const calm_check_rule_info *at = &calm_check_rules(&n)[rule];
    return c->asked == CALM_CHECK_ANY ? !at->asked : (at->engines & 1u << c->asked) != 0;
}

static calm_status add_finding(calm_checking *c, const calm_finding *finding)
{
    calm_check_report *report = c->report;
    report->n_severity[finding->rule->severity]++;
    if (report->n == MOST_FINDINGS)
        return CALM_OK;
    CALM_TRY(CALM_GROW(c->ctx, c->ctx->out, report->findings, report->n, &c->capacity,
                       calm_size_max(report->n + 1, 64)));
    report->findings[report->n++] = *finding;
    return CALM_OK;
}

calm_status calm_check_add(calm_checking *c, calm_check_rule rule, const char *where, const char *format, ...)
{
    size_t n;
    char text[1024], *copy, *place;
    va_list list;
    if (!applies(c, rule))
        return CALM_OK;
    if (c->report->n == MOST_FINDINGS)    /* only counted, because its texts would stay in memory */
        return add_finding(c, &(calm_finding){.rule = &calm_check_rules(&n)[rule]});
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    CALM_TRY(calm_strf(c->ctx, c->ctx->out, &copy, "%s", text));
    CALM_TRY(calm_strf(c->ctx, c->ctx->out, &place, "%.512s", where));
    return add_finding(c, &(calm_finding){&calm_check_rules(&n)[rule], place, copy});
}

calm_status calm_check_add_failure(calm_checking *c, calm_check_rule rule, const char *where)
{
    char text[CALM_MESSAGE_MAX];
    if (c->ctx->status == CALM_ENOMEM || c->ctx->status == CALM_EIO || c->ctx->status == CALM_EINTERRUPTED)
        return c->ctx->status;
    memcpy(text, c->ctx->message, sizeof text);
    calm_ctx_clear_failure(c->ctx);
    return calm_check_add(c, rule, where, "%s", text);
}

/* ---- texts of findings ---- */

bool calm_check_same_scheme(const calm_qformat_scheme *a, const calm_qformat_scheme *b)
{
    return a->bits == b->bits && a->group == b->group && a->symmetric == b->symmetric && a->act_bits == b->act_bits &&
           a->act_asymmetric == b->act_asymmetric && a->act_rule == b->act_rule && a->layout == b->layout &&
           a->family == b->family;
}

const char *calm_check_scheme_text(const calm_qformat_scheme *scheme, char text[96])
{
    if (scheme->family) {
        snprintf(text, 96, "%s%s%s", calm_scheme_family(&(calm_scheme){.family = scheme->family})->name,
                 scheme->act_bits ? "" : "a16", scheme->act_rule == CALM_ACT_RULE_FP8_STATIC ? "_static" : "");
        return text;
    }
    int used = snprintf(text, 96, "%d bits, ", scheme->bits);
    used += scheme->group ? snprintf(text + used, 96 - (size_t)used, "group %zu", scheme->group)
                          : snprintf(text + used, 96 - (size_t)used, "per channel");
    used += snprintf(text + used, 96 - (size_t)used, ", %s", scheme->symmetric ? "symmetric" : "asymmetric");
    if (scheme->act_bits)
        snprintf(text + used, 96 - (size_t)used, ", %d-bit %sactivations", scheme->act_bits,
                 scheme->act_rule == CALM_ACT_RULE_STATIC ? "static "
                 : scheme->act_rule == CALM_ACT_RULE_FP8  ? "float " : "");
    return text;
}

bool calm_check_listed(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}
