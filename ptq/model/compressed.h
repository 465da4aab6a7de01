/* compressed-tensors checkpoints, reading: which linear has which scheme, and its weight in float32.
 *
 *   pack-quantized   m.weight_packed I32 [out, ceil(in b / 32)]   m.weight_scale [out, G]   m.weight_shape I64 [2]
 *                    m.weight_zero_point I32 [ceil(out b / 32), G] when asymmetric
 *   int-quantized    m.weight I8 [out, in]                        m.weight_scale [out, G]
 *
 * docs/formats.md section 3 has the layouts; targets resolve as the library does: exact names, then regexes, then the
 * class name Linear. */
#ifndef CALM_MODEL_COMPRESSED_H
#define CALM_MODEL_COMPRESSED_H

#include "ptq/base/context.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

typedef struct calm_compressed calm_compressed;

/* How one linear is stored. */
typedef struct calm_stored_scheme {
    int bits;
    size_t group;         /* columns per scale; 0 = one per row */
    bool symmetric, packed;
    int act_bits;         /* 0 = activations stay float         */
    bool act_asymmetric;
} calm_stored_scheme;

/* Read the "quantization_config" entry `root` of the config.json at `path`; free with calm_compressed_free.
 * CALM_EUNSUPPORTED for another quant_method or a group calm cannot compute; CALM_EFORMAT. */
calm_status calm_compressed_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_compressed **out);
void calm_compressed_free(calm_compressed *compressed);

/* The scheme of a module; *quantized is false for one that is ignored or not targeted. */
calm_status calm_compressed_find(calm_ctx *ctx, const calm_compressed *compressed, const char *module, bool *quantized,
                                 calm_stored_scheme *out);

/* Check presence, dtype and shape of a quantized module's tensors, w [out, in]. */
calm_status calm_compressed_check(calm_ctx *ctx, const calm_safetensors *set, const char *module,
                                  const calm_stored_scheme *scheme, size_t out, size_t in);

/* w [out, in] = (codes - zeros) * scales.  CALM_ENUMERIC: a scale is not finite. */
calm_status calm_compressed_load(calm_ctx *ctx, const calm_safetensors *set, const char *module,
                                 const calm_stored_scheme *scheme, size_t out, size_t in, float *w);

#endif
