/* Names of models, and the paths of bundled recipes and texts. */
#pragma once

#include "ptq/base/context.h"

/* Returns the path of recipes/NAME in ctx->out: below $CALM_HOME; else below share/calm next to the folder of the
 * installed program or library; else below the folder where calm was built; else below its installation prefix. */
calm_status calm_recipes_path(calm_ctx *ctx, const char *name, calm_string_out out);

typedef struct calm_alias {
    const char *name;
    const char *path;    /* path below recipes/ of a bundled model; NULL: `repo` is set */
    const char *repo;    /* ORG/NAME on the hub; NULL for a bundled model */
    const char *note;    /* a remark for the user; NULL: none                                 */
} calm_alias;

/* Reads the rows of recipes/models/aliases.json, in order, into ctx->out. */
calm_status calm_aliases(calm_ctx *ctx, calm_alias **out, size_t *n);

/* Sets *out to whether there is an alias `word`. */
calm_status calm_aliases_have(calm_ctx *ctx, const char *word, bool *out);

/* Converts a word to a name on the hub, in ctx->out: an alias (qwen3-8b, qwen3-8b@REVISION) or ORG/NAME[@REVISION].
 * NULL for a bundled model, a path, and anything else. */
calm_status calm_model_hub_name(calm_ctx *ctx, const char *word, const char **out);

typedef struct calm_named_model {
    const char *name;    /* as the user typed it */
    const char *dir;     /* directory of the checkpoint */
    const char *note;    /* a remark for the user; NULL: none                              */
} calm_named_model;

/* Returns true if the word is certainly a path: it exists, or begins with / or ./ or ../ . */
bool calm_is_path(const char *word);

/* Fails with CALM_EARG, with the model's name in the message, for an address of a browser such as
 * "https://huggingface.co/ORG/NAME/tree/main". */
calm_status calm_recipe_refuse_address(calm_ctx *ctx, const char *word);

/* Returns the hub repository ORG/NAME of a model in ctx->scratch, from ORG/NAME[@REVISION] or from a folder of the
 * hub's cache, models--ORG--NAME/snapshots/REVISION.  NULL: unknown. */
calm_status calm_model_repo(calm_ctx *ctx, const char *word, char **out);

/* Finds a model by, in this order: a path; an alias of recipes/models/aliases.json; ORG/NAME[@REVISION] on the hub; a
 * directory.  An alias wins over a directory of that name in the working folder, so that a name means one model
 * everywhere; a directory ORG/NAME wins over the hub.  A hub model is read from the Hugging Face cache and downloaded
 * into it if a file is missing; `tick` receives the downloaded bytes (NULL: no ticks).  Texts are in ctx->out.
 * CALM_ENOTFOUND: the message has the nearest alias; the failures of calm_hub_pull. */
calm_status calm_model_find(calm_ctx *ctx, const char *name, calm_tick_fn *tick, void *user, calm_named_model *out);
