/* Code that every fuzz target uses, with the driver and with libFuzzer: a context, and files for parsers that read
 * paths. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/fuzz/fuzz.h"

static calm_arena arenas[2];
static calm_ctx context;
static char work_folder[64];

calm_ctx *fuzz_context(void)
{
    calm_arena_clear(&arenas[0]);
    calm_arena_clear(&arenas[1]);
    calm_ctx_init(&context, &arenas[0], &arenas[1]);
    return &context;
}

/* At exit: removes the folder, and frees memory of the last context, for the leak check. */
static void remove_files(void)
{
    calm_remove_tree(fuzz_context(), work_folder);
    fuzz_context();
}

/* In memory where the machine has such a folder, since a target may write several files per input. */
void fuzz_make_folder(void)
{
    if (work_folder[0])
        return;
    snprintf(work_folder, sizeof work_folder, "%s/calm-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(work_folder)) {
        perror(work_folder);
        exit(2);
    }
    atexit(remove_files);
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t size)
{
    static char path[sizeof work_folder + 256];
    fuzz_make_folder();
    snprintf(path, sizeof path, "%s/%s", work_folder, name);
    FILE *stream = fopen(path, "wb");
    if (!stream || fwrite(data, 1, size, stream) != size || fclose(stream) != 0) {
        perror(path);
        exit(2);
    }
    return path;
}
