/* The front matter of a card: keys that the Hugging Face hub reads (https://huggingface.co/docs/hub/model-cards). */
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/finish/finish.h"
#include "ptq/recipe/model_names.h"

/* Longer cards are not searched for their license. */
#define CARD_MAX ((size_t)1 << 20)
#define LICENSE_MAX 64

/* Characters that need no quotes in YAML and are all that names on the hub have. */
static bool plain(const char *text, size_t n)
{
    return n && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") >= n;
}

/* The value of "license:" in the front matter of the float model's card, [*n] bytes; NULL: there is none. */
static const char *license_of(const char *card, size_t *n)
{
    if (strncmp(card, "---\n", 4) != 0)
        return NULL;
    for (const char *line = card + 4; *line && strncmp(line, "---", 3) != 0; line++) {
        if (strncmp(line, "license: ", 9) == 0) {
            *n = strcspn(line + 9, " \r\n");
            return *n <= LICENSE_MAX && plain(line + 9, *n) ? line + 9 : NULL;
        }
        line += strcspn(line, "\n");
        if (!*line)
            return NULL;
    }
    return NULL;
}

/* A card that cannot be read says nothing of the license; the run does not fail for it. */
static calm_status write_license(calm_ctx *ctx, const char *dir, calm_text *out)
{
    char *path, *card;
    size_t n_bytes, n;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, "README.md"));
    if (!calm_is_file(path) || calm_read_file(ctx, path, CARD_MAX, &card, &n_bytes) != CALM_OK) {
        calm_ctx_forgive(ctx);
        return CALM_OK;
    }
    const char *license = license_of(card, &n);
    if (license)
        calm_text_printf(out, "license: %.*s\n", (int)n, license);
    return CALM_OK;
}

/* The library whose files the first format writes. */
static const char *library_of(const calm_formats *formats)
{
    const char *first = calm_formats_at(formats, 0)->name;
    return strcmp(first, "mlx") == 0 ? "mlx" : strcmp(first, "gguf") == 0 ? "gguf" : "transformers";
}

calm_status calm_card_front(calm_ctx *ctx, const calm_result *r, calm_text *out)
{
    const char *model = r->recipe->model.name;
    calm_text_printf(out, "---\n");
    if (calm_is_hub_model(model))    /* without its revision */
        calm_text_printf(out, "base_model: %.*s\nbase_model_relation: quantized\n", (int)strcspn(model, "@"), model);
    calm_text_printf(out, "library_name: %s\n", library_of(&r->recipe->formats));
    CALM_TRY(write_license(ctx, r->recipe->model.dir, out));
    calm_text_printf(out, "pipeline_tag: %s\nquantized_by: calm\ntags:\n",
                     r->encoder ? "sentence-similarity" : "text-generation");
    /* Tags are the formats: the hub's search finds a checkpoint by them. */
    for (size_t i = 0; i < calm_formats_count(&r->recipe->formats); i++) {
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(&r->recipe->formats, i), &name));
        calm_text_printf(out, "- %s\n", name);
    }
    calm_text_printf(out, "- calm\n---\n");
    return CALM_OK;
}
