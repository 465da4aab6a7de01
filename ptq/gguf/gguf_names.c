/* Maps names of families and tensors to llama.cpp's and back. */
#include "ptq/gguf/gguf_names_impl.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/text.h"

/* Upper bound of a block's words: three per role, which two kinds may list, one per norm or plain tensor, two of a
 * router, four of the tail, eight of residual streams. */
#define MOST_WORDS (6 * CALM_N_ROLES + CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + 2 * CALM_N_PLAINS + 14)

/* Deviations between families follow llama.cpp's convert_hf_to_gguf.py and its loaders. */
static const calm_gguf_arch all[] = {
    {.name = "llama", .family = "llama", .permuted = true, .divided = true, .biases = true},
    {.name = "llama", .family = "mistral", .permuted = true, .divided = true, .biases = true},
    {.name = "llama", .family = "mixtral", .permuted = true, .divided = true, .experts = true,
     .norm_top_k = true},
    {.name = "qwen2", .family = "qwen2", .square = true},
    {.name = "qwen3", .family = "qwen3"},
    {.name = "qwen2moe", .family = "qwen2_moe", .own_head = true, .square = true, .experts = true},
    {.name = "qwen3moe", .family = "qwen3_moe", .experts = true, .norm_top_k = true},
    {.name = "olmoe", .family = "olmoe", .own_head = true, .square = true, .experts = true},
    {.name = "gemma2", .family = "gemma2", .fixed_head = true},
    {.name = "gemma3", .family = "gemma3"},
    {.name = "gemma-embedding", .family = "embeddinggemma", .both_ways = true},
    {.name = "bert", .family = "bert", .both_ways = true, .bare = true, .square = true, .biases = true},
    {.name = "bert", .family = "distilbert", .both_ways = true, .bare = true, .square = true, .biases = true,
     .untyped = true},
    {.name = "bert", .family = "roberta", .both_ways = true, .bare = true, .square = true, .biases = true,
     .padded = true},
    {.name = "bert", .family = "xlm_roberta", .both_ways = true, .bare = true, .square = true, .biases = true,
     .padded = true},
    {.name = "nomic-bert", .family = "nomic_bert", .both_ways = true, .bare = true, .square = true},
    {.name = "modern-bert", .family = "modernbert", .both_ways = true, .bare = true, .square = true},
    {.name = "eurobert", .family = "eurobert", .both_ways = true, .bare = true},
    {.name = "gemma3n", .family = "gemma3n", .shares = true},
    {.name = "gemma4", .family = "gemma4", .shares = true},
    {.name = "gemma4", .family = "gemma4", .shares = true, .experts = true, .norm_top_k = true},
    {.name = "olmo2", .family = "olmo2", .own_head = true, .square = true},
    {.name = "olmo2", .family = "olmo3", .own_head = true, .square = true, .quarter = true, .windows = true},
    {.name = "smollm3", .family = "smollm3", .permuted = true, .quarter = true},
    {.name = "seed_oss", .family = "seed_oss", .mlp_norm = "post_attention_norm"},
    {.name = "exaone4", .family = "exaone4", .quarter = true, .divided = true},
    {.name = "ernie4_5", .family = "ernie4_5"},
    {.name = "hunyuan-dense", .family = "hunyuan_v1_dense"},
    {.name = "glm4", .family = "glm4", .partial = true},
    {.name = "granite", .family = "granite", .permuted = true, .divided = true, .scaled = true},
    {.name = "granitemoe", .family = "granitemoe", .permuted = true, .divided = true, .scaled = true,
     .experts = true, .norm_top_k = true},
    {.name = "granitehybrid", .family = "granitemoehybrid", .permuted = true, .scaled = true, .scans = true,
     .halves = true},
    {.name = "granitehybrid", .family = "granitemoehybrid", .permuted = true, .scaled = true, .scans = true,
     .halves = true, .experts = true, .norm_top_k = true, .shared_alone = true},
    {.name = "nemotron_h", .family = "nemotron_h", .scans = true, .single = true},
    {.name = "nemotron_h_moe", .family = "nemotron_h", .scans = true, .single = true, .experts = true, .routes = true},
    {.name = "llama4", .family = "llama4", .divided = true, .experts = true, .quarter = true, .chunks = true},
    {.name = "gpt-oss", .family = "gpt_oss", .own_head = true, .biases = true, .needs_bias = true, .experts = true,
     .norm_top_k = true, .mlp_norm = "post_attention_norm"},
    {.name = "mistral3", .family = "ministral3", .permuted = true, .divided = true, .grows = true},
    {.name = "cohere2", .family = "cohere2", .square = true, .fixed_head = true, .scaled = true, .quarter = true},
    {.name = "glm4moe", .family = "glm4_moe", .partial = true, .experts = true, .dense_lead = true, .routes = true,
     .mlp_norm = "post_attention_norm"},
    {.name = "minimax-m2", .family = "minimax_m2", .own_head = true, .partial = true, .experts = true,
     .norm_top_k = true},
    {.name = "ernie4_5-moe", .family = "ernie4_5_moe", .experts = true, .dense_lead = true, .norm_top_k = true,
     .flat_bias = true},
    {.name = "phimoe", .family = "phimoe", .own_head = true, .square = true, .experts = true, .biases = true,
     .needs_bias = true, .head_bias = true, .other = true},
    {.name = "starcoder2", .family = "starcoder2", .biases = true, .needs_bias = true},
    {.name = "lfm2", .family = "lfm2", .convs = true, .final_norm = "token_embd_norm"},
    {.name = "lfm2moe", .family = "lfm2_moe", .convs = true, .experts = true, .dense_lead = true, .norm_top_k = true,
     .final_norm = "token_embd_norm"},
    {.name = "deepseek2", .family = "deepseek_v2", .experts = true, .dense_lead = true, .routes = true},
    {.name = "deepseek2", .family = "deepseek_v3", .experts = true, .dense_lead = true, .routes = true,
     .sigmoid = true},
    {.name = "deepseek2", .family = "glm4_moe_lite", .experts = true, .dense_lead = true, .routes = true,
     .sigmoid = true},
    {.name = "qwen35", .family = "qwen3_5", .tiled = true, .deltas = true, .partial = true,
     .mlp_norm = "post_attention_norm"},
    {.name = "qwen35moe", .family = "qwen3_5_moe", .tiled = true, .deltas = true, .partial = true, .experts = true,
     .norm_top_k = true, .mlp_norm = "post_attention_norm"},
    {.name = "qwen3next", .family = "qwen3_next", .deltas = true, .partial = true, .experts = true, .norm_top_k = true,
     .mlp_norm = "post_attention_norm"},
};

const calm_gguf_arch *calm_gguf_arch_of(const calm_arch *arch, bool experts)
{
    const calm_gguf_arch *found = NULL;
    /* The first row of a family, or a later one that matches better. */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].family, arch->name) == 0 && (!found || all[i].experts == experts))
            found = &all[i];
    return found;
}

const calm_gguf_arch *calm_gguf_arch_in(const calm_config *config)
{
    return calm_gguf_arch_of(config->arch, config->moe.n_experts > 0);
}

const calm_gguf_arch *calm_gguf_arch_at(size_t i)
{
    return i < sizeof all / sizeof *all ? &all[i] : NULL;
}

bool calm_gguf_takes_bias(const calm_gguf_arch *as, calm_role role)
{
    size_t n;
    const calm_kind *const *kinds = calm_kinds(&n);
    /* Biases of all linears, or of those that have one in every architecture. */
    bool takes = as->biases;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < kinds[k]->n_words; i++)
            takes |= kinds[k]->words[i].role == role && kinds[k]->words[i].bias;
    return takes;
}

/* ---- words ---- */

/* A module of a block and llama.cpp's word for it. */
typedef struct word {
    const char *parent; /* "mlp.shared_expert", "mlp.experts": the module is parent + "." + its last word; NULL: none */
    const char *module;    /* "self_attn.q_proj" */
    const char *word;      /* "attn_q" */
    bool experts;          /* a number follows the parent */
    calm_gguf_form form;
    bool whole;            /* module and word are full tensor names: "self_attn.sinks", "attn_sinks.weight" */
    bool minus_exp, taps;
} word;

/* Returns the form, or AS_IS in families that do not have the order. */
static calm_gguf_form form_in(const calm_gguf_arch *as, calm_gguf_form form)
{
    const bool turns = form == CALM_GGUF_Q || form == CALM_GGUF_K;
    const bool tiles = form == CALM_GGUF_MIXED || form == CALM_GGUF_VALUES || form == CALM_GGUF_GATES
                       || form == CALM_GGUF_VALUE_COLUMNS;
    return (turns && !(as && as->permuted)) || (tiles && !(as && as->tiled)) ? CALM_GGUF_AS_IS : form;
}

/* Adds a word, unless the family does not have the module. */
static void add(word *words, size_t *n, const char *module, const char *name)
{
    if (module)
        words[(*n)++] = (word){.module = module, .word = name};
}

/* Does the family's spelling of gate and up (one word for the fused matrix, or one for each half) match the entry? */
static bool is_spelled_so(const calm_gguf_arch *as, const calm_kind_word *role)
{
    const bool half = role->form == CALM_GGUF_FIRST_HALF || role->form == CALM_GGUF_LAST_HALF;
    return role->role != CALM_ROLE_FUSED_GATE_UP || half == (as && as->halves);
}

/* Adds the words of a role: as a linear, as the tensor of all experts, and of the shared expert. */
static void add_role(const calm_arch *arch, const calm_gguf_arch *as, const calm_kind_word *role, word *words,
                     size_t *n)
{
    const calm_names *names = arch->names;
    const char *module = names->role[role->role], *own = calm_expert_word(names, role->role);
    /* A family has one of three spellings of gate and up. */
    if (!is_spelled_so(as, role))
        return;
    /* llama.cpp rotates neighbouring channels in these families, for which files permute rows of q and k. */
    if (module && !(as && as->shared_alone && role->shared))
        words[(*n)++] = (word){.module = module, .word = role->word, .form = form_in(as, role->form)};
    if (own && role->many && names->moe.experts)
        words[(*n)++] = (word){.parent = names->moe.experts, .module = own, .word = role->many, .experts = true};
    if (module && role->shared && names->moe.shared && as && as->experts)
        words[(*n)++] = (word){.parent = names->moe.shared, .module = calm_text_last_word(module), .word = role->shared,
                               .form = form_in(as, role->form)};
}

/* Adds the words of the tail. */
static void add_tail(const calm_tail_names *tail, word *words, size_t *n)
{
    if (!tail)
        return;
    if (tail->scale)
        words[(*n)++] = (word){.module = tail->scale, .word = "layer_output_scale.weight", .whole = true};
    add(words, n, tail->gate, "inp_gate");
    add(words, n, tail->projection, "proj");
    add(words, n, tail->norm, "post_norm");
}

/* Adds the words of residual streams (streams.h) within a block. */
static void add_streams(const calm_stream_names *names, word *words, size_t *n)
{
    if (!names)
        return;
    add(words, n, names->router_norm, "altup_router_norm");
    add(words, n, names->router, "altup_router");
    add(words, n, names->predict, "altup_predict_coef");
    add(words, n, names->correct, "altup_correct_coef");
    words[(*n)++] = (word){.module = names->scale, .word = "altup_correct_scale.weight", .whole = true};
    add(words, n, names->left, "laurel_l");
    add(words, n, names->right, "laurel_r");
    add(words, n, names->laurel_norm, "laurel_post_norm");
}

/* Lists all words of a family; returns their number. */
static size_t list_words(const calm_arch *arch, const calm_gguf_arch *as, word words[MOST_WORDS])
{
    static const char *const norms[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES] = {
        {"attn_norm", "post_attention_norm", "attn_output_norm"}, {"ffn_norm", "post_ffw_norm", "layer_output_norm"}};
    const calm_names *names = arch->names;
    size_t n = 0, n_kinds;
    const calm_kind *const *kinds = calm_kinds(&n_kinds);
    for (size_t k = 0; k < n_kinds; k++)
        for (size_t i = 0; i < kinds[k]->n_words; i++)
            add_role(arch, as, &kinds[k]->words[i], words, &n);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            add(words, &n, names->norm[s][place],
                as && as->mlp_norm && s == CALM_SUBLAYER_MLP && place == CALM_NORM_IN ? as->mlp_norm
                                                                                      : norms[s][place]);
    for (size_t k = 0; k < n_kinds; k++)
        for (size_t i = 0; i < kinds[k]->n_plains; i++)
            if (kinds[k]->plains[i].word && names->plain[kinds[k]->plains[i].plain])
                words[n++] = (word){.module = names->plain[kinds[k]->plains[i].plain],
                                    .word = kinds[k]->plains[i].word,
                                    .form = form_in(as, kinds[k]->plains[i].order),
                                    .minus_exp = kinds[k]->plains[i].minus_exp,
                                    .taps = kinds[k]->plains[i].taps,
                                    .whole = kinds[k]->plains[i].form == CALM_PLAIN_TENSOR};
    /* The checkpoint's name already ends with the tensor's word. */
    if (names->moe.choice_bias)
        words[n++] = (word){.module = names->moe.choice_bias, .word = CALM_GGUF_CHOICE_BIAS, .whole = true};
    add(words, &n, names->moe.router, "ffn_gate_inp");
    add(words, &n, names->moe.shared_gate, "ffn_gate_inp_shexp");
    add_tail(names->tail, words, &n);
    add_streams(names->streams, words, &n);
    return n;
}

/* A module outside of the blocks, after the prefix, NULL where the family has none; and llama.cpp's word for it. */
typedef struct outer_word {
    const char *module, *word;
    calm_gguf_form form;
    bool bias;      /* it may have a bias */
    bool copies;    /* MODULE.0, MODULE.1 and so on are one tensor of three dimensions in the file */
} outer_word;

#define OUTER_WORDS 10
#define SPLIT_WORD  "altup_proj"
#define MERGE_WORD  "altup_unembd_proj"

/* Lists the modules outside of the blocks; the module of one that the family lacks is NULL. */
static void list_outer(const calm_arch *arch, const calm_gguf_arch *as, outer_word words[OUTER_WORDS])
{
    const calm_ends no_ends = {0}, *ends = arch->ends ? arch->ends : &no_ends;
    const calm_tail_names no_tail = {0}, *tail = arch->names->tail ? arch->names->tail : &no_tail;
    const calm_stream_names none = {0}, *streams = arch->names->streams ? arch->names->streams : &none;
    const bool biased = calm_arch_norm_biased(arch);
    const outer_word list[OUTER_WORDS] = {
        {.module = arch->names->embed, .word = "token_embd"},
        {.module = arch->names->final_norm, .word = as && as->final_norm ? as->final_norm : "output_norm",
         .bias = biased},
        {.module = ends->norm, .word = "token_embd_norm", .bias = biased},
        /* Files have no rows of padding. */
        {.module = ends->positions, .word = "position_embd",
         .form = as && as->padded ? CALM_GGUF_LATER_ROWS : CALM_GGUF_AS_IS},
        {.module = ends->types, .word = "token_types"},
        {.module = tail->table, .word = "per_layer_token_embd"},
        {.module = tail->context, .word = "per_layer_model_proj"},
        {.module = tail->context_norm, .word = "per_layer_proj_norm"},
        {.module = streams->split, .word = SPLIT_WORD, .copies = true},
        {.module = streams->merge, .word = MERGE_WORD, .copies = true}};
    memcpy(words, list, sizeof list);
}

/* Returns the ending ".weight" or ".bias" of a name; NULL: another ending. */
static const char *ending(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0) ? dot : NULL;
}

/* Is text [n] equal to `expected`?  NULL: no. */
static bool is_word(const char *text, size_t n, const char *expected)
{
    return expected && strlen(expected) == n && memcmp(text, expected, n) == 0;
}

/* Is it a norm of CALM_PLAIN_RMS_NORM, whose weight multiplies directly? */
static bool is_bare_norm(const calm_arch *arch, const char *name)
{
    const char *dot = ending(name);
    size_t n;
    const calm_kind *const *kinds = calm_kinds(&n);
    for (size_t k = 0; dot && k < n; k++)
        for (size_t i = 0; i < kinds[k]->n_plains; i++) {
            const char *module = arch->names->plain[kinds[k]->plains[i].plain];
            const size_t length = module ? strlen(module) : 0;
            if (module && kinds[k]->plains[i].form == CALM_PLAIN_RMS_NORM && (size_t)(dot - name) >= length
                && memcmp(dot - length, module, length) == 0)
                return true;
        }
    return false;
}

/* Does the file store 1 + w, because the family's norms multiply by 1 + w? */
static bool adds_one(const calm_arch *arch, const char *name)
{
    return arch->norm == CALM_NORM_RMS_PLUS_ONE && calm_text_ends_with(name, "norm.weight")
           && !is_bare_norm(arch, name);
}

/* ---- from a checkpoint ---- */

/* Does the word match `rest` [n], the module within a block?  *expert gets its number, if it has one. */
static bool has_word(const word *w, const char *rest, size_t n, long *expert)
{
    size_t number;
    const char *at = rest;
    *expert = CALM_NO_EXPERT;
    /* "mlp.experts.7.up_proj": the parent, for experts a number, and the last word. */
    if (w->parent) {
        const size_t length = strlen(w->parent);
        if (n <= length || strncmp(rest, w->parent, length) != 0 || rest[length] != '.')
            return false;
        at += length + 1;
        if (w->experts) {
            if (!calm_arch_take_number(&at, &number) || at > rest + n)
                return false;
            *expert = (long)number;
        }
    }
    return is_word(at, (size_t)(rest + n - at), w->module);
}

/* Fills in the form of a tensor with this word. */
static void take_form(const word *w, calm_gguf_spot *out)
{
    out->form = w->form;
    out->minus_exp = w->minus_exp;
    out->taps = w->taps;
}

/* Finds the spot of a module of block `block`; `rest`: its name after the number. */
static calm_status spot_in_block(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *rest,
                                 size_t block, calm_gguf_spot *out, bool *known)
{
    word words[MOST_WORDS];
    /* The list is built for each tensor: some twenty rows cost little compared with reading the tensor. */
    const size_t n = list_words(arch, as, words);
    const char *dot = ending(rest);
    bool first;
    /* A plain tensor matches with its full name; only modules have an ending to remove. */
    for (size_t i = 0; i < n && !*known; i++) {
        *known = words[i].whole && strcmp(rest, words[i].module) == 0;
        if (*known)
            CALM_TRY(calm_strf(ctx, ctx->out, &out->name, "blk.%zu.%s", block, words[i].word));
        if (*known)
            take_form(&words[i], out);
    }
    for (size_t i = 0; dot && i < n && !out->rest; i++) {
        long expert;
        if (words[i].whole || !has_word(&words[i], rest, (size_t)(dot - rest), &expert))
            continue;
        /* A second word is that of the other part. */
        if (*known) {
            out->rest_form = words[i].form;
            CALM_TRY(calm_strf(ctx, ctx->out, &out->rest, "blk.%zu.%s%s", block, words[i].word, dot));
            continue;
        }
        out->expert = expert;
        take_form(&words[i], out);
        *known = true;
        CALM_TRY(calm_strf(ctx, ctx->out, &out->name, "blk.%zu.%s%s", block, words[i].word, dot));
        if (!calm_gguf_order_is_part(out->form, &first))
            return CALM_OK;
    }
    return CALM_OK;
}

/* Is text [n] the module, or one of its copies, whose number *expert gets? */
static bool is_outer(const outer_word *w, const char *text, size_t n, long *expert)
{
    const size_t length = w->module && w->copies ? strlen(w->module) : 0;
    const char *at = text + length + 1;
    size_t number;
    if (!length)
        return is_word(text, n, w->module);
    if (n <= length || strncmp(text, w->module, length) != 0 || text[length] != '.'
        || !calm_arch_take_number(&at, &number) || at != text + n + 1)
        return false;
    *expert = (long)number;
    return true;
}

calm_status calm_gguf_spot_of(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                              const char *tensor, calm_gguf_spot *out, bool *known)
{
    const calm_names *names = arch->names;
    const size_t length = strlen(prefix);
    const char *rest = strncmp(tensor, prefix, length) == 0 ? tensor + length : NULL, *dot = ending(tensor);
    const char *within = calm_arch_in_block(arch, prefix, tensor);
    outer_word words[OUTER_WORDS];
    const char *head;
    size_t block;
    *out = (calm_gguf_spot){.expert = CALM_NO_EXPERT, .plus_one = adds_one(arch, tensor)};
    *known = false;
    /* Within a block; a tensor whose block number is invalid has no place. */
    if (within)
        return calm_arch_take_number(&within, &block) ? spot_in_block(ctx, arch, as, within, block, out, known)
                                                      : CALM_OK;
    list_outer(arch, as, words);
    for (int i = 0; i < OUTER_WORDS && rest && dot && !out->name; i++)
        if (dot >= rest && is_outer(&words[i], rest, (size_t)(dot - rest), &out->expert)) {
            out->form = words[i].form;
            CALM_TRY(calm_strf(ctx, ctx->out, &out->name, "%s%s", words[i].word, dot));
        }
    /* Only the head is outside of the prefix; files of encoders have none. */
    CALM_TRY(calm_head_module(ctx, names, prefix, &head));
    if (!out->name && !(as && as->both_ways) && dot && is_word(tensor, (size_t)(dot - tensor), head))
        CALM_TRY(calm_strf(ctx, ctx->out, &out->name, "output%s", dot));
    *known = out->name != NULL;
    return CALM_OK;
}

/* ---- from a GGUF file ---- */

size_t calm_gguf_experts_in(const calm_gguf_tensor *tensor)
{
    const char *name = tensor->name, *dot = strrchr(name, '.');
    /* The linears of residual streams are numbered like experts. */
    if (strcmp(name, SPLIT_WORD ".weight") == 0 || strcmp(name, MERGE_WORD ".weight") == 0)
        return tensor->n_dims == 3 ? tensor->dims[2] : 0;
    if (strncmp(name, "blk.", 4) != 0 || !dot || dot - name <= 5 || strncmp(dot - 5, "_exps", 5) != 0)
        return 0;
    /* The biases of all experts are a matrix with a row for each. */
    return tensor->n_dims == 3                                  ? tensor->dims[2]
           : tensor->n_dims == 2 && strcmp(dot, ".bias") == 0 ? tensor->dims[1]
                                                                : 0;
}

/* Makes the name of the module of block N that has this word. */
static calm_status name_in_block(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                                 calm_gguf_spot *spot, char **out)
{
    /* Endings other than weight and bias (".scale") are unknown. */
    const char *at = spot->name + strlen("blk."), *dot = ending(spot->name);
    word words[MOST_WORDS];
    const size_t n = list_words(arch, as, words);
    size_t block;
    if (!calm_arch_take_number(&at, &block))
        return CALM_OK;
    for (size_t i = 0; i < n; i++)
        if (words[i].whole && strcmp(at, words[i].word) == 0) {
            take_form(&words[i], spot);
            return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s", prefix, arch->names->blocks, block, words[i].module);
        }
    for (size_t i = 0; dot && at <= dot && i < n; i++) {
        const word *w = &words[i];
        if (w->whole)
            continue;
        /* An experts' word names one matrix of a tensor; the whole tensor, or a dense word with a number, is no tensor
         * of a checkpoint. */
        if (!is_word(at, (size_t)(dot - at), w->word) || w->experts != (spot->expert >= 0))
            continue;
        take_form(w, spot);
        if (w->experts)
            return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s.%ld.%s%s", prefix, arch->names->blocks, block, w->parent,
                             spot->expert, w->module, dot);
        return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s%s%s%s", prefix, arch->names->blocks, block,
                         w->parent ? w->parent : "", w->parent ? "." : "", w->module, dot);
    }
    return CALM_OK;
}

calm_status calm_gguf_name_of(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                              calm_gguf_spot *spot, char **out)
{
    const calm_names *names = arch->names;
    const char *dot = ending(spot->name);
    outer_word words[OUTER_WORDS];
    *out = NULL;
    take_form(&(word){0}, spot);
    list_outer(arch, as, words);
    for (int i = 0; i < OUTER_WORDS && dot && !*out; i++)
        if (words[i].module && is_word(spot->name, (size_t)(dot - spot->name), words[i].word)
            && words[i].copies == (spot->expert >= 0) && (strcmp(dot, ".weight") == 0 || words[i].bias)) {
            spot->form = words[i].form;
            CALM_TRY(words[i].copies ? calm_strf(ctx, ctx->out, out, "%s%s.%ld%s", prefix, words[i].module,
                                                 spot->expert, dot)
                                     : calm_strf(ctx, ctx->out, out, "%s%s%s", prefix, words[i].module, dot));
        }
    if (strncmp(spot->name, "blk.", 4) == 0)
        CALM_TRY(name_in_block(ctx, arch, as, prefix, spot, out));
    else if (!*out && names->head && !as->both_ways
             && (strcmp(spot->name, "output.weight") == 0
                 || (strcmp(spot->name, "output.bias") == 0 && as->head_bias)))
        CALM_TRY(calm_strf(ctx, ctx->out, out, "%s%s", names->head, ending(spot->name)));
    spot->plus_one = *out && adds_one(arch, *out);
    return CALM_OK;
}
