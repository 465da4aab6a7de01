/* Templates: a parsed template renders, or fails with a message, the same twice. */
#include <stdlib.h>
#include <string.h>

#include "ptq/jinja/jinja.h"
#include "ptq/text/unicode.h"
#include "tests/fuzz/fuzz.h"

static const char variables[] =
    "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true,"
    "\"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": [\"a\", \"b\"], \"n\": 1.5}}}],"
    "\"messages\": [{\"role\": \"system\", \"content\": \"x\"},"
    "{\"role\": \"user\", \"content\": \"  a <think>b</think>\\n\\u00e9 \"},"
    "{\"role\": \"assistant\", \"content\": null,"
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"k\": [1, true]}}}]}]}";

/* Renders to the text, or to the message of the failure. */
static void render(calm_ctx *ctx, const calm_jinja *jinja, const calm_json *json, calm_text *out)
{
    CALM_SCOPED_TEXT(text);
    const calm_status status = calm_jinja_render(ctx, jinja, json, &text);
    if ((status != CALM_OK) != (ctx->message[0] != '\0') || (status != CALM_OK && text.length))
        abort();
    if (status == CALM_OK && text.length && calm_utf8_invalid_at(text.data, text.length) != text.length)
        abort();
    calm_text_append(out, text.length ? text.data : ctx->message, text.length ? text.length : strlen(ctx->message));
    calm_ctx_clear_failure(ctx);
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    CALM_SCOPED_JSON(json);
    CALM_SCOPED_TEXT(first);
    CALM_SCOPED_TEXT(second);
    calm_jinja *jinja;
    if (calm_jinja_new(ctx, "fuzz", (const char *)data, size, &jinja) != CALM_OK) {
        if (jinja || !ctx->message[0])
            abort();
        return 0;
    }
    if (calm_json_parse(ctx, "variables", variables, sizeof variables - 1, &json) != CALM_OK)
        abort();
    render(ctx, jinja, json, &first);
    render(ctx, jinja, json, &second);
    if (first.length != second.length || (first.length && memcmp(first.data, second.data, first.length) != 0))
        abort();
    calm_jinja_free(jinja);
    return 0;
}
