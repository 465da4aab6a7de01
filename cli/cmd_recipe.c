/* calm recipe: writes, shows, checks and lists recipes. */
#include <stddef.h>
#include <string.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/base/sha256.h"
#include "ptq/recipe/shipped.h"
#include "ptq/lock/lock.h"
#include "ptq/finish/finish.h"

typedef struct options {
    calm_common common;
    calm_recipe_spec spec;
    const char *recipe_file, *output;
    bool force, json;
} options;

static const calm_option table[] = {
    CALM_OPT("recipe", recipe_file, STRING, "init: recipe with values for all options not given here: a file, or the "
             "name of a shipped recipe", .metavar = "FILE", .basic = true),
    CALM_OPT("output", output, STRING, "init: recipe to write (default: print it)", .metavar = "FILE", .key = 'o',
             .basic = true),
    CALM_OPT("force", force, BOOL, "init: replace the recipe", .key = 'f', .basic = true),
    CALM_OPT("json", json, BOOL, "check and list: print JSON", .basic = true),
    CALM_OPT_COMMON,
    {0},
};

/* ---- init ---- */

static calm_status init(calm_ctx *ctx, const options *o)
{
    calm_recipe_spec spec = o->spec;
    calm_recipe recipe;
    calm_faults faults = {.n = 0};
    CALM_SCOPED_JSON(document);
    if (o->recipe_file)
        CALM_TRY(calm_recipe_file_apply(ctx, o->recipe_file, &spec));
    CALM_TRY(calm_recipe_check(ctx, &spec, &recipe, &faults));
    if (faults.n)
        return calm_fail(ctx, CALM_EARG, "%s", faults.of[0].message);
    CALM_TRY(calm_spec_write(ctx, &spec, &document));
    CALM_TRY(calm_document_check(ctx, "the recipe of these flags", document));
    if (!o->output)
        return calm_print_json(ctx, calm_json_copy(document));
    const calm_words inputs = {(const char *[]){recipe.model.dir}, 1};
    CALM_TRY(calm_output_file(ctx, o->output, o->force, "{\n  \"calm_recipe\"", &inputs));
    CALM_TRY(calm_make_parent(ctx, o->output));
    return calm_json_save(ctx, o->output, document);
}

/* ---- show ---- */

/* Can this file of a model change a result? */
static bool decides(const char *name)
{
    const size_t n = strlen(name);
    return !strchr(name, '/')
           && ((n > 12 && strcmp(name + n - 12, ".safetensors") == 0) || strcmp(name, "config.json") == 0
               || strcmp(name, "tokenizer.json") == 0 || strcmp(name, "model.safetensors.index.json") == 0);
}

static calm_status add_digest(calm_ctx *ctx, calm_json *object, const char *key, const char *path)
{
    char digest[CALM_SHA256_HEX];
    CALM_TRY(calm_sha256_file(ctx, path, digest));
    calm_json_set_string(object, key, digest);
    return CALM_OK;
}

/* {"model": {file: SHA-256}, "calibration": SHA-256, "evaluation": SHA-256} */
static calm_status add_digests(calm_ctx *ctx, const calm_recipe *recipe, calm_json *digests)
{
    const char **names, *path;
    char texts[CALM_SHA256_HEX];
    size_t n;
    calm_json *model = calm_json_new_object();
    calm_json_set(digests, "model", model);
    if (calm_is_file(recipe->model.dir)) {
        n = 0;
        CALM_TRY(add_digest(ctx, model, calm_path_name(recipe->model.dir), recipe->model.dir));
    } else {
        CALM_TRY(calm_outputs_files(ctx, recipe->model.dir, &names, &n));
    }
    for (size_t i = 0; i < n; i++) {
        if (!decides(names[i]))
            continue;
        CALM_TRY(calm_path_join(ctx, ctx->out, &path, recipe->model.dir, names[i]));
        CALM_TRY(add_digest(ctx, model, names[i], path));
    }
    CALM_TRY(calm_recipe_text_digest(ctx, recipe, texts));
    calm_json_set_string(digests, "calibration", texts);
    return recipe->eval_path ? add_digest(ctx, digests, "evaluation", recipe->eval_path) : CALM_OK;
}

/* Shows a recipe with every value; fetches the model if it is missing. */
static calm_status show(calm_ctx *ctx, const options *o, const char *word)
{
    calm_recipe_spec spec = o->spec;
    calm_recipe recipe;
    calm_progress progress;
    CALM_TRY(calm_recipe_file_apply(ctx, word, &spec));
    const calm_events events = calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_recipe_resolve(ctx, &spec, &events, &recipe);
    CALM_TRY(calm_progress_end(ctx, &progress));
    calm_json *digests = calm_json_new_object();
    add_digests(ctx, &recipe, digests);
    return calm_print_json(ctx, CALM_EXTEND(calm_recipe_json(&recipe), CALM_KV("digests", digests)));
}

/* ---- check ---- */

/* Prints the faults of one file, or appends them to `rows`; counts a file with faults in *faulty. */
static calm_status check_one(calm_ctx *ctx, const char *word, bool json, calm_json *rows, size_t *faulty)
{
    calm_faults faults = {.n = 0};
    char *path = NULL;
    if (calm_recipe_file_find(ctx, word, &path) == CALM_OK)
        calm_recipe_file_faults(ctx, path, &faults);
    /* A file that is missing or no JSON counts as a fault; the other files are checked all the same. */
    CALM_TRY(calm_fault_note(ctx, ctx->status, NULL, &faults));
    for (size_t i = 0; i < faults.n; i++) {
        const calm_document_fault *fault = &faults.of[i];
        const bool named = strstr(fault->message, word) == fault->message || (path && strstr(fault->message, path));
        calm_json_add(rows, CALM_OBJECT(CALM_KV("recipe", word), CALM_KV("pointer", fault->pointer),
                                        CALM_KV("fault", fault->message)));
        if (!json)
            printf("%s%s%s%s%s\n", named ? "" : word, named ? "" : ": ", fault->pointer, fault->pointer[0] ? ": " : "",
                   fault->message);
    }
    if (!faults.n && !json)
        printf("%s: no fault\n", word);
    *faulty += faults.n > 0;
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const options *o, const char *const *files, size_t n)
{
    calm_json *rows = calm_json_new_array();
    size_t faulty = 0;
    for (size_t i = 0; ctx->status == CALM_OK && i < n; i++)
        check_one(ctx, files[i], o->json, rows, &faulty);
    if (o->json)
        calm_print_json(ctx, rows);
    else
        calm_json_free(rows);
    if (ctx->status != CALM_OK || !faulty)
        return ctx->status;
    fflush(stdout);
    return calm_fail(ctx, CALM_EFORMAT, "faults in %zu of %zu recipe%s", faulty, n, n == 1 ? "" : "s");
}

/* ---- list ---- */

/* Appends "ppl 12.346, kl 0.012": the figures of a recipe's "measured". */
static void print_measured(const calm_json *measured, calm_text *out)
{
    static const char *const keys[] = {"ppl_float", "ppl", "ppl_ratio", "kl", "cosine", "bits", "size_ratio"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const calm_json *value = calm_json_get(measured, keys[i]);
        if (calm_json_typeof(value) == CALM_JSON_REAL || calm_json_typeof(value) == CALM_JSON_INT)
            calm_text_printf(out, "%s%s %.5g", out->length ? ", " : "", keys[i], calm_json_number(value, 0));
    }
}

static calm_status add_recipe(calm_ctx *ctx, const char *name, calm_table *rows)
{
    char *path;
    CALM_SCOPED_JSON(recipe);
    CALM_SCOPED_TEXT(measured);
    CALM_TRY(calm_recipe_file_find(ctx, name, &path));
    CALM_TRY(calm_document_read(ctx, path, &recipe));
    print_measured(calm_json_get(recipe, "measured"), &measured);
    const calm_json *model = calm_json_get(recipe, "model");
    CALM_CELLS(rows, CALM_TEXT(name),
               CALM_TEXT(calm_json_string(model, calm_json_string(calm_json_get(model, "name"), NULL))),
               CALM_TEXT(measured.data), CALM_TEXT(calm_json_string(calm_json_get(recipe, "description"), NULL)));
    return CALM_OK;
}

static calm_status list(calm_ctx *ctx, const options *o)
{
    const char **names;
    CALM_SCOPED_TABLE(rows);
    size_t n;
    CALM_TRY(calm_recipe_file_shipped(ctx, &names, &n));
    calm_table_columns(&rows, "recipe|model|measured|description");
    for (size_t i = 0; i < n && ctx->status == CALM_OK; i++)
        add_recipe(ctx, names[i], &rows);
    return o->json ? calm_print_json(ctx, calm_rows_json(ctx, &rows)) : calm_print_table(ctx, &rows, stdout);
}

/* ---- schema ---- */

static calm_status print_schema(calm_ctx *ctx)
{
    calm_json *schema = calm_document_schema();
    if (!schema)
        return calm_fail(ctx, CALM_ENOMEM, "recipe schema: out of memory");
    return calm_print_json(ctx, schema);
}

/* ---- the command ---- */

static calm_status run(calm_ctx *ctx, const void *opts)
{
    enum { INIT, SHOW, CHECK, LIST, SCHEMA, N_VERBS };
    static const char *const verbs[] = {"init", "show", "check", "list", "schema"};
    const options *o = opts;
    const calm_words *args = &o->common.args;
    const char *verb = args->of[0];
    size_t i = 0;
    while (i < N_VERBS && strcmp(verbs[i], verb) != 0)
        i++;
    if (i == N_VERBS) {
        const char *near = calm_nearest(verb, verbs, N_VERBS);
        return calm_fail(ctx, CALM_EARG, "calm recipe %s: expected init, show, check, list or schema%s%s%s", verb,
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (i == SHOW ? args->n != 2 : i == CHECK ? args->n < 2 : args->n != 1)
        return calm_fail(ctx, CALM_EARG, "calm recipe %s: expected %s; see calm recipe --help", verb,
                         i == SHOW ? "one recipe" : i == CHECK ? "recipes" : "no more words");
    return i == INIT    ? init(ctx, o)
           : i == SHOW  ? show(ctx, o, args->of[1])
           : i == CHECK ? check(ctx, o, args->of + 1, args->n - 1)
           : i == LIST  ? list(ctx, o)
                        : print_schema(ctx);
}

const calm_command calm_cmd_recipe = {
    .name = "recipe",
    .summary = "write, show, check and list recipes of quantization runs",
    .arguments = "init | show RECIPE | check RECIPE... | list | schema",
    .description =
        "A recipe is a JSON file that says what `calm quantize --recipe` does: model, calibration, schemes, "
        "algorithms, choice, evaluation, and gates that the result must hold.  init writes a recipe from flags of "
        "quantize; show prints it with all values filled in and the digests of its inputs (the model must be on "
        "this machine); check finds faults in its structure, its names and, if the model is on this machine, its "
        "units; list shows the recipes that come with calm; schema prints the JSON Schema of recipes.",
    .examples = "  calm recipe list\n"
                "  calm recipe init --model qwen --bits 4 --gate 'ppl_ratio <= 1.05' -o my.json\n"
                "  calm recipe check my.json\n"
                "  calm quantize --recipe my.json --samples 64       (a flag replaces the recipe's value)\n",
    .spec = CALM_SPEC_ALL,
    .spec_at = offsetof(options, spec),
    .min_args = 1,
    .max_args = 1000,
    CALM_COMMAND_PARTS,
};
