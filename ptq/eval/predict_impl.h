/* Parts that predictions and their gradients share.  Only predict*.c and their tests include it. */
#pragma once

#include <stdatomic.h>

#include "ptq/base/threads.h"
#include "ptq/eval/predict.h"

/* The work space of a task, for logits over a tile.  Rooms live from tile to tile: memory that a task frees and
 * allocates again is cleared page by page by the system, which takes a third of the time of a product of narrow
 * rows. */
#define CALM_PREDICT_PARTS 3
typedef struct calm_predict_room {
    atomic_flag taken;
    float *part[CALM_PREDICT_PARTS];
} calm_predict_room;

typedef struct calm_predict_rooms {
    calm_predict_room *of;                /* [n] one per concurrent task */
    size_t n, floats[CALM_PREDICT_PARTS];
} calm_predict_rooms;

/* Allocates rooms in ctx->scratch for n_tasks tasks on the threads of ctx, with the given numbers of uninitialized
 * floats. */
calm_status calm_predict_rooms_open(calm_ctx *ctx, size_t n_tasks, const size_t floats[CALM_PREDICT_PARTS],
                                    calm_predict_rooms *out);

/* _take returns the parts of a free room until _give; if no room is free, parts in ctx->scratch with *room NULL. */
calm_status calm_predict_room_take(calm_ctx *ctx, const calm_predict_rooms *rooms, calm_predict_room **room,
                                   float *part[CALM_PREDICT_PARTS]);
void calm_predict_room_give(calm_predict_room **room);

/* Converts the tile that begins at token `first` of every model's table to float; *count: tokens of the tile. */
calm_status calm_predict_read_tile(calm_ctx *ctx, const calm_predictors *set, size_t first, size_t *count);

/* A pass over all rows for each tile of the vocabulary, for gradients of predictions.  A task's struct begins with
 * it. */
typedef struct calm_predict_pass {
    const calm_predictors *set;
    const uint32_t *targets;
    size_t n, first, count;    /* rows; first token and number of tokens of the current tile */
    float *dhidden;            /* [n, D] gradient to which all tiles add */
    calm_predict_rooms rooms;  /* three parts, each of a chunk's logits */
} calm_predict_pass;

/* Rows per task: enough for an efficient product, which packs the tile in each task, and few enough for four tasks in a
 * window of 512 tokens. */
#define CALM_PREDICT_PASS_ROWS ((size_t)128)

/* Clears dhidden [n, width] and calls fn for each chunk of rows of each tile; `task` begins with the pass. */
calm_status calm_predict_pass_run(calm_ctx *ctx, calm_predict_pass *pass, size_t width, calm_task_fn *fn, void *task);

/* Computes the logits [rows, count] of a chunk in the current tile. */
calm_status calm_predict_pass_logits(calm_ctx *ctx, const calm_predict_pass *pass, const calm_predictor *model,
                                     size_t row, size_t rows, float *logits);

/* Computes probabilities p [n] from logits [n] and the row's sums over all tiles. */
void calm_predict_probabilities(const calm_prediction *row, size_t n, const float *logits, float *p);

/* Fails with CALM_ENUMERIC if a value of dhidden [n, width] is not finite. */
calm_status calm_predict_pass_check(calm_ctx *ctx, const calm_predict_pass *pass, size_t width);
