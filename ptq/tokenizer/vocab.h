/* Vocabulary: a hash table from token texts to ids, filled once and then only read. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

#define CALM_NO_TOKEN UINT32_MAX    /* the id of nothing */

typedef struct calm_vocab_slot calm_vocab_slot;

typedef struct calm_vocab {
    calm_vocab_slot *slots;    /* [mask + 1], at most half of them taken; in the arena of init */
    size_t mask;
} calm_vocab;

/* 64 well-mixed bits of `bytes` [n]; equal on every machine of one byte order. */
uint64_t calm_hash_bytes(const char *bytes, size_t n);

/* Order of byte strings, a prefix first: below 0, 0 or above, as of memcmp. */
int calm_compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b);

/* Slots, a power of two, for a table of n entries at most half full; 0 when that overflows. */
size_t calm_hash_slots(size_t n);

/* An empty vocabulary with room for `n_max` entries.  Fails with CALM_ENOMEM. */
calm_status calm_vocab_init(calm_ctx *ctx, calm_arena *arena, calm_vocab *vocab, size_t n_max);

/* Add `text` [n], borrowed for the life of the vocabulary.  False when it is there already. */
bool calm_vocab_add(calm_vocab *vocab, const char *text, uint32_t n, uint32_t id);

/* The id of `text` [n], or CALM_NO_TOKEN. */
uint32_t calm_vocab_find(const calm_vocab *vocab, const char *text, size_t n);
