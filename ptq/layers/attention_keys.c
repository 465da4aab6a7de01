/* Which keys a query sees. */
#include "ptq/layers/attention_impl.h"
#include "ptq/layers/past.h"

size_t calm_heads_position(const calm_heads *a, size_t t)
{
    return a->span->positions ? a->span->positions[t] : t;
}

size_t calm_heads_first_key(const calm_heads *a, size_t t)
{
    size_t j = 0;
    const size_t here = calm_heads_position(a, t);
    if (!a->window || here + 1 <= a->window)
        return 0;
    /* A sliding window ends at the query; a chunk has fixed bounds. */
    const size_t least = a->config->chunked ? here - here % a->window : here + 1 - a->window;
    if (!a->span->positions || a->span->past)
        return least;
    /* Positions increase but may skip numbers where padding was dropped: windows count positions, not indices. */
    while (a->span->positions[j] < least)
        j++;
    return j;
}

size_t calm_heads_end_key(const calm_heads *a, size_t t)
{
    const size_t n = a->span->n_tokens;
    size_t j = a->before + t + 1;
    /* A decoder's query sees no later keys. */
    if (!a->config->both_ways)
        return j;
    if (!a->window)
        return n;
    if (!a->span->positions)
        return calm_size_min(n, t + a->window);
    while (j < n && calm_heads_position(a, j) - calm_heads_position(a, t) < a->window)
        j++;
    return j;
}
