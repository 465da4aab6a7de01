/* Finds published small floats and their scales, and replaces them by float tensors. */
#include "ptq/weights/published.h"

#include <stdio.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/tensor/dtype.h"
#include "ptq/weights/small_floats.h"

#define ENTRY "quantization_config"
#define MXFP4_GROUP 32
#define NVFP4_GROUP 16

/* ---- the configuration ---- */

/* Some wrappers have the entry in their text model's configuration. */
static const calm_json *entry_of(const calm_json *config)
{
    const calm_json *entry = calm_json_get(config, ENTRY);
    return calm_json_typeof(entry) == CALM_JSON_OBJECT ? entry
                                                       : calm_json_get(calm_json_get(config, "text_config"), ENTRY);
}

void calm_published_drop_entry(calm_json *config)
{
    const calm_json *inner = calm_json_get(config, "text_config");
    calm_json_remove(config, ENTRY);
    if (!calm_json_get(inner, ENTRY))
        return;
    /* Members are read-only, so a copy replaces the member. */
    calm_json *copy = calm_json_copy(inner);
    calm_json_remove(copy, ENTRY);
    calm_json_set(config, "text_config", copy);
}

/* Reads [rows, columns] of a key; absent: *known false; null: one scale for all. */
static calm_status read_block(calm_ctx *ctx, const char *path, const char *key, const calm_json *sides, size_t block[2],
                              bool *known)
{
    const size_t n = calm_json_size(sides);
    *known = sides != NULL;
    if (calm_json_typeof(sides) == CALM_JSON_NULL)
        return CALM_OK;
    for (size_t i = 0; i < 2; i++) {
        const int64_t side = calm_json_int(calm_json_at(sides, i), 0);
        if (calm_json_typeof(sides) != CALM_JSON_ARRAY || n != 2 || side < 1 || side > 1 << 24)
            return calm_fail(ctx, CALM_EFORMAT,
                             "%s: " ENTRY ".%s: found %s of %zu entries, expected two whole numbers above 0, rows and "
                             "columns of a block: [128, 128]",
                             path, key, calm_json_type_name(calm_json_typeof(sides)), n);
        block[i] = (size_t)side;
    }
    return CALM_OK;
}

/* Checks that a key is absent or one of the words, which are joined by " or ". */
static calm_status need_word(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key,
                             const char *words)
{
    const char *found;
    CALM_TRY(calm_json_need_string(ctx, path, entry, key, "", &found));
    return !*found || calm_text_listed(words, ' ', found)
               ? CALM_OK
               : calm_fail(ctx, CALM_EUNSUPPORTED, "%s: " ENTRY ".%s is \"%.64s\": calm reads %s", path, key, found,
                           words);
}

/* Reads the settings of fp8.  Quantization of inputs does not matter to a float model, but must be known. */
static calm_status read_fp8(calm_ctx *ctx, const char *path, const calm_json *entry, calm_published *out)
{
    out->kind = CALM_PUBLISHED_FP8;
    CALM_TRY(need_word(ctx, path, entry, "fmt", "e4m3 or float8_e4m3fn"));
    CALM_TRY(need_word(ctx, path, entry, "activation_scheme", "dynamic or static"));
    CALM_TRY(need_word(ctx, path, entry, "scale_fmt", "float or ue8m0"));
    CALM_TRY(read_block(ctx, path, "weight_block_size", calm_json_get(entry, "weight_block_size"), out->block,
                        &out->block_known));
    if (out->block[0])
        snprintf(out->text, sizeof out->text, "fp8 in blocks of %zu x %zu", out->block[0], out->block[1]);
    else
        snprintf(out->text, sizeof out->text, "fp8");
    /* The default of transformers. */
    if (!out->block_known)
        out->block[0] = out->block[1] = 128;
    return CALM_OK;
}

/* Is it a group of compressed-tensors of floats that this file reads?  *other: calm cannot compute with it as it is:
 * blocks of other sizes, or scales of inputs that are neither per token nor static. */
static bool is_float_group(const calm_json *group, bool *other)
{
    const calm_json *weights = calm_json_get(group, "weights"), *inputs = calm_json_get(group, "input_activations");
    const calm_json *sides = calm_json_get(weights, "block_structure");
    const char *strategy = calm_json_string(calm_json_get(weights, "strategy"), "");
    const int64_t bits = calm_json_int(calm_json_get(weights, "num_bits"), 0);
    const char *of_inputs = calm_json_string(calm_json_get(inputs, "strategy"), "");
    const bool dynamic = calm_json_bool(calm_json_get(inputs, "dynamic"), false);
    const bool foreign = calm_json_typeof(inputs) == CALM_JSON_OBJECT
                         && (strcmp(of_inputs, "tensor") == 0) != !dynamic;
    const bool blocks = strcmp(strategy, "block") == 0
                        && (calm_json_int(calm_json_at(sides, 0), 0) != 128
                            || calm_json_int(calm_json_at(sides, 1), 0) != 128);
    *other |= bits == 8 && (foreign || blocks);
    return strcmp(calm_json_string(calm_json_get(weights, "type"), ""), "float") == 0 && (bits == 8 || bits == 4);
}

/* Reads compressed-tensors.  Files with transforms are refused, since their weights are not those of the float
 * model. */
static calm_status read_compressed(calm_ctx *ctx, const char *path, const calm_json *entry, bool floats,
                                   calm_published *out)
{
    const calm_json *groups = calm_json_get(entry, "config_groups"), *group, *sides = NULL;
    const char *name;
    bool all = calm_json_size(groups) > 0, other = false;
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group);) {
        const calm_json *block = calm_json_get(calm_json_get(group, "weights"), "block_structure");
        all &= is_float_group(group, &other);
        sides = calm_json_typeof(block) == CALM_JSON_NULL ? sides : block;
    }
    if (!all || (!floats && !other) || calm_json_size(calm_json_get(entry, "transform_config"))
        || strcmp(calm_json_string(calm_json_get(entry, "quantization_status"), ""), "compressed") != 0)
        return CALM_OK;
    CALM_TRY(read_block(ctx, path, "config_groups.weights.block_structure", sides, out->block, &out->block_known));
    out->kind = CALM_PUBLISHED_COMPRESSED;
    /* Groups may differ. */
    out->block_known = false;
    snprintf(out->text, sizeof out->text, "compressed-tensors %.64s",
             calm_json_string(calm_json_get(entry, "format"), "floats"));
    return CALM_OK;
}

calm_status calm_published_read(calm_ctx *ctx, const char *path, const calm_json *config, bool floats,
                                calm_published *out)
{
    const calm_json *entry = entry_of(config);
    const char *method = calm_json_string(calm_json_get(entry, "quant_method"), "");
    *out = (calm_published){0};
    if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0)
        return read_fp8(ctx, path, entry, out);
    if (strcmp(method, "compressed-tensors") == 0)
        return read_compressed(ctx, path, entry, floats, out);
    if (strcmp(method, "mxfp4") != 0)
        return CALM_OK;
    /* The format has no settings: groups of 32, exponents in bytes. */
    out->kind = CALM_PUBLISHED_MXFP4;
    snprintf(out->text, sizeof out->text, "mxfp4");
    return CALM_OK;
}

/* ---- names ---- */

/* Names of a weight and its scales: STEM and these endings. */
typedef struct pair {
    calm_published_kind kind;    /* CALM_PUBLISHED_NOT: all kinds except mxfp4 */
    const char *codes, *scales;
    calm_dtype dtype;            /* dtype of the codes */
} pair;

static const pair pairs[] = {
    {CALM_PUBLISHED_MXFP4, "_blocks", "_scales", CALM_U8},
    {CALM_PUBLISHED_COMPRESSED, "_packed", "_scale", CALM_U8},
    {CALM_PUBLISHED_NOT, "", "_scale_inv", CALM_F8_E4M3},
    {CALM_PUBLISHED_NOT, "", "_scale", CALM_F8_E4M3},
};

#define N_PAIRS (sizeof pairs / sizeof *pairs)

bool calm_published_of_inputs(const char *name)
{
    static const char *const ends[] = {".activation_scale", ".input_scale",  ".input_global_scale", ".input_scale_ub",
                                       ".output_scale",     ".k_scale",      ".v_scale",            ".q_scale",
                                       "_activation_scale", "_input_scale"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (calm_text_ends_with(name, ends[i]))
            return true;
    return false;
}

/* A set whose tensors are being replaced. */
typedef struct widening {
    const calm_published *from;
    calm_dtype dtype;
    const calm_safetensors *set;
    calm_tensor *tensors;    /* [n], in ctx->scratch */
    size_t n, n_weights;
} widening;

/* A file of compressed-tensors may have both of its kinds. */
static bool is_of_kind(const widening *w, const pair *p)
{
    return p->kind == w->from->kind || (p->kind == CALM_PUBLISHED_NOT && w->from->kind != CALM_PUBLISHED_MXFP4);
}

/* Finds the tensor STEM END, where `name` is STEM and `off`; NULL: there is none. */
static calm_status find(calm_ctx *ctx, const widening *w, const char *name, const char *off, const char *end,
                        const char **wanted, const calm_tensor **out)
{
    char *text;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "%.*s%s", (int)(strlen(name) - strlen(off)), name, end));
    *wanted = text;
    *out = calm_safetensors_find(w->set, text);
    return CALM_OK;
}

/* Does the name denote a scale of a weight? */
static const pair *scale_of(const widening *w, const char *name)
{
    static const char *const scales[N_PAIRS] = {"_scales", ".weight_scale", "_scale_inv", ".weight_scale"};
    for (size_t i = 0; i < N_PAIRS; i++)
        if (is_of_kind(w, &pairs[i]) && calm_text_ends_with(name, scales[i]))
            return &pairs[i];
    return NULL;
}

/* Returns the pair whose codes the tensor holds, by dtype and name; NULL: none. */
static const pair *codes_of(const widening *w, const calm_tensor *tensor)
{
    /* Scales of NVFP4 have the dtype of codes. */
    for (size_t i = 0; i < N_PAIRS && !scale_of(w, tensor->name); i++)
        if (is_of_kind(w, &pairs[i]) && tensor->dtype == pairs[i].dtype
            && calm_text_ends_with(tensor->name, pairs[i].codes))
            return &pairs[i];
    return NULL;
}

/* ---- shapes ---- */

/* Sets the shape of the float tensor of some codes, and the rows and columns of its matrices. */
static calm_status read_codes(calm_ctx *ctx, const pair *p, const calm_tensor *codes, calm_small_floats *out,
                              calm_tensor *to)
{
    char found[128];
    const bool blocks = p->kind == CALM_PUBLISHED_MXFP4;
    const int n_dims = codes->n_dims - blocks;
    *to = *codes;
    *out = (calm_small_floats){.codes = *codes, .packed = p->dtype == CALM_U8, .divisor = 1};
    if (n_dims < 2 || !codes->n_elements || (blocks && codes->shape[n_dims] != MXFP4_GROUP / 2))
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: shape %s, expected %s", codes->file, codes->name,
                         calm_shape_text(codes->n_dims, codes->shape, found),
                         blocks ? "[experts, rows, groups, 16]" : "a matrix, or several of one size");
    to->n_dims = n_dims;
    to->shape[n_dims - 1] *= blocks ? MXFP4_GROUP : out->packed ? 2 : 1;
    to->n_elements *= out->packed ? 2 : 1;
    to->shape[n_dims] = blocks ? 0 : to->shape[n_dims];
    out->rows = to->shape[n_dims - 2];
    out->columns = to->shape[n_dims - 1];
    return CALM_OK;
}

/* Do the scales have the weight's shape, with the last two sizes replaced? */
static bool has_grid(const calm_tensor *scales, const calm_tensor *weight, size_t rows, size_t columns)
{
    const size_t grid[2] = {rows, columns};
    const int lead = weight->n_dims - 2;
    /* Leading sizes count matrices: experts. */
    return scales->n_dims == weight->n_dims
           && memcmp(scales->shape, weight->shape, (size_t)lead * sizeof *grid) == 0
           && memcmp(scales->shape + lead, grid, sizeof grid) == 0;
}

/* Blocks at the ends of rows and columns may be smaller. */
static void set_grid(calm_small_floats *out, size_t block_rows, size_t block_columns)
{
    out->block_rows = block_rows;
    out->block_columns = block_columns;
    out->grid_rows = (out->rows + block_rows - 1) / block_rows;
    out->grid_columns = (out->columns + block_columns - 1) / block_columns;
}

/* Is there one scale for each matrix, [] or [1] or [E] or [E, 1, 1]? */
static bool is_of_matrices(const calm_tensor *scales, const calm_tensor *weight, size_t n_matrices)
{
    return scales->n_elements == n_matrices
           && (n_matrices == 1 || (scales->n_dims && scales->shape[0] == weight->shape[0]));
}

/* Finds out which part of the weight shares a scale; *expected: the shape that scales should have. */
static bool place_scales(const widening *w, const calm_tensor *weight, calm_small_floats *out, size_t expected[2])
{
    const calm_tensor *scales = &out->scales;
    const size_t rows = out->rows, columns = out->columns, *block = w->from->block;
    const size_t small = scales->dtype == CALM_F8_E4M3 ? NVFP4_GROUP : MXFP4_GROUP;
    set_grid(out, out->packed ? 1 : block[0] ? block[0] : rows, out->packed ? small : block[1] ? block[1] : columns);
    expected[0] = out->grid_rows;
    expected[1] = out->grid_columns;
    if (has_grid(scales, weight, expected[0], expected[1]))
        return true;
    /* A stated block size applies to all weights; a single scale then means a weight within one block. */
    const bool one = !out->packed && out->grid_rows * out->grid_columns == 1;
    const bool free = !out->packed && (!w->from->block_known || !block[0]);
    if ((free || one) && is_of_matrices(scales, weight, weight->n_elements / (rows * columns))) {
        set_grid(out, rows, columns);
        return true;
    }
    /* One scale per row, [out] or [out, 1]. */
    const bool vector = scales->n_dims == 1 && weight->n_dims == 2 && scales->shape[0] == rows;
    if (!free || (!vector && !has_grid(scales, weight, rows, 1)))
        return false;
    set_grid(out, 1, columns);
    return true;
}

static calm_status check_scales(calm_ctx *ctx, const widening *w, const calm_tensor *weight, calm_small_floats *out)
{
    const calm_tensor *scales = &out->scales;
    const bool exponents = scales->dtype == CALM_U8 || scales->dtype == CALM_F8_E8M0;
    const bool floats = calm_dtype_is_float(scales->dtype) && scales->dtype != CALM_F64;
    char found[128], text[128];
    size_t expected[CALM_MAX_DIMS];
    memcpy(expected, weight->shape, sizeof expected);
    if (!exponents && (out->packed ? scales->dtype != CALM_F8_E4M3 : !floats))
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: dtype %s, expected %s", scales->file, scales->name,
                         calm_dtype_name(scales->dtype),
                         out->packed ? "U8, F8_E8M0 or F8_E4M3" : "F32, BF16, F16, U8 or F8_E8M0");
    if (place_scales(w, weight, out, expected + weight->n_dims - 2))
        return CALM_OK;
    return calm_fail(ctx, CALM_EFORMAT,
                     "%s: tensor %s: shape %s, expected %s: a scale for each block of %zu x %zu of %s", scales->file,
                     scales->name, calm_shape_text(scales->n_dims, scales->shape, found),
                     calm_shape_text(weight->n_dims, expected, text), out->block_rows, out->block_columns,
                     weight->name);
}

/* ---- the tensors ---- */

/* Reads the number that divides all scales of NVFP4. */
static calm_status read_divisor(calm_ctx *ctx, const widening *w, const calm_tensor *codes, calm_small_floats *out)
{
    const calm_tensor *global;
    const char *name;
    CALM_TRY(find(ctx, w, codes->name, "_packed", "_global_scale", &name, &global));
    /* Exponents have no such number. */
    if (out->scales.dtype != CALM_F8_E4M3)
        return CALM_OK;
    if (!global || global->n_elements != 1)
        return calm_fail(ctx, global ? CALM_EFORMAT : CALM_ENOTFOUND,
                         "%s: tensor %s: expected one number as tensor %s, found %s", codes->file, codes->name, name,
                         global ? "several" : "none");
    CALM_TRY(calm_tensor_to_f32(ctx, global, &out->divisor));
    return out->divisor > 0 ? CALM_OK
                            : calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s is %g, expected a positive number",
                                        global->file, name, (double)out->divisor);
}

/* Finds the scales of some codes; exactly one of their possible names must exist. */
static calm_status find_scales(calm_ctx *ctx, const widening *w, const pair *p, const calm_tensor *codes,
                               const calm_tensor **out)
{
    const calm_tensor *found, *other = NULL;
    const char *name, *second = NULL;
    CALM_TRY(find(ctx, w, codes->name, p->codes, p->scales, &name, &found));
    /* The two spellings of FP8. */
    if (p->dtype == CALM_F8_E4M3)
        CALM_TRY(find(ctx, w, codes->name, p->codes, "_scale", &second, &other));
    if (!found && !other)
        return calm_fail(ctx, CALM_ENOTFOUND,
                         "%s: tensor %s is %s and has no scales: expected tensor %s%s%s, found none", codes->file,
                         codes->name, calm_dtype_name(codes->dtype), name, second ? " or " : "",
                         second ? second : "");
    if (found && other)
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s has scales twice: %s and %s, expected one of them",
                         codes->file, codes->name, name, second);
    *out = found ? found : other;
    return CALM_OK;
}

/* Adds the float tensor that replaces codes and scales; its bytes are those of the file, for hashing and releasing. */
static calm_status add_weight(calm_ctx *ctx, widening *w, const pair *p, const calm_tensor *codes)
{
    calm_tensor *to = &w->tensors[w->n];
    const calm_tensor *scales = NULL;
    calm_small_floats *entry;
    char *name;
    CALM_TRY(CALM_NEW(ctx, ctx->out, entry, 1));
    CALM_TRY(find_scales(ctx, w, p, codes, &scales));
    CALM_TRY(read_codes(ctx, p, codes, entry, to));
    entry->scales = *scales;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%.*s", (int)(strlen(codes->name) - strlen(p->codes)), codes->name));
    to->name = name;
    CALM_TRY(check_scales(ctx, w, to, entry));
    CALM_TRY(read_divisor(ctx, w, codes, entry));
    to->dtype = w->dtype;
    to->source = &calm_small_floats_source;
    to->entry = entry;
    to->scales = entry->scales.data;
    to->scale_bytes = entry->scales.bytes;
    w->n++;
    w->n_weights++;
    return CALM_OK;
}

/* Drops a scale whose weight exists. */
static calm_status check_weight(calm_ctx *ctx, const widening *w, const pair *p, const calm_tensor *scales)
{
    /* Two spellings of FP8, of which ".weight_scale" is also compressed-tensors'. */
    const char *suffix = calm_text_ends_with(scales->name, "_scale_inv") ? "_scale_inv" : p->scales, *name, *packed;
    const calm_tensor *weight, *other = NULL;
    CALM_TRY(find(ctx, w, scales->name, suffix, p->codes, &name, &weight));
    /* A float weight has no scales.  A file of compressed-tensors may hold both kinds. */
    if (w->from->kind == CALM_PUBLISHED_COMPRESSED)
        CALM_TRY(find(ctx, w, scales->name, suffix, *p->codes ? "" : "_packed", &packed, &other));
    weight = weight ? weight : other;
    if (!weight)
        return calm_fail(ctx, CALM_ENOTFOUND,
                         "%s: tensor %s: expected the weight that it scales, tensor %s; found none", scales->file,
                         scales->name, name);
    return codes_of(w, weight) ? CALM_OK
                               : calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s is %s, expected %s, as tensor %s is there",
                                           weight->file, weight->name, calm_dtype_name(weight->dtype),
                                           calm_dtype_name(p->dtype), scales->name);
}

/* Adds a tensor: widened if it holds codes, dropped if it is a scale, else unchanged. */
static calm_status add_tensor(calm_ctx *ctx, widening *w, const calm_tensor *tensor)
{
    const pair *codes = codes_of(w, tensor), *scales = scale_of(w, tensor->name);
    CALM_SCOPED_SCRATCH(ctx);
    if (codes)
        return add_weight(ctx, w, codes, tensor);
    if (scales)
        return check_weight(ctx, w, scales, tensor);
    /* Scales of a tensor that is no MODULE.weight. */
    const char *wanted;
    const calm_tensor *other = NULL;
    if (calm_text_ends_with(tensor->name, "_scale"))
        CALM_TRY(find(ctx, w, tensor->name, "_scale", "", &wanted, &other));
    const bool global = w->from->kind == CALM_PUBLISHED_COMPRESSED
                        && calm_text_ends_with(tensor->name, ".weight_global_scale");
    if (!global && !(other && codes_of(w, other)) && !calm_published_of_inputs(tensor->name))
        w->tensors[w->n++] = *tensor;
    return CALM_OK;
}

calm_status calm_published_widen(calm_ctx *ctx, const calm_published *from, calm_dtype dtype, calm_safetensors *set,
                                 size_t *n)
{
    widening w = {.from = from, .dtype = dtype, .set = set};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.tensors, calm_safetensors_count(set) + 1));
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        CALM_TRY(add_tensor(ctx, &w, calm_safetensors_at(set, i)));
    if (n)
        *n = w.n_weights;
    return calm_safetensors_replace(ctx, set, w.tensors, w.n);
}
