/* A GGUF file as a model: its configuration, and its tensors under the names of a checkpoint. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

/* What opening a file gives; both are the caller's. */
typedef struct calm_gguf_opened {
    calm_json *config;
    calm_safetensors *tensors;    /* float matrices as they are there, blocks decoded (dtype F32)              */
    bool quantized;               /* a matrix is stored in blocks */
    int64_t pooling;              /* pooling_type: 1 mean, 2 first token, 3 last one; 0: it is not said        */
    struct {
        size_t in, out;
        const float *w;           /* [out, in] */
    } dense[2];                   /* products behind the pooling; w NULL: there is none */
} calm_gguf_opened;

/* Open one; names go to ctx->out and must outlive the tensors.  A config.json next to the file takes the place of the
 * keys where those do not say enough (rotary embeddings with their own factors).  Fails as calm_gguf_open,
 * calm_gguf_list_tensors and calm_gguf_config; CALM_EUNSUPPORTED: one file of several. */
calm_status calm_gguf_open_model(calm_ctx *ctx, const char *path, calm_gguf_opened *out);

/* The type that a tensor of such a set is stored in, and whether that is one of blocks. */
const char *calm_gguf_stored_type(const calm_tensor *tensor);
bool calm_gguf_is_in_blocks(const calm_tensor *tensor);
