/* Chat templates as keys of a GGUF file. */
#include "ptq/export/gguf_templates.h"

#include <ctype.h>
#include <string.h>

#include "ptq/export/companions.h"
#include "ptq/tokenizer/template_files.h"

/* The named templates that were added. */
typedef struct named {
    calm_gguf_keys *keys;
    calm_words names;
} named;

/* Adds a named template; if two names have the same spelling in GGUF, the first stays. */
static calm_status add_named(calm_ctx *ctx, named *to, const calm_named_template *template)
{
    char *clean, *key;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &clean, "%s", template->name));
    for (char *at = clean; *at; at++)
        *at = isalnum((unsigned char)*at) ? *at : '_';
    if (!*clean || strcmp(clean, "default") == 0 || calm_words_have(&to->names, clean))
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &key, "tokenizer.chat_template.%s", clean));
    calm_gguf_add_string(to->keys, key, template->text);
    return calm_words_add(ctx, &to->names, clean);
}

static calm_status add_all(calm_ctx *ctx, const calm_template_files *templates, calm_gguf_keys *keys)
{
    named to = {.keys = keys};
    for (size_t i = 0; i < templates->n; i++)
        CALM_TRY(add_named(ctx, &to, &templates->named[i]));
    if (to.names.n)
        calm_gguf_add_array(keys, "tokenizer.chat_templates", CALM_GGUF_STRING, to.names.n);
    for (size_t i = 0; i < to.names.n; i++)
        calm_gguf_element_string(keys, to.names.of[i], strlen(to.names.of[i]));
    if (templates->text)
        calm_gguf_add_string(keys, "tokenizer.chat_template", templates->text);
    return CALM_OK;
}

calm_status calm_gguf_add_templates(calm_ctx *ctx, const char *dir, const calm_json *settings, calm_gguf_keys *keys)
{
    calm_words files = {0};
    CALM_SCOPED(calm_template_files, calm_template_files_close) templates = {0};
    CALM_TRY(calm_export_list_templates(ctx, dir, &files));
    CALM_TRY(calm_template_files_read(ctx, dir, settings, &files, &templates));
    return add_all(ctx, &templates, keys);
}
