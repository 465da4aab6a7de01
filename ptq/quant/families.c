/* Table of the families of schemes, from schemes.def. */
#include "ptq/quant/scheme.h"

#include <assert.h>

const calm_family calm_families[] = {
#define CALM_FAMILY(id, ...) {__VA_ARGS__},
#include "ptq/quant/schemes.def"
#undef CALM_FAMILY
};

calm_scheme calm_scheme_of_type(int type)
{
    calm_scheme out = {.symmetric = true, .scale_dtype = CALM_F16, .group = 32, .bits = -type};
    if (type < 0)
        return out;
    out.family = type;
    const calm_family *row = calm_scheme_family(&out);
    out.bits = row->bits;
    out.group = row->group;
    out.scale_dtype = row->scale == CALM_SCALE_F16 ? CALM_F16 : CALM_BF16;
    return out;
}

const calm_family *calm_scheme_family(const calm_scheme *scheme)
{
    assert(scheme->family >= 0 && scheme->family < CALM_N_FAMILIES);
    return &calm_families[scheme->family];
}

bool calm_scheme_has_global(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->scale == CALM_SCALE_E4M3 || calm_scheme_is_whole(scheme);
}

bool calm_scheme_is_whole(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->scale == CALM_SCALE_JOB;
}

bool calm_scheme_is_fp8(const calm_scheme *scheme)
{
    return calm_scheme_levels(scheme) == &calm_levels_e4m3;
}

const calm_levels *calm_scheme_levels(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->levels;
}

bool calm_scheme_has_mins(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->minimum != CALM_MINIMUM_NONE;
}

bool calm_scheme_is_plain(const calm_scheme *scheme)
{
    return !calm_scheme_levels(scheme) && !calm_scheme_has_mins(scheme);
}

bool calm_scheme_takes_f16_scales(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->scale == CALM_SCALE_DTYPE || calm_scheme_is_whole(scheme);
}

size_t calm_scheme_rows(const calm_scheme *scheme)
{
    return calm_scheme_family(scheme)->rows;
}

size_t calm_scheme_row_blocks(const calm_scheme *scheme, size_t out)
{
    const size_t rows = calm_scheme_rows(scheme);
    return (out + rows - 1) / rows;
}

bool calm_scheme_folds(const calm_scheme *scheme)
{
    const calm_family *family = calm_scheme_family(scheme);
    return family->super == 1 && family->rows == 1 &&
           (family->scale == CALM_SCALE_DTYPE || family->scale == CALM_SCALE_F16);
}
