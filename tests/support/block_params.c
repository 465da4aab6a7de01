/* Copies of a block's parameters. */
#include "tests/support/block_params.h"

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "tests/support/harness.h"

#define MOST ((size_t)1024)

/* Adds a copy of a parameter with its gradient to the list. */
static const float *add(block_params *params, const char *name, const float *value, size_t n, float **grad)
{
    block_param *param = &params->all[params->n++];
    ck_assert(params->n <= MOST);
    *param = (block_param){.name = name, .n = n};
    ck_ok(CALM_NEW(ctx, ctx->out, param->value, n));
    ck_ok(CALM_NEW(ctx, ctx->out, param->grad, n));
    memcpy(param->value, value, n * sizeof *value);
    *grad = param->grad;
    return param->value;
}

static void add_linears(block_params *params, calm_weight weight[CALM_N_ROLES], calm_expert_grads *grads)
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        calm_weight *w = &weight[role];
        if (!w->w)
            continue;
        w->w = add(params, test_format("%s.weight", w->name), w->w, w->out * w->in, &grads->weight[role]);
        if (w->bias)
            w->bias = add(params, test_format("%s.bias", w->name), w->bias, w->out, &grads->bias[role]);
    }
}

static void add_norm(block_params *params, const char *name, calm_norm *norm, float **weight, float **bias)
{
    if (!norm->w)
        return;
    norm->w = add(params, test_format("%s.weight", name), norm->w, norm->width, weight);
    if (norm->b)
        norm->b = add(params, test_format("%s.bias", name), norm->b, norm->width, bias);
}

static calm_status load_copy(void *user, calm_ctx *task, size_t block, size_t expert, calm_weight weight[CALM_N_ROLES])
{
    const block_params *params = user;
    (void)task;
    (void)block;
    memcpy(weight, params->experts[expert], sizeof params->experts[expert]);
    return CALM_OK;
}

static void add_mixture(block_params *params, const char *name)
{
    const calm_config *config = params->block.config;
    calm_mixture *moe = &params->block.moe;
    const size_t n = config->moe.n_experts, width = config->hidden;
    calm_expert_grads *experts;
    if (!moe->router)
        return;
    moe->router = add(params, test_format("%s.%s.weight", name, config->arch->names->moe.router), moe->router,
                      n * width, &params->grads.router);
    add_linears(params, moe->shared, &params->grads.shared);
    if (moe->shared_gate)
        moe->shared_gate = add(params, test_format("%s.%s.weight", name, config->arch->names->moe.shared_gate),
                               moe->shared_gate, width, &params->grads.shared_gate);
    ck_ok(CALM_NEW(ctx, ctx->out, params->experts, n));
    ck_ok(CALM_NEW(ctx, ctx->out, experts, n));
    for (size_t e = 0; e < n; e++) {
        ck_ok(moe->load(moe->user, ctx, params->block.index, e, params->experts[e]));
        add_linears(params, params->experts[e], &experts[e]);
    }
    params->grads.experts = experts;
    moe->load = load_copy;
    moe->user = params;
}

/* Is the name of this parameter a full tensor name?  A norm has the name of its module. */
static bool is_tensor(calm_plain plain)
{
    size_t n;
    const calm_kind *const *kinds = calm_kinds(&n);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < kinds[k]->n_plains; i++)
            if (kinds[k]->plains[i].plain == plain)
                return kinds[k]->plains[i].form == CALM_PLAIN_TENSOR;
    return false;
}

static void add_plain(block_params *params, const char *block, const char *name, calm_plain plain)
{
    calm_norm *norm = &params->block.plain[plain];
    float **grad = &params->grads.plain[plain];
    if (norm->w && is_tensor(plain))
        norm->w = add(params, test_format("%s.%s", block, name), norm->w, norm->width, grad);
    else if (norm->w)
        add_norm(params, test_format("%s.%s", block, name), norm, grad, NULL);
}

void block_params_load(const calm_model *model, size_t index, block_params *out)
{
    const calm_names *names = calm_model_config(model)->arch->names;
    calm_block *block = &out->block;
    calm_expert_grads linears = {.weight = {NULL}};
    char *name;
    *out = (block_params){.n = 0};
    ck_ok(CALM_NEW(ctx, ctx->out, out->all, MOST));
    ck_ok(calm_model_load_block(ctx, model, index, block));
    ck_ok(calm_model_block_name(ctx, model, index, &name));
    add_linears(out, block->weight, &linears);
    memcpy(out->grads.weight, linears.weight, sizeof linears.weight);
    memcpy(out->grads.bias, linears.bias, sizeof linears.bias);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            add_norm(out, test_format("%s.%s", name, names->norm[s][place] ? names->norm[s][place] : ""),
                     &block->norm[s][place], &out->grads.norm[s][place], &out->grads.norm_bias[s][place]);
    for (calm_plain plain = 0; plain < CALM_N_PLAINS; plain++)
        add_plain(out, name, names->plain[plain] ? names->plain[plain] : "", plain);
    add_mixture(out, name);
}

void block_params_clear(block_params *params)
{
    for (size_t i = 0; i < params->n; i++)
        memset(params->all[i].grad, 0, params->all[i].n * sizeof *params->all[i].grad);
}

float *block_params_gradients(const block_params *params, size_t *n)
{
    size_t at = 0;
    float *out;
    *n = 0;
    for (size_t i = 0; i < params->n; i++)
        *n += params->all[i].n;
    ck_ok(CALM_NEW(ctx, ctx->out, out, *n));
    for (size_t i = 0; i < params->n; at += params->all[i++].n)
        memcpy(out + at, params->all[i].grad, params->all[i].n * sizeof *out);
    return out;
}
