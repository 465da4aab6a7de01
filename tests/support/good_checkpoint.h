/* Good checkpoints: tiny models as every exporter writes them, with a tokenizer. */
#ifndef CALM_TESTS_GOOD_CHECKPOINT_H
#define CALM_TESTS_GOOD_CHECKPOINT_H

#include "tests/support/tiny_model.h"

/* "ct", "ct-mixed", "gptq", ..., NULL at the end. */
extern const char *const good_names[];

/* Write one of them; the directory lives until the end of the test.  That of "gguf" holds model.gguf. */
const char *good_write(const char *name);

/* A tiny model in a format ("gptq"), its jobs rounded by schemes [n] that take turns; NULL when the exporter refuses.
 * `shard`: most bytes of a file, 0: one file. */
const char *good_export(const tiny_model *spec, const char *format, const char *const *schemes, size_t n, size_t shard);

/* Give a compressed-tensors directory an fp8 cache of keys and values: scales, and the scheme in config.json. */
void good_add_cache(const char *dir);

/* tokenizer.json of bytes for a model of `vocab` tokens into `dir`: a merge, a special token. */
void good_tokenizer(const char *dir, size_t vocab);

#endif
