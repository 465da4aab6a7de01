/* Single tokens of a report: the words around them, and where an evaluation differs most. */
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

TEST(contexts_round_trip)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    bool exists;
    ck_ok(calm_store_context_exists(ctx, store, s.calibration, 3, 0, &exists));
    ck_assert(!exists);
    ck_ok(calm_store_context_put(ctx, store, s.calibration, 3, 0, "", " cat"));
    ck_ok(calm_store_context_put(ctx, store, s.calibration, 3, 0, "", " dog"));    /* replaced */
    ck_ok(calm_store_context_put(ctx, store, s.calibration, 3, 1, "the ", ""));
    ck_ok(calm_store_context_exists(ctx, store, s.calibration, 3, 0, &exists));
    ck_assert(exists);
    ck_assert_str_eq(sample_text(store, "SELECT group_concat(token || text_before || '.' || text_after) FROM"
                                        " (SELECT * FROM token_context ORDER BY token)"),
                     "0. dog,1the .");
    calm_store_close(store);
}
END_OF_TEST

/* Quantiles, ranges and tokens of one evaluation; stored again they replace the earlier ones, and are deleted with
 * it. */
TEST(divergences_round_trip)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    const calm_store_window window = {.tokens = 3, .nll = 6, .kl = 0.6, .top1 = 2};
    const calm_store_evaluation e = {.key = "test", .model_id = s.model, .subject = "hybrid", .text_name = "t",
                                     .window_tokens = 4, .tokens = 3, .nll = 2, .ppl = 7, .kl = 0.2, .top1 = 0.5,
                                     .windows = &window, .n_windows = 1};
    const calm_store_quantile quantiles[] = {{0.5, 0.1}, {1, 0.4}};
    const calm_store_range ranges[] = {{1, 1, 1, 0.1}, {2, 3, 2, 0.25}};
    const calm_store_token tokens[] = {{0, 3, 0.4, 2.5, 2.25, "a\nb", " c", " d", " e"},
                                       {0, 1, 0.1, 1, 1, "", "a", "a", "b"}};
    calm_store_divergence d = {quantiles, ranges, tokens, 2, 2, 2};
    int64_t id;
    bool exists;
    ck_ok(calm_store_evaluation_put(ctx, store, &e, &id));
    ck_ok(calm_store_divergence_exists(ctx, store, id, &exists));
    ck_assert(!exists);
    ck_ok(calm_store_divergence_put(ctx, store, id, &d));
    d.n_tokens = 1;
    ck_ok(calm_store_divergence_put(ctx, store, id, &d));
    ck_ok(calm_store_divergence_exists(ctx, store, id, &exists));
    ck_assert(exists);
    ck_assert_str_eq(sample_text(store, "SELECT group_concat(share || ' ' || kl) FROM divergence_quantile"),
                     "0.5 0.1,1.0 0.4");
    ck_assert_str_eq(sample_text(store, "SELECT group_concat(first_position || '-' || last_position || ' ' || tokens"
                                        " || ' ' || kl) FROM divergence_position"),
                     "1-1 1 0.1,2-3 2 0.25");
    ck_assert_str_eq(sample_text(store, "SELECT group_concat(rank || ' ' || window || ' ' || token || ' ' || kl || ' '"
                                        " || nll || ' ' || nll_float || text_before || text || best || best_float)"
                                        " FROM divergence_token"),
                     "1 0 3 0.4 2.5 2.25a\nb c d e");
    ck_fails(calm_store_divergence_put(ctx, store, id + 99, &d), CALM_EARG, "FOREIGN KEY");
    calm_store_close(store);
}
END_OF_TEST

int main(void)
{
    return run_tests("store_divergence", (const TTest *[]){contexts_round_trip, divergences_round_trip, NULL});
}
