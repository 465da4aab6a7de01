/* Pooling, and the dense layers after it. */
#include "ptq/model/pooling.h"

#include <math.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/option.h"
#include "ptq/io/safetensors.h"
#include "ptq/weights/widen.h"

/* Bounds what an untrusted file makes us read. */
#define JSON_MAX ((size_t)1024 * 1024)

/* ---- reading ---- */

/* Returns the part of "sentence_transformers.models.Pooling" or "torch.nn.modules.linear.Identity" after the last
 * dot. */
static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Reads the object in DIR/FOLDER/NAME, and makes its path for messages. */
static calm_status read_json(calm_ctx *ctx, const char *dir, const char *folder, const char *name, char **path,
                             calm_json **out)
{
    CALM_TRY(calm_strf(ctx, ctx->scratch, path, "%s/%s%s%s", dir, folder, *folder ? "/" : "", name));
    CALM_TRY(calm_json_read(ctx, *path, JSON_MAX, out));
    return calm_json_expect(ctx, *out, CALM_JSON_OBJECT, "%s", *path);
}

/* Reads the switches of older files: exactly one is on; none means the mean. */
static calm_status read_switches(calm_ctx *ctx, const char *path, const calm_json *root, const char **mode)
{
    static const char *const keys[][2] = {{"pooling_mode_cls_token", "cls"},
                                          {"pooling_mode_max_tokens", "max"},
                                          {"pooling_mode_mean_tokens", "mean"},
                                          {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                                          {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                          {"pooling_mode_lasttoken", "lasttoken"}};
    const char *first = NULL, *key;
    const calm_json *value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool on;
        CALM_TRY(calm_json_need_bool(ctx, path, root, keys[i][0], &(bool){false}, &on));
        if (on && first)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\" and \"%s\": found both true, expected one", path,
                             first, keys[i][0]);
        if (on)
            first = keys[i][0], *mode = keys[i][1];
    }
    /* A mode of a later release must not be read as the mean. */
    for (void *iter = NULL; calm_json_next(root, &iter, &key, &value);) {
        /* A value that is no boolean counts as switched on. */
        bool known = strncmp(key, "pooling_mode_", 13) != 0 || !calm_json_bool(value, true);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known |= strcmp(key, keys[i][0]) == 0;
        if (!known)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": this way of pooling is not known; expected cls, "
                             "mean, mean_sqrt_len_tokens, weightedmean or lasttoken", path, key);
    }
    return CALM_OK;
}

/* Reads the way of pooling; several at once are refused. */
static calm_status read_mode(calm_ctx *ctx, const char *path, const calm_json *root, calm_pooling_mode *out)
{
    /* Newer files have one key, older ones a switch for each mode. */
    const calm_json *value = calm_json_get(root, "pooling_mode");
    const char *mode = "mean";
    /* A list with one element means that element. */
    if (calm_json_typeof(value) == CALM_JSON_ARRAY && calm_json_size(value) == 1)
        value = calm_json_at(value, 0);
    if (calm_json_typeof(value) == CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"pooling_mode\": found %zu ways of pooling, expected one", path,
                         calm_json_size(value));
    if (calm_json_typeof(value) == CALM_JSON_NULL)
        CALM_TRY(read_switches(ctx, path, root, &mode));
    else
        mode = calm_json_string(value, "");
    /* In the order of calm_pooling_mode; "max" is not in the list, so that it is refused. */
    const int index = calm_option_value_index("mean|cls|lasttoken|mean_sqrt_len_tokens|weightedmean", mode);
    if (index < 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"pooling_mode\": found \"%s\", expected cls, mean, "
                         "mean_sqrt_len_tokens, weightedmean or lasttoken", path, mode);
    *out = (calm_pooling_mode)index;
    return CALM_OK;
}

/* Reads the prompt that the library's `encode` puts before each sentence by default; "query" and "document" are names
 * without a text.  `counts`: its tokens are included in the pooling. */
static calm_status read_prompt(calm_ctx *ctx, const char *dir, bool counts, calm_pooling *to)
{
    CALM_SCOPED_JSON(root);
    char *path, *copy;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/config_sentence_transformers.json", dir));
    if (!calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(read_json(ctx, dir, "", "config_sentence_transformers.json", &path, &root));
    const char *name = calm_json_string(calm_json_get(root, "default_prompt_name"), NULL);
    const calm_json *prompts = calm_json_get(root, "prompts"), *text = name ? calm_json_get(prompts, name) : NULL;
    if (!name)
        return CALM_OK;
    if (!text && strcmp(name, "query") != 0 && strcmp(name, "document") != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"default_prompt_name\": found \"%s\", expected a key of \"prompts\"",
                         path, name);
    if (!*calm_json_string(text, ""))
        return CALM_OK;
    /* calm pools all rows of a text, and cannot leave out those of the prompt. */
    if (!counts)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"default_prompt_name\": found \"%s\" with \"include_prompt\" "
                         "false in the pooling, expected true", path, name);
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", calm_json_string(text, "")));
    to->prompt = copy;
    return CALM_OK;
}

/* Reads the module that makes one row of all. */
static calm_status read_pooling(calm_ctx *ctx, const char *dir, const char *folder, calm_pooling *to)
{
    CALM_SCOPED_JSON(root);
    char *path;
    int64_t width;
    bool counts;
    CALM_TRY(read_json(ctx, dir, folder, "config.json", &path, &root));
    /* Releases differ in the name of the key; messages name the one that the file has. */
    const bool renamed = calm_json_get(root, "embedding_dimension");
    const char *key = renamed ? "embedding_dimension" : "word_embedding_dimension";
    CALM_TRY(calm_json_need_int(ctx, path, root, key, &(int64_t){(int64_t)to->hidden}, 1, CALM_SIZE_LIMIT, &width));
    if ((size_t)width != to->hidden)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": found %lld, expected the model's %zu", path, key,
                         (long long)width, to->hidden);
    CALM_TRY(calm_json_need_bool(ctx, path, root, "include_prompt", &(bool){true}, &counts));
    CALM_TRY(read_prompt(ctx, dir, counts, to));
    return read_mode(ctx, path, root, &to->mode);
}

/* Reads the function by the torch class that the file names. */
static calm_status read_function(calm_ctx *ctx, const char *path, const calm_json *root, calm_dense_function *out)
{
    const char *name;
    CALM_TRY(calm_json_need_string(ctx, path, root, "activation_function", "torch.nn.modules.activation.Tanh", &name));
    /* A class of another package may have the same last word and compute another function. */
    const int index = strncmp(name, "torch.nn.", 9) == 0
                          ? calm_option_value_index("Identity|Tanh|ReLU|Sigmoid", last_word(name)) : -1;
    if (index < 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"activation_function\": found \"%s\", expected Identity, Tanh, "
                         "ReLU or Sigmoid of torch.nn", path, name);
    *out = (calm_dense_function)index;
    return CALM_OK;
}

/* Checks that the module reads and writes the sentence embedding. */
static calm_status check_names(calm_ctx *ctx, const char *path, const calm_json *root)
{
    static const char *const keys[] = {"module_input_name", "module_output_name"};
    for (size_t i = 0; i < 2; i++) {
        const char *name;
        CALM_TRY(calm_json_need_string(ctx, path, root, keys[i], "sentence_embedding", &name));
        if (strcmp(name, "sentence_embedding") != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": found \"%s\", expected \"sentence_embedding\"", path,
                             keys[i], name);
    }
    return CALM_OK;
}

/* Checks the layer's tensors; with `load` reads them into ctx->out. */
static calm_status open_dense(calm_ctx *ctx, calm_pooling_step *step, bool load)
{
    const size_t shape[2] = {step->out, step->in};
    CALM_SCOPED_SAFETENSORS(set);
    float *values;
    CALM_TRY(calm_safetensors_open(ctx, step->dir, &set));
    for (int bias = 0; bias <= step->biased; bias++) {
        const calm_tensor *tensor;
        CALM_TRY(calm_safetensors_need_floats(ctx, set, bias ? "linear.bias" : "linear.weight", bias ? 1 : 2, shape,
                                              &tensor));
        if (!load)
            continue;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, tensor->n_elements));
        CALM_TRY(calm_widen(ctx, set, tensor, values));
        *(bias ? &step->b : &step->w) = values;
    }
    return CALM_OK;
}

/* Reads a layer; its sizes follow from the steps before it and from its tensors. */
static calm_status read_dense(calm_ctx *ctx, const char *dir, const char *folder, size_t in, calm_pooling_step *to)
{
    CALM_SCOPED_JSON(root);
    char *path;
    int64_t from, width;
    bool residual;
    CALM_TRY(read_json(ctx, dir, folder, "config.json", &path, &root));
    CALM_TRY(calm_json_need_int(ctx, path, root, "in_features", NULL, 1, CALM_SIZE_LIMIT, &from));
    CALM_TRY(calm_json_need_int(ctx, path, root, "out_features", NULL, 1, CALM_SIZE_LIMIT, &width));
    if ((size_t)from != in)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"in_features\": found %lld, expected %zu, the width before it", path,
                         (long long)from, in);
    *to = (calm_pooling_step){.dense = true, .in = in, .out = (size_t)width};
    CALM_TRY(calm_json_need_bool(ctx, path, root, "bias", &(bool){true}, &to->biased));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_residual", &(bool){false}, &residual));
    if (residual)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"use_residual\": found true, expected false", path);
    CALM_TRY(check_names(ctx, path, root));
    CALM_TRY(read_function(ctx, path, root, &to->function));
    CALM_TRY(calm_strf(ctx, ctx->out, &to->dir, "%s/%s", dir, folder));
    /* Only checks the tensors: the weights are loaded when embeddings are computed. */
    return open_dense(ctx, to, false);
}

/* Is the path, from untrusted modules.json, below the model's directory? */
static bool is_below(const char *path)
{
    return path[0] != '/' && !strstr(path, "..");
}

/* Reads one module; *pools: a pooling module was among those before it. */
static calm_status read_module(calm_ctx *ctx, const char *dir, const char *path, const calm_json *module, bool *pools,
                               calm_pooling *to)
{
    const char *type, *folder;
    CALM_TRY(calm_json_expect(ctx, module, CALM_JSON_OBJECT, "%s: a module", path));
    CALM_TRY(calm_json_need_string(ctx, path, module, "type", NULL, &type));
    CALM_TRY(calm_json_need_string(ctx, path, module, "path", "", &folder));
    const char *kind = last_word(type);
    if (!is_below(folder))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"path\": found \"%s\", expected a folder of the model", path, folder);
    /* Dropout does nothing after training. */
    if (strcmp(kind, "Transformer") == 0 || strcmp(kind, "Dropout") == 0)
        return CALM_OK;
    if (strcmp(kind, "Pooling") == 0 && !*pools) {
        *pools = true;
        return read_pooling(ctx, dir, folder, to);
    }
    const bool dense = strcmp(kind, "Dense") == 0;
    if (!*pools || (!dense && strcmp(kind, "Normalize") != 0))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"type\": found \"%s\"%s, expected Transformer, then Pooling, "
                         "then Dense and Normalize", path, type, *pools ? "" : " before Pooling");
    if (to->n_steps == CALM_POOLING_STEPS)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: expected at most %zu modules after Pooling", path,
                         CALM_POOLING_STEPS);
    calm_pooling_step *step = &to->steps[to->n_steps++];
    *step = (calm_pooling_step){.in = to->width, .out = to->width};
    if (dense)
        CALM_TRY(read_dense(ctx, dir, folder, to->width, step));
    /* The next module must read this width; after the last one it is the embedding's. */
    to->width = step->out;
    return CALM_OK;
}

/* Is there a pooling module?  Rerankers list only others. */
static bool has_pooling(const calm_json *list)
{
    for (size_t i = 0; i < calm_json_size(list); i++)
        if (strcmp(last_word(calm_json_string(calm_json_get(calm_json_at(list, i), "type"), "")), "Pooling") == 0)
            return true;
    return false;
}

calm_status calm_pooling_read(calm_ctx *ctx, const char *dir, const calm_config *config, const calm_pooling **out)
{
    CALM_SCOPED_JSON(list);
    CALM_SCOPED_SCRATCH(ctx);
    char *path;
    bool pools = false;
    calm_pooling *found;
    *out = NULL;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &path, "%s/modules.json", dir));
    if (!calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(calm_json_read(ctx, path, JSON_MAX, &list));
    CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s", path));
    if (!has_pooling(list))
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, found, 1));
    found->hidden = found->width = config->hidden;
    for (size_t i = 0; i < calm_json_size(list); i++)
        CALM_TRY(read_module(ctx, dir, path, calm_json_at(list, i), &pools, found));
    *out = found;
    return CALM_OK;
}

size_t calm_pooling_width(const calm_config *config)
{
    return config->pooling ? config->pooling->width : config->hidden;
}

const char *calm_pooling_prompt(const calm_config *config)
{
    return config->pooling ? config->pooling->prompt : NULL;
}

/* Only the last step counts, not a division before a dense layer. */
bool calm_pooling_is_unit(const calm_config *config)
{
    const calm_pooling *how = config->pooling;
    return how && how->n_steps && !how->steps[how->n_steps - 1].dense;
}

/* ---- weights ---- */

calm_status calm_pooling_load(calm_ctx *ctx, const calm_config *config, calm_pooling *out)
{
    /* A copy, since the loaded weights live in ctx->out, and the config may outlive them. */
    *out = config->pooling ? *config->pooling : (calm_pooling){.hidden = config->hidden, .width = config->hidden};
    for (size_t i = 0; i < out->n_steps; i++)
        CALM_TRY(calm_pooling_load_step(ctx, &out->steps[i]));
    return CALM_OK;
}

calm_status calm_pooling_load_step(calm_ctx *ctx, calm_pooling_step *step)
{
    CALM_SCOPED_SCRATCH(ctx);
    /* A loaded layer's weights are in memory already. */
    return step->dense && !step->w ? open_dense(ctx, step, true) : CALM_OK;
}

size_t calm_pooling_load_bytes(const calm_config *config)
{
    size_t bytes = 0;
    for (size_t i = 0; config->pooling && i < config->pooling->n_steps; i++)
        bytes += calm_pooling_step_bytes(&config->pooling->steps[i]);
    return bytes;
}

size_t calm_pooling_step_bytes(const calm_pooling_step *step)
{
    /* Weights in memory count too, so for a GGUF file's layers this is an upper bound. */
    if (!step->dense)
        return 0;
    return CALM_BYTES(float, step->out * step->in) + (step->biased ? CALM_BYTES(float, step->out) : 0);
}

/* ---- forward ---- */

size_t calm_pooling_room(const calm_pooling *pooling)
{
    size_t n = pooling->hidden;
    for (size_t i = 0; i < pooling->n_steps; i++)
        n += pooling->steps[i].out;
    return n;
}

double calm_pooling_weight(calm_pooling_mode mode, size_t n, size_t t)
{
    const double count = (double)n;
    switch (mode) {
    case CALM_POOLING_CLS: return t == 0;
    case CALM_POOLING_LAST: return t + 1 == n;
    case CALM_POOLING_MEAN_SQRT: return 1 / sqrt(count);
    case CALM_POOLING_WEIGHTED: return (double)(t + 1) / (count * (count + 1) / 2);
    default: return 1 / count;
    }
}

/* One division of the sum rounds less than a product for each row. */
static void pool_mean(const float *x, size_t n, size_t width, double divisor, double *out)
{
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < width; j++)
            out[j] += (double)x[t * width + j];
    for (size_t j = 0; j < width; j++)
        out[j] /= divisor;
}

/* Computes weighted sums of rows; rows of weight 0 are not read. */
static void pool_rows(calm_pooling_mode mode, const float *x, size_t n, size_t width, double *out)
{
    memset(out, 0, width * sizeof *out);
    if (mode == CALM_POOLING_MEAN || mode == CALM_POOLING_MEAN_SQRT) {
        pool_mean(x, n, width, mode == CALM_POOLING_MEAN ? (double)n : sqrt((double)n), out);
        return;
    }
    for (size_t t = 0; t < n; t++) {
        const double weight = calm_pooling_weight(mode, n, t);
        for (size_t j = 0; weight > 0 && j < width; j++)
            out[j] += weight * (double)x[t * width + j];
    }
}

/* Returns y = f(x). */
static double apply(calm_dense_function function, double x)
{
    /* ReLU by a comparison keeps NaN, which fmax(x, 0) would turn into 0. */
    return function == CALM_DENSE_TANH      ? tanh(x)
           : function == CALM_DENSE_RELU    ? (x < 0 ? 0 : x)
           : function == CALM_DENSE_SIGMOID ? 1 / (1 + exp(-x))
                                            : x;
}

/* Returns the derivative of y = f(x), from y. */
static double slope(calm_dense_function function, double y)
{
    return function == CALM_DENSE_TANH      ? 1 - y * y
           : function == CALM_DENSE_RELU    ? y > 0
           : function == CALM_DENSE_SIGMOID ? y * (1 - y)
                                            : 1;
}

/* Returns the length, at least the smallest divisor of the reference. */
static double length_of(size_t n, const double *x)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += x[i] * x[i];
    return fmax(sqrt(square), 1e-12);
}

/* Computes y [out] of one step from x [in]. */
static void run_step(const calm_pooling_step *step, const double *x, double *y)
{
    const double length = step->dense ? 1 : length_of(step->in, x);
    for (size_t i = 0; !step->dense && i < step->in; i++)
        y[i] = x[i] / length;
    for (size_t o = 0; step->dense && o < step->out; o++) {
        double sum = step->b ? (double)step->b[o] : 0;
        for (size_t i = 0; i < step->in; i++)
            sum += (double)step->w[o * step->in + i] * x[i];
        y[o] = apply(step->function, sum);
    }
}

const double *calm_pooling_run(const calm_pooling *pooling, const float *x, size_t n, double *room)
{
    /* Stages are contiguous, so that the backward pass finds the input of each. */
    double *at = room;
    pool_rows(pooling->mode, x, n, pooling->hidden, at);
    for (size_t i = 0; i < pooling->n_steps; i++) {
        const calm_pooling_step *step = &pooling->steps[i];
        run_step(step, at, at + step->in);
        at += step->in;
    }
    return at;
}

/* ---- backward ---- */

/* Computes dx [in] from dy [out] of a step with input x and output y. */
static void step_back(const calm_pooling_step *step, const double *x, const double *y, const double *dy, double *dx)
{
    double along = 0;
    const double length = step->dense ? 1 : length_of(step->in, x);
    /* y = x / |x| gives dx = (dy - y (y . dy)) / |x|. */
    for (size_t i = 0; !step->dense && i < step->in; i++)
        along += y[i] * dy[i];
    for (size_t i = 0; i < step->in; i++)
        dx[i] = step->dense ? 0 : (dy[i] - y[i] * along) / length;
    for (size_t o = 0; step->dense && o < step->out; o++) {
        const double g = dy[o] * slope(step->function, y[o]);
        for (size_t i = 0; i < step->in; i++)
            dx[i] += g * (double)step->w[o * step->in + i];
    }
}

void calm_pooling_back(const calm_pooling *pooling, const double *room, const double *dy, double *d_room, double *dx)
{
    /* From the last stage to the first, each in its part of d_room. */
    const double *y = room + calm_pooling_room(pooling) - pooling->width;
    double *d = d_room + calm_pooling_room(pooling) - pooling->width;
    memcpy(d, dy, pooling->width * sizeof *d);
    for (size_t i = pooling->n_steps; i-- > 0;) {
        const calm_pooling_step *step = &pooling->steps[i];
        step_back(step, y - step->in, y, d, d - step->in);
        y -= step->in;
        d -= step->in;
    }
    memcpy(dx, d, pooling->hidden * sizeof *dx);
}
