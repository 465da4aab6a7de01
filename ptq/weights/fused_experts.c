/* Views of single experts in a tensor of all experts, by offset and strides. */
#include "ptq/weights/fused_experts.h"


#include "ptq/arch/arch.h"
#include "ptq/arch/layout.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/dtype.h"
#include "ptq/weights/turned.h"

/* ---- which tensors ---- */

/* The fused tensors of a block; gate_up NULL: it has none. */
typedef struct fused {
    const calm_tensor *gate_up, *down, *gate_up_bias, *down_bias;
    bool transposed;
} fused;

static bool has_shape(const calm_tensor *tensor, size_t a, size_t b, size_t c)
{
    return tensor->shape[0] == a && tensor->shape[1] == b && tensor->shape[2] == c;
}

static calm_status wrong_shape(calm_ctx *ctx, const calm_tensor *tensor, const size_t plain[3])
{
    const size_t other[3] = {plain[0], plain[2], plain[1]};
    char found[128], expected[128], turned_to[128];
    return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: %s %s, expected floats %s or, transposed, %s from config.json",
                     tensor->file, tensor->name, calm_dtype_name(tensor->dtype),
                     calm_shape_text(tensor->n_dims, tensor->shape, found), calm_shape_text(3, plain, expected),
                     calm_shape_text(3, other, turned_to));
}

/* Checks rank, dtype and shape of both, and finds out whether they are transposed.  At least one of them shows that,
 * since an expert's width cannot be both the hidden size and half the hidden size. */
static calm_status check(calm_ctx *ctx, const calm_config *config, fused *of)
{
    const size_t experts = config->moe.n_experts, inner = config->moe.inner, width = config->hidden;
    /* Shapes of gate_up and down, not transposed. */
    const size_t shapes[2][3] = {{experts, 2 * inner, width}, {experts, width, inner}};
    const calm_tensor *const tensors[2] = {of->gate_up, of->down};
    bool plain[2], other[2];
    for (int i = 0; i < 2; i++) {
        const calm_tensor *t = tensors[i];
        const size_t *s = shapes[i];
        plain[i] = has_shape(t, s[0], s[1], s[2]);
        other[i] = has_shape(t, s[0], s[2], s[1]);
        if (t->n_dims != 3 || !calm_dtype_is_float(t->dtype) || (!plain[i] && !other[i]))
            return wrong_shape(ctx, t, s);
    }
    /* A square tensor matches both ways: then the other one decides. */
    of->transposed = !(plain[0] && plain[1]);
    if (of->transposed && !(other[0] && other[1]))
        return calm_fail(ctx, CALM_EFORMAT, "%s: of the tensors %s and %s one is transposed; expected both or none",
                         of->down->file, of->gate_up->name, of->down->name);
    return CALM_OK;
}

/* Checks the biases of all experts, one row per expert. */
static calm_status check_bias(calm_ctx *ctx, const calm_config *config, const calm_tensor *bias, size_t width)
{
    const size_t expected[2] = {config->moe.n_experts, width};
    char found[128], text[128];
    if (bias->n_dims == 2 && bias->shape[0] == expected[0] && bias->shape[1] == width &&
        calm_dtype_is_float(bias->dtype))
        return CALM_OK;
    return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: %s %s, expected floats %s from config.json", bias->file,
                     bias->name, calm_dtype_name(bias->dtype), calm_shape_text(bias->n_dims, bias->shape, found),
                     calm_shape_text(2, expected, text));
}

/* Finds and checks the fused tensors of a block; the pointers of *out are NULL where it has none. */
static calm_status find(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block,
                        const calm_safetensors *set, fused *out)
{
    const calm_names *names = config->arch->names;
    const char *const words[4] = {names->moe.fused_gate_up, names->moe.fused_down, names->moe.fused_gate_up_bias,
                                  names->moe.fused_down_bias};
    const int n = config->moe.bias ? 4 : 2;
    const calm_tensor *found[4] = {NULL};
    char *name[4];
    /* Number of the first tensor that exists, for the message about a missing one; n: none does. */
    int there = n;
    for (int i = n - 1; i >= 0; i--) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name[i], "%s%s.%zu.%s", prefix, names->blocks, block, words[i]));
        found[i] = calm_safetensors_find(set, name[i]);
        there = found[i] ? i : there;
    }
    *out = (fused){found[0], found[1], found[2], found[3], false};
    /* Either all of them are present, or none. */
    for (int i = 0; there < n && i < n; i++)
        if (!found[i])
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: tensor %s is missing; %s is there", found[there]->file, name[i],
                             name[there]);
    if (there == n)
        return CALM_OK;
    if (n == 4) {
        CALM_TRY(check_bias(ctx, config, found[2], 2 * config->moe.inner));
        CALM_TRY(check_bias(ctx, config, found[3], config->hidden));
    }
    return check(ctx, config, out);
}

/* ---- views ---- */

/* A list of tensors under construction, in ctx->scratch; names and views are in ctx->out. */
typedef struct listing {
    const calm_config *config;
    const char *prefix;
    calm_tensor *tensors;
    size_t n;
} listing;

/* Appends the tensor of a role in the expert's part of `whole`, named MODULE.SUFFIX; its shape is still that of
 * `whole`. */
static calm_status new_part(calm_ctx *ctx, listing *to, size_t block, size_t expert, calm_role role,
                            const char *suffix, const calm_tensor *whole, calm_tensor **out)
{
    const size_t part = whole->bytes / to->config->moe.n_experts;
    const char *module;
    char *name;
    calm_tensor *next = &to->tensors[to->n++];
    CALM_TRY(calm_role_module(ctx, to->config, to->prefix, block, role, (long)expert, &module));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.%s", module, suffix));
    /* File, shard and dtype do not change. */
    *next = *whole;
    next->name = name;
    next->whole = whole;
    /* gate and up each get half of an expert's bytes, so that each byte is released and hashed once. */
    next->bytes = role == CALM_ROLE_DOWN ? part : part / 2;
    next->data = whole->data + expert * part + (role == CALM_ROLE_UP) * next->bytes;
    *out = next;
    return CALM_OK;
}

/* Appends the matrix of a role in the expert's part of `whole`. */
static calm_status add_view(calm_ctx *ctx, listing *to, size_t block, size_t expert, calm_role role,
                            const calm_tensor *whole, bool transposed)
{
    /* Only gate and up share a tensor. */
    const bool down = role == CALM_ROLE_DOWN, interleaved = to->config->arch->names->moe.interleaved && !down;
    const size_t experts = to->config->moe.n_experts, second = role == CALM_ROLE_UP;
    calm_tensor *out;
    calm_strided_view *v;
    CALM_TRY(new_part(ctx, to, block, expert, role, "weight", whole, &out));
    out->n_dims = 2;
    out->shape[2] = 0;
    calm_role_shape(to->config, role, (long)expert, &out->shape[0], &out->shape[1]);
    out->n_elements = out->shape[0] * out->shape[1];
    if (whole->scales && whole->scale_bytes % experts == 0) {
        /* Scales are divided like codes. */
        const size_t all = whole->scale_bytes / experts, half = all / 2;
        out->scales = whole->scales + expert * all + second * half;
        out->scale_bytes = down ? all : second ? all - half : half;
    }
    if (!transposed && !interleaved && !whole->source)
        return CALM_OK;
    /* Its elements are not contiguous in the file. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, v, 1));
    const size_t lines = down ? out->shape[0] : 2 * out->shape[0];    /* rows of the stored matrix, if not transposed */
    const size_t row = transposed ? 1 : out->shape[1];
    *v = (calm_strided_view){.whole = whole, .first = expert * (whole->n_elements / experts),
                       .row_step = row * (interleaved ? 2 : 1), .column_step = transposed ? lines : 1};
    /* up begins in the next row, or after all rows of gate. */
    v->first += second * row * (interleaved ? 1 : out->shape[0]);
    out->entry = v;
    out->source = &calm_turned_source;
    return CALM_OK;
}

/* Appends the bias of that matrix, a part of the expert's row of `whole`. */
static calm_status add_bias(calm_ctx *ctx, listing *to, size_t block, size_t expert, calm_role role,
                            const calm_tensor *whole)
{
    const bool down = role == CALM_ROLE_DOWN, interleaved = to->config->arch->names->moe.interleaved && !down;
    const size_t row = whole->shape[1], second = role == CALM_ROLE_UP;
    calm_tensor *out;
    calm_strided_view *v;
    CALM_TRY(new_part(ctx, to, block, expert, role, "bias", whole, &out));
    out->n_dims = 1;
    out->shape[0] = out->n_elements = down ? row : row / 2;
    out->shape[1] = 0;
    if (!interleaved)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, v, 1));
    *v = (calm_strided_view){.whole = whole, .first = expert * row + second, .row_step = 2, .column_step = 1};
    out->entry = v;
    out->source = &calm_turned_source;
    return CALM_OK;
}

static calm_status add_experts(calm_ctx *ctx, listing *to, size_t block, const fused *of)
{
    static const calm_role roles[] = {CALM_ROLE_GATE, CALM_ROLE_UP, CALM_ROLE_DOWN};
    for (size_t e = 0; e < to->config->moe.n_experts; e++)
        for (size_t r = 0; r < sizeof roles / sizeof *roles; r++) {
            const bool down = roles[r] == CALM_ROLE_DOWN;
            CALM_TRY(add_view(ctx, to, block, e, roles[r], down ? of->down : of->gate_up, of->transposed));
            if (of->down_bias)
                CALM_TRY(add_bias(ctx, to, block, e, roles[r], down ? of->down_bias : of->gate_up_bias));
        }
    return CALM_OK;
}

/* Do views replace this tensor? */
static bool is_fused(const fused *blocks, size_t n, const calm_tensor *tensor)
{
    bool found = false;
    for (size_t b = 0; b < n && !found; b++)
        found = blocks[b].gate_up == tensor || blocks[b].down == tensor || blocks[b].gate_up_bias == tensor
                || blocks[b].down_bias == tensor;
    return found;
}

calm_status calm_experts_unfuse(calm_ctx *ctx, const calm_config *config, const char *prefix, calm_safetensors *set)
{
    const size_t n_blocks = config->n_blocks, n = calm_safetensors_count(set);
    listing list = {config, prefix, NULL, 0};
    fused *blocks;
    size_t n_fused = 0;
    CALM_SCOPED_SCRATCH(ctx);
    /* A dense family, or one that never stores experts in one tensor. */
    if (!config->arch->names->moe.fused_gate_up)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, blocks, n_blocks));
    for (size_t b = 0; b < n_blocks; b++) {
        if (config->moe.sparse[b])
            CALM_TRY(find(ctx, config, prefix, b, set, &blocks[b]));
        n_fused += blocks[b].down != NULL;
    }
    if (!n_fused)
        return CALM_OK;
    /* The tensors of a block become three matrices and three biases per expert. */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, list.tensors, n + 6 * n_fused * config->moe.n_experts));
    for (size_t i = 0; i < n; i++)
        if (!is_fused(blocks, n_blocks, calm_safetensors_at(set, i)))
            list.tensors[list.n++] = *calm_safetensors_at(set, i);
    for (size_t b = 0; b < n_blocks; b++)
        if (blocks[b].down)
            CALM_TRY(add_experts(ctx, &list, b, &blocks[b]));
    return calm_safetensors_replace(ctx, set, list.tensors, list.n);
}
