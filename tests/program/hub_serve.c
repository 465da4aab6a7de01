/* hub_serve: runs a command while a small hub serves a directory as a repository, and records the requests.
 *
 *   hub_serve [--cut NAME] [--flip NAME] [--token TOKEN] DIRECTORY ORG/NAME -- COMMAND [WORD...]
 *
 * Every file of DIRECTORY is in the repository, *.safetensors and tokenizer.json as large ones.  The command has
 * HF_ENDPOINT in its environment; its exit status becomes that of hub_serve.  `--cut NAME` breaks the first answer with
 * that file off in the middle, `--flip NAME` changes a byte of it, `--token` refuses requests without the token.
 * Afterwards hub_requests.txt in the working folder has one line per request: host, method, whether it had a token,
 * range, path. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/hub_server.h"

static calm_status add_directory(calm_ctx *ctx, hub_server *hub, const char *dir)
{
    struct dirent **entries;
    const int n = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *path, *name, *bytes;
        size_t n_bytes;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s", entries[i]->d_name));
        CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, name));
        free(entries[i]);
        if (calm_is_directory(path))
            continue;
        CALM_TRY(calm_read_file(ctx, path, (size_t)1 << 30, &bytes, &n_bytes));
        const char *end = strrchr(name, '.');
        hub_add(hub, name, bytes, n_bytes, (end && strcmp(end, ".safetensors") == 0) ||
                                               strcmp(name, "tokenizer.json") == 0);
    }
    if (n >= 0)
        free(entries);
    return n > 2 ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND, "%s: no files", dir);
}

static hub_file *find(hub_server *hub, const char *name)
{
    for (size_t i = 0; i < hub->n_files; i++)
        if (strcmp(hub->files[i].name, name) == 0)
            return &hub->files[i];
    fprintf(stderr, "hub_serve: no file %s\n", name);
    exit(2);
}

static int run(const hub_server *hub, char **command)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        setenv("HF_ENDPOINT", hub->endpoint, 1);
        execvp(command[0], command);
        perror(command[0]);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

static void write_requests(const hub_server *hub)
{
    FILE *stream = fopen("hub_requests.txt", "w");
    for (size_t i = 0; stream && i < hub->n_requests; i++) {
        const hub_request *r = &hub->requests[i];
        fprintf(stream, "%s %s %s %s %.*s\n", r->storage ? "storage" : "hub", r->method,
                r->authorization[0] ? "token" : "-", r->range[0] ? r->range : "-", (int)strcspn(r->path, "?"), r->path);
    }
    if (stream)
        fclose(stream);
}

int main(int argc, char **argv)
{
    static hub_server hub;
    const char *cut = NULL, *flip = NULL;
    calm_arena out, scratch;
    calm_ctx ctx;
    int a = 1;
    for (; a + 1 < argc && strncmp(argv[a], "--", 2) == 0 && argv[a][2]; a += 2)
        *(strcmp(argv[a], "--cut") == 0 ? &cut : strcmp(argv[a], "--flip") == 0 ? &flip : &hub.token) = argv[a + 1];
    if (argc < a + 4 || strcmp(argv[a + 2], "--") != 0) {
        fprintf(stderr, "usage: hub_serve [--cut NAME] [--flip NAME] [--token TOKEN] DIRECTORY ORG/NAME -- COMMAND\n");
        return 2;
    }
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    hub.repo = argv[a + 1];
    int status = 2;
    if (add_directory(&ctx, &hub, argv[a]) == CALM_OK) {
        if (cut) {
            hub_file *file = find(&hub, cut);
            file->n_cuts = 1;
            file->cut_at = file->n_bytes / 2;
        }
        if (flip)
            find(&hub, flip)->flipped = true;
        hub_start(&hub);
        status = run(&hub, argv + a + 3);
        hub_stop(&hub);
        write_requests(&hub);
    } else {
        fprintf(stderr, "hub_serve: %s\n", ctx.message);
    }
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return status;
}
