/*
 * A stand-in for libnvidia-ml.so.1, for the simulated runtime (sim_cudart.c, which lists the
 * variables of both). It knows the few functions that dma_bandwidth looks up. Calls may come from
 * many threads at once.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, MAX_DEVICES = 16 };

/* A handle points at one of these. */
static struct device { atomic_uint looks[2]; /* at the current generation and width */ } devices[MAX_DEVICES];

/* Returns a number from the environment, or `otherwise`. */
static unsigned setting(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

/* Returns what SIM_NVML_FAIL=function or function:code makes of a call. */
static int answer(const char *function) {
    const char *wish = getenv("SIM_NVML_FAIL");
    size_t n = wish ? strcspn(wish, ":") : 0;
    if (!wish || strlen(function) != n || strncmp(wish, function, n) != 0) return SUCCESS;
    return wish[n] ? atoi(wish + n + 1) : NOT_SUPPORTED;
}

/* Returns generation (0) or width (1) of the item for this GPU in SIM_LINK. `look` counts from 1; 0
 * asks for the maximum. */
static unsigned link_value(const struct device *device, int which, unsigned look) {
    const char *wish = getenv("SIM_LINK");
    unsigned a[2] = {5, 16}, b[2];
    char mark = 0;
    for (const char *next; wish && device > devices && (next = strchr(wish, ';')); device--) wish = next + 1;
    int second = wish && sscanf(wish, "%ux%u%c%ux%u", &a[0], &a[1], &mark, &b[0], &b[1]) == 5 &&
                 (mark == ','   ? look != 1
                  : mark == '/' ? look != 0
                                : mark == '~' && look && look % 2 == 0);
    return second ? b[which] : a[which];
}

/* Returns what NVML says for an answer. */
const char *nvmlErrorString(int error) {
    return error == SUCCESS             ? "Success"
           : error == NOT_SUPPORTED     ? "Not Supported"
           : error == NOT_FOUND         ? "Not Found"
           : error == INSUFFICIENT_SIZE ? "Insufficient Size"
           : error == 9                 ? "Driver Not Loaded"
           : error == 18                ? "Driver/library version mismatch"
                                        : "Unknown Error";
}

int nvmlInit_v2(void) { return answer("nvmlInit_v2"); }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    snprintf(version, size, "580.00 (simulated)");
    return answer("nvmlSystemGetDriverVersion");
}

int nvmlSystemGetConfComputeState(unsigned environment_feature_tools[3]) {
    memset(environment_feature_tools, 0, 3 * sizeof *environment_feature_tools);
    environment_feature_tools[1] = setting("SIM_CC", 0);
    return answer("nvmlSystemGetConfComputeState");
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    unsigned domain, bus, first = 0x18, step = 0x10, count = setting("SIM_GPUS", 1);
    if (sscanf(bus_id, "%x:%x", &domain, &bus) != 2 || domain != setting("SIM_DOMAIN", 0)) return NOT_FOUND;
    if (bus < first || (bus - first) % step != 0) return NOT_FOUND;
    unsigned index = (bus - first) / step;
    if (index >= count || index >= MAX_DEVICES) return NOT_FOUND;
    *device = &devices[index];
    return answer("nvmlDeviceGetHandleByPciBusId_v2");
}

int nvmlDeviceGetCurrPcieLinkGeneration(struct device *device, unsigned *value) {
    *value = link_value(device, 0, atomic_fetch_add(&device->looks[0], 1) + 1);
    return answer("nvmlDeviceGetCurrPcieLinkGeneration");
}

int nvmlDeviceGetCurrPcieLinkWidth(struct device *device, unsigned *value) {
    *value = link_value(device, 1, atomic_fetch_add(&device->looks[1], 1) + 1);
    return answer("nvmlDeviceGetCurrPcieLinkWidth");
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct device *device, unsigned *value) {
    *value = link_value(device, 0, 0);
    return answer("nvmlDeviceGetMaxPcieLinkGeneration");
}

int nvmlDeviceGetMaxPcieLinkWidth(struct device *device, unsigned *value) {
    *value = link_value(device, 1, 0);
    return answer("nvmlDeviceGetMaxPcieLinkWidth");
}

int nvmlDeviceGetCpuAffinity(struct device *device, unsigned size, unsigned long *set) {
    (void)device;
    const char *wish = getenv("SIM_CPUS");
    memset(set, 0, size * sizeof *set);
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++)
        if (!wish || atol(wish) == cpu) CPU_SET_S((size_t)cpu, size * sizeof *set, (cpu_set_t *)set);
    return answer("nvmlDeviceGetCpuAffinity");
}

int nvmlDeviceGetUtilizationRates(struct device *device, unsigned gpu_and_memory[2]) {
    (void)device;
    gpu_and_memory[0] = getenv("SIM_BUSY") ? (unsigned)atoi(getenv("SIM_BUSY")) : 0;
    gpu_and_memory[1] = 101; /* nobody is to look at it */
    return answer("nvmlDeviceGetUtilizationRates");
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, void *infos) {
    (void)device, (void)infos;
    const char *comma = getenv("SIM_BUSY") ? strchr(getenv("SIM_BUSY"), ',') : NULL;
    *count = comma ? (unsigned)atoi(comma + 1) : 0;
    int error = answer("nvmlDeviceGetComputeRunningProcesses_v3");
    return error ? error : *count ? INSUFFICIENT_SIZE : SUCCESS;
}
