/* Finds the use of tensors: parses names like model.c and head.c construct them. */
#include "ptq/model/tensor_use.h"

#include <ctype.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/model/extra_tensors.h"
#include "ptq/weights/qformat.h"

/* The model's properties that its tensors' names follow from. */
typedef struct names {
    const calm_config *config;
    const calm_layout *layout;
    const char *prefix;
} names;

/* Returns the part of `text` after `head`; NULL: it does not begin with `head`, or `head` is NULL. */
static const char *behind(const char *text, const char *head)
{
    const size_t n = head ? strlen(head) : 0;
    return text && head && strncmp(text, head, n) == 0 ? text + n : NULL;
}

/* Is `text` the expected one?  behind() returns NULL where there is no text to compare. */
static bool is(const char *text, const char *expected)
{
    return text && strcmp(text, expected) == 0;
}

/* Is `text` MODULE.weight? */
static bool is_weight(const char *text, const char *module)
{
    return is(behind(text, module), ".weight");
}

/* Is `text` a weight, or a LayerNorm's bias, of the norm `module`?  The first BERT checkpoints use gamma and beta. */
static bool is_norm(const names *of, const char *text, const char *module)
{
    const char *end = behind(text, module);
    /* RMSNorms have no bias: one in the file is not read, as in transformers. */
    return is(end, ".weight") || (of->config->arch->norm == CALM_NORM_LAYER && is(end, ".gamma"))
           || (of->config->norm_bias && (is(end, ".bias") || is(end, ".beta")));
}

/* Is `text` a weight or bias of the linear `module`? */
static bool is_linear(const char *text, const char *module, bool bias)
{
    const char *end = behind(text, module);
    return is(end, ".weight") || (bias && is(end, ".bias"));
}

/* ---- blocks ---- */

/* Does a sublayer have a plain tensor of this name? */
static bool is_plain(const names *of, const calm_config *config, const calm_kind *kind, const char *rest)
{
    size_t shape[CALM_PLAIN_DIMS];
    int n_dims;
    for (size_t i = 0; kind && i < kind->n_plains; i++) {
        const calm_kind_plain *plain = &kind->plains[i];
        const char *name = config->arch->names->plain[plain->plain];
        if (calm_plain_shape(config, kind, plain->plain, shape, &n_dims)
            && (plain->form == CALM_PLAIN_FAMILY_NORM ? is_norm(of, rest, name)
                : plain->form == CALM_PLAIN_RMS_NORM  ? is_weight(rest, name)
                                                      : is(rest, name)))
            return true;
    }
    return false;
}

/* Returns the part after NAME, or after one of NAME.0 .. NAME.copies - 1; NULL: it is none of them. */
static const char *behind_copy(const char *text, const calm_extra_tensor *part)
{
    const char *rest = behind(text, part->name);
    size_t number = 0;
    if (!part->copies || !rest)
        return rest;
    /* A number without leading zeros; parsing stops when it is too large. */
    if (*rest != '.' || !isdigit((unsigned char)rest[1]) || (rest[1] == '0' && isdigit((unsigned char)rest[2])))
        return NULL;
    for (rest++; isdigit((unsigned char)*rest) && number < part->copies; rest++)
        number = 10 * number + (size_t)(*rest - '0');
    return number < part->copies ? rest : NULL;
}

/* Does it belong to the tail or to residual streams, within a block or outside? */
static bool is_of_tail(const names *of, bool outer, const char *rest)
{
    calm_extra_tensor list[CALM_EXTRA_TENSORS];
    for (size_t i = calm_extra_tensors(of->config, list); i-- > 0;)
        if (list[i].outer == outer && (list[i].form == CALM_EXTRA_TENSOR ? is(rest, list[i].name)
                                       : list[i].form == CALM_EXTRA_NORM ? is_norm(of, rest, list[i].name)
                                                                        : is(behind_copy(rest, &list[i]), ".weight")))
            return true;
    return false;
}

/* Does the block have a norm, a router or a gate of this name? */
static bool is_beside_linears(const names *of, size_t block, const char *rest)
{
    const calm_config *config = of->config;
    const calm_names *words = config->arch->names;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place p = 0; p < CALM_N_NORM_PLACES; p++)
            if (calm_has_norm(config->arch, block, s, p) && is_norm(of, rest, words->norm[s][p]))
                return true;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        if (is_plain(of, calm_config_at(config, block), calm_kind_at(config, block, s), rest))
            return true;
    if (is_of_tail(of, false, rest))
        return true;
    /* A dense block has no router, even where other blocks have one. */
    return config->moe.sparse[block]
           && (is_weight(rest, words->moe.router) || (config->moe.choice_bias && is(rest, words->moe.choice_bias))
               || (config->moe.shared_inner && is_weight(rest, words->moe.shared_gate)));
}

/* Does the tensor belong to a linear of the block? */
static bool is_of_linears(const names *of, size_t block, const char *name)
{
    /* A binary search: a large mixture has 10^5 linears and as many tensors to look up. */
    const char *dot = strrchr(name, '.');
    const calm_named_linear *found = dot ? calm_layout_find(of->layout, name, (size_t)(dot - name)) : NULL;
    return found && found->job->block == block && is_linear(name, found->linear->module, found->linear->bias);
}

/* ---- outside of them ---- */

/* Is it one of the heads of encoders, or of their embeddings (head.c, embed.c)? */
static bool is_of_encoder(const names *of, const char *name)
{
    const calm_ends *ends = of->config->arch->ends;
    const char *rest = behind(name, of->prefix);
    /* Embeddings, their norm and the pooler follow the prefix; the masked language model's head does not. */
    return is_weight(rest, ends->positions) || (of->config->n_types && is_weight(rest, ends->types))
           || is_norm(of, rest, ends->norm) || is_linear(rest, ends->pooler, true)
           || is_linear(name, ends->transform, true) || is_norm(of, name, ends->transform_norm)
           || (ends->bias && calm_text_listed(ends->bias, '|', name));
}

/* Does the model read a tensor of this name outside of its blocks? */
static bool is_outside(const names *of, const char *name)
{
    const calm_names *words = of->config->arch->names;
    const char *rest = behind(name, of->prefix);
    /* The head is outside of the prefix. */
    return is_weight(rest, words->embed) || is_weight(rest, words->distance) || is_norm(of, rest, words->final_norm)
           || is_of_tail(of, true, rest)
           || is_linear(name, of->layout->head, of->config->head_bias)
           || (of->config->arch->ends && is_of_encoder(of, name));
}

/* Do config.json or positions determine the tensor's values?  These are names that llama.cpp's converter and
 * transformers' loaders ignore. */
static bool is_buffer(const char *name)
{
    static const char *const ends[] = {"rotary_emb.inv_freq",   "rotary_pos_emb.inv_freq", "rotary_emb.cos_cached",
                                       "rotary_emb.sin_cached", ".masked_bias",            ".attn.bias",
                                       ".attention.bias",       "embeddings.position_ids",
                                       "rotary_emb.original_inv_freq"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (calm_text_ends_with(name, ends[i]))
            return true;
    return false;
}

/* Is it the stored Hadamard matrix of a linear, which config.json determines? */
static bool is_transform(const names *of, const char *name)
{
    const size_t n = calm_qformat_matrix_module(name);
    const calm_named_linear *found = n ? calm_layout_find(of->layout, name, n) : NULL;
    return found && of->config->hadamard[found->job->kind];
}

calm_tensor_use calm_tensor_use_of(const calm_config *config, const calm_layout *layout, const char *prefix,
                                   const char *name)
{
    const names of = {config, layout, prefix};
    const char *rest = NULL;
    const long block = calm_arch_block_of(config->arch, prefix, name, &rest);
    /* Buffers of such a block count too, since the whole block is surplus. */
    if (block >= (long)config->n_blocks)
        return CALM_TENSOR_BEYOND;
    /* In an open model `tied` means that both tables are equal (check_tie in model.c). */
    if (block < 0 && config->tied && is_weight(name, layout->head))
        return CALM_TENSOR_COPY;
    if (block < 0 ? is_outside(&of, name)
                  : is_beside_linears(&of, (size_t)block, rest) || is_of_linears(&of, (size_t)block, name))
        return CALM_TENSOR_READ;
    /* Last, since a tensor that the family reads may have the ending of a buffer. */
    return is_buffer(name) || is_transform(&of, name) ? CALM_TENSOR_BUFFER : CALM_TENSOR_FOREIGN;
}

calm_tensor_use calm_model_tensor_use(const calm_model *model, const char *name)
{
    return calm_tensor_use_of(calm_model_config(model), calm_model_layout(model), calm_model_prefix(model), name);
}

bool calm_tensor_mlx_has_biases(const calm_arch *arch)
{
    return !calm_text_listed("qwen3|qwen3_moe|gemma2|gemma3|phi3", '|', arch->name);
}

/* ---- lists ---- */

/* Do two names differ only in their numbers? */
static bool are_alike(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return false;
        }
    }
    /* Both names must end here: one may be the beginning of the other. */
    return *a == *b;
}

void calm_model_names_add(calm_name_kinds *kinds, const char *name)
{
    size_t k = 0;
    while (k < kinds->n && !are_alike(kinds->of[k].first, name))
        k++;
    if (k == CALM_NAME_KINDS) {
        kinds->beyond++;
        return;
    }
    if (k == kinds->n)
        kinds->of[kinds->n++] = (calm_name_kind){name, 0};
    kinds->of[k].n++;
}

static void print_kinds(const calm_name_kinds *kinds, calm_text *out)
{
    for (size_t k = 0; k < kinds->n; k++) {
        calm_text_printf(out, "%s%s", k ? ", " : "", kinds->of[k].first);
        if (kinds->of[k].n > 1)
            calm_text_printf(out, " and %zu of other numbers", kinds->of[k].n - 1);
    }
    if (kinds->beyond)
        calm_text_printf(out, ", and %zu more", kinds->beyond);
}

size_t calm_model_list_use(const calm_model *model, calm_tensor_use use, calm_text *out)
{
    const calm_safetensors *set = calm_model_tensors(model);
    calm_name_kinds kinds = {.n = 0};
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const char *name = calm_safetensors_at(set, i)->name;
        if (calm_model_tensor_use(model, name) != use)
            continue;
        n++;
        calm_model_names_add(&kinds, name);
    }
    if (out)
        print_kinds(&kinds, out);
    return n;
}
