/* Pieces of products of whole numbers, covered with tiles. */
#include "ptq/tensor/int_kernel.h"

void calm_int_tiles(const calm_int_piece *piece, const calm_int_tile *tiles, size_t parts)
{
    const size_t end = piece->end_panel * parts;
    for (size_t row = piece->first_row; row < piece->end_row;) {
        const calm_int_tile *tile = tiles;
        /* Up to half a tile may be computed in vain: the next smaller one would run twice. */
        while (tile->rows > 1 && piece->end_row - row <= tile->rows / 2)
            tile++;
        /* All whole tiles of rows for some columns: their codes stay in the nearest cache. */
        const size_t n = calm_size_max((piece->end_row - row) / tile->rows, 1) * tile->rows;
        for (size_t v = piece->first_panel * parts; v < end; v += tile->vectors)
            for (size_t r = row; r < row + n; r += tile->rows)
                tile->run(piece, v, r);
        row += n;
    }
}
