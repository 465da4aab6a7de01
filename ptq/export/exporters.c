/* The registry of exporters, and the temporary directory and companions of all formats. */
#include "ptq/export/export.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/output.h"
#include "ptq/base/scope.h"
#include "ptq/export/safetensors_export.h"

#define MOST_NAMES 100    /* largest number of temporary directories of one process id */

#define CALM_EXPORT(name) extern const calm_exporter calm_export_##name;
#include "ptq/export/export.def"
#undef CALM_EXPORT

const calm_exporter *const *calm_exporters(size_t *n)
{
    static const calm_exporter *const all[] = {
#define CALM_EXPORT(name) &calm_export_##name,
#include "ptq/export/export.def"
#undef CALM_EXPORT
    };
    *n = sizeof all / sizeof *all;
    return all;
}

#define NAME_MAX_LENGTH 64

/* Returns the name as users write it: "compressed-tensors". */
static const char *spoken(const char *name, char text[NAME_MAX_LENGTH])
{
    snprintf(text, NAME_MAX_LENGTH, "%s", name);
    for (char *at = text; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return text;
}

calm_status calm_exporter_find(calm_ctx *ctx, const char *name, const calm_exporter **out)
{
    enum { MOST = 32 };
    char wanted[NAME_MAX_LENGTH], names[MOST][NAME_MAX_LENGTH];
    const char *all[MOST];
    size_t n;
    const calm_exporter *const *exporters = calm_exporters(&n);
    CALM_SCOPED_TEXT(list);
    spoken(name, wanted);
    for (size_t i = 0; i < n && i < MOST; i++) {
        all[i] = spoken(exporters[i]->name, names[i]);
        if (strlen(name) < NAME_MAX_LENGTH && strcmp(all[i], wanted) == 0) {
            *out = exporters[i];
            return CALM_OK;
        }
    }
    for (size_t i = 0; i < n && i < MOST; i++)
        calm_text_printf(&list, "%s%s", i ? ", " : "", all[i]);
    const char *near = calm_nearest(wanted, all, n < MOST ? n : MOST);
    for (size_t i = 0; i < n && i < MOST && !near; i++)    /* "auto-gptq", "auto-round:gptq" */
        near = strstr(wanted, all[i]) ? all[i] : NULL;
    return calm_fail(ctx, CALM_EARG, "`formats` %s: no such format%s%s%s; there is %s", name,
                     near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", list.data ? list.data : "none");
}

const char *calm_exporter_refuses(const calm_exporter *exporter, const calm_scheme *scheme)
{
    if (scheme->act_order && !exporter->orders)
        return "groups are of neighbouring columns in this format";
    if (scheme->family && !(exporter->families & 1u << scheme->family))
        return "the format has no such type";
    return exporter->refuses ? exporter->refuses(scheme) : NULL;
}

double calm_exporter_bits(const calm_exporter *exporter, const calm_scheme *scheme, size_t out, size_t in)
{
    calm_export_tensor list[CALM_EXPORT_TENSORS];
    double bits = 0;
    if (exporter->bits)
        return exporter->bits(scheme, out, in);
    if (!exporter->more_bits || !out || !in)
        return calm_scheme_bits_per_weight(scheme, out, in);
    const size_t n = exporter->form->tensors(scheme, out, in, list);
    /* Vectors are one number per tensor or per column, such as g_idx: no tool counts them. */
    for (size_t i = 0; i < n; i++)
        if (list[i].n_dims == 2)
            bits += 8.0 * (double)calm_export_tensor_bytes(&list[i]);
    return bits / ((double)out * (double)in);
}

calm_status calm_exporter_holding(calm_ctx *ctx, const calm_scheme *scheme, char **out)
{
    size_t n;
    const calm_exporter *const *exporters = calm_exporters(&n);
    CALM_SCOPED_TEXT(list);
    for (size_t i = 0; i < n; i++) {
        char name[NAME_MAX_LENGTH];
        const bool weights = exporters[i]->form || exporters[i]->parts;
        if (weights && !calm_exporter_refuses(exporters[i], scheme))
            calm_text_printf(&list, "%s%s", list.length ? ", " : "; formats that hold it: ",
                             spoken(exporters[i]->name, name));
    }
    CALM_TRY(calm_text_check(ctx, &list));
    return calm_strf(ctx, ctx->out, out, "%s", list.data ? list.data : "");
}

calm_status calm_exporter_check(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input)
{
    char name[NAME_MAX_LENGTH];
    for (size_t i = 0; i < input->plan->n_jobs; i++) {
        const calm_plan_job *job = &input->plan->jobs[i];
        char *holding;
        const char *why = job->quantized ? calm_exporter_refuses(exporter, &job->scheme) : NULL;
        if (!why)
            continue;
        CALM_TRY(calm_exporter_holding(ctx, &job->scheme, &holding));
        return calm_fail(ctx, CALM_EUNSUPPORTED, "`formats` %s: %s is %s: %s%s", spoken(exporter->name, name),
                         calm_model_layout(input->model)->jobs[i].name, CALM_SCHEME_NAME(&job->scheme), why, holding);
    }
    return exporter->check(ctx, input);
}

calm_status calm_export_each_block(calm_ctx *ctx, const calm_export_input *input, calm_export_block_fn *write,
                                   void *user)
{
    const long n = (long)calm_model_config(input->model)->n_blocks;
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    for (long block = -1; block < n; block++) {
        CALM_TRY(write(user, ctx, block));
        calm_arena_clear(&arena);
        if (input->tick && block >= 0)
            input->tick(input->tick_user, (size_t)block + 1, (size_t)n);
    }
    return CALM_OK;
}

/* Removes the slashes at the end, because the temporary directory is next to the target. */
static calm_status without_slashes(calm_ctx *ctx, const char *target, char **out)
{
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/')
        length--;
    if (length == 0)
        return calm_fail(ctx, CALM_EARG, "the output directory's name is empty");
    return calm_strf(ctx, ctx->out, out, "%.*s", (int)length, target);
}

/* Does the same and follows links: a link to a folder on another disk stays, and the folder is replaced. */
static calm_status clean_target(calm_ctx *ctx, const char *target, char **out)
{
    char *clean, *end;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(without_slashes(ctx, target, &clean));
    CALM_TRY(calm_path_target(ctx, clean, &end));
    return without_slashes(ctx, end, out);
}

calm_status calm_export_destination(calm_ctx *ctx, const char *target, bool force, const calm_words *inputs)
{
    char *clean;
    CALM_TRY(without_slashes(ctx, target, &clean));
    return calm_output_folder(ctx, clean, force, inputs);
}

/* ---- locks: a directory that is being written is locked, so that no other process removes it as a leftover ---- */

typedef enum lock_state { TAKEN, HELD, GONE, NO_LOCKS } lock_state;

/* Locks a directory; the kernel releases the lock when its holder dies, also in another process id namespace.  *fd >= 0
 * if TAKEN, or NO_LOCKS (the file system has none). */
static lock_state take(const char *path, int *fd)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return GONE;
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return TAKEN;
    if (errno != EWOULDBLOCK)
        return NO_LOCKS;
    close(*fd);
    *fd = -1;
    return HELD;
}

static void release(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- leftovers of killed processes ---- */

/* Is `name` that of a temporary directory of `base`: BASE.tmp.4711, BASE.old.4711, BASE.tmp.4711.2?  *process is the
 * number in it. */
static bool is_temporary(const char *name, const char *base, long *process)
{
    const size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 ||
        (strncmp(name + length, ".tmp.", 5) != 0 && strncmp(name + length, ".old.", 5) != 0))
        return false;
    char *end;
    errno = 0;
    *process = strtol(name + length + 5, &end, 10);
    return isdigit((unsigned char)name[length + 5]) && errno == 0 && *process > 0 &&
           (*end == '\0' || (*end == '.' && end[1] && end[1 + strspn(end + 1, "0123456789")] == '\0'));
}

/* Removes a temporary directory unless a live process is writing it. */
static calm_status remove_stale(calm_ctx *ctx, const char *path, long process)
{
    CALM_SCOPED(int, release) fd = -1;
    const lock_state state = take(path, &fd);
    const bool stale = state == TAKEN || (state == NO_LOCKS && kill((pid_t)process, 0) != 0 && errno == ESRCH);
    return stale ? calm_remove_tree(ctx, path) : CALM_OK;
}

/* Removes the leftovers of killed processes next to the target, which may be large. */
static calm_status sweep(calm_ctx *ctx, const char *clean)
{
    const char *slash = strrchr(clean, '/'), *base = slash ? slash + 1 : clean;
    char *parent, *path;
    long process;
    CALM_TRY(calm_path_parent(ctx, clean, &parent));
    DIR *dir = opendir(parent);
    calm_status status = CALM_OK;
    if (!dir)
        return CALM_OK;    /* the folder does not exist yet */
    for (struct dirent *entry; status == CALM_OK && (entry = readdir(dir));) {
        if (!is_temporary(entry->d_name, base, &process))
            continue;
        status = calm_path_join(ctx, ctx->scratch, &path, parent, entry->d_name);
        if (status == CALM_OK)
            status = remove_stale(ctx, path, process);
    }
    closedir(dir);
    return status;
}

/* ---- writing ---- */

/* Do descriptor and name still refer to one directory?  Another process may have removed it before the lock. */
static bool is_there(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

calm_status calm_export_begin(calm_ctx *ctx, const char *target, calm_export_place *out)
{
    char *clean;
    *out = (calm_export_place){.lock = -1};
    CALM_TRY(clean_target(ctx, target, &clean));
    CALM_TRY(sweep(ctx, clean));
    out->replaces = calm_path_exists(clean);
    for (int i = 1; i <= MOST_NAMES; i++) {
        if (i == 1)
            CALM_TRY(calm_strf(ctx, ctx->out, &out->temporary, "%s.tmp.%ld", clean, (long)getpid()));
        else    /* a process with this id in another container is writing there */
            CALM_TRY(calm_strf(ctx, ctx->out, &out->temporary, "%s.tmp.%ld.%d", clean, (long)getpid(), i));
        if (calm_path_exists(out->temporary))
            continue;
        CALM_TRY(calm_make_directories(ctx, out->temporary));
        const lock_state state = take(out->temporary, &out->lock);
        if ((state == TAKEN || state == NO_LOCKS) && is_there(out->lock, out->temporary))
            return CALM_OK;
        release(&out->lock);
    }
    return calm_fail(ctx, CALM_EBUSY, "%s.tmp.%ld: %d processes are writing there", clean, (long)getpid(), MOST_NAMES);
}

void calm_export_abandon(calm_ctx *ctx, calm_export_place *place)
{
    calm_ctx cleanup = *ctx;    /* the first failure is the one to report */
    calm_ctx_clear_failure(&cleanup);
    if (place->temporary)
        calm_remove_tree(&cleanup, place->temporary);
    release(&place->lock);
}

/* Replaces the target if names cannot be exchanged; for a moment only the old checkpoint's temporary name exists. */
static calm_status replace_in_steps(calm_ctx *ctx, const char *temporary, const char *clean, char **old)
{
    CALM_TRY(calm_strf(ctx, ctx->scratch, old, "%s.old.%ld", clean, (long)getpid()));
    if (rename(clean, *old) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot move it aside", clean);
    if (rename(temporary, clean) == 0)
        return CALM_OK;
    const int reason = errno;
    if (rename(*old, clean) != 0)
        return calm_fail_errno(ctx, reason, "%s: cannot rename to it; the old one is %s", clean, *old);
    return calm_fail_errno(ctx, reason, "%s: cannot rename to it", clean);
}

/* Exchanges both names in one step, so that at every moment the target is the old checkpoint or the new one; *old is
 * the old one's name afterwards. */
static calm_status replace(calm_ctx *ctx, const char *temporary, const char *clean, char **old)
{
    CALM_TRY(calm_strf(ctx, ctx->scratch, old, "%s", temporary));
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, clean, RENAME_EXCHANGE) == 0)
        return CALM_OK;
    if (errno == EINVAL || errno == ENOSYS)
        return replace_in_steps(ctx, temporary, clean, old);
    return calm_fail_errno(ctx, errno, "%s: cannot rename to it", clean);
}

/* rename(2) replaces an empty directory at most, so two runs that began without a target cannot both take its name. */
static calm_status take_name(calm_ctx *ctx, const char *temporary, const char *clean)
{
    if (rename(temporary, clean) == 0)
        return CALM_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return calm_fail_errno(ctx, errno, "%s: cannot rename to it", clean);
    return calm_fail(ctx, CALM_EEXIST, "%s: another process has written it since this one started; it stays as it is. "
                     "Write this result to another --output", clean);
}

/* Gives the place's directory the target's name; *old is the directory to remove afterwards, or NULL. */
static calm_status move(calm_ctx *ctx, const calm_export_place *place, const char *clean, char **old)
{
    char *parent;
    *old = NULL;
    CALM_TRY(calm_path_parent(ctx, clean, &parent));
    CALM_TRY(calm_sync_directory(ctx, place->temporary));
    if (place->replaces && calm_path_exists(clean))
        CALM_TRY(replace(ctx, place->temporary, clean, old));
    else
        CALM_TRY(take_name(ctx, place->temporary, clean));
    return calm_sync_directory(ctx, parent);
}

calm_status calm_export_commit(calm_ctx *ctx, calm_export_place *place, const char *target)
{
    CALM_SCOPED(int, release) old_lock = -1;
    char *clean, *old;
    CALM_TRY(clean_target(ctx, target, &clean));
    CALM_TRY(calm_output_list(ctx, place->temporary));
    /* Checked again, because somebody may have put files there since the start. */
    CALM_TRY(calm_output_folder(ctx, clean, true, NULL));
    take(clean, &old_lock);    /* lock the old directory, which gets a temporary name */
    CALM_TRY(move(ctx, place, clean, &old));
    release(&place->lock);
    return old ? calm_remove_tree(ctx, old) : CALM_OK;
}
