/* The registry of architectures, from arch.def, and the names that most of them share. */
#include "ptq/arch/arch.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/base/text.h"

#define CALM_ARCH(name) extern const calm_arch calm_arch_##name;
#include "ptq/arch/arch.def"
#undef CALM_ARCH

#define USUAL_NAMES                                                                                          \
    CALM_USUAL_MODULES,                                                                                      \
    CALM_PRE_NORMS,                                                                                          \
    .moe = {.router = "mlp.gate", .experts = "mlp.experts", .shared = "mlp.shared_expert",                   \
            .shared_gate = "mlp.shared_expert_gate", .fused_gate_up = "mlp.experts.gate_up_proj",                    \
            .fused_down = "mlp.experts.down_proj"}

const calm_names calm_names_llama = {USUAL_NAMES};
const calm_names calm_names_qk_norm = {USUAL_NAMES, CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm")};

const char *calm_expert_word(const calm_names *names, calm_role role)
{
    const char *module = names->role[role], *dot = module ? strrchr(module, '.') : NULL;
    /* The last word of the dense module's name: "up_proj" of "mlp.up_proj". */
    return names->moe.words ? names->moe.words[role] : dot ? dot + 1 : module;
}

bool calm_has_norm(const calm_arch *arch, size_t block, calm_sublayer sublayer, calm_norm_place place)
{
    const bool first = block == 0 && sublayer == CALM_SUBLAYER_ATTENTION && place == CALM_NORM_IN;
    return arch->names->norm[sublayer][place] && !(first && arch->names->bare_start);
}

calm_status calm_head_module(calm_ctx *ctx, const calm_names *names, const char *prefix, const char **out)
{
    static const char model[] = "model.";
    const size_t n = strlen(prefix), last = sizeof model - 1;
    /* Finds a separate "model." at the end of the prefix, not the one within "language_model.". */
    const bool within = n > last && prefix[n - last - 1] == '.' && strcmp(prefix + n - last, model) == 0;
    char *text;
    *out = NULL;
    if (!names->head)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%.*s%s", within ? (int)(n - last) : 0, prefix, names->head));
    *out = text;
    return CALM_OK;
}

const calm_arch *const *calm_architectures(size_t *n)
{
    static const calm_arch *const all[] = {
#define CALM_ARCH(name) &calm_arch_##name,
#include "ptq/arch/arch.def"
#undef CALM_ARCH
    };
    *n = sizeof all / sizeof *all;
    return all;
}

const char *calm_arch_model_types(const calm_arch *arch)
{
    return arch->model_types ? arch->model_types : arch->name;
}

const char *calm_arch_prefix(const calm_arch *arch, size_t index, size_t *n)
{
    const char *at = arch->prefixes ? arch->prefixes : CALM_DECODER_PREFIXES;
    for (; at && index > 0; index--) {
        at = strchr(at, '|');
        at = at ? at + 1 : NULL;
    }
    *n = at ? strcspn(at, "|") : 0;
    return at;
}

const char *calm_arch_in_block(const calm_arch *arch, const char *prefix, const char *tensor)
{
    const char *blocks = arch->names->blocks;
    const size_t n_prefix = strlen(prefix), n = n_prefix + strlen(blocks);
    return strncmp(tensor, prefix, n_prefix) == 0 && strncmp(tensor + n_prefix, blocks, n - n_prefix) == 0
                   && tensor[n] == '.' ? tensor + n + 1 : NULL;
}

bool calm_arch_take_number(const char **text, size_t *out)
{
    char *end;
    /* A leading zero ("layers.01.") would give two names for one block. */
    if (**text < '0' || **text > '9' || (**text == '0' && (*text)[1] != '.'))
        return false;
    *out = strtoul(*text, &end, 10);
    /* A number of nine digits fits into any size_t, so strtoul did not overflow. */
    if (*end != '.' || end - *text > 9)
        return false;
    *text = end + 1;
    return true;
}

long calm_arch_block_of(const calm_arch *arch, const char *prefix, const char *tensor, const char **rest)
{
    size_t block;
    *rest = calm_arch_in_block(arch, prefix, tensor);
    return *rest && calm_arch_take_number(rest, &block) ? (long)block : -1;
}

bool calm_arch_norm_biased(const calm_arch *arch)
{
    return arch->norm == CALM_NORM_LAYER && !arch->no_norm_bias;
}

bool calm_arch_is_headless(const calm_arch *arch, const char *class_name)
{
    static const char ends[] = "Model|ForSequenceClassification|ForTokenClassification|ForQuestionAnswering";
    for (const char *stem = class_name ? arch->stem : NULL; stem && *stem;) {
        const size_t n = strcspn(stem, "|");
        if (strncmp(class_name, stem, n) == 0 && calm_text_listed(ends, '|', class_name + n))
            return true;
        /* The next stem, or the end. */
        stem += n + (stem[n] == '|');
    }
    return false;
}

calm_status calm_arch_without_head(calm_ctx *ctx, const calm_arch *arch, const calm_arch **out)
{
    calm_names *names;
    calm_arch *copy;
    CALM_TRY(CALM_NEW(ctx, ctx->out, names, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, copy, 1));
    /* The copies are read like rows of the registry. */
    *names = *arch->names;
    *copy = *arch;
    names->head = NULL;
    copy->names = names;
    copy->encoder = true;
    *out = copy;
    return CALM_OK;
}

const calm_arch *calm_arch_find(const char *class_name, const char *model_type)
{
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    /* The class name decides where it is given, since families share model types (gemma3 with and without images). */
    for (size_t i = 0; i < n; i++)
        if (class_name ? calm_text_listed(all[i]->classes, '|', class_name) || calm_arch_is_headless(all[i], class_name)
                       : model_type && calm_text_listed(calm_arch_model_types(all[i]), '|', model_type))
            return all[i];
    return NULL;
}
