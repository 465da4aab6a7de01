/* The distribution of blocks over ranks. */
#include "ptq/ranks/ranks.h"

#include "tests/support/harness.h"

/* Distributes blocks with these costs (0: nothing to compute); the expected owners are digits. */
static void deal(const double *costs, size_t n, size_t ranks, const char *owners)
{
    calm_deal_block blocks[32] = {{0}};
    int owner[32];
    char found[33] = "";
    for (size_t b = 0; b < n; b++)
        blocks[b] = (calm_deal_block){costs[b] >= 1, costs[b]};
    ck_ok(calm_assign_blocks(ctx, blocks, n, ranks, owner));
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

/* Every second block has experts, so dealing by number would give all of them to one of two ranks. */
TEST(costs_that_alternate)
{
    const double alternate[] = {1, 4, 1, 4, 1, 4, 1, 4};
    deal(alternate, 8, 2, "01001100");
}
END_OF_TEST

/* A rank with a large block gets no other block while the rest finish sooner. */
TEST(a_large_block_first)
{
    const double first[] = {9, 1, 1, 1, 1, 1};
    deal(first, 6, 2, "011111");
}
END_OF_TEST

/* Blocks go to the rank that is free if that ends earlier (at 5, not 6), and otherwise in turn. */
TEST(round_where_it_is_as_early)
{
    const double mixed[] = {3, 2, 3, 2};
    deal(mixed, 4, 2, "0110");
    const double same[] = {2, 2, 3};
    deal(same, 3, 2, "010");
}
END_OF_TEST

/* Blocks without work go with the next block that has work, and after the last such block in turn. */
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
