/* calm algorithms: lists the named algorithms and the parts of chains. */
#include <stddef.h>
#include <stdio.h>

#include "algorithms/part.h"
#include "cli/command.h"
#include "cli/print.h"

typedef struct options {
    calm_common common;
    bool json;
} options;

static const calm_option table[] = {
    CALM_OPT("json", json, BOOL, "print {\"algorithms\": [{name, chain, canonical, summary, reference}], parts: "
             "[{kind, name, revision, summary, reference}]}"),
    CALM_OPT_COMMON,
    {0},
};

static calm_json *parts_json(void)
{
    size_t n;
    const calm_part *const *parts = calm_parts(&n);
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < n; i++)
        calm_json_add(list, CALM_OBJECT(CALM_KV("kind", calm_part_kind_name(parts[i]->kind)),
                                        CALM_KV("name", parts[i]->name),
                                        CALM_KV("revision", (long long)parts[i]->revision),
                                        CALM_KV("summary", parts[i]->summary),
                                        CALM_KV("reference", parts[i]->reference)));
    return list;
}

static calm_status print_json(calm_ctx *ctx, const calm_preset *presets, size_t n)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < n && ctx->status == CALM_OK; i++) {
        calm_algorithm *algorithm;
        const bool parsed = calm_algorithm_parse(ctx, presets[i].name, &algorithm) == CALM_OK;
        calm_json_add(list, CALM_OBJECT(CALM_KV("name", presets[i].name), CALM_KV("chain", presets[i].chain),
                                        CALM_KV("canonical", parsed ? calm_algorithm_canonical(algorithm) : NULL),
                                        CALM_KV("summary", presets[i].summary),
                                        CALM_KV("reference", presets[i].reference)));
    }
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("algorithms", list), CALM_KV("parts", parts_json())));
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    if (o->json)
        return print_json(ctx, presets, n);
    CALM_SCOPED_TABLE(names);
    CALM_SCOPED_TABLE(list);
    calm_table_columns(&names, "name|chain|summary");
    for (size_t i = 0; i < n; i++)
        CALM_CELLS(&names, CALM_TEXT(presets[i].name), CALM_TEXT(presets[i].chain), CALM_TEXT(presets[i].summary));
    CALM_TRY(calm_print_table(ctx, &names, stdout));
    const calm_part *const *parts = calm_parts(&n);
    printf("\n");
    calm_table_columns(&list, "part|name|summary");
    for (size_t i = 0; i < n; i++)
        CALM_CELLS(&list, CALM_TEXT(calm_part_kind_name(parts[i]->kind)), CALM_TEXT(parts[i]->name),
                   CALM_TEXT(parts[i]->summary));
    return calm_print_table(ctx, &list, stdout);
}

const calm_command calm_cmd_algorithms = {
    .name = "algorithms",
    .summary = "list the named algorithms, their chains, and the parts of chains",
    .description =
        "Lists the named algorithms, and the parts of chains: transform* + grid + rounding + refit*.  Wherever an "
        "option takes a name, it also takes a chain.",
    .examples = "  calm algorithms\n"
                "  calm quantize --model qwen --bits 4 --algorithms 'rtn,smooth(alpha=0.75)+hls+gptq'\n",
    CALM_COMMAND_PARTS,
};
