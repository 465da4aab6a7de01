/* Imitates an OpenBLAS older than the CPU, for LD_PRELOAD: unless OPENBLAS_CORETYPE names a family, it reports the
 * oldest one, as on a CPU that it does not know. */
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
