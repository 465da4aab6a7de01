/* Names on the command line: models, bundled texts, folders of the installation. */
#ifndef CALM_CLI_RESOLVE_H
#define CALM_CLI_RESOLVE_H

#include "ptq/base/context.h"

/* The folder that holds recipes/: $CALM_HOME, else where calm was built.  Borrowed. */
const char *calm_home(void);

/* How people call the program here: the start script as they typed it ($CALM_COMMAND), else "calm".  Borrowed. */
const char *calm_program(void);

/* recipes/NAME below it, in ctx->out. */
calm_status calm_recipes_path(calm_ctx *ctx, const char *name, char **out);

typedef struct calm_named_model {
    const char *name;    /* as typed                                                       */
    char *dir;           /* of the checkpoint                                              */
    const char *note;    /* what people should know about an alias; NULL: none             */
} calm_named_model;

/* A path (with a slash, or an existing directory), or an alias of recipes/models/aliases.json; in ctx->out.
 * An alias always wins over a directory of the same name in the working folder, so that a name means one model
 * everywhere. CALM_ENOTFOUND with the known aliases. */
calm_status calm_resolve_model(calm_ctx *ctx, const char *name, calm_named_model *out);

#endif
