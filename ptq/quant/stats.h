/* Calibration statistics of the input that the linears of a job share.
 *
 *   N rows (tokens)   I input features
 * Collected by ptq/calib/capture.c, read by algorithms/. */
#pragma once

#include "calm.h"
