/* Check: config.json compared with the tensors, and float tensors. */
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/arch/wrapper.h"
#include "ptq/base/text.h"
#include "ptq/check/check_state.h"
#include "ptq/model/model_unread.h"
#include "ptq/weights/fused_experts.h"

/* Finds the first of the family's prefixes with which the embedding exists; the usual one if there is none. */
static calm_status find_prefix(calm_checking *c)
{
    const calm_arch *arch = c->model.arch;
    const char *at;
    size_t n;
    for (size_t i = 0; (at = calm_arch_prefix(arch, i, &n)); i++) {
        char *prefix, *name;
        CALM_TRY(calm_strf(c->ctx, c->ctx->out, &prefix, "%.*s", (int)n, at));
        CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &name, "%s%s", prefix, arch->names->embed));
        const bool found = calm_check_find_module(c, name) != NULL;
        if (!c->prefix || found)
            c->prefix = prefix;
        if (found)
            return CALM_OK;
    }
    return CALM_OK;
}

/* Finds the module with a linear of the layout: its own, or that of all experts of the block; *out NULL: none. */
static calm_status find_holder(calm_checking *c, const char *name, calm_check_module **out)
{
    char *stack = NULL;
    size_t expert;
    *out = calm_check_find_module(c, name);
    if (*out || !c->format || !c->format->stack)
        return CALM_OK;
    CALM_SCOPED_SCRATCH(c->ctx);
    CALM_TRY(c->format->stack(c->ctx, name, &stack, &expert));
    *out = stack ? calm_check_find_module(c, stack) : NULL;
    return CALM_OK;
}

/* Divides tensors of all experts into one module per expert. */
static calm_status part_experts(calm_checking *c)
{
    const size_t n = calm_safetensors_count(c->set);
    if (calm_experts_unfuse(c->ctx, &c->model, c->prefix, c->set) != CALM_OK)
        return calm_check_add_failure(
            c, c->ctx->status == CALM_ENOTFOUND ? CALM_CHECK_RULE_MODEL_MISSING : CALM_CHECK_RULE_MODEL_SHAPE,
            "config.json");
    return calm_safetensors_count(c->set) == n ? CALM_OK : calm_check_list_modules(c);
}

calm_status calm_check_model(calm_checking *c)
{
    if (!c->config)
        return CALM_OK;
    if (calm_config_read_accepting(c->ctx, c->config_path, c->config, c->accept_keys, &c->model) != CALM_OK)
        return calm_check_add_failure(
            c, c->ctx->status == CALM_EUNSUPPORTED ? CALM_CHECK_RULE_CONFIG_UNKNOWN : CALM_CHECK_RULE_CONFIG_VALUE,
            "config.json");
    CALM_TRY(find_prefix(c));
    CALM_TRY(part_experts(c));
    if (calm_layout_build(c->ctx, &c->model, c->prefix, false, &c->layout) != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_CONFIG_VALUE, "config.json");
    c->model_known = true;
    for (size_t i = 0; i < c->layout.n_linears; i++) {
        const calm_linear_ref *linear = &c->layout.linears[i];
        calm_check_module *module;
        CALM_TRY(find_holder(c, linear->module, &module));
        if (!module)
            continue;
        module->in_layout = module->linear = true;
        module->experts = strcmp(module->name, linear->module) == 0 ? 0 : c->model.moe.n_experts;
        module->out = linear->out;
        module->in = linear->in;
    }
    return CALM_OK;
}

/* ---- float tensors ---- */

/* Checks one float tensor that must exist. */
static calm_status need_tensor(calm_checking *c, const char *name, int n_dims, const size_t *shape)
{
    char found[128], expected[128];
    const calm_tensor *tensor = calm_safetensors_find(c->set, name);
    if (!tensor)
        return calm_check_add(c, CALM_CHECK_RULE_MODEL_MISSING, name, "expected shape %s",
                              calm_shape_text(n_dims, shape, expected));
    if (tensor->n_dims != n_dims || memcmp(tensor->shape, shape, (size_t)n_dims * sizeof *shape) != 0)
        return calm_check_add(c, CALM_CHECK_RULE_MODEL_SHAPE, name, "found %s, expected %s by config.json",
                              calm_shape_text(tensor->n_dims, tensor->shape, found),
                              calm_shape_text(n_dims, shape, expected));
    if (!calm_dtype_is_float(tensor->dtype))
        return calm_check_add(c, CALM_CHECK_RULE_MODEL_DTYPE, name, "found %s, expected BF16, F16 or F32",
                              calm_dtype_name(tensor->dtype));
    return CALM_OK;
}

/* Checks one float tensor of a module. */
static calm_status need_part(calm_checking *c, const char *module, const char *suffix, int n_dims, size_t rows,
                             size_t cols)
{
    CALM_SCOPED_SCRATCH(c->ctx);
    char *name;
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &name, "%s.%s", module, suffix));
    return need_tensor(c, name, n_dims, (const size_t[2]){rows, cols});
}

static calm_status need_norm(calm_checking *c, const char *module, size_t width)
{
    const calm_check_module *found = calm_check_find_module(c, module);
    const bool old = found && calm_check_part(c, found, "gamma"); /* in the first BERT checkpoints */
    CALM_TRY(need_part(c, module, old ? "gamma" : "weight", 1, width, 0));
    return c->model.norm_bias ? need_part(c, module, old ? "beta" : "bias", 1, width, 0) : CALM_OK;
}

/* Returns true for a quantized module (an embedding, head or router in MLX), which is checked with its parts. */
static bool is_stored(const calm_checking *c, const char *module)
{
    const calm_check_module *found = calm_check_find_module(c, module);
    return found && found->stored;
}

/* Lists norms and other plain tensors within a sublayer; returns their number. */
static size_t expect_plains(const calm_config *config, const calm_kind *kind, calm_check_expected *list)
{
    size_t n = 0;
    for (size_t i = 0; kind && i < kind->n_plains; i++) {
        calm_check_expected *one = &list[n];
        *one = (calm_check_expected){.part = config->arch->names->plain[kind->plains[i].plain]};
        if (!calm_plain_shape(config, kind, kind->plains[i].plain, one->shape, &one->n_dims))
            continue;
        one->kind = kind->plains[i].form == CALM_PLAIN_TENSOR ? CALM_CHECK_PLAIN : CALM_CHECK_NORM;
        one->rows = one->shape[0];
        n++;
    }
    return n;
}

/* Lists the tensors behind the sublayers; returns their number. */
static size_t expect_tail(const calm_config *config, calm_check_expected *list)
{
    calm_extra_tensor parts[CALM_EXTRA_TENSORS];
    size_t n = 0;
    for (size_t i = 0, all = calm_extra_tensors(config, parts); i < all; i++)
        if (!parts[i].outer)
            list[n++] = (calm_check_expected){.kind = parts[i].form == CALM_EXTRA_TENSOR ? CALM_CHECK_PLAIN
                                                      : parts[i].form == CALM_EXTRA_NORM ? CALM_CHECK_NORM
                                                                                        : CALM_CHECK_FLOAT,
                                              .part = parts[i].name, .rows = parts[i].rows, .cols = parts[i].cols,
                                              .shape = {parts[i].rows}, .n_dims = 1};
    return n;
}

size_t calm_check_block(const calm_config *config, size_t block, calm_check_expected list[CALM_CHECK_EXPECTED])
{
    const calm_names *names = config->arch->names;
    size_t n = 0;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place p = 0; p < CALM_N_NORM_PLACES; p++)
            if (calm_kind_at(config, block, s) && calm_has_norm(config->arch, block, s, p))
                list[n++] = (calm_check_expected){.kind = CALM_CHECK_NORM, .part = names->norm[s][p],
                                                  .rows = config->hidden};
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        n += expect_plains(calm_config_at(config, block), calm_kind_at(config, block, s), list + n);
    n += expect_tail(config, list + n);
    if (!config->moe.sparse[block])
        return n;
    list[n++] = (calm_check_expected){.kind = CALM_CHECK_ROUTER, .part = names->moe.router,
                                      .rows = config->moe.n_experts, .cols = config->hidden};
    if (config->moe.shared_inner && names->moe.shared_gate)
        list[n++] = (calm_check_expected){.kind = CALM_CHECK_SHARED_GATE, .part = names->moe.shared_gate, .rows = 1,
                                          .cols = config->hidden};
    return n;
}

/* Checks the router's correction bias, [E] or [1, E]. */
static calm_status check_choice_bias(calm_checking *c, size_t block)
{
    const char *part = c->model.arch->names->moe.choice_bias, *dot = strrchr(part, '.');
    char *module, *name;
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &module, "%s%s.%zu.%.*s", c->prefix, c->model.arch->names->blocks,
                       block, (int)(dot - part), part));
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &name, "%s%s", module, dot));
    const calm_tensor *tensor = calm_safetensors_find(c->set, name);
    if (tensor && tensor->n_dims == 2)
        return need_part(c, module, dot + 1, 2, 1, c->model.moe.n_experts);
    return need_part(c, module, dot + 1, 1, c->model.moe.n_experts, 0);
}

static calm_status check_block(calm_checking *c, size_t block)
{
    calm_check_expected list[CALM_CHECK_EXPECTED];
    const size_t n = calm_check_block(&c->model, block, list);
    for (size_t i = 0; i < n; i++) {
        char *module;
        CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &module, "%s%s.%zu.%s", c->prefix, c->model.arch->names->blocks,
                           block, list[i].part));
        if (list[i].kind == CALM_CHECK_NORM)
            CALM_TRY(need_norm(c, module, list[i].rows));
        else if (list[i].kind == CALM_CHECK_PLAIN)
            CALM_TRY(need_tensor(c, module, list[i].n_dims, list[i].shape));
        else if (!is_stored(c, module))
            CALM_TRY(need_part(c, module, "weight", 2, list[i].rows, list[i].cols));
    }
    return c->model.moe.choice_bias && c->model.moe.sparse[block] ? check_choice_bias(c, block) : CALM_OK;
}

/* Checks the tables that the tensors behind the sublayers of all blocks need. */
static calm_status check_tail(calm_checking *c)
{
    calm_extra_tensor parts[CALM_EXTRA_TENSORS];
    for (size_t i = calm_extra_tensors(&c->model, parts); i-- > 0;) {
        const size_t n = parts[i].copies;
        for (size_t k = 0; parts[i].outer && k < (n ? n : 1); k++) {
            char *module;
            CALM_TRY(n ? calm_strf(c->ctx, c->ctx->scratch, &module, "%s%s.%zu", c->prefix, parts[i].name, k)
                       : calm_strf(c->ctx, c->ctx->scratch, &module, "%s%s", c->prefix, parts[i].name));
            CALM_TRY(need_part(c, module, "weight", parts[i].cols ? 2 : 1, parts[i].rows, parts[i].cols));
        }
    }
    return CALM_OK;
}

static calm_status check_tables(calm_checking *c)
{
    const calm_config *config = &c->model;
    const calm_names *names = config->arch->names;
    char *module;
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &module, "%s%s", c->prefix, names->embed));
    if (!is_stored(c, module))
        CALM_TRY(need_part(c, module, "weight", 2, config->vocab, config->hidden));
    if (names->final_norm) {
        CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &module, "%s%s", c->prefix, names->final_norm));
        CALM_TRY(need_norm(c, module, config->hidden));
    }
    CALM_TRY(check_tail(c));
    if (config->arch->ends)
        return CALM_OK;
    if (config->head_bias)
        CALM_TRY(need_part(c, c->layout.head, "bias", 1, config->vocab, 0));
    if (c->layout.head && !config->tied && !is_stored(c, c->layout.head) && !c->unread)
        return need_part(c, c->layout.head, "weight", 2, config->vocab, config->hidden);
    return CALM_OK;
}

static calm_status check_linears(calm_checking *c)
{
    for (size_t i = 0; i < c->layout.n_linears; i++) {
        const calm_linear_ref *linear = &c->layout.linears[i];
        calm_check_module *module;
        CALM_TRY(find_holder(c, linear->module, &module));
        const bool part = module && (module->stored || module->unread || (c->resolved && module->quantized));
        if (!part)
            CALM_TRY(need_part(c, linear->module, "weight", 2, linear->out, linear->in));
        if (linear->bias)
            CALM_TRY(need_part(c, linear->module, "bias", 1, linear->out, 0));
    }
    return CALM_OK;
}

/* Returns true if a module has only scales of the KV cache. */
static bool is_cache_scale(const calm_checking *c, const calm_check_module *module)
{
    static const char *const list[] = {"k_scale",      "v_scale",      "q_scale",     "kv_scale",
                                       "k_zero_point", "v_zero_point", "q_zero_point"};
    for (size_t i = module->first; i < module->first + module->n; i++)
        if (!CALM_CHECK_LISTED(c->members[i].suffix, list))
            return false;
    return true;
}

/* Returns true if a separate tensor is in this module; the part before its last dot counts as a module. */
static bool is_tensor_of(const char *tensor, const char *module)
{
    const size_t n = strlen(module);
    return strncmp(tensor, module, n) == 0 && tensor[n] == '.' && !strchr(tensor + n + 1, '.');
}

/* Returns true if the name after "layers.N." is a part of a block: a norm, a router, a linear of the layout. */
static bool is_block_part(const calm_checking *c, const calm_check_module *module, size_t block, const char *part)
{
    calm_check_expected list[CALM_CHECK_EXPECTED];
    const char *gate = c->model.moe.sparse[block] ? c->model.arch->names->moe.shared_gate : NULL;
    bool found = module->in_layout || calm_kv_is_unused_module(calm_config_at(&c->model, block), part)
                 || module->transform || is_cache_scale(c, module) || strstr(part, "rotary_emb")
                 || strstr(part, "LayerNorm")
                 || (gate && strcmp(part, gate) == 0); /* the gate counts even if it is not used */
    const char *bias = c->model.moe.choice_bias && c->model.moe.sparse[block] ? c->model.arch->names->moe.choice_bias
                                                                              : NULL;
    found |= bias && is_tensor_of(bias, part);
    for (size_t i = calm_check_block(&c->model, block, list); i-- > 0 && !found;)
        found = strcmp(part, list[i].part) == 0
                || (list[i].kind == CALM_CHECK_PLAIN && is_tensor_of(list[i].part, part));
    return found;
}

/* Reports tensors of a multi-token prediction head, which vLLM skips in these families (orig_to_new_prefix of its
 * classes) and refuses in others.  A finding names the first. */
static calm_status check_foreign(calm_checking *c)
{
    static const char families[] = "qwen3_5 qwen3_5_moe qwen3_next ernie4_5_moe";
    if (calm_text_listed(families, ' ', c->model.arch->name))
        return CALM_OK;
    for (size_t i = 0; i < c->n_modules; i++)
        if (strncmp(c->modules[i].name, "mtp.", 4) == 0)
            return calm_check_add(c, CALM_CHECK_RULE_MODEL_FOREIGN, c->modules[i].name, "%s has no mtp",
                                  c->model.arch->name);
    return CALM_OK;
}

static calm_status check_extra(calm_checking *c)
{
    char *stem;
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &stem, "%s%s.", c->prefix, c->model.arch->names->blocks));
    const size_t length = strlen(stem);
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *module = &c->modules[i];
        char *end;
        if (strncmp(module->name, stem, length) != 0)
            continue;
        const unsigned long block = strtoul(module->name + length, &end, 10);
        if (end == module->name + length || *end != '.')
            continue;
        if (block >= c->model.n_blocks)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_MODEL_EXTRA, module->name, "config.json has %zu blocks",
                                    c->model.n_blocks));
        else if (!is_block_part(c, module, block, end + 1))
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_MODEL_EXTRA, module->name, "%s has no such module",
                                    c->model.arch->name));
    }
    return CALM_OK;
}

/* Reports biases of the model's modules that config.json excludes. */
static calm_status check_switched(calm_checking *c)
{
    CALM_SCOPED_JSON(text);
    CALM_TRY(calm_config_text(c->ctx, c->config_path, c->config, &text));
    for (size_t i = 0; i < c->n_members; i++) {
        const calm_check_member *member = &c->members[i];
        const char *reason;
        bool unread;
        if (strcmp(member->suffix, "bias") != 0)
            continue;
        CALM_TRY(calm_model_is_unread(c->ctx, &c->model, &c->layout, c->prefix, member->tensor, &unread));
        if (!unread)
            continue;
        CALM_TRY(calm_model_unread_reason(c->ctx, &c->model, &c->layout, text ? text : c->config,
                                          member->tensor->name, &reason));
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_MODEL_SWITCHED, member->module, "bias is not used: %s", reason));
    }
    return CALM_OK;
}

calm_status calm_check_floats(calm_checking *c)
{
    if (!c->model_known)
        return CALM_OK;
    CALM_TRY(check_tables(c));
    if (!c->unread)
        CALM_TRY(check_linears(c));
    for (size_t i = 0; i < c->model.n_blocks; i++)
        CALM_TRY(check_block(c, i));
    CALM_TRY(check_foreign(c));
    CALM_TRY(check_switched(c));
    return c->unread ? CALM_OK : check_extra(c);
}

/* ---- tokenizer ---- */

static calm_status check_ids(calm_checking *c, const calm_json *root)
{
    const calm_json *vocab = calm_json_get(calm_json_get(root, "model"), "vocab"),
                    *added = calm_json_get(root, "added_tokens"), *value;
    int64_t highest = -1, placed = -1;
    const char *key;
    for (void *iter = NULL; calm_json_next(vocab, &iter, &key, &value);)
        highest = calm_json_int(value, -1) > highest ? calm_json_int(value, -1) : highest;
    if (calm_json_typeof(vocab) == CALM_JSON_ARRAY)
        highest = (int64_t)calm_json_size(vocab) - 1;
    for (size_t i = 0; i < calm_json_size(added); i++) {
        const int64_t id = calm_json_int(calm_json_get(calm_json_at(added, i), "id"), -1);
        placed = id > placed ? id : placed;
    }
    const bool beyond = c->model_known && highest >= (int64_t)c->model.vocab;
    if (!beyond && (!c->model_known || placed < (int64_t)c->model.vocab))
        return CALM_OK;
    return calm_check_add(c, beyond ? CALM_CHECK_RULE_TOKENIZER_VOCAB : CALM_CHECK_RULE_TOKENIZER_ADDED,
                          "tokenizer.json", "its highest id is %lld, the embedding has %zu rows",
                          (long long)(placed > highest ? placed : highest), c->model.vocab);
}

calm_status calm_check_tokenizer(calm_checking *c)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",    "vocab.json",   "vocab.txt",
                                        "tiktoken.model", "tokenizer.tiktoken", "spiece.model", "tekken.json"};
    CALM_SCOPED_JSON(root);
    char *path;
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !any; i++)
        any = calm_path_has(c->path, names[i]);
    if (!any)
        return calm_check_add(c, CALM_CHECK_RULE_TOKENIZER_MISSING, c->path,
                              "expected tokenizer.json, tokenizer.model, vocab.json or vocab.txt");
    CALM_TRY(calm_path_join(c->ctx, c->ctx->scratch, &path, c->path, "tokenizer.json"));
    if (!calm_path_exists(path))
        return CALM_OK;
    if (calm_json_read(c->ctx, path, (size_t)256 << 20, &root) != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_TOKENIZER_FORM, "tokenizer.json");
    return check_ids(c, root);
}
