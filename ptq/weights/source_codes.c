/* Restores codes of MXFP4 sources, through the views of single experts. */
#include "ptq/weights/source_codes.h"

#include <math.h>
#include <string.h>

#include "ptq/weights/small_floats.h"
#include "ptq/weights/turned.h"

#define GROUP ((size_t)32)

/* The first element of a matrix's row 0 in the source, and the distance of rows. */
typedef struct place {
    const calm_small_floats *from;
    size_t first, step;
} place;

/* Finds where a tensor's codes are; false: its source is not MXFP4, or its rows are no runs of codes. */
static bool find_place(const calm_tensor *tensor, place *out)
{
    const calm_tensor *whole = tensor;
    *out = (place){.step = tensor->n_dims == 2 ? tensor->shape[1] : 0};
    if (tensor->source == &calm_turned_source) {
        const calm_strided_view *view = tensor->entry;
        whole = view->whole;
        out->first = view->first;
        /* In a transposed view a row is no run of codes. */
        out->step = view->column_step == 1 ? view->row_step : 0;
    }
    if (whole->source != &calm_small_floats_source || !out->step)
        return false;
    out->from = whole->entry;
    /* NVFP4's scales are no powers of two. */
    const calm_dtype dtype = out->from->scales.dtype;
    return out->from->packed && out->from->block_rows == 1 && out->from->block_columns == GROUP
           && out->from->columns % GROUP == 0 && (dtype == CALM_U8 || dtype == CALM_F8_E8M0);
}

/* Returns 2 x of a nibble. */
static double twice(uint8_t nibble)
{
    static const double sizes[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return nibble & 8 ? -sizes[nibble & 7] : sizes[nibble & 7];
}

/* Do two groups of 32 codes encode the same numbers?  Exponents of a byte differ by at most 255, which a double can
 * represent. */
static bool same_numbers(const uint8_t *a, int exponent_a, const uint8_t *b, int exponent_b)
{
    const double factor = ldexp(1, exponent_b - exponent_a);
    bool same = true;
    for (size_t i = 0; i < GROUP / 2 && same; i++)
        same = twice(a[i] & 15) == twice(b[i] & 15) * factor && twice(a[i] >> 4) == twice(b[i] >> 4) * factor;
    return same;
}

void calm_source_codes_restore(const calm_tensor *source, uint8_t *codes, uint8_t *exponents)
{
    place at;
    if (!find_place(source, &at))
        return;
    const size_t groups = source->shape[1] / GROUP;
    for (size_t row = 0; row < source->shape[0]; row++)
        for (size_t g = 0; g < groups; g++) {
            const size_t element = at.first + row * at.step + g * GROUP;
            const uint8_t *theirs = at.from->codes.data + element / 2;
            const uint8_t *exponent = at.from->scales.data + element / GROUP;
            uint8_t *ours = codes + (row * groups + g) * (GROUP / 2), *own = &exponents[row * groups + g];
            if (!same_numbers(ours, *own, theirs, *exponent))
                continue;
            memcpy(ours, theirs, GROUP / 2);
            *own = *exponent;
        }
}
