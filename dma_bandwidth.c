/*
 * dma_bandwidth - how fast a host and an NVIDIA GPU copy memory through cudaMemcpy
 *
 * For each buffer size it times copies host to device (H2D) and device to host (D2H), from and to
 * pageable (malloc) and pinned (cudaMallocHost) host memory, and prints both rates, their ratio
 * and the share of the link's limit.
 *
 * What a number is: the median over --iters copies of bytes / seconds / 1e9 (GB/s), each copy
 * between its own pair of CUDA events. Sizes are powers of 1024 and labelled GB, MB, KB. Every
 * page of every host buffer is written first: a malloc'd page that nobody wrote is the kernel's
 * shared zero page, which sits in the CPU's cache and makes pageable H2D look 2.5 times as fast.
 *
 * The file reads from top to bottom, each part using only what stands above it:
 *   units and errors - the host - GPUs and NVML - buffers - timing - statistics - reports -
 *   chart - command line - run and main
 * To add an option, a pin method, a direction or an output format, add a row to options_table,
 * pin_methods, directions or writers.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity and the CPU_*_S macros */
#endif
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#define PROGRAM        "dma_bandwidth"
#define VERSION        "1.0.0"
#define DEFAULT_SIZES  "0.5 1 2"
#define DEFAULT_ITERS  10
#define DEFAULT_WARMUP 3
#define GIB            ((size_t)1 << 30)
#define MIB            ((size_t)1 << 20)
#define UNTOUCHED      "pageable source never written: reads the kernel's zero page"
#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))

enum {
    MAX_COPIES = 100000,
    MAX_SIZES = 1000,
    MAX_GPUS = 128,
    PAGE = 4096,           /* bytes; the smallest page of the CPUs that CUDA runs on */
    MAX_FILL_THREADS = 16, /* first touch of 2 GiB: 1.1 s by one thread, 0.1 s by 16 */
    LINK_TRIES = 10,       /* copies made to wake an idle link */
    SPREAD_LIMIT = 10,     /* per cent of the mean: above it a cell gets a note */
    WHY = 512,             /* bytes of a message */
    STATUS_SIZE = 2 * WHY + 16,
};
static const size_t summary_from = 16 * MIB;   /* below, the cost of a call rules the rate */
static const size_t host_reserve = 64 * MIB;   /* host memory left to everything else */
static const size_t wake_bytes = 256 * MIB;    /* copied to wake the link: 5 ms at Gen5 x16 */
static const size_t explain_bytes = 256 * MIB; /* the one small buffer of --explain */

enum exit_code {
    DONE = 0,
    CELL_FAILED = 1,
    USAGE = 2,
    NO_GPU = 3,
    BELOW_MINIMUM = 4,
    INTERRUPTED = 130, /* 128 + SIGINT, as shells count */
};

/* Returns the word for an exit status in JSON. */
static const char *status_name(enum exit_code code) {
    return code == DONE            ? "ok"
           : code == INTERRUPTED   ? "interrupted"
           : code == BELOW_MINIMUM ? "below minimum"
                                   : "failed";
}

enum kind { PAGEABLE, PINNED, KINDS, DEVICE = KINDS };
static const char *const kind_names[KINDS] = {"pageable", "pinned"};

/* Set by the signal handler; the only mutable global. */
static volatile sig_atomic_t interrupted;

/* Returns the double at an offset in a struct, for tables that name members by offsetof. */
static double member(const void *base, size_t offset) {
    double value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

struct stats {
    double median, mean, min, max, stddev; /* GB/s; NAN where there is no sample */
};

/* One kind of memory in one row. A cell that failed has no samples and says why. */
struct cell {
    double *samples; /* GB/s, in the order of the copies, with as much room again for sorting; owned */
    int count;
    struct stats gbps;
    char why[WHY];
    bool again; /* the reason stands in an earlier cell already */
};

struct direction {
    const char *name;
    bool in, out;       /* does it write to the device, to the host; both: half the buffer each */
    bool limit_in_text; /* the course's layout shows the limit under H2D only */
};

struct row {
    size_t bytes;
    const struct direction *direction;
    struct cell cell[KINDS];
};

/* The link between CPU and GPU as NVML tells it; generations and widths are 0 where unknown. Atomic:
 * reports read it while copies go on. */
enum link_kind { LINK_UNKNOWN, LINK_PCIE, LINK_C2C, LINK_INTEGRATED };
struct link {
    _Atomic enum link_kind kind;
    atomic_uint gen, width;         /* the fastest seen */
    atomic_uint max_gen, max_width; /* what GPU and slot can do together */
};

/* What --explain measured; NAN where it could not. */
struct explain {
    double memcpy_gbps, cold_gbps, warm_gbps;       /* GB/s */
    double malloc_host_s_per_gb, register_s_per_gb; /* seconds per 1e9 bytes */
};

struct options {
    size_t *sizes; /* bytes, in the order asked for; owned */
    int nsizes;
    int iters, warmup;
    int devices[MAX_GPUS], ndevices; /* 0: all; -1: none named, which means the first */
    bool parallel, bidir, untouched, explain, no_affinity, no_verify, quiet, list, help, version;
    const struct memory *pin;
    const struct writer *format;
    const char *chart;
    double min_efficiency; /* per cent of the link's limit; NAN: none asked for */
};

/* Host memory that can still be had. */
struct room {
    size_t bytes;
    const char *source; /* what limits it, for messages */
};

struct gpu {
    struct run *run;
    int index; /* as CUDA counts; -1: the totals of all */
    char name[256], uuid[48], bus_id[20];
    void *nvml; /* NVML's handle; NULL where it has none */
    struct link link;
    int far_cpus;                          /* CPUs of the caller's own binding that are not the GPU's */
    unsigned busy_percent, busy_processes; /* before the run */
    struct row *rows;                      /* run->nrows of them */
    struct room room;
    struct buffer {
        void *at;
        size_t bytes; /* 0: could not be had */
        const struct memory *memory;
    } buffers[KINDS + 1];
    size_t memory; /* bytes, of the GPU */
    size_t seeded; /* leading bytes of the device buffer that hold the pattern */
    cudaStream_t streams[2];
    cudaEvent_t start, stop;
    char lost[WHY]; /* why nothing more can be measured on this GPU */
    bool lost_told; /* a cell has it already */
    struct explain explained;
    char explain_why[WHY]; /* why a part of that is missing */
    pthread_t thread;
    bool driven;  /* the thread was started */
    sem_t posted; /* by the thread: set up, one per row, finished */
    atomic_int at_row, at_kind, at_copy;
};

struct run {
    const struct options *opt;
    struct gpu *gpus, totals;
    int ngpus, visible, nrows, ndirections, tables;
    enum exit_code status;
    bool progress;
    void *nvml_lib;
    int runtime, driver; /* versions, 1000 * major + 10 * minor */
    char host[256], time[32];
    FILE *chart;
    pthread_mutex_t setup;   /* one GPU at a time allocates, so that free memory is not sold twice */
    pthread_barrier_t start; /* of a timed loop on all GPUs that are driven together */
    atomic_bool stop;        /* the report can't be written any more */
};

/* ---- Units and errors ----------------------------------------------------------------------
 * One table reads and prints sizes. A function that can fail writes a sentence into a `why` of
 * WHY bytes and leaves it to its caller to print it or to keep it in a cell.
 */

static const struct unit {
    char letter;
    size_t bytes;
} units[] = {
    {'B', 1}, {'K', 1 << 10}, {'M', 1 << 20}, {'G', 1 << 30}, {'T', (size_t)1 << 40},
};

/* Prints one line to stderr, led by the program's name. */
__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs(PROGRAM ": ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* Writes a size as the course does (0.5GB, 16MB, 64KB) into `out` and returns it. */
static const char *size_label(size_t bytes, char out[32]) {
    double tenths = (double)bytes / (0.1 * (double)GIB);
    if (tenths > 0.99 && fabs(tenths - nearbyint(tenths)) < 1e-6) {
        snprintf(out, 32, tenths < 1000 ? "%.1fGB" : "%.4gGB", tenths / 10);
        return out;
    }
    for (size_t i = 3; i-- > 1;)
        if (bytes % units[i].bytes == 0) {
            snprintf(out, 32, "%zu%cB", bytes / units[i].bytes, units[i].letter);
            return out;
        }
    snprintf(out, 32, bytes < MIB ? "%.0fB" : "%.1fMB", (double)bytes / (bytes < MIB ? 1 : (double)MIB));
    return out;
}

static const struct advice {
    cudaError_t error;
    const char *text;
} advices[] = {
    {cudaErrorNoDevice, "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {cudaErrorDevicesUnavailable, "the GPU is busy or in exclusive mode: see nvidia-smi for other processes"},
    {cudaErrorMemoryAllocation, "try smaller --sizes, or free memory first"},
    {cudaErrorSystemNotReady, "the system is not ready: on NVSwitch machines check that nvidia-fabricmanager "
                              "runs"},
    {cudaErrorSystemDriverMismatch, "driver and user library differ: reboot, or reload the module"},
    {cudaErrorECCUncorrectable, "the GPU's memory has an uncorrectable error: see nvidia-smi -q"},
};

/* Returns whether `error` is one; then `why` gets what was being done, name, text and remedy. */
static bool cuda_failed(cudaError_t error, const char *doing, char why[WHY]) {
    if (error == cudaSuccess) return false;
    const char *advice = NULL;
    for (size_t i = 0; i < COUNT(advices); i++)
        if (advices[i].error == error) advice = advices[i].text;
    snprintf(why, WHY, "%s: %s (%s)%s%s", doing, cudaGetErrorName(error), cudaGetErrorString(error), advice ? "; " : "",
             advice ? advice : "");
    return true;
}

/* ---- The host ------------------------------------------------------------------------------
 * Linux's own files tell how much memory can be had and what kind of machine this is. Any of
 * them may be missing; then nothing is known and nothing is refused.
 */

/* Reads the beginning of a file into `text` (always terminated). Returns false if it can't. */
static bool read_text(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t n = fread(text, 1, size - 1, file);
    text[n] = 0;
    fclose(file);
    return n > 0;
}

/* Returns the number behind `key` in a file of "key number" lines, or `otherwise`. */
static unsigned long long read_number(const char *path, const char *key, unsigned long long otherwise) {
    char text[8192];
    if (!read_text(path, text, sizeof text)) return otherwise;
    const char *at = strstr(text, key);
    if (!at || !isdigit((unsigned char)at[strlen(key) + strspn(at + strlen(key), " :")]))
        return otherwise; /* "max": no limit */
    return strtoull(at + strlen(key) + strspn(at + strlen(key), " :"), NULL, 10);
}

/* Lowers `room` to what one control group's limit leaves; its page cache counts as free. */
static void cgroup_room(struct room *room, const char *folder, bool v2) {
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "memory.max" : "memory.limit_in_bytes");
    unsigned long long limit = read_number(path, "", ULLONG_MAX);
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "memory.current" : "memory.usage_in_bytes");
    unsigned long long used = read_number(path, "", 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    unsigned long long cache = read_number(path, v2 ? "\ninactive_file" : "total_inactive_file", 0);
    cache += read_number(path, v2 ? "\nactive_file" : "total_active_file", 0);
    used = used > cache ? used - cache : 0;
    unsigned long long left = limit > used ? limit - used : 0;
    if (limit != ULLONG_MAX && left < room->bytes) *room = (struct room){left, "memory limit of its control group"};
}

/* Returns how many bytes of host memory can be touched without the OOM killer: MemAvailable, or
 * what the control groups (version 2 and 1, all levels) leave. SIZE_MAX where nothing is known. */
static struct room host_room(void) {
    struct room room = {SIZE_MAX, "available memory"};
    unsigned long long kib = read_number("/proc/meminfo", "MemAvailable", ULLONG_MAX);
    if (kib != ULLONG_MAX) room.bytes = kib * 1024;
    char text[4096], folder[4200];
    if (!read_text("/proc/self/cgroup", text, sizeof text)) return room;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        bool v2 = strncmp(line, "0::", 3) == 0;
        char *path = strrchr(line, ':');
        if (!path || (!v2 && !strstr(line, ":memory:"))) continue;
        snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", v2 ? "" : "/memory", path + 1);
        size_t root = strlen("/sys/fs/cgroup") + (v2 ? 0 : strlen("/memory"));
        for (char *slash; strlen(folder) >= root; *slash = 0) {
            cgroup_room(&room, folder, v2);
            slash = strrchr(folder, '/');
        }
    }
    return room;
}

/* Returns "WSL2", "virtual machine" or "" for real hardware: the remedies differ. */
static const char *host_kind(void) {
    char text[8192];
    if (read_text("/proc/sys/kernel/osrelease", text, sizeof text) && strstr(text, "icrosoft")) return "WSL2";
    if (read_text("/proc/cpuinfo", text, sizeof text) && strstr(text, " hypervisor")) return "virtual machine";
    return "";
}

/* Writes the policy for transparent huge pages in force ("madvise") into `out`; "" if unknown. */
static void page_policy(char out[32]) {
    char text[256];
    out[0] = 0;
    if (read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) && strchr(text, '['))
        sscanf(strchr(text, '['), "[%31[a-z]", out);
}

/* Returns seconds of a clock that only goes forward. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- GPUs and NVML -------------------------------------------------------------------------
 * NVML comes with the driver and is loaded by hand, so that the program starts without it. Each
 * of its functions is looked up when it is needed; one that is missing, fails or answers nonsense
 * means "unknown". GPUs are matched by PCI bus id: the two libraries count them differently.
 */

typedef int nvml_handle_fn(const char *, void **);
typedef int nvml_uint_fn(void *, unsigned *);
typedef int nvml_cpus_fn(void *, unsigned, unsigned long *);
typedef int nvml_processes_fn(void *, unsigned *, void *);
typedef int nvml_utilization_fn(void *, unsigned[2]); /* nvmlUtilization_t: gpu, memory */

/* Stores the address of a function of NVML through `function`; false if there is none. */
static bool nvml_find(const struct run *run, const char *name, void *function) {
    void *address = run->nvml_lib ? dlsym(run->nvml_lib, name) : NULL;
    memcpy(function, &address, sizeof address); /* POSIX's way from object to function pointer */
    return address != NULL;
}

/* Loads NVML; without it run->nvml_lib stays NULL. It is never unloaded: the process ends. */
static void nvml_open(struct run *run) {
    int (*init)(void);
    run->nvml_lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml_find(run, "nvmlInit_v2", &init) || init() != 0) run->nvml_lib = NULL;
}

/* Returns what one of NVML's "unsigned of a device" functions answers, 0 where it does not. */
static unsigned nvml_uint(const struct gpu *gpu, const char *name) {
    nvml_uint_fn *function;
    unsigned value = 0;
    if (!gpu->nvml || !nvml_find(gpu->run, name, &function) || function(gpu->nvml, &value) != 0) return 0;
    return value;
}

/* A set of CPUs in the layout that sched_getaffinity and NVML share. */
struct cpus {
    cpu_set_t set[4];
};

/* Stores the CPUs near the GPU; false if NVML can't tell. */
static bool nvml_cpus(const struct gpu *gpu, struct cpus *cpus) {
    nvml_cpus_fn *function;
    memset(cpus, 0, sizeof *cpus);
    return gpu->nvml && nvml_find(gpu->run, "nvmlDeviceGetCpuAffinity", &function) &&
           function(gpu->nvml, sizeof *cpus / sizeof(unsigned long), (unsigned long *)cpus) == 0 &&
           CPU_COUNT_S(sizeof *cpus, cpus->set) > 0;
}

/* Returns GB/s per direction of a PCIe link, 0 where it is unknown. Gigatransfers double with each
 * generation (PCIe base specification): 0.25 GB/s a lane for Gen1, 0.5 for Gen2, ... 8 for Gen6. */
static double pcie_limit(unsigned gen, unsigned width) {
    if (gen < 1 || gen > 6 || width < 1 || width > 32) return 0;
    return ldexp(0.25, (int)gen - 1) * width;
}

/* Returns the limit of a link per direction in GB/s, NAN where there is none to speak of. */
static double link_limit(const struct link *link) {
    return link->kind == LINK_PCIE ? pcie_limit(link->gen, link->width) : NAN;
}

/* Writes the link's name as the Link line shows it into `out` and returns it. */
static const char *link_label(const struct link *link, char out[64]) {
    static const char *const names[] = {"PCIe (unknown)", "PCIe", "NVLink-C2C", "integrated (shared memory)"};
    if (link->kind == LINK_PCIE) snprintf(out, 64, "PCIe Gen%u x%u", link->gen, link->width);
    else snprintf(out, 64, "%s", names[link->kind]);
    return out;
}

/* Returns whether the link has been seen as fast as GPU and slot allow. */
static bool link_at_max(const struct link *link) {
    double most = pcie_limit(link->max_gen, link->max_width);
    return link->kind == LINK_PCIE && most > 0 && pcie_limit(link->gen, link->width) >= most;
}

/* Returns whether the link runs slower than GPU and slot allow. */
static bool link_below_max(const struct link *link) {
    return link->kind == LINK_PCIE && link->max_gen && !link_at_max(link);
}

/* Reads the link and keeps the fastest state seen: an idle GPU drops to Gen1, so this is called
 * right after copies. */
static void link_observe(struct gpu *gpu) {
    struct link *link = &gpu->link;
    if (link->kind == LINK_C2C || link->kind == LINK_INTEGRATED || link_at_max(link)) return;
    unsigned gen = nvml_uint(gpu, "nvmlDeviceGetCurrPcieLinkGeneration");
    unsigned width = nvml_uint(gpu, "nvmlDeviceGetCurrPcieLinkWidth");
    if (pcie_limit(gen, width) > pcie_limit(link->gen, link->width)) {
        link->kind = LINK_PCIE;
        link->gen = gen;
        link->width = width;
    }
    gen = nvml_uint(gpu, "nvmlDeviceGetMaxPcieLinkGeneration");
    width = nvml_uint(gpu, "nvmlDeviceGetMaxPcieLinkWidth");
    if (pcie_limit(gen, width) > 0) {
        link->max_gen = gen;
        link->max_width = width;
    }
}

/* Replaces bytes that are not UTF-8 by '?', so that JSON and SVG stay well-formed. */
static void clean_utf8(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        int more = *c < 0x80 ? 0 : *c < 0xC2 ? -1 : *c < 0xE0 ? 1 : *c < 0xF0 ? 2 : *c < 0xF5 ? 3 : -1, n = 0;
        while (n < more && (c[n + 1] & 0xC0) == 0x80) n++;
        if (n < more || more < 0) *c = '?';
        else c += more;
    }
}

/* Fills in name, uuid, bus id and kind of link; on failure gpu->lost says why. Makes no context.
 * Bus id and uuid are written as nvidia-smi writes them. */
static void gpu_identify(struct gpu *gpu) {
    struct cudaDeviceProp p;
    int integrated = 0, host_tables = 0;
    snprintf(gpu->name, sizeof gpu->name, "GPU %d", gpu->index);
    if (cuda_failed(cudaGetDeviceProperties(&p, gpu->index), "cudaGetDeviceProperties", gpu->lost)) return;
    snprintf(gpu->name, sizeof gpu->name, "%.255s", p.name);
    clean_utf8(gpu->name);
    gpu->memory = p.totalGlobalMem;
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%08X:%02X:%02X.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID & 0xff,
             (unsigned)p.pciDeviceID & 0xff);
    char *u = gpu->uuid + sprintf(gpu->uuid, "%s", strstr(p.name, " MIG ") ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++)
        u += sprintf(u, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                     (unsigned)(unsigned char)p.uuid.bytes[i]);
    cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, gpu->index);
    cudaDeviceGetAttribute(&host_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, gpu->index);
    gpu->link.kind = integrated ? LINK_INTEGRATED : host_tables ? LINK_C2C : LINK_UNKNOWN;
    nvml_handle_fn *handle;
    if (nvml_find(gpu->run, "nvmlDeviceGetHandleByPciBusId_v2", &handle) && handle(gpu->bus_id, &gpu->nvml) != 0)
        gpu->nvml = NULL;
}

/* Notes who else uses the GPU; called before this process has a context on it. */
static void gpu_observe_load(struct gpu *gpu) {
    nvml_processes_fn *processes;
    nvml_utilization_fn *utilization;
    unsigned percent[2] = {0, 0};
    if (gpu->nvml && nvml_find(gpu->run, "nvmlDeviceGetUtilizationRates", &utilization) &&
        utilization(gpu->nvml, percent) == 0 && percent[0] <= 100)
        gpu->busy_percent = percent[0];
    /* With no room for entries it answers "insufficient size" (7) and how many there are. */
    unsigned count = 0;
    if (gpu->nvml && nvml_find(gpu->run, "nvmlDeviceGetComputeRunningProcesses_v3", &processes) &&
        processes(gpu->nvml, &count, NULL) == 7)
        gpu->busy_processes = count;
}

/* Binds this thread, and those it starts, to the GPU's CPUs, unless the caller of the program
 * already chose CPUs; those are kept and gpu->far_cpus counts the ones that are not the GPU's. */
static void bind_cpus(struct gpu *gpu) {
    struct cpus near, caller, both;
    memset(&caller, 0, sizeof caller);
    if (gpu->run->opt->no_affinity || !nvml_cpus(gpu, &near) || sched_getaffinity(0, sizeof caller, caller.set) != 0)
        return;
    int chosen = CPU_COUNT_S(sizeof caller, caller.set);
    if (chosen >= sysconf(_SC_NPROCESSORS_ONLN)) {
        sched_setaffinity(0, sizeof near, near.set); /* if refused, the run is only less steady */
        return;
    }
    CPU_AND_S(sizeof both, both.set, near.set, caller.set);
    gpu->far_cpus = chosen - CPU_COUNT_S(sizeof both, both.set);
}

/* ---- Buffers -------------------------------------------------------------------------------
 * Both buffers of a GPU hold the same pattern, in which every word differs, so a copy that is
 * late, short or misplaced shows. They are allocated once, at the largest size that can be had,
 * and written by several threads at once.
 */

/* Returns the pattern's word at an offset, a multiple of 8. */
static uint64_t pattern(size_t offset) {
    return (offset / 8 + 1) * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: all bytes vary */
}

/* Works on [from, to) of a buffer, `from` being a multiple of 8. Returns the offset of the first
 * word found wrong, or SIZE_MAX. */
typedef size_t slice_fn(unsigned char *buffer, size_t from, size_t to);

/* Writes the pattern to every byte. */
static size_t fill(unsigned char *buffer, size_t from, size_t to) {
    uint64_t word;
    for (; from + 8 <= to; from += 8) {
        word = pattern(from);
        memcpy(buffer + from, &word, 8);
    }
    word = pattern(from);
    memcpy(buffer + from, &word, to - from);
    return SIZE_MAX;
}

/* Returns the next place to check after `at`: a page on, at last the last word, then `to`. */
static size_t next_spot(size_t at, size_t to) {
    size_t last = (to - 1) / 8 * 8;
    return at >= last ? to : at + PAGE < last ? at + PAGE : last;
}

/* Spoils a word in every page and the last one. */
static size_t poison(unsigned char *buffer, size_t from, size_t to) {
    for (; from < to; from = next_spot(from, to)) {
        uint64_t word = ~pattern(from);
        memcpy(buffer + from, &word, to - from < 8 ? to - from : 8);
    }
    return SIZE_MAX;
}

/* Compares the places that poison() spoils with the pattern. */
static size_t check(unsigned char *buffer, size_t from, size_t to) {
    for (; from < to; from = next_spot(from, to)) {
        uint64_t word = pattern(from);
        if (memcmp(buffer + from, &word, to - from < 8 ? to - from : 8) != 0) return from;
    }
    return SIZE_MAX;
}

struct slice {
    slice_fn *work;
    unsigned char *buffer;
    size_t from, to, found;
    pthread_t thread;
    bool started;
};

/* Thread body: works on one slice. */
static void *work_on_slice(void *argument) {
    struct slice *slice = argument;
    slice->found = slice->work(slice->buffer, slice->from, slice->to);
    return NULL;
}

/* Runs `work` over [from, to) on the CPUs that this thread may use, up to MAX_FILL_THREADS; a slice
 * that gets no thread is done here. Returns the lowest offset found wrong, or SIZE_MAX. */
static size_t in_slices(slice_fn *work, unsigned char *buffer, size_t from, size_t to) {
    struct slice slices[MAX_FILL_THREADS];
    struct cpus cpus = {0};
    size_t n = sched_getaffinity(0, sizeof cpus, cpus.set) ? 1 : (size_t)CPU_COUNT_S(sizeof cpus, cpus.set);
    n = to - from < MIB ? 1 : n > MAX_FILL_THREADS ? MAX_FILL_THREADS : n;
    size_t each = ((to - from) / n + PAGE) / PAGE * PAGE, found = SIZE_MAX;
    for (struct slice *slice = slices; slice < slices + n; slice++) {
        size_t end = from + each < to ? from + each : to;
        *slice = (struct slice){.work = work, .buffer = buffer, .from = from, .to = end};
        slice->started = n > 1 && pthread_create(&slice->thread, NULL, work_on_slice, slice) == 0;
        if (!slice->started) work_on_slice(slice);
        from = end;
    }
    for (struct slice *slice = slices; slice < slices + n; slice++) {
        if (slice->started) pthread_join(slice->thread, NULL);
        if (slice->found < found) found = slice->found;
    }
    return found;
}

/* A named row of a table that users choose from; every such row begins with it. */
struct choice {
    const char *name, *help;
};

/* A kind of memory: how to get it (an error, or the buffer in `*at`) and how to give it back. */
struct memory {
    struct choice choice;
    cudaError_t (*get)(void **at, size_t bytes);
    void (*release)(void *at);
};

/* Memory of the GPU. */
static cudaError_t get_device(void **at, size_t bytes) { return cudaMalloc(at, bytes); }
/* Gives it back. */
static void free_device(void *at) { cudaFree(at); }

/* Pageable memory; given back by free(). */
static cudaError_t get_malloc(void **at, size_t bytes) {
    *at = malloc(bytes);
    return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Page-locked memory. */
static cudaError_t get_pinned(void **at, size_t bytes) { return cudaMallocHost(at, bytes); }
/* Gives page-locked memory back. */
static void free_pinned(void *at) { cudaFreeHost(at); }

/* Page-locked memory that the CPU writes fast and reads slowly. */
static cudaError_t get_write_combined(void **at, size_t bytes) {
    return cudaHostAlloc(at, bytes, cudaHostAllocWriteCombined);
}

/* Writing the pages first makes registering ten times as fast. */
static cudaError_t get_registered(void **at, size_t bytes) {
    cudaError_t error = get_malloc(at, bytes);
    if (error != cudaSuccess) return error;
    in_slices(fill, *at, 0, bytes);
    error = cudaHostRegister(*at, bytes, cudaHostRegisterDefault);
    if (error != cudaSuccess) free(*at);
    return error;
}

/* Gives registered memory back. */
static void free_registered(void *at) {
    cudaHostUnregister(at);
    free(at);
}

static const struct memory device_memory = {{"GPU", "cudaMalloc"}, get_device, free_device};
static const struct memory pageable_memory = {{"pageable host", "malloc"}, get_malloc, free};
static const struct memory pin_methods[] = {
    {{"malloc-host", "cudaMallocHost"}, get_pinned, free_pinned},
    {{"register", "malloc, then cudaHostRegister"}, get_registered, free_registered},
    {{"write-combined", "cudaHostAlloc with cudaHostAllocWriteCombined"}, get_write_combined, free_pinned},
};

/* Returns the largest of the sizes asked for that is below `limit`, 0 if there is none. */
static size_t next_smaller(const struct options *opt, size_t limit) {
    size_t best = 0;
    for (int i = 0; i < opt->nsizes; i++)
        if (opt->sizes[i] < limit && opt->sizes[i] > best) best = opt->sizes[i];
    return best;
}

/* Marks the cells of one size as failed: those of one kind of memory, or of all if it is DEVICE. */
static void fail_size(struct gpu *gpu, enum kind kind, size_t bytes, const char *why) {
    bool told = false;
    for (struct row *row = gpu->rows; row < gpu->rows + gpu->run->nrows; row++)
        for (enum kind k = PAGEABLE; k < KINDS; k++) {
            struct cell *cell = &row->cell[k];
            if (row->bytes != bytes || (kind != DEVICE && kind != k) || cell->why[0]) continue;
            strcpy(cell->why, why);
            cell->again = told;
            told = true;
        }
}

/* Gets one buffer, at the largest of the sizes up to `limit` that can be had, and writes it if it is
 * the host's; larger sizes fail with the reason. Host memory is taken from gpu->room and refused
 * before the OOM killer comes. */
static void get_buffer(struct gpu *gpu, enum kind kind, size_t limit) {
    struct room *room = &gpu->room;
    const struct options *opt = gpu->run->opt;
    struct buffer *buffer = &gpu->buffers[kind];
    char why[WHY], doing[96], size[32];
    buffer->memory = kind == DEVICE ? &device_memory : kind == PAGEABLE ? &pageable_memory : opt->pin;
    for (size_t n = limit; n && !buffer->bytes; n = next_smaller(opt, n)) {
        snprintf(doing, sizeof doing, "allocating %s of %s memory", size_label(n, size),
                 kind == PINNED ? "pinned host" : buffer->memory->choice.name);
        if (kind != DEVICE && (n > room->bytes || room->bytes - n < host_reserve)) {
            snprintf(why, WHY, "%s: %.1f GB are left (%s), try smaller --sizes", doing,
                     (double)room->bytes / (double)GIB, room->source);
        } else if (!cuda_failed(buffer->memory->get(&buffer->at, n), doing, why)) {
            buffer->bytes = n;
            if (kind != DEVICE && room->bytes != SIZE_MAX) room->bytes -= n;
            continue;
        } else {
            cudaGetLastError(); /* out of memory does not stick */
            if (kind == PINNED && strcmp(host_kind(), "WSL2") == 0)
                strncat(why, "; WSL2 caps pinned memory", WHY - strlen(why) - 1);
        }
        fail_size(gpu, kind, n, why);
    }
    if (kind != DEVICE && buffer->bytes) in_slices(fill, buffer->at, 0, buffer->bytes);
}

/* Thread body: gets the pageable buffer, no larger than the GPU could take. */
static void *get_pageable(void *argument) {
    struct gpu *gpu = argument;
    get_buffer(gpu, PAGEABLE, next_smaller(gpu->run->opt, gpu->memory + 1));
    return NULL;
}

/* Returns how much of a host buffer the GPU has room for too, `most` at the most. */
static size_t usable_bytes(const struct gpu *gpu, enum kind kind, size_t most) {
    size_t host = gpu->buffers[kind].bytes, device = gpu->buffers[DEVICE].bytes;
    size_t both = host < device ? host : device;
    return both < most ? both : most;
}

/* Gives whole pages back to the kernel: reads then see the zero page, as after a fresh malloc. */
static void drop_pages(unsigned char *buffer, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)buffer + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)buffer + bytes) / page * page;
    if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* ---- Timing --------------------------------------------------------------------------------
 * A thread drives each GPU: it binds itself, allocates, and measures row by row, while the main
 * thread prints. GPUs measured in turn and at once differ only in how many threads run: in each
 * of them a barrier stands before every timed loop, and every thread comes to every barrier,
 * whatever failed or was interrupted before.
 */

static const struct direction directions[] = {
    {.name = "H2D", .in = true, .limit_in_text = true},
    {.name = "D2H", .out = true},
    {.name = "BiD", .in = true, .out = true, .limit_in_text = true},
};

/* Returns how many bytes of a copy go in, whole words; the rest comes out. */
static size_t bytes_in(const struct direction *direction, size_t bytes) {
    return !direction->out ? bytes : direction->in ? bytes / 16 * 8 : 0;
}

/* Returns whether measuring should end early. */
static bool stopping(struct run *run) { return interrupted || atomic_load(&run->stop); }

/* Issues one copy; BiD issues its halves on two streams, as a program would. */
static cudaError_t issue_copy(const struct gpu *gpu, const struct row *row, unsigned char *host) {
    unsigned char *device = gpu->buffers[DEVICE].at;
    size_t in = bytes_in(row->direction, row->bytes);
    if (!row->direction->out) return cudaMemcpy(device, host, in, cudaMemcpyHostToDevice);
    if (!row->direction->in) return cudaMemcpy(host, device, row->bytes, cudaMemcpyDeviceToHost);
    cudaError_t error = cudaMemcpyAsync(device, host, in, cudaMemcpyHostToDevice, gpu->streams[0]);
    if (error != cudaSuccess) return error;
    return cudaMemcpyAsync(host + in, device + in, row->bytes - in, cudaMemcpyDeviceToHost, gpu->streams[1]);
}

/* Makes one copy and returns its GB/s, or NAN, why in `why`. The events are recorded in the legacy
 * default stream, which waits for all other streams and holds them back (CUDA runtime API, "Stream
 * synchronization behavior"), so they enclose BiD's halves too. */
static double time_copy(const struct gpu *gpu, const struct row *row, void *host, char why[WHY]) {
    float ms = NAN;
    if (cuda_failed(cudaEventRecord(gpu->start, 0), "cudaEventRecord", why) ||
        cuda_failed(issue_copy(gpu, row, host), "cudaMemcpy", why) ||
        cuda_failed(cudaEventRecord(gpu->stop, 0), "cudaEventRecord", why) ||
        cuda_failed(cudaEventSynchronize(gpu->stop), "cudaEventSynchronize", why) ||
        cuda_failed(cudaEventElapsedTime(&ms, gpu->start, gpu->stop), "cudaEventElapsedTime", why))
        return NAN;
    if (ms > 0 && isfinite(ms)) return (double)row->bytes / ms / 1e6;
    snprintf(why, WHY, "the elapsed time of a copy reads %g ms", (double)ms);
    return NAN;
}

/* Copies the pattern to the first `bytes` of the device buffer. False: why in `why`. */
static bool seed_device(struct gpu *gpu, enum kind kind, size_t bytes, char why[WHY]) {
    if (cuda_failed(cudaMemcpy(gpu->buffers[DEVICE].at, gpu->buffers[kind].at, bytes, cudaMemcpyHostToDevice),
                    "initialising the device buffer", why))
        return false;
    if (bytes > gpu->seeded) gpu->seeded = bytes;
    return true;
}

/* After a failure: if the next call fails too, the context is dead, and the reason is kept. CUDA's
 * documentation calls such errors sticky. */
static void note_if_lost(struct gpu *gpu, const char *why) {
    cudaGetLastError();
    if (cudaDeviceSynchronize() == cudaSuccess || gpu->lost[0]) return;
    strcpy(gpu->lost, why);
}

/* Brings cell and buffers into the state that a timed loop starts from. False: why in the cell. */
static bool prepare_cell(struct gpu *gpu, const struct row *row, enum kind kind, struct cell *cell) {
    const struct options *opt = gpu->run->opt;
    unsigned char *host = gpu->buffers[kind].at;
    size_t in = bytes_in(row->direction, row->bytes);
    cell->samples = malloc(2 * (size_t)opt->iters * sizeof *cell->samples);
    if (!cell->samples) {
        snprintf(cell->why, WHY, "keeping %d samples: %s", opt->iters, strerror(errno));
        return false;
    }
    if (row->direction->out && gpu->seeded < row->bytes) {
        in_slices(fill, host, 0, row->bytes);
        if (!seed_device(gpu, kind, row->bytes, cell->why)) return false;
    }
    if (opt->untouched && kind == PAGEABLE && in) {
        drop_pages(host, in);
        gpu->seeded = 0; /* the copies bring zeros */
    }
    if (row->direction->out && !opt->no_verify) in_slices(poison, host, in, row->bytes);
    return true;
}

/* Checks what the copies brought to the host; a mismatch fails the cell. Where the pattern did not
 * come back whole it is written anew, for the rows that follow. */
static void verify_cell(struct gpu *gpu, const struct row *row, enum kind kind, struct cell *cell) {
    size_t in = bytes_in(row->direction, row->bytes);
    if (!row->direction->out || gpu->run->opt->no_verify) return;
    size_t wrong = in_slices(check, gpu->buffers[kind].at, in, row->bytes);
    if (wrong == SIZE_MAX) return;
    in_slices(fill, gpu->buffers[kind].at, 0, row->bytes);
    if (!cell->why[0] && cell->count) snprintf(cell->why, WHY, "data mismatch at offset %zu", wrong);
}

/* Measures one cell: warm-up copies, the barrier, timed copies, the check. Always comes to the barrier. */
static void measure_cell(struct gpu *gpu, struct row *row, enum kind kind) {
    const struct options *opt = gpu->run->opt;
    struct cell *cell = &row->cell[kind];
    if (gpu->lost[0] && !cell->why[0]) {
        strcpy(cell->why, gpu->lost);
        cell->again = gpu->lost_told;
        gpu->lost_told = true;
    }
    bool measurable = !cell->why[0] && !stopping(gpu->run);
    bool ready = measurable && prepare_cell(gpu, row, kind, cell);
    for (int i = -opt->warmup; i < opt->iters; i++) {
        if (i == 0) pthread_barrier_wait(&gpu->run->start);
        if (cell->why[0] || !ready || stopping(gpu->run)) continue;
        atomic_store(&gpu->at_copy, i + opt->warmup + 1);
        double gbps = time_copy(gpu, row, gpu->buffers[kind].at, cell->why);
        if (i >= 0 && !isnan(gbps)) cell->samples[cell->count++] = gbps;
    }
    if (!measurable) return;
    link_observe(gpu);
    if (ready) verify_cell(gpu, row, kind, cell);
    if (cell->why[0]) {
        cell->count = 0;
        note_if_lost(gpu, cell->why);
        gpu->lost_told |= gpu->lost[0] != 0;
    } else if (cell->count && !row->direction->out && !(opt->untouched && kind == PAGEABLE) &&
               row->bytes > gpu->seeded) {
        gpu->seeded = row->bytes;
    }
}

/* Makes the context, streams and events. False on failure: gpu->lost says why. */
static bool open_gpu(struct gpu *gpu) {
    return !(cuda_failed(cudaSetDevice(gpu->index), "cudaSetDevice", gpu->lost) ||
             cuda_failed(cudaStreamCreate(&gpu->streams[0]), "cudaStreamCreate", gpu->lost) ||
             cuda_failed(cudaStreamCreate(&gpu->streams[1]), "cudaStreamCreate", gpu->lost) ||
             cuda_failed(cudaEventCreate(&gpu->start), "cudaEventCreate", gpu->lost) ||
             cuda_failed(cudaEventCreate(&gpu->stop), "cudaEventCreate", gpu->lost));
}

/* Makes context and buffers, and copies until the link has woken up. The pageable buffer is got and
 * written beside the context: that saves 0.17 s of a default run on an H200. Beside cudaMallocHost it
 * saved nothing. */
static void set_up(struct gpu *gpu) {
    char why[WHY];
    pthread_t thread;
    if (gpu->lost[0]) return;
    gpu_observe_load(gpu);
    bind_cpus(gpu);
    gpu->room = host_room();
    bool beside = pthread_create(&thread, NULL, get_pageable, gpu) == 0;
    bool opened = open_gpu(gpu);
    if (beside) pthread_join(thread, NULL);
    else get_pageable(gpu);
    if (!opened) return;
    get_buffer(gpu, DEVICE, next_smaller(gpu->run->opt, SIZE_MAX));
    get_buffer(gpu, PINNED, gpu->buffers[DEVICE].bytes);
    enum kind kind = gpu->buffers[PINNED].bytes ? PINNED : PAGEABLE;
    size_t bytes = usable_bytes(gpu, kind, wake_bytes);
    for (int i = 0; i < LINK_TRIES && (i == 0 || link_below_max(&gpu->link)); i++) {
        if (bytes && !seed_device(gpu, kind, bytes, why)) note_if_lost(gpu, why);
        link_observe(gpu);
    }
}

/* Releases what set_up() made. */
static void tear_down(struct gpu *gpu) {
    for (int k = 0; k <= KINDS; k++)
        if (gpu->buffers[k].bytes) gpu->buffers[k].memory->release(gpu->buffers[k].at);
    for (int i = 0; i < 2; i++)
        if (gpu->streams[i]) cudaStreamDestroy(gpu->streams[i]);
    if (gpu->start) cudaEventDestroy(gpu->start);
    if (gpu->stop) cudaEventDestroy(gpu->stop);
}

/* Returns GB/s for work on `bytes` that began at `start` (seconds of now()). */
static double rate_since(double start, size_t bytes) { return (double)bytes / (now() - start) / 1e9; }

/* For --explain: measures what makes pageable copies slow and pinned memory dear, into
 * gpu->explained; what fails stays NAN. Its one buffer is explain_bytes or the largest size. */
static void measure_explanation(struct gpu *gpu) {
    struct explain *e = &gpu->explained;
    size_t n = usable_bytes(gpu, PAGEABLE, explain_bytes);
    struct row row = {.bytes = n, .direction = &directions[1]};
    char *why = gpu->explain_why;
    void *fresh = NULL, *pinned;
    if (gpu->lost[0] || !n || host_room().bytes / 2 < n || !(fresh = malloc(n))) {
        snprintf(why, WHY, "%s", gpu->lost[0] ? gpu->lost : "no memory for it");
        return;
    }
    drop_pages(fresh, n); /* malloc may hand out pages that were used before */
    e->cold_gbps = time_copy(gpu, &row, fresh, why);
    e->warm_gbps = time_copy(gpu, &row, fresh, why);
    in_slices(fill, gpu->buffers[PAGEABLE].at, 0, n); /* --untouched may have dropped it */
    for (int i = 0; i < 3; i++) {
        double start = now();
        memcpy(fresh, gpu->buffers[PAGEABLE].at, n);
        __asm__ volatile("" : : "r"(fresh) : "memory");              /* keeps the compiler from dropping the copy */
        e->memcpy_gbps = fmax(e->memcpy_gbps, rate_since(start, n)); /* the ceiling is asked for */
    }
    double start = now();
    if (!cuda_failed(cudaHostRegister(fresh, n, cudaHostRegisterDefault), "cudaHostRegister", why)) {
        e->register_s_per_gb = 1 / rate_since(start, n);
        cudaHostUnregister(fresh);
    }
    free(fresh);
    start = now();
    if (!cuda_failed(cudaMallocHost(&pinned, n), "cudaMallocHost", why)) {
        e->malloc_host_s_per_gb = 1 / rate_since(start, n);
        cudaFreeHost(pinned);
    }
    cudaGetLastError();
}

/* Thread body: all of one GPU. Posts when set up, after each row, and when finished. */
static void *drive_gpu(void *argument) {
    struct gpu *gpu = argument;
    struct run *run = gpu->run;
    pthread_mutex_lock(&run->setup);
    set_up(gpu);
    pthread_mutex_unlock(&run->setup);
    sem_post(&gpu->posted);
    for (int r = 0; r < run->nrows; r++) {
        for (enum kind kind = PAGEABLE; kind < KINDS; kind++) {
            atomic_store(&gpu->at_copy, 0);
            atomic_store(&gpu->at_kind, (int)kind);
            atomic_store(&gpu->at_row, r);
            measure_cell(gpu, &gpu->rows[r], kind);
        }
        sem_post(&gpu->posted);
    }
    pthread_mutex_lock(&run->setup);
    if (run->opt->explain && !stopping(run)) measure_explanation(gpu);
    pthread_mutex_unlock(&run->setup);
    sem_post(&gpu->posted);
    tear_down(gpu);
    return NULL;
}

/* ---- Statistics ----------------------------------------------------------------------------
 * Pure functions from samples to figures; NAN stands for what was not measured.
 */

/* Orders two doubles for qsort. */
static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the statistics of a cell's samples (stddev is the sample's, n - 1). */
static struct stats stats_of(const struct cell *cell, int iters) {
    struct stats s = {NAN, NAN, NAN, NAN, NAN};
    int n = cell->count;
    if (n == 0) return s;
    double sum = 0, squares = 0, *sorted = cell->samples + iters;
    memcpy(sorted, cell->samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    for (int i = 0; i < n; i++) sum += sorted[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++) squares += (sorted[i] - s.mean) * (sorted[i] - s.mean);
    s.stddev = n > 1 ? sqrt(squares / (n - 1)) : 0;
    s.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    s.min = sorted[0];
    s.max = sorted[n - 1];
    return s;
}

struct summary {
    double mean[KINDS], ratio;    /* GB/s: mean of the medians; pinned mean over pageable mean */
    double limit, percent[KINDS]; /* limit of the direction in GB/s and share of it */
    bool partial;                 /* small sizes were left out */
};

/* Sums up one direction of a GPU over the sizes from summary_from on, or over all. */
static struct summary summarize(const struct gpu *gpu, const struct direction *direction) {
    const struct run *run = gpu->run;
    struct summary s = {.partial = false};
    bool any_large = false;
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++)
        any_large |= row->bytes >= summary_from && (row->cell[PAGEABLE].count || row->cell[PINNED].count);
    for (int k = 0; k < KINDS; k++) {
        int n = 0;
        double sum = 0;
        for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++) {
            if (row->direction != direction || isnan(row->cell[k].gbps.median)) continue;
            if (any_large && row->bytes < summary_from) {
                s.partial = true;
                continue;
            }
            sum += row->cell[k].gbps.median;
            n++;
        }
        s.mean[k] = n ? sum / n : NAN;
    }
    s.ratio = s.mean[PINNED] / s.mean[PAGEABLE];
    s.limit = link_limit(&gpu->link) * (direction->in && direction->out ? 2 : 1);
    for (int k = 0; k < KINDS; k++) s.percent[k] = s.mean[k] / s.limit * 100;
    return s;
}

/* What every format shows of a summary; its first three stand in the text's first block. */
static const struct summary_field {
    const char *label, *key, *format;
    size_t at;
} summary_fields[] = {
    {"Pageable", "pageable", "%.1f GB/s", offsetof(struct summary, mean[PAGEABLE])},
    {"Pinned", "pinned", "%.1f GB/s", offsetof(struct summary, mean[PINNED])},
    {"Ratio", "ratio", "%.1fx", offsetof(struct summary, ratio)},
    {"Limit", "limit", "~%.4g GB/s", offsetof(struct summary, limit)},
    {"Pinned efficiency", "pinned_percent", "%.0f%%", offsetof(struct summary, percent[PINNED])},
    {"Pageable efficiency", "pageable_percent", "%.0f%%", offsetof(struct summary, percent[PAGEABLE])},
};
enum { FIRST_BLOCK = 3 };

/* Returns whether anything of a row was measured or failed, so that it belongs into the report. */
static bool row_begun(const struct row *row) {
    return row->cell[PAGEABLE].count || row->cell[PINNED].count || row->cell[PAGEABLE].why[0] ||
           row->cell[PINNED].why[0];
}

/* Writes a row's status into `out`: "ok", "interrupted", or "failed: " and the reasons. */
static const char *row_status(const struct gpu *gpu, const struct row *row, char out[STATUS_SIZE]) {
    const char *pageable = row->cell[PAGEABLE].why, *pinned = row->cell[PINNED].why;
    int iters = gpu->run->opt->iters;
    if (!*pageable && !*pinned)
        return row->cell[PAGEABLE].count < iters || row->cell[PINNED].count < iters ? "interrupted" : "ok";
    bool both = *pageable && *pinned && strcmp(pageable, pinned) != 0;
    snprintf(out, STATUS_SIZE, "failed: %s%s%s", *pageable ? pageable : pinned, both ? "; " : "", both ? pinned : "");
    return out;
}

/* A figure of --explain: its JSON key, its value (a word where it is no number), and the sentence
 * that follows from it; "" for a figure that another one's sentence names. */
struct figure {
    const char *key;
    double value;
    char word[32], text[WHY];
};
enum { FIGURES = 8 };

/* Writes what pinning costs and, where copies were measured to set against it, when it has paid for
 * itself. `saved` is seconds per GB that a pinned copy saves. Returns the number of copies or NAN. */
static double explain_pinning(struct figure *figure, const char *what, double saved, const char *size) {
    double copies = saved > 0 ? ceil(figure->value / saved) : NAN;
    int n = snprintf(figure->text, WHY, "%.2f s per GB for %s", figure->value, what);
    if (copies > 0)
        snprintf(figure->text + n, WHY - (size_t)n, ": paid for after %.0f H2D cop%s of %s", copies,
                 copies == 1 ? "y" : "ies", size);
    else if (saved <= 0) strcat(figure->text, ": not paid for by copies, pinned H2D was not faster");
    return copies;
}

/* Turns what was measured into figures and sentences. A sentence says what its figures show, also
 * where that is not the usual story, and no more where a figure is missing. */
static void explain_figures(const struct gpu *gpu, struct figure f[FIGURES]) {
    const struct explain *e = &gpu->explained;
    double rate[KINDS] = {NAN, NAN};
    char size[32];
    size_t largest = 0;
    for (const struct row *row = gpu->rows; row < gpu->rows + gpu->run->nrows; row++)
        if (row->direction == directions && row->bytes >= largest && row->cell[PAGEABLE].count) {
            largest = row->bytes;
            for (int k = 0; k < KINDS; k++) rate[k] = row->cell[k].gbps.median;
        }
    double saved = 1 / rate[PAGEABLE] - 1 / rate[PINNED], share = rate[PAGEABLE] / e->memcpy_gbps;
    size_label(largest, size);
    memset(f, 0, FIGURES * sizeof *f);
    f[0] = (struct figure){.key = "memcpy_gbps", .value = e->memcpy_gbps};
    int n = snprintf(f[0].text, WHY, "%.1f GB/s for memcpy by one core", e->memcpy_gbps);
    if (!isnan(share))
        snprintf(f[0].text + n, WHY - (size_t)n, ": pageable H2D of %s ran at %.0f %% of it, %s", size, share * 100,
                 gpu->run->opt->untouched ? "reading a source that was never written"
                 : share < 1.3            ? "as a CPU copying into a pinned staging buffer would"
                                          : "more than one core's plain copy gives");
    f[1] = (struct figure){.key = "d2h_cold_gbps", .value = e->cold_gbps};
    snprintf(f[1].text, WHY, "%.1f GB/s for D2H into a fresh malloc buffer, %.1f GB/s into it again: first touch %s",
             e->cold_gbps, e->warm_gbps,
             e->cold_gbps < 0.8 * e->warm_gbps ? "is paid by the first copy" : "cost little here");
    f[2] = (struct figure){.key = "d2h_warm_gbps", .value = e->warm_gbps};
    f[3] = (struct figure){.key = "malloc_host_s_per_gb", .value = e->malloc_host_s_per_gb};
    f[4] = (struct figure){.key = "malloc_host_paid_after_copies"};
    f[4].value = explain_pinning(&f[3], "cudaMallocHost", saved, size);
    f[5] = (struct figure){.key = "register_s_per_gb", .value = e->register_s_per_gb};
    f[6] = (struct figure){.key = "register_paid_after_copies"};
    f[6].value = explain_pinning(&f[5], "cudaHostRegister of written memory", saved, size);
    for (int i = 0; i < FIGURES; i++)
        if (isnan(f[i].value)) f[i].text[0] = 0;
    f[7] = (struct figure){.key = "page_policy"};
    page_policy(f[7].word);
    if (f[7].word[0])
        snprintf(f[7].text, WHY, "%s: transparent huge pages, malloc gets %s", f[7].word,
                 strcmp(f[7].word, "always") ? "4 KiB pages unless a program asks for more"
                                             : "2 MiB pages where it can");
}

/* ---- Reports -------------------------------------------------------------------------------
 * A writer gets the document's begin and end with no GPU, then begin, its rows and end for every
 * GPU and for the totals. All formats render the same columns[].
 */

enum field { HOST, INDEX, NAME, BUS_ID, LINK, LABEL, BYTES, DIRECTION, STAT, RATIO, DELTA, STATUS };

static const struct column {
    const char *csv;          /* NULL: not in CSV */
    const char *heading;      /* in the tables that people read; NULL: not there */
    const char *format;       /* of the figure there */
    int heading_width, width; /* in the text table; negative: left-aligned */
    enum field field;
    enum kind kind; /* of a STAT, and where it is in struct stats */
    size_t stat;
} columns[] = {
#define STAT_OF(of, member) .field = STAT, .kind = of, .stat = offsetof(struct stats, member)
    {"host", .field = HOST},
    {"gpu_index", .field = INDEX},
    {"gpu_name", .field = NAME},
    {"bus_id", .field = BUS_ID},
    {"link", .field = LINK},
    {NULL, "Size", "%s", -6, -6, .field = LABEL},
    {"size_bytes", .field = BYTES},
    {"direction", "Dir", "%s", 4, 4, .field = DIRECTION},
    {"pageable_gbps", "Pageable", "%.2f GB/s", 12, 15, STAT_OF(PAGEABLE, median)},
    {"pinned_gbps", "Pinned", "%.2f GB/s", 12, 12, STAT_OF(PINNED, median)},
    {"ratio", "Ratio", "%.1fx", 10, 8, .field = RATIO},
    {"delta_gbps", "Pin-page", "%+.2f GB/s", 12, 13, .field = DELTA},
    {"pageable_mean_gbps", STAT_OF(PAGEABLE, mean)},
    {"pageable_min_gbps", STAT_OF(PAGEABLE, min)},
    {"pageable_max_gbps", STAT_OF(PAGEABLE, max)},
    {"pageable_stddev_gbps", STAT_OF(PAGEABLE, stddev)},
    {"pinned_mean_gbps", STAT_OF(PINNED, mean)},
    {"pinned_min_gbps", STAT_OF(PINNED, min)},
    {"pinned_max_gbps", STAT_OF(PINNED, max)},
    {"pinned_stddev_gbps", STAT_OF(PINNED, stddev)},
    {"status", .field = STATUS},
};

/* A column's value in one row: a text, or where that is NULL a number, NAN if unknown. */
struct value {
    const char *text;
    double number;
    char buffer[STATUS_SIZE + WHY];
};

/* Fetches the value of a column. */
static void get_value(const struct column *c, const struct gpu *gpu, const struct row *row, struct value *v) {
    const struct options *opt = gpu->run->opt;
    char status[STATUS_SIZE];
    v->text = NULL;
    v->number = NAN;
    switch (c->field) {
    case HOST: v->text = gpu->run->host; break;
    case INDEX: v->number = gpu->index; break;
    case NAME: v->text = gpu->name; break;
    case BUS_ID: v->text = gpu->bus_id; break;
    case LINK: v->text = gpu->index < 0 ? "" : link_label(&gpu->link, v->buffer); break;
    case LABEL: v->text = size_label(row->bytes, v->buffer); break;
    case BYTES:
        snprintf(v->buffer, sizeof v->buffer, "%zu", row->bytes);
        v->text = v->buffer;
        break;
    case DIRECTION: v->text = row->direction->name; break;
    case STAT: v->number = member(&row->cell[c->kind].gbps, c->stat); break;
    case RATIO: v->number = row->cell[PINNED].gbps.median / row->cell[PAGEABLE].gbps.median; break;
    case DELTA: v->number = row->cell[PINNED].gbps.median - row->cell[PAGEABLE].gbps.median; break;
    case STATUS:
        snprintf(v->buffer, sizeof v->buffer, "%s%s%s%s", row_status(gpu, row, status),
                 opt->untouched ? "; " UNTOUCHED : "", opt->pin == pin_methods ? "" : "; pinned by ",
                 opt->pin == pin_methods ? "" : opt->pin->choice.help);
        v->text = v->buffer;
        break;
    }
    if (c->field == INDEX && gpu->index < 0) v->text = "total";
}

/* What a format writes instead of a character; NULL: the character itself. */
typedef const char *escape_fn(unsigned char c, char buffer[8]);

/* RFC 8259: quotes, backslashes and control characters. */
static const char *escape_json(unsigned char c, char buffer[8]) {
    if (c >= ' ' && c != '"' && c != '\\') return NULL;
    snprintf(buffer, 8, c < ' ' ? "\\u%04x" : "\\%c", c);
    return buffer;
}

/* RFC 4180: quotes are doubled; the field is quoted by csv_row(). */
static const char *escape_csv(unsigned char c, char buffer[8]) {
    (void)buffer;
    return c == '"' ? "\"\"" : NULL;
}

/* XML 1.0 has no control characters at all. */
static const char *escape_xml(unsigned char c, char buffer[8]) {
    snprintf(buffer, 8, "&#%d;", c);
    return c < ' ' ? " " : strchr("<>&\"", c) ? buffer : NULL;
}

/* What GitHub would take for markup. */
static const char *escape_markdown(unsigned char c, char buffer[8]) {
    snprintf(buffer, 8, strchr("<&", c) ? "&#%d;" : "\\%c", c);
    return c < ' ' ? " " : strchr("<&\\|*_`[]#~", c) ? buffer : NULL;
}

/* A name must not move the cursor. */
static const char *escape_text(unsigned char c, char buffer[8]) {
    (void)buffer;
    return c < ' ' || c == 127 ? "?" : NULL;
}

/* Writes a text with each character as the format needs it; bytes of UTF-8 stay. */
static void put(FILE *out, const char *text, escape_fn *escape) {
    char buffer[8];
    for (; *text; text++) {
        const char *instead = escape((unsigned char)*text, buffer);
        if (instead) fputs(instead, out);
        else fputc(*text, out);
    }
}

/* Writes lead, number and tail; `unknown` instead of number and tail for NAN and infinity. */
static void put_number(const char *lead, const char *format, double number, const char *unknown) {
    fputs(lead, stdout);
    if (isfinite(number)) printf(format, number);
    else fputs(unknown, stdout);
}

/* Writes a value as people read it into `out`. */
static const char *readable(const struct column *c, const struct value *v, char out[64]) {
    if (v->text) return v->text;
    snprintf(out, 64, isfinite(v->number) ? c->format : "-", v->number);
    return out;
}

/* Where notes go and what stands around them. */
struct notes {
    FILE *out;
    const char *first, *lead, *tail; /* before the first, before the others, behind each */
    escape_fn *escape;
    int count;
};

/* Writes one note. */
__attribute__((format(printf, 2, 3))) static void note(struct notes *to, const char *format, ...) {
    char text[3 * WHY];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs(to->count++ ? to->lead : to->first, to->out);
    put(to->out, text, to->escape);
    fputs(to->tail, to->out);
}

/* The rules: each looks for one thing that a reader must know to read the figures. */

/* Each reason once. */
static void note_failures(struct notes *to, const struct gpu *gpu) {
    char size[32];
    for (const struct row *row = gpu->rows; row < gpu->rows + gpu->run->nrows; row++)
        for (enum kind k = PAGEABLE; k < KINDS; k++)
            if (row->cell[k].why[0] && !row->cell[k].again)
                note(to, "%s %s %s failed: %s", size_label(row->bytes, size), row->direction->name, kind_names[k],
                     row->cell[k].why);
}

/* How much is there after Ctrl-C. */
static void note_interruption(struct notes *to, const struct gpu *gpu) {
    int begun = 0;
    for (int r = 0; r < gpu->run->nrows; r++) begun += row_begun(&gpu->rows[r]);
    if (interrupted)
        note(to, "interrupted: %d of %d rows were begun, the last may hold fewer copies", begun, gpu->run->nrows);
}

/* Options that change what a column means. */
static void note_settings(struct notes *to, const struct gpu *gpu) {
    const struct options *opt = gpu->run->opt;
    if (opt->untouched) note(to, UNTOUCHED " (--untouched)");
    if (opt->pin != pin_methods)
        note(to, "pinned memory from %s (--pin %s)", opt->pin->choice.help, opt->pin->choice.name);
}

/* A link below its maximum under load. */
static void note_slow_link(struct notes *to, const struct gpu *gpu) {
    bool virtual = strcmp(host_kind(), "virtual machine") == 0;
    if (link_below_max(&gpu->link))
        note(to, "the link ran at Gen%u x%u under load, GPU and slot can do Gen%u x%u: %s", gpu->link.gen,
             gpu->link.width, gpu->link.max_gen, gpu->link.max_width,
             virtual ? "ask who runs the host of this virtual machine to check slot and BIOS"
                     : "reseat the card, check its slot, riser and the BIOS settings");
}

/* Rates above the limit, and cells that spread. */
static void note_odd_rates(struct notes *to, const struct gpu *gpu) {
    char size[32];
    int wide = 0;
    double worst = SPREAD_LIMIT;
    const struct row *worst_row = NULL;
    enum kind worst_kind = PAGEABLE;
    for (const struct row *row = gpu->rows; row < gpu->rows + gpu->run->nrows; row++)
        for (enum kind k = PAGEABLE; k < KINDS; k++) {
            const struct stats *s = &row->cell[k].gbps;
            double spread = s->stddev / s->mean * 100, limit = summarize(gpu, row->direction).limit;
            wide += spread > SPREAD_LIMIT;
            if (spread > worst) {
                worst = spread;
                worst_row = row;
                worst_kind = k;
            }
            if (s->median > limit)
                note(to,
                     "%s %s %s: %.2f GB/s is above the link's limit of %.4g GB/s: the link "
                     "is not what NVML says, check with lspci -vv",
                     size_label(row->bytes, size), row->direction->name, kind_names[k], s->median, limit);
        }
    if (worst_row)
        note(to,
             "%d cell%s spread over %d %% of the mean, %s %s %s most (%.0f %%): quiet the host "
             "or raise --iters above %d",
             wide, wide > 1 ? "s" : "", SPREAD_LIMIT, size_label(worst_row->bytes, size), worst_row->direction->name,
             kind_names[worst_kind], worst, gpu->run->opt->iters);
}

/* What else stood between the program and its figures. */
static void note_surroundings(struct notes *to, const struct gpu *gpu) {
    if (gpu->explain_why[0]) note(to, "--explain could not measure everything: %s", gpu->explain_why);
    if (gpu->far_cpus)
        note(to,
             "%d of the CPUs that the caller chose are not near the GPU: choose those of its NUMA node, see "
             "nvidia-smi topo -m",
             gpu->far_cpus);
    if (gpu->busy_percent >= 10 || gpu->busy_processes)
        note(to,
             "the GPU was in use before the run (utilisation %u %%, %u other process%s): "
             "repeat when it is idle",
             gpu->busy_percent, gpu->busy_processes, gpu->busy_processes == 1 ? "" : "es");
}

static void (*const note_rules[])(struct notes *, const struct gpu *) = {
    note_failures, note_interruption, note_settings, note_slow_link, note_odd_rates, note_surroundings,
};

/* Writes the notes of a GPU; totals have none. */
static void put_notes(const struct gpu *gpu, struct notes to) {
    for (size_t i = 0; gpu->index >= 0 && i < COUNT(note_rules); i++) note_rules[i](&to, gpu);
}

/* Writes what --explain found, a line per sentence, under a title. */
static void put_explanation(FILE *out, const struct gpu *gpu, const char *title, const char *lead) {
    struct figure figures[FIGURES];
    if (!gpu->run->opt->explain || gpu->index < 0) return;
    fputs(title, out);
    explain_figures(gpu, figures);
    for (int i = 0; i < FIGURES; i++)
        if (figures[i].text[0]) fprintf(out, "%s%s\n", lead, figures[i].text);
}

/* Writes title, GPU, link and the head of the table. */
static void text_begin(const struct run *run, const struct gpu *gpu) {
    static const char line[] = "==============================================================\n";
    char link[64];
    if (!gpu) return;
    printf("%s%sCPU↔GPU DMA Bandwidth Test (C + libcudart)\nGPU:  ", run->tables ? "\n" : "", line);
    put(stdout, gpu->name, escape_text);
    if (run->visible > 1 && gpu->index >= 0) printf(" (GPU %d, %s)", gpu->index, gpu->bus_id);
    if (gpu->index >= 0) printf("\nLink: %s", link_label(&gpu->link, link));
    printf("\n%s\n ", line);
    for (const struct column *c = columns; c < columns + COUNT(columns); c++)
        if (c->heading) printf("%*s", c->heading_width, c->heading);
    puts("\n------------------------------------------------------------------");
}

/* Writes a line of the table. */
static void text_row(const struct gpu *gpu, const struct row *row) {
    struct value v;
    char shown[64];
    putchar(' ');
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->heading) continue;
        get_value(c, gpu, row, &v);
        printf("%*s", c->width, readable(c, &v, shown));
    }
    putchar('\n');
}

/* Writes the summaries, in the course's layout, and the prose. */
static void text_end(const struct run *run, const struct gpu *gpu) {
    char link[64];
    if (!gpu) return;
    for (int d = 0; d < run->ndirections; d++) {
        const struct direction *direction = &directions[d];
        struct summary s = summarize(gpu, direction);
        printf("\n--- Summary (%s%s) ---\n", direction->name, s.partial ? ", sizes of 16 MB and more" : "");
        for (size_t i = 0; i < COUNT(summary_fields); i++) {
            if (i == FIRST_BLOCK && (!direction->limit_in_text || isnan(s.limit))) break;
            if (i == FIRST_BLOCK) {
                printf("\nTheoretical (%s%s): ", direction->out ? "2 x " : "", link_label(&gpu->link, link));
            } else {
                int width = i < FIRST_BLOCK ? 10 : 20;
                printf("%s:%*s", summary_fields[i].label, width - (int)strlen(summary_fields[i].label), "");
            }
            put_number("", summary_fields[i].format, member(&s, summary_fields[i].at), "-");
            putchar('\n');
        }
    }
    put_notes(gpu, (struct notes){stdout, "\nnote: ", "note: ", "\n", escape_text, 0});
    put_explanation(stdout, gpu, "\n--- Why ---\n", "");
}

/* Writes the heading and the head of the table. */
static void markdown_begin(const struct run *run, const struct gpu *gpu) {
    char link[64];
    if (!gpu) return;
    printf("%s### ", run->tables ? "\n" : "");
    put(stdout, gpu->name, escape_markdown);
    if (run->visible > 1 && gpu->index >= 0) printf(" (GPU %d, %s)", gpu->index, gpu->bus_id);
    if (gpu->index >= 0) printf(", %s", link_label(&gpu->link, link));
    printf(": cudaMemcpy, median of %d copies, pinned by %s\n\n", run->opt->iters, run->opt->pin->choice.help);
    for (const struct column *c = columns; c < columns + COUNT(columns); c++)
        if (c->heading) printf("| %s ", c->heading);
    puts("|");
    for (const struct column *c = columns; c < columns + COUNT(columns); c++)
        if (c->heading) printf("|---%s", strcmp(c->format, "%s") == 0 ? "" : ":");
    puts("|");
}

/* Writes a line of the table. */
static void markdown_row(const struct gpu *gpu, const struct row *row) {
    struct value v;
    char shown[64];
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->heading) continue;
        get_value(c, gpu, row, &v);
        printf("| %s ", readable(c, &v, shown));
    }
    puts("|");
}

/* Writes the summaries as a second table, and the prose. */
static void markdown_end(const struct run *run, const struct gpu *gpu) {
    if (!gpu) return;
    printf("\n| Summary |");
    for (size_t i = 0; i < COUNT(summary_fields); i++) printf(" %s |", summary_fields[i].label);
    printf("\n|---|");
    for (size_t i = 0; i < COUNT(summary_fields); i++) printf("---:|");
    for (int d = 0; d < run->ndirections; d++) {
        struct summary s = summarize(gpu, &directions[d]);
        printf("\n| %s%s |", directions[d].name, s.partial ? ", sizes of 16 MB and more" : "");
        for (size_t i = 0; i < COUNT(summary_fields); i++) {
            put_number(" ", summary_fields[i].format, member(&s, summary_fields[i].at), "-");
            fputs(" |", stdout);
        }
    }
    putchar('\n');
    put_notes(gpu, (struct notes){stdout, "\n- ", "- ", "\n", escape_markdown, 0});
    put_explanation(stdout, gpu, "\n#### Why\n\n", "- ");
}

/* Writes the one header line of the document. */
static void csv_begin(const struct run *run, const struct gpu *gpu) {
    (void)run;
    for (const struct column *c = columns; !gpu && c < columns + COUNT(columns); c++)
        if (c->csv) printf("%s%s", c > columns ? "," : "", c->csv);
    if (!gpu) putchar('\n');
}

/* Writes a record; a field is quoted where it has to be. */
static void csv_row(const struct gpu *gpu, const struct row *row) {
    struct value v;
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->csv) continue;
        get_value(c, gpu, row, &v);
        const char *quote = v.text && strpbrk(v.text, ",\"\r\n") ? "\"" : "";
        printf("%s%s", c > columns ? "," : "", quote);
        if (v.text) put(stdout, v.text, escape_csv);
        else put_number("", "%.6g", v.number, "");
        fputs(quote, stdout);
    }
    putchar('\n');
}

/* CSV has no place for prose: it goes to stderr. */
static void csv_end(const struct run *run, const struct gpu *gpu) {
    (void)run;
    if (!gpu) return;
    put_notes(gpu, (struct notes){stderr, PROGRAM ": note: ", PROGRAM ": note: ", "\n", escape_text, 0});
    put_explanation(stderr, gpu, "", PROGRAM ": ");
}

/* Writes `,"key":` (no comma after an opening brace) and a string, or null for "". */
static void json_string(const char *key, const char *text) {
    fputs(key, stdout);
    if (*text) putchar('"');
    put(stdout, *text ? text : "null", escape_json);
    if (*text) putchar('"');
}

/* Writes `key` and a number with six digits, null for NAN. */
static void json_number(const char *key, double number) { put_number(key, "%.6g", number, "null"); }

/* Writes a cell: its statistics and all samples, or null if it has none. */
static void json_cell(const char *key, const struct cell *cell) {
    fputs(key, stdout);
    if (!cell->count) {
        fputs("null", stdout);
        return;
    }
    json_number("{\"median\":", cell->gbps.median);
    json_number(",\"mean\":", cell->gbps.mean);
    json_number(",\"min\":", cell->gbps.min);
    json_number(",\"max\":", cell->gbps.max);
    json_number(",\"stddev\":", cell->gbps.stddev);
    fputs(",\"samples\":[", stdout);
    for (int i = 0; cell->samples && i < cell->count; i++) json_number(i ? "," : "", cell->samples[i]);
    fputs("]}", stdout);
}

/* Writes the members that GPUs and totals share: results, summary, notes. */
static void json_results(const struct gpu *gpu) {
    char status[STATUS_SIZE];
    const char *comma = "";
    fputs("\"results\":[", stdout);
    for (const struct row *row = gpu->rows; row < gpu->rows + gpu->run->nrows; row++) {
        if (!row_begun(row)) continue;
        printf("%s{\"bytes\":%zu,\"direction\":\"%s\"", comma, row->bytes, row->direction->name);
        json_cell(",\"pageable\":", &row->cell[PAGEABLE]);
        json_cell(",\"pinned\":", &row->cell[PINNED]);
        json_number(",\"ratio\":", row->cell[PINNED].gbps.median / row->cell[PAGEABLE].gbps.median);
        json_number(",\"delta\":", row->cell[PINNED].gbps.median - row->cell[PAGEABLE].gbps.median);
        json_string(",\"status\":", row_status(gpu, row, status));
        putchar('}');
        comma = ",";
    }
    fputs("],\"summary\":{", stdout);
    for (int d = 0; d < gpu->run->ndirections; d++) {
        struct summary s = summarize(gpu, &directions[d]);
        printf("%s\"%s\":", d ? "," : "", directions[d].name);
        for (size_t i = 0; i < COUNT(summary_fields); i++) {
            printf("%s\"%s\":", i ? "," : "{", summary_fields[i].key);
            json_number("", member(&s, summary_fields[i].at));
        }
        putchar('}');
    }
    fputs("},\"notes\":[", stdout);
    put_notes(gpu, (struct notes){stdout, "\"", ",\"", "\"", escape_json, 0});
    putchar(']');
}

/* Opens the object: program, host, versions, settings. */
static void json_begin(const struct run *run, const struct gpu *gpu) {
    const struct options *opt = run->opt;
    if (gpu) return;
    json_string("{\"tool\":", PROGRAM);
    json_string(",\"version\":", VERSION);
    json_string(",\"host\":", run->host);
    json_string(",\"time\":", run->time);
    printf(",\"cuda_runtime\":\"%d.%d\",\"cuda_driver\":\"%d.%d\"", run->runtime / 1000, run->runtime % 1000 / 10,
           run->driver / 1000, run->driver % 1000 / 10);
    printf(",\"settings\":{\"iters\":%d,\"warmup\":%d,\"pin\":\"%s\",\"untouched\":%s,\"parallel\":%s},"
           "\"gpus\":[",
           opt->iters, opt->warmup, opt->pin->choice.name, opt->untouched ? "true" : "false",
           opt->parallel ? "true" : "false");
}

/* Writes one of a link's numbers, null where it is unknown. */
static void json_known(const char *key, double number) { json_number(key, number > 0 ? number : NAN); }

/* A GPU is written when it has ended: the link is what its copies have shown by then. */
static void json_end(const struct run *run, const struct gpu *gpu) {
    static const char *const kinds[] = {"unknown", "pcie", "nvlink-c2c", "integrated"};
    struct figure figures[FIGURES];
    if (!gpu) {
        printf("%s,\"status\":\"%s\"}\n", run->tables > run->ngpus ? "" : "]", status_name(run->status));
        return;
    }
    if (gpu->index < 0) {
        fputs("],\"totals\":{", stdout);
    } else {
        printf("%s{\"index\":%d", run->tables ? "," : "", gpu->index);
        json_string(",\"name\":", gpu->name);
        json_string(",\"uuid\":", gpu->uuid);
        json_string(",\"bus_id\":", gpu->bus_id);
        json_string(",\"link\":{\"kind\":", kinds[gpu->link.kind]);
        json_known(",\"gen\":", gpu->link.gen);
        json_known(",\"width\":", gpu->link.width);
        json_known(",\"max_gen\":", gpu->link.max_gen);
        json_known(",\"max_width\":", gpu->link.max_width);
        json_known(",\"limit_gbps\":", link_limit(&gpu->link));
        fputs("},", stdout);
    }
    json_results(gpu);
    if (run->opt->explain && gpu->index >= 0) {
        explain_figures(gpu, figures);
        for (int i = 0; i < FIGURES; i++) {
            printf("%s\"%s\":", i ? "," : ",\"explain\":{", figures[i].key);
            if (figures[i].word[0]) json_string("", figures[i].word);
            else json_number("", figures[i].value);
        }
        putchar('}');
    }
    putchar('}');
}

/* JSON has its rows in its end. */
static void no_row(const struct gpu *gpu, const struct row *row) { (void)gpu, (void)row; }

static const struct writer {
    struct choice choice;
    void (*begin)(const struct run *, const struct gpu *);
    void (*row)(const struct gpu *, const struct row *);
    void (*end)(const struct run *, const struct gpu *);
} writers[] = {
    {{"text", "the table and summaries"}, text_begin, text_row, text_end},
    {{"markdown", "a GitHub table for notes"}, markdown_begin, markdown_row, markdown_end},
    {{"csv", "one line per size and direction; notes on stderr"}, csv_begin, csv_row, csv_end},
    {{"json", "one object on one line, with all samples"}, json_begin, no_row, json_end},
};

/* ---- Chart ---------------------------------------------------------------------------------
 * An SVG that needs nothing else: per GPU a title and a panel for each direction, in it two bars
 * per size and the limit as a dashed line. It carries its own background, light or dark.
 */

enum { CHART_WIDTH = 760, CHART_LEFT = 46, CHART_PLOT = 700, CHART_TITLE = 34, CHART_PANEL = 250, CHART_BAR = 170 };

/* Returns the upper end of an axis that shows `most`: the next 1, 1.6, 2, 4, 6 or 8 times a power of 10. */
static double axis_end(double most) {
    static const double steps[] = {1, 1.6, 2, 4, 6, 8, 10};
    double power = pow(10, floor(log10(most > 0 ? most : 1)));
    for (size_t i = 0; i < COUNT(steps); i++)
        if (steps[i] * power >= most) return steps[i] * power;
    return 10 * power;
}

/* Draws the bars and the name of one size, in `width` pixels from `x` on; `base` is the zero line. */
static void chart_group(FILE *out, const struct row *row, const double box[3], double end) {
    double x = box[0], base = box[1], width = box[2], bar = fmin(width * 0.4, 60);
    char size[32];
    for (int k = 0; k < KINDS; k++) {
        double value = row->cell[k].gbps.median, left = x + width / 2 + (k - 1) * bar;
        if (isnan(value)) continue;
        double height = value / end * CHART_BAR, middle = left + bar / 2;
        fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", kind_names[k],
                left + 1, base - height, bar - 2, height);
        if (bar > 30)
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f</text>\n", middle, base - height - 4,
                    value);
        else /* upright: in the bar if it is long enough, so that it does not meet the limit */
            fprintf(out, "<text%s transform=\"translate(%.1f %.1f) rotate(-90)\">%.1f</text>\n",
                    height > 34 ? " class=\"in\"" : "", middle + 4, base - height + (height > 34 ? 30 : -4), value);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x + width / 2, base + 16,
            size_label(row->bytes, size));
}

/* Draws one direction of a GPU; `top` is the panel's upper edge. */
static void chart_panel(FILE *out, const struct gpu *gpu, const struct direction *direction, double top) {
    const struct run *run = gpu->run;
    double limit = summarize(gpu, direction).limit, most = isnan(limit) ? 0 : limit;
    double base = top + 46 + CHART_BAR, width = CHART_PLOT / (double)run->opt->nsizes, x = CHART_LEFT;
    for (int r = 0; r < run->nrows; r++)
        for (int k = 0; k < KINDS; k++)
            if (gpu->rows[r].direction == direction) most = fmax(most, gpu->rows[r].cell[k].gbps.median);
    double end = axis_end(most * 1.02);
    fprintf(out, "<text class=\"head\" x=\"%d\" y=\"%.1f\">%s, GB/s</text>\n", CHART_LEFT, top + 16, direction->name);
    for (int i = 0; i <= 4; i++) {
        double y = base - CHART_BAR * i / 4.0;
        fprintf(out, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>", CHART_LEFT, y, CHART_PLOT);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", CHART_LEFT - 6, y + 4, end * i / 4);
    }
    for (int r = 0; r < run->nrows; r++) {
        if (gpu->rows[r].direction != direction) continue;
        chart_group(out, &gpu->rows[r], (double[]){x, base, width}, end);
        x += width;
    }
    if (isnan(limit)) return;
    double y = base - limit / end * CHART_BAR;
    fprintf(out, "<path class=\"limit\" d=\"M%d %.1fh%d\"/>", CHART_LEFT, y, CHART_PLOT);
    fprintf(out, "<text class=\"limit-text\" x=\"%d\" y=\"%.1f\">limit %.4g GB/s</text>\n", CHART_LEFT + 4, y - 5,
            limit);
}

/* Draws the tables of a run into its chart file; the caller closes it and sees whether it could be
 * written. */
static void chart_write(const struct run *run) {
    static const char style[] = "<style>"
                                "text{font:12px "
                                "system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}"
                                ".head{font-weight:600}.in{fill:#fff}.back{fill:#fff}.grid{stroke:#d0d7de}"
                                ".pageable{fill:#9a6700}.pinned{fill:#0969da}"
                                ".limit{stroke:#cf222e;stroke-dasharray:6 4}.limit-text{fill:#cf222e}"
                                "@media(prefers-color-scheme:dark){"
                                "text{fill:#e6edf3}.in{fill:#0d1117}.back{fill:#0d1117}.grid{stroke:#30363d}"
                                ".pageable{fill:#d29922}.pinned{fill:#58a6ff}"
                                ".limit{stroke:#ff7b72}.limit-text{fill:#ff7b72}}"
                                "</style>";
    FILE *out = run->chart;
    double top = 10;
    char link[64];
    int tables = run->tables, height = CHART_TITLE + run->ndirections * CHART_PANEL;
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\"", out);
    fprintf(out, " viewBox=\"0 0 %d %d\"", CHART_WIDTH, tables * height + 20);
    fprintf(out, " width=\"%d\" height=\"%d\">\n%s\n", CHART_WIDTH, tables * height + 20, style);
    fputs("<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n", out);
    for (int t = 0; t < tables; t++, top += height) {
        const struct gpu *gpu = t < run->ngpus ? &run->gpus[t] : &run->totals;
        fprintf(out, "<text class=\"title\" x=\"%d\" y=\"%.0f\">", CHART_LEFT, top + 20);
        put(out, gpu->name, escape_xml);
        if (run->visible > 1 && gpu->index >= 0) fprintf(out, " (GPU %d)", gpu->index);
        if (gpu->index >= 0) fprintf(out, ", %s", link_label(&gpu->link, link));
        fprintf(out, ", %.10s</text>\n", run->time);
        for (int k = 0; k < KINDS; k++) {
            double x = CHART_LEFT + CHART_PLOT - 150 + 84 * k, y = top + CHART_TITLE + 6;
            fprintf(out, "<rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"11\" height=\"11\"/>", kind_names[k], x, y);
            fprintf(out, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 16, y + 10, kind_names[k]);
        }
        for (int d = 0; d < run->ndirections; d++)
            chart_panel(out, gpu, &directions[d], top + CHART_TITLE + d * CHART_PANEL);
    }
    fputs("</svg>\n", out);
}

/* ---- Command line --------------------------------------------------------------------------
 * One table feeds getopt, the setters and the help. A setter returns false and says in `why` what
 * is wrong with its value.
 */

/* Reads a number in decimal notation from `*text`, moves it behind, and returns the number; NAN if
 * there is none. Not strtod: that follows the locale and takes hex, inf and exponents. */
static double read_decimal(const char **text) {
    double number = 0, unit = 1;
    int digits = 0, points = 0;
    for (; isdigit((unsigned char)**text) || (**text == '.' && !points); ++*text) {
        if (**text == '.') {
            points++;
            continue;
        }
        number = number * 10 + (**text - '0');
        unit *= points ? 10 : 1;
        digits++;
    }
    return digits && isfinite(number) && isfinite(unit) ? number / unit : NAN;
}

/* Returns a whole number from `least` to `most`, or -1. */
static int read_count(const char *value, int least, int most, char why[WHY]) {
    const char *end = value;
    double number = strchr(value, '.') ? NAN : read_decimal(&end);
    snprintf(why, WHY, "must be a whole number from %d to %d", least, most);
    return *end || !(number >= least && number <= most) ? -1 : (int)number;
}

/* Stores one size in bytes: a decimal number and a unit of units[], none meaning G. */
static bool read_size(const char *value, size_t *bytes, char why[WHY]) {
    const char *end = value;
    double number = read_decimal(&end), scale = (double)GIB;
    snprintf(why, WHY, "is not a size such as 0.5, 64K or 2GiB");
    if (isnan(number)) return false;
    for (size_t i = 0; *end && i < COUNT(units); i++)
        if (toupper((unsigned char)*end) == units[i].letter) {
            scale = (double)units[i].bytes;
            end += i == 0 || !end[1] ? 1 : strcasecmp(end + 1, "b") == 0 ? 2 : strcasecmp(end + 1, "ib") == 0 ? 3 : 0;
            break;
        }
    if (*end) return false;
    number = nearbyint(number * scale);
    snprintf(why, WHY, "must be from 1B to 1024T");
    if (!(number >= 1 && number <= 1024 * (double)units[4].bytes)) return false;
    *bytes = (size_t)number;
    return true;
}

/* Appends a size to the list. */
static bool add_size(struct options *opt, size_t bytes, char why[WHY]) {
    snprintf(why, WHY, "makes more than %d sizes", MAX_SIZES);
    if (opt->nsizes == MAX_SIZES) return false;
    size_t *grown = realloc(opt->sizes, (size_t)(opt->nsizes + 1) * sizeof *grown);
    snprintf(why, WHY, "can't be kept: %s", strerror(errno));
    if (!grown) return false;
    opt->sizes = grown;
    opt->sizes[opt->nsizes++] = bytes;
    return true;
}

/* Adds one item of --sizes: a size, or a sweep that doubles from one to another. */
static bool add_item(struct options *opt, char *item, char why[WHY]) {
    size_t first, last;
    char *colon = strchr(item, ':');
    if (colon) *colon = 0;
    if (!read_size(item, &first, why)) return false;
    if (!colon) return add_size(opt, first, why);
    if (!read_size(colon + 1, &last, why)) return false;
    snprintf(why, WHY, "is a sweep that runs backwards");
    if (last < first) return false;
    for (; first < last; first *= 2)
        if (!add_size(opt, first, why)) return false;
    return add_size(opt, last, why);
}

/* Adds a list of sizes, separated by commas or blanks. */
static bool add_sizes(struct options *opt, const char *value, char why[WHY]) {
    char *copy = strdup(value);
    bool good = copy != NULL;
    for (char *item = copy, *next; good && item; item = next) {
        next = item + strcspn(item, ", ");
        next = *next ? (*next = 0, next + 1) : NULL;
        snprintf(why, WHY, "has an empty item");
        good = *item && add_item(opt, item, why);
    }
    free(copy);
    return good;
}

/* --sizes: replaces the list. */
static bool set_sizes(struct options *opt, const char *value, char why[WHY]) {
    opt->nsizes = 0;
    return add_sizes(opt, value, why);
}

/* --iters: timed copies. */
static bool set_iters(struct options *opt, const char *value, char why[WHY]) {
    opt->iters = read_count(value, 1, MAX_COPIES, why);
    return opt->iters >= 0;
}

/* --warmup: untimed copies. */
static bool set_warmup(struct options *opt, const char *value, char why[WHY]) {
    opt->warmup = read_count(value, 0, MAX_COPIES, why);
    return opt->warmup >= 0;
}

/* --device: indices separated by commas, or all. Whether they exist is seen later. */
static bool set_devices(struct options *opt, const char *value, char why[WHY]) {
    opt->ndevices = 0;
    if (strcmp(value, "all") == 0) return true;
    for (size_t n = 0;; value += n + 1) {
        char item[8];
        n = strcspn(value, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, value);
        int device = n < sizeof item ? read_count(item, 0, MAX_GPUS - 1, why) : -1;
        snprintf(why, WHY, "must be \"all\" or indices from 0 to %d such as 0,2", MAX_GPUS - 1);
        if (device < 0) return false;
        snprintf(why, WHY, "names GPU %d twice", device);
        for (int i = 0; i < opt->ndevices; i++)
            if (opt->devices[i] == device) return false;
        opt->devices[opt->ndevices++] = device;
        if (!value[n]) return true;
    }
}

/* --min-efficiency: per cent. */
static bool set_minimum(struct options *opt, const char *value, char why[WHY]) {
    const char *end = value;
    opt->min_efficiency = read_decimal(&end);
    snprintf(why, WHY, "must be a percentage above 0, up to 100");
    return !*end && opt->min_efficiency > 0 && opt->min_efficiency <= 100;
}

/* --chart: a path; whether it can be written is seen later. */
static bool set_chart(struct options *opt, const char *value, char why[WHY]) {
    snprintf(why, WHY, "names no file");
    opt->chart = value;
    return *value;
}

/* An option does one of three things: it calls `set`, or stores at `offset` in struct options the
 * row of `choices` that its value names, or sets the bool there. */
static const struct option_row {
    char letter;
    const char *name, *argument, *help;
    size_t offset;
    bool (*set)(struct options *, const char *value, char why[WHY]);
    const void *choices;
    size_t nchoices, stride;
} options_table[] = {
#define STRING(number)     #number
#define EXPAND(number)     STRING(number)
#define FLAG(member)       .offset = offsetof(struct options, member)
#define CHOICE(member, of) FLAG(member), .choices = of, .nchoices = COUNT(of), .stride = sizeof(of)[0]
    {'s', "sizes", "SIZE...",
     "buffer sizes: 0.1 0.5 1 or 0.1,0.5,1, in units B, K, M, G, T,\n"
     "none meaning G; 64K:1G doubles from one to the other (default " DEFAULT_SIZES ")",
     .set = set_sizes},
    {'i', "iters", "N", "timed copies per cell (default " EXPAND(DEFAULT_ITERS) ")", .set = set_iters},
    {'w', "warmup", "N", "untimed copies first (default " EXPAND(DEFAULT_WARMUP) ")", .set = set_warmup},
    {'d', "device", "LIST", "GPUs as CUDA counts them: 0, or 0,2, or all (default 0)", .set = set_devices},
    {'p', "parallel", NULL, "drive the listed GPUs at the same moment, and print totals", FLAG(parallel)},
    {'b', "bidir", NULL, "add rows BiD: half the buffer in, half out, at once", FLAG(bidir)},
    {'m', "pin", "METHOD", "what the Pinned column uses (default malloc-host)", CHOICE(pin, pin_methods)},
    {'u', "untouched", NULL, "leave the pageable source unwritten, as older scripts do", FLAG(untouched)},
    {'x', "explain", NULL, "measure what makes the difference: section \"Why\"", FLAG(explain)},
    {'f', "format", "FMT", "how to print (default text)", CHOICE(format, writers)},
    {'c', "chart", "FILE.svg", "also write a bar chart", .set = set_chart},
    {'t', "min-efficiency", "PCT", "exit 4 if a pinned summary is under PCT % of the link's limit", .set = set_minimum},
    {'a', "no-affinity", NULL, "do not bind to the CPUs near the GPU", FLAG(no_affinity)},
    {'n', "no-verify", NULL, "do not check the data that came back", FLAG(no_verify)},
    {'q', "quiet", NULL, "no progress line on the terminal", FLAG(quiet)},
    {'l', "list", NULL, "list the GPUs with bus id and link", FLAG(list)},
    {'h', "help", NULL, "print this help", FLAG(help)},
    {'V', "version", NULL, "print the versions of program, CUDA runtime and driver", FLAG(version)},
};

/* Returns row `i` of an option's choices. */
static const struct choice *choice_at(const struct option_row *row, size_t i) {
    return (const struct choice *)((const char *)row->choices + i * row->stride);
}

/* Prints the help to stdout. */
static void print_help(void) {
    puts("Usage: " PROGRAM " [OPTION]...\n"
         "Measures how fast the host and an NVIDIA GPU copy memory through cudaMemcpy: pageable\n"
         "(malloc) against pinned host memory, host to device (H2D) and device to host (D2H).\n");
    for (const struct option_row *row = options_table; row < options_table + COUNT(options_table); row++) {
        char left[64];
        snprintf(left, sizeof left, "-%c, --%s%s%s", row->letter, row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        const char *second = strchr(row->help, '\n');
        printf("  %-26s %.*s\n", left, second ? (int)(second - row->help) : -1, row->help);
        if (second) printf("%29s%s\n", "", second + 1);
        for (size_t i = 0; i < row->nchoices; i++)
            printf("%31s%-15s %s\n", "", choice_at(row, i)->name, choice_at(row, i)->help);
    }
    puts("\nRates are medians in GB/s of 10^9 bytes; sizes are powers of 1024, labelled GB, MB, KB.\n"
         "Exit status: 0 all measured, 1 something failed, 2 usage, 3 no usable driver or GPU,\n"
         "4 below --min-efficiency, 130 interrupted.");
}

/* Carries out one option. Returns false after a complaint. */
static bool apply_option(struct options *opt, const struct option_row *row, const char *value) {
    char why[WHY];
    char *field = (char *)opt + row->offset;
    if (!row->argument) {
        *(bool *)field = true;
        return true;
    }
    if (row->set && row->set(opt, value, why)) return true;
    if (row->choices) {
        int n = snprintf(why, WHY, "is none of");
        for (size_t i = 0; i < row->nchoices; i++) {
            const struct choice *choice = choice_at(row, i);
            n += snprintf(why + n, WHY - (size_t)n, "%s %s", i ? "," : "", choice->name);
            if (strcmp(choice->name, value) != 0) continue;
            memcpy(field, &choice, sizeof choice);
            return true;
        }
    }
    complain("--%s: '%s' %s", row->name, value, why);
    return false;
}

/* Reads the command line into `opt`, which holds the defaults. Returns false after a complaint. */
static bool parse_options(struct options *opt, int argc, char **argv) {
    struct option longs[COUNT(options_table) + 1] = {{0}};
    char shorts[2 * COUNT(options_table) + 2] = "-", why[WHY]; /* "-": operands are answered as 1 */
    for (size_t i = 0; i < COUNT(options_table); i++) {
        const struct option_row *row = &options_table[i];
        longs[i] = (struct option){row->name, row->argument ? required_argument : no_argument, NULL, row->letter};
        sprintf(shorts + strlen(shorts), "%c%s", row->letter, row->argument ? ":" : "");
    }
    int before = 0;
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1; before = c == 1 ? before : c) {
        if (c == '?') return false; /* getopt_long has complained */
        if (c == 1 && (before != 's' || !add_sizes(opt, optarg, why))) {
            complain(before == 's' ? "--sizes: '%s' %s" : "'%s': stray operand", optarg, why);
            return false;
        }
        const struct option_row *row = options_table;
        while (c != 1 && row->letter != c) row++;
        if (c != 1 && !apply_option(opt, row, optarg)) return false;
    }
    if (optind < argc) complain("'%s': stray operand", argv[optind]);
    return optind >= argc;
}

/* ---- Run and main -------------------------------------------------------------------------- */

/* First SIGINT or SIGTERM: end after the copy in flight. The handler is gone then, so that a
 * second one kills. */
static void on_signal(int signal) {
    (void)signal;
    interrupted = 1;
}

/* Installs the handlers, and opens descriptors 0 to 2 where the caller closed them, the wrong way
 * round, so that no file of ours takes their place and a write to them still fails. */
static void prepare_process(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* so that a write fails with a reason */
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) exit(CELL_FAILED);
}

/* Waits until the thread that drives `gpu` posts; shows what it does meanwhile, on a terminal. */
static void await(const struct run *run, struct gpu *gpu) {
    char size[32];
    bool shown = false;
    struct timespec until;
    for (;;) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if ((run->progress ? sem_timedwait(&gpu->posted, &until) : sem_wait(&gpu->posted)) == 0) break;
        if (errno != ETIMEDOUT) continue;
        int copy = atomic_load(&gpu->at_copy);
        const struct row *row = &gpu->rows[atomic_load(&gpu->at_row)];
        fprintf(stderr, "\r\033[KGPU %d: ", gpu->index);
        if (copy == 0) fputs("preparing", stderr);
        else
            fprintf(stderr, "%s %s %s, copy %d of %d", size_label(row->bytes, size), row->direction->name,
                    kind_names[atomic_load(&gpu->at_kind)], copy, run->opt->warmup + run->opt->iters);
        fflush(stderr);
        shown = true;
    }
    if (shown) fputs("\r\033[K", stderr);
}

/* Flushes a stream. Returns false, after a complaint the first time, if it can't be written. */
static bool flush(FILE *file, const char *name) {
    if (ferror(file)) return false;
    if (fflush(file) == 0) return true;
    complain("cannot write %s: %s", name, strerror(errno));
    return false;
}

/* Flushes and closes a stream; returns and complains as flush() does. */
static bool finish(FILE *file, const char *name) {
    bool written = flush(file, name);
    if (fclose(file) == 0 || !written) return written;
    complain("cannot write %s: %s", name, strerror(errno));
    return false;
}

/* Reduces, prints and complains about one row. */
static void report_row(struct run *run, struct gpu *gpu, struct row *row) {
    char size[32];
    for (enum kind k = PAGEABLE; k < KINDS; k++) {
        row->cell[k].gbps = stats_of(&row->cell[k], run->opt->iters);
        if (row->cell[k].why[0] && !row->cell[k].again)
            complain("GPU %d, %s %s %s: %s", gpu->index, size_label(row->bytes, size), row->direction->name,
                     kind_names[k], row->cell[k].why);
    }
    if (!row_begun(row)) return;
    run->opt->format->row(gpu, row);
    if (!flush(stdout, "standard output")) atomic_store(&run->stop, true);
}

/* Prints the table of one GPU while it is measured. */
static void report_gpu(struct run *run, struct gpu *gpu) {
    await(run, gpu);
    run->opt->format->begin(run, gpu);
    if (!flush(stdout, "standard output")) atomic_store(&run->stop, true);
    for (int r = 0; r < run->nrows; r++) {
        await(run, gpu);
        report_row(run, gpu, &gpu->rows[r]);
    }
    await(run, gpu);
    if (gpu->explain_why[0]) complain("GPU %d, --explain: %s", gpu->index, gpu->explain_why);
    run->opt->format->end(run, gpu);
    if (!flush(stdout, "standard output")) atomic_store(&run->stop, true);
    run->tables++;
}

/* Measures and reports `count` GPUs at once. They wait for the lock until it is known how many
 * threads there are; a GPU that got none is lost. */
static void measure_together(struct run *run, struct gpu *gpus, int count) {
    int started = 0;
    pthread_mutex_lock(&run->setup);
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&gpus[i].thread, NULL, drive_gpu, &gpus[i]);
        gpus[i].driven = error == 0;
        started += error == 0;
        if (error == 0) continue;
        snprintf(gpus[i].lost, WHY, "starting a thread: %s", strerror(error));
        for (int r = 0; r < run->nrows; r++) fail_size(&gpus[i], DEVICE, gpus[i].rows[r].bytes, gpus[i].lost);
        for (int r = 0; r < run->nrows + 2; r++) sem_post(&gpus[i].posted);
    }
    if (started) pthread_barrier_init(&run->start, NULL, (unsigned)started);
    pthread_mutex_unlock(&run->setup);
    for (int i = 0; i < count; i++) report_gpu(run, &gpus[i]);
    for (int i = 0; i < count; i++)
        if (gpus[i].driven) pthread_join(gpus[i].thread, NULL);
    if (started) pthread_barrier_destroy(&run->start);
}

/* Makes one GPU's rows: all sizes, and of each all directions. Returns NULL without memory. */
static struct row *make_rows(const struct run *run) {
    struct row *rows = calloc((size_t)run->nrows, sizeof *rows);
    for (int r = 0; rows && r < run->nrows; r++) {
        rows[r].bytes = run->opt->sizes[r / run->ndirections];
        rows[r].direction = &directions[r % run->ndirections];
        for (int k = 0; k < KINDS; k++) rows[r].cell[k].gbps = stats_of(&rows[r].cell[k], 0);
    }
    return rows;
}

/* Adds up what the GPUs did at the same time and reports it as one more table. A total of which a
 * part is missing is unknown. */
static void report_totals(struct run *run) {
    struct gpu *totals = &run->totals;
    snprintf(totals->name, sizeof totals->name, "%d GPUs at once", run->ngpus);
    run->opt->format->begin(run, totals);
    for (int r = 0; r < run->nrows; r++) {
        for (int k = 0; k < KINDS; k++) {
            struct cell *sum = &totals->rows[r].cell[k];
            sum->gbps.median = sum->gbps.mean = 0;
            sum->count = INT_MAX;
            for (int g = 0; g < run->ngpus; g++) {
                const struct cell *cell = &run->gpus[g].rows[r].cell[k];
                sum->gbps.median += cell->gbps.median;
                sum->gbps.mean += cell->gbps.mean;
                if (cell->count < sum->count) sum->count = cell->count;
                if (cell->why[0]) snprintf(sum->why, WHY, "GPU %d failed", run->gpus[g].index);
            }
        }
        if (row_begun(&totals->rows[r])) run->opt->format->row(totals, &totals->rows[r]);
    }
    run->opt->format->end(run, totals);
    run->tables++;
}

/* Stores the versions of CUDA's runtime and driver, 1000 * major + 10 * minor; 0 without a driver.
 * CUDA 11's runtime does not tell its own without one. */
static void read_versions(int *runtime, int *driver) {
    *runtime = *driver = 0;
    if (cudaRuntimeGetVersion(runtime) != cudaSuccess || *runtime == 0) *runtime = CUDART_VERSION;
    cudaDriverGetVersion(driver);
}

/* Finds the GPUs asked for and fills in run->gpus. Returns DONE, or after a complaint the status. */
static enum exit_code find_gpus(struct run *run, const struct options *opt) {
    char why[WHY];
    read_versions(&run->runtime, &run->driver);
    cudaError_t error = cudaGetDeviceCount(&run->visible);
    if (error == cudaErrorInsufficientDriver && run->driver == 0)
        complain("no NVIDIA driver: none is loaded on this machine, or this container was not given it");
    else if (error == cudaErrorInsufficientDriver)
        complain("the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d: update the driver, or build with "
                 "an older CUDA runtime",
                 run->driver / 1000, run->driver % 1000 / 10, run->runtime / 1000, run->runtime % 1000 / 10);
    else if (cuda_failed(error, "no usable GPU", why)) complain("%s", why);
    if (error != cudaSuccess) return NO_GPU;
    bool all = opt->ndevices == 0 || (opt->ndevices < 0 && opt->list);
    run->ngpus = all ? run->visible : opt->ndevices < 0 ? 1 : opt->ndevices;
    run->gpus = calloc((size_t)run->ngpus, sizeof *run->gpus);
    if (!run->gpus) {
        complain("no memory for %d GPUs", run->ngpus);
        return run->ngpus ? CELL_FAILED : NO_GPU;
    }
    nvml_open(run);
    for (int g = 0; g < run->ngpus; g++) {
        struct gpu *gpu = &run->gpus[g];
        gpu->run = run;
        gpu->index = all ? g : opt->devices[g];
        gpu->explained = (struct explain){NAN, NAN, NAN, NAN, NAN};
        sem_init(&gpu->posted, 0, 0);
        if (gpu->index >= run->visible) {
            complain("--device: GPU %d is not there, %d visible, counted from 0", gpu->index, run->visible);
            return USAGE;
        }
        gpu_identify(gpu);
    }
    return DONE;
}

/* Prints the GPUs with what they are connected by; an idle link may show less than it can do. Returns
 * CELL_FAILED if one can't be looked at. */
static enum exit_code list_gpus(struct run *run) {
    enum exit_code status = DONE;
    char link[64], max[64];
    for (int g = 0; g < run->ngpus; g++) {
        struct gpu *gpu = &run->gpus[g];
        link_observe(gpu);
        struct link best = {gpu->link.kind, gpu->link.max_gen, gpu->link.max_width, 0, 0};
        printf("%d  %s  %s  %s  %s", gpu->index, gpu->name, gpu->uuid, gpu->bus_id,
               link_label(link_below_max(&gpu->link) ? &best : &gpu->link, max));
        if (link_below_max(&gpu->link)) printf(" (now %s)", link_label(&gpu->link, link));
        putchar('\n');
        if (!gpu->lost[0]) continue;
        complain("GPU %d: %s", gpu->index, gpu->lost);
        status = CELL_FAILED;
    }
    return status;
}

/* Compares the pinned summaries with --min-efficiency and complains. Returns DONE, BELOW_MINIMUM,
 * or CELL_FAILED where there is nothing to compare. */
static enum exit_code judge_efficiency(const struct run *run) {
    enum exit_code status = DONE;
    double minimum = run->opt->min_efficiency;
    for (const struct gpu *gpu = run->gpus; !isnan(minimum) && gpu < run->gpus + run->ngpus; gpu++)
        for (int d = 0; d < run->ndirections; d++) {
            struct summary s = summarize(gpu, &directions[d]);
            if (s.percent[PINNED] >= minimum) continue;
            if (isnan(s.percent[PINNED])) {
                complain("--min-efficiency %g: GPU %d %s can't be judged, %s is not known", minimum, gpu->index,
                         directions[d].name, isnan(s.limit) ? "the link's limit" : "the pinned rate");
                status = CELL_FAILED;
                continue;
            }
            complain("--min-efficiency %g: GPU %d %s pinned %.1f GB/s is %.1f %% of %.4g GB/s", minimum, gpu->index,
                     directions[d].name, s.mean[PINNED], s.percent[PINNED], s.limit);
            if (status == DONE) status = BELOW_MINIMUM;
        }
    return status;
}

/* Returns the exit status of what was measured: interrupted, failed, no GPU usable, or judged. */
static enum exit_code judge_run(const struct run *run) {
    bool failed = false, usable = false;
    for (const struct gpu *gpu = run->gpus; gpu < run->gpus + run->ngpus; gpu++) {
        usable |= gpu->buffers[DEVICE].bytes || !gpu->lost[0];
        failed |= gpu->explain_why[0] != 0;
        for (int r = 0; r < run->nrows; r++)
            failed |= gpu->rows[r].cell[PAGEABLE].why[0] || gpu->rows[r].cell[PINNED].why[0];
    }
    enum exit_code judged = interrupted || !usable ? DONE : judge_efficiency(run);
    return interrupted ? INTERRUPTED : !usable ? NO_GPU : failed ? CELL_FAILED : judged;
}

/* Measures all GPUs asked for and writes report and chart. */
static enum exit_code measure(struct run *run) {
    const struct options *opt = run->opt;
    int at_once = opt->parallel ? run->ngpus : 1, g = 0;
    for (int i = -1; i < run->ngpus; i++) {
        struct row *rows = make_rows(run);
        *(i < 0 ? &run->totals.rows : &run->gpus[i].rows) = rows;
        if (rows) continue;
        complain("no memory for the results of %d rows", run->nrows);
        return CELL_FAILED;
    }
    opt->format->begin(run, NULL);
    for (; g < run->ngpus && !stopping(run); g += at_once) measure_together(run, run->gpus + g, at_once);
    run->ngpus = g; /* those that were come to */
    if (opt->parallel && g > 1) report_totals(run);
    run->status = judge_run(run);
    opt->format->end(run, NULL);
    if (run->chart) chart_write(run);
    return run->status;
}

/* Frees what the run holds. */
static void free_run(struct run *run, int ngpus) {
    for (int g = 0; g < ngpus; g++) {
        struct gpu *gpu = &run->gpus[g];
        for (int r = 0; gpu->rows && r < run->nrows; r++)
            for (int k = 0; k < KINDS; k++) free(gpu->rows[r].cell[k].samples);
        free(gpu->rows);
        sem_destroy(&gpu->posted);
    }
    free(run->gpus);
    free(run->totals.rows);
}

/* Lists or measures the GPUs. Returns the exit status, but for stdout's. */
static enum exit_code run_options(const struct options *opt) {
    time_t seconds = time(NULL);
    struct run run = {.opt = opt, .totals = {.run = &run, .index = -1}};
    run.ndirections = opt->bidir ? 3 : 2;
    run.nrows = opt->nsizes * run.ndirections;
    run.progress = !opt->quiet && isatty(2) && getenv("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
    gethostname(run.host, sizeof run.host - 1);
    strftime(run.time, sizeof run.time, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    pthread_mutex_init(&run.setup, NULL);
    run.status = find_gpus(&run, opt);
    int ngpus = run.gpus ? run.ngpus : 0;
    if (run.status == DONE && opt->chart && !opt->list && !(run.chart = fopen(opt->chart, "we"))) {
        complain("--chart: '%s' can't be written: %s", opt->chart, strerror(errno));
        run.status = CELL_FAILED;
    } else if (run.status == DONE) {
        run.status = opt->list ? list_gpus(&run) : measure(&run);
    }
    if (run.chart && !finish(run.chart, opt->chart)) run.status = CELL_FAILED;
    free_run(&run, ngpus);
    pthread_mutex_destroy(&run.setup);
    return run.status;
}

/* Prints the versions of program, CUDA runtime and driver. */
static void print_version(void) {
    int runtime, driver;
    read_versions(&runtime, &driver);
    printf(PROGRAM " " VERSION "\nCUDA runtime %d.%d\n", runtime / 1000, runtime % 1000 / 10);
    if (driver) printf("CUDA driver  %d.%d\n", driver / 1000, driver % 1000 / 10);
    else puts("CUDA driver  none");
}

/* Reads the options, does what they ask for, and returns the exit status. */
int main(int argc, char **argv) {
    struct options opt = {.iters = DEFAULT_ITERS,
                          .warmup = DEFAULT_WARMUP,
                          .ndevices = -1,
                          .min_efficiency = NAN,
                          .pin = pin_methods,
                          .format = writers};
    char why[WHY];
    enum exit_code status = DONE;
    prepare_process();
    bool kept = set_sizes(&opt, DEFAULT_SIZES, why);
    if (!kept) complain("the default sizes %s", why);
    if (!kept || !parse_options(&opt, argc, argv)) {
        fputs("Try '" PROGRAM " --help'.\n", stderr);
        free(opt.sizes);
        return USAGE;
    }
    if (opt.help) print_help();
    else if (opt.version) print_version();
    else status = run_options(&opt);
    free(opt.sizes);
    return finish(stdout, "standard output") ? status : CELL_FAILED;
}
