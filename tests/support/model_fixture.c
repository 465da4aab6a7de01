/* Reads a model fixture. */
#include "tests/support/model_fixture.h"

#include "tests/support/harness.h"

const float *model_fixture_tensor(const model_fixture *fixture, const calm_safetensors *set, const char *tensor,
                                  size_t n)
{
    const calm_tensor *found = calm_safetensors_find(set, tensor);
    ck_assert_msg(found != NULL, "%s: the fixture lacks %s", fixture->name, tensor);
    ck_assert_uint_eq(found->n_elements, n);
    float *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, n));
    ck_ok(calm_tensor_to_f32(ctx, found, values));
    return values;
}

int64_t model_fixture_integer(const calm_tensor *tensor, size_t i)
{
    int64_t value;
    memcpy(&value, tensor->data + 8 * i, sizeof value);
    return value;
}

static void read_windows(model_fixture *f)
{
    const calm_tensor *ids = calm_safetensors_find(f->set, "input_ids");
    const calm_tensor *mask = calm_safetensors_find(f->set, "attention_mask");
    const calm_tensor *types = calm_safetensors_find(f->set, "token_type_ids");
    ck_assert(ids && ids->dtype == CALM_I64 && ids->n_dims == 2);
    calm_windows *w = &f->windows;
    *w = (calm_windows){.n = ids->shape[0], .longest = ids->shape[1], .n_available = ids->shape[0]};
    f->length = ids->shape[1];
    ck_ok(CALM_NEW(ctx, ctx->out, w->ids, ids->n_elements));
    ck_ok(CALM_NEW(ctx, ctx->out, w->positions, ids->n_elements));
    ck_ok(CALM_NEW(ctx, ctx->out, w->types, ids->n_elements));
    ck_ok(CALM_NEW(ctx, ctx->out, w->begin, w->n + 1));
    ck_ok(CALM_NEW(ctx, ctx->out, f->row, ids->n_elements));
    size_t n = 0;
    for (size_t i = 0; i < ids->n_elements; i++) {
        if (mask && !model_fixture_integer(mask, i))
            continue;
        w->ids[n] = (uint32_t)model_fixture_integer(ids, i);
        w->positions[n] = (uint32_t)(i % f->length);
        w->types[n] = types ? (uint8_t)model_fixture_integer(types, i) : 0;
        f->row[n++] = i;
        w->begin[i / f->length + 1] = n;
    }
}

void model_fixture_open(const char *name, const char *dir, model_fixture *out)
{
    *out = (model_fixture){.name = name};
    ck_ok(calm_safetensors_open(ctx, test_format("%s/reference.safetensors", dir), &out->set));
    read_windows(out);
}

void model_fixture_close(model_fixture *fixture)
{
    calm_safetensors_close(fixture->set);
}
