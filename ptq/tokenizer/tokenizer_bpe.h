/* Byte-pair encoding: data that tokenizer_bpe_read.c prepares for tokenizer_bpe.c. */
#pragma once

#include "ptq/tokenizer/bytelevel.h"
#include "ptq/tokenizer/tokenizer_parts.h"

/* Size of a Bloom filter over pairs of characters that can merge: a clear bit means that the pair never merges. */
#define CALM_BPE_SEAM_BITS ((size_t)1 << 20)

/* An entry of the merge table. */
typedef struct calm_merge {
    uint64_t pair;      /* left id << 32 | right id   */
    uint32_t order;     /* rank + 1; 0: a free slot   */
    uint32_t merged;    /* id of the merged token     */
} calm_merge;

typedef struct calm_bpe {
    calm_merge *merges; /* hash table [mask + 1], by pair */
    size_t mask;
    uint32_t direct[CALM_BYTELEVEL_END];    /* ids of single characters, which include the byte-level alphabet */
    uint32_t bytes[256];/* ids of <0x00> ... <0xFF> for byte_fallback */
    uint32_t unknown;   /* or CALM_NO_TOKEN: unknown characters are dropped */
    bool fuse_unknown, ignore_merges, byte_fallback;
    calm_piece prefix;  /* of every character of a piece except the first; n 0: none */
    calm_piece suffix;  /* of the last character of a piece; n 0: none       */
    uint64_t *seams;    /* [CALM_BPE_SEAM_BITS / 64]: pairs of last character of the left and first character of the
                         * right token of all merges; NULL: pieces are never cut */
} calm_bpe;

/* Returns the slot of a pair, or the free slot where it belongs. */
calm_merge *calm_bpe_locate(const calm_bpe *bpe, uint64_t pair);

/* Returns the index of the bit of a pair of characters. */
size_t calm_bpe_seam(uint32_t left, uint32_t right);

/* Encodes a piece, for calm_tokenizer.encode. */
calm_status calm_bpe_encode(calm_encoder *enc, calm_piece piece);

/* Finds a position where a piece may be cut, for calm_tokenizer.cut. */
size_t calm_bpe_cut(const calm_tokenizer *tok, calm_piece piece, size_t from);
