/* Experts in one tensor against the same experts in separate tensors, in every order of the tensor's axes; tensors
 * that are no experts. */
#include "ptq/weights/fused_experts.h"

#include "ptq/arch/arch.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/write_tensors.h"

enum { EXPERTS = 5, WIDTH = 32, INNER = 24, MOST = 64 };

typedef struct order {
    bool transposed, interleaved;
} order;

/* A tiny mixture, and the same with the experts of each block in two tensors. */
typedef struct fixture {
    calm_model *model;          /* separate experts */
    calm_config config;
    calm_arch arch;
    calm_names names;
    const char *dir;            /* the directory of the fused one */
    calm_tensor tensors[MOST];
    size_t n;
} fixture;

static const float *values_of(const calm_tensor *tensor)
{
    float *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, tensor->n_elements));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    return values;
}

/* Returns the place of element [row, column] of a role in an expert's part of `rows` by `columns`, gate and up
 * together. */
static size_t place(order o, bool down, bool up, size_t row, size_t column)
{
    const size_t rows = down ? WIDTH : 2 * INNER, columns = down ? INNER : WIDTH;
    const size_t line = down ? row : o.interleaved ? 2 * row + up : row + up * INNER;
    return o.transposed ? column * rows + line : line * columns + column;
}

static void put_role(const fixture *f, order o, size_t block, size_t expert, const char *word, float *out)
{
    const bool down = strcmp(word, "down_proj") == 0, up = strcmp(word, "up_proj") == 0;
    const calm_tensor *from = calm_safetensors_find(
        calm_model_tensors(f->model), test_format("model.layers.%zu.mlp.experts.%zu.%s.weight", block, expert, word));
    ck_assert(from != NULL);
    const float *values = values_of(from);
    for (size_t r = 0; r < from->shape[0]; r++)
        for (size_t c = 0; c < from->shape[1]; c++)
            out[place(o, down, up, r, c)] = values[r * from->shape[1] + c];
}

static void add_fused(fixture *f, order o, size_t block)
{
    const size_t part = 2 * INNER * WIDTH;
    float *both, *down;
    ck_ok(CALM_NEW(ctx, ctx->out, both, EXPERTS * part));
    ck_ok(CALM_NEW(ctx, ctx->out, down, EXPERTS * part / 2));
    for (size_t e = 0; e < EXPERTS; e++) {
        put_role(f, o, block, e, "gate_proj", both + e * part);
        put_role(f, o, block, e, "up_proj", both + e * part);
        put_role(f, o, block, e, "down_proj", down + e * part / 2);
    }
    const char *stem = test_format("model.layers.%zu.mlp.experts", block);
    f->tensors[f->n++] = float_tensor(test_format("%s.gate_up_proj", stem), both, EXPERTS,
                                      o.transposed ? WIDTH : 2 * INNER, o.transposed ? 2 * INNER : WIDTH);
    f->tensors[f->n++] = float_tensor(test_format("%s.down_proj", stem), down, EXPERTS, o.transposed ? INNER : WIDTH,
                                      o.transposed ? WIDTH : INNER);
}

static void open_fixture(order o, fixture *f)
{
    tiny_model spec = tiny_of("qwen3_moe");
    spec.dtype = CALM_F32;
    spec.expert_inner = INNER;
    *f = (fixture){.dir = test_directory()};
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    const calm_safetensors *set = calm_model_tensors(f->model);
    tiny_model_write_config(&spec, f->dir);
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        if (!strstr(calm_safetensors_at(set, i)->name, ".experts."))
            f->tensors[f->n++] = *calm_safetensors_at(set, i);
    for (size_t b = 0; b < spec.n_blocks; b++)
        add_fused(f, o, b);
    f->config = *calm_model_config(f->model);
    f->arch = *f->config.arch;
    f->names = *f->arch.names;
    f->names.moe.interleaved = o.interleaved;
    f->arch.names = &f->names;
    f->config.arch = &f->arch;
}

/* The fused checkpoint, read as separate matrices, has the same tensors with the same values. */
TEST(every_order)
{
    for (int i = 0; i < 4; i++) {
        fixture f;
        calm_safetensors *found;
        open_fixture((order){i & 1, i & 2}, &f);
        const calm_safetensors *expected = calm_model_tensors(f.model);
        write_tensors(f.dir, f.tensors, f.n);
        ck_ok(calm_safetensors_open(ctx, f.dir, &found));
        ck_ok(calm_experts_unfuse(ctx, &f.config, "model.", found));
        ck_assert_uint_eq(calm_safetensors_count(found), calm_safetensors_count(expected));
        size_t bytes = 0;
        for (size_t t = 0; t < calm_safetensors_count(found); t++) {
            const calm_tensor *a = calm_safetensors_at(found, t), *b = calm_safetensors_at(expected, t);
            ck_assert_str_eq(a->name, b->name);
            ck_assert(a->n_dims == b->n_dims && a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1]);
            ck_assert(memcmp(values_of(a), values_of(b), b->n_elements * sizeof(float)) == 0);
            bytes += a->bytes;
        }
        ck_assert_uint_eq(bytes, calm_model_bytes(f.model));
        calm_safetensors_close(found);
        calm_model_close(f.model);
    }
}
END_OF_TEST

/* Pieces that begin and end within rows, and pieces larger than what is transposed at a time. */
TEST(pieces)
{
    fixture f;
    calm_safetensors *found;
    open_fixture((order){true, false}, &f);
    write_tensors(f.dir, f.tensors, f.n);
    ck_ok(calm_safetensors_open(ctx, f.dir, &found));
    ck_ok(calm_experts_unfuse(ctx, &f.config, "model.", found));
    const calm_tensor *t = calm_safetensors_find(found, "model.layers.1.mlp.experts.3.up_proj.weight");
    const float *all = values_of(t);
    for (size_t first = 0; first < t->n_elements; first += 7)
        for (size_t n = 1; n <= t->n_elements - first; n += 61) {
            float piece[WIDTH * INNER];
            ck_ok(calm_tensor_part_to_f32(ctx, t, first, n, piece));
            ck_assert(memcmp(piece, all + first, n * sizeof *piece) == 0);
        }
    calm_safetensors_close(found);
    calm_model_close(f.model);
}
END_OF_TEST

/* A model of fused experts computes with the same weights. */
TEST(models)
{
    fixture f;
    calm_model *fused;
    calm_block block;
    open_fixture((order){true, false}, &f);
    write_tensors(f.dir, f.tensors, f.n);
    ck_ok(calm_model_open(ctx, f.dir, &fused));
    ck_ok(calm_model_load_block(ctx, fused, 1, &block));
    for (size_t e = 0; e < EXPERTS; e++) {
        calm_weight weight[CALM_N_ROLES] = {{0}};
        ck_ok(block.moe.load(block.moe.user, ctx, 1, e, weight));
        const calm_tensor *up = calm_safetensors_find(
            calm_model_tensors(f.model), test_format("model.layers.1.mlp.experts.%zu.up_proj.weight", e));
        ck_assert(memcmp(weight[CALM_ROLE_UP].w, values_of(up), up->n_elements * sizeof(float)) == 0);
    }
    calm_model_close(fused);
    calm_model_close(f.model);
}
END_OF_TEST

static void refuses(fixture *f, calm_status expected, const char *text)
{
    calm_model *model;
    write_tensors(f->dir, f->tensors, f->n);
    ck_assert_int_eq(calm_model_open(ctx, f->dir, &model), expected);
    ck_assert_msg(strstr(ctx->message, "model.layers.1.mlp.experts.down_proj") && strstr(ctx->message, text), "%s",
                  ctx->message);
    calm_ctx_clear_failure(ctx);
    calm_model_close(f->model);
}

TEST(refusals)
{
    fixture f;
    calm_tensor *last;
    open_fixture((order){false, false}, &f);
    f.n--;
    refuses(&f, CALM_ENOTFOUND, "is missing; model.layers.1.mlp.experts.gate_up_proj is there");
    open_fixture((order){false, false}, &f);
    last = &f.tensors[f.n - 1];
    *last = float_tensor(last->name, (const float *)(const void *)last->data, EXPERTS * WIDTH, INNER, 0);
    refuses(&f, CALM_EFORMAT, "[160, 24], expected floats [5, 32, 24] or, transposed, [5, 24, 32]");
    open_fixture((order){false, false}, &f);
    last = &f.tensors[f.n - 1];
    *last = float_tensor(last->name, (const float *)(const void *)last->data, EXPERTS, WIDTH - 1, INNER);
    last->bytes = (size_t)EXPERTS * (WIDTH - 1) * INNER * sizeof(float);
    refuses(&f, CALM_EFORMAT, "[5, 31, 24], expected");
    open_fixture((order){false, false}, &f);
    last = &f.tensors[f.n - 1];
    *last = float_tensor(last->name, (const float *)(const void *)last->data, EXPERTS, INNER, WIDTH);
    refuses(&f, CALM_EFORMAT, "one is transposed; expected both or none");
    open_fixture((order){false, false}, &f);
    f.tensors[f.n - 1].dtype = CALM_I32;
    refuses(&f, CALM_EFORMAT, "I32 [5, 32, 24], expected floats");
}
END_OF_TEST

int main(void)
{
    return run_tests("fused_experts", (const TTest *[]){every_order, pieces, models, refusals, NULL});
}
