/* calm assemble: writes the checkpoint of a run from stored blobs. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "cli/report.h"
#include "ptq/stored/stored.h"

typedef struct options {
    calm_common common;
    const char *store, *output, *model, *adapter;
    bool hybrid, force, json;
} options;

static const calm_option table[] = {
    CALM_OPT("output", output, STRING, "checkpoint to write", .metavar = "DIR", .key = 'o'),
    CALM_OPT_STORE,
    CALM_OPT_RUN_MODEL,
    CALM_OPT_RUN_ADAPTER,
    CALM_OPT_HYBRID,
    CALM_OPT_FORCE,
    CALM_OPT("json", json, BOOL, "print what was written as JSON"),
    CALM_OPT_COMMON,
    {0},
};

/* Returns the float model as the user typed it for this command, or for the run if that was an alias; else its
 * directory. */
static calm_status reference(calm_ctx *ctx, const options *o, const calm_assembly *a, const char **out)
{
    bool alias;
    CALM_TRY(calm_aliases_have(ctx, a->recipe.model.name, &alias));
    *out = o->model ? o->model : alias ? a->recipe.model.name : a->recipe.model.dir;
    return CALM_OK;
}

static calm_status print(calm_ctx *ctx, const options *o, const calm_assembly *a)
{
    const calm_result *p = &a->result;
    if (!o->json) {
        CALM_SCOPED_TEXT(text);
        const char *model;
        CALM_TRY(reference(ctx, o, a, &model));
        calm_report_assembly(a, &text);
        calm_text_printf(&text, "  size         %.2f MiB -> %.2f MiB (%.1f %%)\n  checkpoint   %s\n",
                         (double)p->bytes_before / 1048576.0, (double)p->bytes_after / 1048576.0,
                         100.0 * (double)p->bytes_after / (double)p->bytes_before, o->output);
        CALM_TRY(calm_report_evaluation(ctx, &a->recipe.formats, o->output, model, "\n  next: ", &text));
        return calm_print_text(ctx, &text);
    }
    const char *name;
    CALM_TRY(calm_result_label(ctx, p, p->name, &name));
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("run", a->run.id), CALM_KV("result", name),
                                            CALM_KV("bits_per_weight", p->bits_per_weight),
                                            CALM_KV("bytes_before", p->bytes_before),
                                            CALM_KV("bytes_after", p->bytes_after), CALM_KV("checkpoint", o->output)));
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const char *run_name = o->common.args.of[0];
    calm_assemble_options how = {.store = o->store, .output = o->output, .hybrid = o->hybrid, .force = o->force,
                                 .command = o->common.command};
    calm_named_model model;
    calm_progress progress;
    CALM_SCOPED(calm_assembly, calm_assembly_close) assembly = {0};
    CALM_TRY(calm_stored_run_number(ctx, "assemble", run_name, &how.run));
    if (!o->output)
        return calm_fail(ctx, CALM_EARG, "calm assemble: --output is missing; try: calm assemble %s --output out",
                         run_name);
    CALM_TRY(calm_kernels_pin_run(ctx, o->store, how.run));
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &model));
    how.model = model.dir;
    how.adapter = o->adapter;
    how.events = calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_reassemble(ctx, &how, &assembly);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return print(ctx, o, &assembly);
}

const calm_command calm_cmd_assemble = {
    .name = "assemble",
    .summary = "write the checkpoint of a run from the store",
    .arguments = "RUN",
    .description =
        "Writes the checkpoint of RUN from its stored candidates and the float model.  If the store has dropped "
        "codes, calm computes them again from the run's calibration text.  The bytes are the same as those of a "
        "finished run.",
    .examples = "  calm assemble 4 --output out\n"
                "  calm assemble 4 --output out --hybrid     the hybrid, if a uniform run was the result\n"
                "  calm assemble 4 --output out --model /models/Qwen3-0.6B\n",
    .min_args = 1,
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
