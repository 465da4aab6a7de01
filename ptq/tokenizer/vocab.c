/* Vocabulary: open addressing with linear probing. */
#include "ptq/tokenizer/vocab.h"

#include <string.h>

struct calm_vocab_slot {
    const char *text;    /* NULL: free */
    uint32_t n, id;
    uint32_t hash;       /* upper half of the hash, so that most probes compare no text */
};

/* Folds the 128-bit product: the mixing step of wyhash (Wang Yi, "wyhash"). */
static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t calm_hash_bytes(const char *bytes, size_t n)
{
    const uint64_t odd = UINT64_C(0x9E3779B97F4A7C15), other = UINT64_C(0xE7037ED1A0B428DB);
    uint64_t hash = mix(n ^ other, odd), word;
    for (; n >= sizeof word; bytes += sizeof word, n -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash ^ word, odd);
    }
    word = 0;
    memcpy(&word, bytes, n);
    return mix(hash ^ word ^ other, odd);
}

int calm_compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

size_t calm_hash_slots(size_t n)
{
    size_t slots = 16;
    while (slots < n || slots - n < n) {
        if (slots > SIZE_MAX / 4)
            return 0;
        slots *= 2;
    }
    return slots;
}

calm_status calm_vocab_init(calm_ctx *ctx, calm_arena *arena, calm_vocab *vocab, size_t n_max)
{
    size_t n_slots = calm_hash_slots(n_max);
    if (n_slots == 0)
        return calm_fail(ctx, CALM_ENOMEM, "out of memory: a vocabulary of %zu tokens", n_max);
    vocab->mask = n_slots - 1;
    return CALM_NEW(ctx, arena, vocab->slots, n_slots);
}

/* Returns the slot of a text, or the free slot where it belongs. */
static calm_vocab_slot *locate(const calm_vocab *vocab, const char *text, size_t n, uint64_t hash)
{
    for (size_t i = hash & vocab->mask;; i = (i + 1) & vocab->mask) {
        calm_vocab_slot *slot = &vocab->slots[i];
        if (!slot->text)
            return slot;
        if (slot->hash == hash >> 32 && slot->n == n && memcmp(slot->text, text, n) == 0)
            return slot;
    }
}

bool calm_vocab_add(calm_vocab *vocab, const char *text, uint32_t n, uint32_t id)
{
    uint64_t hash = calm_hash_bytes(text, n);
    calm_vocab_slot *slot = locate(vocab, text, n, hash);
    if (slot->text)
        return false;
    *slot = (calm_vocab_slot){text, n, id, (uint32_t)(hash >> 32)};
    return true;
}

uint32_t calm_vocab_find(const calm_vocab *vocab, const char *text, size_t n)
{
    const calm_vocab_slot *slot = locate(vocab, text, n, calm_hash_bytes(text, n));
    return slot->text ? slot->id : CALM_NO_TOKEN;
}
