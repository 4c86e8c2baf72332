/*
 * A libnvidia-ml.so.1 for tests: three devices of 80 GiB. The first two are the simulated driver's,
 * in the other order; the third one's UUID is of a device that no program sees.
 */
#include <stdio.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, DEVICES = 3 };
static const unsigned version_2 = 40 | 2u << 24; /* the struct's size and its version */
static const unsigned long long gib = 1ull << 30;

struct device {
    unsigned number; /* of the simulated driver's UUID */
};
static struct device devices[DEVICES] = {{2}, {1}, {9}};
static int users;

struct memory {
    unsigned long long total, free, used;
};
struct memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

SHOWN int nvmlInit_v2(void) {
    users++;
    return SUCCESS;
}

SHOWN int nvmlShutdown(void) {
    return users > 0 ? users--, SUCCESS : UNINITIALIZED;
}

SHOWN const char *nvmlErrorString(int result) {
    return result == SUCCESS ? "The operation was successful" : "The stand-in knows no more";
}

SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **ret_device) {
    if (users == 0 || index >= DEVICES) {
        return users == 0 ? UNINITIALIZED : INVALID_ARGUMENT;
    }
    *ret_device = &devices[index];
    return SUCCESS;
}

SHOWN int nvmlDeviceGetUUID(struct device *device, char *text, unsigned size) {
    static const unsigned char begin[15] = "simulated CUDA";
    char whole[64];
    int length = snprintf(whole, sizeof whole, "GPU-");
    for (unsigned i = 0; i < 16; i++) {
        const char *const dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += snprintf(whole + length, sizeof whole - (size_t)length, "%s%02x", dash,
                           i < 15 ? begin[i] : device->number);
    }
    if (size <= (unsigned)length) {
        return INSUFFICIENT_SIZE;
    }
    memcpy(text, whole, (size_t)length + 1);
    return SUCCESS;
}

SHOWN int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *ret_memory) {
    if (users == 0 || !device || !ret_memory) {
        return users == 0 ? UNINITIALIZED : INVALID_ARGUMENT;
    }
    *ret_memory = (struct memory){80 * gib, 70 * gib, 10 * gib};
    return SUCCESS;
}

SHOWN int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_2 *ret_memory) {
    if (users == 0 || !device || !ret_memory || ret_memory->version != version_2) {
        return users == 0 ? UNINITIALIZED : INVALID_ARGUMENT;
    }
    *ret_memory = (struct memory_2){version_2, 80 * gib, 1 * gib, 70 * gib, 9 * gib};
    return SUCCESS;
}
