/*
 * For make bench: what the driver alone costs a default run of dma_bandwidth. It starts the driver, makes a
 * context and one buffer on the GPU, and gets and gives back the pinned buffer. Nothing is copied.
 * Usage: bare BYTES
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    void *device, *host;
    cudaError_t error = cudaMalloc(&device, bytes);
    if (error == cudaSuccess) error = cudaMallocHost(&host, bytes);
    if (error == cudaSuccess) error = cudaFreeHost(host);
    if (error == cudaSuccess) error = cudaFree(device);
    if (error != cudaSuccess) fprintf(stderr, "bare: %s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
