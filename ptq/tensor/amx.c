/* Detection and configuration of AMX tiles.  Linux permits a process their use on request:
 * Documentation/arch/x86/xstate.rst. */
#include "ptq/tensor/amx.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* Requests the tile state once; returns 1 if Linux permits it, else -1.  A repeated request is harmless. */
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

bool calm_amx_available(unsigned features)
{
    /* Kernels that use tiles also use AVX-512 vectors. */
    const unsigned wanted = features | CALM_CPU_AVX512;
    return (calm_cpu_features() & wanted) == wanted && permission() > 0;
}

/* Operand of LDTILECFG (Intel's manual, volume 1, chapter 18): bytes of a row, and rows, of each register. */
typedef struct tile_shapes {
    unsigned char palette, start, reserved[14];
    unsigned short bytes[16];
    unsigned char rows[16];
} tile_shapes;

__attribute__((target("amx-tile"))) void calm_amx_begin(size_t rows, size_t bytes)
{
    tile_shapes shapes = {.palette = 1};
    for (size_t i = 0; i < 8; i++) {
        shapes.bytes[i] = (unsigned short)(i / 2 == 2 ? bytes : 64);
        shapes.rows[i] = (unsigned char)(i / 2 == 3 ? bytes / 4 : rows);
    }
    /* gcc's intrinsic declares that it reads the first eight bytes only. */
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
}

__attribute__((target("amx-tile"))) void calm_amx_begin_filled(size_t rows, size_t bytes)
{
    unsigned char noise[16 * 64];
    unsigned state = 1;
    for (size_t i = 0; i < sizeof noise; i += 2) {
        state = state * 1664525u + 1013904223u;    /* Numerical Recipes' generator */
        noise[i] = (unsigned char)(0x80 | (state >> 16 & 0x7f));    /* 0x3f80 is 1 */
        noise[i + 1] = (unsigned char)(0x3f | (state >> 24 & 0x80));
    }
    calm_amx_begin(rows, bytes);
    _tile_loadd(4, noise, 64);
    _tile_loadd(5, noise, 64);
    _tile_loadd(6, noise, 64);
    _tile_loadd(7, noise, 64);
}

#else

bool calm_amx_available(unsigned features)
{
    (void)features;
    return false;
}

void calm_amx_begin(size_t rows, size_t bytes)
{
    (void)rows, (void)bytes;
}

void calm_amx_begin_filled(size_t rows, size_t bytes)
{
    (void)rows, (void)bytes;
}

#endif
