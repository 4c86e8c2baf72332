/* frozen_host PLUGIN...: a host as it was built when the interface was frozen. It knows the slots
 * of its own headers and no others; each that the plugin fills must answer with its name. */
#include <emm/plugin.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static char said[64];
static int failed;

static emm_status fail(emm_status code, int32_t driver_result, const char *text) {
    (void)driver_result;
    snprintf(said, sizeof said, "%s", text);
    return code;
}

static void write_log(int32_t level, const char *text) {
    (void)level, (void)text;
}

static const emm_host host = {.struct_size = sizeof(emm_host),
                              .abi_major = EMM_PLUGIN_ABI_MAJOR,
                              .abi_minor = EMM_PLUGIN_ABI_MINOR,
                              .version = "frozen",
                              .log = write_log,
                              .fail = fail};

static void expect(const char *slot, emm_status status) {
    if (status >= EMM_OK || strcmp(said, slot) != 0) {
        fprintf(stderr, "expected an answer from %s, found %d and '%s'\n", slot, (int)status, said);
        failed = 1;
    }
    said[0] = '\0';
}

/* As far as both the plugin and this host know it. */
static emm_plugin table_of(const emm_plugin *table) {
    emm_plugin known = {.struct_size = 0};
    memcpy(&known, table, table->struct_size < sizeof known ? table->struct_size : sizeof known);
    return known;
}

static void call_every_slot(const emm_plugin *table, emm_manager *self) {
    static char page[64];
    emm_deviceptr ptr;
    void *memory;
    size_t size, total;
    emm_ipc_handle handle = {.magic = 0};
    emm_block_info block = {.struct_size = sizeof block};
    emm_stats stats = {.struct_size = sizeof stats};
    const emm_stream stream = EMM_STREAM_LEGACY;
    expect("slot memalloc", table->memalloc(self, 512, stream, &ptr));
    expect("slot memfree", table->memfree(self, 512, 512, stream));
    expect("slot memhostalloc", table->memhostalloc(self, 512, 0, &memory, &ptr));
    expect("slot memhostfree", table->memhostfree(self, page, 64, 0, stream));
    expect("slot mempin", table->mempin(self, page, 64, 0, &ptr));
    expect("slot memunpin", table->memunpin(self, page, 64));
    expect("slot memallocmanaged", table->memallocmanaged(self, 512, EMM_ATTACH_GLOBAL, &ptr));
    expect("slot memfreemanaged", table->memfreemanaged(self, 512, 512, stream));
    expect("slot get_memory_info", table->get_memory_info(self, &size, &total));
    expect("slot get_ipc_handle", table->get_ipc_handle(self, 512, 512, &handle));
    expect("slot release_ipc_handle", table->release_ipc_handle(self, &handle));
    expect("slot reset", table->reset(self));
    expect("slot defer_cleanup", table->defer_cleanup(self, 1));
    expect("slot trim", table->trim(self, 0, &size));
    expect("slot query", table->query(self, 512, &block));
    expect("slot record_use", table->record_use(self, 512, 512, stream));
    expect("slot stream_notice", table->stream_notice(self, stream, EMM_STREAM_REGISTERED));
    expect("slot set_access", table->set_access(self, 1, EMM_ACCESS_READ_WRITE));
    expect("slot get_stats", table->get_stats(self, &stats));
}

static void serve(const char *path) {
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *const symbol = library ? dlsym(library, EMM_PLUGIN_ENTRY_SYMBOL) : NULL;
    emm_context_info info = {.struct_size = sizeof info};
    emm_plugin_entry entry = NULL;
    emm_manager *manager = NULL;
    emm_plugin table;
    memcpy(&entry, &symbol, sizeof entry);
    info.cuda_context = (struct CUctx_st *)&info;
    if (!entry) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        failed = 1;
        return;
    }
    table = table_of(entry(&host));
    if (table.interface_version != EMM_PLUGIN_ABI_MAJOR || strcmp(table.name, "frozen") != 0 ||
        table.create(&host, &info, NULL, &manager) != EMM_OK) {
        fprintf(stderr, "%s: expected the plugin 'frozen' to make a manager\n", path);
        failed = 1;
        return;
    }
    call_every_slot(&table, manager);
#ifdef EMM_PAUSE_KEEP
    if (table.interface_minor >= 2) {
        size_t released;
        expect("slot pause", table.pause(manager, EMM_PAUSE_KEEP, &released));
        expect("slot resume", table.resume(manager, 0));
        expect("slot set_option", table.set_option(manager, "changes", "2"));
        expect("slot reset_peaks", table.reset_peaks(manager));
    } else if (table.pause || table.resume || table.set_option || table.reset_peaks) {
        fprintf(stderr, "%s: expected no slots that came later\n", path);
        failed = 1;
    }
#endif
    table.destroy(manager);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        serve(argv[i]);
    }
    return argc < 2 || failed;
}
