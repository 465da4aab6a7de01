/* Keys of config.json: read, harmless, or refused.
 *
 * A key that nothing reads may change the computation in an unknown way.  It is refused unless it is off (null, false
 * or empty), or the table (config_keys.def) says that no logit depends on it, or the caller accepts it.  A caller
 * cannot accept keys that change logits by the table, or that transformers' code of the family reads
 * (config_reads.def). */
#include <string.h>

#include "ptq/arch/arch.h"

/* Keys that config.c and config_rope.c read for every family, and the entry of quantized checkpoints. */
static const char common[] =
    "architectures model_type hidden_size intermediate_size num_hidden_layers vocab_size max_position_embeddings "
    "num_attention_heads num_key_value_heads head_dim tie_word_embeddings torch_dtype dtype quantization_config "
    "quantization is_causal";

/* Keys that are read where there is a rotary embedding, RMSNorm, LayerNorm. */
static const char rotary[] =
    "rope_theta rope_scaling rope_parameters partial_rotary_factor original_max_position_embeddings";

/* Keys that some families read, and that files of all families may have. */
static const char some[] = "hidden_act layer_norm_eps rms_norm_eps";

typedef enum key_kind { UNREAD, INERT, CHANGES } key_kind;

typedef struct table_key {
    const char *name;
    key_kind kind;
    const char *usual, *effect;    /* CHANGES: the value without effect, and the effect of others */
} table_key;

static const table_key table[] = {
#define CALM_CONFIG_UNREAD(name, reason)         {name, UNREAD, NULL, NULL},
#define CALM_CONFIG_INERT(name, reason)          {name, INERT, NULL, NULL},
#define CALM_CONFIG_CHANGES(name, usual, effect) {name, CHANGES, usual, effect},
#include "ptq/arch/config_keys.def"
};

typedef struct family_reads {
    const char *family, *keys;
} family_reads;

static const family_reads reads[] = {
#define CALM_CONFIG_READS(family, keys) {family, keys},
#include "ptq/arch/config_reads.def"
#include "ptq/base/text.h"
};

/* Finds a key in the table; NULL: it is not there. */
static const table_key *find(const char *key)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, key) == 0)
            return &table[i];
    return NULL;
}

/* Does transformers' code of the family read the key? */
static bool family_reads_key(const calm_arch *arch, const char *key)
{
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if ((strcmp(reads[i].family, "shared") == 0 || strcmp(reads[i].family, arch->name) == 0) &&
            calm_text_listed(reads[i].keys, ' ', key))
            return true;
    return false;
}

static bool is(const char *name, const char *key)
{
    return name && strcmp(name, key) == 0;
}

/* Is it one of the family's own keys of sizes? */
static bool is_size(const calm_size_keys *sizes, const char *key)
{
    return sizes && (is(sizes->hidden, key) || is(sizes->inner, key) || is(sizes->blocks, key) ||
                     is(sizes->heads, key) || is(sizes->positions, key) || is(sizes->eps, key) ||
                     is(sizes->activation, key) || is(sizes->inner_first, key));
}

/* Does calm read the key? */
static bool calm_reads_key(const calm_arch *arch, const char *key)
{
    return calm_text_listed(common, ' ', key) || calm_text_listed(some, ' ', key) ||
           calm_config_own_key(arch, key) || is_size(arch->sizes, key) || is_size(arch->old_sizes, key) ||
           is(arch->block_list, key) || is(arch->block_word, key) || is(arch->theta_key, key) ||
           is(arch->local_theta_key, key) ||
           (arch->default_rope_theta > 0 && calm_text_listed(rotary, ' ', key));
}

/* Is it a value at which an unknown setting has no effect? */
static bool is_off(const calm_json *value)
{
    const calm_json_type type = calm_json_typeof(value);
    /* Zero is not "off": it is a number like any other. */
    return type == CALM_JSON_NULL || (type == CALM_JSON_BOOL && !calm_json_bool(value, true)) ||
           (type == CALM_JSON_STRING && calm_json_string_length(value) == 0) ||
           ((type == CALM_JSON_ARRAY || type == CALM_JSON_OBJECT) && calm_json_size(value) == 0);
}

/* Is it the value at which a key of kind CHANGES has no effect: off, or the table's value? */
static bool is_usual(const table_key *key, const calm_json *value)
{
    if (strcmp(key->usual, "true") == 0)
        return calm_json_typeof(value) == CALM_JSON_NULL || calm_json_bool(value, false);
    const bool number = key->usual[0] && calm_json_number(value, -1) == key->usual[0] - '0';
    return number || is_off(value);
}

/* Does "is_causal", which models with bidirectional and causal code write, agree with the family? */
static bool sees_as_family(const calm_arch *arch, const char *key, const calm_json *value)
{
    return strcmp(key, "is_causal") != 0 || calm_json_bool(value, !arch->both_ways) == !arch->both_ways;
}

/* Refuses a key with a known effect; a caller cannot accept it. */
static calm_status refuse_known(calm_ctx *ctx, const char *path, const char *key, const char *value,
                                const calm_arch *arch, const char *effect)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": %.80s: %s, which calm does not compute for %s; "
                     "`accept_keys` cannot lift this", path, key, value,
                     effect ? effect : "a setting that transformers' code of the family reads", arch->name);
}

/* Refuses an unknown key, and says how a caller can accept it. */
static calm_status refuse(calm_ctx *ctx, const char *path, const char *key, const char *value, const calm_arch *arch)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": %.80s: not a setting that calm knows for %s, and calm does "
                     "not know what it changes; if it changes nothing in the forward pass: `accept_keys` %s",
                     path, key, value, arch->name, key);
}

/* Checks one key that calm does not read. */
static calm_status judge(calm_ctx *ctx, const char *path, const char *key, const calm_json *value,
                         const calm_arch *arch, const calm_words *accepted)
{
    const table_key *known = find(key);
    const bool changes = known && known->kind == CHANGES, inert = known && known->kind == INERT;
    CALM_SCOPED_TEXT(text);
    /* A key that is off, or inert by the table, changes nothing. */
    if (changes ? is_usual(known, value) : is_off(value) || inert)
        return CALM_OK;
    if (known && !changes && !family_reads_key(arch, key))
        return CALM_OK;
    /* The messages below show the value. */
    CALM_TRY(calm_json_write(ctx, value, 0, &text));
    if (changes)
        return refuse_known(ctx, path, key, text.data, arch, known->effect);
    if (family_reads_key(arch, key))
        return refuse_known(ctx, path, key, text.data, arch, NULL);
    if (!calm_words_have(accepted, key))
        return refuse(ctx, path, key, text.data, arch);
    calm_log(ctx, CALM_LOG_INFO, "%s: \"%s\": %.80s is ignored (`accept_keys`)", path, key, text.data);
    return CALM_OK;
}

calm_status calm_config_check_keys(calm_ctx *ctx, const char *path, const calm_json *root, const calm_arch *arch,
                                   const calm_words *accepted)
{
    const char *key;
    const calm_json *value;
    for (void *iter = NULL; calm_json_next(root, &iter, &key, &value);)
        if (!sees_as_family(arch, key, value))
            return refuse_known(ctx, path, key, arch->both_ways ? "true" : "false", arch, "another order of reading");
        else if (key[0] != '_' && !calm_reads_key(arch, key))    /* "_name_or_path": bookkeeping of transformers */
            CALM_TRY(judge(ctx, path, key, value, arch, accepted));
    return CALM_OK;
}
