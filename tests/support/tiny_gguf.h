/* Tiny models as GGUF files, correct and faulty, for tests of families. */
#ifndef CALM_TESTS_TINY_GGUF_H
#define CALM_TESTS_TINY_GGUF_H

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/export/export.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Writes the model of a directory as a GGUF file in float, or in `scheme` with kv_b in float.  *model: the float
 * model. */
static inline const char *write_from(const char *from, const char *scheme, calm_model **model)
{
    const calm_export_options options = {.gguf_float = CALM_EXPORT_F32};
    const calm_exporter *gguf;
    const char *dir = test_directory();
    tiny_plan p;
    tiny_plan_open(&p, from);
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        if (layout->jobs[j].kind != CALM_JOB_KV_B)
            tiny_plan_quantize(&p, j, scheme, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
    ck_ok(gguf->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, gguf, &input, dir));
    if (model)
        *model = p.model;
    else
        calm_model_close(p.model);
    return test_format("%s/%s", dir, gguf->file);
}

/* The same for a family's tiny model. */
static inline const char *write_tiny(const tiny_model *spec, const char *scheme, calm_model **model)
{
    return write_from(tiny_model_write(spec), scheme, model);
}

/* Replaces the first occurrence of bytes [n] in a file. */
static inline void replace(const char *path, const void *from, const void *to, size_t n)
{
    size_t size;
    char *text;
    ck_ok(calm_read_file(ctx, path, (size_t)1 << 24, &text, &size));
    char *at = memmem(text, size, from, n);
    ck_assert_ptr_nonnull(at);
    memcpy(at, to, n);
    ck_ok(calm_write_file(ctx, path, text, size));
}

/* Returns the integer of a key, or element i of its list. */
static inline int64_t number_of(const calm_gguf *file, const char *name, size_t i)
{
    int64_t value = -1;
    ck_assert_msg(calm_gguf_int(calm_gguf_find_key(file, name), i, &value), "%s [%zu]", name, i);
    return value;
}

/* Returns the values of a tensor of a model. */
static inline float *values_of(const calm_model *model, const char *name, size_t *n)
{
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
    float *out;
    ck_assert_msg(tensor != NULL, "no %s", name);
    *n = tensor->n_elements;
    ck_ok(CALM_NEW(ctx, ctx->out, out, *n));
    ck_ok(calm_tensor_to_f32(ctx, tensor, out));
    return out;
}

/* Checks that the exporter refuses the tiny model with a message that contains `words`. */
static inline void check_refused(const tiny_model *spec, const char *scheme, const char *words)
{
    const calm_exporter *gguf;
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(spec));
    tiny_plan_quantize_all(&p, &scheme, 1, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
    ck_fails(gguf->check(ctx, &input), CALM_EUNSUPPORTED, words);
    calm_model_close(p.model);
}

/* Checks that calm refuses a float file with replaced bytes [n], with a message that contains `words`. */
static inline void check_wrong_bytes(const tiny_model *spec, const void *from, const void *to, size_t n,
                                     calm_status status, const char *words)
{
    const char *path = write_tiny(spec, "float", NULL);
    calm_model *model;
    replace(path, from, to, n);
    ck_fails(calm_model_open(ctx, path, &model), status, words);
}

/* The same for a text instead of bytes. */
static inline void check_wrong(const tiny_model *spec, const char *from, const char *to, const char *words)
{
    check_wrong_bytes(spec, from, to, strlen(from), CALM_EFORMAT, words);
}

#endif
