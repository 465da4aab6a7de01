/* Progress bars and plain lines. */
#include "cli/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/threads.h"

#define BAR_CELLS 24
#define REDRAW_SECONDS 0.1
#define PLAIN_SECONDS 10.0    /* at most one line per stage in so many seconds, and one when it is done */

/* Workers report too: one of them draws at a time. */
static pthread_mutex_t drawing = PTHREAD_MUTEX_INITIALIZER;

void calm_progress_init(calm_progress *progress, bool quiet)
{
    memset(progress, 0, sizeof *progress);
    progress->quiet = quiet;
    progress->terminal = isatty(STDERR_FILENO) == 1;
    progress->active = CALM_PROGRESS_MAX;
}

size_t calm_progress_add(calm_progress *progress, const char *name, const char *unit)
{
    progress->stage[progress->n] = (calm_progress_stage){.name = name, .unit = unit, .shown = -1};
    return progress->n++;
}

/* "12 s", "3 min 20 s" */
static void print_seconds(double seconds, char text[32])
{
    const long whole = (long)(seconds + 0.5);
    if (whole < 100)
        snprintf(text, 32, "%ld s", whole);
    else
        snprintf(text, 32, "%ld min %02ld s", whole / 60, whole % 60);
}

static void print_figures(const calm_progress_stage *stage, char *text, size_t size)
{
    char spent[32], left[32];
    print_seconds(stage->seconds, spent);
    const double rate = stage->seconds > 0 ? (double)stage->done / stage->seconds : 0;
    if (stage->done >= stage->total)
        snprintf(text, size, "%zu %s, %s", stage->done, stage->unit, spent);
    else if (rate <= 0)
        snprintf(text, size, "%zu %s", stage->total, stage->unit);
    else {
        print_seconds((double)(stage->total - stage->done) / rate, left);
        snprintf(text, size, "%zu/%zu %s, %.1f/s, %s left", stage->done, stage->total, stage->unit, rate, left);
    }
}

static void draw_bars(calm_progress *progress)
{
    for (size_t i = 0; i < progress->n; i++) {
        const calm_progress_stage *stage = &progress->stage[i];
        const size_t filled = stage->total ? BAR_CELLS * stage->done / stage->total : 0;
        char figures[128] = "";
        if (stage->total)
            print_figures(stage, figures, sizeof figures);
        fprintf(stderr, "\033[2K  %-10s [", stage->name);
        for (size_t c = 0; c < BAR_CELLS; c++)
            fputc(c < filled ? '#' : '.', stderr);
        fprintf(stderr, "] %s\n", figures);
    }
    progress->drawn = progress->n;
    fflush(stderr);
}

void calm_progress_hide(calm_progress *progress)
{
    if (progress->drawn)
        fprintf(stderr, "\033[%zuA\033[J", progress->drawn);
    progress->drawn = 0;
}

static void draw(calm_progress *progress, bool now)
{
    const double time = calm_seconds();
    if (!now && time - progress->last_draw < REDRAW_SECONDS)
        return;
    progress->last_draw = time;
    if (progress->drawn)
        fprintf(stderr, "\033[%zuA", progress->drawn);
    draw_bars(progress);
}

static void plain_line(calm_progress_stage *stage)
{
    char figures[128];
    const bool complete = stage->total && stage->done >= stage->total;
    if (stage->complete || (!complete && stage->total == 0))
        return;
    if (!complete && stage->seconds - (stage->shown < 0 ? 0 : stage->shown) < PLAIN_SECONDS)
        return;
    stage->shown = stage->seconds;
    stage->complete = complete;
    print_figures(stage, figures, sizeof figures);
    fprintf(stderr, "calm: %-9s  %s\n", stage->name, figures);
}

void calm_progress_update(calm_progress *progress, size_t index, size_t done, size_t total)
{
    pthread_mutex_lock(&drawing);
    const double time = calm_seconds();
    calm_progress_stage *stage = &progress->stage[index];
    if (progress->active < progress->n) {
        calm_progress_stage *active = &progress->stage[progress->active];
        active->seconds += time - active->entered;
    }
    progress->active = index;
    stage->entered = time;
    const bool finished = stage->done < total && done >= total;
    stage->done = done;
    stage->total = total;
    if (!progress->quiet && progress->terminal)
        draw(progress, finished);
    else if (!progress->quiet)
        plain_line(stage);
    pthread_mutex_unlock(&drawing);
}

void calm_progress_finish(calm_progress *progress, size_t index)
{
    const size_t total = progress->stage[index].total ? progress->stage[index].total : 1;
    calm_progress_update(progress, index, total, total);
}

void calm_progress_end(calm_progress *progress)
{
    if (!progress->quiet && progress->terminal && progress->n)
        draw(progress, true);
    progress->drawn = 0;
}

void calm_progress_log(void *user, calm_log_level level, const char *line)
{
    calm_progress *progress = user;
    if (progress->quiet || level == CALM_LOG_DEBUG)
        return;
    pthread_mutex_lock(&drawing);
    calm_progress_hide(progress);
    fprintf(stderr, "calm: %s%s\n", level == CALM_LOG_WARNING ? "warning: " : "", line);
    pthread_mutex_unlock(&drawing);
}
