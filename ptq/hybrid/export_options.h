/* What a person may ask of exporters; each reads what concerns its format. */
#ifndef CALM_HYBRID_EXPORT_OPTIONS_H
#define CALM_HYBRID_EXPORT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct calm_export_options {
    size_t max_shard_bytes;    /* of tensors in a safetensors file; 0: CALM_SHARD_BYTES (ptq/io/shards.h) */
    bool asymmetric;           /* write asymmetric weights also where some readers fail on them */
} calm_export_options;

#endif
