/* Check: fused modules must have one scheme: q, k, v; gate, up; all experts of a layer. */
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/text.h"
#include "ptq/check/check_state.h"

/* Returns the length of the part before ".experts." of "model.layers.0.mlp.experts.7.up_proj"; 0: no such name. */
static size_t experts_stem(const char *name)
{
    const char *at = strstr(name, ".experts.");
    return at && at[9] >= '0' && at[9] <= '9' ? (size_t)(at - name) : 0;
}

/* Returns the fusion that a module is part of, by its name; NULL: none. */
static const calm_fusion *fusion_of(const char *module)
{
    const char *last = calm_text_last_word(module);
    const calm_fusion *with;
    for (size_t f = 0; (with = calm_fusion_at(f)); f++)
        for (size_t i = 0; i < CALM_FUSED_PARTS && with->parts[i]; i++)
            if (strcmp(last, with->parts[i]) == 0)
                return with;
    return NULL;
}

bool calm_check_is_fused(const char *module)
{
    return fusion_of(module) || experts_stem(module) != 0;
}

bool calm_check_is_fused_part(const char *module)
{
    const char *last = calm_text_last_word(module);
    const calm_fusion *with;
    for (size_t f = 0; (with = calm_fusion_at(f)); f++)
        if (with->fused && strcmp(last, with->fused) == 0)
            return true;
    return fusion_of(module) != NULL;
}

bool calm_check_is_expert(const calm_check_module *module)
{
    return module->experts || experts_stem(module->name);
}

calm_status calm_check_first_part(calm_checking *c, const calm_check_module *module, const calm_check_module **out)
{
    const calm_fusion *with = fusion_of(module->name);
    char *name;
    *out = NULL;
    if (!with)
        return CALM_OK;
    CALM_SCOPED_SCRATCH(c->ctx);
    const size_t parent = (size_t)(calm_text_last_word(module->name) - module->name);
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &name, "%.*s%s", (int)parent, module->name, with->parts[0]));
    const calm_check_module *first = calm_check_find_module(c, name);
    *out = first != module ? first : NULL;
    return CALM_OK;
}

calm_status calm_check_fused_rows(calm_checking *c, const calm_check_module *module, size_t *out, size_t *part)
{
    const calm_fusion *with = fusion_of(module->name);
    const size_t parent = (size_t)(calm_text_last_word(module->name) - module->name);
    size_t last = 0;    /* rows of the last existing part */
    char *name;
    *out = module->out;
    *part = 0;
    for (size_t i = 0; with && i < CALM_FUSED_PARTS && with->parts[i]; i++) {
        CALM_SCOPED_SCRATCH(c->ctx);
        CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &name, "%.*s%s", (int)parent, module->name, with->parts[i]));
        const calm_check_module *other = calm_check_find_module(c, name);
        if (!other || !other->linear)
            continue;
        *out += other != module ? other->out : 0;
        *part = last ? calm_engine_part(*part, last) : 0;
        last = other->out;
    }
    return CALM_OK;
}

static const char *state_text(const calm_check_module *module, char text[96])
{
    if (module->quantized)
        return calm_check_scheme_text(&module->scheme, text);
    if (module->unread)
        return "of a scheme that calm does not read";
    return module->stored ? "not quantized by the configuration" : "float";
}

/* Compares the schemes of two fused modules; *said: they differ, and a finding was added. */
static calm_status compare(calm_checking *c, const char *where, const calm_check_module *a, const calm_check_module *b,
                           bool experts, bool *said)
{
    char x[96], y[96];
    const bool partly = (a->quantized || a->unread) != (b->quantized || b->unread);
    *said = partly || a->unread != b->unread ||
            (a->quantized && b->quantized && !calm_check_same_scheme(&a->scheme, &b->scheme));
    if (!*said)
        return CALM_OK;
    return calm_check_add(c,
                          experts  ? CALM_CHECK_RULE_EXPERTS_SCHEMES
                          : partly ? CALM_CHECK_RULE_FUSED_PARTLY
                                   : CALM_CHECK_RULE_FUSED_SCHEMES,
                          where, "%s is %s, %s is %s", a->name, state_text(a, x), b->name, state_text(b, y));
}

/* ---- parts of a layer ---- */

static calm_status check_layer(calm_checking *c, calm_check_rule rule, calm_check_fused_fn *fused, const void *user,
                               const calm_fusion *with, const calm_check_module *first, size_t parent)
{
    CALM_SCOPED_SCRATCH(c->ctx);
    calm_qformat_scheme scheme = first->scheme;
    calm_ctx *ctx = c->ctx;
    char x[96], y[96], *name;
    bool said = false, hit = false, any = false;
    for (size_t i = 1; i < CALM_FUSED_PARTS && with->parts[i] && !said; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%.*s%s", (int)parent, first->name, with->parts[i]));
        const calm_check_module *other = calm_check_find_module(c, name);
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%.*s", (int)parent - 1, first->name));
        any |= other && other->linear;
        if (other && other->linear)
            CALM_TRY(compare(c, name, first, other, false, &said));
    }
    /* A single part is not fused: q_proj next to kv_a_proj_with_mqa. */
    if (said || !any || !with->fused || !fused || !first->quantized)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%.*s%s", (int)parent, first->name, with->fused));
    CALM_TRY(fused(c, user, name, &hit, &scheme));
    if (!hit || calm_check_same_scheme(&scheme, &first->scheme))
        return CALM_OK;
    return calm_check_add(c, rule, name, "it is %s there, %s is %s", calm_check_scheme_text(&scheme, x), first->name,
                          calm_check_scheme_text(&first->scheme, y));
}

/* ---- experts ---- */

/* One finding per layer: the first expert that differs from the layer's first. */
static calm_status check_experts(calm_checking *c)
{
    const calm_check_module *first = NULL;
    size_t stem = 0;
    bool said = false;
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        const size_t length = at->linear ? experts_stem(at->name) : 0;
        char *where;
        if (!length)
            continue;
        if (!first || length != stem || strncmp(first->name, at->name, stem) != 0) {
            first = at;
            stem = length;
            said = false;
            continue;
        }
        CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &where, "%.*s.experts", (int)stem, at->name));
        if (!said)
            CALM_TRY(compare(c, where, first, at, true, &said));
    }
    return CALM_OK;
}

calm_status calm_check_fusion(calm_checking *c, calm_check_rule rule, calm_check_fused_fn *fused, const void *user)
{
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        const char *dot = strrchr(at->name, '.');
        if (!dot || !at->linear || experts_stem(at->name))
            continue;
        const calm_fusion *with;
        for (size_t f = 0; (with = calm_fusion_at(f)); f++)
            if (strcmp(dot + 1, with->parts[0]) == 0)
                CALM_TRY(check_layer(c, rule, fused, user, with, at, (size_t)(dot - at->name) + 1));
    }
    return check_experts(c);
}
