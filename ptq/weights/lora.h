/* A tensor that an adapter changes: its source (ptq/io/safetensors.h) merges it when it is read. */
#pragma once

#include "ptq/io/safetensors.h"

/* A tensor and the set that releases its pages. */
typedef struct calm_lora_part {
    const calm_safetensors *set;
    calm_tensor tensor;    /* name NULL: no tensor */
} calm_lora_part;

/* base + scale * (left right), left [rows, r] and right [r, columns], rounded to the merged tensor's dtype; without
 * `left` base + scale * right, element by element; without both the base converted to another dtype. */
typedef struct calm_lora {
    calm_lora_part base, left, right;
    bool turned;           /* left and right are stored transposed */
    float scale;
} calm_lora;

/* The source of a tensor whose `entry` is a calm_lora. */
extern const calm_tensor_source calm_lora_source;
