/* Mixes, such as Q4_K_M: schemes with one GGUF type for most matrices and other types for some, depending on their
 * role in the model.  Their names are "gguf_" and a name of mixes.def; bits, group and family of a mix are those of
 * the type that most of its matrices have. */
#pragma once

#include "ptq/quant/scheme.h"

#define CALM_MIX_PREFIX "gguf_"

/* Role of a matrix, as far as mixes distinguish it. */
typedef enum calm_place_role {
    CALM_PLACE_OTHER, CALM_PLACE_V, CALM_PLACE_O, CALM_PLACE_DOWN, CALM_PLACE_EMBEDDING, CALM_PLACE_HEAD
} calm_place_role;

/* Position of a matrix in its model.  A table that is both embedding and head is CALM_PLACE_HEAD. */
typedef struct calm_place {
    calm_place_role role;
    size_t block, n_blocks;
    size_t sharing;           /* query heads per KV head          */
    bool expert;              /* matrix of a routed expert */
} calm_place;

/* Returns the names of llama-quantize's types, in the order of mixes.def: "Q4_0|Q4_1|...". */
const char *calm_mix_names(void);

/* Returns the name of a mix by the index of its row in mixes.def: "gguf_q4_k_m". */
const char *calm_mix_at(size_t number);

/* Returns the name of the mix of one of llama-quantize's types, "Q4_K_M" or "q4_k_m"; NULL: none. */
const char *calm_mix_called(const char *type);

/* Returns the scheme of a matrix: `scheme` itself, or a mix's scheme for this place. */
calm_scheme calm_scheme_at(const calm_scheme *scheme, const calm_place *place);

/* Returns whether the mix can assign v another type than q and k, which read the same input. */
bool calm_mix_splits(const calm_scheme *scheme);

/* Returns the scheme itself, or for a mix the type that takes most memory: the one with the smallest groups. */
calm_scheme calm_mix_largest(const calm_scheme *scheme);

/* Parses the name of a mix into *out; false: not a mix. */
bool calm_mix_find(const char *name, calm_scheme *out);

/* Writes the name of a mix; false: the scheme is not a mix. */
bool calm_mix_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);
