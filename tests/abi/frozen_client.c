/* frozen_client PLUGIN: a program as it was built when the interface was frozen. Each of its calls
 * must reach the slot of that name in a plugin that was built then, too. */
#include <emm/emm.h>

#include <stdio.h>
#include <string.h>

static int failed;

static void expect(emm_status status, const char *slot) {
    const emm_error *error = emm_last_error();
    const char *text = status < EMM_OK && error->text ? error->text : "success";
    const size_t found = strlen(text), wanted = strlen(slot);
    if (found < wanted || strcmp(text + found - wanted, slot) != 0) {
        fprintf(stderr, "expected an answer from %s, found: %s\n", slot, text);
        failed = 1;
    }
}

static void call_every_slot(emm_context *context) {
    static char page[8192];
    emm_deviceptr ptr = 0;
    void *host = page;
    size_t free_bytes = 0, total = 0;
    emm_ipc_handle handle;
    emm_block_info block = {.struct_size = sizeof block};
    emm_stats stats = {.struct_size = sizeof stats};
    expect(emm_memalloc(context, 512, EMM_STREAM_UNORDERED, &ptr), "slot memalloc");
    expect(emm_memfree(context, 512, 512, EMM_STREAM_UNORDERED), "slot memfree");
    expect(emm_memhostalloc(context, 512, 0, &host, NULL), "slot memhostalloc");
    expect(emm_memhostfree(context, page, 512, 0, EMM_STREAM_UNORDERED), "slot memhostfree");
    expect(emm_mempin(context, page, sizeof page, 0, NULL), "slot mempin");
    expect(emm_memunpin(context, page, sizeof page), "slot memunpin");
    expect(emm_memallocmanaged(context, 512, EMM_ATTACH_GLOBAL, &ptr), "slot memallocmanaged");
    expect(emm_memfreemanaged(context, 512, 512, EMM_STREAM_UNORDERED), "slot memfreemanaged");
    expect(emm_get_memory_info(context, &free_bytes, &total), "slot get_memory_info");
    expect(emm_get_ipc_handle(context, 512, 512, &handle), "slot get_ipc_handle");
    expect(emm_context_reset(context), "slot reset");
    expect(emm_defer_cleanup_begin(context), "slot defer_cleanup");
    expect(emm_trim(context, 0, NULL), "slot trim");
    expect(emm_query(context, 512, &block), "slot query");
    expect(emm_record_use(context, 512, 512, NULL), "slot record_use");
    expect(emm_stream_register(context, (emm_stream)(uintptr_t)4096), "slot stream_notice");
    expect(emm_set_peer_access(context, 1, EMM_ACCESS_READ_WRITE), "slot set_access");
    expect(emm_get_stats(context, &stats), "slot get_stats");
}

int main(int argc, char **argv) {
    emm_context *context = NULL;
    emm_plugin_info info = {.struct_size = sizeof info};
    if (argc != 2 || emm_set_plugin(argv[1]) < EMM_OK ||
        emm_context_for_device(0, &context) < EMM_OK || emm_get_plugin(&info) < EMM_OK) {
        fprintf(stderr, "the frozen plugin: %s\n", emm_last_error()->text);
        return 1;
    }
    if (strcmp(info.name, "frozen") != 0) {
        fprintf(stderr, "expected the plugin 'frozen', found '%s'\n", info.name);
        return 1;
    }
    call_every_slot(context);
    return failed;
}
