/* Checks signatures and prints the outcome like that of a lock. */
#include "cli/verify_signature.h"

#include <stdio.h>

#include "cli/lock_report.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "ptq/sign/sign.h"

/* Makes the differences of a lock from the files of a check. */
static calm_status differences_of(calm_ctx *ctx, const calm_sign_check *check, calm_differences *out)
{
    *out = (calm_differences){.n = check->n, .room = check->n, .checked = check->n_files};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->items, check->n + 1));
    for (size_t i = 0; i < check->n; i++)
        out->items[i] = (calm_difference){.what = "file", .name = check->differences[i].name,
                                          .expected = check->differences[i].expected,
                                          .found = check->differences[i].found};
    return CALM_OK;
}

static calm_status check_folder(calm_ctx *ctx, const char *dir, const calm_signature_options *o, calm_differences *out)
{
    const calm_sign_trust trust = {.key = o->key, .certificates = o->certificates};
    calm_sign_check check;
    calm_progress progress;
    calm_progress_begin(ctx, &progress, o->quiet);
    calm_progress_add(&progress, "digests", "bytes");
    calm_sign_verify(ctx, dir, o->signature, &trust, calm_progress_tick, &progress, &check);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return differences_of(ctx, &check, out);
}

calm_status calm_verify_signature(calm_ctx *ctx, const char *dir, const calm_signature_options *o)
{
    calm_differences found;
    if (!o->signature || !o->key == !o->certificates)
        return calm_fail(ctx, CALM_EARG, "calm verify: expected --signature FILE with --key FILE (the signer's public "
                         "key) or --certificates FILE (trusted roots)");
    CALM_TRY(check_folder(ctx, dir, o, &found));
    if (o->json)
        CALM_TRY(calm_print_json(ctx, CALM_OBJECT(
            CALM_KV("signature", o->signature), CALM_KV("equal", (bool)(found.n == 0)),
            CALM_KV("checked", found.checked), CALM_KV("differences", calm_lock_report_json(ctx, &found)))));
    else if (found.n)
        CALM_TRY(calm_lock_print(ctx, &found, stdout));
    if (found.n)
        return calm_fail(ctx, CALM_EMISMATCH, "%s: %zu of %zu files differ from the signature %s", dir, found.n,
                         found.checked, o->signature);
    if (!o->json)
        printf("%s: %zu files match the signature %s\n", dir, found.checked, o->signature);
    return CALM_OK;
}
