/* Compares parts of a lock with what was found.
 *
 * Parts of a lock are objects of names and values.  They are compared by name: order and formatting do not matter. */
#include <string.h>

#include "ptq/lock/lock.h"
#include "ptq/base/array.h"

/* ---- a value in words ---- */

/* Returns a value's text for a message, in ctx->out; NULL for an absent value.  Objects, such as a recipe's sections,
 * are one line of JSON. */
static calm_status words(calm_ctx *ctx, const calm_json *value, const char **out)
{
    *out = NULL;
    if (!value)
        return CALM_OK;
    return calm_json_typeof(value) == CALM_JSON_STRING
               ? calm_strf(ctx, ctx->out, out, "%s", calm_json_string(value, "")) : calm_json_text(ctx, value, out);
}

/* Sets *out to whether two values are equal: members of objects by name; numbers in every bit (they are written with
 * all digits), with 3 equal to 3.0; other values by their text. */
static calm_status same(calm_ctx *ctx, const calm_json *a, const calm_json *b, bool *out);

static calm_status same_members(calm_ctx *ctx, const calm_json *a, const calm_json *b, bool *out)
{
    const calm_json *value;
    const char *key;
    *out = calm_json_size(a) == calm_json_size(b);
    for (void *iter = NULL; *out && calm_json_next(a, &iter, &key, &value);)
        CALM_TRY(same(ctx, value, calm_json_get(b, key), out));
    return CALM_OK;
}

static calm_status same(calm_ctx *ctx, const calm_json *a, const calm_json *b, bool *out)
{
    const char *x, *y;
    const calm_json_type type = calm_json_typeof(a), other = calm_json_typeof(b);
    const bool numbers = (type == CALM_JSON_INT || type == CALM_JSON_REAL) &&
                         (other == CALM_JSON_INT || other == CALM_JSON_REAL);
    *out = false;
    if (!a || !b || (type != other && !numbers))
        return CALM_OK;
    if (type == CALM_JSON_OBJECT)
        return same_members(ctx, a, b, out);
    if (numbers) {
    /* Different fallbacks, so that values that are no numbers are not equal. */
        *out = calm_json_number(a, 0) == calm_json_number(b, 1);
        return CALM_OK;
    }
    CALM_TRY(words(ctx, a, &x));
    CALM_TRY(words(ctx, b, &y));
    *out = strcmp(x, y) == 0;
    return CALM_OK;
}

/* ---- lists ---- */

/* Adds a difference; the array doubles, and its old copies stay in the arena until the command ends. */
static calm_status add(calm_ctx *ctx, const char *what, const char *name, const calm_json *expected,
                       const calm_json *found, calm_differences *out)
{
    CALM_TRY(CALM_GROW(ctx, ctx->out, out->items, out->n, &out->room, out->n + 1));
    calm_difference *item = &out->items[out->n];
    item->what = what;
    CALM_TRY(calm_strf(ctx, ctx->out, &item->name, "%s", name));
    CALM_TRY(words(ctx, expected, &item->expected));
    CALM_TRY(words(ctx, found, &item->found));
    out->n++;    /* counted last, so that a failure leaves no incomplete difference */
    return CALM_OK;
}

/* Compares the expected members in their order, then the members that only `found` has. */
static calm_status compare_members(calm_ctx *ctx, const char *what, const calm_json *expected, const calm_json *found,
                                   calm_differences *out)
{
    const calm_json *value;
    const char *key;
    for (void *iter = NULL; calm_json_next(expected, &iter, &key, &value);) {
        const calm_json *other = calm_json_get(found, key);
        /* The texts of a comparison are freed at once: a lock has a digest per tensor, and most are equal. */
        calm_arena_mark mark = calm_arena_save(ctx->out);
        bool equal;
        CALM_TRY(same(ctx, value, other, &equal));
        calm_arena_rewind(ctx->out, mark);
        out->checked++;
        if (!equal)
            CALM_TRY(add(ctx, what, key, value, other, out));
    }
    for (void *iter = NULL; calm_json_next(found, &iter, &key, &value);)
        if (!calm_json_get(expected, key)) {
            out->checked++;
            CALM_TRY(add(ctx, what, key, NULL, value, out));
        }
    return CALM_OK;
}

calm_status calm_lock_compare(calm_ctx *ctx, const calm_json *lock, const char *part, const calm_json *found,
                              calm_differences *out)
{
    /* The members of each part of a lock, and the name of a difference in it. */
    static const struct {
        const char *part, *member, *what;
    } rows[] = {
        {"inputs", "files", "input file"},       {"inputs", "tensors", "input tensor"},
        {"inputs", "texts", "input text"},       {"inputs", "windows", "token windows"},
        {"plan", NULL, "choice"},                {"outputs", "files", "output file"},
        {"outputs", "tensors", "output tensor"}, {"result", NULL, "result"},
        {"environment", NULL, "environment"},
    };
    const calm_json *expected = calm_json_get(lock, part);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].part, part) != 0)
            continue;
        const calm_json *a = rows[i].member ? calm_json_get(expected, rows[i].member) : expected;
        const calm_json *b = rows[i].member ? calm_json_get(found, rows[i].member) : found;
        if (b)    /* before the run there are no windows */
            CALM_TRY(compare_members(ctx, rows[i].what, a, b, out));
    }
    return CALM_OK;
}

/* Compares top-level members: the name of an edited section is enough to show that the lock is of another recipe. */
calm_status calm_lock_recipe_differs(calm_ctx *ctx, const calm_json *lock, const calm_json *document, const char **key)
{
    calm_differences differences = {0};
    CALM_TRY(compare_members(ctx, "recipe", calm_json_get(lock, "recipe"), document, &differences));
    *key = differences.n ? differences.items[0].name : NULL;
    return CALM_OK;
}
