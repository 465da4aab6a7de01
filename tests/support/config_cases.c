/* config.json with one key changed. */
#include "tests/support/config_cases.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static calm_json *edited(const char *family, const char *key, const char *value)
{
    const tiny_model model = tiny_of(family);
    const char *dir = test_directory(), *name;
    calm_json *root, *parsed, *copy = calm_json_new_object();
    const calm_json *member;
    tiny_model_write_config(&model, dir);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &root));
    for (void *iter = NULL; calm_json_next(root, &iter, &name, &member);)
        if (strcmp(name, key) != 0)
            calm_json_set(copy, name, calm_json_copy(member));
    calm_json_free(root);
    if (value) {
        const char *wrapped = test_format("[%s]", value);
        ck_ok(calm_json_parse(ctx, value, wrapped, strlen(wrapped), &parsed));
        calm_json_set(copy, key, calm_json_copy(calm_json_at(parsed, 0)));
        calm_json_free(parsed);
    }
    return copy;
}

calm_config config_with(const char *family, const char *key, const char *value)
{
    calm_config config;
    calm_json *root = edited(family, key, value);
    const calm_status status = calm_config_read(ctx, "dir/config.json", root, &config);
    ck_assert_msg(status == CALM_OK, "%s, %s = %s: %s", family, key, value ? value : "absent", ctx->message);
    calm_json_free(root);
    return config;
}

void config_refuses(const char *family, const char *key, const char *value, calm_status expected, const char *words)
{
    calm_config config;
    calm_json *root = edited(family, key, value);
    const calm_status status = calm_config_read(ctx, "dir/config.json", root, &config);
    ck_assert_msg(status == expected, "%s, %s = %s: %s (%s)", family, key, value ? value : "absent",
                  calm_status_name(status), ctx->message);
    ck_assert_msg(strstr(ctx->message, "dir/config.json"), "%s: no file in \"%s\"", key, ctx->message);
    ck_assert_msg(strstr(ctx->message, words), "%s: \"%s\" lacks \"%s\"", key, ctx->message, words);
    calm_ctx_clear_failure(ctx);
    calm_json_free(root);
}
