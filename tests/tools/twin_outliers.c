/* Outlier channels.  In every chosen block, with factors c of a few channels each, 1 in the others:
 *
 *   norm before the attention * c    columns of q, k, v / c
 *   norm before the MLP * c K        columns of gate, up / c K
 *   rows of v * c                    columns of o / c, in all query heads that read the kv head
 *   rows of up * c                   columns of down / c
 *
 * 4 to 8 channels, c log-uniform in 20 .. 200, drawn by counter from (seed, block, which of the four).  K is --shrink:
 * it makes rows of up so small that their scale, divided by the input scale of down, is below a grid's least scale. */
#include <math.h>

#include "ptq/base/rng_impl.h"
#include "tests/tools/twin.h"

#define LEAST_CHANNELS 4
#define MOST_CHANNELS 8
#define LEAST_FACTOR 20.0
#define MOST_FACTOR 200.0

enum { QKV_IN, GATE_UP_IN, V_OUT, UP_OUT, N_KINDS };

/* Draws the factors of `width` channels of a block. */
static calm_status factors(calm_ctx *ctx, const twin *it, size_t block, int kind, size_t width, double **out)
{
    const uint64_t seed = (uint64_t)it->args->seed, stream = 3 * (N_KINDS * block + (size_t)kind);
    const size_t wanted = LEAST_CHANNELS + calm_rng_u64(seed, stream, 0) % (MOST_CHANNELS - LEAST_CHANNELS + 1);
    size_t channels[MOST_CHANNELS], n = wanted < width ? wanted : width;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, width));
    for (size_t i = 0; i < width; i++)
        (*out)[i] = 1;
    if (!calm_rng_choose(seed, stream + 1, width, n, channels))
        return calm_fail(ctx, CALM_ENOMEM, "no memory to choose channels");
    for (size_t i = 0; i < n; i++)
        (*out)[channels[i]] = LEAST_FACTOR * pow(MOST_FACTOR / LEAST_FACTOR, calm_rng_uniform(seed, stream + 2, i));
    return CALM_OK;
}

/* Multiplies a linear's weight and, if it has one, its bias. */
static calm_status change_linear(calm_ctx *ctx, twin *it, size_t block, calm_role role, const double *rows,
                                 const double *columns)
{
    char *module, *name;
    twin_piece *piece;
    CALM_TRY(twin_module(ctx, it, block, role, &module));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.weight", module));
    CALM_TRY(twin_find(ctx, it, name, &piece));
    piece->rows = rows;
    piece->columns = columns;
    if (!it->config->bias[role] || !rows)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.bias", module));
    CALM_TRY(twin_find(ctx, it, name, &piece));
    piece->rows = rows;
    return CALM_OK;
}

static calm_status change_norm(calm_ctx *ctx, twin *it, size_t block, calm_sublayer sublayer, const double *rows)
{
    char *name;
    twin_piece *piece;
    CALM_TRY(twin_norm(ctx, it, block, sublayer, &name));
    CALM_TRY(twin_find(ctx, it, name, &piece));
    piece->rows = rows;
    piece->plus_one = it->config->arch->norm == CALM_NORM_RMS_PLUS_ONE;
    return CALM_OK;
}

/* Maps v's factors to the inputs of o: every query head reads the channels of its kv head. */
static calm_status spread_heads(calm_ctx *ctx, const calm_config *config, const double *v, double **out)
{
    const size_t width = config->head_dim, share = config->n_heads / config->n_kv;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, config->n_heads * width));
    for (size_t i = 0; i < config->n_heads * width; i++)
        (*out)[i] = v[i / width / share * width + i % width];
    return CALM_OK;
}

static calm_status change_block(calm_ctx *ctx, twin *it, size_t block)
{
    const calm_config *config = it->config;
    double *qkv, *v, *o, *gate_up, *up;
    CALM_TRY(factors(ctx, it, block, QKV_IN, config->hidden, &qkv));
    CALM_TRY(factors(ctx, it, block, GATE_UP_IN, config->hidden, &gate_up));
    CALM_TRY(factors(ctx, it, block, V_OUT, config->n_kv * config->head_dim, &v));
    CALM_TRY(factors(ctx, it, block, UP_OUT, config->inner, &up));
    CALM_TRY(spread_heads(ctx, config, v, &o));
    for (size_t j = 0; j < config->hidden; j++)
        gate_up[j] *= it->args->shrink;
    CALM_TRY(change_norm(ctx, it, block, CALM_SUBLAYER_ATTENTION, qkv));
    CALM_TRY(change_linear(ctx, it, block, CALM_ROLE_Q, NULL, qkv));
    CALM_TRY(change_linear(ctx, it, block, CALM_ROLE_K, NULL, qkv));
    CALM_TRY(change_linear(ctx, it, block, CALM_ROLE_V, v, qkv));
    CALM_TRY(change_linear(ctx, it, block, CALM_ROLE_O, NULL, o));
    CALM_TRY(change_norm(ctx, it, block, CALM_SUBLAYER_MLP, gate_up));
    CALM_TRY(change_linear(ctx, it, block, CALM_ROLE_GATE, NULL, gate_up));
    CALM_TRY(change_linear(ctx, it, block, CALM_ROLE_UP, up, gate_up));
    return change_linear(ctx, it, block, CALM_ROLE_DOWN, NULL, up);
}

calm_status twin_outliers(calm_ctx *ctx, twin *it)
{
    for (size_t block = 0; block < it->config->n_blocks; block += it->args->even ? 2 : 1)
        CALM_TRY(change_block(ctx, it, block));
    return CALM_OK;
}
