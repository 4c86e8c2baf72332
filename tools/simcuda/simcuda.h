/* The simulated CUDA driver's entries beside CUDA's: settings, counters, faults and a stand-in for
 * kernels. Found with dlsym, or through cuGetProcAddress with any version. C99; needs no cuda.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

struct simcuda_counters {
    uint32_t struct_size; /* set by the caller: sizeof(struct simcuda_counters) */
    uint32_t reserved;
    uint64_t races;        /* uses of memory that were not ordered behind an earlier use */
    uint64_t device_bytes; /* handed out now by all devices, in the driver's own granules */
    uint64_t peak_device_bytes;
    uint64_t host_bytes; /* pinned, registered and managed memory now */
    uint64_t peak_host_bytes;
    uint64_t calls;         /* of any cu* entry */
    uint64_t device_blocks; /* device allocations, physical handles and pool segments now */
    uint64_t host_blocks;
    uint64_t faults;  /* calls that fault injection made fail */
    uint64_t objects; /* present events, streams, memory pools, graphs and address ranges */
    uint64_t waiting; /* threads that wait in a call for work that another thread runs */
};

/* Fills the first out->struct_size bytes. */
void simcuda_get_counters(struct simcuda_counters *out);

/* Restarts the peaks from the present values. */
void simcuda_reset_peaks(void);

/* How often this entry was called, by its name without version: "cuMemAlloc". */
uint64_t simcuda_call_count(const char *name);

/* Describes the latest race, "" if there was none; valid until the calling thread asks again. */
const char *simcuda_last_race(void);

/* The reason why cuInit refuses its options, "" if it does not; valid until options are given anew.
 * */
const char *simcuda_complaint(void);

/* Options as in EMM_SIM, over those from the environment; before cuInit. 0, or
 * CUDA_ERROR_INVALID_VALUE with a line on standard error. */
int simcuda_configure(const char *options);

/* Arms a fault, "cuMemAlloc@3", counted from now on; NULL or "" disarms all. Answers as above. */
int simcuda_fail(const char *fault);

/* While `spared` is not 0, armed faults leave the calling thread's calls alone and do not count
 * them: a test's own. */
void simcuda_spare(int spared);

/* How often injection has made the entry of that name, without a version, fail. simcuda_last_fault
 * names the entry that failed last, in static storage; "" if none has failed. */
uint64_t simcuda_fault_count(const char *name);
const char *simcuda_last_fault(void);

/* 1 while the calling thread does the simulator's own work: it is inside a call of the driver, and
 * not inside a function of the program that this call has called. */
int simcuda_is_inside(void);

struct simcuda_range {
    uint64_t address;
    uint64_t size;
    uint32_t write; /* 0: the function reads it */
    uint32_t reserved;
};

/* Stands in for a kernel launch: `function` (may be NULL) runs in stream order, and counts as a
 * user of exactly these ranges. Returns a CUresult. */
int simcuda_launch(struct CUstream_st *stream, void (*function)(void *), void *argument,
                   const struct simcuda_range *ranges, size_t count);

/* The same with programmatic stream serialization. The kernel waits for the kernel before it
 * (cudaGridDependencySynchronize), but may be on the GPU before the end of that kernel. So it does
 * not see that kernel's writes to the same memory through another address. */
int simcuda_launch_programmatic(struct CUstream_st *stream, void (*function)(void *),
                                void *argument, const struct simcuda_range *ranges, size_t count);

/* A launch that uses no memory. With progress=timed it takes this time, not `duration`. */
int simcuda_work(struct CUstream_st *stream, uint64_t microseconds);

#ifdef __cplusplus
}
#endif
