#include <emm/emm.h>

#include <stdio.h>

static int failed(void) {
    fprintf(stderr, "%s\n", emm_last_error()->text);
    return 1;
}

/* Without an argument the program asks for no memory, and so for no driver. */
int main(int count, char **arguments) {
    emm_plugin_info plugin = {.struct_size = sizeof plugin};
    emm_context *context;
    emm_deviceptr block;
    (void)arguments;
    if (emm_get_plugin(&plugin) < EMM_OK) {
        return failed();
    }
    if (count > 1 && (emm_context_for_device(0, &context) < EMM_OK ||
                      emm_memalloc(context, 4096, EMM_STREAM_UNORDERED, &block) < EMM_OK ||
                      emm_memfree(context, block, 4096, EMM_STREAM_UNORDERED) < EMM_OK)) {
        return failed();
    }
    printf("emm %s with %s\n", emm_version(), plugin.name);
    return 0;
}
