/* json_shape [all]: reads JSON from standard input and prints one line per member, "path: type".  A case can so test
 * the structure of a report without its numbers.  Only the first element of an array is shown; with the word `all`
 * every element is.  The exit status is 1 when the input is not JSON. */
#include <stdio.h>
#include <string.h>

#include "ptq/io/json.h"

#define INPUT_MAX ((size_t)16 << 20)

static const char *const words[] = {[CALM_JSON_NULL] = "null",     [CALM_JSON_BOOL] = "bool",
                                    [CALM_JSON_INT] = "int",       [CALM_JSON_REAL] = "real",
                                    [CALM_JSON_STRING] = "string", [CALM_JSON_ARRAY] = "array",
                                    [CALM_JSON_OBJECT] = "object"};

static void print_shape(const char *path, const calm_json *value, bool all)
{
    const calm_json_type type = calm_json_typeof(value);
    const char *key;
    const calm_json *member;
    char name[1024];
    if (path[0])
        printf("%s: %s\n", path, words[type]);
    for (void *iter = NULL; type == CALM_JSON_OBJECT && calm_json_next(value, &iter, &key, &member);) {
        snprintf(name, sizeof name, "%s%s%s", path, path[0] ? "." : "", key);
        print_shape(name, member, all);
    }
    snprintf(name, sizeof name, "%s[]", path);
    for (size_t i = 0; type == CALM_JSON_ARRAY && i < (all ? calm_json_size(value) : calm_json_size(value) > 0); i++)
        print_shape(name, calm_json_at(value, i), all);
}

int main(int argc, char **argv)
{
    calm_arena out, scratch;
    calm_ctx ctx;
    calm_json *root;
    char *text;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    calm_status status = CALM_NEW(&ctx, &out, text, INPUT_MAX);
    if (status == CALM_OK)
        status = calm_json_parse(&ctx, "standard input", text, fread(text, 1, INPUT_MAX, stdin), &root);
    if (status == CALM_OK) {
        print_shape("", root, argc > 1 && strcmp(argv[1], "all") == 0);
        calm_json_free(root);
    } else {
        fprintf(stderr, "json_shape: %s\n", ctx.message);
    }
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return status != CALM_OK;
}
