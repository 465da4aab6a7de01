/* The generator that the functions of rng.h draw from.  Only files of this folder and tests include it. */
#pragma once

#include "ptq/base/rng.h"

/* Computes the Philox4x32-10 block function: counter [4], key [2] -> out [4]. */
void calm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
