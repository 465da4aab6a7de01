/* The registry of architectures, from arch.def. */
#include "ptq/model/arch.h"

#include <string.h>

#define CALM_ARCH(name) extern const calm_arch calm_arch_##name;
#include "ptq/model/arch.def"
#undef CALM_ARCH

const calm_arch *const *calm_architectures(size_t *n)
{
    static const calm_arch *const all[] = {
#define CALM_ARCH(name) &calm_arch_##name,
#include "ptq/model/arch.def"
#undef CALM_ARCH
    };
    *n = sizeof all / sizeof *all;
    return all;
}

const calm_arch *calm_arch_find(const char *class_name, const char *model_type)
{
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    for (size_t i = 0; i < n; i++) {
        if (class_name ? strcmp(all[i]->class_name, class_name) == 0
                       : model_type && strcmp(all[i]->model_type, model_type) == 0)
            return all[i];
    }
    return NULL;
}
