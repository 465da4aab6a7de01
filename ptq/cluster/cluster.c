/* Starting and ending the ranks of a run, and what they do together. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/threads.h"
#include "ptq/cluster/cluster_impl.h"
#include "ptq/cluster/launch.h"

#define CONNECT_SECONDS 60.0
#define HELLO_SECONDS 5.0      /* a connection that says nothing for so long is a stranger's */
#define PROBE_SECONDS 5.0      /* a network file system shows a new file after a while */
#define TOLD_SECONDS 10        /* within this time rank 0 ends a rank that reported a failure */

int calm_cluster_rank(const calm_cluster *cluster)
{
    return cluster ? cluster->transport.rank : 0;
}

int calm_cluster_ranks(const calm_cluster *cluster)
{
    return cluster ? cluster->transport.ranks : 1;
}

const calm_transport *calm_cluster_transport(const calm_cluster *cluster)
{
    return &cluster->transport;
}

int calm_cluster_on_node(const calm_cluster *cluster)
{
    return cluster ? cluster->on_node : 1;
}

void calm_cluster_note_cores(calm_ctx *ctx, const calm_cluster *cluster)
{
    if (cluster && cluster->seats)
        calm_seat_judge(ctx, cluster->seats, (size_t)cluster->transport.ranks);
}

/* ---- agreement of all ranks ---- */

/* The status of one rank. */
typedef struct verdict {
    int status;
    char message[CALM_MESSAGE_MAX];
} verdict;

/* On rank 0, sets all[0] to its own failure, or else to that of the lowest rank that failed, which it names. */
static void judge(const calm_cluster *c, verdict *all)
{
    for (int r = 1; r < c->transport.ranks && all[0].status == CALM_OK; r++)
        if (all[r].status != CALM_OK) {
            all[0].status = all[r].status;
            snprintf(all[0].message, sizeof all[0].message, "rank %d (process %ld on %s): %.800s", r, c->peers[r].pid,
                     c->peers[r].host, all[r].message);
        }
}

calm_status calm_cluster_agree_status(calm_ctx *ctx, calm_cluster *c)
{
    verdict own = {.status = ctx->status}, *all = NULL;
    if (!c)
        return ctx->status;
    const calm_transport *t = &c->transport;
    memcpy(own.message, ctx->message, sizeof own.message);
    calm_ctx_clear_failure(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all, (size_t)t->ranks));
    CALM_TRY(t->gather(ctx, t->state, &own, sizeof own, all));
    if (t->rank == 0) {
        judge(c, all);
        own = all[0];
    }
    CALM_TRY(t->broadcast(ctx, t->state, &own, sizeof own));
    c->agreed = own.status != CALM_OK;
    return c->agreed ? calm_fail(ctx, (calm_status)own.status, "%s", own.message) : CALM_OK;
}

calm_status calm_cluster_agree(calm_ctx *ctx, calm_cluster *cluster, const calm_cluster_fact *facts, size_t n)
{
    char (*own)[CALM_CLUSTER_FACT], (*all)[CALM_CLUSTER_FACT];
    if (!cluster)
        return CALM_OK;
    const calm_transport *t = &cluster->transport;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, own, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all, n * (size_t)t->ranks));
    for (size_t i = 0; i < n; i++)
        snprintf(own[i], sizeof own[i], "%s", facts[i].value);
    CALM_TRY(t->gather(ctx, t->state, own, n * sizeof *own, all));
    for (int r = 1; t->rank == 0 && r < t->ranks; r++)
        for (size_t i = 0; i < n && ctx->status == CALM_OK; i++)
            if (strcmp(all[(size_t)r * n + i], own[i]) != 0)
                calm_fail(ctx, CALM_EUNSUPPORTED,
                          "rank %d (process %ld on %s) and rank 0 (on %s) differ in the %s: %.64s, %.64s; the bytes "
                          "would depend on which rank computes what",
                          r, cluster->peers[r].pid, cluster->peers[r].host, cluster->own_host, facts[i].name,
                          all[(size_t)r * n + i], own[i]);
    return calm_cluster_agree_status(ctx, cluster);
}

calm_status calm_cluster_share(calm_ctx *ctx, calm_cluster *cluster, void *bytes, size_t *n)
{
    void **at = bytes;
    if (!cluster)
        return CALM_OK;
    const calm_transport *t = &cluster->transport;
    CALM_TRY(t->broadcast(ctx, t->state, n, sizeof *n));
    if (t->rank != 0)
        CALM_TRY(calm_alloc_raw(ctx, ctx->out, at, *n + 1, 1, "what rank 0 shares"));
    return t->broadcast(ctx, t->state, *at, *n);
}

/* ---- the shared folder ---- */

/* Returns the path of a rank's probe file, in ctx->scratch. */
static calm_status probe_path(calm_ctx *ctx, const calm_cluster *c, const char *folder, int rank, char **out)
{
    return calm_strf(ctx, ctx->scratch, out, "%s/.calm-probe-%.16s-%d", folder, c->token, rank);
}

static calm_status write_probe(calm_ctx *ctx, const calm_cluster *c, const char *folder)
{
    char *path;
    CALM_TRY(probe_path(ctx, c, folder, c->transport.rank, &path));
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return calm_fail_errno(ctx, errno, "%s: cannot write there", folder);
    close(fd);
    return CALM_OK;
}

/* Does this rank see the probe file of `rank`?  Waits, because a network file system shows new files late. */
static bool sees_probe(calm_ctx *ctx, const calm_cluster *c, const char *folder, int rank)
{
    char *path;
    const double until = calm_seconds() + PROBE_SECONDS;
    if (probe_path(ctx, c, folder, rank, &path) != CALM_OK)
        return false;
    bool seen = calm_path_exists(path);
    while (!seen && calm_seconds() < until) {
        usleep(100000);
        seen = calm_path_exists(path);
    }
    return seen;
}

static calm_status not_shared(calm_ctx *ctx, const char *folder)
{
    return calm_fail(ctx, CALM_EIO, "%s is not the folder that rank 0 has under this name: the store's folder must be "
                                    "shared by all ranks", folder);
}

calm_status calm_cluster_probe(calm_ctx *ctx, calm_cluster *cluster, const char *folder)
{
    char *path;
    if (!cluster)
        return CALM_OK;
    const int rank = cluster->transport.rank, ranks = cluster->transport.ranks;
    CALM_SCOPED_SCRATCH(ctx);
    if (rank == 0 && calm_make_directories(ctx, folder) == CALM_OK)
        write_probe(ctx, cluster, folder);
    CALM_TRY(calm_cluster_agree_status(ctx, cluster));
    if (rank != 0 && !sees_probe(ctx, cluster, folder, 0))
        not_shared(ctx, folder);
    else if (rank != 0)
        write_probe(ctx, cluster, folder);
    calm_status status = calm_cluster_agree_status(ctx, cluster);
    for (int r = 1; rank == 0 && r < ranks && status == CALM_OK && ctx->status == CALM_OK; r++)
        if (!sees_probe(ctx, cluster, folder, r))
            not_shared(ctx, folder);
    if (status == CALM_OK)
        status = calm_cluster_agree_status(ctx, cluster);
    /* Remove the rank's own file in any case. */
    if (probe_path(ctx, cluster, folder, rank, &path) == CALM_OK)
        unlink(path);
    return ctx->status;
}

/* ---- messages ---- */

void calm_cluster_place(calm_cluster *cluster, const char *format, ...)
{
    char place[CALM_PLACE_MAX];
    CALM_SCOPED_ARENA(scratch);
    calm_ctx ctx;
    va_list args;
    if (!cluster)
        return;
    calm_ctx_init(&ctx, &scratch, &scratch);
    va_start(args, format);
    vsnprintf(place, sizeof place, format, args);
    va_end(args);
    /* The watching thread handles ranks that have died. */
    for (int r = 0; r < cluster->transport.ranks; r++)
        if (cluster->peers[r].fd >= 0)
            calm_wire_send(&ctx, cluster->peers[r].fd, CALM_FRAME_PLACE, CALM_OK, place, strlen(place) + 1);
}

void calm_cluster_receive(calm_cluster *cluster, const calm_cluster_receiver *receiver)
{
    if (!cluster || cluster->transport.rank != 0)
        return;
    if (receiver) {
        pthread_mutex_lock(&cluster->store);    /* held by the run's thread, except while it lends the store */
        cluster->receiver = *receiver;
    }
    const bool had = cluster->receives;
    cluster->receives = receiver != NULL;
    if (!receiver && had)
        pthread_mutex_unlock(&cluster->store);
}

calm_status calm_cluster_tell(calm_ctx *ctx, calm_cluster *cluster, const void *bytes, size_t n)
{
    return calm_wire_send(ctx, cluster->peers[0].fd, CALM_FRAME_ROWS, CALM_OK, bytes, n);
}

calm_lent calm_lend_begin(calm_cluster *cluster)
{
    if (cluster && cluster->receives && cluster->lent++ == 0)
        pthread_mutex_unlock(&cluster->store);
    return (calm_lent){cluster};
}

void calm_lend_end(calm_lent *lent)
{
    calm_cluster *cluster = lent->cluster;
    if (cluster && cluster->receives && --cluster->lent == 0)
        pthread_mutex_lock(&cluster->store);
}

const char *calm_cluster_summary(const calm_cluster *cluster, int rank, const char **host)
{
    *host = rank == 0 ? cluster->own_host : cluster->peers[rank].host;
    return cluster->peers[rank].summary;
}

calm_status calm_cluster_done(calm_ctx *ctx, calm_cluster *cluster, const char *summary)
{
    if (!cluster)
        return CALM_OK;
    if (cluster->transport.rank != 0) {
        pthread_mutex_lock(&cluster->lock);
        cluster->n_done = 1;
        pthread_mutex_unlock(&cluster->lock);
        return calm_wire_send(ctx, cluster->peers[0].fd, CALM_FRAME_DONE, CALM_OK, summary, strlen(summary) + 1);
    }
    snprintf(cluster->peers[0].summary, sizeof cluster->peers[0].summary, "%s", summary);
    CALM_SCOPED_LEND(cluster);
    pthread_mutex_lock(&cluster->lock);
    while (cluster->n_done < cluster->transport.ranks - 1)
        pthread_cond_wait(&cluster->changed, &cluster->lock);
    pthread_mutex_unlock(&cluster->lock);
    return CALM_OK;
}

/* ---- work ---- */

/* Waits for mail of a rank, which the caller frees; NULL: the run has ended. */
static char *wait_mail(calm_cluster *c, int rank, size_t *n)
{
    calm_peer *peer = &c->peers[rank];
    pthread_mutex_lock(&c->lock);
    while (!peer->mail && !c->ended)
        pthread_cond_wait(&c->changed, &c->lock);
    char *mail = peer->mail;
    *n = peer->n_mail;
    peer->mail = NULL;
    c->working = mail != NULL;
    pthread_mutex_unlock(&c->lock);
    return mail;
}

/* Does the work of one piece of mail and sends the answer, followed by the seconds that the work took. */
static calm_status do_work(calm_ctx *ctx, const calm_cluster *c, const char *mail, size_t n, calm_cluster_work_fn *work,
                           void *user)
{
    CALM_SCOPED_TEXT(answer);
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    const double begun = calm_seconds();
    CALM_TRY(work(ctx, user, mail, n, &answer));
    const double took = calm_seconds() - begun;
    calm_text_append(&answer, (const char *)&took, sizeof took);
    CALM_TRY(calm_text_check(ctx, &answer));
    return calm_wire_send(ctx, c->peers[0].fd, CALM_FRAME_ANSWER, CALM_OK, answer.data, answer.length);
}

calm_status calm_cluster_serve(calm_ctx *ctx, calm_cluster *cluster, calm_cluster_work_fn *work, void *user)
{
    char *mail;
    size_t n;
    while ((mail = wait_mail(cluster, 0, &n))) {
        const calm_status status = do_work(ctx, cluster, mail, n, work, user);
        free(mail);
        CALM_TRY(status);
        pthread_mutex_lock(&cluster->lock);
        cluster->working = false;
        pthread_mutex_unlock(&cluster->lock);
    }
    cluster->agreed = true;    /* the status is rank 0's */
    return cluster->end_status == CALM_OK ? CALM_OK : calm_fail(ctx, cluster->end_status, "rank 0 failed");
}

calm_status calm_cluster_ask(calm_ctx *ctx, calm_cluster *cluster, int rank, const void *bytes, size_t n)
{
    cluster->asked = true;
    return calm_wire_send(ctx, cluster->peers[rank].fd, CALM_FRAME_WORK, CALM_OK, bytes, n);
}

double calm_cluster_worked(const calm_cluster *cluster, int rank)
{
    return cluster->peers[rank].worked;
}

double calm_cluster_waited(const calm_cluster *cluster)
{
    return cluster->waited;
}

bool calm_cluster_asked(const calm_cluster *cluster)
{
    return cluster->asked;
}

calm_status calm_cluster_answer(calm_ctx *ctx, calm_cluster *cluster, int rank, char **bytes, size_t *n)
{
    CALM_SCOPED_LEND(cluster);
    const double begun = calm_seconds();
    double took;
    /* If the rank dies or fails, the watching thread ends the run. */
    char *mail = wait_mail(cluster, rank, n);
    cluster->waited += calm_seconds() - begun;
    calm_status status = CALM_OK;
    if (*n < sizeof took)
        status = calm_fail(ctx, CALM_EFORMAT, "the answer of rank %d ends too early", rank);
    else
        status = calm_alloc_raw(ctx, ctx->scratch, bytes, *n, 1, "the answer of another rank");
    if (status == CALM_OK) {
        *n -= sizeof took;
        memcpy(*bytes, mail, *n);
        memcpy(&took, mail + *n, sizeof took);
        cluster->peers[rank].worked += took;
    }
    free(mail);
    return status;
}

/* ---- start ---- */

/* Address and token of rank 0. */
typedef struct meeting {
    char host[CALM_HOST_MAX], token[CALM_HOST_MAX];
    int port;
} meeting;

/* The first message of a rank to rank 0. */
typedef struct hello {
    char token[CALM_HOST_MAX], host[CALM_HOST_MAX];
    long pid;
    int rank;
} hello;

/* Makes a token of 32 random bytes in hexadecimal digits. */
static calm_status new_token(calm_ctx *ctx, char token[CALM_HOST_MAX])
{
    unsigned char bytes[32];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return calm_fail_errno(ctx, errno, "ranks: no random bytes");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return CALM_OK;
}

/* On rank 0, accepts one connection; *taken if it is a rank's.  Closes all others. */
static calm_status take_one(calm_ctx *ctx, calm_cluster *c, int listening, double until, bool *taken)
{
    CALM_SCOPED_ARENA(arena);
    calm_frame frame;
    char *bytes;
    int fd;
    *taken = false;
    CALM_TRY(calm_wire_accept(ctx, listening, until - calm_seconds(), &fd));
    const hello *said = NULL;
    calm_wire_set_patience(fd, HELLO_SECONDS);
    if (calm_wire_receive(ctx, fd, &arena, &frame, &bytes) == CALM_OK && frame.kind == CALM_FRAME_HELLO &&
        frame.n == sizeof *said)
        said = (const void *)bytes;
    calm_ctx_clear_failure(ctx);
    if (said && memcmp(said->token, c->token, sizeof c->token) == 0 && said->rank > 0 &&
        said->rank < c->transport.ranks && c->peers[said->rank].fd < 0) {
        calm_peer *peer = &c->peers[said->rank];
        *peer = (calm_peer){.fd = fd, .pid = said->pid};
        calm_wire_set_patience(fd, 0);
        snprintf(peer->host, sizeof peer->host, "%.*s", CALM_HOST_MAX - 1, said->host);
        *taken = true;
    } else {
        close(fd);
    }
    return CALM_OK;
}

static calm_status take_all(calm_ctx *ctx, calm_cluster *c, int listening)
{
    const double until = calm_seconds() + CONNECT_SECONDS;
    for (int left = c->transport.ranks - 1; left > 0;) {
        bool taken;
        CALM_TRY(take_one(ctx, c, listening, until, &taken));
        left -= taken;
    }
    return CALM_OK;
}

static calm_status connect_to_rank_0(calm_ctx *ctx, calm_cluster *c, const meeting *where)
{
    hello said = {.pid = (long)getpid(), .rank = c->transport.rank};
    memcpy(said.token, c->token, sizeof said.token);
    memcpy(said.host, c->own_host, sizeof said.host);
    CALM_TRY(calm_wire_connect(ctx, where->host, where->port, &c->peers[0].fd));
    snprintf(c->peers[0].host, sizeof c->peers[0].host, "%s", where->host);
    return calm_wire_send(ctx, c->peers[0].fd, CALM_FRAME_HELLO, CALM_OK, &said, sizeof said);
}

/* Makes the control connections: rank 0 broadcasts its address, the others connect. */
static calm_status meet(calm_ctx *ctx, calm_cluster *c)
{
    const calm_transport *t = &c->transport;
    meeting where = {.port = 0};
    long pid = (long)getpid();
    int listening = -1;
    memcpy(where.host, c->own_host, sizeof where.host);
    if (t->rank == 0 && new_token(ctx, where.token) == CALM_OK)
        calm_wire_listen(ctx, &listening, &where.port);
    /* Port 0 tells the others that rank 0 cannot listen. */
    calm_status status = t->broadcast(ctx, t->state, &where, sizeof where);
    if (status == CALM_OK)
        status = t->broadcast(ctx, t->state, &pid, sizeof pid);
    memcpy(c->token, where.token, sizeof c->token);
    if (t->rank != 0)
        c->peers[0].pid = pid;
    if (status == CALM_OK && !where.port)
        status = calm_fail(ctx, CALM_EIO, "rank 0 cannot listen for the other ranks");
    if (status == CALM_OK)
        status = t->rank == 0 ? take_all(ctx, c, listening) : connect_to_rank_0(ctx, c, &where);
    if (listening >= 0)
        close(listening);
    return status;
}

static void release(calm_cluster *c)
{
    for (int r = 0; c->peers && r < c->transport.ranks; r++)
        if (c->peers[r].fd >= 0)
            close(c->peers[r].fd);
    for (int r = 0; c->peers && r < c->transport.ranks; r++)
        free(c->peers[r].mail);
    pthread_mutex_destroy(&c->store);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c->peers);
    free(c->seats);
    free(c);
}

static calm_cluster *new_cluster(const calm_transport *transport, const calm_cluster_hooks *hooks)
{
    calm_cluster *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->transport = *transport;
    c->hooks = *hooks;
    c->wake[0] = c->wake[1] = -1;
    pthread_mutex_init(&c->store, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    gethostname(c->own_host, sizeof c->own_host - 1);
    c->peers = calloc((size_t)transport->ranks, sizeof *c->peers);
    for (int r = 0; c->peers && r < transport->ranks; r++)
        c->peers[r].fd = -1;
    if (!c->peers) {
        release(c);
        return NULL;
    }
    return c;
}

/* Begins the transport; its number of ranks must be the launcher's. */
static calm_status begin_transport(calm_ctx *ctx, calm_transport *transport)
{
    const calm_launch launch = calm_launch_read();
    calm_ctx quiet = *ctx;    /* an earlier failure is reported later */
    calm_ctx_clear_failure(&quiet);
    calm_status status = calm_transport_begin(&quiet, transport);
    if (status == CALM_OK && transport->ranks != launch.ranks)
        status = calm_fail(&quiet, CALM_EUNSUPPORTED,
                           "%s started %d ranks, but MPI sees %d: start calm with Open MPI's mpirun, or with srun "
                           "--mpi=pmix", launch.by ? launch.by : "the launcher", launch.ranks, transport->ranks);
    return status == CALM_OK ? CALM_OK : calm_fail(ctx, status, "%s", quiet.message);
}

/* Sends the seats of all ranks to rank 0, and to each rank the number of ranks on its machine. */
static calm_status find_seats(calm_ctx *ctx, calm_cluster *c)
{
    const calm_transport *t = &c->transport;
    const calm_seat here = calm_seat_here(c->own_host, ctx->n_threads);
    int *beside;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, beside, (size_t)t->ranks));
    if (t->rank == 0 && !(c->seats = calloc((size_t)t->ranks, sizeof *c->seats)))
        calm_fail(ctx, CALM_ENOMEM, "ranks: out of memory");
    CALM_TRY(calm_cluster_agree_status(ctx, c));
    CALM_TRY(t->gather(ctx, t->state, &here, sizeof here, c->seats));
    for (int r = 0; c->seats && r < t->ranks; r++)
        beside[r] = calm_seat_neighbours(c->seats, (size_t)t->ranks, (size_t)r);
    CALM_TRY(t->broadcast(ctx, t->state, beside, (size_t)t->ranks * sizeof *beside));
    c->on_node = beside[t->rank];
    return CALM_OK;
}

calm_status calm_cluster_start(calm_ctx *ctx, const calm_cluster_hooks *hooks, calm_cluster **out)
{
    calm_transport transport;
    *out = NULL;
    if (calm_launch_read().ranks < 2)
        return ctx->status;
    CALM_TRY(begin_transport(ctx, &transport));
    verdict before = {.status = ctx->status};
    memcpy(before.message, ctx->message, sizeof before.message);
    calm_ctx_clear_failure(ctx);
    calm_cluster *c = new_cluster(&transport, hooks);
    if (!c)
        return calm_fail(ctx, CALM_ENOMEM, "ranks: out of memory");
    *out = c;
    CALM_TRY(meet(ctx, c));
    if (before.status != CALM_OK)
        calm_fail(ctx, (calm_status)before.status, "%s", before.message);
    CALM_TRY(calm_cluster_agree_status(ctx, c));
    CALM_TRY(find_seats(ctx, c));
    return calm_watch_start(ctx, c);
}

/* ---- end ---- */

/* Reports a failure of this rank alone to rank 0, which ends the run; this rank's watching thread then ends the
 * process. */
static void report_failure(calm_ctx *ctx, calm_cluster *c)
{
    CALM_SCOPED_ARENA(scratch);
    calm_ctx own;
    calm_ctx_init(&own, &scratch, &scratch);
    calm_wire_send(&own, c->peers[0].fd, CALM_FRAME_FAILED, ctx->status, ctx->message, strlen(ctx->message) + 1);
    sleep(TOLD_SECONDS);
}

/* On rank 0, tells the others to end with its status. */
static void end_others(const calm_ctx *ctx, calm_cluster *c)
{
    CALM_SCOPED_ARENA(scratch);
    calm_ctx own;
    calm_ctx_init(&own, &scratch, &scratch);
    for (int r = 1; r < c->transport.ranks; r++)
        if (c->peers[r].fd >= 0)
            calm_wire_send(&own, c->peers[r].fd, CALM_FRAME_END, ctx->status, NULL, 0);
}

void calm_cluster_end(calm_ctx *ctx, calm_cluster **cluster)
{
    calm_cluster *c = *cluster;
    if (!c)
        return;
    const bool alone = c->watching && ctx->status != CALM_OK && !c->agreed;
    if (alone && c->transport.rank != 0)
        report_failure(ctx, c);
    pthread_mutex_lock(&c->lock);
    const bool late = c->closing && c->watching;
    const bool all_wait = c->n_done == c->transport.ranks - 1;
    c->closing = true;
    pthread_mutex_unlock(&c->lock);
    if (late)    /* the watching thread ends this process */
        sleep(TOLD_SECONDS);
    if (c->watching && c->transport.rank == 0 && !c->agreed)
        end_others(ctx, c);
    calm_watch_stop(c);
    /* MPI ends only together; ranks in the middle of their work would not join. */
    if (c->agreed || ctx->status == CALM_OK || all_wait)
        c->transport.finish(c->transport.state);
    release(c);
    *cluster = NULL;
}
