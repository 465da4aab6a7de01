#include "tests/tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const tool *it)
{
    printf("%s %s [--OPTION VALUE ...]\n%s\n\n", it->name, it->synopsis, it->what);
    for (const calm_option *option = it->table; option->name; option++) {
        const char *value = option->metavar ? option->metavar : option->values ? option->values : "";
        printf("  --%s%s%s\n        %s%s%s%s\n", option->name, *value ? " " : "", value, option->help,
               option->fallback ? " [" : "", option->fallback ? option->fallback : "", option->fallback ? "]" : "");
    }
}

static bool stands_alone(const calm_option *table, const char *name)
{
    for (const calm_option *option = table; option->name; option++)
        if (strcmp(option->name, name) == 0)
            return option->type == CALM_OPTION_BOOL;
    return false;
}

static calm_status parse(calm_ctx *ctx, const tool *it, int argc, char **argv)
{
    CALM_TRY(calm_options_init(ctx, it->table, it->args));
    for (int i = 1; i < argc; i++) {
        const bool option = strncmp(argv[i], "--", 2) == 0;
        const char *name = option ? argv[i] + 2 : "", *value = "true";
        const bool alone = stands_alone(it->table, name);
        if (!option || (!alone && i + 1 == argc))
            return calm_fail(ctx, CALM_EARG, "%s: expected --OPTION VALUE; --help explains", argv[i]);
        if (!alone)
            value = argv[++i];
        CALM_TRY(calm_option_set(ctx, it->table, it->args, "arguments", name, value));
    }
    return CALM_OK;
}

int tool_main(const tool *it, int argc, char **argv)
{
    calm_arena out, scratch;
    calm_ctx ctx;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return print_help(it), EXIT_SUCCESS;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    calm_status status = parse(&ctx, it, argc, argv);
    if (status == CALM_OK)
        status = it->run(&ctx, it->args);
    if (status != CALM_OK)
        fprintf(stderr, "%s: %s\n", it->name, ctx.message);
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return status == CALM_OK ? EXIT_SUCCESS : status == CALM_EARG ? 2 : EXIT_FAILURE;
}
