/* render_template TEMPLATE < VARIABLES: renders the template for each line, a JSON object, and prints {"text": ...}
 * or {"error": ...}. */
#include <stdio.h>
#include <stdlib.h>

#include "ptq/base/file.h"
#include "ptq/jinja/jinja.h"

static calm_json *render(calm_ctx *ctx, const calm_jinja *jinja, const char *line, size_t n)
{
    CALM_SCOPED_JSON(variables);
    CALM_SCOPED_TEXT(text);
    calm_json *answer = calm_json_new_object();
    if (calm_json_parse(ctx, "line", line, n, &variables) == CALM_OK)
        calm_jinja_render(ctx, jinja, variables, &text);
    if (ctx->status == CALM_OK)
        calm_json_set_bytes(answer, "text", text.data ? text.data : "", text.length);
    else
        calm_json_set_string(answer, "error", ctx->message);
    calm_ctx_clear_failure(ctx);
    return answer;
}

int main(int argc, char **argv)
{
    CALM_SCOPED_ARENA(out);
    CALM_SCOPED_ARENA(scratch);
    calm_ctx ctx;
    calm_jinja *jinja;
    char *text, *line = NULL;
    size_t n, room = 0;
    calm_ctx_init(&ctx, &out, &scratch);
    if (argc != 2 || calm_read_file(&ctx, argv[1], (size_t)1 << 24, &text, &n) != CALM_OK)
        return 2;
    calm_jinja_new(&ctx, argv[1], text, n, &jinja);
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        CALM_SCOPED_TEXT(written);
        CALM_SCOPED_JSON(answer);
        if (jinja)
            answer = render(&ctx, jinja, line, (size_t)length);
        else
            answer = CALM_OBJECT(CALM_KV("error", (const char *)ctx.message));
        calm_ctx quiet;
        calm_ctx_init(&quiet, &out, &scratch);
        if (calm_json_write(&quiet, answer, 0, &written) != CALM_OK)
            return 1;
        printf("%s\n", written.data);
    }
    free(line);
    calm_jinja_free(jinja);
    return 0;
}
