/* make_twin: writes a model with other weights and the same function.  By default its activations have outlier
 * channels (twin_outliers.c); --split-mlp makes a mixture (twin_split.c), --first-token a massive first token
 * (twin_first_token.c). Weights are float32: factors are no powers of two, so bfloat16 would change the function. */
#include "ptq/base/file.h"
#include "tests/tools/tool.h"
#include "tests/tools/twin.h"

static const calm_option table[] = {
    {"model", "float checkpoint directory of a dense decoder with a norm before each sublayer",
     offsetof(twin_arguments, model), CALM_OPTION_STRING, .metavar = "DIR"},
    {"output", "directory that is to be made; it must not be there", offsetof(twin_arguments, output),
     CALM_OPTION_STRING, .metavar = "DIR"},
    {"seed", "of the channels and factors", offsetof(twin_arguments, seed), CALM_OPTION_INT, "0", 0, 1e15,
     .metavar = "S"},
    {"even", "change blocks 0, 2, 4 ... alone", offsetof(twin_arguments, even), CALM_OPTION_BOOL, .metavar = NULL},
    {"shrink", "divide the weights of gate and up by this, too, and multiply their norm",
     offsetof(twin_arguments, shrink), CALM_OPTION_DOUBLE, "1", 1, 1e6, .metavar = "K"},
    {"split-mlp", "instead of outliers: a mixture of E experts, of each half of them a slice of the MLP",
     offsetof(twin_arguments, split_mlp), CALM_OPTION_INT, "0", 0, 1024, .metavar = "E"},
    {"first-token", "instead of outliers: begin every text with this added token, massive in one channel",
     offsetof(twin_arguments, first_token), CALM_OPTION_STRING, .metavar = "TEXT"},
    {0}};

/* Accepts only families whose function the edits keep. */
static calm_status check_family(calm_ctx *ctx, const twin *it)
{
    static const calm_role roles[] = {CALM_ROLE_Q, CALM_ROLE_K, CALM_ROLE_V, CALM_ROLE_O,
                                      CALM_ROLE_GATE, CALM_ROLE_UP, CALM_ROLE_DOWN};
    const calm_arch *arch = it->config->arch;
    bool known = !arch->encoder && arch->norm != CALM_NORM_LAYER && it->config->moe.n_experts == 0
                 && !calm_model_is_quantized(it->model);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        known = known && calm_has_role(it->config, roles[i]);
    for (int sublayer = 0; sublayer < CALM_N_SUBLAYERS; sublayer++)
        known = known && arch->names->norm[sublayer][CALM_NORM_IN];
    if (!known)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s, expected a float dense decoder with an RMSNorm before each "
                         "sublayer and q, k, v, gate and up apart", calm_model_dir(it->model), arch->name);
    return CALM_OK;
}

static calm_status make(calm_ctx *ctx, twin *it)
{
    CALM_TRY(check_family(ctx, it));
    if (it->args->split_mlp)
        CALM_TRY(twin_split(ctx, it));
    else if (it->args->first_token)
        CALM_TRY(twin_first_token(ctx, it));
    else
        CALM_TRY(twin_outliers(ctx, it));
    return twin_write(ctx, it);
}

static calm_status run(calm_ctx *ctx, void *user)
{
    const twin_arguments *args = user;
    CALM_SCOPED_MODEL(model);
    twin it;
    if (!args->model || !args->output)
        return calm_fail(ctx, CALM_EARG, "--model and --output are needed; --help explains");
    if (calm_path_exists(args->output))
        return calm_fail(ctx, CALM_EEXIST, "%s: already there", args->output);
    CALM_TRY(calm_model_open(ctx, args->model, &model));
    calm_status status = twin_begin(ctx, &it, args, model);
    if (status == CALM_OK)
        status = make(ctx, &it);
    twin_clear(&it);
    return status;
}

int main(int argc, char **argv)
{
    twin_arguments args;
    return tool_main(&(tool){"make_twin", "--model DIR --output DIR",
                             "Writes a model of the same function whose activations have outlier channels, or one of\n"
                             "the other kinds.", table, &args, run}, argc, argv);
}
