/* An application in C that has no CUDA code of its own: it takes memory of every kind from emm, and
 * so from the plugin that EMM_PLUGIN names, on the driver that EMM_DRIVER names. */
#include <emm/emm.h>

#include <stdio.h>
#include <stdlib.h>

static void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
        exit(EXIT_FAILURE);
    }
}

static void say_who_serves(void) {
    emm_plugin_info plugin = {.struct_size = sizeof plugin};
    emm_driver_info driver = {.struct_size = sizeof driver};
    check(emm_get_plugin(&plugin), "choosing a plugin");
    check(emm_get_driver(&driver), "loading the driver");
    printf("plugin: %s\npath: %s\nselected by: %s\n", plugin.name, plugin.path, plugin.selected_by);
    printf("driver: %s%s\n", driver.path, driver.simulated ? " (simulated)" : "");
}

/* Any stream may use unordered memory, and may still be using it at its unordered free: the plugin
 * takes care of that. */
static void use_every_kind(emm_context *context) {
    const size_t size = 1 << 20;
    emm_deviceptr device, mapped, managed;
    void *pinned;
    check(emm_memalloc(context, size, EMM_STREAM_UNORDERED, &device), "device memory");
    check(emm_memhostalloc(context, size, EMM_HOST_MAPPED, &pinned, &mapped), "pinned memory");
    check(emm_memallocmanaged(context, size, EMM_ATTACH_GLOBAL, &managed), "managed memory");
    *(char *)pinned = 'x';
    printf("allocated: device, pinned, managed\n");
    check(emm_memfree(context, device, size, EMM_STREAM_UNORDERED), "freeing device memory");
    check(emm_memhostfree(context, pinned, size, EMM_HOST_MAPPED, EMM_STREAM_UNORDERED),
          "freeing pinned memory");
    check(emm_memfreemanaged(context, managed, size, EMM_STREAM_UNORDERED),
          "freeing managed memory");
}

/* Running out of memory is an answer like any other, and leaves the program as it was. */
static void run_out(emm_context *context) {
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(context, (size_t)1 << 50, EMM_STREAM_UNORDERED, &ptr);
    if (status != EMM_E_OUT_OF_MEMORY) {
        fprintf(stderr, "a pebibyte: expected to run out of memory, found %d\n", (int)status);
        exit(EXIT_FAILURE);
    }
    printf("out of memory: %s\n", emm_last_error()->text);
}

/* While a section lasts nothing goes back to the driver, which might wait for the device. */
static void free_without_waiting(emm_context *context) {
    check(emm_defer_cleanup_begin(context), "beginning a deferred section");
    for (int i = 0; i < 16; i++) {
        emm_deviceptr ptr;
        check(emm_memalloc(context, 4096, EMM_STREAM_UNORDERED, &ptr), "device memory");
        check(emm_memfree(context, ptr, 4096, EMM_STREAM_UNORDERED), "freeing device memory");
    }
    check(emm_defer_cleanup_end(context), "ending a deferred section");
}

int main(void) {
    emm_context *context;
    emm_stats stats = {.struct_size = sizeof stats};
    say_who_serves();
    check(emm_context_for_device(0, &context), "device 0");
    use_every_kind(context);
    run_out(context);
    free_without_waiting(context);
    check(emm_get_stats(context, &stats), "statistics");
    printf("live bytes: %llu\n", (unsigned long long)stats.live_bytes);
    check(emm_context_retire(context), "retiring the context");
    printf("done\n");
    return EXIT_SUCCESS;
}
