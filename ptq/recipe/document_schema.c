/* The table of a recipe document as JSON Schema. */
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

static void set_bound(calm_json *out, const char *key, double bound)
{
    calm_json_set_int(out, key, (int64_t)bound);
}

static calm_json *words_json(const char *values)
{
    calm_json *list = calm_json_new_array();
    char word[64];
    for (const char *at = values; *at;) {
        const size_t n = strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        calm_json_add_string(list, word);
        at += n + (at[n] == '|');
    }
    return list;
}

static void fill_text(const calm_shape *shape, calm_json *out)
{
    if (shape->min > 0)
        set_bound(out, "minLength", shape->min);
    set_bound(out, "maxLength", shape->max);
    if (shape->pattern)
        calm_json_set_string(out, "pattern", shape->pattern->regex);
}

static void fill_map(const calm_shape *shape, calm_json *out)
{
    if (shape->pattern)
        calm_json_set(out, "propertyNames", CALM_OBJECT(CALM_KV("pattern", shape->pattern->regex)));
    calm_json_set(out, "additionalProperties", shape_json(shape->item));
    set_bound(out, "maxProperties", shape->max);
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

static void fill_list(const calm_shape *shape, calm_json *out)
{
    calm_json_set(out, "items", shape_json(shape->item));
    if (shape->min > 0)
        set_bound(out, "minItems", shape->min);
    set_bound(out, "maxItems", shape->max);
}

static void fill_either(const calm_shape *shape, calm_json *out)
{
    calm_json *list = calm_json_new_array();
    calm_json_add(list, shape_json(shape->item));
    calm_json_add(list, shape_json(shape->other));
    calm_json_set(out, "oneOf", list);
}

/* A number's bounds: whole ones are included, bits per weight are more than the least. */
static void fill_number(const calm_shape *shape, calm_json *out)
{
    const bool whole = shape->kind == CALM_SHAPE_INT;
    set_bound(out, whole ? "minimum" : "exclusiveMinimum", shape->min);
    set_bound(out, "maximum", shape->max);
}

static void fill_scalar(calm_json *out)
{
    calm_json *types = calm_json_new_array();
    calm_json_add_string(types, "boolean");
    calm_json_add_string(types, "number");
    calm_json_add_string(types, "string");
    calm_json_set(out, "type", types);
}

/* NULL: a shape that JSON Schema describes otherwise. */
static const char *const types[] = {
    [CALM_SHAPE_BOOL] = "boolean", [CALM_SHAPE_INT] = "integer", [CALM_SHAPE_NUMBER] = "number",
    [CALM_SHAPE_TEXT] = "string",  [CALM_SHAPE_LIST] = "array",  [CALM_SHAPE_MAP] = "object",
    [CALM_SHAPE_OBJECT] = "object", [CALM_SHAPE_ANY] = "object", [CALM_SHAPE_EITHER] = NULL,
};

static void fill_shape(const calm_shape *shape, calm_json *out)
{
    if (types[shape->kind])
        calm_json_set_string(out, "type", types[shape->kind]);
    switch (shape->kind) {
    case CALM_SHAPE_INT:
    case CALM_SHAPE_NUMBER:
        fill_number(shape, out);
        break;
    case CALM_SHAPE_TEXT:
        fill_text(shape, out);
        break;
    case CALM_SHAPE_WORD:
        calm_json_set(out, "enum", words_json(shape->values));
        break;
    case CALM_SHAPE_LIST:
        fill_list(shape, out);
        break;
    case CALM_SHAPE_MAP:
        fill_map(shape, out);
        break;
    case CALM_SHAPE_OBJECT:
        fill_object(shape->section, out);
        break;
    case CALM_SHAPE_SCALAR:
        fill_scalar(out);
        break;
    case CALM_SHAPE_FALSE:
        calm_json_set_bool(out, "const", false);
        break;
    case CALM_SHAPE_VERSION:
        calm_json_set_int(out, "const", (int64_t)shape->max);
        break;
    case CALM_SHAPE_EITHER:
        fill_either(shape, out);
        break;
    default:    /* its type says all */
        break;
    }
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
