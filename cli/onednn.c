/* Loads oneDNN by dlopen. */
#include "cli/onednn.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

calm_onednn_sgemm *calm_onednn_find(void)
{
    static const char *const names[] = {
#if !defined(__SANITIZE_ADDRESS__)    /* LeakSanitizer sometimes crashes on the threads of libdnnl */
        "libdnnl.so.3", "libdnnl.so.2", "libdnnl.so",
#endif
        NULL};
    calm_onednn_sgemm *found = NULL;
    void *library = NULL, *symbol;
    for (size_t i = 0; !library && names[i]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    symbol = library ? dlsym(library, "dnnl_sgemm") : NULL;
    /* dlsym returns functions as pointers to objects, which C does not convert. */
    if (symbol)
        memcpy(&found, &symbol, sizeof found);
    return found;
}
