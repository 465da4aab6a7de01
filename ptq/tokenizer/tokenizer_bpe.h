/* Byte-pair encoding: what reading (tokenizer_bpe_read.c) prepares for encoding (tokenizer_bpe.c). */
#pragma once

#include "ptq/tokenizer/bytelevel.h"
#include "ptq/tokenizer/tokenizer_parts.h"

/* Bits that say which pairs of characters merge; set ones may be wrong, clear ones are right. */
#define CALM_BPE_SEAM_BITS ((size_t)1 << 20)

/* A merge of the list. */
typedef struct calm_merge {
    uint64_t pair;      /* left id << 32 | right id   */
    uint32_t order;     /* rank + 1; 0: a free slot   */
    uint32_t merged;    /* id of both together        */
} calm_merge;

typedef struct calm_bpe {
    calm_merge *merges; /* [mask + 1], hashed by pair */
    size_t mask;
    uint32_t direct[CALM_BYTELEVEL_END];    /* ids of the first characters, the byte-level alphabet among them */
    uint32_t bytes[256];/* ids of <0x00> ... <0xFF> for byte_fallback */
    uint32_t unknown;   /* or CALM_NO_TOKEN: unknown characters vanish */
    bool fuse_unknown, ignore_merges, byte_fallback;
    calm_piece prefix;  /* of every character but a piece's first; n 0: none */
    calm_piece suffix;  /* of a piece's last character; n 0: none            */
    uint64_t *seams;    /* [CALM_BPE_SEAM_BITS / 64]: ends of left and beginnings of right tokens of all merges;
                         * NULL: pieces are never cut */
} calm_bpe;

/* The slot of the pair, or the free one where it belongs. */
calm_merge *calm_bpe_locate(const calm_bpe *bpe, uint64_t pair);

/* The bit of a seam between two characters. */
size_t calm_bpe_seam(uint32_t left, uint32_t right);

/* Ids of a piece, for calm_tokenizer.encode. */
calm_status calm_bpe_encode(calm_encoder *enc, calm_piece piece);

/* Where a piece may be cut, for calm_tokenizer.cut. */
size_t calm_bpe_cut(const calm_tokenizer *tok, calm_piece piece, size_t from);
