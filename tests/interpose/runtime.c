/* The smallest program on the CUDA runtime: it makes the runtime look all its entries up. */
#include <stdio.h>

extern int cudaGetDeviceCount(int *count);
extern int cudaMalloc(void **ret, size_t bytes);

int main(void) {
    int count = 0;
    void *block = NULL;
    const int counted = cudaGetDeviceCount(&count);
    printf("cudaGetDeviceCount: %d, cudaMalloc: %d\n", counted, cudaMalloc(&block, 1000));
    return 0;
}
