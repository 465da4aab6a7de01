/* Base64 (RFC 4648, with padding). */
#ifndef CALM_BASE_BASE64_H
#define CALM_BASE_BASE64_H

#include "ptq/base/text.h"

/* Append `bytes` [n_bytes] in the letters of base64; memory that runs out is seen by calm_text_check. */
void calm_base64_append(calm_text *out, const void *bytes, size_t n_bytes);

#endif
