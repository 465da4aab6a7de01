/* Rotate: lists every tensor with the rotations of its two sides, then writes them one by one.
 *
 * A side has groups of the width of its rotation: the whole side for R1, heads for R2.  A tensor is processed in pieces
 * of whole groups of both sides, each a separate task, so the bytes do not depend on the number of threads. */
#include "ptq/export/rotate.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/threads.h"
#include "ptq/export/companions.h"
#include "ptq/export/export.h"
#include "ptq/export/module_names.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/io/shards.h"
#include "ptq/layers/moe.h"
#include "ptq/tensor/rotation.h"

#define PIECE 64                          /* rows or columns of a piece on a side without groups     */
#define CHUNK_ELEMENTS ((size_t)1 << 22)  /* elements in memory of a tensor that is processed by rows */

/* One side of a weight: rotations of its groups, one after the other from `first` on. */
typedef struct side {
    const calm_rotation *rotations;    /* NULL: the side is not rotated */
    size_t first, share;               /* group g has rotations[g / share] */
} side;

/* A tensor to write. */
typedef struct item {
    const calm_tensor *from;
    calm_dtype dtype;      /* written dtype                                  */
    bool ones;             /* a norm whose weights were folded into the next linears */
    side in, out;          /* along its columns; along its rows              */
    const double *columns, *rows;    /* factors before the rotation; NULL: ones */
} item;

typedef struct work {
    const calm_model *model;
    const calm_rotate_options *how;
    calm_rotation residual;    /* R1 */
    calm_rotation online[CALM_N_JOBS];    /* of inputs; n 0: there is none */
    calm_tensor *tensors;    /* [n] tensors to write */
    const calm_tensor **sources;
    bool *head;              /* [n] the head of a model whose head was the embedding */
    size_t n;
    calm_shards_writer writer;
} work;

static const char *const kind_names[] = {"none", "r1", "r1r2", "r1r2r4", "inputs"};

const char *calm_rotate_name(calm_rotate_kind kind)
{
    return kind_names[kind];
}

bool calm_rotate_find(const char *name, calm_rotate_kind *out)
{
    for (*out = CALM_ROTATE_NONE; *out <= CALM_ROTATE_INPUTS; ++*out)
        if (strcmp(name, kind_names[*out]) == 0)
            return true;
    return false;
}

bool calm_rotate_turns_stream(calm_rotate_kind kind)
{
    return kind != CALM_ROTATE_NONE && kind != CALM_ROTATE_INPUTS;
}

bool calm_rotate_is_online(calm_rotate_kind kind)
{
    return kind == CALM_ROTATE_R1R2R4 || kind == CALM_ROTATE_INPUTS;
}

/* ---- checks ---- */

static calm_status refuse(calm_ctx *ctx, const calm_model *model, const char *why)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: family %s cannot be rotated: %s; quantize it with `rotate` none",
                     calm_model_dir(model), calm_model_config(model)->arch->name, why);
}

/* Fails with CALM_EUNSUPPORTED where the rotation's offline part is not legal. */
static calm_status check_rotation(calm_ctx *ctx, const calm_model *model, calm_rotate_kind kind)
{
    const calm_config *config = calm_model_config(model);
    const calm_names *names = config->arch->names;
    if (calm_model_is_quantized(model))
        return refuse(ctx, model, "the checkpoint is quantized already");
    if (!calm_rotate_turns_stream(kind))
        return CALM_OK;
    if (config->arch->norm == CALM_NORM_LAYER)
        return refuse(ctx, model, "LayerNorm subtracts the mean of the channels, which a rotation mixes");
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        if (!names->norm[s][CALM_NORM_IN] || names->norm[s][CALM_NORM_OUT] || names->norm[s][CALM_NORM_RESIDUAL])
            return refuse(ctx, model, "it has a norm with a weight per channel between a sublayer and the residual "
                                      "stream, which no matrix takes in");
    if (config->arch->norm != CALM_NORM_RMS || !names->final_norm || config->arch->encoder)
        return refuse(ctx, model, "its norms are not the RMSNorm that a rotation leaves as it is");
    return CALM_OK;
}

calm_status calm_rotate_allow(calm_ctx *ctx, calm_model *model, calm_rotate_kind kind)
{
    CALM_TRY(check_rotation(ctx, model, kind));
    return calm_rotate_is_online(kind) ? calm_model_use_hadamard(ctx, model, kind == CALM_ROTATE_INPUTS) : CALM_OK;
}

/* ---- rotations of a tensor ---- */

/* Returns the weights of a norm, in ctx->scratch. */
static calm_status load_norm(calm_ctx *ctx, const work *w, const char *module, const double **out)
{
    const size_t width = calm_model_config(w->model)->hidden;
    calm_norm norm;
    double *values;
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_model_load_norm(ctx, w->model, module, width, &norm));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, width));
    for (size_t i = 0; i < width; i++)
        values[i] = (double)norm.w[i];
    *out = values;
    return CALM_OK;
}

/* Sets the input side of a tensor that reads the residual stream after a norm; norm NULL: the embedding, whose rows are
 * the stream's first values. */
static calm_status read_stream(calm_ctx *ctx, const work *w, const char *norm, item *out)
{
    out->in = (side){&w->residual, .share = 1};
    return norm ? load_norm(ctx, w, norm, &out->columns) : CALM_OK;
}

/* Does the same after the norm of a sublayer. */
static calm_status read_block(calm_ctx *ctx, const work *w, long block, calm_sublayer sublayer, item *out)
{
    char *prefix, *norm;
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_model_block_name(ctx, w->model, (size_t)block, &prefix));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &norm, "%s.%s", prefix,
                       calm_model_config(w->model)->arch->names->norm[sublayer][CALM_NORM_IN]));
    return read_stream(ctx, w, norm, out);
}

/* Creates R2 of the key heads of a block, in ctx->scratch, with different signs for each head. */
static calm_status head_rotations(calm_ctx *ctx, const work *w, long block, const calm_rotation **out)
{
    const calm_config *config = calm_config_at(calm_model_config(w->model), (size_t)block);
    calm_rotation *heads;
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, heads, config->n_kv));
    const uint64_t first = 1 + (size_t)block * config->n_kv;    /* stream 0 is R1's */
    for (size_t h = 0; h < config->n_kv; h++)
        CALM_TRY(calm_rotation_init(ctx, config->head_dim, w->how->seed, first + h, &heads[h]));
    *out = heads;
    return CALM_OK;
}

/* Computes out [rows] or, with `columns`, [columns]: sums of squares of a linear of a block, with these factors of its
 * columns (NULL: ones). */
static calm_status sum_squares(calm_ctx *ctx, const work *w, long block, calm_role role, const double *factors,
                               bool columns, double *out)
{
    const calm_config *config = calm_config_at(calm_model_config(w->model), (size_t)block);
    size_t rows, width;
    char *module;
    calm_weight weight;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    calm_role_shape(config, role, CALM_NO_EXPERT, &rows, &width);
    CALM_TRY(calm_role_module(ctx, config, calm_model_prefix(w->model), (size_t)block, role, CALM_NO_EXPERT, &module));
    CALM_TRY(calm_model_load_linear(ctx, w->model, module, rows, width, false, &weight));
    memset(out, 0, (columns ? width : rows) * sizeof *out);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < width; i++) {
            const double x = (double)weight.w[r * width + i] * (factors ? factors[i] : 1);
            out[columns ? i : r] += x * x;
        }
    return CALM_OK;
}

/* The linear whose product a sublayer of a block gives, and the rows that feed it; false: none do, or heads have other
 * rows between them (latent attention), which a matrix of heads side by side would mix in. */
static bool find_pair(const work *w, long block, calm_sublayer sublayer, calm_feed *feed, calm_role *last)
{
    const calm_config *config = calm_config_at(calm_model_config(w->model), (size_t)block);
    *last = CALM_N_ROLES;
    if (!calm_kind_dense(config, sublayer))
        return false;
    const calm_job_kind job = calm_slot_last_job(config, sublayer);
    calm_job_is_last(config, job, last);
    return calm_job_fold(config, job, CALM_NO_EXPERT, feed) == CALM_FOLD_ROWS &&
           (feed->heads == 1 || feed->stride == feed->width);
}

/* Balances channels before a rotation, which spreads every channel over all others: a channel that is large in one
 * matrix and small in the next would harm both.  Rows of v (with R4 of up) are scaled so that each is as long as the
 * columns of o (down) that read it, which does not change the function (Nagel et al., arXiv 1906.04721).  Computes
 * factors of the producer's rows and the inverse factors of the consumer's columns, in ctx->scratch. */
static calm_status balance(calm_ctx *ctx, const work *w, long block, calm_sublayer sublayer, const double **rows,
                           const double **columns)
{
    const calm_config *config = calm_config_at(calm_model_config(w->model), (size_t)block);
    calm_feed feed;
    calm_role last;
    find_pair(w, block, sublayer, &feed, &last);
    const calm_role role = feed.role;
    const size_t each = feed.width, share = feed.readers;
    size_t n_rows, width, n_read;
    double *long_rows, *long_columns;
    item norm;
    calm_role_shape(config, role, CALM_NO_EXPERT, &n_rows, &width);
    calm_role_shape(config, last, CALM_NO_EXPERT, &width, &n_read);
    CALM_TRY(read_block(ctx, w, block, sublayer, &norm));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, long_rows, n_rows));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, long_columns, n_read));
    CALM_TRY(sum_squares(ctx, w, block, role, norm.columns, false, long_rows));
    CALM_TRY(sum_squares(ctx, w, block, last, NULL, true, long_columns));
    /* In a fused matrix the producer's rows are the last; q, k and gate do not change. */
    const size_t first = n_rows - n_read / share;
    for (size_t i = 0; i < first; i++)
        long_rows[i] = 1;
    for (size_t i = 0; i < n_read / share; i++) {
        double read = 0;    /* sum over all query heads that share a key head */
        for (size_t s = 0; s < share; s++)
            read += long_columns[(i / each * share + s) * each + i % each];
        /* A channel of zeros on one side is not balanced. */
        const double squares = read / (double)share / long_rows[first + i];
        const double factor = squares > 0 && isfinite(squares) ? sqrt(sqrt(squares)) : 1;
        long_rows[first + i] = factor;
        for (size_t s = 0; s < share; s++)
            long_columns[(i / each * share + s) * each + i % each] = 1 / factor;
    }
    *rows = long_rows;
    *columns = long_columns;
    return CALM_OK;
}

/* Sets R2 of v's rows, which are the last of a fused matrix, and of o's columns. */
static calm_status plan_heads(calm_ctx *ctx, const work *w, const calm_export_part *part, item *out)
{
    const double *rows, *columns;
    calm_feed feed;
    calm_role last;
    const bool paired = find_pair(w, part->block, CALM_SUBLAYER_ATTENTION, &feed, &last), o = part->role == last;
    /* Heads of other kinds are not rotated, nor heads with a gate after them. */
    if (!paired || !feed.rotates || (part->role != feed.role && !(o && part->kind == CALM_EXPORT_WEIGHT)))
        return CALM_OK;
    CALM_TRY(balance(ctx, w, part->block, CALM_SUBLAYER_ATTENTION, &rows, &columns));
    if (o) {
        out->columns = columns;
        out->in.share = feed.readers;    /* query heads share a key head in groups */
        return head_rotations(ctx, w, part->block, &out->in.rotations);
    }
    out->rows = rows;
    out->out = (side){.first = feed.first, .share = 1};
    return head_rotations(ctx, w, part->block, &out->out.rotations);
}

/* Sets the online rotation of a weight's columns, every block of channels by the same matrix. */
static void plan_input(const work *w, const calm_export_part *part, item *out)
{
    const calm_rotation *online = &w->online[calm_role_job(part->role)];
    if (part->kind == CALM_EXPORT_WEIGHT && online->n)
        out->in = (side){online, .share = SIZE_MAX};
}

/* Sets R4 of down's columns; up, whose output down reads, is only balanced. */
static calm_status plan_online(calm_ctx *ctx, const work *w, const calm_export_part *part, item *out)
{
    const double *rows, *columns;
    calm_feed feed;
    calm_role last;
    const bool paired = find_pair(w, part->block, CALM_SUBLAYER_MLP, &feed, &last), down = part->role == last;
    if (down ? part->kind != CALM_EXPORT_WEIGHT : !paired || part->role != feed.role)
        return CALM_OK;
    if (!paired) {    /* without a gate there is nothing to balance with */
        plan_input(w, part, out);
        return CALM_OK;
    }
    CALM_TRY(balance(ctx, w, part->block, CALM_SUBLAYER_MLP, &rows, &columns));
    if (down) {
        out->columns = columns;
        plan_input(w, part, out);
    } else {
        out->rows = rows;
    }
    return CALM_OK;
}

/* Sets the rotations of a linear's weight or bias. */
static calm_status plan_linear(calm_ctx *ctx, const work *w, const calm_export_part *part, item *out)
{
    const calm_config *config = calm_config_at(calm_model_config(w->model), (size_t)part->block);
    const calm_job_kind job = calm_role_job(part->role);
    /* Experts after a linear of the block neither read the residual stream nor add to it. */
    const bool inside = part->job->expert >= 0 && config->moe.latent;
    if (!inside && calm_job_is_last(config, job, NULL))
        out->out = (side){&w->residual, .share = 1};
    else if (!inside && part->kind == CALM_EXPORT_WEIGHT && calm_job_traits(config, job)->outer)
        CALM_TRY(read_block(ctx, w, part->block, part->sublayer, out));
    if (w->how->kind != CALM_ROTATE_R1)
        CALM_TRY(plan_heads(ctx, w, part, out));
    return calm_rotate_is_online(w->how->kind) ? plan_online(ctx, w, part, out) : CALM_OK;
}

/* Is the tensor MODULE.weight, MODULE being `prefix` and `module`? */
static bool is_weight(const char *tensor, const char *prefix, const char *module)
{
    const size_t n = strlen(prefix), m = module ? strlen(module) : 0;
    return module && strncmp(tensor, prefix, n) == 0 && strncmp(tensor + n, module, m) == 0 &&
           strcmp(tensor + n + m, ".weight") == 0;
}

/* Sets the rotations of the linears to and from the latent of experts, if `rest` is the name of one. */
static calm_status plan_latent(calm_ctx *ctx, const work *w, const calm_export_part *part, const char *rest, item *out)
{
    const calm_latent_side side_of = calm_moe_latent_side(calm_model_config(w->model)->arch->names, rest);
    if (side_of == CALM_LATENT_OUT)
        out->out = (side){&w->residual, .share = 1};
    return side_of == CALM_LATENT_IN ? read_block(ctx, w, part->block, CALM_SUBLAYER_MLP, out) : CALM_OK;
}

/* Sets the rotations of a tensor other than linears and norms before sublayers. */
static calm_status plan_other(calm_ctx *ctx, const work *w, const calm_export_part *part, bool head, item *out)
{
    const calm_names *names = calm_model_config(w->model)->arch->names;
    const char *name = part->source->name, *prefix = calm_model_prefix(w->model), *rest;
    if (part->block >= 0) {
        calm_tensor_block(w->model, name, &rest);
        if (is_weight(rest, "", names->moe.router) || is_weight(rest, "", names->moe.shared_gate))
            return read_block(ctx, w, part->block, CALM_SUBLAYER_MLP, out);
        return plan_latent(ctx, w, part, rest, out);
    }
    if (head || is_weight(name, "", calm_model_layout(w->model)->head)) {
        char *norm;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &norm, "%s%s", prefix, names->final_norm));
        return read_stream(ctx, w, norm, out);
    }
    out->ones = is_weight(name, prefix, names->final_norm);
    return is_weight(name, prefix, names->embed) ? read_stream(ctx, w, NULL, out) : CALM_OK;
}

static calm_status plan_item(calm_ctx *ctx, const work *w, size_t i, item *out)
{
    const calm_export_part part = calm_export_part_of(w->model, w->sources[i]);
    *out = (item){.from = w->sources[i], .dtype = w->tensors[i].dtype};
    if (!calm_rotate_turns_stream(w->how->kind)) {
        plan_input(w, &part, out);
        return CALM_OK;
    }
    out->ones = part.kind == CALM_EXPORT_NORM;
    if (part.kind == CALM_EXPORT_WEIGHT || part.kind == CALM_EXPORT_BIAS)
        return plan_linear(ctx, w, &part, out);
    return part.kind == CALM_EXPORT_COPY ? plan_other(ctx, w, &part, w->head[i], out) : CALM_OK;
}

/* ---- one tensor ---- */

/* Computes pieces of rows r0 .. r0 + rows - 1 of an item, [height, width] each, into `bytes`. */
typedef struct chunk {
    const item *it;
    size_t columns, r0, rows, height, width;
    uint8_t *bytes;
} chunk;

/* Rounds to the nearest float32; for a 16-bit dtype rounds to odd, so that a second rounding gives the same as rounding
 * the double once (Boldo, Melquiond, "Emulation of FMA and correctly rounded sums", 2008). */
static float narrow(double value, calm_dtype dtype)
{
    float near = (float)value;
    uint32_t bits;
    if (dtype == CALM_F32 || (double)near == value)
        return near;
    if (fabs((double)near) > fabs(value))
        near = nextafterf(near, 0);
    memcpy(&bits, &near, sizeof bits);
    bits |= 1;
    memcpy(&near, &bits, sizeof near);
    return near;
}

/* Returns the rotation of the group that begins at `at`; NULL: none. */
static const calm_rotation *rotation_at(const side *of, size_t at)
{
    if (!of->rotations || at < of->first)
        return NULL;
    return &of->rotations[(at - of->first) / of->rotations->n / of->share];
}

/* Reads rows r .. r + n - 1, columns c .. c + m - 1 of the source as x [n, m], in double. */
static calm_status load_piece(calm_ctx *ctx, const chunk *part, size_t r, size_t n, size_t c, size_t m, double *x)
{
    const item *it = part->it;
    float *row;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, m));
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_tensor_part_to_f32(ctx, it->from, (r + i) * part->columns + c, m, row));
        for (size_t j = 0; j < m; j++)
            x[i * m + j] =
                (double)row[j] * (it->columns ? it->columns[c + j] : 1) * (it->rows ? it->rows[r + i] : 1);
    }
    return CALM_OK;
}

static calm_status store_piece(calm_ctx *ctx, const chunk *part, size_t r, size_t n, size_t c, size_t m,
                               const double *x)
{
    const size_t each = calm_dtype_bytes(part->it->dtype);
    float *row;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, m));
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < m; j++) {
            row[j] = narrow(x[i * m + j], part->it->dtype);
            if (part->it->dtype == CALM_F16 && fabs(x[i * m + j]) >= 65520)    /* rounds to infinity */
                return calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: rotated it has %g, beyond float16; convert the "
                                                     "checkpoint to bfloat16 first",
                                 part->it->from->file, part->it->from->name, x[i * m + j]);
        }
        uint8_t *to = part->bytes + ((r - part->r0 + i) * part->columns + c) * each;
        CALM_TRY(calm_from_f32(ctx, part->it->dtype, row, m, to));
    }
    return CALM_OK;
}

/* A calm_task_fn: one piece. */
static calm_status rotate_piece(calm_ctx *ctx, size_t index, void *user)
{
    const chunk *part = user;
    const size_t across = (part->columns + part->width - 1) / part->width;
    const size_t r = part->r0 + index / across * part->height, c = index % across * part->width;
    const size_t n = calm_size_min(part->height, part->r0 + part->rows - r);
    const size_t m = calm_size_min(part->width, part->columns - c);
    const calm_rotation *in = rotation_at(&part->it->in, c), *out = rotation_at(&part->it->out, r);
    double *x;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, n * m));
    CALM_TRY(load_piece(ctx, part, r, n, c, m, x));
    if (in)
        CALM_TRY(calm_rotation_apply(ctx, in, n, 1, x));
    if (out)
        CALM_TRY(calm_rotation_apply(ctx, out, 1, m, x));
    return store_piece(ctx, part, r, n, c, m, x);
}

/* A piece holds whole groups: one of a side that is rotated, else some rows or columns. */
static size_t piece_of(const side *of, size_t n)
{
    return of->rotations ? of->rotations->n : calm_size_min(n, PIECE);
}

static calm_status put_rotated(calm_ctx *ctx, work *w, const item *it)
{
    const calm_tensor *from = it->from;
    /* A bias is a matrix of one column. */
    const size_t rows = from->shape[0], columns = from->n_dims > 1 ? from->shape[1] : 1;
    chunk part = {.it = it, .columns = columns};
    part.height = piece_of(&it->out, rows);
    part.width = piece_of(&it->in, columns);
    const size_t most = CHUNK_ELEMENTS / calm_size_max(1, part.height * columns);
    const size_t step = part.height * calm_size_max(1, most), each = calm_dtype_bytes(it->dtype);
    const size_t stored = calm_dtype_bytes(from->dtype);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, part.bytes, calm_size_min(step, rows) * columns * each));
    for (part.r0 = 0; part.r0 < rows; part.r0 += step) {
        part.rows = calm_size_min(step, rows - part.r0);
        const size_t down = (part.rows + part.height - 1) / part.height;
        CALM_TRY(calm_parallel_for(ctx, down * ((columns + part.width - 1) / part.width), rotate_piece, &part));
        CALM_TRY(calm_shards_put(ctx, &w->writer, part.bytes, part.rows * columns * each));
        calm_safetensors_release_part(calm_model_tensors(w->model), from, part.r0 * columns * stored,
                                      part.rows * columns * stored);
    }
    return CALM_OK;
}

/* Writes a tensor without rotation: a copy, a copy in another dtype, or ones. */
static calm_status put_other(calm_ctx *ctx, work *w, const item *it)
{
    const size_t n = it->from->n_elements;
    float *values;
    if (!it->ones)
        return calm_export_put_tensor(ctx, &w->writer, it->dtype, it->from);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, n));
    for (size_t i = 0; i < n; i++)
        values[i] = 1;
    return calm_export_put_floats(ctx, &w->writer, it->dtype, values, n);
}

static calm_status put_item(calm_ctx *ctx, work *w, size_t i)
{
    CALM_SCOPED_SCRATCH(ctx);
    item it;
    CALM_TRY(plan_item(ctx, w, i, &it));
    if (it.in.rotations || it.out.rotations || it.rows)
        return put_rotated(ctx, w, &it);
    CALM_TRY(put_other(ctx, w, &it));
    calm_safetensors_release(calm_model_tensors(w->model), it.from);
    return CALM_OK;
}

/* ---- the directory ---- */

/* Lists all tensors of the model, and the new head of a model with a tied head whose stream is rotated. */
static calm_status list_tensors(calm_ctx *ctx, work *w)
{
    const calm_safetensors *set = calm_model_tensors(w->model);
    const bool unties = calm_model_config(w->model)->tied && calm_rotate_turns_stream(w->how->kind);
    const size_t n = calm_safetensors_count(set);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w->tensors, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w->sources, n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w->head, n + 1));
    for (size_t i = 0; i < n; i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        /* A tied head that is also in the file is written below. */
        if (unties && is_weight(tensor->name, "", calm_model_layout(w->model)->head))
            continue;
        w->sources[w->n] = tensor;
        w->tensors[w->n] = *tensor;
        if (w->how->dtype != CALM_N_DTYPES && calm_dtype_is_float(tensor->dtype))
            w->tensors[w->n].dtype = w->how->dtype;
        w->n++;
    }
    if (!unties)
        return CALM_OK;
    CALM_TRY(calm_model_table(ctx, w->model, false, &w->sources[w->n]));
    w->tensors[w->n] = *w->sources[w->n];
    if (w->how->dtype != CALM_N_DTYPES)
        w->tensors[w->n].dtype = w->how->dtype;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &w->tensors[w->n].name, "%s.weight", calm_model_layout(w->model)->head));
    w->head[w->n++] = true;
    return CALM_OK;
}

/* A wrapper's top level or what is its text model's. */
static void change_config(const work *w, calm_json *config)
{
    static const char *const keys[2] = {"torch_dtype", "dtype"};
    if (calm_rotate_turns_stream(w->how->kind))
        calm_json_set_bool(config, "tie_word_embeddings", false);
    for (size_t i = 0; i < 2 && w->how->dtype != CALM_N_DTYPES; i++)
        if (calm_json_get(config, keys[i]))
            calm_json_set_string(config, keys[i], calm_dtype_word(w->how->dtype));
}

static calm_status write_config(calm_ctx *ctx, const work *w, const char *dir)
{
    CALM_SCOPED_JSON(config);
    const calm_json *inner = calm_json_get(calm_model_json(w->model), "text_config");
    char *path;
    config = calm_json_copy(calm_model_json(w->model));
    change_config(w, config);
    if (calm_model_is_wrapped(w->model) && inner) {
        calm_json *text = calm_json_copy(inner);
        change_config(w, text);
        calm_json_set(config, "text_config", text);
    }
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, "config.json"));
    return calm_json_save(ctx, path, config);
}

calm_status calm_rotate_write(calm_ctx *ctx, const calm_model *model, const calm_rotate_options *options,
                              const char *dir)
{
    work w = {.model = model, .how = options};
    const calm_config *config = calm_model_config(model);
    CALM_TRY(check_rotation(ctx, model, options->kind));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    if (calm_rotate_turns_stream(options->kind))
        CALM_TRY(calm_rotation_init(ctx, config->hidden, options->seed, 0, &w.residual));
    for (calm_job_kind job = 0; job < CALM_N_JOBS && calm_rotate_is_online(options->kind); job++)
        w.online[job] = calm_rotation_hadamard(config->hadamard[job]);
    CALM_TRY(list_tensors(ctx, &w));
    calm_status status = calm_shards_begin(ctx, &w.writer, dir, w.tensors, w.n, 0);
    for (size_t i = 0; i < w.n && status == CALM_OK; i++)
        status = put_item(ctx, &w, i);
    CALM_TRY(calm_shards_end(ctx, &w.writer));    /* the first failure is in the context */
    CALM_TRY(write_config(ctx, &w, dir));
    return calm_export_copy_companions(ctx, calm_model_dir(model), dir);
}

calm_status calm_rotate(calm_ctx *ctx, const char *model_dir, const calm_model_how *how,
                        const calm_rotate_options *options, const char *output, bool force)
{
    CALM_SCOPED_MODEL(model);
    calm_export_place place;
    CALM_TRY(calm_export_destination(ctx, output, force, &(calm_words){(const char *[]){model_dir, how->adapter}, 2}));
    CALM_TRY(calm_model_open_floats(ctx, model_dir, how, &model));
    CALM_TRY(check_rotation(ctx, model, options->kind));
    CALM_TRY(calm_export_begin(ctx, output, &place));
    if (calm_rotate_write(ctx, model, options, place.temporary) != CALM_OK ||
        calm_export_commit(ctx, &place, output) != CALM_OK)
        calm_export_abandon(ctx, &place);
    return ctx->status;
}
