/* Progress bars and plain lines. */
#include "cli/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/flags.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "ptq/base/threads.h"

#define BAR_CELLS 24
#define BAR_CELLS_LEAST 6     /* a shorter bar is unreadable                     */
#define NAME_COLUMNS 13       /* width of names before bar or figures            */
#define FIGURE_COLUMNS 46     /* "1200/4000 candidates, 12.3/s, 3 min 20 s left" */
#define LOSS_COLUMNS 14       /* ", loss 0.00271"                                */
#define RATE_SECONDS 0.5      /* no rate is shown earlier                        */
#define REDRAW_SECONDS 0.1
#define PLAIN_SECONDS 10.0    /* seconds between plain lines of a stage; one more when it is complete */

/* Workers of calm_parallel_for tick from their threads; the lock protects lines and counters. */
static pthread_mutex_t drawing = PTHREAD_MUTEX_INITIALIZER;

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
    /* Items before the clock began, such as candidates from the store, took no time. */
    const double rate = stage->seconds >= RATE_SECONDS ? (double)(stage->done - stage->base) / stage->seconds : 0;
    if (stage->done >= stage->total)
        snprintf(text, size, "%zu %s, %s", stage->done, stage->unit, spent);
    else if (rate <= 0)
        snprintf(text, size, "%zu/%zu %s", stage->done, stage->total, stage->unit);
    else {
        print_seconds((double)(stage->total - stage->done) / rate, left);
        snprintf(text, size, "%zu/%zu %s, %.1f/s, %s left", stage->done, stage->total, stage->unit, rate, left);
    }
    const size_t used = strlen(text);
    if (stage->has_loss)
        snprintf(text + used, size - used, ", loss %.5f", stage->loss);
}

/* Draws one line that fits into `columns`; the bar is as long as there is room. */
static void draw_stage(const calm_progress_stage *stage, size_t columns)
{
    const size_t taken = NAME_COLUMNS + FIGURE_COLUMNS + (stage->has_loss ? LOSS_COLUMNS : 0) + 3;
    const size_t room = columns > taken ? columns - taken : 0;
    const size_t cells = room < BAR_CELLS_LEAST ? 0 : room < BAR_CELLS ? room : BAR_CELLS;
    const size_t filled = stage->total ? cells * stage->done / stage->total : 0;
    char figures[128] = "", line[256];
    if (stage->total)
        print_figures(stage, figures, sizeof figures);
    int n = snprintf(line, sizeof line, "  %-10s %s", stage->name, cells ? "[" : "");
    for (size_t c = 0; c < cells; c++)
        line[n++] = c < filled ? '#' : '.';
    snprintf(line + n, sizeof line - (size_t)n, "%s%s", cells ? "] " : "", figures);
    /* A line as wide as the terminal would wrap. */
    fprintf(stderr, "\033[2K%.*s\n", (int)(columns > 1 ? columns - 1 : 1), line);
}

static void draw_bars(calm_progress *progress)
{
    const size_t columns = calm_terminal_columns(STDERR_FILENO);
    progress->drawn = 0;
    for (size_t i = 0; i < progress->n; i++)
        if (!progress->stage[i].idle) {
            draw_stage(&progress->stage[i], columns);
            progress->drawn++;
        }
    fflush(stderr);
}

/* Erases the bars, so that something else can be printed; the next update draws them again. */
static void hide(calm_progress *progress)
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
    hide(progress);    /* the new drawing may have fewer lines */
    draw_bars(progress);
}

static void plain_line(calm_progress_stage *stage)
{
    char figures[128];
    const bool complete = stage->total && stage->done >= stage->total;
    if (stage->complete || stage->idle || (!complete && stage->total == 0))
        return;
    if (!complete && stage->seconds - (stage->shown < 0 ? 0 : stage->shown) < PLAIN_SECONDS)
        return;
    stage->shown = stage->seconds;
    stage->complete = complete;
    print_figures(stage, figures, sizeof figures);
    fprintf(stderr, "calm: %-9s  %s\n", stage->name, figures);
}

/* Sets stage `index` to `done` of `total` and makes it the active stage, whose time runs.  If `done` decreases, the
 * stage restarts its clock. */
static void update(calm_progress *progress, size_t index, size_t done, size_t total)
{
    pthread_mutex_lock(&drawing);
    const double time = calm_seconds();
    calm_progress_stage *stage = &progress->stage[index];
    if (progress->active < progress->n) {
        calm_progress_stage *active = &progress->stage[progress->active];
        active->seconds += time - active->active_since;
    }
    progress->active = index;
    stage->active_since = time;
    stage->idle = done >= total && (stage->total == 0 || stage->idle);
    if (stage->total == 0 || done < stage->done) {
        stage->base = done;
        stage->seconds = 0;
        stage->shown = -1;
        stage->complete = false;
    }
    const bool finished = stage->done < total && done >= total;
    stage->done = done;
    stage->total = total;
    if (!progress->quiet && progress->terminal)
        draw(progress, finished);
    else if (!progress->quiet)
        plain_line(stage);
    pthread_mutex_unlock(&drawing);
}

void calm_progress_tick(void *user, size_t done, size_t total)
{
    const calm_progress *progress = user;
    /* The work began before the first tick, at 0, even if that tick is the only one. */
    if (progress->stage[0].total == 0)
        update(user, 0, 0, total);
    update(user, 0, done, total);
}

/* ---- events ---- */

static void announce(calm_progress *progress, calm_stage stage)
{
    static const char *const stages[CALM_N_STAGES][2] = {
        [CALM_STAGE_PULL] = {"pull", "MB"},
        [CALM_STAGE_WEIGH] = {"weigh", "blocks"},
        [CALM_STAGE_CALIBRATE] = {"calibrate", "blocks"},
        [CALM_STAGE_QUANTIZE] = {"quantize", "candidates"},
        [CALM_STAGE_SCORE] = {"score", "candidates"},
        [CALM_STAGE_PROBE] = {"probe", "windows"},
        [CALM_STAGE_CHOOSE] = {"choose", "guard windows"},
        [CALM_STAGE_LEARN] = {"learn", "steps"},
        [CALM_STAGE_ASSEMBLE] = {"assemble", "blocks"},
        [CALM_STAGE_EVALUATE] = {"evaluate", "windows"},
    };
    if (!progress->of_event[stage])
        progress->of_event[stage] = calm_progress_add(progress, stages[stage][0], stages[stage][1]) + 1;
}

void calm_progress_add_run(calm_progress *progress)
{
    for (calm_stage stage = CALM_STAGE_CALIBRATE; stage < CALM_N_STAGES; stage++)
        if (stage != CALM_STAGE_LEARN)    /* only runs that learn have it: its first event announces it */
            announce(progress, stage);
}

static void update_pull(calm_progress *progress, size_t index, size_t done, size_t total)
{
    if (!progress->bytes_per_unit) {
        progress->bytes_per_unit = total < 20000000 ? 1000 : 1000000;
        progress->stage[index].unit = progress->bytes_per_unit == 1000 ? "kB" : "MB";
    }
    const size_t all = (total + progress->bytes_per_unit - 1) / progress->bytes_per_unit;
    update(progress, index, done >= total ? all : done / progress->bytes_per_unit, all);
}

static void receive(void *user, calm_stage stage, size_t done, size_t total)
{
    calm_progress *progress = user;
    announce(progress, stage);
    const size_t index = progress->of_event[stage] - 1;
    const size_t known = progress->stage[index].total ? progress->stage[index].total : 1;
    if (stage == CALM_STAGE_PULL && total)
        update_pull(progress, index, done, total);
    else if (total)
        update(progress, index, done, total);
    else
        update(progress, index, known, known);    /* complete, whatever the stage counted */
}

/* The next event reports the figure's step and draws both. */
static void receive_figure(void *user, calm_stage stage, double value)
{
    calm_progress *progress = user;
    pthread_mutex_lock(&drawing);
    announce(progress, stage);
    calm_progress_stage *of = &progress->stage[progress->of_event[stage] - 1];
    of->has_loss = stage == CALM_STAGE_LEARN;
    of->loss = value;
    pthread_mutex_unlock(&drawing);
}

calm_events calm_progress_events(calm_progress *progress)
{
    return (calm_events){.fn = receive, .user = progress, .figure = receive_figure};
}

/* ---- begin and end ---- */

static void print_note(calm_log_level level, const char *line)
{
    calm_flags_print(stderr, level == CALM_LOG_WARNING ? "calm: warning: " : "calm: ", line);
}

/* A calm_log_fn: prints warnings and notes while there are no bars. */
static void note_alone(void *user, calm_log_level level, const char *line)
{
    (void)user;
    if (level != CALM_LOG_DEBUG)
        print_note(level, line);
}

void calm_progress_notes(calm_ctx *ctx, bool quiet)
{
    ctx->log = quiet ? NULL : note_alone;
    ctx->log_user = NULL;
}

/* A calm_log_fn: prints warnings and notes above the bars. */
static void note(void *user, calm_log_level level, const char *line)
{
    calm_progress *progress = user;
    if (progress->quiet || level == CALM_LOG_DEBUG)
        return;
    pthread_mutex_lock(&drawing);
    hide(progress);
    print_note(level, line);
    pthread_mutex_unlock(&drawing);
}

calm_events calm_progress_begin(calm_ctx *ctx, calm_progress *progress, bool quiet)
{
    memset(progress, 0, sizeof *progress);
    progress->quiet = quiet;
    const char *term = getenv("TERM");
    progress->terminal = isatty(STDERR_FILENO) == 1 && !(term && strcmp(term, "dumb") == 0);
    progress->active = CALM_PROGRESS_MAX;
    progress->log = ctx->log;
    progress->log_user = ctx->log_user;
    ctx->log = note;
    ctx->log_user = progress;
    calm_kernels_note(ctx);
    return calm_progress_events(progress);
}

calm_status calm_progress_end(calm_ctx *ctx, calm_progress *progress)
{
    for (size_t i = 0; i < progress->n; i++)
        if (progress->stage[i].total == 0)    /* announced, but without work */
            progress->stage[i].idle = true;
    hide(progress);    /* the report has the figures */
    ctx->log = progress->log;
    ctx->log_user = progress->log_user;
    return ctx->status;
}
