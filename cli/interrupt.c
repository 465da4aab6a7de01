/* Ends an interrupted run with a sentence and the mark in its store.  Nothing else is necessary: rows and blobs are in
 * the store as soon as calm makes them, and the next run removes the unfinished output. */
#include "cli/interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"

static char sentence[1024], place[960];
static const char nothing[] = "\ncalm: interrupted; nothing was done yet\n";
static atomic_flag said = ATOMIC_FLAG_INIT;
static int wake[2] = {-1, -1};    /* the handler writes the signal's number, the thread reads it */

static void die(int signal_number)
{
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Waits for the handler; a handler itself may neither allocate memory nor use SQLite. */
static void *mark_and_die(void *unused)
{
    int signal_number;
    if (read(wake[0], &signal_number, sizeof signal_number) == sizeof signal_number) {
        calm_store_interrupted();
        die(signal_number);
    }
    return unused;
}

static void say(int signal_number)
{
    /* A second signal may arrive before the first one ends the process. */
    if (atomic_flag_test_and_set(&said))
        return;
    /* access and write are safe in a signal handler. */
    const bool begun = access(place, F_OK) == 0;
    const char *text = begun ? sentence : nothing;
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
    if (!begun || write(wake[1], &signal_number, sizeof signal_number) != sizeof signal_number)
        die(signal_number);
}

/* Starts the thread; without it the handler ends the process, and the next writer of the store marks the run. */
static void start_thread(void)
{
    pthread_t thread;
    if (pipe2(wake, O_CLOEXEC) == 0 && pthread_create(&thread, NULL, mark_and_die, NULL) == 0)
        pthread_detach(thread);
    else
        wake[1] = -1;
}

static void handle(int signal_number)
{
    struct sigaction before, action = {.sa_handler = say, .sa_flags = SA_RESTART};
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(signal_number, &action, NULL);
}

void calm_interrupt_resumes(const char *store)
{
    snprintf(place, sizeof place, "%s", store);
    snprintf(sentence, sizeof sentence,
             "\ncalm: interrupted; what is done is in %.900s: the same command continues from there\n", store);
    start_thread();
    handle(SIGINT);
    handle(SIGTERM);
}
