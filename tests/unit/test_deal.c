/* Which rank has which block. */
#include "ptq/ranks/ranks.h"

#include "tests/support/harness.h"

/* Deal blocks of these costs (0: nothing to compute) and compare with owners, a digit each. */
static void deal(const double *costs, size_t n, size_t ranks, const char *owners)
{
    calm_deal_block blocks[32] = {{0}};
    int owner[32];
    char found[33] = "";
    for (size_t b = 0; b < n; b++)
        blocks[b] = (calm_deal_block){costs[b] >= 1, costs[b]};
    ck_ok(calm_deal_blocks(ctx, blocks, n, ranks, owner));
    for (size_t b = 0; b < n; b++)
        found[b] = (char)('0' + owner[b]);
    ck_assert_str_eq(found, owners);
}

TEST(equal_blocks_go_round)
{
    const double equal[] = {3.7, 3.7, 3.7, 3.7, 3.7, 3.7, 3.7};
    deal(equal, 7, 1, "0000000");
    deal(equal, 7, 2, "0101010");
    deal(equal, 7, 3, "0120120");
    deal(equal, 3, 8, "012");
}
END_OF_TEST

/* Every second block has experts: by number, one of two ranks would have all of them. */
TEST(costs_that_alternate)
{
    const double alternate[] = {1, 4, 1, 4, 1, 4, 1, 4};
    deal(alternate, 8, 2, "01001100");
}
END_OF_TEST

/* A rank that has a large block gets no other while the rest are done sooner. */
TEST(a_large_block_first)
{
    const double first[] = {9, 1, 1, 1, 1, 1};
    deal(first, 6, 2, "011111");
}
END_OF_TEST

/* By who is free where that ends earlier (at 5, not 6); round the ranks where it does not. */
TEST(round_where_it_is_as_early)
{
    const double mixed[] = {3, 2, 3, 2};
    deal(mixed, 4, 2, "0110");
    const double same[] = {2, 2, 3};
    deal(same, 3, 2, "010");
}
END_OF_TEST

/* Blocks that are only run go with the next that has work; behind the last one they follow in turn. */
TEST(blocks_without_work)
{
    const double some[] = {0, 0, 4, 4, 0, 4, 0};
    deal(some, 7, 2, "0001001");
    const double none[] = {0.5, 0.5, 0.5};
    deal(none, 3, 2, "000");
}
END_OF_TEST

int main(void)
{
    return run_tests("deal", (const TTest *[]){equal_blocks_go_round, costs_that_alternate, a_large_block_first,
                                               round_where_it_is_as_early, blocks_without_work, NULL});
}
