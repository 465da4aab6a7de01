/* Answers of a hub: parsed files have plain relative names, possible sizes, and etags that are valid file names. */
#include <stdlib.h>
#include <string.h>

#include "ptq/hub/listing.h"
#include "tests/fuzz/fuzz.h"

static void check_name(const char *name)
{
    if (calm_hub_name_fault(name, strlen(name)) || name[0] == '/' || strstr(name, "../") == name ||
        strstr(name, "/../"))
        abort();
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_hub_listing listing;
    const char **shards;
    size_t n;
    if (calm_hub_listing_parse(ctx, "fuzz", (const char *)data, size, &listing) == CALM_OK) {
        if (!calm_hub_is_commit(listing.commit))
            abort();
        for (size_t i = 0; i < listing.n_files; i++) {
            const calm_hub_file *file = &listing.files[i];
            check_name(file->name);
            if (file->bytes < -1 || (file->etag[0] && !calm_hub_is_etag(file->etag)))
                abort();
        }
        calm_hub_listing_check_weights(ctx, "fuzz", &listing);
        calm_ctx_clear_failure(ctx);
    } else if (!ctx->message[0]) {
        abort();
    }
    calm_ctx_clear_failure(ctx);
    if (calm_hub_index_shards(ctx, "fuzz", (const char *)data, size, &shards, &n) == CALM_OK)
        for (size_t i = 0; i < n; i++)
            check_name(shards[i]);
    return 0;
}
