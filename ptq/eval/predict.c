/* Predictions: multiplies a batch of rows of all models by their heads.
 *
 * A tile of a head is converted to float once per batch and shared by the models with that table.  Each row goes
 * through the tiles in one order with a running maximum m: s = sum exp(l - m) is multiplied by exp(m - m') when the
 * maximum rises to m'. */
#include "ptq/eval/predict_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/tensor/vector.h"

/* The most logits of one task for one model: rows times a tile. */
#define CHUNK_FLOATS ((size_t)1024 * 1024)
#define CHUNK_ROWS ((size_t)256)
/* Floats of a tile that one task converts. */
#define SLICE_FLOATS ((size_t)64 * 1024)
/* Logits whose maximum is compared first, before each logit is. */
#define TOP_BLOCK ((size_t)256)

/* ---- rooms ---- */

calm_status calm_predict_rooms_open(calm_ctx *ctx, size_t n_tasks, const size_t floats[CALM_PREDICT_PARTS],
                                    calm_predict_rooms *out)
{
    *out = (calm_predict_rooms){.n = calm_size_min(n_tasks, (size_t)ctx->n_threads)};
    memcpy(out->floats, floats, sizeof out->floats);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->of, out->n));
    for (size_t i = 0; i < out->n; i++) {
        atomic_flag_clear(&out->of[i].taken);
        for (size_t k = 0; k < CALM_PREDICT_PARTS; k++)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->of[i].part[k], floats[k]));
    }
    return CALM_OK;
}

calm_status calm_predict_room_take(calm_ctx *ctx, const calm_predict_rooms *rooms, calm_predict_room **room,
                                   float *part[CALM_PREDICT_PARTS])
{
    *room = NULL;
    for (size_t i = 0; i < rooms->n && !*room; i++)
        *room = atomic_flag_test_and_set(&rooms->of[i].taken) ? NULL : &rooms->of[i];
    for (size_t k = 0; k < CALM_PREDICT_PARTS; k++) {
        part[k] = *room ? (*room)->part[k] : NULL;
        CALM_TRY(*room ? CALM_OK : CALM_NEW_RAW(ctx, ctx->scratch, part[k], rooms->floats[k]));
    }
    return CALM_OK;
}

void calm_predict_room_give(calm_predict_room **room)
{
    if (*room)
        atomic_flag_clear(&(*room)->taken);
    *room = NULL;
}

/* ---- one tile for a chunk of rows ---- */

typedef struct prediction {
    const calm_predictors *set;
    const uint32_t *targets;
    size_t n;
    size_t first, count;    /* the current tile */
    calm_predict_rooms rooms;
} prediction;

/* Parts of a room.  With a reference, WEIGHTS begins with one double per row, a factor, and the weights follow. */
enum { LOGITS, EXPONENTIALS, WEIGHTS };

static size_t factor_floats(const calm_predictors *set, size_t rows)
{
    return set->has_reference ? rows * sizeof(double) / sizeof(float) : 0;
}

typedef struct tile_task {
    const calm_predictors *set;
    size_t first, count;
} tile_task;

/* Adds a tile of a row's logits to its sums; leaves exp(l - max) in `exponentials`.  Returns the factor for earlier
 * sums of such exponentials. */
static double join(calm_prediction *row, size_t first, size_t count, const float *logits, uint32_t target,
                   float *exponentials)
{
    const float max = calm_vec_max(count, logits);
    double factor = 1;
    if (first == 0 || max > row->max) {
        factor = first == 0 ? 0 : exp((double)row->max - (double)max);
        row->max = max;
        row->best = (uint32_t)(first + calm_vec_argmax(count, logits));
    }
    row->sum = row->sum * factor + calm_vec_exp_sum(count, row->max, logits, exponentials);
    if (target >= first && target - first < count)
        row->target = logits[target - first];
    return factor;
}

/* Inserts a logit larger than the last one, behind equal logits, because tokens come in rising order. */
static void insert_top(calm_top *top, float logit, uint32_t token)
{
    size_t at = CALM_TOP - 1;
    for (; at > 0 && logit > top->logit[at - 1]; at--) {
        top->logit[at] = top->logit[at - 1];
        top->token[at] = top->token[at - 1];
    }
    top->logit[at] = logit;
    top->token[at] = token;
}

static void join_top(calm_top *top, size_t first, size_t count, const float *logits)
{
    for (size_t i = 0; first == 0 && i < CALM_TOP; i++) {
        top->logit[i] = -INFINITY;
        top->token[i] = CALM_NO_TARGET;
    }
    for (size_t begin = 0; begin < count; begin += TOP_BLOCK) {
        const size_t end = count - begin < TOP_BLOCK ? count : begin + TOP_BLOCK;
        if (!(calm_vec_max(end - begin, logits + begin) > top->logit[CALM_TOP - 1]))
            continue;
        for (size_t i = begin; i < end; i++)
            if (logits[i] > top->logit[CALM_TOP - 1])
                insert_top(top, logits[i], (uint32_t)(first + i));
    }
}

/* Task: one model after the other; they share only the reference's exponentials. */
static calm_status score_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const prediction *p = user;
    const calm_predictors *set = p->set;
    const size_t row = index * set->chunk, left = p->n - row, rows = left < set->chunk ? left : set->chunk;
    float *part[CALM_PREDICT_PARTS];
    CALM_SCOPED(calm_predict_room *, calm_predict_room_give) room = NULL;
    CALM_TRY(calm_predict_room_take(ctx, &p->rooms, &room, part));
    double *const factors = (double *)(void *)part[WEIGHTS];    /* before the weights, which stay aligned */
    float *const weights = part[WEIGHTS] + factor_floats(set, rows);
    for (size_t m = 0; m < set->n; m++) {
        const calm_predictor *model = &set->models[m];
        const bool is_reference = set->has_reference && m == 0;
        float *x;
        CALM_TRY(calm_row_store_get(ctx, model->hidden, row, rows, &x));
        CALM_TRY(calm_head_multiply(ctx, &model->head, model->tile, x, rows, p->first, p->count, part[LOGITS],
                                    p->count));
        for (size_t t = 0; t < rows; t++) {
            if (p->targets[row + t] == CALM_NO_TARGET)
                continue;
            calm_prediction *sums = &model->rows[row + t];
            const float *y = part[LOGITS] + t * p->count;
            float *w = is_reference ? weights + t * p->count : part[EXPONENTIALS];
            const double factor = join(sums, p->first, p->count, y, p->targets[row + t], w);
            if (is_reference)
                factors[t] = factor;
            if (set->has_reference)
                sums->cross = sums->cross * factors[t] + calm_vec_dot(p->count, weights + t * p->count, y);
            if (model->top)
                join_top(&model->top[row + t], p->first, p->count, y);
        }
    }
    return CALM_OK;
}

/* Task: converts a slice of the tile of one model's table. */
static calm_status read_slice(calm_ctx *ctx, size_t index, void *user)
{
    const tile_task *p = user;
    const size_t slices = p->set->slices, slice = index % slices;
    const calm_predictor *model = &p->set->models[index / slices];
    const size_t begin = slice * p->count / slices, end = (slice + 1) * p->count / slices;
    if (model->shares)
        return CALM_OK;
    return calm_head_read_tile(ctx, &model->head, p->first + begin, end - begin,
                               model->tile + begin * model->head.hidden);
}

calm_status calm_predict_read_tile(calm_ctx *ctx, const calm_predictors *set, size_t first, size_t *count)
{
    *count = calm_size_min(set->vocab - first, set->tile);
    return calm_parallel_for(ctx, set->n * set->slices, read_slice, &(tile_task){set, first, *count});
}

calm_status calm_predict(calm_ctx *ctx, const calm_predictors *set, const uint32_t *targets, size_t n)
{
    prediction p = {.set = set, .targets = targets, .n = n};
    const size_t n_chunks = (n + set->chunk - 1) / set->chunk, rows = calm_size_min(n, set->chunk);
    const size_t floats[] = {[LOGITS] = rows * set->tile, [EXPONENTIALS] = set->tile,
                             [WEIGHTS] = set->has_reference ? factor_floats(set, rows) + rows * set->tile : 0};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_predict_rooms_open(ctx, n_chunks, floats, &p.rooms));
    for (; p.first < set->vocab; p.first += p.count) {
        CALM_TRY(calm_predict_read_tile(ctx, set, p.first, &p.count));
        CALM_TRY(calm_parallel_for(ctx, n_chunks, score_chunk, &p));
        if (set->tick)
            set->tick(set->tick_user, p.first + p.count, set->vocab);
    }
    return CALM_OK;
}

/* ---- figures of a prediction ---- */

static double log_sum(const calm_prediction *row)
{
    return (double)row->max + log(row->sum);
}

double calm_prediction_nll(const calm_prediction *row)
{
    return log_sum(row) - (double)row->target;
}

double calm_prediction_kl(const calm_prediction *reference, const calm_prediction *row)
{
    return (reference->cross - row->cross) / reference->sum - log_sum(reference) + log_sum(row);
}

bool calm_top_has(const calm_top *top, uint32_t token)
{
    for (size_t i = 0; i < CALM_TOP; i++)
        if (top->token[i] == token)
            return true;
    return false;
}

/* ---- models ---- */

/* Returns the rows per task, whose logits over a tile one task holds. */
static size_t chunk_rows(size_t tile)
{
    return calm_size_min(CHUNK_ROWS, calm_size_max(1, CHUNK_FLOATS / tile));
}

static calm_status add_model(calm_ctx *ctx, calm_predictors *set, const calm_subject *subject, size_t reach)
{
    calm_predictor *added = &set->models[set->n];
    const char *dir = calm_model_dir(subject->model);
    *added = (calm_predictor){.subject = subject};
    if (calm_model_config(subject->model)->arch->encoder)
        return calm_fail(ctx, CALM_EARG, "%s is an encoder: it predicts no next token", dir);
    for (size_t m = 0; m < set->n; m++)
        if (set->models[m].subject->model == subject->model) {
            added->rope = set->models[m].rope;
            added->head = set->models[m].head;
        }
    if (!added->head.table) {
        CALM_TRY(calm_rope_init(ctx, calm_model_config(subject->model), reach, &added->rope));
        CALM_TRY(calm_model_load_head(ctx, subject->model, &added->head));
    }
    if (added->head.vocab != set->models[0].head.vocab)
        return calm_fail(ctx, CALM_EARG, "%s has a vocabulary of %zu, %s one of %zu: they cannot be compared", dir,
                         added->head.vocab, calm_model_dir(set->models[0].subject->model), set->models[0].head.vocab);
    set->n++;
    return CALM_OK;
}

/* Sets one tile size for all models, and allocates a tile per table. */
static calm_status prepare_tiles(calm_ctx *ctx, calm_predictors *set)
{
    set->vocab = set->tile = set->models[0].head.vocab;
    for (size_t m = 0; m < set->n; m++)
        set->tile = calm_size_min(set->tile, calm_head_tile(&set->models[m].head));
    set->slices = (set->tile * set->models[0].head.hidden + SLICE_FLOATS - 1) / SLICE_FLOATS;
    set->chunk = chunk_rows(set->tile);
    for (size_t m = 0; m < set->n; m++) {
        calm_predictor *model = &set->models[m];
        for (size_t k = 0; k < m && !model->shares; k++) {
            model->shares = set->models[k].head.table->data == model->head.table->data;
            model->tile = model->shares ? set->models[k].tile : NULL;
        }
        if (!model->shares)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, model->tile, set->tile * model->head.hidden));
    }
    return CALM_OK;
}

calm_status calm_predictors_open(calm_ctx *ctx, const calm_subject *reference, const calm_subject *subjects, size_t n,
                                 size_t reach, calm_predictors *out)
{
    *out = (calm_predictors){.has_reference = reference != NULL};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->models, n + 1));
    if (reference)
        CALM_TRY(add_model(ctx, out, reference, reach));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_model(ctx, out, &subjects[i], reach));
    return prepare_tiles(ctx, out);
}

/* ---- memory ---- */

static calm_head head_of(const calm_config *config)
{
    return (calm_head){.hidden = config->hidden, .vocab = config->vocab};
}

size_t calm_predictors_open_bytes(const calm_config *config, size_t n, size_t n_checkpoints, size_t reach)
{
    const calm_head head = head_of(config);
    return CALM_BYTES(calm_predictor, n + 1) +
           n_checkpoints * (calm_rope_bytes(config, reach) + calm_model_load_head_bytes(config) +
                            calm_head_tile_bytes(&head));
}

size_t calm_predict_scratch_bytes(const calm_config *config, size_t n, bool has_reference, size_t n_threads)
{
    const calm_head head = head_of(config);
    const size_t tile = calm_head_tile(&head), rows = calm_size_min(n, chunk_rows(tile));
    const size_t chunk = CALM_BYTES(float, rows * tile) + CALM_BYTES(float, tile) +
                         (has_reference ? CALM_BYTES(float, rows * tile) + CALM_BYTES(double, rows) : 0);
    return rows ? calm_size_min(n_threads, (n + rows - 1) / rows) * chunk : 0;
}
