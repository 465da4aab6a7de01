/* ggml's tensor types. */
#include "ptq/io/ggml_type.h"

const calm_ggml_info *calm_ggml_find(uint32_t number)
{
    static const calm_ggml_info all[] = {
#define CALM_GGML_ROW(name, number, elements, bytes) [number] = {#name, elements, bytes},
        CALM_GGML_TYPE_LIST(CALM_GGML_ROW)
#undef CALM_GGML_ROW
    };
    return number < sizeof all / sizeof *all && all[number].name ? &all[number] : NULL;
}

calm_dtype calm_ggml_dtype(calm_ggml_type type)
{
    return type == CALM_GGML_F32    ? CALM_F32
           : type == CALM_GGML_F16  ? CALM_F16
           : type == CALM_GGML_BF16 ? CALM_BF16
           : type == CALM_GGML_F64  ? CALM_F64
                                    : CALM_N_DTYPES;
}
