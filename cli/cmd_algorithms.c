/* calm algorithms: the named algorithms and what they are made of. */
#include <stddef.h>
#include <stdio.h>

#include "algorithms/algorithm.h"
#include "cli/command.h"
#include "ptq/io/json.h"

typedef struct options {
    calm_common common;
    bool json;
} options;

static const calm_option table[] = {
    {.name = "json", .help = "print {\"algorithms\": [{name, chain, canonical, summary, reference}]}",
     .offset = offsetof(options, json), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

static calm_status print_json(calm_ctx *ctx, const calm_preset *presets, size_t n)
{
    calm_json *root = calm_json_new_object(), *list = calm_json_new_array();
    calm_text text;
    calm_status status = CALM_OK;
    for (size_t i = 0; i < n && status == CALM_OK; i++) {
        calm_algorithm *algorithm;
        calm_json *row = calm_json_new_object();
        status = calm_algorithm_parse(ctx, presets[i].name, &algorithm);
        calm_json_set_string(row, "name", presets[i].name);
        calm_json_set_string(row, "chain", presets[i].chain);
        calm_json_set_string(row, "canonical", status == CALM_OK ? calm_algorithm_canonical(algorithm) : NULL);
        calm_json_set_string(row, "summary", presets[i].summary);
        calm_json_set_string(row, "reference", presets[i].reference);
        calm_json_add(list, row);
    }
    calm_json_set(root, "algorithms", list);
    calm_text_init(&text);
    if (status == CALM_OK)
        status = calm_json_write(ctx, root, 2, &text);
    if (status == CALM_OK)
        printf("%s\n", text.data);
    calm_text_clear(&text);
    calm_json_free(root);
    return status;
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    (void)args;
    (void)n_args;
    if (o->json)
        return print_json(ctx, presets, n);
    printf("%-18s %-46s %s\n", "name", "chain", "summary");
    for (size_t i = 0; i < n; i++)
        printf("%-18s %-46s %s\n", presets[i].name, presets[i].chain, presets[i].summary);
    return CALM_OK;
}

const calm_command calm_cmd_algorithms = {
    .name = "algorithms",
    .summary = "list the named algorithms and their chains",
    .description = "Lists the named algorithms.  A chain may be given wherever a name may.",
    .examples = "  calm algorithms\n"
                "  calm quantize --model qwen --bits 4 --algorithms 'rtn,smooth(alpha=0.75)+hls+gptq'\n",
    .options = table,
    .opts_size = sizeof(options),
    .run = run,
};
