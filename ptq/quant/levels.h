/* Levels: the values of codes in formats with unequal steps, such as FP4 and IQ4_NL.
 *
 * Codes number the levels in rising order, so that code - 1 and code + 1 are the neighbours of a code.  Files store
 * other bits (calm_levels_bits). */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct calm_levels {
    size_t n;              /* number of levels, at most 256                                                */
    const float *value;    /* [n] in rising order                                                          */
    int mantissa;          /* small floats: explicit mantissa bits, and                                    */
    double least;          /* smallest normal value; 0: not a small float, but a table of arbitrary levels */
} calm_levels;

extern const calm_levels calm_levels_e2m1, calm_levels_e4m3, calm_levels_iq4_nl;

/* Rounds x [n] to the nearest levels; values beyond the ends become the end.  Small floats: ties to an even
 * mantissa; tables: ties to the upper level.  x is not NaN. */
void calm_levels_nearest(const calm_levels *levels, double *x, size_t n);

/* Returns the code of a level. */
uint8_t calm_levels_code(const calm_levels *levels, double level);

/* Convert between the code of a small float and its bits in a file (sign, exponent, mantissa); both zeros have the
 * same code.  Only bits of finite numbers have a code. */
uint8_t calm_levels_bits(const calm_levels *levels, uint8_t code);
uint8_t calm_levels_of_bits(const calm_levels *levels, uint8_t bits);
