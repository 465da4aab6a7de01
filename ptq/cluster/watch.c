/* The watching thread: receives rows of other ranks, notices their failures and deaths, and handles the signal that a
 * launcher sends when a rank has died.
 *
 * mpirun sends SIGTERM to the remaining ranks and SIGKILL a second later.  In that second rank 0 must report what has
 * happened, so the signal handler only wakes the thread. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ptq/base/threads.h"
#include "ptq/cluster/cluster_impl.h"

#define TERM_SECONDS 0.5         /* rank 0 waits so long for a closing connection before it obeys the signal        */
#define TERM_SECONDS_OTHER 0.9   /* others wait longer, so that rank 0 does not see them as the cause               */
#define CAUSE_SECONDS 0.3        /* a rank that ends later than this after the signal has only obeyed it            */
#define STORE_SECONDS 0.6        /* time limit to get the store and put how the run ended                           */

static int term_pipe = -1;

static void on_term(int signal_number)
{
    const int error = errno;
    (void)signal_number;
    if (write(term_pipe, "t", 1) < 0)
        errno = error;
    errno = error;
}

/* ---- the end of the run ---- */

/* Claims the end of the run for this thread; false: the run's thread already ends it. */
static bool take_end(calm_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    const bool mine = !c->closing;
    c->closing = true;
    pthread_mutex_unlock(&c->lock);
    return mine;
}

/* Locks the store; false: the run's thread did not release it in time. */
static bool lock_store(calm_cluster *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(STORE_SECONDS * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(&c->store, &until) == 0;
}

/* Puts how the run ended, tells the other ranks, and ends this process.  Returns only if the run's thread does that. */
static void end_run(calm_ctx *ctx, calm_cluster *c, calm_status status, const char *sentence)
{
    if (!take_end(c))
        return;
    calm_ctx_clear_failure(ctx);
    if (c->transport.rank == 0 && c->receives && lock_store(c)) {
        if (c->receives)
            c->receiver.failed(ctx, c->receiver.user, sentence);
        pthread_mutex_unlock(&c->store);
    }
    calm_ctx_clear_failure(ctx);
    for (int r = 0; c->transport.rank == 0 && r < c->transport.ranks; r++)
        if (c->peers[r].fd >= 0 && calm_wire_send(ctx, c->peers[r].fd, CALM_FRAME_END, status, NULL, 0) != CALM_OK)
            calm_ctx_clear_failure(ctx);
    c->hooks.end(c->hooks.user, status, sentence);
}

/* Ends the run because a rank died; the message says what the rank worked on and what the user can do. */
static void end_for_death(calm_ctx *ctx, calm_cluster *c, int rank)
{
    const calm_peer *peer = &c->peers[rank];
    char sentence[CALM_MESSAGE_MAX], kept[CALM_MESSAGE_MAX / 2] = "";
    if (c->receives && c->receiver.store)
        snprintf(kept, sizeof kept, "; what is finished is in %.300s: the same command continues from there, on as "
                                    "many ranks as there are, or on one machine", c->receiver.store);
    else if (rank == 0)
        snprintf(kept, sizeof kept, "; what it put into the store stays: the same command continues from there");
    snprintf(sentence, sizeof sentence, "rank %d (process %ld on %s) ended while it worked on %s%s", rank, peer->pid,
             peer->host, peer->place[0] ? peer->place : "its start", kept);
    /* Several ranks see rank 0 die, but only rank 1 reports it. */
    if (c->transport.rank > 1)
        usleep(200000);
    end_run(ctx, c, CALM_EIO, c->transport.rank > 1 ? NULL : sentence);
}

/* ---- frames ---- */

/* Puts rows of another rank; a failure ends the run. */
static void take_rows(calm_ctx *ctx, calm_cluster *c, int rank, const char *bytes, size_t n)
{
    pthread_mutex_lock(&c->store);
    const calm_status status = c->receives ? c->receiver.rows(ctx, c->receiver.user, rank, bytes, n) : CALM_OK;
    pthread_mutex_unlock(&c->store);
    if (status != CALM_OK) {
        char sentence[CALM_MESSAGE_MAX];
        memcpy(sentence, ctx->message, sizeof sentence);
        end_run(ctx, c, status, sentence);
    }
}

static void take_failure(calm_ctx *ctx, calm_cluster *c, int rank, calm_status status, const char *said)
{
    char sentence[CALM_MESSAGE_MAX];
    snprintf(sentence, sizeof sentence, "rank %d (process %ld on %s): %.800s", rank, c->peers[rank].pid,
             c->peers[rank].host, said);
    end_run(ctx, c, status, sentence);
}

/* Handles the end of the run by rank 0. */
static void take_end_of_run(calm_ctx *ctx, calm_cluster *c, calm_status status)
{
    pthread_mutex_lock(&c->lock);
    const bool waits = c->n_done > 0 && !c->working;    /* the run's thread then ends by itself */
    c->ended = true;
    c->end_status = status;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (!waits)
        end_run(ctx, c, status, NULL);
}

/* Stores work or an answer for the run's thread, which takes it before the next one is sent. */
static void take_mail(calm_ctx *ctx, calm_cluster *c, int rank, const char *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy) {
        end_run(ctx, c, CALM_ENOMEM, "not enough memory for what another rank sent");
        return;
    }
    memcpy(copy, bytes, n);
    pthread_mutex_lock(&c->lock);
    free(c->peers[rank].mail);
    c->peers[rank].mail = copy;
    c->peers[rank].n_mail = n;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void take_frame(calm_ctx *ctx, calm_cluster *c, int rank, const calm_frame *frame, const char *bytes)
{
    calm_peer *peer = &c->peers[rank];
    switch (frame->kind) {
    case CALM_FRAME_PLACE:
        snprintf(peer->place, sizeof peer->place, "%.*s", CALM_PLACE_MAX - 1, bytes);
        break;
    case CALM_FRAME_ROWS:
        take_rows(ctx, c, rank, bytes, (size_t)frame->n);
        break;
    case CALM_FRAME_DONE:
        pthread_mutex_lock(&c->lock);
        snprintf(peer->summary, sizeof peer->summary, "%.*s", CALM_PLACE_MAX - 1, bytes);
        c->n_done++;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        break;
    case CALM_FRAME_FAILED:
        take_failure(ctx, c, rank, (calm_status)frame->status, bytes);
        break;
    case CALM_FRAME_WORK:
    case CALM_FRAME_ANSWER:
        take_mail(ctx, c, rank, bytes, (size_t)frame->n);
        break;
    case CALM_FRAME_END:
        take_end_of_run(ctx, c, (calm_status)frame->status);
        break;
    default:
        break;
    }
}

/* Handles one frame of a rank, or its death; `told`: SIGTERM told all ranks to end a while ago. */
static void serve(calm_ctx *ctx, calm_cluster *c, int rank, bool told)
{
    CALM_SCOPED_ARENA(arena);
    calm_peer *peer = &c->peers[rank];
    calm_frame frame;
    char *bytes;
    const calm_status status = calm_wire_receive(ctx, peer->fd, &arena, &frame, &bytes);
    if (status == CALM_OK) {
        take_frame(ctx, c, rank, &frame, bytes);
        return;
    }
    calm_ctx_clear_failure(ctx);
    pthread_mutex_lock(&c->lock);
    close(peer->fd);
    peer->fd = -1;
    const bool over = c->ended || c->closing || told;
    pthread_mutex_unlock(&c->lock);
    if (!over)
        end_for_death(ctx, c, rank);
}

/* ---- the loop ---- */

/* Ends the process by SIGTERM, as without the handler. */
static void obey_term(void)
{
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
}

/* Waits for input on the connections [ranks] and the pipe; `until` > 0: at most until then. */
static int wait_next(const calm_cluster *c, struct pollfd *polled, double until)
{
    for (int r = 0; r < c->transport.ranks; r++)
        polled[r] = (struct pollfd){.fd = c->peers[r].fd, .events = POLLIN};
    polled[c->transport.ranks] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
    const double left = until - calm_seconds();
    return poll(polled, (nfds_t)c->transport.ranks + 1, until <= 0 ? -1 : left > 0 ? (int)(left * 1000) + 1 : 0);
}

static void watch_loop(calm_ctx *ctx, calm_cluster *c, struct pollfd *polled)
{
    const double patience = c->transport.rank == 0 ? TERM_SECONDS : TERM_SECONDS_OTHER;
    double term = 0;    /* time of the signal; 0: none came */
    for (char what = 0; what != 'c';) {
        if (term > 0 && calm_seconds() >= term + patience)
            obey_term();
        if (wait_next(c, polled, term > 0 ? term + patience : 0) < 0)
            continue;
        for (int r = 0; r < c->transport.ranks; r++)
            if (polled[r].revents)
                serve(ctx, c, r, term > 0 && calm_seconds() - term > CAUSE_SECONDS);
        if (polled[c->transport.ranks].revents && read(c->wake[0], &what, 1) == 1 && what == 't' && term <= 0)
            term = calm_seconds();
    }
}

static void *watch(void *user)
{
    calm_cluster *c = user;
    CALM_SCOPED_ARENA(out);
    CALM_SCOPED_ARENA(scratch);
    calm_ctx ctx;
    calm_ctx_init(&ctx, &out, &scratch);
    struct pollfd *polled = calloc((size_t)c->transport.ranks + 1, sizeof *polled);
    if (polled)
        watch_loop(&ctx, c, polled);
    free(polled);
    return NULL;
}

calm_status calm_watch_start(calm_ctx *ctx, calm_cluster *c)
{
    struct sigaction action = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    if (pipe(c->wake) != 0)
        return calm_fail_errno(ctx, errno, "ranks: cannot make a pipe");
    term_pipe = c->wake[1];
    const int error = pthread_create(&c->watcher, NULL, watch, c);
    if (error)
        return calm_fail_errno(ctx, error, "ranks: cannot start a thread");
    c->watching = true;
    sigaction(SIGTERM, &action, NULL);
    return CALM_OK;
}

void calm_watch_stop(calm_cluster *c)
{
    if (c->watching) {
        /* The launcher may send the signal because other ranks have ended; this process ends regularly, too. */
        signal(SIGTERM, SIG_IGN);
        if (write(c->wake[1], "c", 1) == 1)
            pthread_join(c->watcher, NULL);
        c->watching = false;
    }
    for (int i = 0; i < 2; i++)
        if (c->wake[i] >= 0)
            close(c->wake[i]);
    c->wake[0] = c->wake[1] = -1;
}
