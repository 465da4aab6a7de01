/* The tokens and stored tensors of a model fixture. */
#ifndef CALM_TESTS_MODEL_FIXTURE_H
#define CALM_TESTS_MODEL_FIXTURE_H

#include "ptq/data/windows.h"
#include "ptq/io/safetensors.h"

typedef struct model_fixture {
    const char *name;
    calm_safetensors *set; /* reference.safetensors              */
    calm_windows windows;  /* tokens that are not padding        */
    size_t length;         /* positions of a stored sequence     */
    size_t *row;           /* [tokens] row of the stored tensors */
} model_fixture;

/* Opens reference.safetensors of the fixture in `dir`; close it with model_fixture_close. */
void model_fixture_open(const char *name, const char *dir, model_fixture *out);
void model_fixture_close(model_fixture *fixture);

/* Returns the n values of a stored tensor in ctx->out; fails the test if `set` has no tensor of that name and size. */
const float *model_fixture_tensor(const model_fixture *fixture, const calm_safetensors *set, const char *tensor,
                                  size_t n);

/* Returns element i of an I64 tensor. */
int64_t model_fixture_integer(const calm_tensor *tensor, size_t i);

#endif
