/* Are the tiles of AMX there?  Linux gives a process their registers when it asks:
 * Documentation/arch/x86/xstate.rst. */
#include "ptq/tensor/amx.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* 1: they are, -1: not; asking twice does no harm. */
static int permission(void)
{
    static int known;
    int there = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (there == 0) {
        there = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? 1 : -1;
        __atomic_store_n(&known, there, __ATOMIC_RELAXED);
    }
    return there;
}

bool calm_amx_is_there(unsigned features)
{
    /* Kernels of tiles end with vectors. */
    const unsigned wanted = features | CALM_CPU_AVX512;
    return (calm_cpu_features() & wanted) == wanted && permission() > 0;
}

#else

bool calm_amx_is_there(unsigned features)
{
    (void)features;
    return false;
}

#endif
