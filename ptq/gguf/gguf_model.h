/* A GGUF file as a model: its configuration, and its tensors under the names of a checkpoint. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

/* The parts of an opened file; the caller frees `config` and `tensors`. */
typedef struct calm_gguf_opened {
    calm_json *config;
    calm_safetensors *tensors;    /* float matrices as stored; quantized blocks are decoded when read (F32)    */
    bool quantized;               /* some matrix is stored in quantized blocks */
    int64_t pooling;              /* pooling_type: 1 mean, 2 first token, 3 last token; 0: the file has none   */
    struct {
        size_t in, out;
        const float *w;           /* [out, in] */
    } dense[2];                   /* dense layers after the pooling; w NULL: none */
} calm_gguf_opened;

/* Opens a file; names are in ctx->out and must outlive the tensors.  A config.json next to the file is read instead of
 * the file's keys where those are incomplete (rotary embeddings with separate factors).  Fails as calm_gguf_open,
 * calm_gguf_list_tensors and calm_gguf_config; CALM_EUNSUPPORTED: one file of several. */
calm_status calm_gguf_open_model(calm_ctx *ctx, const char *path, calm_gguf_opened *out);

/* Return the GGUF type of a tensor of such a set, and whether it is a type of quantized blocks. */
const char *calm_gguf_stored_type(const calm_tensor *tensor);
bool calm_gguf_is_in_blocks(const calm_tensor *tensor);
