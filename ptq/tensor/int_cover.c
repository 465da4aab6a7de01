/* Division of a piece of an integer product into tiles. */
#include "ptq/tensor/int_kernel.h"

void calm_int_tiles(const calm_int_piece *piece, const calm_int_tile *tiles, size_t parts)
{
    const size_t end = piece->end_panel * parts;
    for (size_t row = piece->first_row; row < piece->end_row;) {
        const calm_int_tile *tile = tiles;
        /* Up to half of a tile may be computed unnecessarily: two runs of the next smaller tile would take longer. */
        while (tile->rows > 1 && piece->end_row - row <= tile->rows / 2)
            tile++;
        /* All whole tiles of rows are computed for some columns, whose codes stay in the L1 cache. */
        const size_t n = calm_size_max((piece->end_row - row) / tile->rows, 1) * tile->rows;
        for (size_t v = piece->first_panel * parts; v < end; v += tile->vectors)
            for (size_t r = row; r < row + n; r += tile->rows)
                tile->run(piece, v, r);
        row += n;
    }
}
