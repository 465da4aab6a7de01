/* What predictions and their gradients share.  Only predict*.c include it. */
#ifndef CALM_EVAL_PREDICT_IMPL_H
#define CALM_EVAL_PREDICT_IMPL_H

#include "ptq/eval/predict.h"

/* Widen the tile that begins at token `first` in the table of every model; count = its tokens. */
calm_status calm_predict_read_tile(calm_ctx *ctx, const calm_predictors *set, size_t first, size_t *count);

#endif
