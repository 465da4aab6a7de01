/* Calibration statistics of the input that the linears of a job share.
 *
 *   N rows (tokens)   I input features
 * Collected by ptq/calib/capture.c, read by algorithms/. */
#ifndef CALM_QUANT_STATS_H
#define CALM_QUANT_STATS_H

#include "calm.h"

#endif
