/* Makes config.json of a synthetic checkpoint, in the classic form or as transformers 5 writes it. */
#include "tests/tools/synth.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/io/json.h"

#define MAX_MEMBERS 64

/* Members of config.json that are sizes of the shape. */
static const struct { const char *key; size_t offset; } sizes[] = {
    {"head_dim", offsetof(synth_shape, head_dim)},
    {"hidden_size", offsetof(synth_shape, hidden)},
    {"intermediate_size", offsetof(synth_shape, inner)},
    {"max_position_embeddings", offsetof(synth_shape, positions)},
    {"max_window_layers", offsetof(synth_shape, blocks)},
    {"moe_intermediate_size", offsetof(synth_shape, expert_inner)},
    {"n_routed_experts", offsetof(synth_shape, experts)},
    {"num_attention_heads", offsetof(synth_shape, heads)},
    {"num_experts", offsetof(synth_shape, experts)},
    {"num_experts_per_tok", offsetof(synth_shape, top)},
    {"num_hidden_layers", offsetof(synth_shape, blocks)},
    {"num_key_value_heads", offsetof(synth_shape, kv)},
    {"vocab_size", offsetof(synth_shape, vocab)},
};

/* A member; values are borrowed.  The members are in document order. */
typedef struct member { const char *key; const calm_json *value; } member;
typedef struct members { member at[MAX_MEMBERS]; size_t n; } members;

static member *find(members *all, const char *key)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i].key, key) == 0)
            return &all->at[i];
    return NULL;
}

/* Adds a member or replaces its value; more than MAX_MEMBERS is a mistake in the table of shapes. */
static void put(members *all, const char *key, const calm_json *value)
{
    member *old = find(all, key);
    if (old)
        old->value = value;
    else if (all->n < MAX_MEMBERS)
        all->at[all->n++] = (member){key, value};
    else
        abort();
}

static void put_all(members *all, const calm_json *object)
{
    void *iter = NULL;
    const char *key;
    const calm_json *value;
    while (calm_json_next(object, &iter, &key, &value))
        put(all, key, value);
}

/* Removes a member and returns its value, or NULL. */
static const calm_json *take(members *all, const char *key)
{
    member *old = find(all, key);
    const calm_json *value = old ? old->value : NULL;
    if (old)
        *old = all->at[--all->n];
    return value;
}

/* Makes members that depend on the shape: sizes that the family's text leaves 0, dtype, tied head. */
static calm_json *computed(const synth_shape *shape, size_t blocks, calm_dtype dtype, members *all)
{
    calm_json *object = calm_json_new_object();
    synth_shape cut = *shape;
    cut.blocks = blocks;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const member *known = find(all, sizes[i].key);
        if (known && calm_json_int(known->value, -1) == 0)
            calm_json_set_int(object, sizes[i].key, (int64_t)*(const size_t *)((const char *)&cut + sizes[i].offset));
    }
    if (find(all, "tie_word_embeddings"))
        calm_json_set_bool(object, "tie_word_embeddings", shape->tied);
    calm_json_set_string(object, "torch_dtype",
                         dtype == CALM_BF16 ? "bfloat16" : dtype == CALM_F16 ? "float16" : "float32");
    return object;
}

/* ---- the newer spelling ---- */

/* Makes {"rope_theta": ..., "rope_type": "default"}, overridden by the members of `scaling`. */
static calm_json *rope_parameters(const calm_json *theta, const calm_json *scaling)
{
    calm_json *rope = calm_json_new_object();
    void *iter = NULL;
    const char *key;
    const calm_json *value;
    calm_json_set_number(rope, "rope_theta", calm_json_number(theta, 0));
    calm_json_set_string(rope, "rope_type", "default");
    while (calm_json_next(scaling, &iter, &key, &value))
        calm_json_set(rope, key, calm_json_copy(value));
    return rope;
}

/* Makes the list of sliding blocks: every other block from the first in gemma2, all but every `pattern`th in gemma3. */
static calm_json *layer_types(const synth_shape *shape, size_t blocks, int64_t pattern)
{
    calm_json *types = calm_json_new_array();
    for (size_t b = 0; b < blocks; b++) {
        bool full = !(shape->family->flags & SYNTH_GEMMA) || (b + 1) % (size_t)pattern == 0;
        calm_json_add_string(types, full ? "full_attention" : "sliding_attention");
    }
    return types;
}

static void respell_rope(members *all, calm_json *made)
{
    const calm_json *theta = take(all, "rope_theta"), *scaling = take(all, "rope_scaling");
    const calm_json *local = take(all, "rope_local_base_freq");
    calm_json *rope = rope_parameters(theta, scaling);
    if (local) {
        calm_json *both = calm_json_new_object();
        calm_json_set(both, "full_attention", rope);
        calm_json_set(both, "sliding_attention", rope_parameters(local, NULL));
        rope = both;
    }
    calm_json_set(made, "rope_parameters", rope);
}

/* Adds the newer form of `all` to `made`, and removes members that it replaces. */
static void respell(members *all, const synth_shape *shape, size_t blocks, calm_json *made)
{
    const unsigned flags = shape->family->flags;
    const calm_json *pattern = take(all, "sliding_window_pattern");
    calm_json_set_string(made, "dtype", calm_json_string(take(all, "torch_dtype"), ""));
    calm_json_set_string(made, "transformers_version", "5.23.0");
    if (!(flags & SYNTH_ENCODER))
        respell_rope(all, made);
    if (pattern)
        calm_json_set(made, "_sliding_window_pattern", calm_json_copy(pattern));
    if (flags & SYNTH_LAYER_TYPES)
        calm_json_set(made, "layer_types", layer_types(shape, blocks, calm_json_int(pattern, 2)));
    if (flags & SYNTH_EXPERTS)
        calm_json_set_int(made, "num_local_experts", calm_json_int(take(all, "num_experts"), 0));
    if (flags & SYNTH_QKV_BIAS)    /* transformers writes null if use_sliding_window is false */
        calm_json_set(made, "sliding_window", calm_json_new_null());
    if (flags & (SYNTH_GEMMA | SYNTH_ENCODER))
        calm_json_set_bool(made, "tie_word_embeddings", true);
}

/* ---- both ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const member *)a)->key, ((const member *)b)->key);
}

static calm_status write_sorted(calm_ctx *ctx, members *all, calm_text *out)
{
    calm_json *root = calm_json_new_object();
    calm_status status;
    qsort(all->at, all->n, sizeof *all->at, by_key);
    for (size_t i = 0; i < all->n; i++)
        calm_json_set(root, all->at[i].key, calm_json_copy(all->at[i].value));
    status = calm_json_write(ctx, root, 2, out);
    calm_json_free(root);
    calm_text_append(out, "\n", 1);
    return status == CALM_OK ? calm_text_check(ctx, out) : status;
}

calm_status synth_config(calm_ctx *ctx, const synth_shape *shape, size_t blocks, calm_dtype dtype, bool newer,
                         calm_text *out)
{
    members all = {.n = 0};
    calm_json *family = NULL, *extra = NULL, *own = NULL, *made = calm_json_new_object();
    const char *base = shape->family->config;
    char *text;
    calm_status status = calm_json_parse(ctx, shape->name, base, strlen(base), &family);
    if (status == CALM_OK)
        status = calm_strf(ctx, ctx->scratch, &text, "{%s}", shape->extra ? shape->extra : "");
    if (status == CALM_OK)
        status = calm_json_parse(ctx, shape->name, text, strlen(text), &extra);
    if (status == CALM_OK) {
        put_all(&all, family);
        put_all(&all, extra);
        own = computed(shape, blocks, dtype, &all);
        put_all(&all, own);
        if (newer)
            respell(&all, shape, blocks, made);
        put_all(&all, made);
        status = write_sorted(ctx, &all, out);
    }
    calm_json_free(family);
    calm_json_free(extra);
    calm_json_free(own);
    calm_json_free(made);
    return status;
}
