/* Quantized checkpoints: the registry of formats, and code that they share. */
#include "ptq/weights/qformat.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/config.h"
#include "ptq/quant/act_levels.h"
#include "ptq/quant/pack.h"
#include "ptq/weights/int_linear.h"

struct calm_qformat_reader {
    const calm_qformat *format;
    calm_arena arena;     /* memory of the format's reader */
    max_align_t self[];   /* the format's own structure */
};

#define CALM_QFORMAT(name) extern const calm_qformat calm_qformat_##name;
#include "ptq/weights/qformats.def"
#undef CALM_QFORMAT

const calm_qformat *const *calm_qformats(size_t *n)
{
    static const calm_qformat *const all[] = {
#define CALM_QFORMAT(name) &calm_qformat_##name,
#include "ptq/weights/qformats.def"
#undef CALM_QFORMAT
    };
    *n = sizeof all / sizeof *all;
    return all;
}

/* ---- suffixes and shapes ---- */

bool calm_qformat_suffix_part(const calm_qformat *format, const char *suffix, calm_qformat_part *part)
{
    size_t n;
    const calm_qformat *const *formats = calm_qformats(&n);
    for (size_t i = 0; i < n; i++)
        for (const calm_qformat_suffix *at = formats[i]->suffixes; at->suffix; at++)
            if ((!format || format == formats[i]) && strcmp(at->suffix, suffix) == 0) {
                *part = at->part;
                return true;
            }
    return false;
}

/* Returns the columns of a weight with `rows` rows that a tensor next to the codes states: by its shape, or the length
 * of its index; 0: none. */
static size_t stated_columns(const calm_tensor *tensor, calm_qformat_part part, size_t rows)
{
    /* Data of a mapped tensor may have any alignment: it is copied, not cast. */
    int64_t shape[2] = {0, 0};
    if (part == CALM_QFORMAT_INDEX)
        return tensor->n_dims == 1 ? tensor->n_elements : 0;
    if (tensor->dtype == CALM_I64 && tensor->n_elements == 2)
        memcpy(shape, tensor->data, sizeof shape);
    return shape[0] == (int64_t)rows && shape[1] > 0 && shape[1] < CALM_SIZE_LIMIT ? (size_t)shape[1] : 0;
}

calm_status calm_qformat_shape(calm_ctx *ctx, const calm_qformat *format, const calm_safetensors *set,
                               const char *module, const calm_qformat_scheme *scheme, const calm_tensor *codes,
                               size_t *out, size_t *in)
{
    /* MLX may store the experts of a block in one tensor [E, rows, words]. */
    const bool stacked = codes->n_dims == 3;
    char *name;
    *out = *in = 0;
    if ((codes->n_dims != 2 && !stacked) || codes->shape[stacked] > (size_t)CALM_SIZE_LIMIT ||
        codes->shape[1 + stacked] > (size_t)CALM_SIZE_LIMIT)
        return CALM_OK;
    *out = codes->shape[stacked + format->inputs_first];
    *in = codes->shape[stacked + !format->inputs_first];
    size_t *packed = format->packs_outputs ? out : in;
    const bool bytes = format->plain_bytes && (codes->dtype == CALM_I8 || codes->dtype == CALM_F8_E4M3);
    /* The packed dimension counts words of 32 bits, or bytes. */
    if (!bytes)
        *packed = *packed * (codes->dtype == CALM_U8 ? 8 : 32) / (size_t)scheme->bits;
    /* Packed codes give the columns only up to a whole word (2 bits: up to 15 columns too many).  The stated shape
     * counts only if it needs the same number of words; codes in bytes are exact. */
    for (const calm_qformat_suffix *at = format->suffixes; at->suffix && !bytes && codes->dtype != CALM_U8; at++) {
        if (at->part != CALM_QFORMAT_SHAPE && at->part != CALM_QFORMAT_INDEX)
            continue;
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, at->suffix));
        const calm_tensor *tensor = calm_safetensors_find(set, name);
        const size_t stated = tensor ? stated_columns(tensor, at->part, *out) : 0;
        if (stated && stated < (size_t)CALM_SIZE_LIMIT &&
            calm_pack_words(stated, scheme->bits) == calm_pack_words(*in, scheme->bits))
            *in = stated;
    }
    return CALM_OK;
}

/* ---- opening ---- */

/* Fails for a config whose entry is of no known format. */
static calm_status unknown(calm_ctx *ctx, const char *path, const calm_json *config)
{
    const calm_json *entry = calm_json_get(config, "quantization_config");
    const char *method = calm_json_string(calm_json_get(entry, "quant_method"), "(none)");
    /* Only MLX writes "quantization", and its detect() found neither group_size nor bits. */
    if (calm_json_typeof(entry) == CALM_JSON_NULL)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"quantization\" without group_size and bits, as MLX has", path);
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: quantization_config.quant_method \"%.64s\": calm reads compressed-tensors, gptq, awq, MLX's "
                     "own entry, fp8 and mxfp4; give it the float checkpoint, or one in such a format", path, method);
}

/* Returns the member of config.json that describes the format. */
static const calm_json *entry_of(const calm_qformat *format, const calm_json *config)
{
    return calm_json_get(config, format->entry ? format->entry : "quantization_config");
}

bool calm_qformat_detect(const calm_qformat *format, const calm_json *config)
{
    if (format->detect)
        return format->detect(config);
    const char *method = calm_json_string(calm_json_get(entry_of(format, config), "quant_method"), "");
    /* vLLM accepts files with the library's name instead of the method's. */
    if (strcmp(method, "compressed_tensors") == 0)
        method = "compressed-tensors";
    return strcmp(method, format->label) == 0;
}

calm_status calm_qformat_open(calm_ctx *ctx, const char *path, const calm_json *config, calm_qformat_reader **out)
{
    size_t n;
    const calm_qformat *const *formats = calm_qformats(&n), *format = NULL;
    *out = NULL;
    for (size_t i = 0; i < n && !format; i++)
        format = calm_qformat_detect(formats[i], config) ? formats[i] : NULL;
    /* Without either entry it is a float checkpoint, which is no error. */
    if (!format && calm_json_typeof(calm_json_get(config, "quantization_config")) == CALM_JSON_NULL &&
        calm_json_typeof(calm_json_get(config, "quantization")) == CALM_JSON_NULL)
        return CALM_OK;
    if (!format)
        return unknown(ctx, path, config);
    /* On the heap: the reader lives until the model is closed, and owns regexes in addition to its arena. */
    calm_qformat_reader *reader = calloc(1, sizeof *reader + format->bytes);
    if (!reader)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    reader->format = format;
    const calm_status status = format->read(ctx, path, entry_of(format, config), &reader->arena, reader->self);
    if (status == CALM_OK)
        *out = reader;
    else
        calm_qformat_close(reader);
    return status;
}

void calm_qformat_close(calm_qformat_reader *reader)
{
    if (!reader)
        return;
    if (reader->format->release)
        reader->format->release(reader->self);
    calm_arena_clear(&reader->arena);
    free(reader);
}

const calm_qformat *calm_qformat_of(const calm_qformat_reader *reader)
{
    return reader->format;
}

calm_status calm_qformat_find(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                              const char *module, bool *quantized, calm_qformat_scheme *out)
{
    return reader->format->find(ctx, reader->self, set, module, quantized, out);
}

calm_status calm_qformat_hadamard(calm_ctx *ctx, const calm_qformat_reader *reader, const char *module, size_t in,
                                  size_t *width)
{
    *width = 0;
    return reader->format->hadamard ? reader->format->hadamard(ctx, reader->self, module, in, width) : CALM_OK;
}

calm_status calm_qformat_tensors(calm_ctx *ctx, const calm_qformat_reader *reader, const char *module,
                                 const calm_qformat_scheme *scheme, size_t out, size_t in, calm_qformat_tensor *list,
                                 size_t *n)
{
    return reader->format->tensors(ctx, module, scheme, out, in, list, n);
}

/* ---- a module's tensors ---- */

/* Finds the expert's part of a tensor of all experts, as a tensor in ctx->scratch; *out NULL: there is none. */
static calm_status find_stacked(calm_ctx *ctx, const calm_qformat *format, const calm_safetensors *set,
                                const char *module, const calm_qformat_tensor *expected, const calm_tensor **out)
{
    char *stack = NULL, *name, text[128];
    size_t expert = 0;
    const size_t *shape = expected->shape;
    /* The part is a slice of the mapped tensor: nothing is copied. */
    calm_tensor *part;
    if (format->stack)
        CALM_TRY(format->stack(ctx, module, &stack, &expert));
    if (!stack)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", stack, expected->suffix));
    const calm_tensor *all = calm_safetensors_find(set, name);
    if (!all)
        return CALM_OK;
    /* The tensor may have further experts: the layout lists each of them. */
    if (all->n_dims != 3 || expected->n_dims != 2 || all->shape[1] != shape[0] || all->shape[2] != shape[1] ||
        expert >= all->shape[0])
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: shape %s, expected [more than %zu, %zu, %zu]", all->file,
                         name, calm_shape_text(all->n_dims, all->shape, text), expert, shape[0], shape[1]);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, part, 1));
    *part = *all;
    part->n_dims = 2;
    part->shape[0] = shape[0];
    part->shape[1] = shape[1];
    part->bytes = all->bytes / all->shape[0];
    part->n_elements = all->n_elements / all->shape[0];
    part->data = all->data + expert * part->bytes;
    *out = part;
    return CALM_OK;
}

/* Finds a tensor with a single number, where one is expected, in any shape: [1], [] or [1, 1]; else returns NULL. */
static const calm_tensor *find_one(const calm_safetensors *set, const char *name, int n_dims, const size_t *shape)
{
    const calm_tensor *found = calm_safetensors_find(set, name);
    return n_dims == 1 && shape[0] == 1 && found && found->n_elements == 1 ? found : NULL;
}

/* Gets the expected tensor, checked; NULL for an optional one that is absent. */
static calm_status need(calm_ctx *ctx, const calm_qformat *format, const calm_safetensors *set,
                        const char *module, const calm_qformat_tensor *expected, const calm_tensor **out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, expected->suffix));
    /* A tensor under the module's own name takes precedence over a slice of a stacked one. */
    const bool own = calm_safetensors_find(set, name) != NULL;
    *out = NULL;
    if (!own)
        CALM_TRY(find_stacked(ctx, format, set, module, expected, out));
    if (!own && !*out && expected->optional)
        return CALM_OK;
    const calm_tensor *one = find_one(set, name, expected->n_dims, expected->shape);
    if (!*out)
        CALM_TRY(calm_safetensors_need(ctx, set, name, one ? one->n_dims : expected->n_dims,
                                       one ? one->shape : expected->shape, out));
    /* Scales may have any float type; codes have the one type of their format. */
    const bool any = expected->dtype == CALM_N_DTYPES;
    const calm_dtype dtype = (*out)->dtype;
    if (any ? dtype != CALM_BF16 && dtype != CALM_F16 && dtype != CALM_F32 : dtype != expected->dtype)
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: dtype %s, expected %s", (*out)->file, name,
                         calm_dtype_name(dtype), any ? "BF16, F16 or F32" : calm_dtype_name(expected->dtype));
    return CALM_OK;
}

/* Gets all tensors of a linear of this scheme, checked; by part, NULL: an optional one is absent. */
static calm_status need_all(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                            const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                            const calm_tensor *found[CALM_N_QFORMAT_PARTS])
{
    calm_qformat_tensor list[CALM_N_QFORMAT_PARTS];
    size_t n = 0;
    memset(found, 0, CALM_N_QFORMAT_PARTS * sizeof *found);
    CALM_TRY(reader->format->tensors(ctx, module, scheme, out, in, list, &n));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(need(ctx, reader->format, set, module, &list[i], &found[list[i].part]));
    return CALM_OK;
}

calm_status calm_qformat_check(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                               const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in)
{
    const calm_tensor *found[CALM_N_QFORMAT_PARTS];
    return need_all(ctx, reader, set, module, scheme, out, in, found);
}

/* Makes a view of rows of a tensor: nothing is copied. */
static calm_status slice_rows(calm_ctx *ctx, size_t first, size_t n, const calm_tensor **tensor)
{
    calm_tensor *part;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, part, 1));
    *part = **tensor;
    /* Rows of packed codes are whole words, so every row begins at a byte. */
    const size_t bytes = part->bytes / part->shape[0];
    part->n_elements = part->n_elements / part->shape[0] * n;
    part->data += first * bytes;
    part->bytes = n * bytes;
    part->shape[0] = n;
    *tensor = part;
    return CALM_OK;
}

/* Copies columns of a matrix. */
static calm_status slice_columns(calm_ctx *ctx, size_t first, size_t n, const calm_tensor **tensor)
{
    const size_t each = calm_dtype_bytes((*tensor)->dtype), rows = (*tensor)->shape[0], cols = (*tensor)->shape[1];
    calm_tensor *part;
    uint8_t *bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, part, 1));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, bytes, rows * n * each));
    /* Columns are not contiguous, so a view of the mapped tensor cannot describe them. */
    for (size_t r = 0; r < rows; r++)
        memcpy(bytes + r * n * each, (*tensor)->data + (r * cols + first) * each, n * each);
    *part = **tensor;
    part->data = bytes;
    part->bytes = rows * n * each;
    part->n_elements = rows * n;
    part->shape[1] = n;
    *tensor = part;
    return CALM_OK;
}

/* Does the part describe the whole weight, whichever rows are read? */
static bool is_whole(size_t part)
{
    return part == CALM_QFORMAT_SHAPE || part == CALM_QFORMAT_INDEX;
}

/* Does every tensor of the weight have one row for each of its rows? */
static bool is_by_rows(const calm_tensor *const found[CALM_N_QFORMAT_PARTS], size_t out)
{
    bool all = true;
    for (size_t i = 0; i < CALM_N_QFORMAT_PARTS; i++)
        all &= !found[i] || is_whole(i) || (found[i]->n_dims == 2 && found[i]->shape[0] == out);
    return all;
}

/* Are the rows columns of every tensor, and do packed words begin and end with them? */
static bool is_by_columns(const calm_qformat *format, const calm_qformat_scheme *scheme, size_t first, size_t n)
{
    return format->inputs_first && !format->packs_outputs && first * (size_t)scheme->bits % 32 == 0 &&
           n * (size_t)scheme->bits % 32 == 0;
}

/* Restricts the tensors to some rows: views, or copies where rows are stored as columns. */
static calm_status slice(calm_ctx *ctx, const calm_qformat_scheme *scheme, bool columns, size_t first, size_t n,
                         const calm_tensor *found[CALM_N_QFORMAT_PARTS])
{
    const size_t bits = (size_t)scheme->bits;
    for (size_t i = 0; i < CALM_N_QFORMAT_PARTS; i++) {
        if (!found[i] || is_whole(i))
            continue;
        if (!columns)
            CALM_TRY(slice_rows(ctx, first, n, &found[i]));
        else if (i == CALM_QFORMAT_ZEROS)    /* packed along the rows */
            CALM_TRY(slice_columns(ctx, first * bits / 32, n * bits / 32, &found[i]));
        else
            CALM_TRY(slice_columns(ctx, first, n, &found[i]));
    }
    return CALM_OK;
}

/* Unpacks codes, zeros or biases, and scales of rows first .. first + n - 1 of `out` of a quantized module into
 * ctx->scratch. */
static calm_status unpack(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                          const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in, size_t first,
                          size_t *n, calm_qformat_values *values)
{
    /* `whole`: the file's tensors, whose pages are released. */
    const calm_tensor *found[CALM_N_QFORMAT_PARTS], *whole[CALM_N_QFORMAT_PARTS];
    CALM_TRY(need_all(ctx, reader, set, module, scheme, out, in, found));
    memcpy(whole, found, sizeof whole);
    const bool columns = is_by_columns(reader->format, scheme, first, *n);
    /* Rows that cannot be separated are read with the whole weight, and the caller skips the others. */
    if (*n < out && !columns && !is_by_rows(found, out))
        *n = out;
    if (*n < out)
        CALM_TRY(slice(ctx, scheme, columns, first, *n, found));
    *values = (calm_qformat_values){.out = *n, .in = in, .group = scheme->group ? scheme->group : in};
    values->n_groups = (in + values->group - 1) / values->group;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values->codes, *n * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values->zeros, *n * values->n_groups));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values->scales, *n * values->n_groups));
    /* The middle code is the zero of a symmetric scheme, which stores none. */
    memset(values->zeros, 1 << (scheme->bits - 1), *n * values->n_groups);
    values->levels = calm_scheme_levels(&(calm_scheme){.family = scheme->family});
    CALM_TRY(reader->format->unpack(ctx, module, scheme, found, values));
    /* Everything is copied by now; keeping the pages would hold the checkpoint in memory twice. */
    for (size_t i = 0; i < CALM_N_QFORMAT_PARTS; i++)
        /* Copies have no pages of the file. */
        if (found[i])
            calm_safetensors_release(set, columns ? whole[i] : found[i]);
    return CALM_OK;
}

/* Decodes one row whose groups are contiguous columns. */
static void row_in_runs(const calm_qformat_values *v, size_t row, float *w)
{
    for (size_t g = 0, i = 0; g < v->n_groups; g++) {
        const size_t at = row * v->n_groups + g, end = v->in - i < v->group ? v->in : i + v->group;
        const float scale = v->scales[at], bias = v->biases ? v->biases[at] : 0;
        const int zero = v->zeros[at];
        /* MLX adds a bias in float32; other formats subtract an integer zero first.  The order matters: the format's
         * own readers get the same bits. */
        if (v->levels)
            for (; i < end; i++)
                w[i] = v->levels->value[v->codes[row * v->in + i]] * scale;
        else if (v->biases)
            for (; i < end; i++)
                w[i] = (float)v->codes[row * v->in + i] * scale + bias;
        else
            for (; i < end; i++)
                w[i] = (float)((int)v->codes[row * v->in + i] - zero) * scale;
    }
}

/* Decodes one row with the groups of group_of. */
static void row_by_index(const calm_qformat_values *v, size_t row, float *w)
{
    for (size_t i = 0; i < v->in; i++) {
        const size_t at = row * v->n_groups + v->group_of[i];
        w[i] = (float)((int)v->codes[row * v->in + i] - (int)v->zeros[at]) * v->scales[at];
    }
}

/* Decodes n rows to w [n, in]; with group_of (the file's g_idx) the columns of a group are not contiguous. */
static void decode_rows(const calm_qformat_values *values, size_t first, size_t n, float *w)
{
    for (size_t row = 0; row < n; row++)
        (values->group_of ? row_by_index : row_in_runs)(values, first + row, w + row * values->in);
}

calm_status calm_qformat_load_rows(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                                   const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                                   size_t first, size_t n, float *w)
{
    calm_qformat_values values;
    size_t read = n;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(unpack(ctx, reader, set, module, scheme, out, in, first, &read, &values));
    const size_t skip = read == n ? 0 : first;    /* the whole weight was read */
    decode_rows(&values, skip, n, w);
    return CALM_OK;
}

/* Returns the bits that kernels need.  Codes stored in bytes may exceed the scheme's bits. */
static int code_bits(const uint8_t *codes, size_t n)
{
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= codes[i];
    return all > 15 ? 8 : 4;
}

calm_status calm_qformat_load(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                              const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in, float *w,
                              calm_weight *weight)
{
    calm_qformat_values values;
    size_t read = out;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(unpack(ctx, reader, set, module, scheme, out, in, 0, &read, &values));
    /* Integer products need contiguous groups and integer zeros: no table of levels, no float bias. */
    if (weight && !values.levels && !values.biases && !values.group_of) {
        const calm_int_source source = {out, in, code_bits(values.codes, out * in), values.group, values.codes,
                                        values.scales, values.zeros, 0};
        calm_int_linear_take(ctx, &source, w, weight);
    }
    if (!weight || !weight->ints)
        decode_rows(&values, 0, out, w);
    return CALM_OK;
}

/* The layout in the file is no part of the scheme. */
calm_scheme calm_qformat_as_scheme(const calm_qformat_scheme *scheme, calm_dtype scales)
{
    return (calm_scheme){.bits = scheme->bits, .group = scheme->group, .symmetric = scheme->symmetric,
                         .act_bits = scheme->act_bits, .act_asymmetric = scheme->act_asymmetric,
                         .act_rule = scheme->act_rule, .family = scheme->family, .scale_dtype = scales};
}

bool calm_qformat_says_rule(const calm_qformat_scheme *scheme)
{
    return scheme->act_bits && !calm_act_rule_is_open(scheme->act_rule);
}

calm_status calm_qformat_act_global(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                                    const char *module, const calm_qformat_scheme *scheme, float *out)
{
    static const size_t one = 1;
    const calm_tensor *tensor;
    char *name;
    *out = 0;
    const bool fixed = calm_act_rule_is_static(scheme->act_rule);
    if (scheme->act_rule != CALM_ACT_RULE_NVFP4 && !fixed)
        return CALM_OK;
    /* Both are numbers of the whole linear, with different names. */
    const calm_qformat_part part = fixed ? CALM_QFORMAT_ACT_SCALE : CALM_QFORMAT_ACT_GLOBAL;
    CALM_SCOPED_SCRATCH(ctx);
    /* The format's name of the tensor. */
    const char *suffix = NULL;
    for (const calm_qformat_suffix *at = reader->format->suffixes; at->suffix; at++)
        suffix = at->part == part ? at->suffix : suffix;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, suffix));
    const calm_tensor *found = find_one(set, name, 1, &one);
    CALM_TRY(calm_safetensors_need_floats(ctx, set, name, found ? found->n_dims : 1, found ? found->shape : &one,
                                          &tensor));
    CALM_TRY(calm_tensor_to_f32(ctx, tensor, out));
    /* It is a divisor of scales, or of inputs. */
    if (!(*out > 0) || !isfinite(*out))
        return calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: %g, expected a positive number", tensor->file, name,
                         (double)*out);
    return CALM_OK;
}

/* ---- for formats ---- */

calm_status calm_qformat_words(calm_ctx *ctx, const calm_tensor *tensor, uint32_t **out)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *out, tensor->n_elements));
    memcpy(*out, tensor->data, tensor->bytes);
    return CALM_OK;
}

calm_status calm_qformat_floats(calm_ctx *ctx, const calm_tensor *tensor, bool transposed, size_t rows, size_t cols,
                                float *out)
{
    float *values;
    if (!transposed)
        return calm_tensor_to_f32(ctx, tensor, out);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, tensor->n_elements));
    CALM_TRY(calm_tensor_to_f32(ctx, tensor, values));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            out[r * cols + c] = values[c * rows + r];
    return CALM_OK;
}

/* Transposes in [cols, rows] to out [rows, cols], in tiles that stay in the cache. */
static void transpose(const uint8_t *in, size_t rows, size_t cols, uint8_t *out)
{
    const size_t tile = 64;
    for (size_t first = 0; first < cols; first += tile)
        for (size_t r = 0; r < rows; r++)
            for (size_t c = first; c < cols && c < first + tile; c++)
                out[r * cols + c] = in[c * rows + r];
}

calm_status calm_qformat_codes(calm_ctx *ctx, const calm_tensor *tensor, calm_qformat_packing packing, int bits,
                               bool transposed, size_t rows, size_t cols, uint8_t *out)
{
    const size_t stored_rows = transposed ? cols : rows, stored_cols = transposed ? rows : cols;
    CALM_SCOPED_SCRATCH(ctx);
    uint32_t *words;
    uint8_t *codes = out;
    CALM_TRY(calm_qformat_words(ctx, tensor, &words));
    if (transposed)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, codes, rows * cols));
    if (packing == CALM_QFORMAT_BY_ROWS)
        calm_unpack_rows(words, stored_rows, stored_cols, bits, codes);
    else if (packing == CALM_QFORMAT_BY_COLUMNS)
        calm_unpack_columns(words, stored_rows, stored_cols, bits, codes);
    else
        calm_unpack_awq(words, tensor->n_elements, codes);
    if (transposed)
        transpose(codes, rows, cols, out);
    return CALM_OK;
}

calm_status calm_qformat_bits(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key, int fallback,
                              int *out)
{
    const int64_t usual = fallback;
    int64_t bits = 0;
    CALM_TRY(calm_json_need_int(ctx, path, entry, key, fallback ? &usual : NULL, 1, 64, &bits));
    /* MLX files may have 5 and 6 bits; no scheme of calm has them. */
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\" is %lld: weights of 2, 3, 4 and 8 bits are read", path,
                         key, (long long)bits);
    *out = (int)bits;
    return CALM_OK;
}

calm_status calm_qformat_group(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key,
                               size_t fallback, size_t *out)
{
    /* Formats write "one scale per row" as -1 or null, which is 0 here, so a fallback of 0 is passed on as -1. */
    const int64_t usual = fallback ? (int64_t)fallback : -1;
    int64_t group = 0;
    CALM_TRY(calm_json_need_int(ctx, path, entry, key, &usual, -1, 1 << 24, &group));
    if (group == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\" is 0, expected -1 or columns per group", path, key);
    *out = group < 0 ? 0 : (size_t)group;
    return CALM_OK;
}
