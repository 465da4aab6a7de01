/* Rows are decoded when they are read: a table as float32 may be larger than the rest of the file. */
#include "ptq/weights/quantized_table.h"

#include <string.h>

/* Decodes whole rows, for a calm_tensor_source. */
static calm_status widen_rows(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n,
                              float *out)
{
    const calm_quantized_table *table = self;
    const size_t in = tensor->shape[1];
    return calm_qformat_load_rows(ctx, table->stored, table->set, table->module, &table->scheme, tensor->shape[0], in,
                                  first / in, n / in, out);
}

/* Does nothing: reading has released the pages. */
static void release_rows(const void *self, const calm_tensor *tensor, size_t offset, size_t bytes)
{
    (void)self;
    (void)tensor;
    (void)offset;
    (void)bytes;
}

/* Finds the first tensor that holds the weight under another name; NULL: there is none. */
static const calm_tensor *find_part(const calm_safetensors *set, const char *module)
{
    const size_t n = strlen(module);
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        if (strncmp(tensor->name, module, n) == 0 && tensor->name[n] == '.' && strcmp(tensor->name + n, ".bias") != 0)
            return tensor;
    }
    return NULL;
}

calm_status calm_quantized_table_find(calm_ctx *ctx, calm_arena *arena, const calm_qformat_reader *stored,
                                      const calm_safetensors *set, const char *module, size_t rows, size_t in,
                                      calm_quantized_table *out)
{
    bool quantized = false;
    char *name;
    *out = (calm_quantized_table){.module = module, .stored = stored, .set = set};
    CALM_TRY(calm_strf(ctx, arena, &name, "%s.weight", module));
    const calm_tensor *weight = calm_safetensors_find(set, name);
    /* Formats with their own names: "lm_head.qweight". */
    if (!weight)
        weight = find_part(set, module);
    /* A configuration may list a table that is stored as floats; then the floats count. */
    if (weight && (!calm_dtype_is_float(weight->dtype) || strcmp(weight->name, name) != 0))
        CALM_TRY(calm_qformat_find(ctx, stored, set, module, &quantized, &out->scheme));
    if (!quantized)
        return CALM_OK;
    /* Checked now, so that a run does not fail at its first token. */
    CALM_TRY(calm_qformat_check(ctx, stored, set, module, &out->scheme, rows, in));
    out->source = (calm_tensor_source){.self = out, .widen = widen_rows, .release = release_rows};
    /* `data` is never read as floats; it shows messages where the codes are. */
    out->floats = (calm_tensor){.name = name, .dtype = CALM_F32, .n_dims = 2, .shape = {rows, in},
                                .n_elements = rows * in, .bytes = rows * in * sizeof(float), .data = weight->data,
                                .file = weight->file, .shard = weight->shard, .source = &out->source};
    return CALM_OK;
}

calm_status calm_quantized_table_load(calm_ctx *ctx, const calm_quantized_table *table, float *w, calm_weight *weight)
{
    const calm_tensor *floats = &table->floats;
    /* The scheme may quantize inputs of linears, but all engines keep the head's input float. */
    *weight = (calm_weight){.name = floats->name, .out = floats->shape[0], .in = floats->shape[1], .w = w};
    return calm_qformat_load(ctx, table->stored, table->set, table->module, &table->scheme, weight->out, weight->in, w,
                             weight);
}
