/* calm recipe: write, show, check and list recipes. */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/recipe_check.h"
#include "cli/recipe_file.h"
#include "cli/table.h"
#include "ptq/base/file.h"
#include "ptq/base/sha256.h"

static const calm_option recipe_table[] = {
    CALM_QUANTIZE_OPTIONS("init: recipe to write (default: printed)"),
    {.name = "force",
     .help = "init: replace the recipe",
     .offset = offsetof(calm_quantize_options, force),
     .type = CALM_OPTION_BOOL,
     .key = 'f'},
    {.name = "json",
     .help = "check and list: print JSON",
     .offset = offsetof(calm_quantize_options, json),
     .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(calm_quantize_options),
    {0},
};

/* ---- init ---- */

static calm_status write_recipe(calm_ctx *ctx, const calm_quantize_options *o, const calm_json *document)
{
    calm_text text;
    if (!o->output)
        return calm_json_print(ctx, document);
    if (calm_path_exists(o->output) && !o->force)
        return calm_fail(ctx, CALM_EEXIST, "%s: exists already; give another --output, or --force to replace it", o->output);
    calm_text_init(&text);
    calm_status status = calm_json_write(ctx, document, 2, &text);
    calm_text_append(&text, "\n", 1);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = calm_write_file(ctx, o->output, text.data, text.length);
    calm_text_clear(&text);
    return status;
}

static calm_status init(calm_ctx *ctx, const calm_quantize_options *given)
{
    calm_quantize_options opts = *given;
    calm_json_fault faults[CALM_SCHEMA_FAULTS];
    calm_json *document;
    size_t n = 0;
    CALM_TRY(calm_quantize_read_recipe(ctx, &opts));
    CALM_TRY(calm_recipe_check_names(ctx, &opts, faults, &n));
    if (n)
        return calm_fail(ctx, CALM_EARG, "%s", faults[0].message);
    CALM_TRY(calm_recipe_file_json(ctx, &opts, &document));
    calm_status status = calm_recipe_file_check(ctx, "the recipe of these flags", document);
    if (status == CALM_OK)
        status = write_recipe(ctx, &opts, document);
    calm_json_free(document);
    return status;
}

/* ---- show ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool decides(const char *name)
{
    const size_t n = strlen(name);
    return name[0] != '.' && ((n > 12 && strcmp(name + n - 12, ".safetensors") == 0) || strcmp(name, "config.json") == 0 ||
                              strcmp(name, "tokenizer.json") == 0 || strcmp(name, "model.safetensors.index.json") == 0);
}

/* Names of the files of a model that decide a result, sorted, in ctx->out. */
static calm_status list_files(calm_ctx *ctx, const char *folder, const char ***names, size_t *n)
{
    DIR *dir = opendir(folder);
    char *name;
    size_t room = 0;
    if (!dir)
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", folder);
    while (readdir(dir))
        room++;
    rewinddir(dir);
    calm_status status = CALM_NEW(ctx, ctx->out, *names, room + 1);
    *n = 0;
    for (struct dirent *entry; status == CALM_OK && *n < room && (entry = readdir(dir));) {
        if (!decides(entry->d_name))
            continue;
        status = calm_strf(ctx, ctx->out, &name, "%s", entry->d_name);
        (*names)[(*n)++] = name;
    }
    closedir(dir);
    if (status == CALM_OK)
        qsort(*names, *n, sizeof **names, compare_names);
    return status;
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
    const char **names;
    size_t n = 0;
    calm_json *model = calm_json_new_object();
    calm_status status = list_files(ctx, recipe->model.dir, &names, &n);
    for (size_t i = 0; status == CALM_OK && i < n; i++) {
        char *path;
        status = calm_path_join(ctx, ctx->out, &path, recipe->model.dir, names[i]);
        if (status == CALM_OK)
            status = add_digest(ctx, model, names[i], path);
    }
    calm_json_set(digests, "model", model);
    CALM_TRY(status);
    CALM_TRY(add_digest(ctx, digests, "calibration", recipe->calib_path));
    return recipe->eval_path ? add_digest(ctx, digests, "evaluation", recipe->eval_path) : CALM_OK;
}

static calm_status show(calm_ctx *ctx, const calm_quantize_options *given, const char *word)
{
    calm_quantize_options opts = *given;
    calm_recipe recipe;
    opts.recipe_file = word;
    CALM_TRY(calm_quantize_read_recipe(ctx, &opts));
    CALM_TRY(calm_quantize_resolve(ctx, &opts, &recipe));
    calm_json *root = calm_recipe_json(&recipe), *digests = calm_json_new_object();
    calm_status status = add_digests(ctx, &recipe, digests);
    calm_json_set(root, "digests", digests);
    if (status == CALM_OK)
        status = calm_json_print(ctx, root);
    calm_json_free(root);
    return status;
}

/* ---- check ---- */

/* Faults of one file, a line and a row each. */
static calm_status check_one(calm_ctx *ctx, const char *word, bool json, calm_json *rows, size_t *faulty)
{
    calm_json_fault *faults, unread;
    char *path = NULL, said[CALM_MESSAGE_MAX];
    size_t n = 0;
    calm_status status = calm_recipe_file_find(ctx, word, &path);
    if (status == CALM_OK)
        status = calm_recipe_check_file(ctx, path, &faults, &n);
    if (status == CALM_ENOMEM)
        return status;
    if (status != CALM_OK) {    /* not JSON, no such file: a fault of this one, the others are checked too */
        memcpy(said, ctx->message, sizeof said);
        calm_ctx_forgive(ctx);
        unread = (calm_json_fault){"", said};
        faults = &unread;
        n = 1;
    }
    for (size_t i = 0; i < n; i++) {
        calm_json *row = calm_json_new_object();
        const bool named = strstr(faults[i].message, word) == faults[i].message || (path && strstr(faults[i].message, path));
        calm_json_set_string(row, "recipe", word);
        calm_json_set_string(row, "pointer", faults[i].pointer);
        calm_json_set_string(row, "fault", faults[i].message);
        calm_json_add(rows, row);
        if (!json)
            printf("%s%s%s%s%s\n", named ? "" : word, named ? "" : ": ", faults[i].pointer, faults[i].pointer[0] ? ": " : "",
                   faults[i].message);
    }
    if (!n && !json)
        printf("%s: no fault\n", word);
    *faulty += n > 0;
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const calm_quantize_options *o, const char *const *files, size_t n)
{
    calm_json *rows = calm_json_new_array();
    size_t faulty = 0;
    calm_status status = CALM_OK;
    for (size_t i = 0; status == CALM_OK && i < n; i++)
        status = check_one(ctx, files[i], o->json, rows, &faulty);
    if (status == CALM_OK && o->json)
        status = calm_json_print(ctx, rows);
    calm_json_free(rows);
    if (status != CALM_OK || !faulty)
        return status;
    fflush(stdout);
    return calm_fail(ctx, CALM_EFORMAT, "%zu of %zu recipe%s: not as they should be", faulty, n, n == 1 ? "" : "s");
}

/* ---- list ---- */

/* "ppl 12.3456 -> 12.5000" and the like, of what the recipe says was measured. */
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
    calm_json *recipe;
    calm_text measured;
    CALM_TRY(calm_recipe_file_find(ctx, name, &path));
    CALM_TRY(calm_recipe_file_read(ctx, path, &recipe));
    calm_text_init(&measured);
    print_measured(calm_json_get(recipe, "measured"), &measured);
    const calm_json *model = calm_json_get(recipe, "model");
    calm_table_text(rows, name);
    calm_table_text(rows, calm_json_string(model, calm_json_string(calm_json_get(model, "name"), NULL)));
    calm_table_text(rows, measured.data);
    calm_table_text(rows, calm_json_string(calm_json_get(recipe, "description"), NULL));
    calm_text_clear(&measured);
    calm_json_free(recipe);
    return CALM_OK;
}

static calm_status list(calm_ctx *ctx, const calm_quantize_options *o)
{
    const char **names;
    calm_table table;
    calm_json *json = NULL;
    size_t n;
    CALM_TRY(calm_recipe_file_shipped(ctx, &names, &n));
    calm_table_init(&table);
    calm_table_column(&table, "recipe", CALM_ALIGN_LEFT);
    calm_table_column(&table, "model", CALM_ALIGN_LEFT);
    calm_table_column(&table, "measured", CALM_ALIGN_LEFT);
    calm_table_column(&table, "description", CALM_ALIGN_LEFT);
    calm_status status = CALM_OK;
    for (size_t i = 0; status == CALM_OK && i < n; i++)
        status = add_recipe(ctx, names[i], &table);
    if (status == CALM_OK && !o->json)
        status = calm_table_print(ctx, &table, stdout);
    else if (status == CALM_OK)
        status = calm_table_json(ctx, &table, &json);
    if (status == CALM_OK && json)
        status = calm_json_print(ctx, json);
    calm_json_free(json);
    calm_table_clear(&table);
    return status;
}

/* ---- the command ---- */

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    static const char *const verbs[] = {"init", "show", "check", "list"};
    const calm_quantize_options *o = opts;
    const char *verb = args[0];
    const size_t n_verbs = sizeof verbs / sizeof *verbs;
    size_t i = 0;
    while (i < n_verbs && strcmp(verbs[i], verb) != 0)
        i++;
    if (i == n_verbs) {
        const char *near = calm_nearest(verb, verbs, n_verbs);
        return calm_fail(ctx, CALM_EARG, "calm recipe %s: expected init, show, check or list%s%s%s", verb,
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (i == 1 ? n_args != 2 : i == 2 ? n_args < 2 : n_args != 1)
        return calm_fail(ctx, CALM_EARG, "calm recipe %s: expected %s; see calm recipe --help", verb,
                         i == 1 ? "one recipe" : i == 2 ? "recipes" : "no more words");
    if (i == 0)
        return init(ctx, o);
    if (i == 1)
        return show(ctx, o, args[1]);
    return i == 2 ? check(ctx, o, args + 1, n_args - 1) : list(ctx, o);
}

const calm_command calm_cmd_recipe = {
    .name = "recipe",
    .summary = "write, show, check and list recipes of quantization runs",
    .arguments = "init | show RECIPE | check RECIPE... | list",
    .description =
        "A recipe is a JSON file that says what `calm quantize --recipe` does: model, calibration, schemes, algorithms, "
        "choice, evaluation, and gates that the result must hold.  init writes one from flags of quantize; show prints it "
        "resolved, with the digests of its inputs (the model must be here); check compares it with "
        "recipes/recipe.schema.json and finds unknown names; list shows those that come with calm.",
    .examples = "  calm recipe list\n"
                "  calm recipe init --model qwen --bits 4 --gate 'ppl_ratio <= 1.05' -o my.json\n"
                "  calm recipe check my.json\n"
                "  calm quantize --recipe my.json --samples 64       (a flag counts more than the recipe)\n",
    .options = recipe_table,
    .opts_size = sizeof(calm_quantize_options),
    .min_args = 1,
    .max_args = 1000,
    .run = run,
};
