/* Replayed runs on several ranks: times that can be computed by hand. */
#include "ptq/forecast/forecast.h"

#include "tests/support/harness.h"

#define MOST 64

/* The flow's thread looks a second time at each window. */
#define LOOK 0.0005

/* Makes equal blocks, whose forward pass takes 8 seconds and the rest 100; windows take no time on the network. */
static calm_replay_costs equal(calm_replay_block blocks[MOST], size_t n)
{
    for (size_t b = 0; b < n; b++)
        blocks[b] = (calm_replay_block){.pass = 8, .work = 100, .blobs = 10, .todo = true, .cost = 1};
    return (calm_replay_costs){.blocks = blocks, .n_blocks = n, .divides = true, .flows = true, .windows = 16};
}

/* Replays with each rank on a separate machine, connected at once. */
static calm_replay replay(const calm_replay_costs *costs, int ranks)
{
    const calm_replay_cluster cluster = {.ranks = ranks, .per_node = 1, .threads = 1, .cores = 1, .bandwidth = 1e30};
    calm_replay out;
    ck_ok(calm_replay_run(ctx, costs, &cluster, &out));
    return out;
}

TEST(one_rank_does_all)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 3);
    costs.begin = 5;
    costs.guard = (calm_replay_parts){30, 6, 2};
    costs.test = (calm_replay_parts){40, 4, 1};
    costs.alone = 7;
    costs.passes = 6;
    costs.look = 1;
    const calm_replay found = replay(&costs, 1);
    ck_near(found.seconds, 5 + 3 * 108 + 30 + 40 + 7 + 6, 1e-4);
    ck_near(found.blocks_seconds, 3 * 108, 1e-4);
    ck_near(found.idle, 0, 1e-6);
    ck_assert(found.rows_bytes == 0 && found.blobs_bytes == 0 && found.unused == 0);
}
END_OF_TEST

/* A block is handed on window by window before its candidates are computed: two blocks on two ranks take the first
 * pass, the second pass and one block's work; the last block's pass begins when all its windows are there. */
TEST(two_blocks_side_by_side)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 2);
    costs.window_bytes = 1000;
    const calm_replay found = replay(&costs, 2);
    ck_near(found.seconds, 8 + LOOK + 108, 1e-4);
    ck_near(found.idle, 1 - (8 + 108 + 108) / (2 * found.seconds), 1e-4);
    ck_assert(found.rows_bytes == 16 * 1000 && found.blobs_bytes == 10);
    /* A third block follows the second by a window: 0.5 s for a sixteenth of a pass. */
    costs = equal(blocks, 3);
    ck_near(replay(&costs, 3).seconds, 8 + 0.5 + 2 * LOOK + 108, 1e-2);
    /* A mixture runs all windows at once, so none leaves before the last. */
    blocks[1].together = true;
    ck_near(replay(&costs, 3).seconds, 8 + 8 + 108, 1e-2);
}
END_OF_TEST

/* Rank 0's second block waits for its first; meanwhile rank 1 hands on the pass. */
TEST(rounds)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 4);
    /* Rank 1: 8 s of waiting, pass and block 1, block 3.  Its rows come from block 2, whose pass follows block 0. */
    ck_near(replay(&costs, 2).seconds, 8 + 8 + 108 + 108, 0.1);
    costs = equal(blocks, 32);
    const double one = replay(&costs, 1).seconds, many = replay(&costs, 8).seconds;
    ck_assert(many < one / 8 * 1.2 && many > one / 8);
    const calm_replay more = replay(&costs, 64);
    ck_assert_uint_eq(more.unused, 32);
    ck_assert(more.seconds < many && more.idle > 0.5);
}
END_OF_TEST

/* A network slower than the work: 16 windows of 10 seconds in sequence. */
TEST(a_slow_network)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 2);
    calm_replay_cluster cluster = {.ranks = 2, .per_node = 1, .threads = 1, .cores = 1, .bandwidth = 100, .latency = 3};
    calm_replay found;
    costs.window_bytes = 1000;
    ck_ok(calm_replay_run(ctx, &costs, &cluster, &found));
    ck_near(found.seconds, 0.5 + 16 * 10 + 3 + LOOK + 108, 0.1);
    /* Within a machine the network is fast, but the cores are shared: as one rank, and the first pass twice. */
    cluster.per_node = 2;
    cluster.cores = 2;
    ck_ok(calm_replay_run(ctx, &costs, &cluster, &found));
    ck_near(found.seconds, 8 + LOOK + 108, 1e-3);
    cluster.cores = 1;
    ck_ok(calm_replay_run(ctx, &costs, &cluster, &found));
    ck_near(found.seconds, 8 + 2 * 108, 0.01);
    ck_near(found.work, 8 + 2 * 108, 1e-3);
    ck_near(found.most_work, 8 + 108, 1e-3);
}
END_OF_TEST

/* Blocks quantized from weights alone, and blocks that need the outputs of earlier ones. */
TEST(without_rows)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 6);
    costs.flows = false;
    ck_near(replay(&costs, 4).seconds, 2 * 108, 1e-4);
    ck_assert(replay(&costs, 4).rows_bytes == 0);
    costs.divides = false;
    ck_near(replay(&costs, 4).seconds, 6 * 108, 1e-4);
    ck_near(replay(&costs, 4).idle, 0.75, 1e-4);
}
END_OF_TEST

/* Blocks are dealt as in a run (test_deal.c): dealt in turn, one of two ranks would get 1600 of 8 that take 100 and
 * 400. */
TEST(blocks_that_differ)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 8);
    costs.flows = false;
    for (size_t b = 0; b < 8; b++) {
        blocks[b].cost = b % 2 ? 4 : 1;
        blocks[b].work = 100 * blocks[b].cost;
        blocks[b].pass = 0;
    }
    ck_near(replay(&costs, 2).seconds, 1100, 1e-3);
}
END_OF_TEST

/* Parts are whole batches, and rank 0 uses what others have computed. */
TEST(what_follows)
{
    calm_replay_block blocks[MOST];
    calm_replay_costs costs = equal(blocks, 2);
    costs.flows = false;
    costs.guard = (calm_replay_parts){90, 5, 2};
    /* Of batches of 2, 2 and 1 windows rank 1 has the last three windows. */
    ck_near(replay(&costs, 2).seconds, 108 + 54, 1e-4);
    costs.guard.batch = 5;
    ck_near(replay(&costs, 2).seconds, 108 + 90, 1e-4);
    costs.look = 0.1;
    costs.alone = 5;
    ck_near(replay(&costs, 2).seconds, 108 + 0.1 * 10 + 90 + 5, 1e-4);
    /* The float half of 8 s runs next to rank 0's steps, the other half on both; or that half takes longer than the
     * steps. */
    costs.passes = 8;
    ck_near(replay(&costs, 2).seconds, 108 + 0.1 * 10 + 90 + 5 + 2, 1e-4);
    costs.passes = 20;
    ck_near(replay(&costs, 2).seconds, 108 + 0.1 * 10 + 90 + 10 + 5, 1e-4);
}
END_OF_TEST

int main(void)
{
    return run_tests("replay", (const TTest *[]){one_rank_does_all, two_blocks_side_by_side, rounds, a_slow_network,
                                                 without_rows, blocks_that_differ, what_follows, NULL});
}
