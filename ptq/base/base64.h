/* Base64 (RFC 4648, with padding). */
#pragma once

#include "ptq/base/text.h"

/* Appends `bytes` [n_bytes] in base64; calm_text_check reports a failed allocation. */
void calm_base64_append(calm_text *out, const void *bytes, size_t n_bytes);

/* Decodes base64 characters `in` [n], padded, into out [n / 4 * 3]; *n_out: bytes written.  False: not base64. */
bool calm_base64_decode(const char *in, size_t n, unsigned char *out, size_t *n_out);
