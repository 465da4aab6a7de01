/* Calibration statistics of the input that the linear layers of a job share (calm_stats): N rows (tokens), I
 * features.
 *
 * Collected by ptq/calib/capture.c, read by algorithms/. */
#pragma once

#include "calm.h"
