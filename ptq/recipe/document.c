/* Converts a spec to a document and back, by one table. */
#include "ptq/recipe/document.h"

#include <stdio.h>
#include <string.h>

#include "ptq/recipe/chain_json.h"
#include "ptq/recipe/document_shape.h"
#include "ptq/recipe/model_names.h"
#include "ptq/recipe/recipe_impl.h"

/* ---- values of a spec as JSON ---- */

static calm_json *words_json(const calm_words *words)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < words->n; i++)
        calm_json_add_string(list, words->of[i]);
    return calm_recipe_filled(list);
}

static calm_json *pairs_json(const calm_pairs *pairs)
{
    calm_json *object = calm_json_new_object();
    for (size_t i = 0; i < pairs->n; i++)
        calm_json_set_string(object, pairs->of[i].key, pairs->of[i].value);
    return calm_recipe_filled(object);
}

static calm_json *numbers_json(const calm_numbers *numbers)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < numbers->n; i++)
        calm_json_add(list, calm_json_of_number(numbers->of[i]));
    return calm_recipe_filled(list);
}

/* A single name is a string, as in documents older than lists of names. */
static calm_json *files_json(const calm_words *files)
{
    return files->n == 1 ? calm_json_of_string(files->of[0]) : words_json(files);
}

/* Returns the value of an option; NULL if it is not given: an empty list, a negative seed, no budget. */
static calm_json *value_json(const calm_option *option, const void *field)
{
    const calm_range *range = field;
    const char *const *text = field;
    const long long *number = field;
    switch (option->type) {
    case CALM_OPTION_BOOL:
        return calm_json_of_bool(*(const bool *)field);
    case CALM_OPTION_INT:
        return (double)*number >= option->min ? calm_json_of_int(*number) : NULL;
    case CALM_OPTION_STRING:
        return *text ? calm_json_of_string(*text) : NULL;
    case CALM_OPTION_WORDS:
        return words_json(field);
    case CALM_OPTION_FILES:
        return files_json(field);
    case CALM_OPTION_PAIRS:
        return pairs_json(field);
    case CALM_OPTION_NUMBERS:
        return numbers_json(field);
    case CALM_OPTION_RANGE:
        return range->given ? calm_recipe_range(range->first, range->last) : NULL;
    case CALM_OPTION_DOUBLE:
        return *(const double *)field >= option->min ? calm_json_of_number(*(const double *)field) : NULL;
    case CALM_OPTION_ENUM:    /* a word: write_value */
        break;
    }
    return NULL;
}

/* Writes the value as text of a command line, which is how documents name enum values. */
static calm_status write_text(calm_ctx *ctx, const calm_option *option, const calm_recipe_spec *spec, calm_json *object,
                              const char *key)
{
    CALM_SCOPED_TEXT(text);
    calm_option_print(option, spec, &text);
    CALM_TRY(calm_text_check(ctx, &text));
    calm_json_set_string(object, key, text.data);
    return CALM_OK;
}

/* Writes the value of an option to its place, unless it is not given. */
static calm_status write_value(calm_ctx *ctx, const calm_option *option, const calm_recipe_spec *spec,
                               calm_json *object, const char *key)
{
    if (option->type == CALM_OPTION_ENUM)
        return write_text(ctx, option, spec, object, key);
    calm_json_set(object, key, value_json(option, (const char *)spec + option->offset));
    return CALM_OK;
}

/* ---- document to spec ---- */

/* The state while a document is read. */
typedef struct reading {
    const calm_json *document;
    const char *path;
    calm_recipe_spec *spec;
    calm_json *overrides;
} reading;

static bool any_given(const calm_recipe_spec *spec, const char *options)
{
    bool any = false;
    for (const calm_option *option = calm_spec_table; options && option->name; option++)
        any |= spec->given[option - calm_spec_table] && calm_option_value_index(options, option->name) >= 0;
    return any;
}

/* Returns the value at "section.key", or at "key" of the document. */
static const calm_json *value_at(const calm_json *document, const char *place)
{
    char section[32];
    const char *dot = strchr(place, '.');
    if (!dot)
        return calm_json_get(document, place);
    snprintf(section, sizeof section, "%.*s", (int)(dot - place), place);
    return calm_json_get(calm_json_get(document, section), dot + 1);
}

/* Fails for a list item that would be several items on a command line, as "rtn,gptq". */
static calm_status check_item(calm_ctx *ctx, const reading *r, const calm_option *option, const char *item)
{
    const char *rest = item;
    char *first;
    CALM_TRY(calm_list_next(ctx, &rest, &first));
    if (first && !*rest && strcmp(first, item) == 0)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "%s: `%s`: expected one name in each item, found \"%s\"", r->path, option->place,
                     item);
}

static calm_status read_words(calm_ctx *ctx, const reading *r, const calm_document_row *row, const calm_json *value,
                              calm_words *out)
{
    const calm_option *option = calm_document_option(row);
    *out = (calm_words){0};
    for (size_t i = 0; i < calm_json_size(value); i++) {
        const calm_json *item = calm_json_at(value, i);
        char *text;
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", calm_json_string(item, "")));
        if (row->chains && calm_json_typeof(item) == CALM_JSON_OBJECT)
            CALM_TRY(calm_chain_of_json(ctx, r->path, item, &text));
        CALM_TRY(check_item(ctx, r, option, text));
        CALM_TRY(calm_words_add(ctx, out, text));
    }
    return CALM_OK;
}

static calm_status read_pairs(calm_ctx *ctx, const reading *r, const calm_option *option, const calm_json *value,
                              calm_pairs *out)
{
    const calm_json *member;
    const char *key;
    *out = (calm_pairs){0};
    for (void *iter = NULL; calm_json_next(value, &iter, &key, &member);) {
        CALM_TRY(check_item(ctx, r, option, calm_json_string(member, "")));
        CALM_TRY(calm_pairs_add(ctx, out, key, calm_json_string(member, "")));
    }
    return CALM_OK;
}

static calm_status read_string(calm_ctx *ctx, const calm_json *value, const char **out)
{
    *out = NULL;
    return calm_json_typeof(value) == CALM_JSON_STRING
               ? calm_strf(ctx, ctx->out, out, "%s", calm_json_string(value, "")) : CALM_OK;
}

/* Stores a checked value in the option's field. */
static calm_status read_value(calm_ctx *ctx, const reading *r, const calm_document_row *row, const calm_option *option,
                              const calm_json *value)
{
    void *field = (char *)r->spec + option->offset;
    const bool list = calm_json_typeof(value) == CALM_JSON_ARRAY;
    if (option->type == CALM_OPTION_WORDS)
        return read_words(ctx, r, row, value, field);
    if (option->type == CALM_OPTION_PAIRS)
        return read_pairs(ctx, r, option, value, field);
    if (option->type == CALM_OPTION_RANGE) {    /* its order is checked later */
        *(calm_range *)field = (calm_range){true, (long long)calm_json_number(calm_json_at(value, 0), 0),
                                        (long long)calm_json_number(calm_json_at(value, 1), 0)};
        return CALM_OK;
    }
    /* All other values are read as on a command line: a value, or a list of numbers. */
    for (size_t i = 0; i < (list ? calm_json_size(value) : 1); i++) {
        char *text;
        CALM_TRY(calm_recipe_value_text(ctx, list ? calm_json_at(value, i) : value, &text));
        CALM_TRY(calm_option_set_one(ctx, option, r->spec, r->path, text, i == 0));
    }
    return CALM_OK;
}

/* Notes a given option that overrides the document: numbers and booleans as such, other values as typed. */
static calm_status note_override(calm_ctx *ctx, const reading *r, const calm_option *option)
{
    if (!r->spec->given[option - calm_spec_table])
        return CALM_OK;
    if (option->type == CALM_OPTION_INT || option->type == CALM_OPTION_BOOL)
        return write_value(ctx, option, r->spec, r->overrides, option->name);
    return write_text(ctx, option, r->spec, r->overrides, option->name);
}

/* Returns true for an option like "no-special", which is "special": false in a document. */
static bool is_negated(const calm_option *option)
{
    return option->type == CALM_OPTION_BOOL && strncmp(option->name, "no-", 3) == 0;
}

/* Returns true for a row like "evaluation", where false is the option "no-eval" and an object contains other
 * options. */
static bool is_negation(const calm_document_row *row)
{
    return row->shape && row->shape->kind == CALM_SHAPE_EITHER && row->shape->item->kind == CALM_SHAPE_FALSE;
}

static calm_status read_row(calm_ctx *ctx, const reading *r, const calm_document_row *row)
{
    const calm_option *option = calm_document_option(row);
    const calm_json *value = value_at(r->document, row->place);
    const bool empty = option->type == CALM_OPTION_WORDS && calm_json_size(value) == 0;    /* an empty list */
    /* Before anything is skipped: a given option wins over the document, and the store records both. */
    CALM_TRY(note_override(ctx, r, option));
    if (calm_json_typeof(value) == CALM_JSON_NULL || empty || r->spec->given[option - calm_spec_table] ||
        any_given(r->spec, option->yields_to))
        return CALM_OK;
    if (!is_negated(option))
        return read_value(ctx, r, row, option, value);
    if (calm_json_typeof(value) == CALM_JSON_BOOL)
        *(bool *)((char *)r->spec + option->offset) = !calm_json_bool(value, true);
    return CALM_OK;
}

/* Reads "qwen", or {"name", "revision", "digests"}. */
static calm_status read_model(calm_ctx *ctx, const reading *r)
{
    const calm_json *model = calm_json_get(r->document, "model");
    const bool object = calm_json_typeof(model) == CALM_JSON_OBJECT;
    const calm_json *digests = calm_json_get(model, "digests"), *digest;
    calm_demanded *demanded = &r->spec->demanded;
    const char *name, *revision, *file;
    CALM_TRY(read_string(ctx, object ? calm_json_get(model, "name") : model, &name));
    CALM_TRY(read_string(ctx, calm_json_get(model, "revision"), &revision));
    /* Revision and digests belong to the document's model, so they are ignored for another model. */
    if (!name || calm_spec_given(r->spec, "model"))
        return CALM_OK;
    r->spec->model = name;
    if (revision) {
        if (calm_is_path(name) || strchr(name, '@'))
            return calm_fail(ctx, CALM_EARG, "%s: `model.revision`: \"%s\" is not a name on the hub without revision",
                             r->path, name);
        CALM_TRY(calm_strf(ctx, ctx->out, &r->spec->model, "%s@%s", name, revision));
    }
    const size_t n = calm_json_size(digests);
    CALM_TRY(CALM_NEW(ctx, ctx->out, demanded->files, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, demanded->sha256, n + 1));
    for (void *iter = NULL; calm_json_next(digests, &iter, &file, &digest); demanded->n_files++) {
        CALM_TRY(calm_strf(ctx, ctx->out, &demanded->files[demanded->n_files], "%s", file));
        CALM_TRY(read_string(ctx, digest, &demanded->sha256[demanded->n_files]));
    }
    return CALM_OK;
}

/* Reads a digest only for the text that the document names, not for another given text. */
static calm_status read_digests(calm_ctx *ctx, const reading *r)
{
    calm_demanded *demanded = &r->spec->demanded;
    if (!any_given(r->spec, "calib|tokens"))
        CALM_TRY(read_string(ctx, value_at(r->document, "calibration.sha256"), &demanded->calib_sha256));
    if (!any_given(r->spec, "eval-text|no-eval"))
        CALM_TRY(read_string(ctx, value_at(r->document, "evaluation.sha256"), &demanded->eval_sha256));
    return CALM_OK;
}

calm_status calm_spec_read(calm_ctx *ctx, const calm_json *document, const char *path, calm_recipe_spec *spec)
{
    CALM_SCOPED_JSON(overrides);
    overrides = calm_json_new_object();
    const reading r = {document, path, spec, overrides};
    size_t n;
    const calm_document_row *rows = calm_document_rows(&n);
    CALM_TRY(note_override(ctx, &r, calm_option_find(calm_spec_table, "model")));
    CALM_TRY(note_override(ctx, &r, calm_option_find(calm_spec_table, "bits")));
    CALM_TRY(read_model(ctx, &r));
    CALM_TRY(read_digests(ctx, &r));
    for (size_t i = 0; i < n; i++)
        if (calm_document_option(&rows[i]))
            CALM_TRY(read_row(ctx, &r, &rows[i]));
    return calm_json_size(overrides) ? calm_json_text(ctx, overrides, &spec->overrides) : CALM_OK;
}

/* ---- spec to document ---- */

static calm_json *model_json(const calm_recipe_spec *spec)
{
    calm_json *model = calm_json_new_object(), *digests = calm_json_new_object();
    const char *name = spec->model, *at = name && !calm_is_path(name) ? strchr(name, '@') : NULL;
    if (at)
        calm_json_set_bytes(model, "name", name, (size_t)(at - name));
    else
        calm_json_set_string(model, "name", name);
    if (at)
        calm_json_set_string(model, "revision", at + 1);
    for (size_t i = 0; i < spec->demanded.n_files; i++)
        calm_json_set_string(digests, spec->demanded.files[i], spec->demanded.sha256[i]);
    calm_json_set(model, "digests", calm_recipe_filled(digests));
    return model;
}

/* Fills the spec's default schemes and algorithms in, so that the document means the same in a version of calm with
 * other defaults. */
static calm_status with_defaults(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe_spec *out)
{
    const char *schemes = calm_spec_default_schemes(spec), *algorithms = calm_spec_default_algorithms(spec);
    *out = *spec;
    CALM_TRY(calm_spec_keep_float(ctx, spec, &out->keep_float));
    if (!out->schemes.n && schemes)
        CALM_TRY(calm_spec_set(ctx, out, "schemes", schemes));
    return !out->algorithms.n && algorithms ? calm_spec_set(ctx, out, "algorithms", algorithms) : CALM_OK;
}

/* Opens a section to add members.  The document owns it; the cast removes calm_json_get's const, which is safe because
 * a new member is not shared. */
static calm_json *open_section(calm_json *root, const char *name)
{
    calm_json_set(root, name, calm_json_new_object());
    return (calm_json *)(uintptr_t)calm_json_get(root, name);
}

/* Returns true if a flag is false, or a word is the default. */
static bool is_off(const calm_option *option, const calm_recipe_spec *spec)
{
    const char *value = (const char *)spec + option->offset;
    return option->type == CALM_OPTION_ENUM
               ? *(const int *)value == calm_option_value_index(option->values, option->fallback)
               : !*(const bool *)value;
}

/* Writes a row.  Rows are in document order, a section before its members; `section` is the one opened last. */
static calm_status write_row(calm_ctx *ctx, const calm_document_row *row, const calm_recipe_spec *spec, calm_json *root,
                             calm_json **section)
{
    const calm_option *option = calm_document_option(row);
    const char *dot = strchr(row->place, '.'), *key = dot ? dot + 1 : row->place;
    const bool evaluation = strncmp(row->place, "evaluation", 10) == 0;
    const char *sha256 = evaluation ? spec->demanded.eval_sha256 : spec->demanded.calib_sha256;
    if (strncmp(row->place, "model", 5) == 0 || (evaluation && dot && spec->no_eval))
        return CALM_OK;
    if (row->if_true && is_off(option, spec))
        return CALM_OK;
    if (is_negation(row) && spec->no_eval)
        calm_json_set_bool(root, key, false);
    else if (is_negation(row) || (!dot && row->shape && row->shape->kind == CALM_SHAPE_OBJECT))
        *section = open_section(root, key);
    else if (option && is_negated(option))
        calm_json_set_bool(*section, key, !*(const bool *)((const char *)spec + option->offset));
    else if (option)
        return write_value(ctx, option, spec, dot ? *section : root, key);
    else if (strcmp(key, "sha256") == 0 && sha256)
        calm_json_set_string(*section, key, sha256);
    return CALM_OK;
}

calm_status calm_spec_write(calm_ctx *ctx, const calm_recipe_spec *given, calm_json **out)
{
    calm_recipe_spec spec;
    calm_json *section = NULL;
    size_t n;
    const calm_document_row *rows = calm_document_rows(&n);
    CALM_SCOPED_JSON(root);
    *out = NULL;
    CALM_TRY(with_defaults(ctx, given, &spec));
    root = CALM_OBJECT(CALM_KV("calm_recipe", (int64_t)CALM_RECIPE_VERSION), CALM_KV("model", model_json(&spec)));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(write_row(ctx, &rows[i], &spec, root, &section));
    *out = root;
    root = NULL;
    return CALM_OK;
}

calm_status calm_spec_text(calm_ctx *ctx, const calm_recipe_spec *spec, const char **out)
{
    CALM_ENTER(ctx, spec && out);
    CALM_SCOPED_JSON(json);
    CALM_TRY(calm_spec_write(ctx, spec, &json));
    return calm_json_text(ctx, json, out);
}
