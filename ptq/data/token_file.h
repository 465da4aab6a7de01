/* Token files: sequences of ids as JSON lines, for models whose tokenizer calm cannot read, or for exact ids.
 *
 *   {"ids": [5, 17, 3], "mask": [1, 1, 0], "types": [0, 0, 0]}
 *
 * "mask" (0: padding) and "types" (token types of an encoder) may be left out; blank lines are skipped. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

typedef struct calm_token_file {
    uint32_t *ids;      /* ids of all sequences, as in the file                                  */
    uint8_t *mask;      /* [same length] 1, or 0 for padding; NULL: no line has a mask           */
    uint8_t *types;     /* [same length] token types; NULL: no line has types                    */
    size_t *begin;      /* [n + 1] sequence s is ids[begin[s]] .. ids[begin[s + 1]] - 1          */
    size_t *line;       /* [n] line number of a sequence, for messages                           */
    size_t n, longest;  /* sequences; ids of the longest sequence                                */
    const char *path;
} calm_token_file;

/* Reads `path` into ctx->out.
 *
 *   vocab  exclusive upper bound of ids; 0: not checked
 *
 * CALM_EARG: no sequence in the file.  CALM_EFORMAT, with the line number: not JSON, no ids or an empty list, an id
 * that is not an integer below `vocab`, a mask or types of another length or with other values than 0 and 1 (types:
 * 0 to 255), a mask without a 1.  CALM_ENOTFOUND, CALM_EIO, CALM_ENOMEM. */
calm_status calm_token_file_read(calm_ctx *ctx, const char *path, size_t vocab, calm_token_file *out);
