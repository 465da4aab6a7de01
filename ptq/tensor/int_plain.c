/* Integer products in portable C; the kernels of all instruction sets must give the same results. */
#include <string.h>

#include "ptq/tensor/int_kernel.h"

/* Adds four products to each sum.  The sums wrap around, as vector instructions do; the final sum is exact
 * (int_product.h). */
static void add_quad(const uint8_t *w, int shift, int mask, const int8_t *a, uint32_t sum[CALM_INT_PANEL])
{
    for (size_t l = 0; l < CALM_INT_PANEL; l++)
        for (size_t i = 0; i < 4; i++)
            sum[l] += (uint32_t)((w[4 * l + i] >> shift & mask) * a[i]);
}

/* Computes the sums of group g of one row and one panel. */
static void sum_group(const calm_int_weight *weight, size_t panel, size_t g, const calm_int_rows *rows, size_t row,
                      int32_t out[CALM_INT_PANEL])
{
    const size_t cell = (panel * weight->n_groups + g) * CALM_INT_PANEL, first = g * weight->group;
    const uint32_t of_row = (uint32_t)rows->sums[row * rows->n_groups + g], zero = (uint32_t)rows->zeros[row];
    const int8_t *a = rows->codes + row * rows->stride + first;
    const uint8_t *w = weight->codes + panel * weight->panel + first * CALM_INT_PANEL * (size_t)weight->bits / 8;
    uint32_t sum[CALM_INT_PANEL];
    for (size_t l = 0; l < CALM_INT_PANEL; l++)
        sum[l] = 0 - of_row * (uint32_t)(weight->zeros ? weight->zeros[cell + l] : weight->zero)
                 - zero * (uint32_t)weight->sums[cell + l];
    for (size_t i = 0; i < calm_int_group_columns(weight, g); i += CALM_INT_STEP, a += CALM_INT_STEP)
        if (weight->bits == 8) {
            add_quad(w, 0, 255, a, sum);
            add_quad(w + 4 * CALM_INT_PANEL, 0, 255, a + 4, sum);
            w += 8 * CALM_INT_PANEL;
        } else {
            add_quad(w, 0, 15, a, sum);
            add_quad(w, 4, 15, a + 4, sum);
            w += 4 * CALM_INT_PANEL;
        }
    memcpy(out, sum, sizeof sum);
}

static void multiply_panel(const calm_int_piece *piece, size_t panel, size_t row)
{
    const calm_int_weight *weight = piece->weight;
    const size_t first = panel * CALM_INT_PANEL;
    float total[CALM_INT_PANEL] = {0};
    for (size_t g = 0; g < weight->n_groups; g++) {
        const float *scale = weight->scales + (panel * weight->n_groups + g) * CALM_INT_PANEL;
        int32_t sum[CALM_INT_PANEL];
        sum_group(weight, panel, g, piece->rows, row, sum);
        for (size_t l = 0; l < CALM_INT_PANEL; l++)
            total[l] += (float)sum[l] * scale[l];
    }
    for (size_t l = 0; l < CALM_INT_PANEL && first + l < weight->out; l++) {
        const float value = total[l] * piece->rows->scales[row];
        piece->y[row * weight->out + first + l] = piece->bias ? value + piece->bias[first + l] : value;
    }
}

void calm_int_plain(const calm_int_piece *piece)
{
    for (size_t panel = piece->first_panel; panel < piece->end_panel; panel++)
        for (size_t row = piece->first_row; row < piece->end_row; row++)
            multiply_panel(piece, panel, row);
}
