/* Times of the stages of a run. */
#include "ptq/base/times.h"

#include <time.h>

#include "ptq/base/threads.h"

const char *calm_time_stage_name(calm_time_stage stage)
{
    static const char *const names[CALM_N_TIMES] = {
        [CALM_TIME_READ] = "read",           [CALM_TIME_FORWARD] = "forward",
        [CALM_TIME_GRAM] = "gram",           [CALM_TIME_FACTORS] = "factors",
        [CALM_TIME_ALGORITHMS] = "algorithms", [CALM_TIME_SCORES] = "scores",
        [CALM_TIME_GUARD] = "guard",         [CALM_TIME_LEARNING] = "learning",
        [CALM_TIME_EXPORT] = "export",       [CALM_TIME_EVALUATION] = "evaluation",
        [CALM_TIME_STORE] = "store",         [CALM_TIME_OTHER] = "other"};
    return names[stage];
}

static double cpu_seconds(clockid_t clock)
{
    struct timespec cpu;
    clock_gettime(clock, &cpu);
    return (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec;
}

calm_time calm_time_now(void)
{
    return (calm_time){calm_seconds(), cpu_seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

double calm_time_busy(int n_threads)
{
    const int n_cores = calm_n_cores();
    /* More threads than cores take turns on them. */
    return n_threads < 2 ? cpu_seconds(CLOCK_THREAD_CPUTIME_ID)
                         : cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) / (n_threads < n_cores ? n_threads : n_cores);
}

void calm_times_begin(calm_times *times)
{
    *times = (calm_times){.now = CALM_TIME_OTHER, .since = calm_time_now()};
}

void calm_times_settle(calm_times *times)
{
    const calm_time now = calm_time_now();
    calm_time *stage = &times->stage[times->now];
    stage->wall += now.wall - times->since.wall;
    stage->cpu += now.cpu - times->since.cpu;
    times->since = now;
}

calm_time calm_times_sum(const calm_times *times)
{
    calm_time sum = {0, 0};
    for (calm_time_stage s = 0; s < CALM_N_TIMES; s++) {
        sum.wall += times->stage[s].wall;
        sum.cpu += times->stage[s].cpu;
    }
    return sum;
}

calm_time_scope calm_time_enter(calm_times *times, calm_time_stage stage)
{
    if (!times || !(times->since.wall > 0))
        return (calm_time_scope){NULL, stage};
    const calm_time_scope scope = {times, times->now};
    calm_times_settle(times);
    times->now = stage;
    return scope;
}

void calm_time_leave(calm_time_scope *scope)
{
    if (!scope->times)
        return;
    calm_times_settle(scope->times);
    scope->times->now = scope->caller;
}
