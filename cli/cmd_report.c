/* calm report: writes a page that explains a run, from the store alone. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/report_page/report_page.h"

typedef struct options {
    calm_common common;
    const char *store, *output;
    bool force, json, markdown;
} options;

static const calm_option table[] = {
    CALM_OPT_STORE,
    CALM_OPT("output", output, STRING, "file to write (default: report.html; for --json and --markdown standard "
             "output)", .metavar = "FILE", .key = 'o'),
    CALM_OPT("force", force, BOOL, "replace an existing file", .key = 'f'),
    CALM_OPT("json", json, BOOL, "write the page's data as JSON instead of the page"),
    CALM_OPT("markdown", markdown, BOOL, "write a summary in Markdown, for CI, instead of the page"),
    CALM_OPT_COMMON,
    {0},
};

static calm_status write_form(calm_ctx *ctx, const options *o, const calm_json *data, calm_text *out)
{
    if (o->markdown)
        return calm_report_page_markdown(ctx, data, out);
    if (!o->json)
        return calm_report_page_html(ctx, data, out);
    CALM_TRY(calm_json_write(ctx, data, 2, out));
    calm_text_append(out, "\n", 1);
    return calm_text_check(ctx, out);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const char *output = o->output || o->json || o->markdown ? o->output : "report.html";
    CALM_SCOPED_JSON(data);
    CALM_SCOPED_TEXT(text);
    const calm_words inputs = {(const char *[]){o->store}, 1};
    if (o->json && o->markdown)
        return calm_fail(ctx, CALM_EARG, "calm report: --json and --markdown exclude each other; give one");
    CALM_TRY(calm_report_page_collect(ctx, o->store, o->common.args.of, o->common.args.n, &data));
    if (output)
        CALM_TRY(calm_report_page_target(ctx, output, o->force, !o->json && !o->markdown, &inputs));
    CALM_TRY(write_form(ctx, o, data, &text));
    if (!output)
        return calm_print_text(ctx, &text);
    CALM_TRY(calm_report_page_write(ctx, output, &text));
    if (!o->common.quiet)
        printf("%s: %.1f kB\n", output, (double)text.length / 1000);
    return CALM_OK;
}

const calm_command calm_cmd_report = {
    .name = "report",
    .summary = "a page that explains a run: choices, scores, activations, figures",
    .arguments = "[RUN ...]",
    .description =
        "Writes one self-contained HTML page from the store alone: it needs neither the model nor a network.  RUN "
        "is a number of calm inspect runs (default: the newest).  For two runs the page shows the differences, for "
        "more it shows each run.  docs/report.md says how to read it.",
    .examples = "  calm report                              the newest run of calm-out/calm.db as report.html\n"
                "  calm report 3 --store out.db -o run3.html\n"
                "  calm report 3 5 -o compared.html         what differs between two runs\n"
                "  calm report 3 4 5 6 -o all.html          runs side by side, one shown at a time\n"
                "  calm report --markdown >> \"$GITHUB_STEP_SUMMARY\"\n",
    .max_args = 32,
    CALM_COMMAND_PARTS,
};
