/* Lists tensors outside of sublayers. */
#include "ptq/model/extra_tensors.h"

#include "ptq/arch/arch.h"

/* Lists those of residual streams; the last two belong to the model. */
static size_t stream_parts(const calm_config *config, calm_extra_tensor *list)
{
    const calm_stream_names *names = config->arch->names->streams;
    const size_t n = config->streams.n, hidden = config->hidden, rank = config->streams.rank;
    size_t k = 0;
    if (!names)
        return 0;
    list[k++] = (calm_extra_tensor){CALM_EXTRA_NORM, names->router_norm, false, hidden, 0, 0};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->router, false, n, hidden, 0};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->predict, false, n * n, n, 0};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->correct, false, n, n, 0};
    /* Checkpoints have the tensor even where it is not used. */
    list[k++] = (calm_extra_tensor){CALM_EXTRA_TENSOR, names->scale, false, hidden, 0, 0};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->left, false, rank, hidden, 0};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->right, false, hidden, rank, 0};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_NORM, names->laurel_norm, false, hidden, 0, 0};
    if (n == 1)
        return k;
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->split, true, hidden, hidden, n - 1};
    list[k++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->merge, true, hidden, hidden, n - 1};
    return k;
}

/* Lists those of the tail. */
static size_t tail_parts(const calm_config *config, calm_extra_tensor *list)
{
    const calm_tail_names *names = config->arch->names->tail;
    const size_t width = config->per_layer, all = config->n_blocks * width, hidden = config->hidden;
    size_t n = 0;
    /* Within a block: the factor, and three of its per-layer input. */
    if (names && names->scale)
        list[n++] = (calm_extra_tensor){CALM_EXTRA_TENSOR, names->scale, false, 1, 0, 0};
    if (!names || !width)
        return n;
    list[n++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->gate, false, width, hidden, 0};
    list[n++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->projection, false, hidden, width, 0};
    list[n++] = (calm_extra_tensor){CALM_EXTRA_NORM, names->norm, false, hidden, 0, 0};
    /* Of the model: one table and one linear for all blocks. */
    list[n++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->table, true, config->per_layer_rows, all, 0};
    list[n++] = (calm_extra_tensor){CALM_EXTRA_LINEAR, names->context, true, all, hidden, 0};
    list[n++] = (calm_extra_tensor){CALM_EXTRA_NORM, names->context_norm, true, width, 0, 0};
    return n;
}

size_t calm_extra_tensors(const calm_config *config, calm_extra_tensor list[CALM_EXTRA_TENSORS])
{
    const size_t n = stream_parts(config, list);
    return n + tail_parts(config, list + n);
}
