/* What is not as a lock says.
 *
 * Parts of a lock are objects of names and values.  They are compared by name: an order or a formatting that differs
 * is no difference. */
#include <string.h>

#include "ptq/lock/lock.h"
#include "ptq/base/array.h"

/* ---- a value in words ---- */

/* A value as a message shows it, in ctx->out; NULL for a value that is absent.  Objects, such as a recipe's
 * sections, become one line of JSON. */
static calm_status words(calm_ctx *ctx, const calm_json *value, const char **out)
{
    *out = NULL;
    if (!value)
        return CALM_OK;
    return calm_json_typeof(value) == CALM_JSON_STRING
               ? calm_strf(ctx, ctx->out, out, "%s", calm_json_string(value, "")) : calm_json_text(ctx, value, out);
}

/* Is it the same value, whichever way it is written?  Members of objects by name; numbers are equal in every bit or not
 * equal (they are written with all digits), as 3 or as 3.0; everything else by its text. */
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
        /* Different fallbacks: what is no number after all is not equal. */
        *out = calm_json_number(a, 0) == calm_json_number(b, 1);
        return CALM_OK;
    }
    CALM_TRY(words(ctx, a, &x));
    CALM_TRY(words(ctx, b, &y));
    *out = strcmp(x, y) == 0;
    return CALM_OK;
}

/* ---- lists ---- */

/* One more difference; the array doubles, its old copies stay in the arena until the command ends. */
static calm_status add(calm_ctx *ctx, const char *what, const char *name, const calm_json *expected,
                       const calm_json *found, calm_differences *out)
{
    CALM_TRY(CALM_GROW(ctx, ctx->out, out->items, out->n, &out->room, out->n + 1));
    calm_difference *item = &out->items[out->n];
    item->what = what;
    CALM_TRY(calm_strf(ctx, ctx->out, &item->name, "%s", name));
    CALM_TRY(words(ctx, expected, &item->expected));
    CALM_TRY(words(ctx, found, &item->found));
    out->n++;    /* complete: a failure before leaves no half entry */
    return CALM_OK;
}

/* First what was expected, in its order, then what only `found` has. */
static calm_status compare_members(calm_ctx *ctx, const char *what, const calm_json *expected, const calm_json *found,
                                   calm_differences *out)
{
    const calm_json *value;
    const char *key;
    for (void *iter = NULL; calm_json_next(expected, &iter, &key, &value);) {
        const calm_json *other = calm_json_get(found, key);
        /* The texts of a comparison are dropped at once: a lock has a digest per tensor, and most are equal. */
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
    /* What each part of a lock consists of, and how a difference in it is called. */
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
        if (b)    /* windows are missing before the run */
            CALM_TRY(compare_members(ctx, rows[i].what, a, b, out));
    }
    return CALM_OK;
}

/* By top-level members: which section was edited is enough to say that the lock is of another recipe. */
calm_status calm_lock_recipe_differs(calm_ctx *ctx, const calm_json *lock, const calm_json *document, const char **key)
{
    calm_differences differences = {0};
    CALM_TRY(compare_members(ctx, "recipe", calm_json_get(lock, "recipe"), document, &differences));
    *key = differences.n ? differences.items[0].name : NULL;
    return CALM_OK;
}
