/* Prints a sentence when a run is interrupted.  Nothing else is necessary: rows and blobs are in the store as soon as
 * calm makes them, and the next run removes the unfinished output. */
#include "cli/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char sentence[1024], place[960];
static const char nothing[] = "\ncalm: interrupted; nothing was done yet\n";
static atomic_flag said = ATOMIC_FLAG_INIT;

static void say(int signal_number)
{
    /* A second signal may arrive in another thread before the first one ends the process. */
    if (atomic_flag_test_and_set(&said))
        return;
    /* access and write are safe in a signal handler. */
    const char *text = access(place, F_OK) == 0 ? sentence : nothing;
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void handle(int signal_number)
{
    struct sigaction before, action = {.sa_handler = say};
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(signal_number, &action, NULL);
}

void calm_interrupt_resumes(const char *store)
{
    snprintf(place, sizeof place, "%s", store);
    snprintf(sentence, sizeof sentence,
             "\ncalm: interrupted; what is done is in %.900s: the same command continues from there\n", store);
    handle(SIGINT);
    handle(SIGTERM);
}
