/* Vocabulary: a hash table from token texts to ids, filled once and then only read. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

#define CALM_NO_TOKEN UINT32_MAX    /* in place of an id */

typedef struct calm_vocab_slot calm_vocab_slot;

typedef struct calm_vocab {
    calm_vocab_slot *slots;    /* [mask + 1], at most half full; in the arena of calm_vocab_init */
    size_t mask;
} calm_vocab;

/* Returns a 64-bit hash of `bytes` [n]; equal on every machine of one byte order. */
uint64_t calm_hash_bytes(const char *bytes, size_t n);

/* Compares byte strings, a prefix first: returns < 0, 0 or > 0, as memcmp does. */
int calm_compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b);

/* Returns the number of slots, a power of two, of a table of n entries that is at most half full; 0 on overflow. */
size_t calm_hash_slots(size_t n);

/* Makes an empty vocabulary with room for `n_max` entries.  CALM_ENOMEM. */
calm_status calm_vocab_init(calm_ctx *ctx, calm_arena *arena, calm_vocab *vocab, size_t n_max);

/* Adds `text` [n], borrowed for the life of the vocabulary.  False: it was added before. */
bool calm_vocab_add(calm_vocab *vocab, const char *text, uint32_t n, uint32_t id);

/* Returns the id of `text` [n], or CALM_NO_TOKEN. */
uint32_t calm_vocab_find(const calm_vocab *vocab, const char *text, size_t n);
