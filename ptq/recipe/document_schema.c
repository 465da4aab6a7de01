/* Writes the table of a recipe document as JSON Schema. */
#include <stdio.h>
#include <string.h>

#include "ptq/recipe/document.h"
#include "ptq/recipe/document_shape.h"
#include "ptq/recipe/recipe_impl.h"

static void fill_shape(const calm_shape *shape, calm_json *out);

static calm_json *shape_json(const calm_shape *shape)
{
    calm_json *out = calm_json_new_object();
    fill_shape(shape, out);
    return out;
}

static calm_json *words_json(const char *values)
{
    calm_json *list = calm_json_new_array();
    char all[400], *rest = all;
    snprintf(all, sizeof all, "%s", values);
    while (rest)
        calm_json_add_string(list, strsep(&rest, "|"));
    return list;
}

/* "calibration windows (--samples)" */
static void describe(const calm_document_row *row, calm_json *out)
{
    const calm_option *option = calm_document_option(row);
    CALM_SCOPED_TEXT(text);
    calm_text_printf(&text, "%s", row->help ? row->help : option->help);
    if (option)
        calm_text_printf(&text, " (--%s)", option->name);
    calm_json_set_string(out, "description", text.data);
}

static void fill_object(const char *section, calm_json *out)
{
    calm_json *properties = calm_json_new_object(), *required = calm_json_new_array();
    size_t n;
    const calm_document_row *rows = calm_document_rows(&n);
    for (size_t i = 0; i < n; i++) {
        const char *key = calm_document_key(rows[i].place, section);
        calm_shape room;
        if (!key)
            continue;
        calm_json *member = calm_json_new_object();
        describe(&rows[i], member);
        fill_shape(calm_document_shape(&rows[i], &room), member);
        calm_json_set(properties, key, member);
        if (rows[i].required)
            calm_json_add_string(required, key);
    }
    CALM_EXTEND(out, CALM_KV("required", calm_recipe_filled(required)), CALM_KV("additionalProperties", (bool)false),
                CALM_KV("properties", properties));
}

/* The JSON Schema of each shape: its type, and the keys of its bounds; NULL: none. */
static const struct {
    const char *type, *least, *most;
} kinds[] = {
    [CALM_SHAPE_BOOL] = {"boolean", NULL, NULL},
    [CALM_SHAPE_INT] = {"integer", "minimum", "maximum"},
    [CALM_SHAPE_NUMBER] = {"number", "exclusiveMinimum", "maximum"},    /* min itself is excluded */
    [CALM_SHAPE_TEXT] = {"string", "minLength", "maxLength"},
    [CALM_SHAPE_LIST] = {"array", "minItems", "maxItems"},
    [CALM_SHAPE_MAP] = {"object", NULL, "maxProperties"},
    [CALM_SHAPE_OBJECT] = {"object", NULL, NULL},
    [CALM_SHAPE_ANY] = {"object", NULL, NULL},
    [CALM_SHAPE_EITHER] = {NULL, NULL, NULL},
};

/* A list of two alternatives. */
static calm_json *either_json(const calm_shape *shape)
{
    calm_json *list = calm_json_new_array();
    calm_json_add(list, shape_json(shape->item));
    calm_json_add(list, shape_json(shape->other));
    return list;
}

/* Adds the members of some kinds that come before the bounds. */
static void fill_kind(const calm_shape *shape, calm_json *out)
{
    if (shape->kind == CALM_SHAPE_WORD)
        calm_json_set(out, "enum", words_json(shape->values));
    else if (shape->kind == CALM_SHAPE_LIST)
        calm_json_set(out, "items", shape_json(shape->item));
    else if (shape->kind == CALM_SHAPE_MAP && shape->pattern)
        calm_json_set(out, "propertyNames", CALM_OBJECT(CALM_KV("pattern", shape->pattern->regex)));
    else if (shape->kind == CALM_SHAPE_OBJECT)
        fill_object(shape->section, out);
    else if (shape->kind == CALM_SHAPE_SCALAR)
        calm_json_set(out, "type", words_json("boolean|number|string"));
    else if (shape->kind == CALM_SHAPE_FALSE)
        calm_json_set_bool(out, "const", false);
    else if (shape->kind == CALM_SHAPE_VERSION)
        calm_json_set_int(out, "const", (int64_t)shape->max);
    else if (shape->kind == CALM_SHAPE_EITHER)
        calm_json_set(out, "oneOf", either_json(shape));
    if (shape->kind == CALM_SHAPE_MAP)
        calm_json_set(out, "additionalProperties", shape_json(shape->item));
}

static void fill_shape(const calm_shape *shape, calm_json *out)
{
    const char *type = kinds[shape->kind].type, *least = kinds[shape->kind].least, *most = kinds[shape->kind].most;
    const bool number = shape->kind == CALM_SHAPE_INT || shape->kind == CALM_SHAPE_NUMBER;
    if (shape->from_min)
        least = "minimum";
    if (type)
        calm_json_set_string(out, "type", type);
    fill_kind(shape, out);
    if (least && (shape->min > 0 || number))    /* a length of at least 0 needs no bound */
        calm_json_set_int(out, least, (int64_t)shape->min);
    if (most)
        calm_json_set_int(out, most, (int64_t)shape->max);
    if (shape->kind == CALM_SHAPE_TEXT && shape->pattern)
        calm_json_set_string(out, "pattern", shape->pattern->regex);
}

calm_json *calm_document_schema(void)
{
    const char *words = "What `calm quantize --recipe FILE` is asked to do. docs/recipes.md explains every key.";
    calm_json *root = CALM_OBJECT(CALM_KV("$schema", "https://json-schema.org/draft/2020-12/schema"),
                                  CALM_KV("$id", "https://calm/recipes/recipe.schema.json"),
                                  CALM_KV("title", "calm recipe"), CALM_KV("description", words),
                                  CALM_KV("type", "object"));
    fill_object("", root);
    return root;
}
