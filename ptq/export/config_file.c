/* Writes config.json of a checkpoint. */
#include "ptq/export/config_file_impl.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/base/scope.h"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)
#define TIED "tie_word_embeddings"
#define SPACES " \t\r\n"

bool calm_export_unties_head(const calm_model *model)
{
    const calm_config *config = calm_model_config(model);
    return config->arch->names->head && !config->tied
           && calm_json_bool(calm_json_get(calm_model_text_json(model), TIED), config->arch->default_tied);
}

/* Returns the first byte after the string that begins at `at`. */
static size_t end_of_string(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < n ? at + 1 : n;
}

static size_t skip_spaces(const char *text, size_t n, size_t at)
{
    while (at < n && strchr(SPACES, text[at]) && text[at])
        at++;
    return at;
}

/* Is the string text[from .. end - 1], with its quotes, this key of an object?  Then *value is the index of its value.
 * */
static bool is_key(const char *text, size_t n, size_t from, size_t end, const char *key, size_t *value)
{
    const size_t colon = skip_spaces(text, n, end);
    if (end - from != strlen(key) + 2 || strncmp(text + from + 1, key, strlen(key)) != 0 || colon >= n
        || text[colon] != ':')
        return false;
    *value = skip_spaces(text, n, colon + 1);
    return true;
}

/* Appends text [n] without its last brace and the spaces before it. */
static void append_open(const char *text, size_t n, calm_text *out)
{
    while (n && text[n - 1] != '}')
        n--;
    for (n -= n > 0; n && strchr(SPACES, text[n - 1]); n--)
        continue;
    calm_text_append(out, text, n);
}

static void append_value(calm_text *out, const char *value)
{
    for (const char *at = value; *at; at++)
        calm_text_printf(out, *at == '\n' ? "\n  " : "%c", *at);
}

/* Appends a member to an open object. */
static void append_member(calm_text *out, const char *key, const char *value)
{
    calm_text_printf(out, "%s\n  \"%s\": ", out->length && out->data[out->length - 1] == '{' ? "" : ",", key);
    append_value(out, value);
}

void calm_export_set_member(const char *text, size_t n, const char *key, const char *value, calm_text *out)
{
    size_t copied = 0, at = 0, of = 0;
    long depth = 0;
    bool found = false;
    while (at < n) {
        const size_t end = text[at] == '"' ? end_of_string(text, n, at) : at + 1;
        depth += (text[at] == '{' || text[at] == '[') - (text[at] == '}' || text[at] == ']');
        if (text[at] == '"' && depth == 1 && is_key(text, n, at, end, key, &of)) {
            calm_text_append(out, text + copied, of - copied);
            append_value(out, value);
            for (at = of; at < n && !strchr(",}" SPACES, text[at]);)    /* true, false or null */
                at++;
            copied = at;
            found = true;
        } else {
            at = end;
        }
    }
    if (found) {
        calm_text_append(out, text + copied, n - copied);
        return;
    }
    append_open(text, n, out);
    append_member(out, key, value);
    calm_text_printf(out, "\n}\n");
}

/* Returns the float model's text; for a GGUF file, the equivalent of its keys; for a quantized source, without its
 * quantization entry. */
static calm_status read_text(calm_ctx *ctx, const calm_model *model, const char *to, calm_text *out)
{
    char *from, *text;
    size_t n;
    if (calm_model_is_file(model) || calm_model_published(model)) {
        CALM_TRY(calm_json_save(ctx, to, calm_model_json(model)));
        CALM_TRY(calm_strf(ctx, ctx->scratch, &from, "%s", to));
    } else {
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &from, calm_model_dir(model), "config.json"));
    }
    CALM_TRY(calm_read_file(ctx, from, CONFIG_MAX, &text, &n));
    if (calm_export_unties_head(model))
        calm_export_set_member(text, n, TIED, "false", out);
    else
        calm_text_append(out, text, n);
    return calm_text_check(ctx, out);
}

calm_status calm_export_write_config(calm_ctx *ctx, const calm_model *model, const char *dir, const char *const *keys,
                              size_t n, const char *value)
{
    CALM_SCOPED_TEXT(text);
    char *to;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &to, dir, "config.json"));
    CALM_TRY(read_text(ctx, model, to, &text));
    for (size_t i = 0; i < n; i++) {    /* a float model may have the key, as null */
        CALM_SCOPED_TEXT(out);
        calm_export_set_member(text.data ? text.data : "", text.length, keys[i], value, &out);
        CALM_TRY(calm_text_check(ctx, &out));
        const calm_text before = text;
        text = out;
        out = before;
    }
    return calm_write_file(ctx, to, text.data, text.length);
}
