/* Names: of repositories ("ORG/NAME@REVISION"), and of the files in them that calm needs. */
#pragma once

#include "ptq/base/context.h"

#define CALM_HUB_COMMIT 41       /* 40 hexadecimal digits and the NUL                 */
#define CALM_HUB_ETAG 136        /* name of a blob: up to 128 letters, digits and -._ */

typedef struct calm_hub_name {
    const char *repo;        /* "ORG/NAME"                            */
    const char *revision;    /* branch, tag or commit; "main"         */
    const char *folder;      /* "models--ORG--NAME"                   */
} calm_hub_name;

/* Does the word have the form ORG/NAME or ORG/NAME@REVISION?  Whether there is such a repository is not asked. */
bool calm_hub_is_name(const char *word);

/* Split it; texts in ctx->out.  CALM_EARG says which rule of the hub the name or the revision breaks. */
calm_status calm_hub_name_parse(calm_ctx *ctx, const char *word, calm_hub_name *out);

/* Is it a whole commit hash: 40 lower-case hexadecimal digits? */
bool calm_hub_is_commit(const char *text);

/* May a blob be called that: letters, digits, - . _ and no dot in front, at most 128? */
bool calm_hub_is_etag(const char *text);

/* NULL when `name` [n bytes] is a plain relative path, else what is wrong with it ("goes up with \"..\"").  Everything
 * that a server names passes this before it becomes part of a path. */
const char *calm_hub_name_fault(const char *name, size_t n);

/* Does calm fetch a file of that name, weights aside: configuration, tokenizer, chat template, readme, licence? */
bool calm_hub_is_wanted(const char *name);

/* The names of these that are fixed, NULL at the end; without readme and licence. */
const char *const *calm_hub_fixed_names(void);

/* `text` for an address: all but letters, digits, - . _ ~ (and, with keep_slash, /) as %XX; in ctx->scratch. */
calm_status calm_hub_quote(calm_ctx *ctx, const char *text, bool keep_slash, char **out);
