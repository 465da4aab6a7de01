/* Rows of H in float32, which products of rows under refit read: a few at a time, since H itself is in double and as
 * large as what a candidate may take. */
#include "algorithms/rows.h"

#include "ptq/base/simd.h"

CALM_VECTORIZE
static void to_float(const double *restrict x, size_t n, double unit, float *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(x[i] * unit);
}

void calm_rows_panel(calm_rows *rows, size_t start, size_t n, size_t from)
{
    const size_t in = rows->problem->in;
    for (size_t k = 0; k < n; k++)
        to_float(rows->h + (start + k) * in + from, in - from, rows->unit_h, rows->panel + k * (in - from));
}
