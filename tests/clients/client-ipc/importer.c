/* Opens the memory whose handle comes on standard input. */
#include <emm/emm.h>

#include <stdio.h>
#include <stdlib.h>

static void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
        exit(EXIT_FAILURE);
    }
}

int main(void) {
    emm_context *context;
    emm_memory *memory;
    emm_memory_info info = {.struct_size = sizeof info};
    emm_ipc_handle handle;
    if (fread(&handle, sizeof handle, 1, stdin) != 1) {
        fprintf(stderr, "no handle on standard input\n");
        return EXIT_FAILURE;
    }
    check(emm_context_for_device(0, &context), "device 0");
    check(emm_memory_open_ipc(context, &handle, &memory), "opening it");
    check(emm_memory_get_info(memory, &info), "asking about it");
    printf("opened: %llu bytes\n", (unsigned long long)info.size);
    check(emm_memory_release(memory), "closing it");
    fflush(stdout);
    return EXIT_SUCCESS;
}
