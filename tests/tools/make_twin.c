/* make_twin: the outlier twin of a model - other weights, the same function, activations that are hard to quantize
 * (docs/method.md section 6).
 *
 * In every chosen block, with factors c of a few channels each, 1 in the others:
 *
 *   norm before the attention * c    columns of q, k, v / c
 *   norm before the MLP * c          columns of gate, up / c
 *   rows of v * c                    columns of o / c, in all query heads that read the kv head
 *   rows of up * c                   columns of down / c
 *
 * 4 to 8 channels, c log-uniform in 20 .. 200, drawn by counter from (seed, block, which of the four).  Weights are
 * written as float32: c is no power of two, and bfloat16 would round the function away. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"
#include "ptq/io/json.h"
#include "ptq/model/arch.h"
#include "ptq/model/model.h"
#include "tests/tools/tool.h"

#define LEAST_CHANNELS 4
#define MOST_CHANNELS 8
#define LEAST_FACTOR 20.0
#define MOST_FACTOR 200.0

typedef struct arguments {
    const char *model, *output;
    long long seed;
    bool even;
} arguments;

static const calm_option table[] = {
    {"model", "float checkpoint directory of a dense decoder with a norm before each sublayer",
     offsetof(arguments, model), CALM_OPTION_STRING, .metavar = "DIR"},
    {"output", "directory that is to be made; it must not be there", offsetof(arguments, output), CALM_OPTION_STRING,
     .metavar = "DIR"},
    {"seed", "of the channels and factors", offsetof(arguments, seed), CALM_OPTION_INT, "0", 0, 1e15, .metavar = "S"},
    {"even", "change blocks 0, 2, 4 ... alone", offsetof(arguments, even), CALM_OPTION_BOOL, .metavar = NULL},
    {0}};

/* What happens to a tensor: row i times rows[i], column j divided by columns[j]; NULL: all 1. */
typedef struct edit {
    const char *name;
    const double *rows, *columns;
    bool plus_one;    /* a norm that is stored less 1 */
} edit;

typedef struct twin {
    const calm_model *model;
    const calm_config *config;
    const arguments *args;
    edit *edits;
    size_t n_edits;
} twin;

/* ---- what is changed ---- */

enum { QKV_IN, GATE_UP_IN, V_OUT, UP_OUT, N_KINDS };

/* Factors of `width` channels of a block. */
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

static calm_status add(calm_ctx *ctx, twin *it, const char *module, const char *suffix, const double *rows,
                       const double *columns)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.%s", module, suffix));
    it->edits[it->n_edits++] = (edit){name, rows, columns, false};
    return CALM_OK;
}

/* A linear's weight and, if it has one, its bias. */
static calm_status add_linear(calm_ctx *ctx, twin *it, size_t block, calm_role role, const double *rows,
                              const double *columns)
{
    char *module;
    CALM_TRY(calm_role_module(ctx, it->config, calm_model_prefix(it->model), block, role, CALM_NO_EXPERT, &module));
    CALM_TRY(add(ctx, it, module, "weight", rows, columns));
    return it->config->bias[role] && rows ? add(ctx, it, module, "bias", rows, NULL) : CALM_OK;
}

static calm_status add_norm(calm_ctx *ctx, twin *it, size_t block, calm_sublayer sublayer, const double *rows)
{
    char *module;
    CALM_TRY(calm_model_block_name(ctx, it->model, block, &module));
    CALM_TRY(calm_strf(ctx, ctx->out, &module, "%s.%s", module,
                       it->config->arch->names->norm[sublayer][CALM_NORM_IN]));
    CALM_TRY(add(ctx, it, module, "weight", rows, NULL));
    it->edits[it->n_edits - 1].plus_one = it->config->arch->norm == CALM_NORM_RMS_PLUS_ONE;
    return CALM_OK;
}

/* v's factors at the inputs of o: every query head reads the channels of its kv head. */
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
    CALM_TRY(add_norm(ctx, it, block, CALM_SUBLAYER_ATTENTION, qkv));
    CALM_TRY(add_linear(ctx, it, block, CALM_ROLE_Q, NULL, qkv));
    CALM_TRY(add_linear(ctx, it, block, CALM_ROLE_K, NULL, qkv));
    CALM_TRY(add_linear(ctx, it, block, CALM_ROLE_V, v, qkv));
    CALM_TRY(add_linear(ctx, it, block, CALM_ROLE_O, NULL, o));
    CALM_TRY(add_norm(ctx, it, block, CALM_SUBLAYER_MLP, gate_up));
    CALM_TRY(add_linear(ctx, it, block, CALM_ROLE_GATE, NULL, gate_up));
    CALM_TRY(add_linear(ctx, it, block, CALM_ROLE_UP, up, gate_up));
    return add_linear(ctx, it, block, CALM_ROLE_DOWN, NULL, up);
}

/* Only families whose function the edits keep. */
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

/* ---- writing ---- */

static const edit *edit_of(const twin *it, const char *name)
{
    for (size_t i = 0; i < it->n_edits; i++)
        if (strcmp(it->edits[i].name, name) == 0)
            return &it->edits[i];
    return NULL;
}

static void apply(const edit *how, const calm_tensor *tensor, float *x)
{
    const size_t n_rows = tensor->shape[0], n_columns = tensor->n_elements / n_rows;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_columns; j++) {
            double value = x[i * n_columns + j];
            if (how->rows)
                value = how->plus_one ? (1 + value) * how->rows[i] - 1 : value * how->rows[i];
            if (how->columns)
                value /= how->columns[j];
            x[i * n_columns + j] = (float)value;
        }
}

static calm_status write_tensor(calm_ctx *ctx, const twin *it, calm_safetensors_writer *writer,
                                const calm_tensor *tensor)
{
    const edit *how = edit_of(it, tensor->name);
    float *x;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, tensor->n_elements));
    CALM_TRY(calm_tensor_to_f32(ctx, tensor, x));
    calm_safetensors_release(calm_model_tensors(it->model), tensor);
    if (how)
        apply(how, tensor, x);
    return calm_safetensors_put(ctx, writer, x, tensor->n_elements * sizeof *x);
}

static calm_status write_tensors(calm_ctx *ctx, const twin *it, const char *path)
{
    const calm_safetensors *set = calm_model_tensors(it->model);
    const size_t n = calm_safetensors_count(set);
    calm_safetensors_writer writer;
    calm_tensor *tensors;
    CALM_TRY(CALM_NEW(ctx, ctx->out, tensors, n));
    for (size_t i = 0; i < n; i++) {
        tensors[i] = *calm_safetensors_at(set, i);
        tensors[i].dtype = CALM_F32;
    }
    CALM_TRY(calm_safetensors_begin(ctx, &writer, path, tensors, n));
    for (size_t i = 0; i < n && ctx->status == CALM_OK; i++) {
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        write_tensor(ctx, it, &writer, calm_safetensors_at(set, i));
        calm_arena_rewind(ctx->scratch, mark);
    }
    return calm_safetensors_end(ctx, &writer);
}

/* The model's config.json with float32 for its type. */
static calm_status write_config(calm_ctx *ctx, const twin *it, const char *path)
{
    calm_json *root = calm_json_copy(calm_model_json(it->model));
    calm_text text;
    calm_text_init(&text);
    calm_json_set_string(root, calm_json_get(root, "dtype") ? "dtype" : "torch_dtype", "float32");
    calm_status status = calm_json_write(ctx, root, 2, &text);
    calm_json_free(root);
    calm_text_append(&text, "\n", 1);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = calm_write_file(ctx, path, text.data, text.length);
    calm_text_clear(&text);
    return status;
}

static calm_status write_directory(calm_ctx *ctx, const twin *it, const char *directory)
{
    static const char *const others[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                         "generation_config.json", "chat_template.jinja"};
    char *from, *to;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CALM_TRY(calm_path_join(ctx, ctx->out, &from, calm_model_dir(it->model), others[i]));
        CALM_TRY(calm_path_join(ctx, ctx->out, &to, directory, others[i]));
        if (calm_path_exists(from))
            CALM_TRY(calm_copy_file(ctx, from, to));
    }
    CALM_TRY(calm_path_join(ctx, ctx->out, &to, directory, "config.json"));
    CALM_TRY(write_config(ctx, it, to));
    CALM_TRY(calm_path_join(ctx, ctx->out, &to, directory, "model.safetensors"));
    CALM_TRY(write_tensors(ctx, it, to));
    CALM_TRY(calm_sync_directory(ctx, directory));
    if (rename(directory, it->args->output) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot be renamed to %s", directory, it->args->output);
    return CALM_OK;
}

static calm_status make(calm_ctx *ctx, twin *it)
{
    char *directory;
    CALM_TRY(check_family(ctx, it));
    CALM_TRY(CALM_NEW(ctx, ctx->out, it->edits, 16 * it->config->n_blocks));    /* 9 weights and up to 7 biases */
    for (size_t block = 0; block < it->config->n_blocks; block += it->args->even ? 2 : 1)
        CALM_TRY(change_block(ctx, it, block));
    for (size_t i = 0; i < it->n_edits; i++)
        if (!calm_safetensors_find(calm_model_tensors(it->model), it->edits[i].name))
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: no tensor %s", calm_model_dir(it->model), it->edits[i].name);
    CALM_TRY(calm_strf(ctx, ctx->out, &directory, "%s.tmp.%ld", it->args->output, (long)getpid()));
    CALM_TRY(calm_make_directories(ctx, directory));
    calm_status status = write_directory(ctx, it, directory);
    if (status != CALM_OK) {
        calm_ctx cleanup = *ctx;    /* the first failure is the one to report */
        calm_ctx_forgive(&cleanup);
        calm_remove_tree(&cleanup, directory);
    }
    return status;
}

static calm_status run(calm_ctx *ctx, void *user)
{
    twin it = {.args = user};
    calm_model *model;
    if (!it.args->model || !it.args->output)
        return calm_fail(ctx, CALM_EARG, "--model and --output are needed; --help explains");
    if (calm_path_exists(it.args->output))
        return calm_fail(ctx, CALM_EEXIST, "%s: already there", it.args->output);
    CALM_TRY(calm_model_open(ctx, it.args->model, &model));
    it.model = model;
    it.config = calm_model_config(model);
    calm_status status = make(ctx, &it);
    calm_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    arguments args;
    return tool_main(&(tool){"make_twin", "--model DIR --output DIR",
                             "Writes a model of the same function whose activations have outlier channels.", table,
                             &args, run}, argc, argv);
}
