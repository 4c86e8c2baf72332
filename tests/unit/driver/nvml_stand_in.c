/* Stands for NVML: only its SONAME counts. The test sets its answers. */
#include <string.h>

#define SEEN __attribute__((visibility("default")))

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;

SEEN int stand_in_init = 0;
SEEN unsigned stand_in_count = 0;
SEEN Process stand_in_processes[200];

SEEN int nvmlInit_v2(void) {
    return stand_in_init;
}
SEEN const char *nvmlErrorString(int result) {
    return result == 6 ? "Not Found" : "Driver Not Loaded";
}
SEEN int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device) {
    *ret_device = stand_in_processes;
    return strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") == 0 ? 0 : 6;
}
SEEN int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *ret) {
    const unsigned room = *count;
    *count = stand_in_count;
    if (room < stand_in_count) {
        return 7;
    }
    memcpy(ret, device, stand_in_count * sizeof *ret);
    return 0;
}
