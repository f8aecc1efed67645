/*
 * A stand-in for libnvidia-ml.so.1, for the simulated runtime (sim_cudart.c). It knows the few
 * functions that dma_bandwidth looks up; SIM_NVML_FAIL=function makes one answer NOT_SUPPORTED.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

static int answer(const char *function) {
    const char *wish = getenv("SIM_NVML_FAIL");
    return wish && strcmp(wish, function) == 0 ? NOT_SUPPORTED : SUCCESS;
}

/* SIM_LINK=5x16: always; 1x16,4x16: at the first look, later; 5x16/4x8: maximum, current.
 * Stores generation and width; `most` asks for the maximum, `first` for the first look. */
static void read_link(int most, int first, unsigned link[2]) {
    const char *wish = getenv("SIM_LINK");
    unsigned a[2] = {5, 16}, b[2];
    char mark = 0;
    int n = wish ? sscanf(wish, "%ux%u%c%ux%u", &a[0], &a[1], &mark, &b[0], &b[1]) : 0;
    int second = n == 5 && (mark == ',' ? most || !first : !most);
    memcpy(link, second ? b : a, sizeof a);
}

int nvmlInit_v2(void) { return answer("nvmlInit_v2"); }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    unsigned bus;
    if (sscanf(bus_id, "%*x:%x", &bus) != 1 || bus < 0x18) return NOT_FOUND;
    *device = (void *)(size_t)bus;
    return answer("nvmlDeviceGetHandleByPciBusId_v2");
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value) {
    static int looks;
    unsigned link[2];
    (void)device;
    read_link(0, looks++ == 0, link);
    *value = link[0];
    return answer("nvmlDeviceGetCurrPcieLinkGeneration");
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value) {
    static int looks;
    unsigned link[2];
    (void)device;
    read_link(0, looks++ == 0, link);
    *value = link[1];
    return answer("nvmlDeviceGetCurrPcieLinkWidth");
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value) {
    unsigned link[2];
    (void)device;
    read_link(1, 0, link);
    *value = link[0];
    return answer("nvmlDeviceGetMaxPcieLinkGeneration");
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value) {
    unsigned link[2];
    (void)device;
    read_link(1, 0, link);
    *value = link[1];
    return answer("nvmlDeviceGetMaxPcieLinkWidth");
}

/* SIM_CPUS=N: near CPU N only; otherwise near all. */
int nvmlDeviceGetCpuAffinity(void *device, unsigned size, unsigned long *set) {
    (void)device;
    const char *wish = getenv("SIM_CPUS");
    memset(set, 0, size * sizeof *set);
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++)
        if (!wish || atol(wish) == cpu) CPU_SET_S((size_t)cpu, size * sizeof *set, (cpu_set_t *)set);
    return answer("nvmlDeviceGetCpuAffinity");
}

/* SIM_BUSY=35,2: utilisation in per cent, other processes. */
int nvmlDeviceGetUtilizationRates(void *device, unsigned *gpu_and_memory) {
    (void)device;
    gpu_and_memory[0] = getenv("SIM_BUSY") ? (unsigned)atoi(getenv("SIM_BUSY")) : 0;
    gpu_and_memory[1] = 0;
    return answer("nvmlDeviceGetUtilizationRates");
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) {
    (void)device, (void)infos;
    const char *comma = getenv("SIM_BUSY") ? strchr(getenv("SIM_BUSY"), ',') : NULL;
    *count = comma ? (unsigned)atoi(comma + 1) : 0;
    int error = answer("nvmlDeviceGetComputeRunningProcesses_v3");
    return error ? error : *count ? INSUFFICIENT_SIZE : SUCCESS;
}
