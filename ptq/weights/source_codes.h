/* Restores the codes of a weight as they were published. */
#pragma once

#include "ptq/io/safetensors.h"

/* For E2M1 codes [out, in / 2] and exponents [out, in / 32] of a weight that was quantized from `source` [out, in]:
 * where a group of 32 encodes the same numbers as the source, copies the source's codes and exponent.  One number has
 * several encodings: 6 times 1 is 3 times 2, and 0 has two signs.  Does nothing where the source is no MXFP4. */
void calm_source_codes_restore(const calm_tensor *source, uint8_t *codes, uint8_t *exponents);
