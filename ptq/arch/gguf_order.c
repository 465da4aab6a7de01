/* Rows and columns in the order of GGUF files.
 *
 * Each function of a row has its inverse next to it; tests/unit/test_gguf_order.c has both as lists. */
#include "ptq/arch/gguf_order.h"

/* ---- heads ---- */

/* Returns the number of value heads that a key head serves. */
static size_t per_key(const calm_gguf_widths *w)
{
    return w->value_heads / w->key_heads;
}

/* Returns the checkpoint's position of row `at` in the file, whose heads of `width` rows are ordered round robin. */
static size_t tiled(const calm_gguf_widths *w, size_t width, size_t at)
{
    const size_t head = at / width, key = head % w->key_heads, turn = head / w->key_heads;
    return (key * per_key(w) + turn) * width + at % width;
}

/* The inverse of tiled(). */
static size_t untiled(const calm_gguf_widths *w, size_t width, size_t at)
{
    const size_t head = at / width, key = head / per_key(w), turn = head % per_key(w);
    return (turn * w->key_heads + key) * width + at % width;
}

/* Returns the rows of queries and keys before those of values. */
static size_t keys_rows(const calm_gguf_widths *w)
{
    return 2 * w->key_heads * w->key_dim;
}

/* Returns the rows of v, and of z, of one key head; and all of its rows in a fused matrix. */
static size_t group_rows(const calm_gguf_widths *w)
{
    return per_key(w) * w->value_dim;
}

static size_t fused_rows(const calm_gguf_widths *w)
{
    return 2 * w->key_dim + 2 * group_rows(w);
}

/* New row h d + 2 j + t = old row h d + t d / 2 + j. */
static size_t turned(size_t row, size_t head_dim)
{
    const size_t in_head = row % head_dim;
    return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}

/* The inverse of turned(). */
static size_t unturned(size_t row, size_t head_dim)
{
    const size_t half = head_dim / 2, in_head = row % head_dim;
    return row - in_head + 2 * (in_head % half) + in_head / half;
}

/* ---- fused matrices ---- */

/* Returns the row of a fused matrix that row `row` of the file's q, k and v holds. */
static size_t row_of_mixed(const calm_gguf_widths *w, size_t row)
{
    const size_t all = w->key_heads * w->key_dim, group = group_rows(w);
    /* q and k of all heads come first, both of the same width. */
    if (row < 2 * all)
        return row % all / w->key_dim * fused_rows(w) + row / all * w->key_dim + row % w->key_dim;
    return (row - 2 * all) / group * fused_rows(w) + 2 * w->key_dim + (row - 2 * all) % group;
}

/* Returns the file's row that holds a row of a fused matrix. */
static size_t find_in_fused(const calm_gguf_widths *w, size_t row, bool *gate)
{
    const size_t head = row / fused_rows(w), in_head = row % fused_rows(w), group = group_rows(w);
    /* The order in a head is q, k, v, z. */
    *gate = in_head >= 2 * w->key_dim + group;
    /* All of q precede all of k. */
    if (in_head < 2 * w->key_dim)
        return in_head / w->key_dim * w->key_heads * w->key_dim + head * w->key_dim + in_head % w->key_dim;
    return (*gate ? 0 : keys_rows(w)) + head * group + (in_head - 2 * w->key_dim) % group;
}

/* ---- the table ---- */

calm_gguf_order calm_gguf_order_of(calm_gguf_form form, size_t head_dim, const calm_gguf_widths *widths)
{
    /* With one value head per key head no row moves; parts of a fused matrix are separate all the same. */
    const bool tiles = form == CALM_GGUF_MIXED || form == CALM_GGUF_VALUES || form == CALM_GGUF_GATES
                       || form == CALM_GGUF_VALUE_COLUMNS;
    if (tiles && widths->value_heads == widths->key_heads)
        form = CALM_GGUF_AS_IS;
    return (calm_gguf_order){.form = form, .head_dim = head_dim, .widths = widths};
}

bool calm_gguf_order_is_part(calm_gguf_form form, bool *first)
{
    *first = form == CALM_GGUF_QKVZ_MIXED || form == CALM_GGUF_KV_KEYS || form == CALM_GGUF_FIRST_HALF;
    return *first || form == CALM_GGUF_QKVZ_GATE || form == CALM_GGUF_KV_VALUES || form == CALM_GGUF_LAST_HALF;
}

bool calm_gguf_order_is_vector(calm_gguf_form form)
{
    return form == CALM_GGUF_COLUMN || form == CALM_GGUF_GROUPS;
}

int calm_gguf_order_dims(const calm_gguf_order *order, size_t rows, size_t cols, size_t dims[3])
{
    const calm_gguf_widths *w = order->widths;
    const bool keys = order->form == CALM_GGUF_KV_KEYS, latent = keys || order->form == CALM_GGUF_KV_VALUES;
    const bool half = order->form == CALM_GGUF_FIRST_HALF || order->form == CALM_GGUF_LAST_HALF;
    dims[0] = keys ? w->nope : order->form == CALM_GGUF_GROUPS ? rows / w->groups : cols;
    dims[1] = keys                                   ? cols
              : order->form == CALM_GGUF_KV_VALUES   ? w->value
              : order->form == CALM_GGUF_QKVZ_MIXED  ? keys_rows(w) + w->value_heads * w->value_dim
              : order->form == CALM_GGUF_QKVZ_GATE   ? w->value_heads * w->value_dim
              : order->form == CALM_GGUF_GROUPS      ? w->groups
              : half                                 ? rows / 2
                                                     : rows - order->skipped;
    dims[2] = latent ? w->heads : 1;
    return latent ? 3 : 2;
}

size_t calm_gguf_order_row(const calm_gguf_order *order, size_t row)
{
    const calm_gguf_widths *w = order->widths;
    switch (order->form) {
    case CALM_GGUF_Q:
    case CALM_GGUF_K:
        return turned(row, order->head_dim);
    case CALM_GGUF_MIXED:
        return row < keys_rows(w) ? row : keys_rows(w) + tiled(w, w->value_dim, row - keys_rows(w));
    case CALM_GGUF_VALUES:
        return tiled(w, w->value_dim, row);
    case CALM_GGUF_GATES:
        return tiled(w, 1, row);
    case CALM_GGUF_QKVZ_MIXED:
        return row_of_mixed(w, row);
    case CALM_GGUF_QKVZ_GATE:
        return row / group_rows(w) * fused_rows(w) + 2 * w->key_dim + group_rows(w) + row % group_rows(w);
    case CALM_GGUF_KV_VALUES:
        return row / w->value * (w->nope + w->value) + w->nope + row % w->value;
    case CALM_GGUF_LAST_HALF:
        /* Rows of up follow those of gate. */
        return order->half + row;
    case CALM_GGUF_LATER_ROWS:
        return order->skipped + row;
    default:
        return row;
    }
}

size_t calm_gguf_order_find(const calm_gguf_order *order, size_t row, bool *other)
{
    const calm_gguf_widths *w = order->widths;
    *other = false;
    switch (order->form) {
    case CALM_GGUF_Q:
    case CALM_GGUF_K:
        return unturned(row, order->head_dim);
    case CALM_GGUF_MIXED:
        return row < keys_rows(w) ? row : keys_rows(w) + untiled(w, w->value_dim, row - keys_rows(w));
    case CALM_GGUF_VALUES:
        return untiled(w, w->value_dim, row);
    case CALM_GGUF_GATES:
        return untiled(w, 1, row);
    case CALM_GGUF_QKVZ_MIXED:
    case CALM_GGUF_QKVZ_GATE:
        return find_in_fused(w, row, other);
    case CALM_GGUF_KV_KEYS:
    case CALM_GGUF_KV_VALUES:
        /* For keys it is the column of the transposed head. */
        *other = row % (w->nope + w->value) >= w->nope;
        return *other ? row / (w->nope + w->value) * w->value + row % (w->nope + w->value) - w->nope
                      : row % (w->nope + w->value);
    case CALM_GGUF_FIRST_HALF:
    case CALM_GGUF_LAST_HALF:
        *other = row >= order->half;
        return row % order->half;
    case CALM_GGUF_LATER_ROWS:
        return row - order->skipped;
    default:
        return row;
    }
}

size_t calm_gguf_order_column(const calm_gguf_order *order, size_t column)
{
    return order->form == CALM_GGUF_VALUE_COLUMNS ? tiled(order->widths, order->widths->value_dim, column) : column;
}

size_t calm_gguf_order_find_column(const calm_gguf_order *order, size_t column)
{
    return order->form == CALM_GGUF_VALUE_COLUMNS ? untiled(order->widths, order->widths->value_dim, column) : column;
}
