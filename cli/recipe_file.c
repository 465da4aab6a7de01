/* Recipe files and options of `calm quantize`: one table, read in both directions. */
#include "cli/recipe_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calm_recipe_schema.h"
#include "cli/recipe_chain.h"
#include "ptq/base/file.h"
#include "ptq/io/json_schema.h"

typedef enum place_kind {
    PLACE_VALUE,         /* one value, of the option's type                    */
    PLACE_LIST,          /* an array of strings: "a,b"                         */
    PLACE_ALGORITHMS,    /* the same; an item may be an object with options    */
    PLACE_NUMBERS,       /* a number, or an array of them: "2.5,3"             */
    PLACE_RANGE,         /* [first, last]: "0-3"                               */
    PLACE_PINS,          /* an object: "UNIT=NAME,UNIT=NAME"                   */
    PLACE_NOT            /* false in the place of an object                    */
} place_kind;

/* A place of the document, and the option that it is. */
typedef struct place {
    const char *section, *key;    /* key NULL: the member of the document itself */
    const char *option;
    place_kind kind;
    const char *yields_to;        /* options, joined by ' ', that take its place too when they are given */
} place;

static const place places[] = {
    {"calibration", "text", "calib", PLACE_VALUE, "tokens"},
    {"calibration", "tokens", "tokens", PLACE_VALUE, "calib special"},
    {"calibration", "samples", "samples", PLACE_VALUE, NULL},
    {"calibration", "seqlen", "seqlen", PLACE_VALUE, NULL},
    {"calibration", "seed", "seed", PLACE_VALUE, NULL},
    {"calibration", "special", "special", PLACE_VALUE, "tokens"},
    {"calibration", "stream", "stream", PLACE_VALUE, NULL},
    {"calibration", "prefix", "prefix", PLACE_VALUE, NULL},
    {"calibration", "score_samples", "score-samples", PLACE_VALUE, NULL},
    {"calibration", "guard_samples", "guard-samples", PLACE_VALUE, NULL},
    {"schemes", NULL, "scheme", PLACE_LIST, "bits"},
    {"scale_dtype", NULL, "scale-dtype", PLACE_VALUE, NULL},
    {"act_rule", NULL, "act-rule", PLACE_VALUE, NULL},
    {"algorithms", NULL, "algorithms", PLACE_ALGORITHMS, NULL},
    {"choice", "unit", "unit", PLACE_VALUE, NULL},
    {"choice", "metric", "metric", PLACE_VALUE, NULL},
    {"choice", "rule", "rule", PLACE_VALUE, NULL},
    {"choice", "budget", "budget", PLACE_NUMBERS, NULL},
    {"choice", "pins", "pin", PLACE_PINS, NULL},
    {"choice", "forbid", "forbid", PLACE_LIST, NULL},
    {"choice", "probe_samples", "probe-samples", PLACE_VALUE, NULL},
    {"choice", "effort", "effort", PLACE_VALUE, NULL},
    {"choice", "keep_hybrid", "keep-hybrid", PLACE_VALUE, NULL},
    {"choice", "expert_tokens", "expert-tokens", PLACE_VALUE, NULL},
    {"blocks", NULL, "blocks", PLACE_RANGE, NULL},
    {"formats", NULL, "format", PLACE_LIST, NULL},
    {"export", "max_shard_size", "max-shard-size", PLACE_VALUE, NULL},
    {"export", "gguf_pre", "gguf-pre", PLACE_VALUE, NULL},
    {"export", "gguf_float", "gguf-float", PLACE_VALUE, NULL},
    {"target", NULL, "target", PLACE_VALUE, NULL},
    {"evaluation", NULL, "no-eval", PLACE_NOT, "eval-text eval-samples"},
    {"evaluation", "text", "eval-text", PLACE_VALUE, "no-eval"},
    {"evaluation", "samples", "eval-samples", PLACE_VALUE, "no-eval"},
    {"gates", NULL, "gate", PLACE_LIST, NULL},
    {"kernels", NULL, "kernels", PLACE_VALUE, NULL},
};

#define N_PLACES (sizeof places / sizeof *places)

static size_t option_index(const char *name)
{
    size_t i = 0;
    while (strcmp(calm_quantize_table[i].name, name) != 0)
        i++;
    return i;
}

static void *field_of(const calm_quantize_options *opts, const calm_option *option)
{
    return (char *)(uintptr_t)opts + option->offset;
}

/* ---- which file ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Length of a shipped recipe's name, 0: the file is none. */
static size_t shipped_length(const char *file)
{
    const size_t n = strlen(file);
    if (n <= 5 || file[0] == '.' || strcmp(file + n - 5, ".json") != 0)
        return 0;
    const bool other = (n > 12 && strcmp(file + n - 12, ".schema.json") == 0) ||
                       (n > 10 && strcmp(file + n - 10, ".lock.json") == 0);
    return other ? 0 : n - 5;
}

calm_status calm_recipe_file_shipped(calm_ctx *ctx, const char ***names, size_t *n)
{
    char *folder, *name;
    size_t room = 0;
    calm_status status = CALM_OK;
    CALM_TRY(calm_recipes_path(ctx, "", &folder));
    DIR *dir = opendir(folder);
    if (!dir)
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", folder);
    while (readdir(dir))
        room++;
    rewinddir(dir);
    *n = 0;
    status = CALM_NEW(ctx, ctx->out, *names, room + 1);
    for (struct dirent *entry; status == CALM_OK && *n < room && (entry = readdir(dir));) {
        const size_t length = shipped_length(entry->d_name);
        if (!length)
            continue;
        status = calm_strf(ctx, ctx->out, &name, "%.*s", (int)length, entry->d_name);
        (*names)[(*n)++] = name;
    }
    closedir(dir);
    if (status == CALM_OK)
        qsort(*names, *n, sizeof **names, compare_names);
    return status;
}

calm_status calm_recipe_file_find(calm_ctx *ctx, const char *word, char **path)
{
    const char **names;
    size_t n;
    CALM_TRY(calm_strf(ctx, ctx->out, path, "%s", word));
    if (calm_path_exists(word) && !calm_is_directory(word))
        return CALM_OK;
    CALM_TRY(calm_recipe_file_shipped(ctx, &names, &n));
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], word) == 0) {
            CALM_TRY(calm_strf(ctx, ctx->scratch, path, "%s.json", word));
            return calm_recipes_path(ctx, *path, path);
        }
    const char *near = calm_nearest(word, names, n);
    return calm_fail(ctx, CALM_ENOTFOUND, "recipe \"%s\": no such file, and no shipped recipe has this name%s%s%s", word,
                     near ? "; did you mean " : " (calm recipe list)", near ? near : "", near ? "?" : "");
}

/* ---- reading ---- */

calm_status calm_recipe_schema_read(calm_ctx *ctx, calm_json **out)
{
    CALM_TRY(calm_json_parse(ctx, "recipe.schema.json", calm_recipe_schema, sizeof calm_recipe_schema - 1, out));
    const calm_status status = calm_json_schema_check(ctx, "recipe.schema.json", *out);
    if (status != CALM_OK) {
        calm_json_free(*out);
        *out = NULL;
    }
    return status;
}

calm_status calm_recipe_file_check(calm_ctx *ctx, const char *where, const calm_json *recipe)
{
    calm_json *schema;
    CALM_TRY(calm_recipe_schema_read(ctx, &schema));
    const calm_status status = calm_json_schema_expect(ctx, where, schema, recipe);
    calm_json_free(schema);
    return status;
}

calm_status calm_recipe_file_read(calm_ctx *ctx, const char *path, calm_json **out)
{
    CALM_TRY(calm_json_read(ctx, path, CALM_RECIPE_BYTES, out));
    const calm_status status = calm_recipe_file_check(ctx, path, *out);
    if (status != CALM_OK) {
        calm_json_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- document to option ---- */

/* Where an application stands. */
typedef struct application {
    const calm_json *recipe;
    const char *path;
    const bool *given;
    calm_quantize_options *opts;
    calm_json *overrides;
} application;

static bool is_given(const application *a, const char *option)
{
    return a->given && a->given[option_index(option)];
}

static bool any_given(const application *a, const char *options)
{
    char name[32];
    for (const char *at = options; at && *at;) {
        const size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (is_given(a, name))
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

static const calm_json *member(const calm_json *recipe, const place *at)
{
    const calm_json *section = calm_json_get(recipe, at->section);
    return at->key ? calm_json_get(section, at->key) : section;
}

/* A number or a truth value as the option's parser reads it. */
static void print_scalar(const calm_json *value, calm_text *out)
{
    switch (calm_json_typeof(value)) {
    case CALM_JSON_BOOL:
        calm_text_printf(out, "%s", calm_json_bool(value, false) ? "true" : "false");
        break;
    case CALM_JSON_INT:
        calm_text_printf(out, "%lld", (long long)calm_json_int(value, 0));
        break;
    case CALM_JSON_REAL:
        calm_text_printf(out, "%.17g", calm_json_number(value, 0));
        break;
    default:
        calm_text_printf(out, "%s", calm_json_string(value, ""));
        break;
    }
}

/* An item of a list must stay one. */
static calm_status add_item(calm_ctx *ctx, const application *a, const place *at, const char *item, calm_text *out)
{
    const char *rest = item;
    char *first;
    CALM_TRY(calm_list_next(ctx, &rest, &first));
    if (!first || *rest || strcmp(first, item) != 0)
        return calm_fail(ctx, CALM_EARG, "%s: /%s%s%s: expected one name in each item, found \"%s\"", a->path, at->section,
                         at->key ? "/" : "", at->key ? at->key : "", item);
    calm_text_printf(out, "%s%s", out->length ? "," : "", item);
    return CALM_OK;
}

static calm_status print_list(calm_ctx *ctx, const application *a, const place *at, const calm_json *value,
                              calm_text *out)
{
    for (size_t i = 0; i < calm_json_size(value); i++) {
        char *text;
        const calm_json *item = calm_json_at(value, i);
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", calm_json_string(item, "")));
        if (at->kind == PLACE_ALGORITHMS && calm_json_typeof(item) == CALM_JSON_OBJECT)
            CALM_TRY(calm_recipe_chain(ctx, a->path, item, &text));
        CALM_TRY(add_item(ctx, a, at, text, out));
    }
    return CALM_OK;
}

static calm_status print_pins(calm_ctx *ctx, const application *a, const place *at, const calm_json *value,
                              calm_text *out)
{
    const char *unit;
    const calm_json *name;
    for (void *iter = NULL; calm_json_next(value, &iter, &unit, &name);) {
        char *item;
        if (unit[strcspn(unit, "=,()")])
            return calm_fail(ctx, CALM_EARG, "%s: /choice/pins: \"%s\" is no unit's name: expected none of = , ( )",
                             a->path, unit);
        CALM_TRY(calm_strf(ctx, ctx->out, &item, "%s=%s", unit, calm_json_string(name, "")));
        CALM_TRY(add_item(ctx, a, at, item, out));
    }
    return CALM_OK;
}

/* The value of a place as text of its option. */
static calm_status print_place(calm_ctx *ctx, const application *a, const place *at, const calm_json *value,
                               calm_text *out)
{
    switch (at->kind) {
    case PLACE_VALUE:
        print_scalar(value, out);
        return CALM_OK;
    case PLACE_LIST:
    case PLACE_ALGORITHMS:
        return print_list(ctx, a, at, value, out);
    case PLACE_NUMBERS:
        if (calm_json_typeof(value) != CALM_JSON_ARRAY)
            print_scalar(value, out);
        for (size_t i = 0; calm_json_typeof(value) == CALM_JSON_ARRAY && i < calm_json_size(value); i++) {
            calm_text_printf(out, "%s", i ? "," : "");
            print_scalar(calm_json_at(value, i), out);
        }
        return CALM_OK;
    case PLACE_RANGE:
        print_scalar(calm_json_at(value, 0), out);
        calm_text_printf(out, "-");
        print_scalar(calm_json_at(value, 1), out);
        return CALM_OK;
    case PLACE_PINS:
        return print_pins(ctx, a, at, value, out);
    case PLACE_NOT:
        calm_text_printf(out, "true");
        return CALM_OK;
    }
    return CALM_OK;
}

static calm_status set_option(calm_ctx *ctx, const application *a, const place *at, const char *text)
{
    const calm_option *option = &calm_quantize_table[option_index(at->option)];
    char *owner;
    CALM_TRY(calm_strf(ctx, ctx->out, &owner, "%s: /%s%s%s", a->path, at->section, at->key ? "/" : "",
                       at->key ? at->key : ""));
    if (option->type == CALM_OPTION_STRING)    /* a list would be added to its default */
        memset(field_of(a->opts, option), 0, sizeof(char *));
    return calm_option_set(ctx, calm_quantize_table, a->opts, owner, at->option, text);
}

/* Note what the command line says instead. */
static void note_override(const application *a, const char *name)
{
    const calm_option *option = &calm_quantize_table[option_index(name)];
    const void *field = field_of(a->opts, option);
    const calm_option alone[2] = {*option, {0}};
    calm_text text;
    if (!a->overrides)
        return;
    calm_text_init(&text);
    calm_options_canonical(alone, a->opts, &text);
    if (option->type == CALM_OPTION_INT)
        calm_json_set_int(a->overrides, name, *(const long long *)field);
    else if (option->type == CALM_OPTION_BOOL)
        calm_json_set_bool(a->overrides, name, *(const bool *)field);
    else
        calm_json_set_string(a->overrides, name, text.failed ? NULL : text.data + strlen(name) + 1);
    calm_text_clear(&text);
}

static calm_status apply_place(calm_ctx *ctx, const application *a, const place *at)
{
    const calm_json *value = member(a->recipe, at);
    calm_text text;
    if (calm_json_typeof(value) == CALM_JSON_NULL || (at->kind == PLACE_NOT && calm_json_bool(value, true)))
        return CALM_OK;
    if (is_given(a, at->option) || any_given(a, at->yields_to))
        return CALM_OK;
    calm_text_init(&text);
    calm_status status = print_place(ctx, a, at, value, &text);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK && text.length)    /* an empty list names nothing */
        status = set_option(ctx, a, at, text.data);
    calm_text_clear(&text);
    return status;
}

static calm_status copy_text(calm_ctx *ctx, const calm_json *value, const char **out)
{
    char *copy;
    *out = NULL;
    if (calm_json_typeof(value) != CALM_JSON_STRING)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", calm_json_string(value, "")));
    *out = copy;
    return CALM_OK;
}

/* "qwen", or {"name", "revision", "digests"}. */
static calm_status apply_model(calm_ctx *ctx, const application *a)
{
    const calm_json *model = calm_json_get(a->recipe, "model");
    const bool object = calm_json_typeof(model) == CALM_JSON_OBJECT;
    const calm_json *digests = calm_json_get(model, "digests"), *digest;
    calm_demanded *demanded = &a->opts->demanded;
    const char *name, *revision, *file;
    char *text;
    CALM_TRY(copy_text(ctx, object ? calm_json_get(model, "name") : model, &name));
    CALM_TRY(copy_text(ctx, calm_json_get(model, "revision"), &revision));
    if (!name || is_given(a, "model"))
        return CALM_OK;
    a->opts->recipe.model = name;
    if (revision) {
        if (calm_is_path(name) || strchr(name, '@'))
            return calm_fail(ctx, CALM_EARG, "%s: /model/revision: \"%s\" is not a name on the hub without revision",
                             a->path, name);
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s@%s", name, revision));
        a->opts->recipe.model = text;
    }
    const size_t n = calm_json_size(digests);
    CALM_TRY(CALM_NEW(ctx, ctx->out, demanded->files, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, demanded->sha256, n + 1));
    for (void *iter = NULL; calm_json_next(digests, &iter, &file, &digest); demanded->n_files++) {
        if (strchr(file, '/') || file[0] == '.')
            return calm_fail(ctx, CALM_EARG, "%s: /model/digests: \"%s\" is not the name of a file", a->path, file);
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", file));
        demanded->files[demanded->n_files] = text;
        CALM_TRY(copy_text(ctx, digest, &demanded->sha256[demanded->n_files]));
    }
    return CALM_OK;
}

static calm_status apply_digests(calm_ctx *ctx, const application *a)
{
    const calm_json *calibration = calm_json_get(a->recipe, "calibration");
    const calm_json *evaluation = calm_json_get(a->recipe, "evaluation");
    if (!any_given(a, "calib tokens"))
        CALM_TRY(copy_text(ctx, calm_json_get(calibration, "sha256"), &a->opts->demanded.calib_sha256));
    if (!any_given(a, "eval-text no-eval"))
        CALM_TRY(copy_text(ctx, calm_json_get(evaluation, "sha256"), &a->opts->demanded.eval_sha256));
    return CALM_OK;
}

calm_status calm_recipe_file_apply(calm_ctx *ctx, const calm_json *recipe, const char *path, const bool *given,
                                   calm_quantize_options *opts, calm_json *overrides)
{
    const application a = {recipe, path, given, opts, overrides};
    if (given && given[option_index("model")])
        note_override(&a, "model");
    if (given && given[option_index("bits")])
        note_override(&a, "bits");
    CALM_TRY(apply_model(ctx, &a));
    CALM_TRY(apply_digests(ctx, &a));
    for (size_t i = 0; i < N_PLACES; i++) {
        if (is_given(&a, places[i].option))
            note_override(&a, places[i].option);
        CALM_TRY(apply_place(ctx, &a, &places[i]));
    }
    return CALM_OK;
}

/* ---- option to document ---- */

/* Numbers of a comma list; text that is none goes in as text, for the schema to refuse. */
static calm_json *numbers_json(const char *text)
{
    calm_json *list = calm_json_new_array();
    for (const char *at = text;; at++) {
        char *end;
        const double number = strtod(at, &end);
        if (end == at || (*end && *end != ','))
            calm_json_add_string(list, text);
        else
            calm_json_add_number(list, number);
        at = end + strcspn(end, ",");
        if (!*at)
            return list;
    }
}

static calm_json *range_json(const char *text)
{
    calm_json *range = calm_json_new_array();
    char *end;
    const long long first = strtoll(text, &end, 10);
    calm_json_add_int(range, first);
    calm_json_add_int(range, *end == '-' ? strtoll(end + 1, NULL, 10) : first);
    return range;
}

static calm_status list_json(calm_ctx *ctx, const char *text, bool pins, calm_json **out)
{
    char *item;
    calm_status status;
    *out = pins ? calm_json_new_object() : calm_json_new_array();
    while ((status = calm_list_next(ctx, &text, &item)) == CALM_OK && item) {
        char *equals = pins ? strchr(item, '=') : NULL;
        if (equals)
            *equals = '\0';
        if (pins)
            calm_json_set_string(*out, item, equals ? equals + 1 : "");
        else
            calm_json_add_string(*out, item);
    }
    return status;
}

static calm_status text_json(calm_ctx *ctx, const place *at, const char *text, calm_json *object, const char *key)
{
    calm_json *value;
    if (at->kind == PLACE_VALUE) {
        calm_json_set_string(object, key, text);
        return CALM_OK;
    }
    if (at->kind == PLACE_NUMBERS)
        value = numbers_json(text);
    else if (at->kind == PLACE_RANGE)
        value = range_json(text);
    else
        CALM_TRY(list_json(ctx, text, at->kind == PLACE_PINS, &value));
    calm_json_set(object, key, value);
    return CALM_OK;
}

/* The value of one option into its place. */
static calm_status write_place(calm_ctx *ctx, const place *at, const calm_quantize_options *opts, calm_json *object)
{
    const calm_option *option = &calm_quantize_table[option_index(at->option)];
    const void *field = field_of(opts, option);
    const char *key = at->key ? at->key : at->section;
    if (option->type == CALM_OPTION_STRING) {
        const char *text = *(const char *const *)field;
        return text ? text_json(ctx, at, text, object, key) : CALM_OK;
    }
    if (option->type == CALM_OPTION_INT) {
        const long long value = *(const long long *)field;
        if ((double)value >= option->min)    /* else: not given, -1 */
            calm_json_set_int(object, key, value);
    } else if (option->type == CALM_OPTION_BOOL) {
        calm_json_set_bool(object, key, *(const bool *)field);
    } else {
        const calm_option alone[2] = {*option, {0}};
        calm_text text;
        calm_text_init(&text);
        calm_options_canonical(alone, opts, &text);
        if (!text.failed)
            calm_json_set_string(object, key, text.data + strlen(option->name) + 1);
        const calm_status status = calm_text_check(ctx, &text);
        calm_text_clear(&text);
        return status;
    }
    return CALM_OK;
}

static calm_json *model_json(const calm_quantize_options *opts)
{
    calm_json *model = calm_json_new_object(), *digests = calm_json_new_object();
    const char *name = opts->recipe.model, *at = name && !calm_is_path(name) ? strchr(name, '@') : NULL;
    if (at)
        calm_json_set_bytes(model, "name", name, (size_t)(at - name));
    else
        calm_json_set_string(model, "name", name);
    if (at)
        calm_json_set_string(model, "revision", at + 1);
    for (size_t i = 0; i < opts->demanded.n_files; i++)
        calm_json_set_string(digests, opts->demanded.files[i], opts->demanded.sha256[i]);
    if (opts->demanded.n_files)
        calm_json_set(model, "digests", digests);
    else
        calm_json_free(digests);
    return model;
}

/* --bits and a budget's widths by their names, so that the recipe says them. */
static calm_quantize_options with_schemes(const calm_quantize_options *opts)
{
    calm_quantize_options copy = *opts;
    if (!copy.recipe.scheme)
        copy.recipe.scheme = copy.budget ? CALM_BUDGET_SCHEMES : calm_recipe_scheme_of_bits(copy.recipe.bits);
    if (!copy.recipe.algorithms && copy.budget)
        copy.recipe.algorithms = CALM_BUDGET_POOL;
    return copy;
}

calm_status calm_recipe_file_json(calm_ctx *ctx, const calm_quantize_options *given, calm_json **out)
{
    const calm_quantize_options opts = with_schemes(given);
    calm_json *root = calm_json_new_object(), *section = NULL;
    const char *open = "";
    calm_status status = CALM_OK;
    calm_json_set_int(root, "calm_recipe", CALM_RECIPE_VERSION);
    calm_json_set(root, "model", model_json(&opts));
    for (size_t i = 0; i < N_PLACES && status == CALM_OK; i++) {
        const place *at = &places[i];
        const bool evaluation = strcmp(at->section, "evaluation") == 0;
        if (at->kind == PLACE_NOT) {
            if (opts.no_eval)
                calm_json_set_bool(root, at->section, false);
            continue;
        }
        if (evaluation && opts.no_eval)
            continue;
        if (at->key && strcmp(open, at->section) != 0) {
            calm_json_set(root, at->section, calm_json_new_object());
            section = (calm_json *)(uintptr_t)calm_json_get(root, at->section);    /* owned by the document, still growing */
            open = at->section;
        }
        status = write_place(ctx, at, &opts, at->key ? section : root);
        if (strcmp(at->option, "calib") == 0 && opts.demanded.calib_sha256)
            calm_json_set_string(section, "sha256", opts.demanded.calib_sha256);
        if (strcmp(at->option, "eval-text") == 0 && opts.demanded.eval_sha256)
            calm_json_set_string(section, "sha256", opts.demanded.eval_sha256);
    }
    *out = root;
    if (status != CALM_OK) {
        calm_json_free(root);
        *out = NULL;
    }
    return status;
}
