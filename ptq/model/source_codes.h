/* Codes of a weight as they were published. */
#pragma once

#include "ptq/io/safetensors.h"

/* codes [out, in / 2] of E2M1 and exponents [out, in / 32] of a weight that was made from `source` [out, in]: where 32
 * of them encode the numbers that the source has there, put those of the source in their place, bit for bit.  The
 * same numbers have several: 6 times 1 is 3 times 2, and 0 has two signs.  Nothing is done where the source was no
 * MXFP4. */
void calm_source_codes_restore(const calm_tensor *source, uint8_t *codes, uint8_t *exponents);
