#include "tests/support/first_block.h"

#include "ptq/model/forward.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

first_block first_block_open(const char *dir, const size_t *lengths, size_t n)
{
    first_block b = {.windows = tiny_windows(lengths, n)};
    ck_ok(calm_model_open(ctx, dir, &b.model));
    ck_ok(calm_rope_init(ctx, calm_model_config(b.model), b.windows.longest, &b.rope));
    ck_ok(calm_model_load_block(ctx, b.model, 0, &b.block));
    return b;
}

void first_block_embed(first_block *b)
{
    ck_ok(calm_batch_embed(ctx, b->model, &b->windows, 0, b->windows.n, ctx->out, NULL, &b->batch));
}
