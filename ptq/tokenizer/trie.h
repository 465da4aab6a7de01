/* Trie: a prefix tree over byte strings, built once and then only read. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

#define CALM_TRIE_NONE UINT32_MAX    /* in place of a node or an id */
#define CALM_TRIE_ROOT 0

typedef struct calm_trie_entry {
    const char *text;    /* [n] */
    uint32_t n, id;
} calm_trie_entry;

/* Nodes in breadth-first order, so that the children of node i are first[i] .. first[i + 1] - 1, sorted by their
 * bytes. */
typedef struct calm_trie {
    uint32_t *first;       /* [n + 1] */
    uint32_t *id;          /* [n] id of the string that ends at the node, or CALM_TRIE_NONE */
    uint8_t *byte;         /* [n] byte on the edge to the node */
    uint32_t root[256];    /* children of the root */
    size_t n;
} calm_trie;

/* Builds a trie in `arena` from `entries` [n], which are sorted in place and not kept.  Of equal texts the highest
 * id counts.  CALM_ENOMEM. */
calm_status calm_trie_init(calm_ctx *ctx, calm_arena *arena, calm_trie *trie, calm_trie_entry *entries, size_t n);

/* Returns the child of `node` for `byte`, or CALM_TRIE_NONE. */
uint32_t calm_trie_step(const calm_trie *trie, uint32_t node, uint8_t byte);
