/* compressed-tensors: a group of its configuration, read in one way by the loader and by `calm check`. */
#pragma once

#include "ptq/model/qformat.h"

/* calm_qformat_scheme.layout: codes in a signed byte each; packed into words; small floats as their family has them;
 * FP8 with one scale for the whole weight, which is read as that of each row. */
enum { CALM_CT_INT, CALM_CT_PACK, CALM_CT_FLOATS };

/* The scheme of group `name` of config_groups, which is all zero before.  `global_format`: of the whole entry, for a
 * group without one.  CALM_EUNSUPPORTED: a scheme that calm does not compute; of small floats whose format alone is
 * another one's, out->layout is CALM_CT_FLOATS all the same. */
calm_status calm_qformat_ct_group(calm_ctx *ctx, const char *path, const char *name, const calm_json *group,
                                  const char *global_format, calm_qformat_scheme *out);
