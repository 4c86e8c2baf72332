/* Exports the second half of an allocation to the program named on the command line, which gets the
 * handle on its standard input: exporter ./importer */
#define _POSIX_C_SOURCE 200809L
#include <emm/emm.h>

#include <stdio.h>
#include <stdlib.h>

static void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char *argv[]) {
    const size_t size = 1 << 20;
    emm_context *context;
    emm_memory *memory, *half;
    emm_ipc_handle handle;
    FILE *importer;
    int failed;
    if (argc != 2 || !(importer = popen(argv[1], "w"))) {
        fprintf(stderr, "usage: exporter IMPORTER\n");
        return EXIT_FAILURE;
    }
    check(emm_context_for_device(0, &context), "device 0");
    check(emm_memory_alloc(context, size, EMM_STREAM_UNORDERED, &memory), "device memory");
    check(emm_memory_view(memory, size / 2, size, &half), "a view");
    check(emm_memory_export(half, &handle), "exporting it");
    failed = fwrite(&handle, sizeof handle, 1, importer) != 1;
    failed |= pclose(importer) != 0; /* the importer is done with the memory */
    check(emm_release_ipc_handle(context, &handle), "ending the export");
    check(emm_memory_release(half), "releasing the view");
    check(emm_memory_release(memory), "releasing the memory");
    printf("done\n");
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
