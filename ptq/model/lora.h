/* A tensor that an adapter changes: the source (ptq/io/safetensors.h) that merges it as it is read. */
#pragma once

#include "ptq/io/safetensors.h"

/* Where a tensor that is read lies: its set releases its pages. */
typedef struct calm_lora_part {
    const calm_safetensors *set;
    calm_tensor tensor;    /* name NULL: there is none */
} calm_lora_part;

/* base + scale * (left right), rounded to the merged tensor's dtype; without `left` base + scale * right, element by
 * element; without both the base alone, of another dtype.  left [rows, r] and right [r, columns], each turned: stored
 * with its two dimensions exchanged. */
typedef struct calm_lora {
    calm_lora_part base, left, right;
    bool turned;
    float scale;
} calm_lora;

/* The source of a tensor whose `entry` is a calm_lora. */
extern const calm_tensor_source calm_lora_source;
