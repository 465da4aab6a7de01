/* Architectures: one const descriptor per family over one shared block implementation.
 *
 * A family is one file arch_<family>.c, which ends with its descriptor, and one line in arch.def. */
#ifndef CALM_MODEL_ARCH_H
#define CALM_MODEL_ARCH_H

#include "ptq/base/context.h"
#include "ptq/io/json.h"
#include "ptq/model/config.h"

typedef enum calm_qk_norm {
    CALM_QK_NORM_NONE,
    CALM_QK_NORM_HEAD,    /* RMSNorm over head_dim of each head, before RoPE */
} calm_qk_norm;

typedef struct calm_arch {
    const char *name;          /* [a-z0-9_]+ : the name in arch.def                       */
    const char *class_name;    /* "architectures" of config.json                          */
    const char *model_type;    /* "model_type" of config.json                             */
    const char *prefix;        /* of tensor names: "model."                               */
    calm_qk_norm qk_norm;
    int64_t default_kv_heads;  /* when num_key_value_heads is absent; 0: as many as heads */
    int64_t default_head_dim;  /* when head_dim is absent; 0: hidden / heads              */
    double default_rope_theta;

    /* What is particular in this family's config: window pattern, keys that must have one value.
     * Called after the common keys are read. */
    calm_status (*read_config)(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);
} calm_arch;

/* The known architectures, *n of them, in the order of arch.def. */
const calm_arch *const *calm_architectures(size_t *n);

/* Find by class name, else (class_name NULL) by model type; NULL when unknown. */
const calm_arch *calm_arch_find(const char *class_name, const char *model_type);

#endif
