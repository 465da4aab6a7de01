/* Correct checkpoints: tiny models, written by every exporter, with a tokenizer. */
#ifndef CALM_TESTS_GOOD_CHECKPOINT_H
#define CALM_TESTS_GOOD_CHECKPOINT_H

#include "tests/support/tiny_model.h"

/* The names of the checkpoints, "ct", "ct-mixed", "gptq", ...; NULL at the end. */
extern const char *const good_names[];

/* Writes the checkpoint of this name; the directory lives until the end of the test.  That of "gguf" holds
 * model.gguf. */
const char *good_write(const char *name);

/* Writes a tiny model in a format ("gptq"); job i has scheme i % n of schemes [n].  NULL if the exporter refuses.
 * `shard`: largest size of a file; 0: one file. */
const char *good_export(const tiny_model *spec, const char *format, const char *const *schemes, size_t n, size_t shard);

/* Adds an fp8 KV cache to a compressed-tensors directory: scales, and the scheme in config.json. */
void good_add_cache(const char *dir);

/* Writes a byte-level tokenizer.json for a model of `vocab` tokens into `dir`, with a merge and a special token. */
void good_tokenizer(const char *dir, size_t vocab);

#endif
