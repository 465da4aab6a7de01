/* config.json: what the forward pass needs of it, checked.
 *
 * Both spellings are read: the classic one (torch_dtype, rope_theta, rope_scaling) and that of transformers 5
 * (dtype, rope_parameters).  A key that would change the computation and is not understood is an error. */
#ifndef CALM_MODEL_CONFIG_H
#define CALM_MODEL_CONFIG_H

#include "ptq/base/context.h"
#include "ptq/io/json.h"
#include "ptq/tensor/dtype.h"

typedef struct calm_arch calm_arch;

typedef struct calm_config {
    const calm_arch *arch;
    size_t hidden, inner;             /* D; width of the MLP                            */
    size_t n_blocks, vocab;
    size_t n_heads, n_kv, head_dim;   /* query heads, key/value heads, width of each    */
    size_t max_positions;
    float norm_eps;
    double rope_theta;
    bool tied;                        /* the head is the embedding                      */
    bool attention_bias;              /* q, k, v and o have biases                      */
    size_t *window;                   /* [n_blocks] keys a query sees, 0 = all          */
    calm_dtype dtype;                 /* as config.json states it; BF16 when absent     */
} calm_config;

/* Read and check; `window` lives in ctx->out.  `root` is the parsed config.json at `path`.
 * CALM_EUNSUPPORTED: unknown architecture (lists the known ones) or setting.  CALM_EFORMAT: out of range. */
calm_status calm_config_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *out);

#endif
