/* Which loops over candidates of a scale search this CPU runs. */
#include "algorithms/search_lanes.h"

const calm_lane_kernels *calm_lanes_here(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return &calm_lanes_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &calm_lanes_avx2;
#endif
    return &calm_lanes_plain;
}
