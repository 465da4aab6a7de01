/* Names of models, and where bundled recipes and texts lie. */
#pragma once

#include "ptq/base/context.h"

/* The path of recipes/NAME below $CALM_HOME, below share/calm next to the folder of the installed program or library,
 * below the folder where calm was built, or below the one where it was to be installed; in ctx->out. */
calm_status calm_recipes_path(calm_ctx *ctx, const char *name, calm_string_out out);

typedef struct calm_alias {
    const char *name;
    const char *path;    /* below recipes/, of a bundled model; NULL: `repo` says where it is */
    const char *repo;    /* ORG/NAME on the hub; NULL for a bundled one                       */
    const char *note;    /* a remark for the user; NULL: none                                 */
} calm_alias;

/* The rows of recipes/models/aliases.json in their order, in ctx->out. */
calm_status calm_aliases(calm_ctx *ctx, calm_alias **out, size_t *n);

/* *out: is one of them named `word`? */
calm_status calm_aliases_have(calm_ctx *ctx, const char *word, bool *out);

/* The name on the hub that is meant by a word: an alias (qwen3-8b, qwen3-8b@REVISION) or
 * ORG/NAME[@REVISION].  In ctx->out; NULL for a bundled model, a path, and anything else. */
calm_status calm_model_hub_name(calm_ctx *ctx, const char *word, const char **out);

typedef struct calm_named_model {
    const char *name;    /* as typed                                                       */
    const char *dir;     /* of the checkpoint                                              */
    const char *note;    /* a remark for the user; NULL: none                              */
} calm_named_model;

/* Is it certainly a path: existing, or beginning with / or ./ or ../ ? */
bool calm_is_path(const char *word);

/* CALM_EARG, with the name in it: "https://huggingface.co/ORG/NAME/tree/main", as browsers have it. */
calm_status calm_recipe_refuse_address(calm_ctx *ctx, const char *word);

/* The repository that a model is from, ORG/NAME, in ctx->scratch: of such a name, with or without @REVISION, or of a
 * folder of the hub's cache, models--ORG--NAME/snapshots/REVISION.  NULL: none is known. */
calm_status calm_model_repo(calm_ctx *ctx, const char *word, char **out);

/* In this order: a path; an alias of recipes/models/aliases.json; ORG/NAME[@REVISION] on the hub; a directory.  An
 * alias wins over a directory of the same name in the working folder, so that a name means one model everywhere; a
 * directory ORG/NAME wins over the hub.  A model of the hub is taken from the Hugging Face cache as it is there, and
 * fetched into it when something is missing, with ticks of the bytes that come (NULL: not wanted).  Texts in ctx->out.
 * CALM_ENOTFOUND with the nearest alias; the failures of calm_hub_pull. */
calm_status calm_model_find(calm_ctx *ctx, const char *name, calm_tick_fn *tick, void *user, calm_named_model *out);
