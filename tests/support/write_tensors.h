/* A checkpoint's tensor file out of tensors that are in memory. */
#ifndef CALM_TESTS_WRITE_TENSORS_H
#define CALM_TESTS_WRITE_TENSORS_H

#include "ptq/io/safetensors.h"

/* Write tensors [n] with their data as dir/model.safetensors. */
void write_tensors(const char *dir, const calm_tensor *tensors, size_t n);

/* A tensor of floats values [n_elements] in F32, its sizes a, b, c (0: no such dimension). */
calm_tensor float_tensor(const char *name, const float *values, size_t a, size_t b, size_t c);

#endif
