/* Norms over rows. */
#include "ptq/model/norm.h"

#include <string.h>

#include "ptq/tensor/vector.h"

void calm_norm_rows(const calm_norm *norm, const float *x, size_t n, float *out)
{
    const size_t width = norm->width;
    /* No norm at this place of the family. */
    if (!norm->w && x != out)
        memcpy(out, x, n * width * sizeof *out);
    for (size_t t = 0; t < n && norm->w; t++) {
        if (norm->kind == CALM_NORM_LAYER)
            calm_vec_layernorm(width, x + t * width, norm->w, norm->b, norm->eps, out + t * width);
        else
            calm_vec_rmsnorm(width, x + t * width, norm->w, norm->eps, out + t * width);
    }
}
