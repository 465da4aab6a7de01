/* The recurrent state that earlier tokens leave (past.h); test_decode_fixtures.c tests keys and values. */
#include "ptq/layers/past.h"

#include <string.h>

#include "ptq/arch/kind.h"
#include "tests/support/harness.h"

#define HIDDEN 6
#define WIDTH 4

static const calm_kind *find_kind(const char *name)
{
    size_t n;
    const calm_kind *const *all = calm_kinds(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    ck_abort_msg("no kind %s", name);
}

/* A model with one block of short convolutions and one of attention. */
typedef struct fixture {
    calm_block_shape shapes[2];
    bool sparse[2];
    calm_config config;
    calm_block block;
    calm_past past;
} fixture;

static void new_fixture(size_t width, size_t room, fixture *f)
{
    *f = (fixture){.config = {.n_blocks = 2, .hidden = HIDDEN, .conv_width = width, .shapes = f->shapes}};
    f->config.moe.sparse = f->sparse;
    f->shapes[0].kind[CALM_SUBLAYER_ATTENTION] = find_kind("conv");
    f->shapes[1] = (calm_block_shape){.kind = {[CALM_SUBLAYER_ATTENTION] = find_kind("attention")}, .n_kv = 1,
                                      .head_dim = 3};
    ck_ok(calm_config_new_blocks(ctx, &f->config));
    f->block = (calm_block){.config = calm_config_at(&f->config, 0)};
    ck_ok(calm_past_init(ctx, &f->config, room, &f->past));
}

/* The first token has zeros, later ones what earlier ones left, and a new text begins with zeros again. */
TEST(state_of_a_text)
{
    fixture f;
    new_fixture(WIDTH, 9, &f);
    const size_t n = (WIDTH - 1) * HIDDEN;
    const calm_span span = {.n_tokens = 1, .past = &f.past}, whole = {.n_tokens = 1};
    ck_assert(!calm_past_state(&f.block, &whole));
    for (int again = 0; again < 2; again++) {
        f.past.n = 0;
        float *state = calm_past_state(&f.block, &span);
        for (size_t i = 0; i < n; i++) {
            ck_assert(state[i] == 0);
            state[i] = (float)i + 1;
        }
        f.past.n = 1;
        ck_assert(calm_past_state(&f.block, &span) == state);
        for (size_t i = 0; i < n; i++)
            ck_assert(state[i] == (float)i + 1);
    }
}
END_OF_TEST

/* The state does not grow with the text; keys and values do. */
TEST(size)
{
    fixture f;
    new_fixture(WIDTH, 9, &f);
    ck_assert(f.past.blocks[0].state && !f.past.blocks[0].k && !f.past.blocks[0].v);
    ck_assert(!f.past.blocks[1].state && f.past.blocks[1].k && f.past.blocks[1].v);
    ck_assert_uint_eq(calm_past_bytes(&f.config, 1000) - calm_past_bytes(&f.config, 9),
                      2 * (CALM_BYTES(float, 1000 * 3) - CALM_BYTES(float, 9 * 3)));
}
END_OF_TEST

/* A convolution of one tap has no state. */
TEST(no_state)
{
    fixture f;
    new_fixture(1, 9, &f);
    ck_assert(!calm_past_state(&f.block, &(calm_span){.n_tokens = 1, .past = &f.past}));
}
END_OF_TEST

int main(void)
{
    return run_tests("past", (const TTest *[]){state_of_a_text, size, no_state, NULL});
}
