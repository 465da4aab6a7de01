/* OpenBLAS's kernel families for x86-64, by the instructions that they use (driver/others/dynamic.c and
 * kernel/x86_64 of 0.3.21 to 0.3.30).  Families of other architectures are not in the table; calm does not choose
 * among them. */
#include "ptq/tensor/blas_family.h"

#include <stddef.h>
#include <strings.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Families of one level are about as fast on a CPU that runs several of them.  OpenBLAS chooses AMD's families
 * between Bulldozer and Zen only on the few CPUs that they are made for, and calm keeps them there. */
typedef enum level { UNKNOWN, SSE3, SSE42, AVX, FMA, AVX512 } level;

static const struct {
    const char *name;
    level level;
    unsigned needs;
} families[] = {
    {"Prescott", SSE3, 0},
    {"Core2", SSE3, 0},
    {"Penryn", SSE3, 0},
    {"Dunnington", SSE3, 0},
    {"Atom", SSE3, 0},
    {"Nano", SSE3, 0},
    {"Opteron", SSE3, 0},
    {"Opteron_SSE3", SSE3, 0},
    {"Barcelona", SSE3, 0},
    {"Bobcat", SSE3, 0},
    {"Nehalem", SSE42, CALM_CPU_SSE42},
    {"Sandybridge", AVX, CALM_CPU_AVX},
    {"Bulldozer", AVX, CALM_CPU_AVX | CALM_CPU_FMA4},
    {"Piledriver", FMA, CALM_CPU_AVX | CALM_CPU_FMA},
    {"Steamroller", FMA, CALM_CPU_AVX | CALM_CPU_FMA},
    {"Excavator", FMA, CALM_CPU_AVX | CALM_CPU_FMA},
    {"Haswell", FMA, CALM_CPU_AVX2 | CALM_CPU_FMA},
    {"Zen", FMA, CALM_CPU_AVX2 | CALM_CPU_FMA},
    {"SkylakeX", AVX512, CALM_CPU_AVX512},
    {"Cooperlake", AVX512, CALM_CPU_AVX512 | CALM_CPU_AVX512_BF16},
    {"SapphireRapids", AVX512, CALM_CPU_AVX512 | CALM_CPU_AVX512_BF16},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* Returns the index of a family, or N_FAMILIES if it is not in the table. */
static size_t index_of(const char *name)
{
    size_t i = 0;
    while (i < N_FAMILIES && strcasecmp(families[i].name, name) != 0)
        i++;
    return i;
}

static level level_of(const char *name)
{
    const size_t i = index_of(name);
    return i < N_FAMILIES ? families[i].level : UNKNOWN;
}

#if defined(__x86_64__)
/* Returns the features that clang 14 has no names for, by cpuid: leaf 7.1 reports AVX-VNNI, leaf 7.0 the two of
 * AMX, whose tiles the system must save for each process (bits 17 and 18 of XCR0). */
static unsigned features_of_leaf_7(void)
{
    unsigned set = 0, eax, ebx, ecx, edx, low = 0;
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & 1u << 4) && __builtin_cpu_supports("avx2"))
        set |= CALM_CPU_AVX_VNNI;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & 1u << 27))
        __asm__("xgetbv" : "=a"(low), "=d"(edx) : "c"(0));
    if ((low >> 17 & 3) != 3 || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return set;
    return set | (edx & 1u << 25 ? CALM_CPU_AMX_INT8 : 0) | (edx & 1u << 22 ? CALM_CPU_AMX_BF16 : 0);
}
#endif

static unsigned ask_cpu(void)
{
    unsigned set = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    set |= __builtin_cpu_is("amd") ? CALM_CPU_AMD : 0;
    set |= __builtin_cpu_supports("sse4.2") ? CALM_CPU_SSE42 : 0;
    set |= __builtin_cpu_supports("avx") ? CALM_CPU_AVX : 0;
    set |= __builtin_cpu_supports("fma4") ? CALM_CPU_FMA4 : 0;
    set |= __builtin_cpu_supports("fma") ? CALM_CPU_FMA : 0;
    set |= __builtin_cpu_supports("avx2") ? CALM_CPU_AVX2 : 0;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        set |= CALM_CPU_AVX512;
    set |= __builtin_cpu_supports("avx512bf16") ? CALM_CPU_AVX512_BF16 : 0;
    set |= __builtin_cpu_supports("avx512vnni") ? CALM_CPU_AVX512_VNNI : 0;
    set |= features_of_leaf_7();
#endif
    return set;
}

#define ASKED (1u << 31)    /* not a feature: the CPU was queried */

unsigned calm_cpu_features(void)
{
    /* In a virtual machine each cpuid takes microseconds, and every product asks. */
    static _Atomic unsigned known = 0;
    if (!known)
        known = ask_cpu() | ASKED;
    return known & ~ASKED;
}

bool calm_blas_runs(unsigned features, const char *name)
{
    const size_t i = index_of(name);
    return i == N_FAMILIES || (families[i].needs & ~features) == 0;
}

bool calm_blas_any_columns(const char *name)
{
    return level_of(name) == AVX512;
}

/* Returns the best family whose name every OpenBLAS since 0.3.0 accepts in the variable. */
static const char *best(unsigned features)
{
    if (calm_blas_runs(features, "SkylakeX"))
        return "SkylakeX";
    if (calm_blas_runs(features, "Haswell"))
        return features & CALM_CPU_AMD ? "Zen" : "Haswell";
    if (calm_blas_runs(features, "Sandybridge"))
        return "Sandybridge";
    return calm_blas_runs(features, "Nehalem") ? "Nehalem" : "Prescott";
}

const char *calm_blas_choose(unsigned features, const char *loaded, const char *wish, const char *variable)
{
    if (wish)
        return wish;
    /* OpenBLAS treats an empty value as an unknown name, and chooses a family itself. */
    if ((variable && *variable) || level_of(loaded) == UNKNOWN)
        return loaded;
    return level_of(best(features)) > level_of(loaded) ? best(features) : loaded;
}
