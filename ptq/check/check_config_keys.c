/* Check: keys of config.json that an engine's class reads and transformers 5 does not save, and keys that it does not
 * read.
 *
 * Configuration classes of transformers 5 drop keys that its models do not need; published files have them.  Sources:
 * vLLM 0.32, deepseek_v2.py, glm4_moe_lite.py, minimax_m2.py, qwen3_moe.py; for keys that are not read olmoe.py of vLLM
 * and of mlx-lm. */
#include <string.h>

#include "ptq/check/check_state.h"

typedef struct needed_key {
    const char *model_type;    /* of the text model    */
    const char *key, *value;   /* with the published value */
    const char *without;       /* what vLLM does without the key */
} needed_key;

static const needed_key needed_keys[] = {
    {"deepseek_v3", "topk_method", "\"noaux_tc\"", "the router's bias has no place, and loading fails"},
    {"deepseek_v3", "scoring_func", "\"sigmoid\"", "the router takes a softmax, and tokens go to other experts"},
    {"deepseek_v2", "n_group", "a number, 1 for no groups", "the router has no number of groups"},
    {"deepseek_v2", "topk_group", "a number, 1 for no groups", "the router has no number of groups"},
    {"glm4_moe_lite", "first_k_dense_replace", "the number of dense blocks at the start", "loading fails"},
    {"minimax_m2", "scoring_func", "\"sigmoid\"", "loading fails"},
    {"qwen3_vl_moe_text", "norm_topk_prob", "true", "loading fails"},
};

/* Keys that these engines ignore, although a value other than null asks for a computation. */
static const struct {
    const char *model_type, *key, *without;
} unread_keys[] = {{"olmoe", "clip_qkv", "q, k and v are not bounded"}};

static calm_status check_unread(calm_checking *c, const calm_json *root, const char *type)
{
    for (size_t i = 0; i < sizeof unread_keys / sizeof *unread_keys; i++) {
        const char *key = unread_keys[i].key;
        if (strcmp(unread_keys[i].model_type, type) == 0 &&
            calm_json_typeof(calm_json_get(root, key)) != CALM_JSON_NULL)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_UNREAD_KEY, key, "%s: %s; expected null", type,
                                    unread_keys[i].without));
    }
    return CALM_OK;
}

/* Checks the keys of the text model's configuration `root`. */
static calm_status check_keys(calm_checking *c, const calm_json *root)
{
    const char *type = calm_json_string(calm_json_get(root, "model_type"), "");
    for (size_t i = 0; i < sizeof needed_keys / sizeof *needed_keys; i++) {
        const needed_key *needed = &needed_keys[i];
        if (strcmp(needed->model_type, type) == 0 &&
            calm_json_typeof(calm_json_get(root, needed->key)) == CALM_JSON_NULL)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_CONFIG_KEY, needed->key, "%s: %s; published files have %s",
                                    needed->model_type, needed->without, needed->value));
    }
    return check_unread(c, root, type);
}

const calm_json *calm_check_text_config(const calm_checking *c)
{
    const calm_json *text = calm_json_get(c->config, "text_config");
    return calm_json_typeof(text) == CALM_JSON_OBJECT ? text : c->config;
}

calm_status calm_check_config_keys(calm_checking *c)
{
    return c->model_known ? check_keys(c, calm_check_text_config(c)) : CALM_OK;
}
