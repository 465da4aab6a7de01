/* Tensor use: which tensors of a checkpoint the forward pass reads, by their names and config.json.
 *
 *   read     model.layers.0.self_attn.q_proj.weight, and .bias where config.json switches it on
 *   copy     lm_head.weight of a model whose head is the embedding
 *   buffer   model.layers.0.self_attn.rotary_emb.inv_freq, .masked_bias, mlp.down_proj.R4_input.weight: libraries
 *            compute it from config.json
 *   beyond   model.layers.2.* of a model with two blocks by config.json
 *   foreign  everything else: mtp.*, score.weight, k_scale, a bias that config.json switches off */
#pragma once

#include "ptq/arch/layout.h"
#include "ptq/base/text.h"
#include "ptq/model/model.h"

typedef enum calm_tensor_use {
    CALM_TENSOR_READ, CALM_TENSOR_COPY, CALM_TENSOR_BUFFER, CALM_TENSOR_BEYOND, CALM_TENSOR_FOREIGN
} calm_tensor_use;

/* Returns the use of a float tensor, or of the float tensor that a quantized one replaces, by its full name.  `prefix`:
 * first part of the names; `layout`: built from `config`. */
calm_tensor_use calm_tensor_use_of(const calm_config *config, const calm_layout *layout, const char *prefix,
                                   const char *name);

/* Returns the use of a tensor of an open float model. */
calm_tensor_use calm_model_tensor_use(const calm_model *model, const char *name);

/* Returns the number of the open model's tensors with this use.  `out` (may be NULL) gets their names, joined by
 * commas; of names that differ only in numbers it gets the first and the number of the others. */
size_t calm_model_list_use(const calm_model *model, calm_tensor_use use, calm_text *out);

/* Names grouped by kind: names of a kind only differ in numbers.  An untrusted checkpoint may have 10^6 kinds, so that
 * names of kinds after the first CALM_NAME_KINDS are only counted. */
#define CALM_NAME_KINDS 24
typedef struct calm_name_kind {
    const char *first;    /* first name of the kind */
    size_t n;             /* number of its names */
} calm_name_kind;
typedef struct calm_name_kinds {
    calm_name_kind of[CALM_NAME_KINDS];
    size_t n, beyond;    /* number of kinds in `of`; number of names of further kinds */
} calm_name_kinds;

/* Counts a name with its kind; the name must live as long as `kinds`. */
void calm_model_names_add(calm_name_kinds *kinds, const char *name);

/* Does mlx-lm's model of the family have biases of linears where config.json asks for them?  If not, its loader refuses
 * files with biases.  Source: mlx_lm/models of 0.31. */
bool calm_tensor_mlx_has_biases(const calm_arch *arch);
