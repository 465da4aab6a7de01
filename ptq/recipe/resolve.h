/* Resolving: converts a spec to a recipe, in which every value is filled in and every name is found. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/recipe/document.h"
#include "ptq/recipe/recipe.h"

/* The prefix of bundled texts' names in reports and stores. */
#define CALM_BUNDLED "bundled "

/* Resolves a spec, which must outlive the recipe; memory is in ctx->out.  A hub model that is not in the cache is
 * downloaded, with events of CALM_STAGE_PULL.  CALM_EARG: options are missing, unknown or contradictory; the message
 * has the key.  CALM_EMISMATCH: a file's SHA-256 differs from the spec's; the message has both.  CALM_ENOTFOUND and the
 * other failures of calm_model_find. */
calm_status calm_recipe_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_events *events,
                                calm_recipe *out);

/* Resolves the names of a spec and lists every fault instead of stopping at the first.  It neither asks the hub nor
 * reads the content of files.  `out` is complete except for what faults leave open and, if the model is not on this
 * machine, its directory.  CALM_ENOMEM. */
calm_status calm_recipe_check(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *out, calm_faults *faults);

/* Returns the spec with `calibration.dtype` auto replaced by this machine's choice: bf16 if the CPU multiplies bfloat16
 * and OpenBLAS's loaded kernels support it, else f32.  Locks and the recipes next to a checkpoint contain that value,
 * so that they give the same result on any CPU. */
calm_recipe_spec calm_spec_with_dtype(const calm_recipe_spec *spec);

/* Turns the failure in ctx into a fault at a key of the spec ("choice.pins": the pointer /choice/pins; NULL: the
 * document) and clears it.  CALM_ENOMEM stays a failure. */
calm_status calm_fault_note(calm_ctx *ctx, calm_status status, const char *key, calm_faults *faults);

/* Sets the texts and windows for calibration and guard in the recipe.  CALM_EARG: both tokens and a text, a text twice,
 * or fewer windows than texts. */
calm_status calm_recipe_calibration(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Checks `calibration.weight` gradient.  CALM_EARG: no algorithm of the pool fits to rows, or a scheme has static
 * activation scales. */
calm_status calm_recipe_check_weight(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Checks `calibration.imatrix`.  CALM_EARG: no algorithm of the pool fits to a Gram matrix, or inputs are rotated or
 * the prefix is asymmetric. */
calm_status calm_recipe_check_imatrix(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
