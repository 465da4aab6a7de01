/* The registries: parts.def and presets.def as arrays. */
#include "algorithms/part.h"

#define CALM_PART(kind, name) extern const calm_part calm_##kind##_##name;
#include "algorithms/parts.def"
#undef CALM_PART

static const calm_part *const parts[] = {
#define CALM_PART(kind, name) &calm_##kind##_##name,
#include "algorithms/parts.def"
#undef CALM_PART
};

static const calm_preset presets[] = {
#define CALM_PRESET(name, chain, summary, reference) {name, chain, summary, reference},
#include "algorithms/presets.def"
#undef CALM_PRESET
};

const calm_part *const *calm_parts(size_t *n)
{
    *n = sizeof parts / sizeof *parts;
    return parts;
}

const calm_preset *calm_presets(size_t *n)
{
    *n = sizeof presets / sizeof *presets;
    return presets;
}

const char *calm_part_kind_name(calm_part_kind kind)
{
    static const char *const names[] = {"transform", "grid", "rounding", "refit", "block"};
    return names[kind];
}
