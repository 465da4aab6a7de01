/* Which tensors a GGUF file of a plan holds, in order: those outside the blocks, then block by block, by the names of
 * the checkpoint; the experts of a projection are one tensor of three dimensions. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/export/module_names.h"
#include "ptq/io/gguf_write.h"
#include "ptq/model/gguf_names.h"

/* One tensor of the file. */
typedef struct calm_gguf_part {
    calm_export_part of;       /* of all experts: expert 0's; rope factors have a source without data */
    calm_gguf_spot spot;
    const calm_scheme *table;  /* of a quantized embedding or head; else NULL                            */
    bool factor;        /* what the matrix before it is multiplied by, one number or each expert's       */
    calm_gguf_order order;     /* of its rows                                                            */
    size_t n_rows;      /* in the file; of experts those of one                                          */
    size_t n_repeats;   /* of the first row behind them: ids beyond a table of per-layer inputs have it  */
    size_t n_elements;  /* of all of them                                                                 */
} calm_gguf_part;

typedef struct calm_gguf_layout {
    calm_gguf_part *parts;         /* [n]                                  */
    calm_gguf_tensor *tensors;     /* [n] the same as the file's table has them */
    size_t n;
    uint32_t file_type;            /* label: the type most elements have   */
    calm_gguf_widths widths;       /* of heads that orders depend on       */
} calm_gguf_layout;

/* Lay out a file, into ctx->out.  CALM_EUNSUPPORTED, by name: a tensor without a place in llama.cpp's architecture, a
 * linear that GGUF has no type for, experts of one projection that have no type in common. */
calm_status calm_gguf_lay_out(calm_ctx *ctx, const calm_export_input *input, calm_gguf_layout *out);

/* llama.cpp's place of a tensor of the checkpoint, in ctx->out.  CALM_EUNSUPPORTED, beginning with `format`: calm does
 * not know llama.cpp's names for the family, or the tensor has none, two, or another order of columns. */
calm_status calm_gguf_need_spot(calm_ctx *ctx, const char *format, const calm_model *model, const char *tensor,
                                calm_gguf_spot *out);
