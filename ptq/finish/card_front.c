/* The front matter of a card: keys that the Hugging Face hub reads (https://huggingface.co/docs/hub/model-cards). */
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/finish/finish.h"
#include "ptq/recipe/model_names.h"

/* Longer cards are not searched for a license. */
#define CARD_MAX ((size_t)1 << 20)
#define LICENSE_MAX 200

/* Returns true if text [n] has only characters of names on the hub, which YAML needs no quotes for. */
static bool plain(const char *text, size_t n)
{
    return n && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") >= n;
}

/* Finds the scalar at the start of text [n], without quotes, comment and spaces: *value, and its length; 0: none that
 * calm copies, such as null.  wide: spaces (in a name) and colons (in a link) are allowed. */
static size_t scalar(const char *text, size_t n, bool wide, const char **value)
{
    while (n && *text == ' ')
        text++, n--;
    const char quote = n && (*text == '"' || *text == '\'') ? *text : '\0';
    size_t length = 0;
    *value = text + (quote != '\0');
    while (length + (quote != '\0') < n && (quote ? (*value)[length] != quote : (*value)[length] != '#'))
        length++;
    while (!quote && length && strchr(" \r", (*value)[length - 1]))
        length--;
    size_t taken = 0;
    while (taken < length && (plain(*value + taken, 1) || (wide && strchr(" :~%?=&+", (*value)[taken]))))
        taken++;
    const bool none = length == 4 && strncmp(*value, "null", 4) == 0;
    return length == taken && length <= LICENSE_MAX && !none ? length : 0;
}

/* Returns the text behind "KEY:" in the front matter of a card; NULL: it lacks the key. */
static const char *find_key(const char *card, const char *key)
{
    const size_t n = strlen(key);
    for (const char *line = strchr(card, '\n'); line && strncmp(line + 1, "---", 3) != 0; line = strchr(line + 1, '\n'))
        if (strncmp(line + 1, key, n) == 0 && line[1 + n] == ':')
            return line + 1 + n + 1;
    return NULL;
}

static void append_item(const char *text, size_t n, calm_text *out)
{
    const char *value;
    const size_t length = scalar(text, n, false, &value);
    if (length)
        calm_text_printf(out, "- %.*s\n", (int)length, value);
}

/* Appends the items of "[mit, apache-2.0]", or of the following lines "- mit". */
static void append_items(const char *line, calm_text *out)
{
    if (*line == '[') {
        for (size_t n; *line && !strchr("]\n", *line); line += n) {
            n = strcspn(++line, ",]\n");
            append_item(line, n, out);
        }
        return;
    }
    for (line = strchr(line, '\n'); line; line = strchr(line, '\n')) {
        line += 1 + strspn(line + 1, " ");
        if (strncmp(line, "- ", 2) != 0)
            return;
        append_item(line + 2, strcspn(line + 2, "\n"), out);
    }
}

/* Copies the license of the card, one or several, and the name of a license that the hub does not know. */
static calm_status copy_license(calm_ctx *ctx, const char *card, const char *base, calm_text *out)
{
    CALM_SCOPED_TEXT(items);
    const char *line = find_key(card, "license"), *value;
    line = line ? line + strspn(line, " \r") : "";
    size_t n = strcspn(line, "\n");
    if (*line == '[' || *line == '\n')
        append_items(line, &items);
    if (items.length)
        calm_text_printf(out, "license:\n%s", items.data);
    else if ((n = scalar(line, n, false, &value)) > 0)
        calm_text_printf(out, "license: %.*s\n", (int)n, value);
    line = find_key(card, "license_link");
    n = line ? scalar(line, strcspn(line, "\n"), true, &value) : 0;
    if (n && strncmp(value, "http", 4) == 0)
        calm_text_printf(out, "license_link: \"%.*s\"\n", (int)n, value);
    else if (n && base)    /* the link is a file of the base repository */
        calm_text_printf(out, "license_link: \"https://huggingface.co/%s/blob/main/%.*s\"\n", base, (int)n, value);
    line = find_key(card, "license_name");
    n = line ? scalar(line, strcspn(line, "\n"), true, &value) : 0;
    if (n)
        calm_text_printf(out, "license_name: \"%.*s\"\n", (int)n, value);
    return calm_text_check(ctx, &items);
}

/* Writes the license; a card that cannot be read gives none, and the run continues. */
static calm_status write_license(calm_ctx *ctx, const calm_recipe *recipe, const char *base, calm_text *out)
{
    char *path, *card;
    size_t n_bytes;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, recipe->model.dir, "README.md"));
    if (!calm_is_file(path) || calm_read_file(ctx, path, CARD_MAX, &card, &n_bytes) != CALM_OK) {
        calm_ctx_clear_failure(ctx);
        return CALM_OK;
    }
    if (strncmp(card, "---\n", 4) != 0 && strncmp(card, "---\r\n", 5) != 0)
        return CALM_OK;
    return copy_license(ctx, card, base, out);
}

/* Returns the library that reads the first format. */
static const char *library_of(const calm_formats *formats)
{
    const char *first = calm_formats_at(formats, 0)->name;
    return strcmp(first, "mlx") == 0 ? "mlx" : strcmp(first, "gguf") == 0 ? "gguf" : "transformers";
}

calm_status calm_card_front(calm_ctx *ctx, const calm_result *r, const char *base, calm_text *out)
{
    calm_text_printf(out, "---\n");
    if (base)
        calm_text_printf(out, "base_model: %s\nbase_model_relation: quantized\n", base);
    calm_text_printf(out, "library_name: %s\n", library_of(&r->recipe->formats));
    CALM_TRY(write_license(ctx, r->recipe, base, out));
    calm_text_printf(out, "pipeline_tag: %s\nquantized_by: calm\ntags:\n", r->loads.pipeline);
    /* The formats are tags, so that the hub's search finds the checkpoint. */
    for (size_t i = 0; i < calm_formats_count(&r->recipe->formats); i++) {
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(&r->recipe->formats, i), &name));
        calm_text_printf(out, "- %s\n", name);
    }
    calm_text_printf(out, "- calm\n---\n");
    return CALM_OK;
}
