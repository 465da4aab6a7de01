/* The table of wrappers, and the text part of their config.json.
 *
 * Reference: transformers' configuration_<family>.py and modeling_<family>.py; "text_config" of published files omits
 * the class's defaults, so the table has them. */
#include "ptq/arch/wrapper.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/text.h"

#define TEXT "text_config"

typedef struct wrapper {
    const char *class_name, *model_type;
    const char *inner;          /* model_type of the text model where "text_config" has none */
    bool flat;                  /* the first files have the text model's keys at the top level */
    const char *usual;          /* default members of the text model, where its class has other defaults than the
                                   family, or the family none; or NULL                              */
    bool inner_head;            /* the head, and the key that ties it, belong to the text model      */
    bool tied;                  /* the head is tied where no key says whether it is                  */
    bool uncapped;              /* the head has no soft cap, even if the text model's config has one */
} wrapper;

#define USUAL_SIZES(heads, words) "{\"num_attention_heads\": " heads ", \"vocab_size\": " words "}"
#define QWEN2_USUAL "{\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6}"

static const wrapper wrappers[] = {
    {"Qwen2VLForConditionalGeneration", "qwen2_vl", .inner = "qwen2", .flat = true, .usual = QWEN2_USUAL},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", .inner = "qwen2", .flat = true, .usual = QWEN2_USUAL},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", .inner = "qwen3_vl_text",
     .usual = "{\"rope_theta\": 5e5, \"max_position_embeddings\": 128000}"},
    {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", .inner = "qwen3_vl_moe_text",
     .usual = "{\"num_key_value_heads\": 16, \"rope_theta\": 5e5, \"max_position_embeddings\": 128000}"},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", .inner = "qwen3_5_text"},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", .inner = "qwen3_5_moe_text"},
    {"Gemma3ForConditionalGeneration", "gemma3", .inner = "gemma3_text", .usual = USUAL_SIZES("8", "262208"),
     .uncapped = true},
    {"Gemma3nForConditionalGeneration", "gemma3n", .inner = "gemma3n_text", .usual = USUAL_SIZES("8", "262400")},
    {"Gemma4ForConditionalGeneration", "gemma4", .inner = "gemma4_text", .usual = USUAL_SIZES("8", "262144")},
    {"Mistral3ForConditionalGeneration", "mistral3", .inner = "mistral"},
    {"Llama4ForConditionalGeneration", "llama4", .inner = "llama4_text", .usual = USUAL_SIZES("40", "202048"),
     .inner_head = true},
    {"LlavaForConditionalGeneration", "llava", .inner = "llama"},
    {"LlavaNextForConditionalGeneration", "llava_next", .inner = "llama"},
    {"LlavaOnevisionForConditionalGeneration", "llava_onevision", .inner = "qwen2"},
    {"InternVLForConditionalGeneration", "internvl", .inner = "qwen2", .tied = true},
    {"Lfm2VlForConditionalGeneration", "lfm2_vl", .inner = "lfm2", .tied = true},
};

/* Finds a wrapper by class, or without a class by model type. */
static const wrapper *find_wrapper(const char *class_name, const char *model_type)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (class_name ? strcmp(wrappers[i].class_name, class_name) == 0
                       : model_type && strcmp(wrappers[i].model_type, model_type) == 0)
            return &wrappers[i];
    return NULL;
}

/* Is it a key of older files without "text_config" that only concerns the wrapper? */
static bool is_outer_key(const char *key)
{
    return calm_text_listed("vision_config image_token_id video_token_id vision_start_token_id vision_end_token_id "
                            "vision_token_id",
                            ' ', key);
}

/* Copies the members of `root` that belong to the text model. */
static calm_json *flat_text(const calm_json *root)
{
    calm_json *text = calm_json_new_object();
    const char *key;
    const calm_json *value;
    for (void *iter = NULL; calm_json_next(root, &iter, &key, &value);)
        if (!is_outer_key(key))
            calm_json_set(text, key, calm_json_copy(value));
    return text;
}

/* Copies members of the wrapper's top level to the text model: the key of the tied head where the head is the
 * wrapper's, others where the text model lacks them. */
static void take_outer(const calm_json *root, const wrapper *row, calm_json *text)
{
    static const char *const silent[] = {"dtype", "torch_dtype", "bos_token_id", "eos_token_id"};
    const calm_json *tied = calm_json_get(root, "tie_word_embeddings");
    const bool typed = calm_json_get(text, "dtype") || calm_json_get(text, "torch_dtype");
    if (tied && !row->inner_head)
        calm_json_set(text, "tie_word_embeddings", calm_json_copy(tied));
    if (!tied && row->tied && !calm_json_get(text, "tie_word_embeddings"))
        calm_json_set_bool(text, "tie_word_embeddings", true);
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (!(typed && i < 2) && !calm_json_get(text, silent[i]) && calm_json_get(root, silent[i]))
            calm_json_set(text, silent[i], calm_json_copy(calm_json_get(root, silent[i])));
}

/* Replaces the wrapper's class by that of the text model. */
static void name_class(const calm_arch *arch, calm_json *text)
{
    const char *end = strchr(arch->classes, '|');
    calm_json *list = calm_json_new_array();
    CALM_SCOPED_TEXT(word);
    /* The first one: all classes of a family have the same text model. */
    calm_text_append(&word, arch->classes, end ? (size_t)(end - arch->classes) : strlen(arch->classes));
    calm_json_add_string(list, word.data);
    calm_json_set(text, "architectures", list);
}

/* Fails for an unknown class that contains a text model. */
static calm_status refuse(calm_ctx *ctx, const char *path, const char *class_name, const calm_json *inner)
{
    const char *type = calm_json_string(calm_json_get(inner, "model_type"), NULL);
    const calm_arch *arch = calm_arch_find(NULL, type);
    CALM_SCOPED_TEXT(known);
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        calm_text_printf(&known, " %s", wrappers[i].class_name);
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: architecture %s is not known; the text model in it (\"" TEXT "\", model_type %s) is %s%s; "
                     "of models that hold a text model calm knows%s",
                     path, class_name ? class_name : "(none named)", type ? type : "(none)",
                     arch ? "one that calm knows, as " : "not known either", arch ? arch->name : "",
                     known.data ? known.data : "");
}

/* Adds the defaults of the wrapper's class. */
static calm_status add_usual(calm_ctx *ctx, const char *usual, calm_json *text)
{
    CALM_SCOPED_JSON(members);
    const char *key;
    const calm_json *value;
    CALM_TRY(calm_json_parse(ctx, "(defaults)", usual, strlen(usual), &members));
    for (void *iter = NULL; calm_json_next(members, &iter, &key, &value);)
        if (!calm_json_get(text, key))
            calm_json_set(text, key, calm_json_copy(value));
    return CALM_OK;
}

static calm_status unwrap(calm_ctx *ctx, const char *path, const calm_json *root, const wrapper *row, calm_json **out)
{
    const calm_json *inner = calm_json_get(root, TEXT);
    if (inner || !row->flat)
        CALM_TRY(calm_json_expect(ctx, inner, CALM_JSON_OBJECT, "%s: \"" TEXT "\"", path));
    const char *type = inner ? calm_json_string(calm_json_get(inner, "model_type"), row->inner) : row->inner;
    const calm_arch *arch = calm_arch_find(NULL, type);
    if (!arch)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: \"" TEXT "\": model_type \"%s\" is not known; expected that of a family that calm knows, "
                         "such as \"%s\"", path, type, row->inner);
    calm_json *text = inner ? calm_json_copy(inner) : flat_text(root);
    /* From here on the caller owns it, also after a failure. */
    *out = text;
    take_outer(root, row, text);
    name_class(arch, text);
    /* Families that share a class with another one need the model type. */
    if (!calm_json_get(text, "model_type"))
        calm_json_set_string(text, "model_type", row->inner);
    if (row->uncapped)
        calm_json_remove(text, "final_logit_softcapping");
    return row->usual ? add_usual(ctx, row->usual, text) : CALM_OK;
}

calm_status calm_config_text(calm_ctx *ctx, const char *path, const calm_json *root, calm_json **out)
{
    const char *class_name = calm_json_string(calm_json_at(calm_json_get(root, "architectures"), 0), NULL);
    const char *model_type = calm_json_string(calm_json_get(root, "model_type"), NULL);
    const calm_json *inner = calm_json_get(root, TEXT);
    *out = NULL;
    /* It is a text model's own class; its file may have a stray "text_config". */
    if (calm_arch_find(class_name, model_type))
        return CALM_OK;
    const wrapper *row = find_wrapper(class_name, model_type);
    if (row)
        return unwrap(ctx, path, root, row, out);
    return inner ? refuse(ctx, path, class_name ? class_name : model_type, inner) : CALM_OK;
}
