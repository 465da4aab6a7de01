/* Lists what shells offer for options and words. */
#include <string.h>

#include "algorithms/algorithm.h"
#include "cli/inspect/inspect.h"
#include "cli/manual/manual.h"
#include "ptq/export/export.h"
#include "ptq/recipe/model_names.h"
#include "ptq/recipe/shipped.h"

/* Adds the words of "a|b|c", or of "a | b FILE...": the first word of each part unless it is a placeholder
 * (ORG/NAME). */
static calm_status add_parts(calm_ctx *ctx, const char *text, calm_words *out)
{
    while (*text) {
        text += strspn(text, "| [");
        const size_t n = strcspn(text, "| ].");
        char *word;
        CALM_TRY(calm_strf(ctx, ctx->out, &word, "%.*s", (int)n, text));
        if (n && strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-") == n)
            CALM_TRY(calm_words_add(ctx, out, word));
        text += strcspn(text, "|");
    }
    return CALM_OK;
}

static calm_status add_algorithms(calm_ctx *ctx, calm_words *out)
{
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_words_add(ctx, out, presets[i].name));
    return CALM_OK;
}

static calm_status add_formats(calm_ctx *ctx, calm_words *out)
{
    size_t n;
    const calm_exporter *const *exporters = calm_exporters(&n);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_words_add(ctx, out, exporters[i]->name));
    return CALM_OK;
}

static calm_status add_models(calm_ctx *ctx, calm_words *out)
{
    calm_alias *aliases;
    size_t n;
    CALM_TRY(calm_aliases(ctx, &aliases, &n));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_words_add(ctx, out, aliases[i].name));
    return CALM_OK;
}

calm_status calm_manual_values(calm_ctx *ctx, const calm_option *option, calm_manual_offer *out)
{
    const char *shown = option->metavar ? option->metavar : "", *name = option->name;
    *out = (calm_manual_offer){.files = strcmp(shown, "FILE") == 0, .folders = strcmp(shown, "DIR") == 0};
    if (option->type == CALM_OPTION_ENUM)
        return add_parts(ctx, option->values, &out->words);
    if (strchr(shown, '|'))
        return add_parts(ctx, shown, &out->words);
    if (strcmp(name, "algorithms") == 0)
        return add_algorithms(ctx, &out->words);
    if (strcmp(name, "format") == 0)
        return add_formats(ctx, &out->words);
    if (strcmp(name, "recipe") == 0)
        return calm_recipe_file_shipped(ctx, &out->words.of, &out->words.n);
    if (strcmp(name, "model") == 0 || strcmp(name, "reference") == 0) {
        out->folders = true;
        return add_models(ctx, &out->words);
    }
    return CALM_OK;
}

calm_status calm_manual_arguments(calm_ctx *ctx, const calm_command *command, calm_manual_offer *out)
{
    const char *shown = command->arguments;
    *out = (calm_manual_offer){.files = shown != NULL};
    if (!shown || strcmp(command->name, "inspect") != 0)
        return shown ? add_parts(ctx, shown, &out->words) : CALM_OK;
    size_t n;
    const char *const *views = calm_inspect_views(&n);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_words_add(ctx, &out->words, views[i]));
    return CALM_OK;
}

void calm_manual_quote(calm_text *out, const char *text, bool fish)
{
    calm_text_printf(out, "'");
    for (const char *at = text; *at; at++) {
        if (*at == '\'')
            calm_text_printf(out, fish ? "\\'" : "'\\''");
        else
            calm_text_printf(out, fish && *at == '\\' ? "\\%c" : "%c", *at);
    }
    calm_text_printf(out, "'");
}
