/* Reads MLX's affine format (docs/formats.md section 5).
 *
 *   m.weight U32 [out, in b / 32]   m.scales, m.biases [out, G]      value = code * scale + bias
 *
 * "quantization" has group_size and bits of all modules, and members named after modules: an object with other values,
 * or false for a float module.  A module that it does not name is quantized if it has scales.  The experts of a block
 * may be one module, switch_mlp, with tensors [E, ...]. */
#include <stdlib.h>
#include <string.h>

#include "ptq/quant/pack.h"
#include "ptq/weights/qformat.h"

typedef struct module_entry {
    const char *name;
    bool stays_float;
    calm_qformat_scheme scheme;
} module_entry;

typedef struct mlx {
    calm_qformat_scheme base;
    module_entry *modules;    /* [n_modules] sorted by name */
    size_t n_modules;
} mlx;

/* MLX names no method; other tools use "quantization" for other settings. */
static bool detect(const calm_json *config)
{
    const calm_json *entry = calm_json_get(config, "quantization");
    return calm_json_get(entry, "group_size") && calm_json_get(entry, "bits");
}

/* Reads bits and group of all modules (`module` NULL) or of one, which keeps absent members of the common entry. */
static calm_status read_scheme(calm_ctx *ctx, const char *path, const char *module, const calm_json *entry,
                               calm_qformat_scheme *scheme)
{
    const char *mode;
    CALM_TRY(calm_json_need_string(ctx, path, entry, "mode", "affine", &mode));
    /* "mxfp4" and others are float formats of 4 bits, not codes on a grid. */
    if (strcmp(mode, "affine") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization%s%.128s: mode \"%.64s\": affine is read", path,
                         module ? "." : "", module ? module : "", mode);
    CALM_TRY(calm_qformat_bits(ctx, path, entry, "bits", scheme->bits, &scheme->bits));
    CALM_TRY(calm_qformat_group(ctx, path, entry, "group_size", scheme->group, &scheme->group));
    if (scheme->group != 32 && scheme->group != 64 && scheme->group != 128)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization%s%.128s: groups of %zu: MLX has 32, 64 and 128",
                         path, module ? "." : "", module ? module : "", scheme->group);
    return CALM_OK;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const module_entry *)a)->name, ((const module_entry *)b)->name);
}

static calm_status read(calm_ctx *ctx, const char *path, const calm_json *entry, calm_arena *arena, void *self)
{
    mlx *out = self;
    const calm_json *value;
    const char *key;
    CALM_TRY(read_scheme(ctx, path, NULL, entry, &out->base));
    CALM_TRY(CALM_NEW(ctx, arena, out->modules, calm_json_size(entry)));
    for (void *iter = NULL; calm_json_next(entry, &iter, &key, &value);) {
        const calm_json_type type = calm_json_typeof(value);
        module_entry *at = &out->modules[out->n_modules];
        if (type != CALM_JSON_BOOL && type != CALM_JSON_OBJECT)
            continue;    /* common settings, and members of other tools */
        *at =
            (module_entry){.stays_float = type == CALM_JSON_BOOL && !calm_json_bool(value, true), .scheme = out->base};
        if (type == CALM_JSON_OBJECT)
            CALM_TRY(read_scheme(ctx, path, key, value, &at->scheme));
        CALM_TRY(calm_strf(ctx, arena, &at->name, "%s", key));
        out->n_modules++;
    }
    /* A large model has an entry for each module, and each is looked up by binary search. */
    qsort(out->modules, out->n_modules, sizeof *out->modules, compare);
    return CALM_OK;
}

/* ---- modules ---- */

/* Maps "a.mlp.experts.3.up_proj" to "a.mlp.switch_mlp.up_proj" and 3. */
static calm_status stack(calm_ctx *ctx, const char *module, char **name, size_t *expert)
{
    static const char word[] = ".experts.";
    const char *at = strstr(module, word), *digits = at ? at + strlen(word) : NULL;
    const size_t n = digits ? strspn(digits, "0123456789") : 0;
    *name = NULL;
    /* Nine digits cannot overflow strtoul, and no model has more experts. */
    if (n == 0 || n > 9 || digits[n] != '.')
        return CALM_OK;
    *expert = strtoul(digits, NULL, 10);
    return calm_strf(ctx, ctx->scratch, name, "%.*s.switch_mlp%s", (int)(at - module), module, digits + n);
}

static const module_entry *find_entry(const mlx *from, const char *module)
{
    const module_entry key = {.name = module};
    return from->n_modules ? bsearch(&key, from->modules, from->n_modules, sizeof key, compare) : NULL;
}

static calm_status find(calm_ctx *ctx, const void *self, const calm_safetensors *set, const char *module,
                        bool *quantized, calm_qformat_scheme *out)
{
    const mlx *from = self;
    const module_entry *found = find_entry(from, module);
    char *shared, *name;
    size_t expert;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(stack(ctx, module, &shared, &expert));
    /* An entry of the shared module applies to all of its experts. */
    if (!found && shared)
        found = find_entry(from, shared);
    *out = found ? found->scheme : from->base;
    *quantized = found && !found->stays_float;
    /* Without an entry the tensors decide, as in mlx-lm: a module with scales is quantized. */
    for (int i = 0; !found && set && i < (shared ? 2 : 1) && !*quantized; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.scales", i ? shared : module));
        *quantized = calm_safetensors_find(set, name) != NULL;
    }
    return CALM_OK;
}

static calm_status tensors(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                           calm_qformat_tensor *list, size_t *n)
{
    /* MLX itself refuses to quantize such a matrix. */
    if (in % scheme->group != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s has %zu columns, which groups of %zu do not divide", module, in,
                         scheme->group);
    const size_t words = calm_pack_words(in, scheme->bits);
    list[0] = (calm_qformat_tensor){CALM_QFORMAT_CODES, "weight", CALM_U32, 2, {out, words}, false};
    list[1] = (calm_qformat_tensor){CALM_QFORMAT_SCALES, "scales", CALM_N_DTYPES, 2, {out, in / scheme->group}, false};
    list[2] = (calm_qformat_tensor){CALM_QFORMAT_BIASES, "biases", CALM_N_DTYPES, 2, {out, in / scheme->group}, false};
    *n = 3;
    return CALM_OK;
}

static calm_status unpack(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                          const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values)
{
    (void)module;
    CALM_TRY(calm_qformat_codes(ctx, found[CALM_QFORMAT_CODES], CALM_QFORMAT_BY_ROWS, scheme->bits, false, values->out,
                                values->in, values->codes));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values->biases, values->out * values->n_groups));
    CALM_TRY(calm_qformat_floats(ctx, found[CALM_QFORMAT_SCALES], false, 0, 0, values->scales));
    return calm_qformat_floats(ctx, found[CALM_QFORMAT_BIASES], false, 0, 0, values->biases);
}

static const calm_qformat_suffix suffixes[] = {{"weight", CALM_QFORMAT_CODES}, {"scales", CALM_QFORMAT_SCALES},
                                               {"biases", CALM_QFORMAT_BIASES}, {NULL, CALM_QFORMAT_CODES}};

const calm_qformat calm_qformat_mlx = {
    .name = "mlx",
    .label = "mlx",
    .suffixes = suffixes,
    .detect = detect,
    .entry = "quantization",
    .bytes = sizeof(mlx),
    .read = read,
    .find = find,
    .tensors = tensors,
    .stack = stack,
    .unpack = unpack,
};
