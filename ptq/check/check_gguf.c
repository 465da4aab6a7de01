/* Check: a GGUF file as llama.cpp reads it: keys, tensors by name, type and size, and the scales of blocks. */
#include <stdio.h>
#include <string.h>

#include "ptq/check/check_gguf.h"
#include "ptq/gguf/gguf_config.h"

/* ---- tensors against the architecture ---- */

/* A calm_gguf_report_fn. */
static void add_key_fault(void *user, const char *key, const char *text)
{
    calm_check_gguf_state *g = user;
    g->keys_bad = true;
    if (g->status == CALM_OK)
        g->status = calm_check_add(
            g->c, strstr(text, "missing") ? CALM_CHECK_RULE_GGUF_KEY_MISSING : CALM_CHECK_RULE_GGUF_KEY_VALUE, key,
            "%s", text);
}

/* Checks one tensor of the architecture; module and suffix: its name in a checkpoint. */
static calm_status need(calm_check_gguf_state *g, const char *module, const char *suffix, int n_dims, size_t rows,
                        size_t cols)
{
    CALM_SCOPED_SCRATCH(g->c->ctx);
    calm_checking *c = g->c;
    calm_gguf_spot spot;
    char *name, found[128], expected[128];
    bool known;
    const bool one = n_dims == 1;
    CALM_TRY(calm_strf(c->ctx, c->ctx->scratch, &name, "%s.%s", module, suffix));
    CALM_TRY(calm_gguf_spot_of(c->ctx, g->list.arch, g->list.as, "model.", name, &spot, &known));
    if (!known)
        return CALM_OK;
    const calm_gguf_tensor *tensor = calm_gguf_find_tensor(g->file, spot.name);
    if (!tensor)
        return spot.expert > 0 ? CALM_OK
                               : calm_check_add(c, CALM_CHECK_RULE_GGUF_TENSOR_MISSING, spot.name,
                                                "%s of config.json's names", name);
    /* In GGUF the gate of a shared expert is a vector. */
    const size_t experts = spot.expert >= 0 ? g->config.moe.n_experts : 1;
    const size_t stored[3] = {tensor->dims[2], tensor->n_dims < 2 ? 1 : tensor->dims[1], tensor->dims[0]};
    /* The other part of a divided tensor is checked with the listed keys. */
    size_t wanted[3] = {one ? 1 : experts, one ? experts : rows, one ? rows : cols}, dims[3];
    if (calm_gguf_order_is_vector(spot.form)) {
        const calm_gguf_order order = calm_gguf_order_of(spot.form, 0, g->list.widths);
        calm_gguf_order_dims(&order, rows, 1, dims);
        wanted[1] = dims[1];
        wanted[2] = dims[0];
    }
    if (memcmp(stored, wanted, sizeof stored) != 0 && spot.expert <= 0 && !spot.rest)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_GGUF_DIMS, spot.name, "%s slowest first, expected %s",
                                calm_shape_text(3, stored, found), calm_shape_text(3, wanted, expected)));
    if (one && tensor->type != CALM_GGML_F32)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_GGUF_VECTOR_TYPE, spot.name, "it is %s, expected F32",
                                calm_ggml_find(tensor->type)->name));
    return CALM_OK;
}

/* Checks the router's correction bias, which llama.cpp's architectures with such a bias need. */
static calm_status check_choice_bias(calm_check_gguf_state *g, size_t block)
{
    const calm_names *names = g->config.arch->names;
    const char *part = names->moe.choice_bias, *dot = strrchr(part, '.');
    char *module;
    CALM_TRY(calm_strf(g->c->ctx, g->c->ctx->scratch, &module, "model.%s.%zu.%.*s", names->blocks, block,
                       (int)(dot - part), part));
    return need(g, module, dot + 1, 1, g->config.moe.n_experts, 0);
}

static calm_status check_block(calm_check_gguf_state *g, size_t block)
{
    calm_check_expected list[CALM_CHECK_EXPECTED];
    const size_t n = calm_check_block(&g->config, block, list);
    for (size_t i = 0; i < n; i++) {
        char *module;
        CALM_TRY(calm_strf(g->c->ctx, g->c->ctx->scratch, &module, "model.%s.%zu.%s", g->config.arch->names->blocks,
                           block, list[i].part));
        /* llama.cpp stores some plain tensors in another form, so they are not compared. */
        if (list[i].kind != CALM_CHECK_SHARED_GATE && list[i].kind != CALM_CHECK_PLAIN)
            CALM_TRY(need(g, module, "weight", list[i].kind == CALM_CHECK_NORM ? 1 : 2, list[i].rows, list[i].cols));
    }
    return g->config.moe.choice_bias && g->config.moe.sparse[block] ? check_choice_bias(g, block) : CALM_OK;
}

static calm_status check_tensors(calm_check_gguf_state *g)
{
    const calm_names *names = g->config.arch->names;
    calm_ctx *ctx = g->c->ctx;
    calm_layout layout;
    char *module;
    if (calm_layout_build(ctx, &g->config, "model.", false, &layout) != CALM_OK)
        return calm_check_add_failure(g->c, CALM_CHECK_RULE_GGUF_KEY_VALUE, "general.architecture");
    for (size_t i = 0; i < layout.n_linears; i++) {
        const calm_linear_ref *linear = &layout.linears[i];
        CALM_TRY(need(g, linear->module, "weight", 2, linear->out, linear->in));
        if (linear->bias)
            CALM_TRY(need(g, linear->module, "bias", 1, linear->out, 0));
    }
    for (size_t i = 0; i < g->config.n_blocks; i++)
        CALM_TRY(check_block(g, i));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "model.%s", names->embed));
    CALM_TRY(need(g, module, "weight", 2, g->config.vocab, g->config.hidden));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "model.%s", names->final_norm));
    return need(g, module, "weight", 1, g->config.hidden, 0);
}

/* Returns true for names that llama.cpp has in addition to those of checkpoints. */
static bool is_extra(const char *name)
{
    return strcmp(name, "rope_freqs.weight") == 0 || strncmp(name, "rope_factors_", 13) == 0 ||
           strcmp(name, "dense_2.weight") == 0 || strcmp(name, "dense_3.weight") == 0 ||
           strstr(name, ".exp_probs_b.") || strstr(name, "attn_rot_embd") || strstr(name, ".nextn.");
}

/* Returns true for "blk.0.attn_q.scale" and ".input_scale" next to "blk.0.attn_q.weight", which llama.cpp accepts in
 * every architecture. */
static bool is_scale(const calm_check_gguf_state *g, const char *name)
{
    const char *dot = strrchr(name, '.');
    char weight[96];
    if (!dot || (strcmp(dot, ".scale") != 0 && strcmp(dot, ".input_scale") != 0))
        return false;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(dot - name), name);
    return calm_gguf_find_tensor(g->file, weight) != NULL;
}

/* Returns true for a bias that llama.cpp refuses.  It accepts biases of q, k and v in all of these architectures, of
 * other linears in some, of norms if they are LayerNorms, and of embedding and head in none; it counts the tensors and
 * refuses the file. */
static bool is_refused_bias(const calm_check_gguf_state *g, const char *name)
{
    static const char *const all[] = {".attn_q.bias", ".attn_k.bias", ".attn_v.bias"},
                             *const some[] = {".attn_output.bias", ".ffn_gate.bias", ".ffn_up.bias", ".ffn_down.bias"},
                             *const experts[] = {".ffn_gate_exps.bias", ".ffn_up_exps.bias", ".ffn_down_exps.bias",
                                                 ".ffn_gate_inp.bias"};
    if (!calm_text_ends_with(name, ".bias"))
        return false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (calm_text_ends_with(name, all[i]))
            return false;
    for (size_t i = 0; i < sizeof some / sizeof *some && g->list.as->biases; i++)
        if (calm_text_ends_with(name, some[i]))
            return false;
    if ((g->list.as->deltas || g->list.as->scans) && calm_text_ends_with(name, ".ssm_dt.bias"))
        return false;
    if (g->list.as->scans && calm_text_ends_with(name, ".ssm_conv1d.bias"))
        return false;
    if (g->list.as->head_bias && strcmp(name, "output.bias") == 0)
        return false;
    for (size_t i = 0; i < sizeof experts / sizeof *experts && g->config_known && g->config.moe.bias; i++)
        if (calm_text_ends_with(name, experts[i]))
            return false;
    return !(g->config_known && g->config.norm_bias && calm_text_ends_with(name, "_norm.bias"));
}

static calm_status check_names(calm_check_gguf_state *g)
{
    const calm_gguf_tensor *last = NULL;
    for (size_t i = 0; i < g->list.n; i++) {
        const calm_gguf_entry *at = &g->list.entries[i];
        const char *name = at->stored->name;
        size_t block = 0;
        if (at->stored == last)
            continue;
        last = at->stored;
        const bool beyond = sscanf(name, "blk.%9zu.", &block) == 1 && g->config_known && block >= g->config.n_blocks;
        if (is_refused_bias(g, name) && !is_extra(name))
            CALM_TRY(calm_check_add(g->c, CALM_CHECK_RULE_GGUF_TENSOR_UNKNOWN, name, "%s has no such bias",
                                    g->list.as->name));
        else if (((!at->name && !at->is_rest) || beyond) && !is_extra(name) && !is_scale(g, name))
            CALM_TRY(calm_check_add(g->c, CALM_CHECK_RULE_GGUF_TENSOR_UNKNOWN, name,
                                    beyond ? "the file has %zu blocks" : "%zu blocks",
                                    g->config_known ? g->config.n_blocks : 0));
    }
    return CALM_OK;
}

/* Returns true for experts in an architecture that calm knows without them (Mixtral has llama's name). */
static bool is_other_mixture(const calm_check_gguf_state *g)
{
    char name[96];
    int64_t n = 0;
    snprintf(name, sizeof name, "%s.expert_count", g->list.as->name);
    return calm_gguf_int(calm_gguf_find_key(g->file, name), 0, &n) && n > 0 && !g->list.arch->names->moe.experts;
}

static calm_status check_architecture(calm_check_gguf_state *g)
{
    calm_checking *c = g->c;
    CALM_SCOPED_JSON(config);
    if (!calm_gguf_find_key(g->file, "general.architecture"))
        return calm_check_add(c, CALM_CHECK_RULE_GGUF_KEY_MISSING, "general.architecture", "it is missing");
    if (calm_gguf_list_tensors(c->ctx, g->file, &g->list) != CALM_OK)
        return calm_check_add_failure(
            c, c->ctx->status == CALM_EUNSUPPORTED ? CALM_CHECK_RULE_GGUF_ARCH : CALM_CHECK_RULE_GGUF_KEY_VALUE,
            "general.architecture");
    if (is_other_mixture(g)) {
        g->list.n = 0;
        return calm_check_add(c, CALM_CHECK_RULE_GGUF_ARCH, "general.architecture", "%s with experts",
                              g->list.as->name);
    }
    if (calm_gguf_config(c->ctx, &g->list, add_key_fault, g, &config) != CALM_OK)
        CALM_TRY(calm_check_add_failure(c, CALM_CHECK_RULE_GGUF_ARCH, "general.architecture"));
    CALM_TRY(g->status);
    if (config && !g->keys_bad) {
        g->config_known = calm_config_read(c->ctx, c->path, config, &g->config) == CALM_OK;
        CALM_TRY(g->config_known
                     ? check_tensors(g)
                     : calm_check_add_failure(c, CALM_CHECK_RULE_GGUF_KEY_VALUE, "general.architecture"));
    }
    return check_names(g);
}

calm_status calm_check_gguf(calm_checking *c)
{
    calm_check_gguf_state g = {.c = c};
    if (calm_gguf_open(c->ctx, c->path, &g.file) != CALM_OK) {
        if (c->ctx->status == CALM_ENOTFOUND || c->ctx->status == CALM_EARG)
            return c->ctx->status;
        return calm_check_add_failure(
            c, c->ctx->status == CALM_EUNSUPPORTED ? CALM_CHECK_RULE_GGUF_TYPE : CALM_CHECK_RULE_GGUF_FORM, c->path);
    }
    c->report->n_tensors = calm_gguf_n_tensors(g.file);
    for (size_t i = 0; i < c->report->n_tensors; i++) {
        const calm_gguf_tensor *at = calm_gguf_tensor_at(g.file, i);
        c->report->bytes += at->bytes;
        c->report->n_linears += at->n_dims > 1;
        c->report->n_quantized += calm_ggml_find(at->type)->elements > 1;
    }
    /* The first file of a split model has all keys, each file has some of the tensors. */
    int64_t n = 0;
    const bool split = calm_gguf_int(calm_gguf_find_key(g.file, "split.count"), 0, &n) && n > 1;
    calm_status status =
        split ? calm_check_add(c, CALM_CHECK_RULE_GGUF_SPLIT, c->path, "one of %lld files", (long long)n)
              : check_architecture(&g);
    if (status == CALM_OK && !split)
        status = calm_check_gguf_keys(&g);
    if (status == CALM_OK)
        status = calm_check_gguf_values(&g);
    calm_gguf_close(g.file);
    return status;
}
