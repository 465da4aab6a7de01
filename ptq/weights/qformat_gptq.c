/* Reads GPTQ: "gptq" (zeros stored less one) and "gptq_v2" (docs/formats.md section 4).
 *
 *   m.qweight I32 [in b / 32, out]   m.qzeros I32 [G, out b / 32]   m.scales [G, out]   m.g_idx I32 [in]
 *
 * "dynamic" overrides bits, group_size, sym and desc_act by regex, or leaves modules float ("-:"); the first match
 * decides.  "modules_in_block_to_quantize" lists parts of module names. */
#include <string.h>

#include "ptq/text/regex.h"
#include "ptq/weights/qformat.h"
#include "ptq/quant/pack.h"

typedef struct rule {
    calm_regex *regex;
    bool stays_float;    /* its pattern begins with "-:" */
    calm_qformat_scheme scheme;
} rule;

typedef struct gptq {
    calm_qformat_scheme base;
    rule *rules;
    size_t n_rules;
    char **only;        /* [n_only] one of them must be part of a quantized module's name; none: all are */
    size_t n_only;
} gptq;

static void release(void *self)
{
    gptq *from = self;
    for (size_t i = 0; i < from->n_rules; i++)
        calm_regex_free(from->rules[i].regex);
}

/* Reads bits, group, sym and desc_act; absent ones keep their value in `scheme`. */
static calm_status read_scheme(calm_ctx *ctx, const char *path, const calm_json *entry, calm_qformat_scheme *scheme)
{
    /* An override keeps the base's members that it does not name; `scheme` holds those on entry. */
    const bool symmetric = scheme->symmetric, reordered = scheme->layout & CALM_GPTQ_ORDERED;
    bool desc_act;
    CALM_TRY(calm_qformat_bits(ctx, path, entry, "bits", scheme->bits, &scheme->bits));
    CALM_TRY(calm_qformat_group(ctx, path, entry, "group_size", scheme->group, &scheme->group));
    CALM_TRY(calm_json_need_bool(ctx, path, entry, "sym", &symmetric, &scheme->symmetric));
    CALM_TRY(calm_json_need_bool(ctx, path, entry, "desc_act", &reordered, &desc_act));
    scheme->layout = (scheme->layout & CALM_GPTQ_V2) | (desc_act ? CALM_GPTQ_ORDERED : 0);
    return CALM_OK;
}

/* Reads "dynamic": rules in the order of the file, in which they are tried. */
static calm_status read_rules(calm_ctx *ctx, const char *path, const calm_json *dynamic, calm_arena *arena,
                              gptq *out)
{
    const calm_json *values;
    const char *key;
    if (calm_json_typeof(dynamic) == CALM_JSON_NULL)
        return CALM_OK;
    if (calm_json_typeof(dynamic) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config.dynamic: %s, expected an object", path,
                         calm_json_type_name(calm_json_typeof(dynamic)));
    CALM_TRY(CALM_NEW(ctx, arena, out->rules, calm_json_size(dynamic)));
    for (void *iter = NULL; calm_json_next(dynamic, &iter, &key, &values);) {
        /* "+:" includes modules, like a pattern without a prefix. */
        const bool prefixed = strncmp(key, "+:", 2) == 0 || strncmp(key, "-:", 2) == 0;
        const char *pattern = prefixed ? key + 2 : key;
        rule *at = &out->rules[out->n_rules];
        *at = (rule){.stays_float = prefixed && key[0] == '-', .scheme = out->base};
        /* Other members of a "-:" rule are ignored: the module stays float. */
        if (!at->stays_float && calm_json_typeof(values) != CALM_JSON_OBJECT)
            return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config.dynamic: \"%.64s\" is %s, expected an object",
                             path, key, calm_json_type_name(calm_json_typeof(values)));
        if (!at->stays_float)
            CALM_TRY(read_scheme(ctx, path, values, &at->scheme));
        CALM_TRY(calm_regex_new(ctx, path, pattern, strlen(pattern), &at->regex));
        /* Patterns are untrusted: backtracking is bounded, since a crafted pattern would never end. */
        calm_regex_limit(at->regex, CALM_NAME_STEPS);
        out->n_rules++;
    }
    return CALM_OK;
}

/* Reads names, or lists of names. */
static calm_status read_only(calm_ctx *ctx, const char *path, const calm_json *list, calm_arena *arena, gptq *out)
{
    size_t n = 0;
    /* An upper bound: names may be single or in lists. */
    for (size_t i = 0; i < calm_json_size(list); i++)
        n += 1 + calm_json_size(calm_json_at(list, i));
    CALM_TRY(CALM_NEW(ctx, arena, out->only, n));
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *item = calm_json_at(list, i);
        const bool nested = calm_json_typeof(item) == CALM_JSON_ARRAY;
        for (size_t k = 0; k < (nested ? calm_json_size(item) : 1); k++) {
            const char *name = calm_json_string(nested ? calm_json_at(item, k) : item, NULL);
            if (!name)
                return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config.modules_in_block_to_quantize: a name that "
                                                    "is not a string", path);
            CALM_TRY(calm_strf(ctx, arena, &out->only[out->n_only++], "%s", name));
        }
    }
    return CALM_OK;
}

static calm_status read(calm_ctx *ctx, const char *path, const calm_json *entry, calm_arena *arena, void *self)
{
    gptq *out = self;
    const char *format, *dtype;
    CALM_TRY(calm_json_need_string(ctx, path, entry, "checkpoint_format", "gptq", &format));
    CALM_TRY(calm_json_need_string(ctx, path, entry, "pack_dtype", "int32", &dtype));
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: quantization_config.checkpoint_format \"%.64s\": gptq and gptq_v2 are read", path,
                         format);
    if (strcmp(dtype, "int32") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.pack_dtype \"%.64s\": int32 is read", path,
                         dtype);
    out->base = (calm_qformat_scheme){.symmetric = true, .layout = strcmp(format, "gptq_v2") == 0 ? CALM_GPTQ_V2 : 0};
    CALM_TRY(read_scheme(ctx, path, entry, &out->base));
    CALM_TRY(read_rules(ctx, path, calm_json_get(entry, "dynamic"), arena, out));
    return read_only(ctx, path, calm_json_get(entry, "modules_in_block_to_quantize"), arena, out);
}

/* ---- modules ---- */

static calm_status find(calm_ctx *ctx, const void *self, const calm_safetensors *set, const char *module,
                        bool *quantized, calm_qformat_scheme *out)
{
    const gptq *from = self;
    bool hit = false, listed = from->n_only == 0;
    (void)set;
    *out = from->base;
    *quantized = false;
    /* The list of modules takes precedence: a rule cannot add a module that it excludes. */
    for (size_t i = 0; i < from->n_only && !listed; i++)
        listed = strstr(module, from->only[i]) != NULL;
    if (!listed)
        return CALM_OK;
    for (size_t i = 0; i < from->n_rules && !hit; i++) {
        /* Anchored only at the beginning, like Python's re.match, which writers of these files use. */
        CALM_TRY(calm_regex_matches_prefix(ctx, from->rules[i].regex, module, &hit));
        if (hit && from->rules[i].stays_float)
            return CALM_OK;
        if (hit)
            *out = from->rules[i].scheme;
    }
    *quantized = true;
    return CALM_OK;
}

static calm_status tensors(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                           calm_qformat_tensor *list, size_t *n)
{
    const size_t group = scheme->group ? scheme->group : in, groups = (in + group - 1) / group;
    (void)ctx;
    (void)module;
    list[0] = (calm_qformat_tensor){
        CALM_QFORMAT_CODES, "qweight", CALM_I32, 2, {calm_pack_words(in, scheme->bits), out}, false};
    list[1] = (calm_qformat_tensor){
        CALM_QFORMAT_ZEROS, "qzeros", CALM_I32, 2, {groups, calm_pack_words(out, scheme->bits)}, false};
    list[2] = (calm_qformat_tensor){CALM_QFORMAT_SCALES, "scales", CALM_N_DTYPES, 2, {groups, out}, false};
    /* The index is optional unless columns are reordered; many files have it nevertheless. */
    list[3] = (calm_qformat_tensor){
        CALM_QFORMAT_INDEX, "g_idx", CALM_I32, 1, {in, 0}, !(scheme->layout & CALM_GPTQ_ORDERED)};
    *n = 4;
    return CALM_OK;
}

/* Reads the index.  An index out of order is accepted only where the configuration says that columns are reordered:
 * engines do not read it otherwise. */
static calm_status read_index(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                              const calm_tensor *tensor, calm_qformat_values *values)
{
    bool in_order = true;
    CALM_TRY(calm_qformat_words(ctx, tensor, &values->group_of));
    for (size_t i = 0; i < values->in; i++) {
        /* Negative I32 numbers are above G here, and refused with the others. */
        const uint32_t group = values->group_of[i];
        if (group >= values->n_groups)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s.g_idx: column %zu is of group %d; there are %zu", tensor->file,
                             module, i, (int)(int32_t)group, values->n_groups);
        in_order &= group == i / values->group;
    }
    if (!in_order && !(scheme->layout & CALM_GPTQ_ORDERED))
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s.g_idx: columns are not in order, as they must be without desc_act",
                         tensor->file, module);
    /* In order the groups are contiguous columns, which are decoded faster. */
    values->group_of = in_order ? NULL : values->group_of;
    return CALM_OK;
}

static calm_status unpack(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                          const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values)
{
    const size_t out = values->out, groups = values->n_groups;
    /* The first version stores zeros less one, modulo 2^bits: a stored 15 of 4 bits means zero 0. */
    const unsigned mask = (1u << scheme->bits) - 1, less = scheme->layout & CALM_GPTQ_V2 ? 0 : 1;
    CALM_TRY(calm_qformat_codes(ctx, found[CALM_QFORMAT_CODES], CALM_QFORMAT_BY_COLUMNS, scheme->bits, true, out,
                                values->in, values->codes));
    CALM_TRY(calm_qformat_codes(ctx, found[CALM_QFORMAT_ZEROS], CALM_QFORMAT_BY_ROWS, scheme->bits, true, out, groups,
                                values->zeros));
    for (size_t i = 0; i < groups * out; i++)
        values->zeros[i] = (uint8_t)((values->zeros[i] + less) & mask);
    CALM_TRY(calm_qformat_floats(ctx, found[CALM_QFORMAT_SCALES], true, out, groups, values->scales));
    return found[CALM_QFORMAT_INDEX] ? read_index(ctx, module, scheme, found[CALM_QFORMAT_INDEX], values) : CALM_OK;
}

static const calm_qformat_suffix suffixes[] = {{"qweight", CALM_QFORMAT_CODES}, {"qzeros", CALM_QFORMAT_ZEROS},
                                               {"scales", CALM_QFORMAT_SCALES}, {"g_idx", CALM_QFORMAT_INDEX},
                                               {NULL, CALM_QFORMAT_CODES}};

const calm_qformat calm_qformat_gptq = {
    .name = "gptq",
    .label = "gptq",
    .suffixes = suffixes,
    .bytes = sizeof(gptq),
    .read = read,
    .release = release,
    .find = find,
    .tensors = tensors,
    .inputs_first = true,
    .unpack = unpack,
};
