/* gzip: compressed texts; the only user of zlib. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* Returns whether `bytes` [n] begin with gzip's magic number. */
bool calm_gunzip_is(const char *bytes, size_t n);

/* Appends the decompressed `bytes` [n] of the file `path`, also of several concatenated members.  CALM_EFORMAT:
 * corrupt or truncated data, or more than `limit` bytes; CALM_ENOMEM. */
calm_status calm_gunzip(calm_ctx *ctx, const char *path, const char *bytes, size_t n, size_t limit, calm_text *out);
