/* Sentence embeddings of a tiny encoder against plain means, and distances between embeddings computed by hand. */
#include "ptq/eval/encode.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_encoder.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 5

static const size_t lengths[N_WINDOWS] = {11, 1, 25, 8, 3};

static calm_model *open_encoder(uint64_t seed)
{
    tiny_encoder spec = tiny_encoder_default;
    calm_model *model;
    spec.seed = seed;
    ck_ok(calm_model_open(ctx, tiny_encoder_write(&spec), &model));
    return model;
}

/* ---- embeddings ---- */

TEST(embeddings_are_means_of_rows)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_encoder(1);
    const calm_subject subject = {.model = model};
    calm_embeddings found;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    ck_ok(calm_encode(ctx, &subject, &windows, NULL, NULL, &found));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows.longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, &windows, 0, N_WINDOWS, NULL, NULL, ctx->out, &batch));
    ck_assert_uint_eq(found.n, N_WINDOWS);
    ck_assert_uint_eq(found.width, 32);
    for (size_t w = 0; w < N_WINDOWS; w++)
        for (size_t j = 0; j < 32; j++) {
            long double sum = 0;
            for (size_t t = windows.begin[w]; t < windows.begin[w + 1]; t++)
                sum += (long double)batch.hidden.data[t * 32 + j];
            /* 25 additions of values below 8 in double. */
            ck_near(found.x[w * 32 + j], (double)(sum / (long double)lengths[w]), 25 * 8 * 2.3e-16);
        }
    calm_model_close(model);
}
END_OF_TEST

/* A sentence's embedding depends neither on other sentences nor on threads. */
TEST(same_bytes_alone_and_together)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_encoder(1), *other = open_encoder(2);
    const calm_subject subject = {.model = model}, second = {.model = other};
    calm_embeddings all, again, one;
    calm_embedding_result a, b;
    ctx->n_threads = 1;
    ck_ok(calm_encode(ctx, &subject, &windows, NULL, NULL, &all));
    ck_ok(calm_encode(ctx, &second, &windows, NULL, NULL, &one));
    ck_ok(calm_embedding_compare(ctx, &all, &one, &a));
    ctx->n_threads = 4;
    ck_ok(calm_encode(ctx, &subject, &windows, NULL, NULL, &again));
    ck_assert(memcmp(all.x, again.x, all.n * all.width * sizeof *all.x) == 0);
    ck_ok(calm_embedding_compare(ctx, &again, &one, &b));
    ck_assert(a.error == b.error && a.cosine == b.cosine && a.cosine_min == b.cosine_min && a.spearman == b.spearman);
    ck_assert(memcmp(a.each, b.each, a.n * sizeof *a.each) == 0);
    for (size_t w = 0; w < N_WINDOWS; w++) {
        calm_windows alone;
        ck_ok(calm_windows_slice(ctx, &windows, w, 1, &alone));
        ck_ok(calm_encode(ctx, &subject, &alone, NULL, NULL, &one));
        ck_assert(memcmp(one.x, all.x + w * all.width, all.width * sizeof *all.x) == 0);
    }
    /* Parts, as for several ranks. */
    for (size_t r = 0, at = 0; r < 3; r++, at += one.n) {
        calm_windows part;
        size_t first;
        ck_ok(calm_encode_part(ctx, calm_model_config(model), &windows, r, 3, &part, &first));
        ck_assert(first == at && part.n > 0);
        ck_ok(calm_encode(ctx, &subject, &part, NULL, NULL, &one));
        ck_assert(memcmp(one.x, all.x + at * all.width, one.n * all.width * sizeof *all.x) == 0);
        ck_assert(r < 2 || at + one.n == N_WINDOWS);
    }
    calm_model_close(model);
    calm_model_close(other);
}
END_OF_TEST

TEST(a_model_does_not_differ_from_itself)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_encoder(1), *other = open_encoder(2);
    const calm_subject subject = {.model = model}, second = {.model = other};
    calm_embeddings x, y;
    calm_embedding_result result;
    ck_ok(calm_encode(ctx, &subject, &windows, NULL, NULL, &x));
    ck_ok(calm_embedding_compare(ctx, &x, &x, &result));
    ck_assert(result.error == 0 && result.cosine == 1 && result.cosine_min == 1);
    ck_assert(result.n == N_WINDOWS && result.pairs == 10);
    ck_near(result.spearman, 1, 1e-15);
    ck_ok(calm_encode(ctx, &second, &windows, NULL, NULL, &y));
    ck_ok(calm_embedding_compare(ctx, &x, &y, &result));
    /* The models have nothing in common. */
    ck_assert(result.error > 0.5 && result.cosine < 0.9 && result.spearman < 0.9);
    calm_model_close(model);
    calm_model_close(other);
}
END_OF_TEST

/* An override that changes one block, and counts the blocks that it was asked for. */
typedef struct one_block {
    size_t index, n_asked;
    float weights[32];
} one_block;

static calm_status change_one(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    one_block *change = user;
    (void)task;
    change->n_asked++;
    if (index != change->index)
        return CALM_OK;
    for (size_t i = 0; i < 32; i++)
        change->weights[i] = 1.5F * block->norm[CALM_SUBLAYER_MLP][CALM_NORM_RESIDUAL].w[i];
    block->norm[CALM_SUBLAYER_MLP][CALM_NORM_RESIDUAL].w = change->weights;
    return CALM_OK;
}

static void keep_last(void *user, size_t done, size_t total)
{
    size_t *last = user;
    ck_assert_uint_ge(done, last[0]);
    last[0] = done;
    last[1] = total;
}

/* A model that differs from the first one from a block on is run from that block on, with the bits of a whole pass. */
TEST(followers_begin_at_their_block)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_encoder(1), *other = open_encoder(2);
    const size_t n_blocks = calm_model_config(model)->n_blocks;
    one_block last = {.index = n_blocks - 1}, whole = last, foreign = last;
    const calm_subject subjects[] = {{.model = model},
                                     {model, change_one, &last, n_blocks - 1, NULL, 0},
                                     {model, change_one, &whole, 0, NULL, 0},
                                     {other, change_one, &foreign, n_blocks - 1, NULL, 0}};
    const size_t n = sizeof subjects / sizeof *subjects, asked[] = {0, 1, n_blocks, n_blocks};
    one_block *const change[] = {NULL, &last, &whole, &foreign};
    calm_embeddings together[4], alone;
    size_t ticks[2] = {0, 0};
    ck_assert_uint_ge(n_blocks, 2);
    ck_ok(calm_encode_all(ctx, subjects, n, &windows, keep_last, ticks, together));
    ck_assert(ticks[0] == n * N_WINDOWS && ticks[1] == ticks[0]);
    for (size_t s = 0; s < n; s++) {
        if (change[s])
            ck_assert_uint_eq(change[s]->n_asked, asked[s]);
        /* Alone, a subject runs all its blocks. */
        ck_ok(calm_encode(ctx, &subjects[s], &windows, NULL, NULL, &alone));
        ck_assert(memcmp(alone.x, together[s].x, alone.n * alone.width * sizeof *alone.x) == 0);
        if (change[s])
            ck_assert_uint_eq(change[s]->n_asked, asked[s] + n_blocks);
    }
    ck_assert(memcmp(together[0].x, together[1].x, N_WINDOWS * 32 * sizeof(double)) != 0);
    ck_assert(memcmp(together[1].x, together[2].x, N_WINDOWS * 32 * sizeof(double)) == 0);
    /* If the first subject is itself overridden, nothing is shared. */
    const calm_subject changed[] = {subjects[2], subjects[1]};
    ck_ok(calm_encode_all(ctx, changed, 2, &windows, NULL, NULL, together));
    ck_assert_uint_eq(last.n_asked, asked[1] + 2 * n_blocks);
    calm_model_close(model);
    calm_model_close(other);
}
END_OF_TEST

static calm_status break_norm(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    static float broken[32];
    (void)user, (void)task, (void)index;
    for (size_t i = 0; i < 32; i++)
        broken[i] = INFINITY;
    block->norm[CALM_SUBLAYER_MLP][CALM_NORM_RESIDUAL].w = broken;
    return CALM_OK;
}

TEST(failures)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_encoder(1);
    const calm_subject broken = {.model = model, .override = break_norm}, subject = {.model = model};
    calm_embeddings x;
    calm_eval_result result;
    ck_fails(calm_encode(ctx, &broken, &windows, NULL, NULL, &x), CALM_ENUMERIC,
             "embedding of sentence 0 is not finite");
    ck_fails(calm_evaluate(ctx, NULL, NULL, &subject, 1, &result, &windows, NULL, NULL), CALM_EARG, "is an encoder");
    double zero[4] = {1, 2, 0, 0}, fine[4] = {1, 2, 3, 4};
    const calm_embeddings a = {2, 2, fine, false}, b = {2, 2, zero, false}, c = {1, 4, fine, false};
    calm_embedding_result compared;
    ck_fails(calm_embedding_compare(ctx, &b, &a, &compared), CALM_ENUMERIC, "sentence 1 is 0");
    ck_fails(calm_embedding_compare(ctx, &a, &c, &compared), CALM_EARG, "1 embeddings of width 4");
    ck_ok(calm_embedding_compare(ctx, &a, &b, &compared));
    ck_assert(compared.cosine_min == 0 && compared.each[1].error == 1);
    calm_model_close(model);
}
END_OF_TEST

/* ---- distances ---- */

/* f: (3, 4), (1, 0), (0, 2); q: (4, 3), (1, 0), (2, 2).
 *   error   sqrt 2 / 5, 0, 2 / 2              cosine   24 / 25, 1, 4 / (2 sqrt 8) = 1 / sqrt 2
 *   pairs (1,0) (2,0) (2,1) of f: .6, .8, 0 with ranks 2 3 1; of q: .8, 14 / (5 sqrt 8) = .99, .71 with ranks 2 3 1 */
TEST(distances_by_hand)
{
    double f[] = {3, 4, 1, 0, 0, 2}, q[] = {4, 3, 1, 0, 2, 2};
    const calm_embeddings a = {3, 2, f, false}, b = {3, 2, q, false};
    calm_embedding_result result;
    ck_ok(calm_embedding_compare(ctx, &a, &b, &result));
    ck_near(result.each[0].error, sqrt(2) / 5, 1e-15);
    ck_near(result.each[1].error, 0, 0);
    ck_near(result.each[2].error, 1, 1e-15);
    ck_near(result.error, (sqrt(2) / 5 + 1) / 3, 1e-15);
    ck_near(result.each[0].cosine, 0.96, 1e-15);
    ck_near(result.cosine, (0.96 + 1 + sqrt(0.5)) / 3, 1e-15);
    ck_near(result.cosine_min, sqrt(0.5), 1e-15);
    ck_assert_uint_eq(result.pairs, 3);
    ck_near(result.spearman, 1, 1e-15);
}
END_OF_TEST

/* If only one of two models gives rows of length 1, rows are compared at that length; q: 0 is as far as f is long. */
TEST(distances_of_unit_rows)
{
    double f[] = {3, 4, 1, 0, 0, 2}, q[] = {.8, .6, 1, 0, 0, 0};
    const calm_embeddings a = {3, 2, f, false}, b = {3, 2, q, true};
    calm_embedding_result result;
    ck_ok(calm_embedding_compare(ctx, &a, &b, &result));
    ck_near(result.each[0].error, sqrt(.04 + .04), 1e-15);
    ck_near(result.each[1].error, 0, 0);
    ck_near(result.each[2].error, 1, 1e-15);
}
END_OF_TEST

/* f: (1, 0), (0, 1), (1, 1), (1, 0): pairs (1,0) (2,0) (2,1) (3,0) (3,1) (3,2) have cosines 0 s s 1 0 s, s = 1 / sqrt
 * 2, so ranks 1.5 4 4 6 1.5 4.  q: (1, 0), (0, 1), (1, -1), (0, 1): 0 s -s 0 1 -s, ranks 3.5 5 1.5 3.5 6 1.5.
 * Less 3.5:  -2 .5 .5 2.5 -2 .5  and  0 1.5 -2 0 2.5 -2:  products .75 - 1 - 5 - 1 = -6.25, squares 15 and 16.5. */
TEST(ranks_with_ties)
{
    double f[] = {1, 0, 0, 1, 1, 1, 1, 0}, q[] = {1, 0, 0, 1, 1, -1, 0, 1};
    const calm_embeddings a = {4, 2, f, false}, b = {4, 2, q, false};
    calm_embedding_result result;
    ck_ok(calm_embedding_compare(ctx, &a, &b, &result));
    ck_near(result.spearman, -6.25 / sqrt(15 * 16.5), 1e-15);
    const double values[] = {2, 7, 2, 1, 7, 2, 9};
    double ranks[7];
    static const double expected[7] = {3, 5.5, 3, 1, 5.5, 3, 7};
    ck_ok(calm_ranks(ctx, values, 7, ranks));
    for (size_t i = 0; i < 7; i++)
        ck_near(ranks[i], expected[i], 0);
}
END_OF_TEST

/* One pair, or equal cosines, have no rank correlation. */
TEST(no_correlation)
{
    double f[] = {1, 0, 0, 1, 1, 0, 0, 1}, same[] = {1, 0, 1, 0, 1, 0, 1, 0};
    const calm_embeddings one = {1, 2, f, false}, two = {2, 2, f, false}, four = {4, 2, f, false};
    const calm_embeddings equal = {4, 2, same, false};
    calm_embedding_result result;
    ck_ok(calm_embedding_compare(ctx, &one, &one, &result));
    ck_assert(result.pairs == 0 && isnan(result.spearman) && result.cosine == 1);
    ck_ok(calm_embedding_compare(ctx, &two, &two, &result));
    ck_assert(result.pairs == 1 && isnan(result.spearman));
    ck_ok(calm_embedding_compare(ctx, &four, &equal, &result));
    ck_assert(result.pairs == 6 && isnan(result.spearman));
}
END_OF_TEST

/* The estimate is exact for embeddings, and an upper bound for the rest: an encoder may lack parts of a head. */
TEST(memory)
{
    static const size_t same[] = {40, 40, 40, 40};
    const calm_windows windows = tiny_windows(same, 4);
    tiny_encoder spec = tiny_encoder_default;
    calm_model *model;
    calm_embeddings found;
    calm_embedding_result result;
    spec.hidden = 256;
    ck_ok(calm_model_open(ctx, tiny_encoder_write(&spec), &model));
    const calm_config *config = calm_model_config(model);
    const calm_subject subject = {.model = model};
    size_t block = calm_batch_block_scratch_bytes(config, 0, 4, 40, 0, false, 1);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        block += calm_model_load_sublayer_bytes(model, 0, s);
    ck_assert_uint_eq(calm_encode_batch(config, 4, 40), 4);
    ctx->n_threads = 1;
    ck_memory_of_workers(calm_encode(ctx, &subject, &windows, NULL, NULL, &found), calm_encode_bytes(config, 4),
                         calm_encode_scratch_bytes(config, 4, 40, 1, block), 5, calm_model_load_head_bytes(config));
    const calm_subject several[] = {subject, {.model = model, .first_block = 1}, {.model = model, .first_block = 1}};
    calm_embeddings each[3];
    ck_memory_of_workers(calm_encode_all(ctx, several, 3, &windows, NULL, NULL, each),
                         3 * calm_encode_bytes(config, 4),
                         calm_encode_scratch_bytes(config, 4, 40, 3, block), 8, calm_model_load_head_bytes(config));
    ck_ok(calm_encode(ctx, &subject, &windows, NULL, NULL, &found));
    ck_memory(calm_embedding_compare(ctx, &found, &found, &result), calm_embedding_compare_bytes(4),
              calm_embedding_compare_scratch_bytes(4));
    ck_assert_uint_eq(calm_embedding_compare_scratch_bytes(CALM_PAIRED_SENTENCES),
                      calm_embedding_compare_scratch_bytes(2 * CALM_PAIRED_SENTENCES));
    calm_model_close(model);
}
END_OF_TEST

int main(void)
{
    return run_tests("encode", (const TTest *[]){
        embeddings_are_means_of_rows, same_bytes_alone_and_together, followers_begin_at_their_block,
        a_model_does_not_differ_from_itself, failures, distances_by_hand, distances_of_unit_rows,
        ranks_with_ties, no_correlation, memory, NULL});
}
