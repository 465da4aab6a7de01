/* gzip: compressed texts; the only user of zlib. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* Do `bytes` [n] begin as gzip does? */
bool calm_gunzip_is(const char *bytes, size_t n);

/* Append what `bytes` [n] of the file `path` are when they are not compressed, also of several members one behind the
 * other.  CALM_EFORMAT: broken or cut off data, or more than `limit` bytes; CALM_ENOMEM. */
calm_status calm_gunzip(calm_ctx *ctx, const char *path, const char *bytes, size_t n, size_t limit, calm_text *out);
