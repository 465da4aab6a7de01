/* Mixes, such as Q4_K_M: schemes with one GGUF type for most matrices and another for some, by their places in the
 * model.  Their names are those of mixes.def behind "gguf_"; a mix has the bits, the group and the family of the type
 * that most of its matrices have. */
#pragma once

#include "ptq/quant/scheme.h"

#define CALM_MIX_PREFIX "gguf_"

/* What a matrix does, as far as mixes ask. */
typedef enum calm_place_role {
    CALM_PLACE_OTHER, CALM_PLACE_V, CALM_PLACE_O, CALM_PLACE_DOWN, CALM_PLACE_EMBEDDING, CALM_PLACE_HEAD
} calm_place_role;

/* Where a matrix stands in its model.  A table that is both embedding and head is CALM_PLACE_HEAD. */
typedef struct calm_place {
    calm_place_role role;
    size_t block, n_blocks;
    size_t sharing;           /* query heads that share a kv head */
    bool expert;              /* of routed experts */
} calm_place;

/* Names of llama-quantize's types, in the order of mixes.def: "Q4_0|Q4_1|...". */
const char *calm_mix_names(void);

/* The name of a mix by the number of its row in mixes.def: "gguf_q4_k_m". */
const char *calm_mix_at(size_t number);

/* The name of the mix of one of llama-quantize's types, "Q4_K_M" or "q4_k_m"; NULL: none. */
const char *calm_mix_called(const char *type);

/* The scheme of a matrix: `scheme` itself, or what a mix has there. */
calm_scheme calm_scheme_at(const calm_scheme *scheme, const calm_place *place);

/* Can a mix have another type for v than for q and k, which read the same input? */
bool calm_mix_splits(const calm_scheme *scheme);

/* The scheme itself, or of a mix that of its types which takes most memory: with the smallest groups. */
calm_scheme calm_mix_largest(const calm_scheme *scheme);

/* Read the name of a mix into *out; false: it is none. */
bool calm_mix_find(const char *name, calm_scheme *out);

/* The name of a mix; false: the scheme is none. */
bool calm_mix_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX]);
