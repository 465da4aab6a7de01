/* Check: targets and ignore of compressed-tensors, resolved as each engine does.
 *
 *   compressed-tensors   exact names, then patterns in alphabetical order, then classes
 *   vLLM                 names and patterns in file order, fused parts, classes by containment
 *   SGLang               names and patterns, classes, fused parts
 * They agree if no module is matched by targets of two schemes. */
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/check/check_ct.h"

void calm_ct_clear(calm_ct_entry *entry)
{
    for (size_t i = 0; i < entry->n_targets; i++)
        calm_regex_free(entry->targets[i].regex);
}

/* ---- reading ---- */

static calm_status add_target(calm_ct_entry *entry, const char *list, const calm_json *value, size_t group)
{
    calm_checking *c = entry->c;
    calm_ct_target *at = &entry->targets[entry->n_targets++];
    *at = (calm_ct_target){.text = calm_json_string(value, NULL), .group = group};
    if (!at->text || !at->text[0])
        return calm_check_add(c, CALM_CHECK_RULE_TARGET_FORM, list, "%s, expected a name or pattern",
                              at->text ? "an empty string" : calm_json_type_name(calm_json_typeof(value)));
    at->class_name = !strchr(at->text, '.') && strstr(at->text, "Linear");
    at->other_class = !strchr(at->text, '.') && !at->class_name && at->text[0] >= 'A' && at->text[0] <= 'Z';
    at->usable = true;
    if (strncmp(at->text, "re:", 3) != 0)
        return CALM_OK;
    at->class_name = false;
    if (calm_regex_new(c->ctx, list, at->text + 3, strlen(at->text + 3), &at->regex) == CALM_OK) {
        calm_regex_limit(at->regex, CALM_NAME_STEPS);
        return CALM_OK;
    }
    at->usable = false;
    return calm_check_add_failure(c, CALM_CHECK_RULE_TARGET_FORM, list);
}

static calm_status read_targets(calm_ct_entry *entry)
{
    const calm_json *ignore = calm_json_get(entry->json, "ignore");
    size_t n = calm_json_size(ignore) + 1;
    for (size_t g = 0; g < entry->n_groups; g++)
        n += calm_json_size(calm_json_get(entry->groups[g].json, "targets"));
    CALM_TRY(CALM_NEW(entry->c->ctx, entry->c->ctx->out, entry->targets, n));
    for (size_t i = 0; i < calm_json_size(ignore); i++)
        CALM_TRY(add_target(entry, "ignore", calm_json_at(ignore, i), entry->n_groups));
    for (size_t g = 0; g < entry->n_groups; g++) {
        const calm_json *targets = calm_json_get(entry->groups[g].json, "targets");
        if (calm_json_typeof(targets) != CALM_JSON_ARRAY)
            continue;
        for (size_t i = 0; i < calm_json_size(targets); i++)
            CALM_TRY(add_target(entry, entry->groups[g].name, calm_json_at(targets, i), g));
    }
    return CALM_OK;
}

/* ---- matching ---- */

/* Sets *hit to whether the target matches the name itself, not its class. */
static calm_status hits_name(calm_ct_entry *entry, calm_ct_target *target, const char *name, bool *hit)
{
    *hit = target->usable && !target->regex && strcmp(target->text, name) == 0;
    if (!target->usable || !target->regex)
        return CALM_OK;
    if (calm_regex_matches_prefix(entry->c->ctx, target->regex, name, hit) == CALM_OK)
        return CALM_OK;
    target->usable = *hit = false;
    return calm_check_add_failure(entry->c, CALM_CHECK_RULE_TARGET_FORM, target->text);
}

typedef struct match {
    bool ignored;
    const calm_ct_target *best;  /* the target that compressed-tensors uses */
    const calm_ct_target *other; /* a matching target with another scheme */
} match;

static int rank(const calm_ct_target *target, bool by_class)
{
    return by_class ? 2 : target->regex ? 1 : 0;
}

/* Returns true if compressed-tensors uses `a` before `b`. */
static bool comes_first(const calm_ct_target *a, bool a_class, const calm_ct_target *b, bool b_class)
{
    const int x = rank(a, a_class), y = rank(b, b_class);
    return x != y ? x < y : x == 1 && strcmp(a->text, b->text) < 0;
}

static calm_status match_module(calm_ct_entry *entry, const calm_check_module *module, match *out)
{
    bool best_class = false;
    *out = (match){false, NULL, NULL};
    for (size_t i = 0; i < entry->n_targets; i++) {
        calm_ct_target *at = &entry->targets[i];
        bool hit;
        CALM_TRY(hits_name(entry, at, module->name, &hit));
        const bool by_class = !hit && at->usable && at->class_name && module->linear;
        if (!hit && !by_class)
            continue;
        at->hits++;
        if (at->group == entry->n_groups) {
            out->ignored = true;
            continue;
        }
        if (!module->linear || entry->groups[at->group].no_weights)
            continue;
        const calm_ct_target *loser = at;
        if (!out->best || comes_first(at, by_class, out->best, best_class)) {
            loser = out->best;
            out->best = at;
            best_class = by_class;
        }
        if (loser && loser->group != out->best->group &&
            !calm_check_same_scheme(&entry->groups[loser->group].scheme, &entry->groups[out->best->group].scheme))
            out->other = loser;
    }
    return CALM_OK;
}

/* ---- findings ---- */

static calm_status judge(calm_ct_entry *entry, calm_check_module *module, const match *found)
{
    calm_checking *c = entry->c;
    if (!module->linear)
        return CALM_OK;
    if (found->ignored)
        return module->stored ? calm_check_add(c, CALM_CHECK_RULE_IGNORED_PACKED, module->name, "it is in ignore")
                              : CALM_OK;
    if (!found->best)
        return calm_check_add(c, module->stored ? CALM_CHECK_RULE_UNMATCHED_PACKED : CALM_CHECK_RULE_UNMATCHED_FLOAT,
                              module->name,
                              module->stored ? "expected a target of its scheme's group" : "expected in ignore");
    const bool by_class = found->other && (found->other->class_name || found->best->class_name);
    /* Every engine uses a name or pattern before a class, except for a fused name. */
    if (found->other && (!by_class || calm_check_is_fused(module->name)))
        CALM_TRY(calm_check_add(c, by_class ? CALM_CHECK_RULE_CLASS_TARGET : CALM_CHECK_RULE_MATCHED_TWICE,
                                module->name, "hit by \"%.160s\" of %.64s and \"%.160s\" of %.64s", found->best->text,
                                entry->groups[found->best->group].name, found->other->text,
                                entry->groups[found->other->group].name));
    const calm_ct_group *group = &entry->groups[found->best->group];
    const calm_tensor *weight = group->foreign ? calm_check_part(c, module, "weight") : NULL;
    module->unread = group->foreign;
    module->reordered = group->reordered;
    if (!module->stored && group->foreign && (!weight || !calm_dtype_is_float(weight->dtype)))
        return CALM_OK;
    if (!module->stored)
        return calm_check_add(c, CALM_CHECK_RULE_TARGETED_FLOAT, module->name,
                              "hit by \"%.160s\" of %.64s, but it has no quantized tensors", found->best->text,
                              group->name);
    if (group->usable) {
        module->quantized = true;
        module->scheme = group->scheme;
    }
    return CALM_OK;
}

static calm_status check_hits(const calm_ct_entry *entry)
{
    calm_checking *c = entry->c;
    const char *head = c->model_known && c->layout.head ? c->layout.head : "lm_head";
    for (size_t i = 0; i < entry->n_targets; i++) {
        const calm_ct_target *at = &entry->targets[i];
        if (!at->usable || at->hits || at->other_class)
            continue;
        if (at->group < entry->n_groups)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_TARGET_NOTHING, entry->groups[at->group].name, "\"%.256s\"",
                                    at->text));
        /* A tied head has no tensor, and a wrapper's head has other names in other readers. */
        else if (!calm_text_ends_with(at->text, "lm_head") && strcmp(at->text, head) != 0)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_IGNORE_NOTHING, "ignore", "\"%.256s\"", at->text));
    }
    return CALM_OK;
}

/* A calm_check_fused_fn that matches names and patterns, not classes. */
static calm_status fused(calm_checking *c, const void *user, const char *name, bool *hit, calm_qformat_scheme *scheme)
{
    calm_ct_entry *entry = (calm_ct_entry *)(uintptr_t)user;
    (void)c;
    *hit = false;
    for (size_t i = 0; i < entry->n_targets; i++) {
        calm_ct_target *at = &entry->targets[i];
        bool here;
        if (at->group == entry->n_groups || !entry->groups[at->group].usable)
            continue;
        CALM_TRY(hits_name(entry, at, name, &here));
        *hit |= here;
        at->hits += here;
        if (here && !calm_check_same_scheme(scheme, &entry->groups[at->group].scheme)) {
            *scheme = entry->groups[at->group].scheme;
            return CALM_OK;
        }
    }
    return CALM_OK;
}

/* Checks a tied head, which has no tensor here, but which engines treat as a linear. */
static calm_status check_tied_head(calm_ct_entry *entry)
{
    const calm_checking *c = entry->c;
    calm_check_module head = {.linear = true};
    match found;
    if (!c->model_known || c->model.arch->encoder || !c->layout.head)
        return CALM_OK;
    head.name = c->layout.head;
    if (calm_check_find_module(c, head.name))
        return CALM_OK;
    CALM_TRY(match_module(entry, &head, &found));
    return found.best && !found.ignored ? judge(entry, &head, &found) : CALM_OK;
}

calm_status calm_ct_resolve(calm_ct_entry *entry)
{
    calm_checking *c = entry->c;
    CALM_TRY(read_targets(entry));
    if (c->n_modules && entry->n_targets > CALM_CHECK_MATCHES / c->n_modules)
        return calm_check_add(c, CALM_CHECK_RULE_TARGETS_MANY, "config_groups",
                              "%zu targets and ignore entries, %zu modules", entry->n_targets, c->n_modules);
    for (size_t i = 0; i < c->n_modules; i++) {
        match found;
        CALM_TRY(match_module(entry, &c->modules[i], &found));
        CALM_TRY(judge(entry, &c->modules[i], &found));
    }
    c->resolved = true;
    CALM_TRY(check_tied_head(entry));
    CALM_TRY(calm_check_fusion(c, CALM_CHECK_RULE_FUSED_NAME, fused, entry));
    return check_hits(entry); /* last: a target may match only the fused name */
}
