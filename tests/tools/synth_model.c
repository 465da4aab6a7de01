/* Lists the tensors that calm reads of a model by its config.json, for hollow checkpoints of any family. */
#include "tests/tools/synth.h"

#include "ptq/check/check_state.h"
#include "ptq/io/json.h"
#include "ptq/arch/arch.h"
#include "ptq/layers/distance.h"
#include "ptq/arch/layout.h"
#include "ptq/model/extra_tensors.h"

/* A list that grows. */
typedef struct listing {
    calm_ctx *ctx;
    const calm_config *config;
    const char *prefix;        /* "model." */
    synth_tensor *tensors;
    size_t n, capacity;
} listing;

static calm_status add(listing *to, const char *name, int n_dims, const size_t *shape)
{
    const calm_dtype dtype = to->config->dtype_known ? to->config->dtype : CALM_BF16;
    calm_tensor tensor = {.name = name, .dtype = dtype, .n_dims = n_dims};
    for (int d = 0; d < n_dims; d++)
        tensor.shape[d] = shape[d];
    if (!calm_tensor_size(&tensor, &tensor.n_elements, &tensor.bytes))
        return calm_fail(to->ctx, CALM_EARG, "tensor %s: its size overflows", name);
    if (to->n == to->capacity) {
        synth_tensor *larger;
        to->capacity = 2 * to->capacity + 64;
        CALM_TRY(CALM_NEW(to->ctx, to->ctx->out, larger, to->capacity));
        for (size_t i = 0; i < to->n; i++)
            larger[i] = to->tensors[i];
        to->tensors = larger;
    }
    to->tensors[to->n++] = (synth_tensor){.tensor = tensor};
    return CALM_OK;
}

/* Adds MODULE.SUFFIX [rows, cols], or [rows] if cols is 0. */
static calm_status add_part(listing *to, const char *module, const char *suffix, size_t rows, size_t cols)
{
    char *name;
    CALM_TRY(calm_strf(to->ctx, to->ctx->out, &name, "%s.%s", module, suffix));
    return add(to, name, cols ? 2 : 1, (const size_t[2]){rows, cols});
}

/* The same for a module after the prefix. */
static calm_status add_outer(listing *to, const char *module, size_t rows, size_t cols)
{
    char *name;
    CALM_TRY(calm_strf(to->ctx, to->ctx->out, &name, "%s%s", to->prefix, module));
    return add_part(to, name, "weight", rows, cols);
}

static calm_status add_norm(listing *to, const char *module, size_t width)
{
    CALM_TRY(add_part(to, module, "weight", width, 0));
    return to->config->norm_bias ? add_part(to, module, "bias", width, 0) : CALM_OK;
}

static calm_status add_outer_norm(listing *to, const char *module)
{
    char *name;
    CALM_TRY(calm_strf(to->ctx, to->ctx->out, &name, "%s%s", to->prefix, module));
    return add_norm(to, name, to->config->hidden);
}

/* Adds the tensors of a block that are no linears, as `calm check` expects them. */
static calm_status add_block(listing *to, size_t block)
{
    const calm_names *names = to->config->arch->names;
    calm_check_expected list[CALM_CHECK_EXPECTED];
    const size_t n = calm_check_block(to->config, block, list);
    char *name;
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_strf(to->ctx, to->ctx->out, &name, "%s%s.%zu.%s", to->prefix, names->blocks, block,
                           list[i].part));
        if (list[i].kind == CALM_CHECK_NORM)
            CALM_TRY(add_norm(to, name, list[i].rows));
        else if (list[i].kind == CALM_CHECK_PLAIN)
            CALM_TRY(add(to, name, list[i].n_dims, list[i].shape));
        else
            CALM_TRY(add_part(to, name, "weight", list[i].rows, list[i].cols));
    }
    if (!to->config->moe.choice_bias || !to->config->moe.sparse[block])
        return CALM_OK;
    CALM_TRY(calm_strf(to->ctx, to->ctx->out, &name, "%s%s.%zu.%s", to->prefix, names->blocks, block,
                       names->moe.choice_bias));
    return add(to, name, 1, &to->config->moe.n_experts);
}

static calm_status add_linears(listing *to)
{
    calm_layout layout;
    CALM_TRY(calm_layout_build(to->ctx, to->config, to->prefix, false, &layout));
    for (size_t i = 0; i < layout.n_linears; i++) {
        const calm_linear_ref *linear = &layout.linears[i];
        CALM_TRY(add_part(to, linear->module, "weight", linear->out, linear->in));
        if (linear->bias)
            CALM_TRY(add_part(to, linear->module, "bias", linear->out, 0));
    }
    if (to->config->arch->ends || !layout.head)
        return CALM_OK;
    if (to->config->head_bias)
        CALM_TRY(add_part(to, layout.head, "bias", to->config->vocab, 0));
    return to->config->tied ? CALM_OK : add_part(to, layout.head, "weight", to->config->vocab, to->config->hidden);
}

/* Adds the model's tables, and an encoder's tensors outside its blocks. */
static calm_status add_tables(listing *to)
{
    const calm_config *config = to->config;
    const calm_names *names = config->arch->names;
    const calm_ends *ends = config->arch->ends;
    calm_extra_tensor parts[CALM_EXTRA_TENSORS];
    CALM_TRY(add_outer(to, names->embed, config->vocab, config->hidden));
    if (names->final_norm)
        CALM_TRY(add_outer_norm(to, names->final_norm));
    if (names->distance)
        CALM_TRY(add_outer(to, names->distance, CALM_DISTANCE_BUCKETS, config->n_heads));
    for (size_t i = calm_extra_tensors(config, parts); i-- > 0;)
        for (size_t k = 0; parts[i].outer && k < (parts[i].copies ? parts[i].copies : 1); k++) {
            char *name;
            CALM_TRY(parts[i].copies ? calm_strf(to->ctx, to->ctx->out, &name, "%s.%zu", parts[i].name, k)
                                     : calm_strf(to->ctx, to->ctx->out, &name, "%s", parts[i].name));
            CALM_TRY(add_outer(to, name, parts[i].rows, parts[i].cols));
        }
    if (!ends)
        return CALM_OK;
    if (ends->positions)
        CALM_TRY(add_outer(to, ends->positions, config->max_positions, config->hidden));
    if (ends->types && config->n_types)
        CALM_TRY(add_outer(to, ends->types, config->n_types, config->hidden));
    return add_outer_norm(to, ends->norm);
}

static int is_config(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".json") == 0;
}

int synth_configs(struct dirent ***out)
{
    return scandir(SYNTH_CONFIGS, out, is_config, alphasort);
}

calm_status synth_model_list(calm_ctx *ctx, const char *path, synth_tensor **out, size_t *n)
{
    CALM_SCOPED_JSON(root);
    calm_config config;
    CALM_TRY(calm_json_read(ctx, path, (size_t)1 << 20, &root));
    CALM_TRY(calm_config_read(ctx, path, root, &config));
    /* The usual prefix is the first of the list. */
    size_t n_prefix;
    const char *usual = calm_arch_prefix(config.arch, 0, &n_prefix);
    char *prefix;
    CALM_TRY(calm_strf(ctx, ctx->out, &prefix, "%.*s", (int)n_prefix, usual));
    listing list = {.ctx = ctx, .config = &config, .prefix = prefix};
    CALM_TRY(add_tables(&list));
    for (size_t b = 0; b < config.n_blocks; b++)
        CALM_TRY(add_block(&list, b));
    CALM_TRY(add_linears(&list));
    *out = list.tensors;
    *n = list.n;
    return CALM_OK;
}
