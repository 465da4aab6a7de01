/* Chats: the forms of data sets, chat templates of a model's files, and windows with one BOS. */
#include "ptq/data/chat.h"

#include "ptq/base/file.h"
#include "ptq/data/windows.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

/* The model's directory, shared by the tests of a process. */
static const char *model(void)
{
    static const char *made;
    if (!made)
        made = strdup(test_directory());
    return made;
}

static calm_json *parse(const char *text)
{
    calm_json *json;
    ck_ok(calm_json_parse(ctx, "document", text, strlen(text), &json));
    return json;
}

/* Returns the messages of a document as JSON. */
static const char *messages_of(const char *text)
{
    CALM_SCOPED_JSON(document);
    CALM_SCOPED_JSON(messages);
    const char *written;
    document = parse(text);
    ck_assert(calm_chat_is(document));
    ck_ok(calm_chat_messages(ctx, "a.jsonl: line 1", document, &messages));
    ck_ok(calm_json_text(ctx, messages, &written));
    return written;
}

static void refused(const char *text, const char *message)
{
    CALM_SCOPED_JSON(document);
    calm_json *messages;
    document = parse(text);
    ck_fails(calm_chat_messages(ctx, "a.jsonl: line 1", document, &messages), CALM_EFORMAT, message);
    ck_assert_ptr_null(messages);
}

TEST(forms)
{
    const char *both = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]",
               *three = "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"},"
                        "{\"role\":\"assistant\",\"content\":\"b\"}]";
    ck_assert_str_eq(messages_of(test_format("{\"id\": 1, \"messages\": %s}", both)), both);
    ck_assert_str_eq(messages_of("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
                                 "\"value\": \"b\"}], \"system\": \"s\"}"), three);
    ck_assert_str_eq(messages_of("{\"prompt\": \"a\", \"completion\": \"b\"}"), both);
    ck_assert_str_eq(messages_of("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": "
                                 "\"assistant\", \"content\": \"b\"}]}"), both);
    ck_assert_str_eq(messages_of("{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}"), both);
    ck_assert_str_eq(messages_of("{\"instruction\": \"a\", \"input\": \"x\", \"output\": \"b\"}"),
                     "[{\"role\":\"user\",\"content\":\"a\\nx\"},{\"role\":\"assistant\",\"content\":\"b\"}]");
    ck_assert_str_eq(messages_of("{\"instruction\": \"a\", \"context\": \"x\", \"response\": \"b\"}"),
                     "[{\"role\":\"user\",\"content\":\"a\\nx\"},{\"role\":\"assistant\",\"content\":\"b\"}]");
    /* As transformers passes messages: without null, and with the reasoning under two names. */
    ck_assert_str_eq(messages_of("{\"messages\": [{\"role\": \"assistant\", \"content\": null, "
                                 "\"reasoning\": \"r\"}]}"),
                     "[{\"thinking\":\"r\",\"role\":\"assistant\",\"reasoning\":\"r\",\"reasoning_content\":\"r\"}]");
}
END_OF_TEST

TEST(no_chats)
{
    CALM_SCOPED_JSON(plain);
    plain = parse("{\"text\": \"a\", \"output\": \"b\"}");
    ck_assert(!calm_chat_is(plain));
    refused("{\"messages\": []}", "a.jsonl: line 1: a chat without a message");
    refused("{\"messages\": \"a\"}", "\"messages\": expected a list of messages, found a string");
    refused("{\"messages\": [\"a\"]}", "a message: expected {\"role\", \"content\"}");
    refused("{\"conversations\": [{\"from\": \"narrator\", \"value\": \"a\"}]}", "found \"narrator\"");
    refused("{\"conversations\": [{\"from\": \"human\", \"value\": 3}]}", "\"value\" of a message: expected a string");
    refused("{\"prompt\": \"a\"}", "\"prompt\" without its answer: expected \"completion\"");
    refused("{\"instruction\": 3, \"output\": \"b\"}", "\"instruction\": expected a string or a list");
}
END_OF_TEST

/* ---- templates of a model's files ---- */

static void put(const char *name, const char *text)
{
    const char *path = test_format("%s/%s", model(), name);
    ck_ok(calm_make_parent(ctx, path));
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
}

/* Renders a chat with the files that were written. */
static const char *rendered(const char *text)
{
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {.model = model()};
    CALM_SCOPED_JSON(document);
    CALM_SCOPED_TEXT(out);
    document = parse(text);
    ck_ok(calm_chat_render(ctx, &chat, "here", document, &out));
    ck_assert_uint_eq(chat.n, 1);
    return test_format("%s", out.data);
}

TEST(templates_of_files)
{
    const char *plain = "{\"prompt\": \"a\", \"completion\": \"b\"}",
               *tools = "{\"prompt\": \"a\", \"completion\": \"b\", \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\"}";
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {.model = model()};
    CALM_SCOPED_JSON(document);
    CALM_SCOPED_TEXT(out);
    document = parse(plain);
    ck_fails(calm_chat_render(ctx, &chat, "a.jsonl: line 1", document, &out), CALM_EARG,
             test_format("a.jsonl: line 1: a chat, but %s has no chat template: copy chat_template.jinja",
                         model()));
    put("tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": null, \"chat_template\": ["
        "{\"name\": \"default\", \"template\": \"1{{ bos_token }}{{ eos_token }}{{ tools }}\"},"
        "{\"name\": \"tool_use\", \"template\": \"2{{ tools[0].name }}\"}]}");
    ck_assert_str_eq(rendered(plain), "1<s>None");
    ck_assert_str_eq(rendered(tools), "2f");
    put("additional_chat_templates/default.jinja", "no");
    put("chat_template.json", "{\"chat_template\": \"3{{ messages|length }}\"}");
    ck_assert_str_eq(rendered(plain), "32");
    put("chat_template.jinja", "4{{ x }}{{ add_generation_prompt }}");
    ck_assert_str_eq(rendered("{\"prompt\": \"a\", \"completion\": \"b\", \"chat_template_kwargs\": {\"x\": 5}}"),
                     "45False");
    put("chat_template.jinja", "{{ raise_exception('no') }}");
    CALM_SCOPED(calm_chat, calm_chat_close) other = {.model = model()};
    ck_fails(calm_chat_render(ctx, &other, "line 7", document, &out), CALM_EFORMAT, "line 7: ");
}
END_OF_TEST

/* ---- windows ---- */

/* A byte tokenizer whose template begins a text with <s>. */
static calm_tokenizer *byte_tokenizer(void)
{
    calm_tokenizer *tokenizer;
    put("tokenizer.json",
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true}], \"normalizer\": null,"
        "\"pre_tokenizer\": null, \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": ["
        "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],"
        "\"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [4], \"tokens\": [\"<s>\"]}}},"
        "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3,"
        "\"<s>\": 4}, \"merges\": []}}");
    ck_ok(calm_tokenizer_open(ctx, test_format("%s/tokenizer.json", model()), &tokenizer));
    return tokenizer;
}

/* Returns the windows of 4 tokens of a chat with the messages "abc" and "d", rendered by a template. */
static const char *windows_of(const calm_tokenizer *tokenizer, const char *template)
{
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {.model = model()};
    const calm_windows_options options = {.seqlen = 4, .seed = -1, .special = true, .chat = &chat};
    const char *all = "";
    calm_windows windows;
    put("chat_template.jinja", template);
    put("a.jsonl", "{\"prompt\": \"abc\", \"completion\": \"d\"}\n");
    ck_ok(calm_windows_read(ctx, tokenizer, test_format("%s/a.jsonl", model()), &options, &windows));
    for (size_t w = 0; w < windows.n; w++, all = test_format("%s|", all))
        for (size_t i = windows.begin[w]; i < windows.begin[w + 1]; i++)
            all = test_format("%s%u", all, windows.ids[i]);
    return all;
}

TEST(one_bos)
{
    CALM_SCOPED_TOKENIZER(tokenizer);
    tokenizer = byte_tokenizer();
    ck_assert_str_eq(windows_of(tokenizer, "<s>{% for m in messages %}{{ m.content }}{% endfor %}"), "4012|43|");
    ck_assert_str_eq(windows_of(tokenizer, "{% for m in messages %}{{ m.content }}<s>{% endfor %}"), "0124|34|");
}
END_OF_TEST

int main(void)
{
    return run_tests("chat", (const TTest *[]){forms, no_chats, templates_of_files, one_bos, NULL});
}
