/* The tensors of a plan's GGUF file, in order: those outside the blocks, then block by block, sorted by their names in
 * the checkpoint; the experts of a projection are one tensor of three dimensions. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/export/module_names.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/io/gguf_write.h"

/* One tensor of the file. */
typedef struct calm_gguf_part {
    calm_export_part of;       /* the checkpoint's tensor; of all experts expert 0's; rope factors have no data */
    calm_gguf_spot spot;       /* llama.cpp's name and layout                                            */
    const calm_scheme *table;  /* scheme of a quantized embedding or head; else NULL                     */
    bool factor;        /* factor of the matrix before it, one number or one per expert                  */
    calm_gguf_order order;     /* order of its rows                                                      */
    size_t n_rows;      /* number of rows in the file; of experts, rows of one expert                    */
    size_t n_repeats;   /* copies of the first row after them, for ids beyond a table of per-layer inputs */
    size_t n_elements;  /* number of elements of the whole tensor                                        */
} calm_gguf_part;

typedef struct calm_gguf_layout {
    calm_gguf_part *parts;         /* [n]                                  */
    calm_gguf_tensor *tensors;     /* [n] entries of the file's table      */
    size_t n;
    uint32_t file_type;            /* label: the type most elements have   */
    calm_gguf_widths widths;       /* head widths that row orders depend on */
} calm_gguf_layout;

/* Computes the layout of a file, in ctx->out.  CALM_EUNSUPPORTED, by name: a tensor without a place in llama.cpp's
 * architecture, a linear that GGUF has no type for, experts of one projection that have no type in common. */
calm_status calm_gguf_lay_out(calm_ctx *ctx, const calm_export_input *input, calm_gguf_layout *out);

/* Returns llama.cpp's place for a tensor of the checkpoint, in ctx->out.  CALM_EUNSUPPORTED, beginning with `format`:
 * calm does not know llama.cpp's names for the family, or the tensor has none, two, or another order of columns. */
calm_status calm_gguf_need_spot(calm_ctx *ctx, const char *format, const calm_model *model, const char *tensor,
                                calm_gguf_spot *out);
