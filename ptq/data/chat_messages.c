/* Conversion of the chat formats of data sets to lists of messages. */
#include "ptq/data/chat_messages.h"

#include <string.h>

/* Keys of a list of messages, of a request, of the input of an instruction, and of the answer. */
static const char *const lists[] = {"messages", "conversations", "conversation"},
                  *const requests[] = {"prompt", "instruction"}, *const inputs[] = {"input", "context"},
                  *const answers[] = {"completion", "output", "response"};

/* Returns the first of keys [n] that the object has with a value other than null, and its name in *key. */
static const calm_json *first_of(const calm_json *object, const char *const *keys, size_t n, const char **key)
{
    for (size_t i = 0; i < n; i++) {
        const calm_json *value = calm_json_get(object, keys[i]);
        if (calm_json_typeof(value) == CALM_JSON_NULL)
            continue;
        if (key)
            *key = keys[i];
        return value;
    }
    return NULL;
}
#define FIRST_OF(object, keys, key) first_of((object), (keys), sizeof(keys) / sizeof *(keys), (key))

bool calm_chat_is(const calm_json *document)
{
    return FIRST_OF(document, lists, NULL) || FIRST_OF(document, requests, NULL);
}

/* ---- one message ---- */

/* Returns the role of a speaker, or NULL if the name is unknown. */
static const char *role_of(const char *speaker)
{
    static const char *const names[][2] = {
        {"human", "user"}, {"user", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"assistant", "assistant"},
        {"model", "assistant"}, {"bot", "assistant"}, {"system", "system"}, {"tool", "tool"}, {"function", "tool"},
        {"observation", "tool"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], speaker) == 0)
            return names[i][1];
    return NULL;
}

static void add_text(calm_json *messages, const char *role, const calm_json *text)
{
    calm_json *message = CALM_OBJECT(CALM_KV("role", role));
    calm_json_set_bytes(message, "content", calm_json_string(text, ""), calm_json_string_length(text));
    calm_json_add(messages, message);
}

/* Adds a message {"from", "value"}. */
static calm_status add_spoken(calm_ctx *ctx, const char *where, const calm_json *from, calm_json *messages)
{
    const char *speaker = calm_json_string(calm_json_get(from, "from"), ""), *role = role_of(speaker);
    const calm_json *value = calm_json_get(from, "value");
    if (!role)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"from\": expected human, gpt, system or tool, found \"%.60s\"", where,
                         speaker);
    if (calm_json_typeof(value) != CALM_JSON_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"value\" of a message: expected a string, found %s", where,
                         calm_json_type_name(calm_json_typeof(value)));
    add_text(messages, role, value);
    return CALM_OK;
}

/* Adds a message {"role", "content", ...}. Templates read its reasoning by one of three names: the message gets two
 * of them, with "thinking" as its first member, as in transformers. */
static calm_status add_message(calm_ctx *ctx, const char *where, const calm_json *from, calm_json *messages)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const calm_json *reasoning = FIRST_OF(from, names, NULL), *value;
    const char *key;
    if (calm_json_typeof(calm_json_get(from, "role")) != CALM_JSON_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s: a message: expected {\"role\", \"content\"} or {\"from\", \"value\"}",
                         where);
    calm_json *message = calm_json_new_object();
    if (reasoning)
        calm_json_set(message, "thinking", calm_json_copy(reasoning));
    for (void *iter = NULL; calm_json_next(from, &iter, &key, &value);)
        if (calm_json_typeof(value) != CALM_JSON_NULL)
            calm_json_set(message, key, calm_json_copy(value));
    if (reasoning)
        calm_json_set(message, "reasoning_content", calm_json_copy(reasoning));
    calm_json_add(messages, message);
    return CALM_OK;
}

static calm_status add_list(calm_ctx *ctx, const char *where, const calm_json *list, calm_json *messages)
{
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *one = calm_json_at(list, i);
        const bool spoken = calm_json_get(one, "from") && !calm_json_get(one, "role");
        CALM_TRY(spoken ? add_spoken(ctx, where, one, messages) : add_message(ctx, where, one, messages));
    }
    return CALM_OK;
}

/* ---- whole chats ---- */

/* Adds the value of `key`: a list of messages, or a text as one message of `role`. */
static calm_status add_part(calm_ctx *ctx, const char *where, const char *key, const char *role, const calm_json *value,
                            calm_json *messages)
{
    const calm_json_type type = calm_json_typeof(value);
    if (type == CALM_JSON_ARRAY)
        return add_list(ctx, where, value, messages);
    if (type != CALM_JSON_STRING || !role)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected %s, found %s", where, key,
                         role ? "a string or a list of messages" : "a list of messages", calm_json_type_name(type));
    add_text(messages, role, value);
    return CALM_OK;
}

/* Adds an instruction, followed by its input on the next line. */
static calm_status add_instruction(calm_ctx *ctx, const char *where, const char *key, const calm_json *request,
                                   const calm_json *input, calm_json *messages)
{
    CALM_SCOPED_TEXT(text);
    const bool both = calm_json_string_length(input) && calm_json_typeof(request) == CALM_JSON_STRING;
    if (!both)
        return add_part(ctx, where, key, "user", request, messages);
    calm_text_append(&text, calm_json_string(request, ""), calm_json_string_length(request));
    calm_text_append(&text, "\n", 1);
    calm_text_append(&text, calm_json_string(input, ""), calm_json_string_length(input));
    CALM_TRY(calm_text_check(ctx, &text));
    calm_json *message = CALM_OBJECT(CALM_KV("role", (const char *)"user"));
    calm_json_set_bytes(message, "content", text.data, text.length);
    calm_json_add(messages, message);
    return CALM_OK;
}

static calm_status add_all(calm_ctx *ctx, const char *where, const calm_json *document, calm_json *messages)
{
    const char *key = NULL, *answer_key = NULL;
    const calm_json *list = FIRST_OF(document, lists, &key), *system = calm_json_get(document, "system");
    if (calm_json_string_length(system))
        add_text(messages, "system", system);
    if (list)
        return add_part(ctx, where, key, NULL, list, messages);
    const calm_json *request = FIRST_OF(document, requests, &key), *answer = FIRST_OF(document, answers, &answer_key);
    const bool instruction = strcmp(key, "instruction") == 0;
    if (!answer)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\" without its answer: expected \"%s\" or \"response\"", where,
                         key, instruction ? "output" : "completion");
    const calm_json *input = instruction ? FIRST_OF(document, inputs, NULL) : NULL;
    CALM_TRY(add_instruction(ctx, where, key, request, input, messages));
    return add_part(ctx, where, answer_key, "assistant", answer, messages);
}

calm_status calm_chat_messages(calm_ctx *ctx, const char *where, const calm_json *document, calm_json **out)
{
    CALM_SCOPED_JSON(messages);
    messages = calm_json_new_array();
    *out = NULL;
    CALM_TRY(add_all(ctx, where, document, messages));
    if (calm_json_size(messages) == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: a chat without a message", where);
    *out = messages;
    messages = NULL;
    return CALM_OK;
}
