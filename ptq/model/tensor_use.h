/* Tensor use: what the forward pass reads of a checkpoint's tensors, told by their names and by config.json.
 *
 *   read     model.layers.0.self_attn.q_proj.weight, and .bias where config.json switches it on
 *   copy     lm_head.weight of a model whose head is the embedding
 *   buffer   model.layers.0.self_attn.rotary_emb.inv_freq, .masked_bias: libraries make it from config.json
 *   beyond   model.layers.2.* where config.json counts two blocks
 *   foreign  everything else: mtp.*, score.weight, k_scale, a bias that is switched off */
#pragma once

#include "ptq/base/text.h"
#include "ptq/model/layout.h"
#include "ptq/model/model.h"

typedef enum calm_tensor_use {
    CALM_TENSOR_READ, CALM_TENSOR_COPY, CALM_TENSOR_BUFFER, CALM_TENSOR_BEYOND, CALM_TENSOR_FOREIGN
} calm_tensor_use;

/* The use of a float tensor, or of the float tensor that a quantized one replaces, by its full name.  `prefix` is what
 * the names begin with; `layout` is that of the configuration. */
calm_tensor_use calm_tensor_use_of(const calm_config *config, const calm_layout *layout, const char *prefix,
                                   const char *name);

/* The same for an open float model. */
calm_tensor_use calm_model_tensor_use(const calm_model *model, const char *name);

/* Tensors of the open model that calm_model_tensor_use says `use` of; their number.  `out` gets their names, joined by
 * commas; of names that differ in numbers alone the first stands with the number of the others.  out may be NULL. */
size_t calm_model_list_use(const calm_model *model, calm_tensor_use use, calm_text *out);

/* Names by kind: those of a kind differ in their numbers alone.  Checkpoints of strangers may have 10^6 kinds: behind
 * the first ones it counts. */
#define CALM_NAME_KINDS 24
typedef struct calm_name_kind {
    const char *first;
    size_t n;
} calm_name_kind;
typedef struct calm_name_kinds {
    calm_name_kind of[CALM_NAME_KINDS];
    size_t n, beyond;    /* kinds; names of further ones */
} calm_name_kinds;

/* Count a name, which must live as long as the list, with its kind. */
void calm_model_names_add(calm_name_kinds *kinds, const char *name);

/* Has mlx-lm's model of the family biases of linears where config.json asks for them?  Source: mlx_lm/models of 0.31;
 * without them its loader refuses the file. */
bool calm_tensor_mlx_has_biases(const calm_arch *arch);
