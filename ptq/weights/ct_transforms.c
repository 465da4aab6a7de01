/* Reads an entry of compressed-tensors' transform_config, and names of its matrices. */
#include <string.h>

#include "ptq/weights/qformat_ct.h"

static calm_status no_transform(calm_ctx *ctx, const char *path, const char *name, const char *what)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.transform_config.config_groups.%.64s: %s", path,
                     name, what);
}

static bool is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

size_t calm_qformat_matrix_module(const char *name)
{
    static const char suffix[] = "_input.weight";
    size_t n = strlen(name);
    if (n < sizeof suffix || strcmp(name + n - strlen(suffix), suffix) != 0)
        return 0;
    for (n -= sizeof suffix; n && name[n] != '.'; n--)
        continue;
    return n;
}

/* Finds out whether some place is an input. */
static calm_status read_locations(calm_ctx *ctx, const char *path, const char *name, const calm_json *apply,
                                  bool *online)
{
    *online = false;
    for (size_t i = 0; i < calm_json_size(apply); i++) {
        const calm_json *place = calm_json_at(apply, i);
        const char *location = calm_json_string(calm_json_get(place, "location"), "");
        if (strcmp(location, "weight_input") == 0 || strcmp(location, "weight_output") == 0)
            continue;
        if (strcmp(location, "input") != 0)
            return no_transform(ctx, path, name, "a location other than input and those of weights");
        if (calm_json_size(calm_json_get(place, "ignore")))
            return no_transform(ctx, path, name, "modules to ignore");
        *online = true;
    }
    return CALM_OK;
}

calm_status calm_qformat_ct_transform(calm_ctx *ctx, const char *path, const char *name, const calm_json *scheme,
                                      bool *online, size_t *width)
{
    const char *type;
    int64_t head_dim = 0;
    bool randomize, learned;
    *width = 0;
    CALM_TRY(read_locations(ctx, path, name, calm_json_get(scheme, "apply"), online));
    if (!*online)
        return CALM_OK;
    CALM_TRY(calm_json_need_string(ctx, path, scheme, "type", "(none)", &type));
    CALM_TRY(calm_json_need_bool(ctx, path, scheme, "randomize", &(bool){false}, &randomize));
    CALM_TRY(calm_json_need_bool(ctx, path, scheme, "requires_grad", &(bool){false}, &learned));
    CALM_TRY(calm_json_need_int(ctx, path, scheme, "head_dim", &(int64_t){0}, 0, 1 << 24, &head_dim));
    if (strcmp(type, "hadamard") != 0 || randomize || learned || (head_dim && !is_power_of_two(head_dim)))
        return no_transform(ctx, path, name, "not a Hadamard matrix whose size is a power of two");
    *width = (size_t)head_dim;
    return CALM_OK;
}
