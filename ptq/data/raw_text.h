/* Checks and repairs the bytes of a text file before it is parsed: binary formats, the byte order mark, lone
 * surrogates, line ends, and whether the bytes are JSON. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* Fails with CALM_EARG when `bytes` [n] of the file `path` are a table or compressed format (Parquet, Arrow,
 * Zstandard, bzip2, xz, zip) or UTF-16; the message names the command that converts them. */
calm_status calm_raw_text_check(calm_ctx *ctx, const char *path, const char *bytes, size_t n);

/* Returns the bytes of the UTF-8 byte order mark at the start of `text` [n]: 3 or 0. */
size_t calm_raw_text_mark(const char *text, size_t n);

/* Returns whether `text` [n] begins like JSON documents: an array of objects or of strings, or an object.  False
 * for text in brackets that only looks similar ("[1]", "[[link]]"). */
bool calm_raw_text_begins_json(const char *text, size_t n);

/* Replaces each lone surrogate by U+FFFD: its three-byte encoding (ED A0 80 to ED BF BF) and, in JSON, an escape
 * (\ud800 to \udfff) that is not half of a pair.  Outside JSON it also replaces CR LF by LF.
 *
 *   text [*n]  borrowed, or the bytes of `copy`, to which the text is copied if it changes
 *
 * CALM_ENOMEM. */
calm_status calm_raw_text_repair(calm_ctx *ctx, bool json, calm_text *copy, const char **text, size_t *n);
