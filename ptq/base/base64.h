/* Base64 (RFC 4648, with padding). */
#pragma once

#include "ptq/base/text.h"

/* Append `bytes` [n_bytes] in the letters of base64; memory that runs out is seen by calm_text_check. */
void calm_base64_append(calm_text *out, const void *bytes, size_t n_bytes);

/* Bytes of the letters `in` [n], padded, into out [n / 4 * 3]; *n_out their number.  False: not base64. */
bool calm_base64_decode(const char *in, size_t n, unsigned char *out, size_t *n_out);
