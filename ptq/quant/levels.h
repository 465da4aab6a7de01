/* Levels: the values of codes in formats with unequal steps, such as FP4 and IQ4_NL.
 *
 * Codes count levels from the least on, so that code - 1 and code + 1 are the neighbours of a code.  The bits that a
 * file holds are another matter (calm_levels_bits). */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct calm_levels {
    size_t n;              /* at most 256                                                                  */
    const float *value;    /* [n] rising                                                                   */
    int mantissa;          /* of a small float: bits behind the point, and                                 */
    double least;          /*   its smallest normal value; 0: not a small float, but a table of any levels */
} calm_levels;

extern const calm_levels calm_levels_e2m1, calm_levels_e4m3, calm_levels_iq4_nl;

/* x [n] to the nearest levels, beyond the ends to the ends.  Small floats: ties to an even mantissa; tables: to the
 * upper level.  x is not NaN. */
void calm_levels_nearest(const calm_levels *levels, double *x, size_t n);

/* The code of a level. */
uint8_t calm_levels_code(const calm_levels *levels, double level);

/* Of a small float: sign and magnitude as a file holds them, the sign first; and back, both zeros to the same code.
 * Only patterns of finite numbers have one. */
uint8_t calm_levels_bits(const calm_levels *levels, uint8_t code);
uint8_t calm_levels_of_bits(const calm_levels *levels, uint8_t bits);
