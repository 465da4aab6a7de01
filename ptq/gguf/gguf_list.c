/* Lists the tensors of a GGUF file under their names in a checkpoint. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/gguf/gguf_names_impl.h"

/* Far above the number of experts of any model; bounds the list that a small file causes. */
#define MOST_EXPERTS ((size_t)1 << 16)

/* llama_expert_gating_func_type */
#define GATING_SIGMOID 2

/* ---- keys ---- */

/* Returns a key's whole number, 0 where it is absent or another type; it distinguishes families with the same name. */
static int64_t number_of(const calm_gguf *file, const calm_gguf_key *arch, const char *rest)
{
    const char *text = NULL;
    size_t at = 0, n = 0;
    char name[96];
    int64_t count = 0;
    if (!calm_gguf_next_string(arch, &at, &text, &n))
        return 0;
    /* Longer names are cut: no architecture has one, so such a key does not exist. */
    snprintf(name, sizeof name, "%.*s.%s", (int)calm_size_min(n, 64), text, rest);
    return calm_gguf_int(calm_gguf_find_key(file, name), 0, &count) ? count : 0;
}

/* Finds the family of "general.architecture". */
static calm_status find_arch(calm_ctx *ctx, const calm_gguf *file, calm_gguf_list *out)
{
    const calm_gguf_key *key = calm_gguf_find_key(file, "general.architecture");
    size_t n_families;
    const calm_arch *const *families = calm_architectures(&n_families);
    const bool experts = number_of(file, key, "expert_count") > 0;
    /* OLMo 3 has OLMo 2's name, and windows; DeepSeek-V3 has V2's, and sigmoids. */
    const bool windows = calm_gguf_is(key, "olmo2") && number_of(file, key, "attention.sliding_window") > 0;
    /* DistilBERT has BERT's name, and no token types. */
    const bool untyped = calm_gguf_is(key, "bert") && !calm_gguf_find_tensor(file, "token_types.weight");
    const bool sigmoid = calm_gguf_is(key, "deepseek2")
                         && number_of(file, key, "expert_gating_func") == GATING_SIGMOID;
    for (size_t i = 0; i < n_families; i++) {
        const calm_gguf_arch *as = calm_gguf_arch_of(families[i], experts);
        if (!as || !calm_gguf_is(key, as->name) || as->experts != experts || as->windows != windows
            || as->sigmoid != sigmoid || as->untyped != untyped)
            continue;
        out->as = as;
        out->arch = families[i];
        return CALM_OK;    /* the first of those with the same name: llama before mistral */
    }
    const char *text = "none", *last = "";
    size_t at = 0, n = 4;
    CALM_SCOPED_TEXT(known);
    calm_gguf_next_string(key, &at, &text, &n);
    for (size_t i = 0; calm_gguf_arch_at(i); last = calm_gguf_arch_at(i++)->name)
        /* Families with the same name are next to each other. */
        if (strcmp(calm_gguf_arch_at(i)->name, last) != 0)
            calm_text_printf(&known, " %s", calm_gguf_arch_at(i)->name);
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: architecture %.*s; calm knows%s", calm_gguf_path(file), (int)(n < 60 ? n : 60), text,
                     known.data);
}

/* Reads a whole number from 1 to CALM_SIZE_LIMIT. */
static calm_status need_width(calm_ctx *ctx, const calm_gguf_list *list, const char *rest, size_t *out)
{
    char name[96];
    int64_t value = 0;
    snprintf(name, sizeof name, "%s.%s", list->as->name, rest);
    if (!calm_gguf_int(calm_gguf_find_key(list->file, name), 0, &value) || value < 1 || value > CALM_SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key %s: expected a whole number from 1 to 2^24",
                         calm_gguf_path(list->file), name);
    *out = (size_t)value;
    return CALM_OK;
}

/* Reads the widths of latent attention's heads. */
static calm_status read_latent(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_widths *out)
{
    size_t key, rope;
    CALM_TRY(need_width(ctx, list, "attention.head_count", &out->heads));
    CALM_TRY(need_width(ctx, list, "attention.key_length_mla", &key));
    CALM_TRY(need_width(ctx, list, "attention.value_length_mla", &out->value));
    CALM_TRY(need_width(ctx, list, "rope.dimension_count", &rope));
    /* The length of a whole key includes both of its parts. */
    if (rope >= key)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key %s.attention.key_length_mla: expected more than the %zu of "
                         "rope.dimension_count, found %zu", calm_gguf_path(list->file), list->as->name, rope, key);
    /* The other part is rotated, and heads share it. */
    out->nope = key - rope;
    return CALM_OK;
}

/* Reads numbers and widths of delta nets' heads. */
static calm_status read_delta(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_widths *out)
{
    size_t inner;
    CALM_TRY(need_width(ctx, list, "ssm.group_count", &out->key_heads));
    CALM_TRY(need_width(ctx, list, "ssm.time_step_rank", &out->value_heads));
    CALM_TRY(need_width(ctx, list, "ssm.state_size", &out->key_dim));
    CALM_TRY(need_width(ctx, list, "ssm.inner_size", &inner));
    if (out->value_heads % out->key_heads)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key %s.ssm.time_step_rank: expected a multiple of ssm.group_count "
                         "(%zu), found %zu", calm_gguf_path(list->file), list->as->name, out->key_heads,
                         out->value_heads);
    if (inner % out->value_heads)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key %s.ssm.inner_size: expected a multiple of ssm.time_step_rank "
                         "(%zu), found %zu", calm_gguf_path(list->file), list->as->name, out->value_heads, inner);
    /* llama.cpp uses state_size instead; the file's own width also covers other models. */
    out->value_dim = inner / out->value_heads;
    return CALM_OK;
}

/* Reads the number of Mamba-2's groups. */
static calm_status read_scan(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_widths *out)
{
    return need_width(ctx, list, "ssm.group_count", &out->groups);
}

/* ---- entries ---- */

/* Computes the rows of a head of a permuted tensor. */
static calm_status find_head_dim(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_entry *entry)
{
    const char *which = entry->spot.form == CALM_GGUF_Q ? "head_count" : "head_count_kv";
    const size_t rows = entry->shape[0];
    int64_t heads = 0;
    char name[64];
    snprintf(name, sizeof name, "%s.attention.%s", list->as->name, which);
    const calm_gguf_key *key = calm_gguf_find_key(list->file, name);
    /* Of a list the first positive number: other blocks have 0 or the same number. */
    for (size_t i = 0; key && i < (key->array ? key->n : 1) && heads <= 0; i++)
        calm_gguf_int(key, i, &heads);
    if (heads <= 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key %s: expected a whole number above 0", calm_gguf_path(list->file),
                         name);
    /* Half of a head's rows is paired with the other half. */
    if (rows % (size_t)heads || rows / (size_t)heads % 2)
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: %zu rows, expected %lld heads of an even number of rows",
                         calm_gguf_path(list->file), entry->spot.name, rows, (long long)heads);
    entry->order.head_dim = rows / (size_t)heads;
    return CALM_OK;
}

/* Finds a tensor with an additional factor of the matrix; NVFP4 has one. */
static calm_status find_factor(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_tensor *stored,
                               const calm_gguf_tensor **out)
{
    const char *dot = strrchr(stored->name, '.');
    char name[CALM_GGUF_NAME_MAX + 1], *own;
    *out = NULL;
    if (stored->n_dims < 2 || !dot || strcmp(dot, ".weight") != 0)
        return CALM_OK;
    snprintf(name, sizeof name, "%.*s.scale", (int)(dot - stored->name), stored->name);
    /* In some families it is a tensor of checkpoints. */
    CALM_TRY(calm_gguf_name_of(ctx, list->arch, list->as, "", &(calm_gguf_spot){.name = name, .expert = CALM_NO_EXPERT},
                               &own));
    if (own)
        return CALM_OK;
    const calm_gguf_tensor *found = calm_gguf_find_tensor(list->file, name);
    const size_t expected = stored->n_dims == 3 ? stored->dims[2] : 1;
    if (found && (found->type != CALM_GGML_F32 || found->n_dims != 1 || found->dims[0] != expected))
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: expected %zu values of F32, one for each matrix of %s",
                         calm_gguf_path(list->file), name, expected, stored->name);
    *out = found;
    return CALM_OK;
}

/* Checks that a part has the sizes that follow from the whole matrix [rows, cols]. */
static calm_status check_part(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_tensor *part,
                              calm_gguf_form form, size_t rows, size_t cols)
{
    const calm_gguf_order order = calm_gguf_order_of(form, 0, list->widths);
    size_t dims[3];
    const int n = calm_gguf_order_dims(&order, rows, cols, dims);
    if (part->n_dims == n && memcmp(part->dims, dims, sizeof dims) == 0)
        return CALM_OK;
    return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: expected sizes %zu, %zu, %zu by the file's keys, found %zu, "
                     "%zu, %zu", calm_gguf_path(list->file), part->name, dims[0], dims[1], dims[2], part->dims[0],
                     part->dims[1], part->dims[2]);
}

/* Returns the prefix of tensor names. */
static const char *prefix_of(const calm_gguf_list *list)
{
    return list->as->bare ? "" : "model.";
}

/* Joins the two parts of a tensor: the entry of the first part becomes the whole. */
static calm_status join(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_entry *entry)
{
    const calm_gguf_widths *w = list->widths;
    const bool latent = entry->spot.form == CALM_GGUF_KV_KEYS, half = entry->spot.form == CALM_GGUF_FIRST_HALF;
    calm_gguf_spot spot;
    bool known;
    CALM_TRY(calm_gguf_spot_of(ctx, list->arch, list->as, prefix_of(list), entry->name, &spot, &known));
    entry->rest = known && spot.rest ? calm_gguf_find_tensor(list->file, spot.rest) : NULL;
    if (!entry->rest)
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: no %s next to it, which holds the rest of %s",
                         calm_gguf_path(list->file), entry->stored->name, known && spot.rest ? spot.rest : "tensor",
                         entry->name);
    /* gate and up each have half of the rows. */
    entry->order.half = entry->stored->dims[1];
    /* Each factor is at most 2^24, so no product of two overflows. */
    entry->shape[0] = half     ? 2 * entry->order.half
                      : latent ? w->heads * (w->nope + w->value)
                             : 2 * (w->key_heads * w->key_dim + w->value_heads * w->value_dim);
    entry->shape[1] = latent ? entry->stored->dims[1] : entry->stored->dims[0];
    entry->n_dims = 2;
    CALM_TRY(check_part(ctx, list, entry->stored, spot.form, entry->shape[0], entry->shape[1]));
    return check_part(ctx, list, entry->rest, spot.rest_form, entry->shape[0], entry->shape[1]);
}

/* Checks that rows or columns of value heads match the file's keys. */
static calm_status check_heads(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry)
{
    const calm_gguf_widths *w = list->widths;
    const bool columns = entry->spot.form == CALM_GGUF_VALUE_COLUMNS;
    const size_t values = w->value_heads * w->value_dim, found = entry->shape[columns];
    const size_t expected = entry->spot.form == CALM_GGUF_GATES   ? w->value_heads
                            : entry->spot.form == CALM_GGUF_MIXED ? 2 * w->key_heads * w->key_dim + values
                                                                  : values;
    if (found == expected && (!columns || entry->n_dims == 2))
        return CALM_OK;
    return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: expected %zu %s by the file's keys of delta nets, found %zu",
                     calm_gguf_path(list->file), entry->stored->name, expected, columns ? "columns" : "rows", found);
}

/* Fills in the order and what depends on it. */
static calm_status fill_order(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_entry *entry)
{
    bool first;
    entry->order = calm_gguf_order_of(entry->spot.form, 0, list->widths);
    switch (entry->spot.form) {
    case CALM_GGUF_AS_IS:
    case CALM_GGUF_COLUMN:
    case CALM_GGUF_GROUPS:
        return CALM_OK;
    case CALM_GGUF_Q:
    case CALM_GGUF_K:
        return find_head_dim(ctx, list, entry);
    default:
        break;
    }
    if (!calm_gguf_order_is_part(entry->spot.form, &first))
        return check_heads(ctx, list, entry);
    if (first)
        return join(ctx, list, entry);
    /* The entry of the first part represents both. */
    entry->is_rest = true;
    entry->name = NULL;
    return CALM_OK;
}

/* Fills in name, shape in the checkpoint, and order. */
static calm_status fill_entry(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_entry *entry)
{
    const calm_gguf_tensor *stored = entry->stored;
    char *name;
    CALM_TRY(calm_gguf_name_of(ctx, list->arch, list->as, prefix_of(list), &entry->spot, &name));
    entry->name = name;
    /* GGUF stores the fastest dimension first, checkpoints the slowest; of three dimensions an entry is one matrix. */
    const bool bias = entry->spot.expert >= 0 && stored->n_dims == 2;    /* a row for each expert */
    entry->n_dims = stored->n_dims < 2 || bias ? 1 : 2;
    entry->shape[0] = entry->n_dims == 1 ? stored->dims[0] : stored->dims[1];
    entry->shape[1] = entry->n_dims == 1 ? 1 : stored->dims[0];
    entry->shape[2] = 1;
    const char *gate = list->arch->names->moe.shared_gate;
    const bool row = gate && name && strstr(name, gate);
    const bool flat = list->as->flat_bias && calm_text_ends_with(stored->name, CALM_GGUF_CHOICE_BIAS);
    if (entry->n_dims == 1 && (row || flat)) {
        /* Checkpoints store [1, n]. */
        entry->n_dims = 2;
        entry->shape[1] = entry->shape[0];
        entry->shape[0] = 1;
    }
    /* A vector in checkpoints, of any sizes in the file. */
    if (calm_gguf_order_is_vector(entry->spot.form) && entry->n_dims == 2) {
        entry->n_dims = 1;
        /* It has as many elements as in the file. */
        entry->shape[0] *= entry->shape[1];
        entry->shape[1] = 1;
    }
    /* torch stores a depthwise convolution in three dimensions. */
    if (entry->spot.taps && entry->n_dims == 2) {
        entry->n_dims = 3;
        entry->shape[2] = entry->shape[1];
        entry->shape[1] = 1;
    }
    return name ? fill_order(ctx, list, entry) : CALM_OK;
}

calm_status calm_gguf_list_tensors(calm_ctx *ctx, const calm_gguf *file, calm_gguf_list *out)
{
    size_t n = 0;
    *out = (calm_gguf_list){.file = file};
    CALM_TRY(find_arch(ctx, file, out));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->widths, 1));
    if (out->arch->latent)
        CALM_TRY(read_latent(ctx, out, out->widths));
    if (out->as->deltas)
        CALM_TRY(read_delta(ctx, out, out->widths));
    if (out->as->scans)
        CALM_TRY(read_scan(ctx, out, out->widths));
    /* Entries are counted first: one tensor of experts becomes many entries, and its size is untrusted. */
    for (size_t i = 0; i < calm_gguf_n_tensors(file); i++) {
        const calm_gguf_tensor *stored = calm_gguf_tensor_at(file, i);
        const size_t experts = calm_gguf_experts_in(stored);
        if (experts > MOST_EXPERTS)
            return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: %zu experts, expected at most %zu",
                             calm_gguf_path(file), stored->name, experts, MOST_EXPERTS);
        n += experts ? experts : 1;
    }
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->entries, n));
    for (size_t i = 0; i < calm_gguf_n_tensors(file); i++) {
        const calm_gguf_tensor *stored = calm_gguf_tensor_at(file, i);
        const size_t experts = calm_gguf_experts_in(stored);
        const calm_gguf_tensor *factor;
        CALM_TRY(find_factor(ctx, out, stored, &factor));
        for (size_t e = 0; e < (experts ? experts : 1); e++) {
            calm_gguf_entry *entry = &out->entries[out->n++];
            entry->stored = stored;
            entry->factor = factor;
            entry->spot = (calm_gguf_spot){.name = stored->name, .expert = experts ? (long)e : CALM_NO_EXPERT};
            CALM_TRY(fill_entry(ctx, out, entry));
        }
    }
    return CALM_OK;
}

/* ---- values ---- */

size_t calm_gguf_entry_columns(const calm_gguf_entry *entry)
{
    return entry->n_dims < 2 ? 1 : entry->shape[1] * entry->shape[2];
}

/* Undoes the change of an element's value. */
static calm_status restore(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry, float *value)
{
    if (!entry->spot.minus_exp) {
        /* Norm weights: llama.cpp multiplies by them directly, so its files store 1 + w. */
        *value -= entry->spot.plus_one ? 1 : 0;
        return CALM_OK;
    }
    if (!(*value < 0) || !isfinite(logf(-*value)))
        return calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: expected numbers below 0, -exp of what checkpoints have, "
                         "found %g", calm_gguf_path(list->file), entry->stored->name, (double)*value);
    *value = logf(-*value);
    return CALM_OK;
}

/* Reads elements first .. first + n - 1 of one row of the file, or of a small matrix. */
static calm_status vector_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry, size_t first,
                                 size_t n, float *out)
{
    const size_t at = entry->spot.expert > 0 ? (size_t)entry->spot.expert : 0;    /* an expert's row of biases */
    const size_t rows = calm_gguf_order_is_vector(entry->spot.form) ? entry->stored->dims[1] : 1;
    bool other;
    CALM_SCOPED_SCRATCH(ctx);
    float *row;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, rows * entry->stored->dims[0]));
    CALM_TRY(calm_gguf_to_f32(ctx, list->file, entry->stored, at, rows, row));
    for (size_t i = 0; i < n; i++) {
        out[i] = row[calm_gguf_order_find(&entry->order, first + i, &other)];
        CALM_TRY(restore(ctx, list, entry, &out[i]));
    }
    return CALM_OK;
}

/* Multiplies rows by the additional factor of their matrix. */
static calm_status apply_factor(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry,
                                const calm_gguf_tensor *stored, size_t n, float *values)
{
    const calm_gguf_tensor *of = entry->factor;
    const size_t expert = entry->spot.expert > 0 ? (size_t)entry->spot.expert : 0;
    float factor;
    /* Each part has its own factor. */
    if (stored == entry->rest)
        CALM_TRY(find_factor(ctx, list, stored, &of));
    if (!of)
        return CALM_OK;
    memcpy(&factor, of->data + expert * sizeof factor, sizeof factor);
    if (!isfinite(factor))
        return calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: element %zu is not finite", calm_gguf_path(list->file),
                         of->name, expert);
    for (size_t i = 0; i < n; i++)
        values[i] *= factor;
    return CALM_OK;
}

/* Reads n rows of a tensor in the file's order. */
static calm_status stored_rows(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry,
                               const calm_gguf_tensor *stored, size_t first, size_t n, float *out)
{
    /* Factors multiply stored values, so they are applied before rows are reordered or parts are joined. */
    CALM_TRY(calm_gguf_to_f32(ctx, list->file, stored, first, n, out));
    return apply_factor(ctx, list, entry, stored, n * stored->dims[0], out);
}

/* Reads rows first .. first + n - 1 of the keys of head `head`, which are columns in the file. */
static calm_status keys_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry, size_t head,
                               size_t first, size_t n, float *out)
{
    const size_t rank = entry->shape[1], nope = entry->stored->dims[0];
    CALM_SCOPED_SCRATCH(ctx);
    float *block;
    /* A row is a column of the head's matrix, which is read as a whole. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, block, rank * nope));
    CALM_TRY(stored_rows(ctx, list, entry, entry->stored, head * rank, rank, block));
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < rank; c++)
            out[i * rank + c] = block[c * nope + first + i];
    return CALM_OK;
}

/* Reads rows of latent attention's keys and values, head by head. */
static calm_status latent_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry, size_t first,
                                 size_t n, float *out)
{
    const calm_gguf_widths *w = list->widths;
    const size_t head_rows = w->nope + w->value;
    for (size_t done = 0, step; done < n; done += step) {
        const size_t row = first + done, in_head = row % head_rows, head = row / head_rows;
        const bool keys = in_head < w->nope;
        /* Up to the end of the head's keys, or of its values. */
        step = calm_size_min(n - done, (keys ? w->nope : head_rows) - in_head);
        CALM_TRY(keys ? keys_to_f32(ctx, list, entry, head, in_head, step, out + done * entry->shape[1])
                      : stored_rows(ctx, list, entry, entry->rest, head * w->value + in_head - w->nope, step,
                                    out + done * entry->shape[1]));
    }
    return CALM_OK;
}

/* Moves the columns of value heads to a checkpoint's order. */
static calm_status order_columns(calm_ctx *ctx, const calm_gguf_entry *entry, size_t n, float *values)
{
    const size_t cols = entry->shape[1];
    CALM_SCOPED_SCRATCH(ctx);
    float *row;
    if (entry->order.form != CALM_GGUF_VALUE_COLUMNS)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, cols));
    /* Row by row, so that a copy of one row is enough. */
    for (size_t i = 0; i < n; i++) {
        memcpy(row, values + i * cols, cols * sizeof *row);
        for (size_t c = 0; c < cols; c++)
            values[i * cols + c] = row[calm_gguf_order_find_column(&entry->order, c)];
    }
    return CALM_OK;
}

/* Reads rows in a checkpoint's order. */
static calm_status rows_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry, size_t first,
                               size_t n, float *out)
{
    /* The rows of expert e start at e times the rows of an expert. */
    const size_t base = entry->spot.expert > 0 ? (size_t)entry->spot.expert * entry->shape[0] : 0;
    const bool in_order = entry->order.form == CALM_GGUF_AS_IS || entry->order.form == CALM_GGUF_VALUE_COLUMNS;
    if (in_order)
        CALM_TRY(stored_rows(ctx, list, entry, entry->stored, base + first, n, out));
    /* Row by row: neighbours in a checkpoint may be far apart in the file. */
    for (size_t i = 0; i < n && !in_order; i++) {
        bool other;
        const size_t row = calm_gguf_order_find(&entry->order, first + i, &other);
        CALM_TRY(stored_rows(ctx, list, entry, other ? entry->rest : entry->stored, row, 1,
                             out + i * calm_gguf_entry_columns(entry)));
    }
    return order_columns(ctx, entry, n, out);
}

calm_status calm_gguf_entry_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry,
                                   size_t first, size_t n, float *out)
{
    if (entry->stored->n_dims < 2 || entry->n_dims == 1)
        return vector_to_f32(ctx, list, entry, first, entry->n_dims == 1 ? n : entry->shape[1], out);
    return entry->rest && entry->order.form == CALM_GGUF_KV_KEYS ? latent_to_f32(ctx, list, entry, first, n, out)
                                                                 : rows_to_f32(ctx, list, entry, first, n, out);
}
