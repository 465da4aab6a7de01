/* What predictions and their gradients share.  Only predict*.c and their tests include it. */
#pragma once

#include <stdatomic.h>

#include "ptq/base/threads.h"
#include "ptq/eval/predict.h"

/* What a task works in, for logits over a tile.  Rooms stay from tile to tile: memory that a task gave back would come
 * again page by page, each cleared by the system, which takes a third of the time of a product of narrow rows. */
#define CALM_PREDICT_PARTS 3
typedef struct calm_predict_room {
    atomic_flag taken;
    float *part[CALM_PREDICT_PARTS];
} calm_predict_room;

typedef struct calm_predict_rooms {
    calm_predict_room *of;                /* [n], one for each task at a time */
    size_t n, floats[CALM_PREDICT_PARTS];
} calm_predict_rooms;

/* Rooms for n_tasks tasks by the threads of ctx, each of these numbers of floats of unspecified value; in
 * ctx->scratch. */
calm_status calm_predict_rooms_open(calm_ctx *ctx, size_t n_tasks, const size_t floats[CALM_PREDICT_PARTS],
                                    calm_predict_rooms *out);

/* Any room that no other task has, until it is given back; where there is none, parts in ctx->scratch, *room NULL. */
calm_status calm_predict_room_take(calm_ctx *ctx, const calm_predict_rooms *rooms, calm_predict_room **room,
                                   float *part[CALM_PREDICT_PARTS]);
void calm_predict_room_give(calm_predict_room **room);

/* Widen the tile that begins at token `first` in the table of every model; count = its tokens. */
calm_status calm_predict_read_tile(calm_ctx *ctx, const calm_predictors *set, size_t first, size_t *count);

/* What gradients of predictions go through: all rows, tile after tile of the vocabulary.  Tasks begin with it. */
typedef struct calm_predict_pass {
    const calm_predictors *set;
    const uint32_t *targets;
    size_t n, first, count;    /* rows; the tile in work        */
    float *dhidden;            /* [n, D] that all tiles add to  */
    calm_predict_rooms rooms;  /* of three times a chunk's logits */
} calm_predict_pass;

/* Rows of a task: enough of them for the product, which packs the tile for each task, and tasks for four threads in a
 * window of 512 tokens. */
#define CALM_PREDICT_PASS_ROWS ((size_t)128)

/* Clear dhidden [n, width] and call fn for each chunk of rows of each tile; `task` is what begins with the pass. */
calm_status calm_predict_pass_run(calm_ctx *ctx, calm_predict_pass *pass, size_t width, calm_task_fn *fn, void *task);

/* Logits [rows, count] of a chunk over the tile in work. */
calm_status calm_predict_pass_logits(calm_ctx *ctx, const calm_predict_pass *pass, const calm_predictor *model,
                                     size_t row, size_t rows, float *logits);

/* Probabilities from the sums over all tiles. */
void calm_predict_probabilities(const calm_prediction *row, size_t n, const float *logits, float *p);

/* CALM_ENUMERIC: a value of dhidden [n, width] is not finite. */
calm_status calm_predict_pass_check(calm_ctx *ctx, const calm_predict_pass *pass, size_t width);
