/* Checks the bytes of a text file before it is parsed: formats that are not text, the byte order mark, lone surrogates,
 * ends of lines, and whether the bytes are JSON. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"

/* CALM_EARG, with the command that converts it, when `bytes` [n] of the file `path` are of a format that holds tables
 * or is compressed (Parquet, Arrow, Zstandard, bzip2, xz, zip) or are UTF-16. */
calm_status calm_raw_text_check(calm_ctx *ctx, const char *path, const char *bytes, size_t n);

/* Bytes of the UTF-8 byte order mark at the start of `text` [n]: 3 or 0. */
size_t calm_raw_text_mark(const char *text, size_t n);

/* Does `text` [n] begin as JSON of documents does: an array of objects or of strings, or an object?  Text in brackets
 * that only looks similar ("[1]", "[[link]]") does not. */
bool calm_raw_text_begins_json(const char *text, size_t n);

/* Replace each lone surrogate by U+FFFD: three bytes that encode one (ED A0 80 to ED BF BF) and, in JSON, an escape
 * (\ud800 to \udfff) that is not half of a pair.  Outside JSON also make LF of each CR LF.
 *
 *   text [*n]  borrowed, or the bytes of `copy`, into which it is copied when something changes
 *
 * CALM_ENOMEM. */
calm_status calm_raw_text_repair(calm_ctx *ctx, bool json, calm_text *copy, const char **text, size_t *n);
