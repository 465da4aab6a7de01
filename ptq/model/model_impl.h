/* The parts of an open model.  Only model*.c of this folder include it. */
#pragma once

#include "ptq/model/model.h"
#include "ptq/weights/adapter.h"
#include "ptq/weights/published.h"
#include "ptq/weights/quantized_table.h"

struct calm_model {
    /* Memory that lives until the model is closed: names, layout, arrays of the config. */
    calm_arena arena;
    char *dir;
    calm_json *json;
    calm_json *text;                /* configuration of a wrapper's text model; NULL: `json` is it */
    const char *prefix;
    calm_config config;
    calm_layout layout;
    calm_safetensors *tensors;
    calm_adapter *adapter;          /* merged into `tensors`; NULL: none */
    calm_qformat_reader *stored;    /* NULL: a float checkpoint, or a GGUF file */
    calm_published published;       /* format of published weights that are read as floats */
    calm_kv_scales *kv;             /* [n_blocks] scales of an 8-bit KV cache; NULL: none */
    bool in_blocks;                 /* true: a GGUF file with quantized matrices */
    calm_act_rule act_rule;         /* rounding rule of quantized activations */
    calm_quantized_table tables[2]; /* embedding and head, where they are quantized */
};

/* Reads the vector MODULE.PART [n] into ctx->out; `out` NULL: only checks it. */
calm_status calm_model_read_part(calm_ctx *ctx, const calm_model *model, const char *module, const char *part, size_t n,
                                 const float **out);

/* Reads the norms of a sublayer and its plain tensors into ctx->out; `block` NULL: only checks them. */
calm_status calm_model_read_norms(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                  calm_block *block);

/* Reads the router, the shared expert's gate and the choice bias into ctx->out; `moe` NULL: only checks them. */
calm_status calm_model_read_router(calm_ctx *ctx, const calm_model *model, size_t index, calm_mixture *moe);

/* Reads the tail of a block into ctx->out, `tail` NULL: only checks it; and returns the bytes that this allocates. */
calm_status calm_model_read_tail(calm_ctx *ctx, const calm_model *model, size_t index, calm_tail *tail);
size_t calm_model_tail_bytes(const calm_config *config);

/* Reads a sublayer's weights of the residual streams into ctx->out, `streams` NULL: only checks them; and returns the
 * bytes that this allocates. */
calm_status calm_model_read_streams(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                    calm_streams *streams);
size_t calm_model_streams_bytes(const calm_config *config, size_t index, calm_sublayer sublayer);

/* Makes the full name of the tensor NAME END of a block, or with `block` NULL of the model, in ctx->scratch. */
calm_status calm_model_part_name(calm_ctx *ctx, const calm_model *model, const size_t *block, const char *name,
                                 const char *end, char **out);

/* Reads rows first .. first + out - 1 of the tensor `name` [shape], which is no linear of a job, into ctx->out;
 * `weight` NULL: only checks it. */
calm_status calm_model_read_rows(calm_ctx *ctx, const calm_model *model, const char *name, const size_t shape[2],
                                 size_t first, size_t out, calm_weight *weight);
