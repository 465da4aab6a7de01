/* Keeps the largest sizes by insertion sort: there are few, and most are equal. */
#include "ptq/base/largest.h"

#include "ptq/base/arena.h"

void calm_largest_add(calm_largest *to, size_t bytes)
{
    size_t at = to->n < CALM_LARGEST_KEPT ? to->n++ : CALM_LARGEST_KEPT - 1;
    to->all += bytes;
    for (; at > 0 && to->bytes[at - 1] < bytes; at--)
        to->bytes[at] = to->bytes[at - 1];
    if (to->bytes[at] < bytes)
        to->bytes[at] = bytes;
}

size_t calm_largest_sum(const calm_largest *from, size_t times, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < from->n && count; i++) {
        const size_t taken = calm_size_min(times, count);
        sum += taken * from->bytes[i];
        count -= taken;
    }
    /* The smallest size of a full table is an upper bound of the sizes that were dropped. */
    return sum + (from->n == CALM_LARGEST_KEPT ? count * from->bytes[CALM_LARGEST_KEPT - 1] : 0);
}
