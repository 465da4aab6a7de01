/* Arrays that grow in an arena. */
#include "ptq/base/array.h"

#include <string.h>

calm_status calm_array_grow(calm_ctx *ctx, calm_arena *arena, void *array, size_t used, size_t *capacity, size_t need,
                            size_t size, const char *what)
{
    void *old, *grown;
    size_t wanted;
    if (need <= *capacity)
        return CALM_OK;
    /* If the product overflows, no arena has the memory: calm_alloc_raw reports `need`. */
    if (!calm_size_mul(&wanted, *capacity, 2) || wanted < need)
        wanted = need;
    CALM_TRY(calm_alloc_raw(ctx, arena, &grown, wanted, size, what));
    /* `array` points to a pointer of unknown type: its bytes are copied, not its value. */
    memcpy(&old, array, sizeof old);
    if (used)
        memcpy(grown, old, used * size);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return CALM_OK;
}

int calm_compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
