/* What a model consists of.  Only model*.c of this folder include it. */
#pragma once

#include "ptq/model/adapter.h"
#include "ptq/model/model.h"
#include "ptq/model/published.h"
#include "ptq/model/quantized_table.h"

struct calm_model {
    /* Names, layout and arrays of the config: what lives until the model is closed. */
    calm_arena arena;
    char *dir;
    calm_json *json;
    calm_json *text;                /* of the text model; NULL: `json` is it */
    const char *prefix;
    calm_config config;
    calm_layout layout;
    calm_safetensors *tensors;
    calm_adapter *adapter;          /* that is merged into them; NULL: none */
    calm_qformat_reader *stored;    /* NULL: a float checkpoint, or a GGUF file */
    calm_published published;       /* what weights were that are read as floats */
    calm_kv_scales *kv;             /* [n_blocks] of a quantized cache; NULL: none that is read */
    bool in_blocks;                 /* a GGUF file with quantized matrices */
    calm_act_rule act_rule;         /* of linears whose input is quantized */
    calm_quantized_table tables[2]; /* embedding and head, where they are quantized */
};

/* MODULE.PART [n]; `out` NULL: check it alone. */
calm_status calm_model_read_part(calm_ctx *ctx, const calm_model *model, const char *module, const char *part, size_t n,
                                 const float **out);

/* The norms of a sublayer and its plain tensors; `block` NULL: check them alone. */
calm_status calm_model_read_norms(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                  calm_block *block);

/* Router, gate of the shared expert and bias of the choice; `moe` NULL: check them alone. */
calm_status calm_model_read_router(calm_ctx *ctx, const calm_model *model, size_t index, calm_mixture *moe);

/* What follows the sublayers of a block, `tail` NULL: check it alone; and what that leaves in ctx->out. */
calm_status calm_model_read_tail(calm_ctx *ctx, const calm_model *model, size_t index, calm_tail *tail);
size_t calm_model_tail_bytes(const calm_config *config);

/* What either sublayer has of the block's streams, `streams` NULL: check it alone; and what that leaves. */
calm_status calm_model_read_streams(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                    calm_streams *streams);
size_t calm_model_streams_bytes(const calm_config *config, size_t index, calm_sublayer sublayer);

/* Of a block, or with `block` NULL of the whole model: NAME END in ctx->scratch. */
calm_status calm_model_part_name(calm_ctx *ctx, const calm_model *model, const size_t *block, const char *name,
                                 const char *end, char **out);

/* Rows first .. first + out - 1 of the tensor `name` of that shape, which is no linear of a job, in ctx->out; `weight`
 * NULL: check it alone. */
calm_status calm_model_read_rows(calm_ctx *ctx, const calm_model *model, const char *name, const size_t shape[2],
                                 size_t first, size_t out, calm_weight *weight);
