/* An OpenBLAS that is older than the CPU, for LD_PRELOAD: unless it is told a family by OPENBLAS_CORETYPE, it says that
 * it took the oldest one, which it would take on a CPU that it does not know. */
#include <dlfcn.h>
#include <stdlib.h>

char *openblas_get_corename(void);

char *openblas_get_corename(void)
{
    static char oldest[] = "Prescott";
    char *(*real)(void);
    const char *told = getenv("OPENBLAS_CORETYPE");
    if (!told || !*told)
        return oldest;
    *(void **)&real = dlsym(RTLD_NEXT, "openblas_get_corename");
    return real();
}
