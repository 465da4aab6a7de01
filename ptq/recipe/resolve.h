/* Resolving: a spec becomes a recipe - every value filled in, every name found. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/recipe/document.h"
#include "ptq/recipe/recipe.h"

/* What the names of bundled texts begin with, in reports and stores. */
#define CALM_BUNDLED "bundled "

/* Resolve a spec, which must outlive the recipe; in ctx->out.  A model of the hub that is not in the cache is fetched,
 * with events of CALM_STAGE_PULL. CALM_EARG: what is missing, unknown or does not go together; the message has the key.
 * CALM_EMISMATCH: a file is not the one that the spec demands, with its name and both digests.  CALM_ENOTFOUND and what
 * finding a model fails with. */
calm_status calm_recipe_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_events *events,
                                calm_recipe *out);

/* Resolve the names of a spec and list every fault instead of stopping at the first; the hub is not asked, no file's
 * content is read.  `out` is complete but for what faults leave open and, without a model here, its directory.
 * CALM_ENOMEM. */
calm_status calm_recipe_check(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *out, calm_faults *faults);

/* The spec with what `calibration.dtype` auto is on this machine: bf16 where the CPU multiplies it and the kernels of
 * OpenBLAS that are loaded go with it, else f32.  Locks and recipes next to a checkpoint have that, so that they mean
 * the same on any CPU. */
calm_recipe_spec calm_spec_settled(const calm_recipe_spec *spec);

/* Note the failure of ctx as a fault at a key of the spec ("choice.pins" is the pointer /choice/pins; NULL: the
 * document) and forgive it.  Running out of memory stays a failure. */
calm_status calm_fault_note(calm_ctx *ctx, calm_status status, const char *key, calm_faults *faults);

/* Which texts and which windows of them calibrate and guard, into the recipe.  CALM_EARG: tokens next to a text, a text
 * named twice, fewer windows than texts. */
calm_status calm_recipe_calibration(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* CALM_EARG: `calibration.weight` gradient, and no algorithm of the pool is fitted to rows, or a scheme has static
 * scales of activations. */
calm_status calm_recipe_check_weight(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* CALM_EARG: `calibration.imatrix`, and no algorithm of the pool is fitted to a Gram matrix, or the inputs are rotated
 * or of two kinds. */
calm_status calm_recipe_check_imatrix(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
