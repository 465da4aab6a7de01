/* Rendering of chats through the model's chat template. */
#include "ptq/data/chat.h"

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/message.h"
#include "ptq/io/gguf_split.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/tokenizer/template_files.h"

#define SETTINGS_MAX ((size_t)16 * 1024 * 1024)
#define TOOL_USE "tool_use"

/* ---- the template ---- */

/* Sets *out to whether the tokenizer of a GGUF file is in the file itself. */
static calm_status is_inside(calm_ctx *ctx, const char *model, bool *out)
{
    char *found;
    CALM_TRY(calm_gguf_tokenizer_find(ctx, model, &found));
    *out = calm_is_file(model) && strcmp(found, model) == 0;
    return CALM_OK;
}

static calm_status read_settings(calm_ctx *ctx, calm_chat *chat, bool inside)
{
    char *path;
    if (inside) {
        calm_gguf *file;
        CALM_TRY(calm_gguf_open_split(ctx, chat->model, &file));
        const calm_status status = calm_gguf_tokenizer_settings(ctx, file, &chat->settings);
        calm_gguf_close(file);
        return status;
    }
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, chat->model, "tokenizer_config.json"));
    return calm_path_exists(path) ? calm_json_read(ctx, path, SETTINGS_MAX, &chat->settings) : CALM_OK;
}

/* Adds the names of the model's template files that chats use. */
static calm_status find_files(calm_ctx *ctx, const char *model, calm_words *out)
{
    static const char *const names[] = {CALM_TEMPLATES_DIR "/default" CALM_TEMPLATES_SUFFIX,
                                        CALM_TEMPLATES_DIR "/" TOOL_USE CALM_TEMPLATES_SUFFIX};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path;
        CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, model, names[i]));
        if (calm_is_file(path))
            CALM_TRY(calm_words_add(ctx, out, names[i]));
    }
    return CALM_OK;
}

static calm_status parse(calm_ctx *ctx, const calm_chat *chat, const char *text, calm_jinja **out)
{
    char *where;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "%s: chat template", chat->model));
    return text ? calm_jinja_new(ctx, where, text, strlen(text), out) : CALM_OK;
}

/* Parses the templates of the model's files; if the tokenizer is inside a GGUF file, that of `settings`. */
static calm_status parse_templates(calm_ctx *ctx, calm_chat *chat, bool inside)
{
    CALM_SCOPED(calm_template_files, calm_template_files_close) found = {0};
    calm_words files = {0};
    if (inside)
        return parse(ctx, chat, calm_json_string(calm_json_get(chat->settings, "chat_template"), NULL), &chat->plain);
    CALM_TRY(find_files(ctx, chat->model, &files));
    CALM_TRY(calm_template_files_read(ctx, chat->model, chat->settings, &files, &found));
    CALM_TRY(parse(ctx, chat, found.text, &chat->plain));
    for (size_t i = 0; i < found.n && !chat->with_tools; i++)
        if (strcmp(found.named[i].name, TOOL_USE) == 0)
            CALM_TRY(parse(ctx, chat, found.named[i].text, &chat->with_tools));
    return CALM_OK;
}

static calm_status open_templates(calm_ctx *ctx, calm_chat *chat)
{
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    bool inside;
    if (chat->is_open)
        return CALM_OK;
    chat->is_open = true;
    CALM_TRY(is_inside(ctx, chat->model, &inside));
    CALM_TRY(read_settings(ctx, chat, inside));
    return parse_templates(ctx, chat, inside);
}

void calm_chat_close(calm_chat *chat)
{
    calm_jinja_free(chat->plain);
    calm_jinja_free(chat->with_tools);
    calm_json_free(chat->settings);
    *chat = (calm_chat){.model = chat->model, .prompts = chat->prompts};
}

/* ---- variables ---- */

/* Sets variable `key` to the document's list of that name, which may also be a string of JSON, else to null. */
static calm_status set_list(calm_ctx *ctx, const char *where, const calm_json *document, const char *key,
                            calm_json *variables)
{
    const calm_json *value = calm_json_get(document, key);
    CALM_SCOPED_JSON(parsed);
    if (calm_json_string_length(value)) {
        CALM_TRY(calm_json_parse(ctx, where, calm_json_string(value, ""), calm_json_string_length(value), &parsed));
        value = parsed;
    }
    const bool list = calm_json_typeof(value) == CALM_JSON_ARRAY && calm_json_size(value);
    calm_json_set(variables, key, list ? calm_json_copy(value) : calm_json_new_null());
    return CALM_OK;
}

static void set_tokens(const calm_json *settings, calm_json *variables)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                                       "mask_token"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *token = calm_settings_token(settings, keys[i]);
        if (token)
            calm_json_set_string(variables, keys[i], token);
    }
}

static calm_status set_variables(calm_ctx *ctx, const calm_chat *chat, const char *where, const calm_json *document,
                                 calm_json *variables)
{
    const calm_json *member, *more = calm_json_get(document, "chat_template_kwargs");
    const char *key;
    calm_json *messages;
    CALM_TRY(calm_chat_messages(ctx, where, document, &messages));
    set_tokens(chat->settings, variables);
    for (void *iter = NULL; calm_json_next(more, &iter, &key, &member);)
        calm_json_set(variables, key, calm_json_copy(member));
    calm_json_set(variables, "messages", messages);
    calm_json_set_bool(variables, "add_generation_prompt", chat->prompts);
    CALM_TRY(set_list(ctx, where, document, "tools", variables));
    return set_list(ctx, where, document, "documents", variables);
}

/* ---- rendering ---- */

calm_status calm_chat_render(calm_ctx *ctx, calm_chat *chat, const char *where, const calm_json *document,
                             calm_text *out)
{
    CALM_SCOPED_JSON(variables);
    variables = calm_json_new_object();
    CALM_TRY(open_templates(ctx, chat));
    CALM_TRY(set_variables(ctx, chat, where, document, variables));
    const bool tools = calm_json_size(calm_json_get(variables, "tools")) > 0;
    const calm_jinja *jinja = tools && chat->with_tools ? chat->with_tools : chat->plain;
    if (!jinja)
        return calm_fail(ctx, CALM_EARG, "%s: a chat, but %s has no chat template: copy chat_template.jinja (or "
                         "tokenizer_config.json) of the chat model into its directory, or write each chat as "
                         "{\"text\": ...}", where, chat->model);
    out->length = 0;
    if (calm_jinja_render(ctx, jinja, variables, out) != CALM_OK)
        return calm_fail_prefix(ctx, "%s", where);
    chat->n++;
    return CALM_OK;
}

void calm_chat_note(calm_ctx *ctx, const calm_chat *chat, const char *path)
{
    if (chat->n)
        calm_log(ctx, CALM_LOG_INFO, "%s: %zu chat%s through the model's chat template", path, chat->n,
                 chat->n == 1 ? "" : "s");
}
