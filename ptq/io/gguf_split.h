/* GGUF in several files, as llama-gguf-split writes it and llama.cpp reads it.
 *
 *   NAME-00001-of-000NN.gguf   has all keys; every file has split.no (from 0), split.count and split.tensors.count,
 *                              and its own tensors */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf.h"

/* Largest number of files of a model. */
#define CALM_GGUF_MOST_FILES 99999

/* Formats the name of file `index` (from 0) of n, in ctx->out: "model.gguf" -> "model-00001-of-00003.gguf"; `path`
 * itself for n = 1. */
calm_status calm_gguf_split_path(calm_ctx *ctx, const char *path, size_t index, size_t n, char **out);

/* Finds the file `path`, or else its first part of several; in ctx->out.  CALM_ENOTFOUND: neither exists. */
calm_status calm_gguf_split_find(calm_ctx *ctx, const char *path, char **out);

/* Opens a GGUF file as calm_gguf_open does; if it is one of several parts, opens all parts as one file: keys of the
 * first, tensors of all.  CALM_ENOTFOUND: a part is missing; the message names it.  CALM_EFORMAT: a name or a key
 * that does not say which part it is, parts that disagree, a tensor that two of them have, another number of
 * tensors than the first part says. */
calm_status calm_gguf_open_split(calm_ctx *ctx, const char *path, calm_gguf **out);
