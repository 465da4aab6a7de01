/* Assigns an adapter's tensors to those of the model: first tensors that replace whole ones, then the pairs A and B. */
#include "ptq/weights/adapter.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/io/folder.h"
#include "ptq/weights/adapter_config.h"
#include "ptq/weights/lora.h"

#define STEM "base_model.model."

struct calm_adapter {
    calm_safetensors *tensors;
};

/* The function of a tensor of the file, by the end of its name. */
typedef enum part_kind { WHOLE, LEFT, RIGHT, EMBED_LEFT, EMBED_RIGHT, BIAS } part_kind;

static const struct {
    const char *end;
    part_kind kind;
} ends[] = {{".lora_B.weight", LEFT}, {".lora_A.weight", RIGHT}, {".lora_B.default.weight", LEFT},
            {".lora_A.default.weight", RIGHT}, {".lora_embedding_A", EMBED_LEFT}, {".lora_embedding_B", EMBED_RIGHT},
            {".lora_B.bias", BIAS}};

/* Parts of other methods, by a piece of their names. */
static const struct {
    const char *piece, *method;
} others[] = {{".lora_magnitude_vector", "DoRA"}, {"token_adapter.", "trainable tokens"}, {".lora_E", "AdaLoRA"},
              {".ia3_", "IA3"}, {".hada_", "LoHa"}, {".lokr_", "LoKr"}, {".vera_", "VeRA"}, {".oft_", "OFT"},
              {".lora_a", "an adapter of mlx-lm"}, {".lora_b", "an adapter of mlx-lm"}};

/* State of a merge. */
typedef struct work {
    const calm_adapter_base *base;
    const calm_adapter_config *config;
    const calm_safetensors *file;
    calm_tensor *tensors;    /* [n], beginning with those of the base in their order */
    size_t n;
    bool embedding;          /* the adapter changes the embedding */
} work;

/* ---- names ---- */

/* Finds the kind of a tensor; *module is the part of its name before the ending, in ctx->scratch. */
static calm_status split(calm_ctx *ctx, const calm_tensor *tensor, part_kind *kind, char **module)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(tensor->name, others[i].piece))
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: tensor %s: %s: calm only merges plain LoRA; merge it with "
                             "the library that made it and give the merged model", tensor->file, tensor->name,
                             others[i].method);
    if (strncmp(tensor->name, STEM, strlen(STEM)) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: expected a name that begins with " STEM ", as PEFT writes",
                         tensor->file, tensor->name);
    const char *name = tensor->name + strlen(STEM);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (calm_text_ends_with(name, ends[i].end)) {
            *kind = ends[i].kind;
            return calm_strf(ctx, ctx->scratch, module, "%.*s", (int)(strlen(name) - strlen(ends[i].end)), name);
        }
    *kind = WHOLE;
    return calm_strf(ctx, ctx->scratch, module, "%s", name);
}

/* Removes a piece from a name. */
static void drop(char *name, const char *piece)
{
    char *at = strstr(name, piece);
    if (at)
        memmove(at, at + strlen(piece), strlen(at + strlen(piece)) + 1);
}

/* Finds a tensor by its full name; NULL: there is none. */
static calm_tensor *find(const work *w, const char *name)
{
    const calm_tensor *found = calm_safetensors_find(w->base->set, name);
    if (found)
        return &w->tensors[found - calm_safetensors_at(w->base->set, 0)];
    for (size_t i = calm_safetensors_count(w->base->set); i < w->n; i++)    /* tensors that were added before */
        if (strcmp(w->tensors[i].name, name) == 0)
            return &w->tensors[i];
    return NULL;
}

/* Finds the model's tensor of this name, also where the model's file has another prefix than the class with which the
 * adapter was made; *out NULL: none. */
static calm_status find_base(calm_ctx *ctx, const work *w, const char *name, calm_tensor **out)
{
    const calm_arch *arch = w->base->config->arch;
    const char *at;
    char *other;
    size_t n;
    *out = find(w, name);
    for (size_t i = 0; !*out && (at = calm_arch_prefix(arch, i, &n)); i++)
        if (strncmp(name, at, n) == 0) {
            CALM_TRY(calm_strf(ctx, ctx->scratch, &other, "%s%s", w->base->prefix, name + n));
            *out = find(w, other);
        }
    return CALM_OK;
}

/* Finds it, and fails where the model does not have it. */
static calm_status need_base(calm_ctx *ctx, const work *w, const calm_tensor *from, const char *module,
                             const char *suffix, calm_tensor **out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s", module, suffix));
    CALM_TRY(find_base(ctx, w, name, out));
    return *out ? CALM_OK
                : calm_fail(ctx, CALM_ENOTFOUND, "%s: tensor %s adapts %s, which %s does not have; is it the "
                            "adapter's base?", from->file, from->name, name, w->base->dir);
}

/* ---- shapes ---- */

/* Fails with both shapes, and the reason for the expected one. */
static calm_status wrong(calm_ctx *ctx, const calm_tensor *tensor, int n_dims, const size_t *shape, const char *why)
{
    char found[128], expected[128];
    return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: %s %s, expected floats %s %s", tensor->file, tensor->name,
                     calm_dtype_name(tensor->dtype), calm_shape_text(tensor->n_dims, tensor->shape, found),
                     calm_shape_text(n_dims, shape, expected), why);
}

/* Checks that it is a float tensor of this shape; `why` says what requires it. */
static calm_status need_shape(calm_ctx *ctx, const calm_tensor *tensor, int n_dims, const size_t *shape,
                              const char *why)
{
    /* Any float dtype is allowed, since products are computed in float32. */
    if (calm_dtype_is_float(tensor->dtype) && tensor->n_dims == n_dims &&
        memcmp(tensor->shape, shape, (size_t)n_dims * sizeof *shape) == 0)
        return CALM_OK;
    return wrong(ctx, tensor, n_dims, shape, why);
}

/* ---- the list ---- */

/* Gives a tensor the source `of`; its name, shape and dtype do not change. */
static calm_status change(calm_ctx *ctx, work *w, calm_tensor *tensor, const calm_lora *of)
{
    calm_lora *entry;
    const calm_names *names = w->base->config->arch->names;
    char *embed;
    CALM_TRY(CALM_NEW(ctx, ctx->out, entry, 1));
    *entry = *of;
    /* The data is only for digests and pages; values are read through the source. */
    tensor->source = &calm_lora_source;
    tensor->entry = entry;
    tensor->data = of->base.tensor.data;
    tensor->bytes = tensor->n_elements * calm_dtype_bytes(tensor->dtype);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &embed, "%s%s.weight", w->base->prefix, names->embed));
    w->embedding |= strcmp(tensor->name, embed) == 0;
    return CALM_OK;
}

/* Finds the head under its full name, or adds one to a tied model if the adapter has a separate head. */
static calm_status add_head(calm_ctx *ctx, work *w, const calm_tensor *from, const char *name, calm_tensor **out)
{
    const calm_config *config = w->base->config;
    const calm_names *names = config->arch->names;
    const char *head;
    char *full, *embed;
    *out = NULL;
    CALM_TRY(calm_head_module(ctx, names, w->base->prefix, &head));
    if (!head)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &full, "%s.weight", head));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &embed, "%s%s.weight", w->base->prefix, names->embed));
    const calm_tensor *table = calm_safetensors_find(w->base->set, embed);
    /* Nothing is added to a model without the class's head, or without an embedding. */
    if (strcmp(name, "lm_head.weight") != 0 || !table)
        return CALM_OK;
    /* The head exists under its full name, in the model or from another name in the adapter: there is room for one. */
    *out = find(w, full);
    if (*out)
        return CALM_OK;
    *out = &w->tensors[w->n++];
    **out = (calm_tensor){.name = full, .dtype = table->dtype, .n_dims = from->n_dims, .file = from->file,
                          .n_elements = from->n_elements};
    memcpy((*out)->shape, from->shape, sizeof from->shape);
    return CALM_OK;
}

/* Replaces the model's tensor by one of the adapter. */
static calm_status take_whole(calm_ctx *ctx, work *w, const calm_tensor *from, char *name)
{
    static const char *const pieces[] = {".modules_to_save.default", ".modules_to_save", ".base_layer"};
    calm_tensor *to;
    /* PEFT wraps the modules that it trains; older releases kept the wrapper's words in names. */
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        drop(name, pieces[i]);
    CALM_TRY(find_base(ctx, w, name, &to));
    if (!to)
        CALM_TRY(add_head(ctx, w, from, name, &to));
    if (!to)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: tensor %s: it is no part of LoRA, and %s has no tensor %s that it "
                         "could replace", from->file, from->name, w->base->dir, name);
    CALM_TRY(need_shape(ctx, from, to->n_dims, to->shape, "as the model's tensor that it replaces"));
    return change(ctx, w, to, &(calm_lora){.base = {w->file, *from}});
}

/* Finds the other one of A and B. */
static calm_status find_partner(calm_ctx *ctx, const work *w, const calm_tensor *tensor, const char *from,
                                const char *to, const calm_tensor **out)
{
    const char *at = strstr(tensor->name, from);
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%.*s%s%s", (int)(at - tensor->name), tensor->name, to,
                       at + strlen(from)));
    *out = calm_safetensors_find(w->file, name);
    return *out ? CALM_OK
                : calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s exists, but %s does not; LoRA needs both", tensor->file,
                            tensor->name, name);
}

/* Merges `left` and its partner, matrices whose product has the shape of the model's tensor. */
static calm_status take_pair(calm_ctx *ctx, work *w, const calm_tensor *left, const char *module, bool turned)
{
    const calm_tensor *right;
    calm_tensor *to;
    size_t rank;
    float scale;
    CALM_TRY(find_partner(ctx, w, left, turned ? "lora_embedding_A" : "lora_B", turned ? "lora_embedding_B" : "lora_A",
                          &right));
    CALM_TRY(need_base(ctx, w, left, module, ".weight", &to));
    CALM_TRY(calm_adapter_config_module(ctx, w->config, module, &rank, &scale));
    if (to->n_dims != 2 || !calm_dtype_is_float(to->dtype))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: tensor %s: %s, expected a matrix of floats that an adapter can "
                         "be added to", to->file, to->name, calm_dtype_name(to->dtype));
    /* An embedding looks up rows, so its A and B are stored transposed. */
    const size_t l[2] = {turned ? rank : to->shape[0], turned ? to->shape[0] : rank},
                 r[2] = {turned ? to->shape[1] : rank, turned ? rank : to->shape[1]};
    CALM_TRY(need_shape(ctx, left, 2, l, "from its rank in " CALM_ADAPTER_CONFIG " and the model's tensor"));
    CALM_TRY(need_shape(ctx, right, 2, r, "from its rank in " CALM_ADAPTER_CONFIG " and the model's tensor"));
    return change(ctx, w, to, &(calm_lora){.base = {w->base->set, *to}, .left = {w->file, *left},
                                           .right = {w->file, *right}, .turned = turned, .scale = scale});
}

/* Merges a vector of lora_bias, which is added to the linear's bias. */
static calm_status take_bias(calm_ctx *ctx, work *w, const calm_tensor *from, const char *module)
{
    calm_tensor *to;
    size_t rank;
    float scale;
    CALM_TRY(need_base(ctx, w, from, module, ".bias", &to));
    CALM_TRY(calm_adapter_config_module(ctx, w->config, module, &rank, &scale));
    CALM_TRY(need_shape(ctx, from, to->n_dims, to->shape, "as the model's bias"));
    return change(ctx, w, to, &(calm_lora){.base = {w->base->set, *to}, .right = {w->file, *from}, .scale = scale});
}

/* Merges one tensor of the file; with `whole` only those that replace whole tensors, else only others. */
static calm_status take(calm_ctx *ctx, work *w, const calm_tensor *tensor, bool whole)
{
    const calm_tensor *partner;
    part_kind kind = WHOLE;
    char *module = NULL;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(split(ctx, tensor, &kind, &module));
    /* These come first, since an adapter may replace an embedding and also add to it. */
    if (whole)
        return kind == WHOLE ? take_whole(ctx, w, tensor, module) : CALM_OK;
    switch (kind) {
    case LEFT:
    case EMBED_LEFT:
        return take_pair(ctx, w, tensor, module, kind == EMBED_LEFT);
    case RIGHT:    /* is read with its partner */
        return find_partner(ctx, w, tensor, "lora_A", "lora_B", &partner);
    case EMBED_RIGHT:
        return find_partner(ctx, w, tensor, "lora_embedding_B", "lora_embedding_A", &partner);
    case BIAS:
        return take_bias(ctx, w, tensor, module);
    default:
        return CALM_OK;
    }
}

/* Merges all tensors in two passes over the file, then checks what depends on all of them. */
static calm_status take_all(calm_ctx *ctx, work *w)
{
    const size_t n = calm_safetensors_count(w->file);
    /* PEFT writes such a file when no module of the model was a target. */
    if (!n)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the adapter has no tensors", w->config->path);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++)
            CALM_TRY(take(ctx, w, calm_safetensors_at(w->file, i), pass == 0));
    /* For a tied embedding some libraries change only the embedding, others also the head. */
    const bool own_head = w->n > calm_safetensors_count(w->base->set) || find(w, "lm_head.weight");
    return !w->embedding || !w->base->config->tied || own_head
               ? CALM_OK
               : calm_fail(ctx, CALM_EUNSUPPORTED, "%s: the adapter changes the embedding of a model whose head is the "
                           "embedding, and does not say what becomes of the head; merge it first", w->config->path);
}

/* ---- opening ---- */

/* Opens the tensors; pickles are not read. */
static calm_status open_tensors(calm_ctx *ctx, const char *dir, calm_safetensors **out)
{
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, CALM_ADAPTER_TENSORS));
    if (!calm_path_exists(path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: it has no " CALM_ADAPTER_TENSORS "%s", dir,
                         calm_path_has(dir, "adapter_model.bin")
                             ? "; adapter_model.bin is a pickle, which runs code when it is read: save the adapter "
                               "again with safetensors" : "");
    return calm_safetensors_open(ctx, path, out);
}

/* Replaces the base's list of tensors by the merged one. */
static calm_status merge(calm_ctx *ctx, const calm_adapter_config *config, const calm_adapter_base *base,
                         const calm_safetensors *file)
{
    const size_t n = calm_safetensors_count(base->set);
    work w = {.base = base, .config = config, .file = file, .n = n};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.tensors, n + 1));    /* one more for a head */
    for (size_t i = 0; i < n; i++)
        w.tensors[i] = *calm_safetensors_at(base->set, i);
    CALM_TRY(take_all(ctx, &w));
    return calm_safetensors_replace(ctx, base->set, w.tensors, w.n);
}

calm_status calm_adapter_merge(calm_ctx *ctx, const char *dir, const calm_words *accepted,
                               const calm_adapter_base *base, calm_adapter **out)
{
    CALM_SCOPED(calm_adapter_config, calm_adapter_config_close) config = {0};
    CALM_SCOPED_SCRATCH(ctx);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", dir);
    CALM_TRY(calm_adapter_config_read(ctx, dir, accepted, &config));
    CALM_TRY(open_tensors(ctx, dir, &(*out)->tensors));
    return merge(ctx, &config, base, (*out)->tensors);
}

void calm_adapter_close(calm_adapter *adapter)
{
    if (adapter)
        calm_safetensors_close(adapter->tensors);
    free(adapter);
}

calm_status calm_adapter_is_no_model(calm_ctx *ctx, const char *dir)
{
    CALM_SCOPED_JSON(json);
    char *path;
    if (!calm_path_has(dir, CALM_ADAPTER_CONFIG) || calm_folder_has_weights(dir))
        return CALM_OK;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, CALM_ADAPTER_CONFIG));
    CALM_TRY(calm_json_read(ctx, path, (size_t)16 << 20, &json));
    /* Unchecked, since the message shows whatever can be read. */
    const char *type = calm_json_string(calm_json_get(json, "peft_type"), "of unknown kind");
    const char *base = calm_json_string(calm_json_get(json, "base_model_name_or_path"), NULL);
    const long long rank = (long long)calm_json_int(calm_json_get(json, "r"), 0);
    if (strcmp(type, "LORA") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s is an adapter (%.40s of %.200s) and no model: merge it first", dir,
                         type, base ? base : "a model it does not name");
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s is an adapter (LoRA rank %lld of %.200s) and no model: merge it "
                     "first, or `model` %.200s `adapter` %s", dir, rank, base ? base : "a model it does not name",
                     base ? base : "BASE", dir);
}
