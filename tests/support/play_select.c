#include "tests/support/play_select.h"

calm_reselect_options play_selecting(const play *run, int64_t of)
{
    return (calm_reselect_options){.store = run->recipe.store, .run = of, .unit = CALM_AS_IN_RUN,
                                   .rule = CALM_AS_IN_RUN, .budget = NAN, .command = "calm test"};
}

int64_t play_select(const calm_reselect_options *options)
{
    calm_reselected selected;
    ck_ok(calm_reselect(ctx, options, &selected));
    calm_reselected_clear(&selected);
    return selected.run;
}

void play_select_fails(const calm_reselect_options *options, calm_status status, const char *message)
{
    calm_reselected selected;
    ck_fails(calm_reselect(ctx, options, &selected), status, message);
    calm_reselected_clear(&selected);
}
