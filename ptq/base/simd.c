/* CPU features that determine the bits of results. */
#include "ptq/base/simd.h"

const char *calm_instructions(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
        return "x86-64 avx2 fma";
    return __builtin_cpu_supports("avx") ? "x86-64 avx" : "x86-64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "other";
#endif
}
