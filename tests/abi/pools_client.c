/* pools_client PLUGIN: a program of the present interface that has two managers of a plugin of a
 * frozen one in one CUDA context. */
#include <emm/emm.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
    return 1;
}

static int is_answered(emm_context *context) {
    emm_deviceptr ptr = 0;
    return emm_memalloc(context, 512, EMM_STREAM_UNORDERED, &ptr) < EMM_OK &&
           strstr(emm_last_error()->text, "slot memalloc");
}

int main(int argc, char **argv) {
    emm_context *context = NULL, *pool = NULL;
    emm_context_info info = {.struct_size = sizeof info};
    if (argc != 2 || emm_set_plugin(argv[1]) < EMM_OK ||
        emm_context_for_device(0, &context) < EMM_OK) {
        return fail("the frozen plugin");
    }
    if (emm_context_named(context, "kv-cache", NULL, &pool) < EMM_OK || pool == context ||
        emm_context_get_info(pool, &info) < EMM_OK || strcmp(info.pool, "kv-cache") != 0) {
        return fail("a pool");
    }
    if (!is_answered(context) || !is_answered(pool)) {
        return fail("expected an answer from the plugin's memalloc");
    }
    if (emm_context_retire(pool) < EMM_OK || is_answered(pool) || !is_answered(context)) {
        return fail("the end of a pool");
    }
    return 0;
}
