/* compressed-tensors: reads a group of its configuration, for the loader and for `calm check`. */
#pragma once

#include "ptq/weights/qformat.h"

/* calm_qformat_scheme.layout: INT: codes in a signed byte each; PACK: codes packed into words; FLOATS: small floats in
 * the form of their family. */
enum { CALM_CT_INT, CALM_CT_PACK, CALM_CT_FLOATS };

/* Reads the scheme of group `name` of config_groups into *out, which is zeroed before.  `global_format`: format of the
 * whole entry, for a group without one.  CALM_EUNSUPPORTED: a scheme that calm does not compute; for small floats with
 * an unexpected "format", out->layout is CALM_CT_FLOATS all the same. */
calm_status calm_qformat_ct_group(calm_ctx *ctx, const char *path, const char *name, const calm_json *group,
                                  const char *global_format, calm_qformat_scheme *out);

/* Reads transform `name` of transform_config.  *online: it multiplies inputs, and *width gets the width of a block of
 * its Hadamard matrix (0: a block is the whole input); else the file's weights already contain it, whatever matrix it
 * is.  CALM_EUNSUPPORTED: another matrix for inputs, or a place other than inputs and weights. */
calm_status calm_qformat_ct_transform(calm_ctx *ctx, const char *path, const char *name, const calm_json *scheme,
                                      bool *online, size_t *width);
