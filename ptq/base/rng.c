/* Philox4x32-10 and the distributions of rng.h. */
#include "ptq/base/rng_impl.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void calm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Computes one block: the index is the low half of the counter, the stream the high half. */
static void block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    calm_philox4x32(counter, key, out);
}

static double unit(uint32_t low, uint32_t high)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

uint64_t calm_rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t out[4];
    block(seed, stream, index, out);
    return (uint64_t)out[1] << 32 | out[0];
}

double calm_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t out[4];
    block(seed, stream, index, out);
    return unit(out[0], out[1]);
}

double calm_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t out[4];
    block(seed, stream, index, out);
    double radius = sqrt(-2.0 * log(1.0 - unit(out[0], out[1])));
    return radius * cos(6.283185307179586476925 * unit(out[2], out[3]));
}

/* An entry of the virtual array 0 .. n-1 whose content differs from its index. */
typedef struct moved {
    size_t place, content;
    bool used;
} moved;

/* Finds an entry of a hash table with open addressing, at most half full. */
static moved *find_place(moved *table, size_t mask, size_t place)
{
    size_t slot = (size_t)(place * 0x9E3779B97F4A7C15u) & mask;
    while (table[slot].used && table[slot].place != place)
        slot = (slot + 1) & mask;
    return &table[slot];
}

bool calm_rng_choose(uint64_t seed, uint64_t stream, size_t n, size_t k, size_t *out)
{
    size_t slots = 16;
    while (slots < 4 * k)
        slots *= 2;
    moved *table = calloc(slots, sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < k; i++) {
        /* Multiply-shift maps 64 random bits to [i, n); its bias is below n / 2^64. */
        __uint128_t product = (__uint128_t)calm_rng_u64(seed, stream, i) * (n - i);
        size_t place = i + (size_t)(product >> 64);
        moved *at = find_place(table, slots - 1, place), *first = find_place(table, slots - 1, i);
        size_t first_content = first->used ? first->content : i;
        out[i] = at->used ? at->content : place;
        *at = (moved){place, first_content, true};
    }
    free(table);
    return true;
}
