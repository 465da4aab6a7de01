/* Reads AWQ in the GEMM layout (docs/formats.md section 5a).
 *
 *   m.qweight I32 [in, out / 8]   m.qzeros I32 [G, out / 8]   m.scales [G, out]      nibbles in AWQ's order (pack.h)
 *
 * All readers treat "modules_to_not_convert" as parts of module names.  Older files use the keys w_bit and
 * q_group_size. */
#include <string.h>
#include <strings.h>

#include "ptq/weights/qformat.h"

typedef struct awq {
    calm_qformat_scheme scheme;
    char **floats;      /* [n_floats] */
    size_t n_floats;
} awq;

/* Copies the names, since the document may be closed before the reader. */
static calm_status read_floats(calm_ctx *ctx, const char *path, const calm_json *list, calm_arena *arena, awq *out)
{
    CALM_TRY(CALM_NEW(ctx, arena, out->floats, calm_json_size(list)));
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const char *name = calm_json_string(calm_json_at(list, i), NULL);
        if (!name || !*name)
            return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config.modules_to_not_convert: a name that is no "
                                                "string, or empty", path);
        CALM_TRY(calm_strf(ctx, arena, &out->floats[out->n_floats++], "%s", name));
    }
    return CALM_OK;
}

static calm_status read(calm_ctx *ctx, const char *path, const calm_json *entry, calm_arena *arena, void *self)
{
    awq *out = self;
    /* Names of older files (llm-awq) and of newer ones (AutoAWQ). */
    const char *bits = calm_json_get(entry, "bits") ? "bits" : "w_bit";
    const char *group = calm_json_get(entry, "group_size") ? "group_size" : "q_group_size", *version;
    bool zero_point;
    out->scheme = (calm_qformat_scheme){.symmetric = false};
    CALM_TRY(calm_qformat_bits(ctx, path, entry, bits, 4, &out->scheme.bits));
    CALM_TRY(calm_qformat_group(ctx, path, entry, group, 128, &out->scheme.group));
    CALM_TRY(calm_json_need_bool(ctx, path, entry, "zero_point", &(bool){true}, &zero_point));
    CALM_TRY(calm_json_need_string(ctx, path, entry, "version", "gemm", &version));
    if (out->scheme.bits != 4)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: AWQ weights of %d bits: 4 are read", path, out->scheme.bits);
    /* "gemv" and "exllama" order the nibbles differently; the case of "GEMM" varies. */
    if (strcasecmp(version, "gemm") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.version \"%.64s\": AWQ's gemm layout is read",
                         path, version);
    if (!zero_point)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: quantization_config.zero_point is false: AWQ weights with zeros are read", path);
    return read_floats(ctx, path, calm_json_get(entry, "modules_to_not_convert"), arena, out);
}

/* ---- modules ---- */

static calm_status find(calm_ctx *ctx, const void *self, const calm_safetensors *set, const char *module,
                        bool *quantized, calm_qformat_scheme *out)
{
    const awq *from = self;
    (void)ctx;
    (void)set;
    *out = from->scheme;
    *quantized = true;
    for (size_t i = 0; i < from->n_floats && *quantized; i++)
        /* A part of the name is enough: "lm_head" also leaves "model.lm_head" float. */
        *quantized = !strstr(module, from->floats[i]);
    return CALM_OK;
}

static calm_status tensors(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                           calm_qformat_tensor *list, size_t *n)
{
    const size_t group = scheme->group ? scheme->group : in, groups = (in + group - 1) / group;
    /* A word packs eight outputs. */
    if (out % 8 != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s has %zu rows: AWQ packs eight in a word", module, out);
    list[0] = (calm_qformat_tensor){CALM_QFORMAT_CODES, "qweight", CALM_I32, 2, {in, out / 8}, false};
    list[1] = (calm_qformat_tensor){CALM_QFORMAT_ZEROS, "qzeros", CALM_I32, 2, {groups, out / 8}, false};
    list[2] = (calm_qformat_tensor){CALM_QFORMAT_SCALES, "scales", CALM_N_DTYPES, 2, {groups, out}, false};
    *n = 3;
    return CALM_OK;
}

static calm_status unpack(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                          const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values)
{
    const size_t out = values->out, groups = values->n_groups;
    (void)module;
    /* All three tensors are stored with inputs first; the common form has outputs first. */
    CALM_TRY(calm_qformat_codes(ctx, found[CALM_QFORMAT_CODES], CALM_QFORMAT_AWQ_ORDER, scheme->bits, true, out,
                                values->in, values->codes));
    CALM_TRY(calm_qformat_codes(ctx, found[CALM_QFORMAT_ZEROS], CALM_QFORMAT_AWQ_ORDER, scheme->bits, true, out, groups,
                                values->zeros));
    return calm_qformat_floats(ctx, found[CALM_QFORMAT_SCALES], true, out, groups, values->scales);
}

static const calm_qformat_suffix suffixes[] = {{"qweight", CALM_QFORMAT_CODES}, {"qzeros", CALM_QFORMAT_ZEROS},
                                               {"scales", CALM_QFORMAT_SCALES}, {NULL, CALM_QFORMAT_CODES}};

const calm_qformat calm_qformat_awq = {
    .name = "awq",
    .label = "awq",
    .suffixes = suffixes,
    .bytes = sizeof(awq),
    .read = read,
    .find = find,
    .tensors = tensors,
    .inputs_first = true,
    .packs_outputs = true,
    .unpack = unpack,
};
