/* A set of tensors: functions that its readers share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/io/safetensors_impl.h"

calm_status calm_safetensors_survive(calm_ctx *ctx, const calm_safetensors *set, const char *tensor, calm_status status,
                                     bool *bad)
{
    if (bad)
        *bad = status != CALM_OK;
    if (status == CALM_OK || !set->report || status == CALM_ENOMEM)
        return status;
    set->report(set->user, set->fault, tensor, ctx->message);
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

bool calm_tensor_size(const calm_tensor *tensor, size_t *n_elements, size_t *bytes)
{
    size_t n = 1;
    for (int i = 0; i < tensor->n_dims; i++)
        if (!calm_size_mul(&n, n, tensor->shape[i]))
            return false;
    *n_elements = n;
    return calm_size_mul(bytes, n, calm_dtype_bytes(tensor->dtype));
}

const char *calm_shape_text(int n_dims, const size_t *shape, char text[128])
{
    int used = snprintf(text, 128, "[");
    for (int i = 0; i < n_dims && used < 128; i++)
        used += snprintf(text + used, 128 - (size_t)used, "%s%zu", i ? ", " : "", shape[i]);
    if (used < 128)
        snprintf(text + used, 128 - (size_t)used, "]");
    return text;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const calm_tensor *)a)->name, ((const calm_tensor *)b)->name);
}

size_t calm_safetensors_count(const calm_safetensors *set)
{
    return set->n_tensors;
}

const calm_tensor *calm_safetensors_at(const calm_safetensors *set, size_t index)
{
    return &set->tensors[index];
}

const calm_tensor *calm_safetensors_find(const calm_safetensors *set, const char *name)
{
    const calm_tensor key = {.name = name};
    return set->n_tensors ? bsearch(&key, set->tensors, set->n_tensors, sizeof key, by_name) : NULL;
}
