/* Trie: built level by level from the sorted strings. */
#include "ptq/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/tokenizer/vocab.h"

static int compare(const void *left, const void *right)
{
    const calm_trie_entry *a = left, *b = right;
    const int order = calm_compare_bytes(a->text, a->n, b->text, b->n);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

/* Range of the strings below a node, while the trie is built. */
typedef struct below {
    uint32_t lo, hi, depth;
} below;

/* Appends the children of node i. */
static void add_children(calm_trie *trie, const calm_trie_entry *entries, below *ranges, size_t i)
{
    below range = ranges[i];
    trie->first[i] = (uint32_t)trie->n;
    trie->id[i] = CALM_TRIE_NONE;
    for (; range.lo < range.hi && entries[range.lo].n == range.depth; range.lo++)
        trie->id[i] = entries[range.lo].id;
    while (range.lo < range.hi) {
        const uint8_t byte = (uint8_t)entries[range.lo].text[range.depth];
        uint32_t end = range.lo + 1;
        while (end < range.hi && (uint8_t)entries[end].text[range.depth] == byte)
            end++;
        trie->byte[trie->n] = byte;
        ranges[trie->n++] = (below){range.lo, end, range.depth + 1};
        range.lo = end;
    }
}

calm_status calm_trie_init(calm_ctx *ctx, calm_arena *arena, calm_trie *trie, calm_trie_entry *entries, size_t n)
{
    size_t nodes = 1;
    below *ranges;
    for (size_t i = 0; i < n; i++)
        nodes += entries[i].n;
    if (nodes >= UINT32_MAX || n >= UINT32_MAX)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory: a tree of %zu strings with %zu bytes", n, nodes);
    *trie = (calm_trie){.n = 1};
    CALM_TRY(CALM_NEW_RAW(ctx, arena, trie->first, nodes + 1));
    CALM_TRY(CALM_NEW_RAW(ctx, arena, trie->id, nodes));
    CALM_TRY(CALM_NEW_RAW(ctx, arena, trie->byte, nodes));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, ranges, nodes));
    if (n)
        qsort(entries, n, sizeof *entries, compare);
    ranges[0] = (below){0, (uint32_t)n, 0};
    for (size_t i = 0; i < trie->n; i++)
        add_children(trie, entries, ranges, i);
    trie->first[trie->n] = (uint32_t)trie->n;
    memset(trie->root, 0xFF, sizeof trie->root);
    for (uint32_t i = trie->first[0]; i < trie->first[1]; i++)
        trie->root[trie->byte[i]] = i;
    return CALM_OK;
}

uint32_t calm_trie_step(const calm_trie *trie, uint32_t node, uint8_t byte)
{
    if (node == CALM_TRIE_ROOT)
        return trie->root[byte];
    uint32_t lo = trie->first[node], hi = trie->first[node + 1];
    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (trie->byte[middle] < byte)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < trie->first[node + 1] && trie->byte[lo] == byte ? lo : CALM_TRIE_NONE;
}
