/* The device of the tests in C, and their own driver calls. */
#ifndef GPU_H
#define GPU_H

#include <emm/emm.h>

#include <cuda.h>

/* The record of device 0's primary context, current on the calling thread. */
emm_context *gpu(void);

/* A driver entry with its CUDA 12.0 signature, as type `type`. */
#define CU(type, name) ((type)emm_driver_entry(name, 12000))

CUstream new_stream(unsigned flags);
void wait_for(CUstream stream);

/* Runs `function` in stream order. */
void enqueue(CUstream stream, void (*function)(void *), void *argument);

/* How often the driver's `name` was called; 0 on a real driver, which does not count. */
uint64_t calls_of(const char *name);

/* The memory allocates through emm's C interface; a failure is a failed check. */
emm_memory *device_memory(size_t size);
emm_memory *host_memory(size_t size, uint32_t flags);
emm_memory_info info_of(emm_memory *memory);

#endif
