/*
 * dma_bandwidth - how fast a host and an NVIDIA GPU copy memory through cudaMemcpy
 *
 * For each buffer size it times copies from host to device (H2D) and from device to host (D2H),
 * with pageable (malloc) and with pinned (cudaMallocHost) host memory. It prints both rates, their
 * ratio, and their share of what the link can carry.
 *
 * A rate is the median over --iters copies of bytes / seconds / 1e9 (GB/s), each copy timed between
 * its own pair of CUDA events. Sizes are in units of 1024 and are labelled GB, MB and KB all the same,
 * as in the AI infrastructure course whose scripts this program grew out of. Every page of every host
 * buffer is written first: a page that malloc gave and nobody wrote is the kernel's shared zero page.
 * That page sits in the CPU's cache and makes pageable H2D look more than twice as fast as it is.
 *
 * The file reads from top to bottom, and each part uses only what stands above it:
 *   what there is (options, run, GPU, row, cell) - units and errors - the host - GPUs and NVML -
 *   memory - staged copies - measuring - statistics - explaining - reports - chart -
 *   command line - run and main
 *
 * To add an option, a way to pin, a column, a note, a way of "What helps" or an output format, add a row to
 * options_table, pin_methods, columns, note_rules, ways or writers. What a row means, and what it needs besides,
 * stands above each table.
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
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#if defined __FAST_MATH__ || (defined __FINITE_MATH_ONLY__ && __FINITE_MATH_ONLY__)
#error "NAN marks what was not measured: build without -ffast-math and -Ofast"
#endif

#define PROGRAM        "dma_bandwidth"
#define VERSION        "1.1.0"
#define DEFAULT_SIZES  "0.5 1 2"
#define DEFAULT_ITERS  10
#define DEFAULT_WARMUP 3
#define MOST_THREADS   12 /* staged copies by default: more gained nothing on an H200 host with 16 cores */
#define GIB            ((size_t)1 << 30)
#define MIB            ((size_t)1 << 20)
#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))

enum {
    MAX_COPIES = 100000,
    MAX_SIZES = 1000,
    MAX_GPUS = 128,
    MAX_OUTPUTS = 16,
    MAX_THREADS = 256,
    MAX_REMEDIES = 24,     /* rows of "What helps" */
    PAGE = 4096,           /* bytes; the smallest page of the CPUs that CUDA runs on */
    MAX_FILL_THREADS = 16, /* first touch of 2 GiB: 1.1 s by one thread, 0.1 s by 16 */
    LINK_TRIES = 10,       /* copies made to wake an idle link */
    SPREAD_LIMIT = 10,     /* per cent of the mean: a cell above it gets a note */
    BUSY_LIMIT = 10,       /* per cent of utilisation: a GPU from there on gets a note */
    WHY = 512,             /* bytes of a message */
    STATUS_SIZE = 2 * WHY + 16,
};
static const size_t huge_page = 2 * MIB;
static const size_t summary_from = 16 * MIB; /* below, the cost of a call rules the rate */
static const size_t host_reserve = 64 * MIB; /* host memory left to everything else */
static const size_t wake_bytes = 256 * MIB;  /* copied to wake the link: 5 ms at Gen5 x16 */
static const size_t explain_bytes = GIB / 2; /* --explain copies no more than this */

/* ---- What there is ---------------------------------------------------------------------------
 * The program's data, the parts before the whole: options, the rows and cells that measuring fills in, GPUs,
 * and the run that holds them.
 */

enum exit_code {
    DONE = 0,
    FAILED = 1,
    USAGE = 2,
    NO_GPU = 3,
    BELOW_MINIMUM = 4,
    INTERRUPTED = 130, /* 128 + SIGINT, as shells count */
};

/* A named row of a table; every row that users choose from begins with it. */
struct choice {
    const char *name, *help;
};

struct output {
    const char *path;
    const struct writer *writer;
    char target[PATH_MAX]; /* `path` without symbolic links */
    bool failed;           /* it could not be written */
};

struct options {
    size_t sizes[MAX_SIZES]; /* bytes, in the order asked for */
    int nsizes;
    int iters, warmup;
    int threads; /* of staged copies; 0: as many as there are CPUs, MOST_THREADS at most */
    int devices[MAX_GPUS], ndevices;
    bool all_devices, parallel, bidir, untouched, explain, no_affinity, no_verify, quiet, list, help, version;
    const struct memory *pin;
    const struct writer *format;
    struct output outputs[MAX_OUTPUTS];
    int noutputs;
    double min_efficiency; /* per cent; NAN: none asked for */
    unsigned given;        /* bit i: row i of options_table was on the command line */
};

enum kind { PAGEABLE, PINNED, KINDS, DEVICE = KINDS, BUFFERS };
static const char *const kind_names[KINDS] = {"pageable", "pinned"};

/* GB/s; NAN where there is no sample, or too few. */
struct stats {
    double median, mean, min, max, stddev;
};

/* One kind of memory in one row. A cell that failed has no figures and says why. */
struct cell {
    double *samples; /* GB/s, in the order of the copies, then as much room again for sorting; owned */
    int count;
    struct stats gbps;
    bool begun; /* if it failed: on its own; otherwise for the reason of a whole size or GPU */
    char why[WHY];
};

/* A row of this table is a direction that copies can have. The first two are always measured. */
enum { H2D, D2H, BID };
static const struct direction {
    const char *name;
    bool in, out;       /* does it write to the device, to the host; both: half the buffer each */
    bool limit_in_text; /* the course's layout shows the limit under H2D only */
} directions[] = {
    [H2D] = {.name = "H2D", .in = true, .limit_in_text = true},
    [D2H] = {.name = "D2H", .out = true},
    [BID] = {.name = "BiD", .in = true, .out = true, .limit_in_text = true}, /* with --bidir */
};

struct row {
    size_t bytes;
    const struct direction *direction;
    struct cell cell[KINDS];
    double ratio, delta; /* of the medians: pinned / pageable, pinned - pageable in GB/s */
};

/* The link between CPU and GPU as NVML tells it; generations and widths are 0 where unknown. */
enum link_kind { LINK_UNKNOWN, LINK_PCIE, LINK_C2C, LINK_INTEGRATED };
static const struct choice link_names[] = {
    [LINK_UNKNOWN] = {"unknown", "PCIe (unknown)"},
    [LINK_PCIE] = {"pcie", "PCIe"},
    [LINK_C2C] = {"nvlink-c2c", "NVLink-C2C"},
    [LINK_INTEGRATED] = {"integrated", "integrated (shared memory)"},
};
struct link {
    enum link_kind kind;
    unsigned gen, width;         /* the fastest seen */
    unsigned max_gen, max_width; /* what GPU and slot can do together */
    char why[WHY];               /* why it is unknown */
};

/* A row of "What helps": a way to copy malloc'd data, or memory that is pinned from the start. */
enum use { USE_H2D, USE_D2H, USE_FRESH, USES }; /* the last: D2H into memory that nobody touched yet */
static const char *const use_names[USES] = {"H2D", "D2H", "D2H new"};
struct remedy {
    const struct way *way;
    char method[64];   /* the way in words */
    int threads;       /* how many of them copy */
    double gbps[USES]; /* NAN where it could not be measured */
    size_t pinned;     /* bytes that stay pinned */
    double cost_s;     /* once, before the first copy; seconds */
};

/* What --explain measured; NAN where it could not. */
struct explanation {
    size_t bytes; /* of the copies in `remedies` */
    double memcpy_gbps, register_s_per_gb;
    struct remedy remedies[MAX_REMEDIES];
    int nremedies;
    bool whole;    /* every way was measured */
    char why[WHY]; /* why a part of it is missing */
};

/* A set of CPUs in the layout that sched_getaffinity and NVML share. */
struct cpus {
    cpu_set_t set[4];
};

/* A GPU: what it is and what came out. The totals of all GPUs take the same form. */
struct gpu {
    bool total;
    int index;     /* as CUDA counts */
    char label[8]; /* the index in words, or "total" */
    char name[256], uuid[48], bus_id[20];
    void *nvml; /* NVML's handle; NULL where it has none */
    struct link link;
    struct cpus cpus;                      /* that work on it uses */
    unsigned busy_percent, busy_processes; /* before the run */
    int far_cpus;                          /* CPUs of the caller's own choice that are not near the GPU */
    size_t huge_missing;                   /* bytes of a buffer that asks for 2 MB pages and did not get them */
    bool ready;                            /* it was set up */
    bool interrupted;                      /* by a signal before everything was measured */
    char why[WHY];                         /* why nothing more can be measured on it */
    struct row *rows;                      /* run->nrows of them; owned */
    struct explanation explanation;        /* of 0 bytes without --explain */
};

struct progress {
    bool wanted, shown;
    double next; /* second of now() before which nothing new is shown */
};

struct run {
    const struct options *opt;
    struct gpu gpus[MAX_GPUS + 1]; /* ngpus of them, then the totals */
    int ngpus, visible, nrows, ndirections;
    int threads;     /* of staged copies */
    int label_width; /* of the text table's column of sizes */
    enum exit_code status;
    char error[WHY];     /* why there was nothing to measure */
    bool broken;         /* standard output can't be written any more */
    struct cpus cpus;    /* the caller's */
    int runtime, driver; /* versions, 1000 * major + 10 * minor; driver 0: there is none */
    bool confidential;   /* confidential computing is on */
    char release[80];    /* of the driver; "" if unknown */
    char host[256], cpu[128], time[32];
    double begun;   /* second of now() */
    void *nvml_lib; /* NULL: not to be had, and nvml_why says why */
    char nvml_why[128];
    struct progress progress;
};

/* Set by the signal handler, to end the measuring; the only mutable global. Copying threads read it too. */
static atomic_bool interrupted;

/* ---- Units and errors ------------------------------------------------------------------------
 * One table reads and prints sizes. A function that can fail writes a sentence into a `why` and leaves it to
 * its caller to print it or to keep it in a cell. It leaves an empty `why` empty if all went well, so that
 * why[0] tells. Only the setters of the command line write it before they look.
 */

static const struct unit {
    char letter;
    size_t bytes;
} units[] = {
    {'B', 1}, {'K', 1 << 10}, {'M', MIB}, {'G', GIB}, {'T', (size_t)1 << 40},
};

/* Prints one line to stderr, led by the program's name. prepare_process() makes stderr line buffered, so it is
 * one write. */
__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs(PROGRAM ": ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* Writes a size in one unit with so many decimals into `out`. Returns whether it reads back as the
 * same size, so that two sizes never share a label. */
static bool size_in_unit(size_t bytes, const struct unit *unit, int decimals, char out[32]) {
    double power = pow(10, decimals), number = nearbyint((double)bytes / (double)unit->bytes * power) / power;
    bool round = decimals == 1 && number >= 100 && number == nearbyint(number); /* 128GB, but 1.0GB */
    snprintf(out, 32, "%.*f%c%s", round ? 0 : decimals, number, unit->letter, unit->bytes > 1 ? "B" : "");
    return number >= (decimals ? 0.1 : 1) && nearbyint(number * (double)unit->bytes) == (double)bytes;
}

/* Writes a size as the course does (0.5GB), or else in the first of the forms 16MB, 64KB, 0.15GB, 1.3MB and
 * 1000003B that is exact, into `out` and returns it. */
static const char *size_label(size_t bytes, char out[32]) {
    static const struct {
        int unit, decimals;
    } forms[] = {{3, 1}, {2, 0}, {1, 0}, {3, 2}, {3, 3}, {2, 1}, {2, 2}, {0, 0}};
    for (size_t i = 0; i < COUNT(forms); i++)
        if (size_in_unit(bytes, &units[forms[i].unit], forms[i].decimals, out)) break;
    return out;
}

/* Writes a rate in GB/s with as many decimals as mean something in 6 or 7 characters, and a sign in
 * front if `sign` is "+", into `out` and returns it; "-" for NAN. */
static const char *rate_label(double gbps, const char *sign, char out[32]) {
    double size = fabs(gbps);
    int decimals = size < 0.1 && size > 0 ? 4 : size < 999.995 ? 2 : size < 9999.95 ? 1 : 0;
    if (!isfinite(gbps)) snprintf(out, 32, "-");
    else snprintf(out, 32, *sign ? "%+.*f GB/s" : "%.*f GB/s", decimals, gbps);
    return out;
}

/* Writes a rate with one decimal, four where one would show 0.0, into `out` and returns it; "-" for NAN. */
static const char *short_rate(double gbps, char out[32]) {
    snprintf(out, 32, isfinite(gbps) ? "%.*f" : "-", gbps < 0.05 ? 4 : 1, gbps);
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

/* Returns the double at an offset in a struct, for tables that name members by offsetof. */
static double member(const void *base, size_t offset) {
    double value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

/* Writes NAN into every double of a struct that holds nothing else. */
static void set_unknown(void *doubles, size_t bytes) {
    static const double unknown = NAN;
    for (size_t i = 0; i < bytes; i += sizeof unknown) memcpy((char *)doubles + i, &unknown, sizeof unknown);
}

/* ---- The host --------------------------------------------------------------------------------
 * Linux's own files tell how much memory can be had and what kind of machine this is. Any of
 * them may be missing; then nothing is known and nothing is refused.
 */

/* Reads the beginning of a file into `text` (always terminated). Returns false if it can't, or if the file is
 * empty. */
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
    if (at) at += strlen(key) + strspn(at + strlen(key), " :");
    return at && isdigit((unsigned char)*at) ? strtoull(at, NULL, 10) : otherwise; /* "max": no limit */
}

/* Host memory that can still be had. */
struct room {
    size_t bytes;
    const char *source; /* what limits it, for messages */
};

/* Lowers `room` to what one control group's limits leave; its page cache counts as free. */
static void cgroup_room(struct room *room, const char *folder, bool v2) {
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "memory.max" : "memory.limit_in_bytes");
    unsigned long long limit = read_number(path, "", ULLONG_MAX);
    snprintf(path, sizeof path, "%s/memory.high", folder); /* version 2 only */
    unsigned long long high = read_number(path, "", ULLONG_MAX);
    if (high < limit) limit = high;
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "memory.current" : "memory.usage_in_bytes");
    unsigned long long used = read_number(path, "", 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    unsigned long long cache = read_number(path, v2 ? "\ninactive_file" : "total_inactive_file", 0);
    cache += read_number(path, v2 ? "\nactive_file" : "total_active_file", 0);
    used = used > cache ? used - cache : 0;
    unsigned long long left = limit > used ? limit - used : 0;
    if (limit != ULLONG_MAX && left < room->bytes) *room = (struct room){left, "memory limit of its control group"};
}

/* Returns how much host memory can be touched without the OOM killer, and what limits it: MemAvailable, or what
 * the control groups (version 2 and 1, all levels) leave. SIZE_MAX bytes where nothing is known. */
static struct room host_room(void) {
    struct room room = {SIZE_MAX, "available memory"};
    unsigned long long kib = read_number("/proc/meminfo", "MemAvailable", ULLONG_MAX);
    if (kib != ULLONG_MAX) room.bytes = kib * 1024;
    char line[4200], path[4096], folder[4200], controllers[256];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) { /* "0::path" of version 2, "id:controllers:path" of version 1 */
        bool v2 = sscanf(line, "0::%4095[^\n]", path) == 1;
        if (!v2 && (sscanf(line, "%*u:%255[^:]:%4095[^\n]", controllers, path) != 2 || !strstr(controllers, "memory")))
            continue;
        size_t root = (size_t)snprintf(folder, sizeof folder, "/sys/fs/cgroup%s", v2 ? "" : "/memory");
        snprintf(folder + root, sizeof folder - root, "%s", path);
        for (char *slash; strlen(folder) >= root; *slash = 0) {
            cgroup_room(&room, folder, v2);
            slash = strrchr(folder, '/');
        }
    }
    if (file) fclose(file);
    return room;
}

/* Returns "WSL2", "virtual machine" or "" for real hardware: the remedies differ. */
static const char *host_kind(void) {
    char text[8192];
    if (read_text("/proc/sys/kernel/osrelease", text, sizeof text) && strstr(text, "icrosoft")) return "WSL2";
    if (read_text("/proc/cpuinfo", text, sizeof text) && strstr(text, " hypervisor")) return "virtual machine";
    return "";
}

/* Writes the CPU's name into `out`; "" if unknown. */
static void cpu_name(char out[128]) {
    char text[8192];
    out[0] = 0;
    const char *at = read_text("/proc/cpuinfo", text, sizeof text) ? strstr(text, "model name") : NULL;
    if (at) sscanf(at, "model name%*[ \t:]%127[^\n]", out);
}

/* Writes the policy for transparent huge pages in force ("madvise") into `out`; "" if unknown. */
static void page_policy(char out[32]) {
    char text[256];
    out[0] = 0;
    if (read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) && strchr(text, '['))
        sscanf(strchr(text, '['), "[%31[a-z]", out);
}

/* Returns how many bytes of the mappings that hold [at, at + bytes) lie in 2 MB pages (AnonHugePages in smaps),
 * or `bytes` if that can't be told. */
static size_t huge_bytes(const void *at, size_t bytes) {
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    unsigned long from, to, kib;
    size_t found = 0;
    bool ours = false;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) ours = from < (uintptr_t)at + bytes && to > (uintptr_t)at;
        else if (ours && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) found += kib * 1024;
    }
    if (!file) return bytes; /* unknown: nothing is said of it */
    fclose(file);
    return found;
}

/* Returns seconds of a clock that only goes forward. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Stores the CPUs that this thread may use; none if that can't be told. Returns how many. */
static int own_cpus(struct cpus *cpus) {
    memset(cpus, 0, sizeof *cpus);
    return sched_getaffinity(0, sizeof *cpus, cpus->set) == 0 ? CPU_COUNT_S(sizeof *cpus, cpus->set) : 0;
}

/* Takes the CPUs away that are not on the memory node where this thread runs now. */
static void keep_node(struct cpus *cpus) {
    char path[64], text[4096];
    unsigned cpu, node, first, last;
    struct cpus near;
    memset(&near, 0, sizeof near);
    if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0) return;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
    if (!read_text(path, text, sizeof text)) return;
    for (char *item = strtok(text, ",\n"); item; item = strtok(NULL, ",\n")) { /* "0-7,16-23" */
        int n = sscanf(item, "%u-%u", &first, &last);
        for (cpu = first; n > 0 && cpu <= (n == 2 ? last : first); cpu++) CPU_SET_S(cpu, sizeof near, near.set);
    }
    CPU_AND_S(sizeof near, near.set, near.set, cpus->set);
    if (CPU_COUNT_S(sizeof near, near.set) > 0) *cpus = near;
}

/* Runs body(item) for each of `n` items of `size` bytes at the same time: the first on this thread, the
 * others each on one of their own. An item for which no thread can be started goes to
 * without_thread(item, error number). Returns when all have ended. */
static void at_once(void *items, size_t n, size_t size, void *(*body)(void *item),
                    void (*without_thread)(void *item, int error)) {
    pthread_t threads[MAX_GPUS]; /* as many as anybody asks for */
    bool started[COUNT(threads)];
    for (size_t i = 1; i < n; i++) {
        int error = pthread_create(&threads[i], NULL, body, (char *)items + i * size);
        started[i] = error == 0;
        if (error) without_thread((char *)items + i * size, error);
    }
    body(items);
    for (size_t i = 1; i < n; i++)
        if (started[i]) pthread_join(threads[i], NULL);
}

/* Shows one status line on stderr, ten times a second at the most: only on a terminal, while this
 * process is in its foreground, and no wider than it is. */
__attribute__((format(printf, 2, 3))) static void show_progress(struct progress *progress, const char *format, ...) {
    char text[160];
    struct winsize window = {.ws_col = 0};
    va_list args;
    if (!progress->wanted || now() < progress->next || tcgetpgrp(2) != getpgrp()) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int width = ioctl(2, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col - 1 : 79;
    fprintf(stderr, "\r\033[K%.*s", width, text);
    fflush(stderr);
    progress->shown = true;
    progress->next = now() + 0.1;
}

/* Takes the status line away, before anything else is printed. */
static void hide_progress(struct progress *progress) {
    if (progress->shown) fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown = false;
}

/* ---- GPUs and NVML ---------------------------------------------------------------------------
 * NVML comes with the driver and is loaded by hand, so that the program starts without it. Each
 * of its functions is looked up when it is needed; one that is missing, fails or answers nonsense
 * means "unknown". GPUs are matched by PCI bus id: the two libraries count them differently.
 */

/* Stores the address of a function of NVML through `function`; false if there is none. */
static bool nvml_find(const struct run *run, const char *name, void *function) {
    void *address = run->nvml_lib ? dlsym(run->nvml_lib, name) : NULL;
    memcpy(function, &address, sizeof address); /* POSIX's way from object to function pointer */
    return address != NULL;
}

/* Returns whether NVML returned an error, -1 standing for a missing function; then `why` says so. */
static bool nvml_failed(const struct run *run, int error, const char *name, char *why) {
    const char *(*text)(int error);
    if (error == 0) return false;
    if (error < 0) snprintf(why, 128, "NVML has no %s", name);
    else
        snprintf(why, 128, "%s answers %d (%s)", name, error,
                 nvml_find(run, "nvmlErrorString", &text) ? text(error) : "?");
    return true;
}

/* Loads NVML and asks what it knows of the system. It is never unloaded: the process ends. */
static void nvml_open(struct run *run) {
    int (*init)(void);
    int (*release)(char *, unsigned size);
    int (*state)(unsigned[3]); /* nvmlConfComputeSystemState_t: environment, feature, tools */
    unsigned values[3] = {0, 0, 0};
    run->nvml_lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!run->nvml_lib) snprintf(run->nvml_why, sizeof run->nvml_why, "libnvidia-ml.so.1 (NVML) can't be loaded");
    else if (nvml_failed(run, nvml_find(run, "nvmlInit_v2", &init) ? init() : -1, "nvmlInit_v2", run->nvml_why))
        run->nvml_lib = NULL;
    if (nvml_find(run, "nvmlSystemGetDriverVersion", &release) && release(run->release, sizeof run->release) != 0)
        run->release[0] = 0;
    run->confidential = nvml_find(run, "nvmlSystemGetConfComputeState", &state) && state(values) == 0 && values[1] != 0;
}

/* Returns the number that one of NVML's functions tells of a device, or 0; then the link gets the reason, unless
 * it has that of a GPU without NVML already. */
static unsigned nvml_uint(const struct run *run, struct gpu *gpu, const char *name) {
    int (*function)(void *, unsigned *);
    unsigned value = 0;
    if (!gpu->nvml) return 0;
    int error = nvml_find(run, name, &function) ? function(gpu->nvml, &value) : -1;
    return nvml_failed(run, error, name, gpu->link.why) ? 0 : value;
}

/* Stores the CPUs that work on a GPU is to use: those near it, unless the caller of the program already
 * chose CPUs; these are kept, and gpu->far_cpus counts the ones that are not the GPU's. */
static void choose_cpus(const struct run *run, struct gpu *gpu) {
    int (*affinity)(void *, unsigned, unsigned long *);
    struct cpus near = {0};
    gpu->cpus = run->cpus;
    if (run->opt->no_affinity || !gpu->nvml || !nvml_find(run, "nvmlDeviceGetCpuAffinity", &affinity) ||
        affinity(gpu->nvml, sizeof near / sizeof(unsigned long), (unsigned long *)&near) != 0 ||
        CPU_COUNT_S(sizeof near, near.set) == 0)
        return;
    int chosen = CPU_COUNT_S(sizeof gpu->cpus, gpu->cpus.set);
    if (chosen >= sysconf(_SC_NPROCESSORS_ONLN)) gpu->cpus = near;
    CPU_AND_S(sizeof near, near.set, near.set, gpu->cpus.set);
    gpu->far_cpus = CPU_COUNT_S(sizeof gpu->cpus, gpu->cpus.set) - CPU_COUNT_S(sizeof near, near.set);
}

/* Returns GB/s per direction of a PCIe link, 0 where it is unknown. What a lane carries doubles with each
 * generation (PCIe base specification, rounded as everybody does): 0.25 GB/s for Gen1, 0.5 for Gen2, ... 8 for
 * Gen6. */
static double pcie_limit(unsigned gen, unsigned width) {
    if (gen < 1 || gen > 6 || width < 1 || width > 32) return 0;
    return ldexp(0.25, (int)gen - 1) * width;
}

/* Writes the link's name as the Link line shows it into `out` and returns it. */
static const char *link_label(const struct link *link, char out[64]) {
    if (link->kind == LINK_PCIE) snprintf(out, 64, "PCIe Gen%u x%u", link->gen, link->width);
    else snprintf(out, 64, "%s", link_names[link->kind].help);
    return out;
}

/* Returns whether the link has been seen as fast as GPU and slot allow. */
static bool link_at_max(const struct link *link) {
    double most = pcie_limit(link->max_gen, link->max_width);
    return link->kind == LINK_PCIE && most > 0 && pcie_limit(link->gen, link->width) >= most;
}

/* Returns whether the link is known to run slower than GPU and slot allow. */
static bool link_below_max(const struct link *link) {
    return link->kind == LINK_PCIE && link->max_gen && !link_at_max(link);
}

/* Reads the link and keeps the fastest state seen: an idle GPU drops to Gen1, so this is called
 * right after copies. */
static void link_observe(const struct run *run, struct gpu *gpu) {
    struct link *link = &gpu->link;
    if (link->kind == LINK_C2C || link->kind == LINK_INTEGRATED || link_at_max(link)) return;
    unsigned gen = nvml_uint(run, gpu, "nvmlDeviceGetMaxPcieLinkGeneration");
    unsigned width = nvml_uint(run, gpu, "nvmlDeviceGetMaxPcieLinkWidth");
    if (pcie_limit(gen, width) > 0) {
        link->max_gen = gen;
        link->max_width = width;
    }
    gen = nvml_uint(run, gpu, "nvmlDeviceGetCurrPcieLinkGeneration");
    width = nvml_uint(run, gpu, "nvmlDeviceGetCurrPcieLinkWidth");
    if (pcie_limit(gen, width) > pcie_limit(link->gen, link->width)) {
        link->kind = LINK_PCIE;
        link->gen = gen;
        link->width = width;
    }
    if (link->kind == LINK_UNKNOWN && !link->why[0])
        snprintf(link->why, sizeof link->why, "NVML tells of PCIe Gen%u x%u", gen, width);
}

/* Fills in name, uuid, bus id and kind of link; on failure gpu->why says why. Makes no context.
 * Bus id and uuid are written as nvidia-smi writes them. */
static void gpu_identify(const struct run *run, struct gpu *gpu) {
    struct cudaDeviceProp p;
    int integrated = 0, host_tables = 0;
    snprintf(gpu->label, sizeof gpu->label, "%d", gpu->index);
    snprintf(gpu->name, sizeof gpu->name, "GPU %d", gpu->index);
    if (cuda_failed(cudaGetDeviceProperties(&p, gpu->index), "cudaGetDeviceProperties", gpu->why)) return;
    snprintf(gpu->name, sizeof gpu->name, "%.255s", p.name);
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%08X:%02X:%02X.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID & 0xff,
             (unsigned)p.pciDeviceID & 0xff);
    char *u = gpu->uuid + sprintf(gpu->uuid, "%s", strstr(p.name, " MIG ") ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++)
        u += sprintf(u, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                     (unsigned)(unsigned char)p.uuid.bytes[i]);
    cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, gpu->index);
    cudaDeviceGetAttribute(&host_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, gpu->index);
    gpu->link.kind = integrated ? LINK_INTEGRATED : host_tables ? LINK_C2C : LINK_UNKNOWN;
    int (*handle)(const char *, void **);
    const char *name = "nvmlDeviceGetHandleByPciBusId_v2";
    snprintf(gpu->link.why, sizeof gpu->link.why, "%s", run->nvml_why);
    if (run->nvml_lib &&
        nvml_failed(run, nvml_find(run, name, &handle) ? handle(gpu->bus_id, &gpu->nvml) : -1, name, gpu->link.why))
        gpu->nvml = NULL;
}

/* Notes who else uses the GPU; called before this process has a context on it. */
static void gpu_observe_load(const struct run *run, struct gpu *gpu) {
    int (*processes)(void *, unsigned *, void *);
    int (*utilization)(void *, unsigned[2]); /* nvmlUtilization_t: GPU, memory; per cent */
    unsigned percent[2] = {0, 0}, count = 0;
    if (gpu->nvml && nvml_find(run, "nvmlDeviceGetUtilizationRates", &utilization) &&
        utilization(gpu->nvml, percent) == 0 && percent[0] <= 100)
        gpu->busy_percent = percent[0];
    /* With no room for entries it answers "insufficient size" (7) and how many there are. */
    if (gpu->nvml && nvml_find(run, "nvmlDeviceGetComputeRunningProcesses_v3", &processes) &&
        processes(gpu->nvml, &count, NULL) == 7)
        gpu->busy_processes = count;
}

/* ---- Memory ----------------------------------------------------------------------------------
 * A table of the kinds of memory. Host buffers hold a pattern in which every word differs, so a copy
 * that is late, short or misplaced shows; they are written by several threads at once. What a copy
 * brought is told from probes: the first word of every page of the range copied, and its last word.
 */

/* Returns the pattern's word at an offset. Each of its bytes varies between chunks and pages too, so that a
 * short last word shows what it should. */
static uint64_t pattern(size_t offset) {
    uint64_t word = (offset / 8 + 1) * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    return word ^ word >> 32;
}

/* Part of a host buffer, and what is to be done to it. It begins at a multiple of 8 unless it is shorter. */
struct slice {
    void (*work)(struct slice *);
    unsigned char *buffer;
    size_t from, to, end;    /* end: of all slices */
    size_t wrong;            /* offset of the first word found wrong; SIZE_MAX: none */
    const struct cpus *cpus; /* for the thread that works on it; NULL: it may stay where it is */
};

/* Returns where the probe after the one at `at` lies: a page on; after the last page's, the last word of all; after
 * that, or at a slice's end, s->to: there is no more. */
static size_t next_probe(const struct slice *s, size_t at) {
    size_t last = (s->end - 1) / 8 * 8;
    return at + PAGE < s->to ? at + PAGE : s->to == s->end && at < last ? last : s->to;
}

/* Writes the pattern to every byte. */
static void fill(struct slice *s) {
    for (size_t at = s->from; at < s->to; at += 8) {
        uint64_t word = pattern(at);
        memcpy(s->buffer + at, &word, s->to - at < 8 ? s->to - at : 8);
    }
}

/* Makes the probes wrong, all bits of them. */
static void spoil(struct slice *s) {
    for (size_t at = s->from; at < s->to; at = next_probe(s, at)) {
        uint64_t word = ~pattern(at);
        memcpy(s->buffer + at, &word, s->to - at < 8 ? s->to - at : 8);
    }
}

/* Compares the probes with the pattern. */
static void check(struct slice *s) {
    for (size_t at = s->from; at < s->to && s->wrong == SIZE_MAX; at = next_probe(s, at)) {
        uint64_t word = pattern(at);
        if (memcmp(s->buffer + at, &word, s->to - at < 8 ? s->to - at : 8) != 0) s->wrong = at;
    }
}

/* For at_once(): works on one slice. */
static void *work_on_slice(void *item) {
    struct slice *s = item;
    if (s->cpus) sched_setaffinity(0, sizeof *s->cpus, s->cpus->set);
    s->work(s);
    return NULL;
}

/* For at_once(): a slice that gets no thread is done on this one. */
static void without_thread(void *item, int error) {
    (void)error;
    ((struct slice *)item)->cpus = NULL;
    work_on_slice(item);
}

/* Works on [from, to) of a host buffer by several threads. They stay on the memory node of this thread, so
 * that pages which they touch first lie there, as those of cudaMallocHost do. Returns the lowest offset
 * found wrong, or SIZE_MAX. */
static size_t in_slices(void (*work)(struct slice *), void *buffer, size_t from, size_t to) {
    struct slice slices[MAX_FILL_THREADS];
    struct cpus cpus;
    size_t n = to - from < MIB ? 1 : (size_t)own_cpus(&cpus), wrong = SIZE_MAX;
    if (n > 1) keep_node(&cpus);
    if (n > 1) n = (size_t)CPU_COUNT_S(sizeof cpus, cpus.set);
    n = n < 1 ? 1 : n > MAX_FILL_THREADS ? MAX_FILL_THREADS : n;
    size_t each = ((to - from) / n + PAGE) / PAGE * PAGE;
    for (size_t i = 0; i < n; i++) {
        size_t end = from + each < to ? from + each : to;
        slices[i] = (struct slice){work, buffer, from, end, to, SIZE_MAX, i ? &cpus : NULL};
        from = end;
    }
    at_once(slices, n, sizeof slices[0], work_on_slice, without_thread);
    for (size_t i = 0; i < n; i++)
        if (slices[i].wrong < wrong) wrong = slices[i].wrong;
    return wrong;
}

/* A kind of memory: how to get it (an error, or the buffer in `*at`) and how to give it back. */
struct memory {
    struct choice choice;
    cudaError_t (*get)(void **at, size_t bytes);
    cudaError_t (*release)(void *at);
    bool pinned;     /* page-locked as long as it is there */
    bool registered; /* by cudaHostRegister, after it was got */
    bool huge;       /* asks the kernel for 2 MB pages */
    bool staged;     /* copied through pinned chunks, not by cudaMemcpy */
};

/* Pageable memory. */
static cudaError_t get_malloc(void **at, size_t bytes) {
    *at = malloc(bytes);
    return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Gives pageable memory back. */
static cudaError_t free_malloc(void *at) {
    free(at);
    return cudaSuccess;
}

/* Pageable memory in 2 MB pages, if the kernel gives them. */
static cudaError_t get_huge(void **at, size_t bytes) {
    size_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
    if (posix_memalign(at, huge_page, whole) != 0) return cudaErrorMemoryAllocation;
    madvise(*at, whole, MADV_HUGEPAGE); /* huge_bytes() tells what came of it */
    return cudaSuccess;
}

/* Page-locked memory that the CPU writes fast and reads slowly. */
static cudaError_t get_write_combined(void **at, size_t bytes) {
    return cudaHostAlloc(at, bytes, cudaHostAllocWriteCombined);
}

static const struct memory device_memory = {.choice.name = "GPU", .get = cudaMalloc, .release = cudaFree};
static const struct memory pageable_memory = {
    .choice.name = "pageable host", .get = get_malloc, .release = free_malloc};
static const struct memory huge_memory = {
    .choice.name = "pageable host", .get = get_huge, .release = free_malloc, .huge = true};

/* A row of this table is a method of --pin; the first is the default. */
enum { MALLOC_HOST, REGISTER, HUGE_PAGES, WRITE_COMBINED, STAGED };
static const struct memory pin_methods[] = {
    [MALLOC_HOST] = {{"malloc-host", "cudaMallocHost"}, cudaMallocHost, cudaFreeHost, .pinned = true},
    [REGISTER] =
        {{"register", "malloc, then cudaHostRegister"}, get_malloc, free_malloc, .pinned = true, .registered = true},
    [HUGE_PAGES] = {{"huge", "2 MB pages, then cudaHostRegister"},
                    get_huge,
                    free_malloc,
                    .pinned = true,
                    .registered = true,
                    .huge = true},
    [WRITE_COMBINED] = {{"write-combined", "cudaHostAllocWriteCombined"},
                        get_write_combined,
                        cudaFreeHost,
                        .pinned = true},
    [STAGED] = {{"staged", "malloc, copied through pinned chunks"}, get_malloc, free_malloc, .staged = true},
};

/* Gets memory, which free_memory() gives back; on an error there is none. Pages that are to be registered are
 * written first, by many threads: that makes registering ten times as fast. */
static cudaError_t get_memory(const struct memory *memory, void **at, size_t bytes) {
    cudaError_t error = memory->get(at, bytes);
    if (error != cudaSuccess || !memory->registered) return error;
    in_slices(fill, *at, 0, bytes);
    error = cudaHostRegister(*at, bytes, cudaHostRegisterDefault);
    if (error != cudaSuccess) memory->release(*at);
    return error;
}

/* Gives memory back. */
static void free_memory(const struct memory *memory, void *at) {
    if (memory->registered) cudaHostUnregister(at);
    memory->release(at);
}

/* Gives whole pages back to the kernel: reads then see the zero page, as after a fresh malloc. Returns whether
 * it could be done; if not, errno is set, or 0 where the buffer holds no whole page. */
static bool drop_pages(unsigned char *buffer, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)buffer + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)buffer + bytes) / page * page;
    errno = 0; /* where no page is whole */
    return end > begin && madvise((void *)begin, end - begin, MADV_DONTNEED) == 0;
}

/* ---- Staged copies ---------------------------------------------------------------------------
 * How a program moves data that lies in malloc'd memory at nearly the speed of pinned memory, without
 * pinning all of it. cudaMemcpy of such memory is slow because one core copies it into the driver's
 * pinned buffer. Here several threads do that. They take chunks in turn; each copies its chunk into a
 * pinned buffer of its own and starts cudaMemcpyAsync from there. For D2H it is the other way round.
 *
 * A thread has two buffers, so that it fills one while the copy engine empties the other: before it
 * uses a buffer again it waits for the event behind that buffer's last copy. Chunks are 2 MB: with 8
 * threads on an H200 host, chunks of 256 KB gave 18 GB/s, 1 MB 38, 2 MB 48, 4 MB 50 and 8 MB 43, and
 * small chunks keep more threads busy with small buffers.
 *
 * To lift this into a program take this section, the #includes, and from above COUNT, WHY, advices[] and
 * cuda_failed(), which turns an error into a sentence. Call staged_start(), staged_copy() as often as you like, and
 * staged_stop().
 */

enum { CHUNK = 2 << 20 };

/* A copy between two pieces of memory: the first `in` bytes go to the device, the rest comes from it. */
struct transfer {
    unsigned char *device, *host;
    size_t in, bytes;
};

struct staged {
    int device;
    int threads, count; /* how many were asked for, and how many run */
    struct stager {
        struct staged *all;
        pthread_t thread;
        unsigned char *buffer; /* pinned; two chunks */
        size_t holds[2];       /* offset of the chunk from the device that is in it, or NO_CHUNK */
        cudaEvent_t copied[2]; /* behind the last copy from or into it */
        cudaStream_t stream;
        char why[WHY];      /* why its last copy failed; "" if it did not */
    } * stagers;            /* owned */
    pthread_barrier_t gate; /* all threads and the caller meet here before and after each transfer */
    struct transfer transfer;
    _Atomic size_t next; /* chunk that is to be taken */
    /* waiting: until all are started, since only then it is known how many meet at the gate. ending: for good. */
    _Atomic bool waiting, ending;
    bool direct; /* to compare: cudaMemcpyAsync of malloc'd memory itself, without buffers */
};
#define NO_CHUNK SIZE_MAX

/* Takes the next chunk: its offset goes into `*at`. In and out take turns as long as there are both.
 * Returns its size in bytes, 0 if there is none left; `*in` says which way it goes. */
static size_t take_chunk(struct staged *s, size_t *at, bool *in) {
    const struct transfer *t = &s->transfer;
    size_t i = s->next++, ins = (t->in + CHUNK - 1) / CHUNK, outs = (t->bytes - t->in + CHUNK - 1) / CHUNK;
    size_t turns = ins < outs ? ins : outs; /* of one chunk each way */
    if (i >= ins + outs) return 0;
    *in = i < 2 * turns ? i % 2 == 0 : ins > outs;
    *at = (i < 2 * turns ? i / 2 : i - turns) * CHUNK + (*in ? 0 : t->in);
    size_t end = *in ? t->in : t->bytes;
    return end - *at < CHUNK ? end - *at : CHUNK;
}

/* Waits until a buffer's copy has ended; if it came from the device, brings it to its place. Returns
 * false on failure: why in me->why. */
static bool empty_buffer(struct stager *me, int which) {
    const struct transfer *t = &me->all->transfer;
    size_t at = me->holds[which];
    if (cuda_failed(cudaEventSynchronize(me->copied[which]), "cudaEventSynchronize", me->why)) return false;
    if (at == NO_CHUNK) return true;
    memcpy(t->host + at, me->buffer + which * CHUNK, t->bytes - at < CHUNK ? t->bytes - at : CHUNK);
    me->holds[which] = NO_CHUNK;
    return true;
}

/* Starts a chunk's copy from or into a buffer that is empty. Returns false on failure: why in me->why. */
static bool start_chunk(struct stager *me, int which, size_t at, size_t bytes, bool in) {
    const struct transfer *t = &me->all->transfer;
    unsigned char *buffer = me->all->direct ? t->host + at : me->buffer + which * CHUNK;
    if (in && !me->all->direct) memcpy(buffer, t->host + at, bytes);
    cudaError_t error = in ? cudaMemcpyAsync(t->device + at, buffer, bytes, cudaMemcpyHostToDevice, me->stream)
                           : cudaMemcpyAsync(buffer, t->device + at, bytes, cudaMemcpyDeviceToHost, me->stream);
    if (cuda_failed(error, "cudaMemcpyAsync", me->why)) return false;
    me->holds[which] = in || me->all->direct ? NO_CHUNK : at;
    return !cuda_failed(cudaEventRecord(me->copied[which], me->stream), "cudaEventRecord", me->why);
}

/* Copies chunks until there are none left. After a failure nobody takes a further one. */
static void stage_chunks(struct stager *me) {
    struct staged *s = me->all;
    size_t at, bytes;
    bool in, good = true;
    int which = 0;
    me->holds[0] = me->holds[1] = NO_CHUNK;
    for (; good && (bytes = take_chunk(s, &at, &in)) > 0; which ^= 1)
        good = empty_buffer(me, which) && start_chunk(me, which, at, bytes, in);
    for (int i = 0; good && i < 2; i++, which ^= 1) good = empty_buffer(me, which);
    if (!good) s->next = NO_CHUNK / 2;
}

/* Thread body: makes its part of every transfer until the end. */
static void *stage(void *argument) {
    struct stager *me = argument;
    struct staged *s = me->all;
    char why[WHY] = "";
    cuda_failed(cudaSetDevice(s->device), "cudaSetDevice", why);
    while (s->waiting) sched_yield(); /* microseconds */
    for (;;) {
        pthread_barrier_wait(&s->gate);
        if (s->ending) return NULL;
        strcpy(me->why, why);
        if (why[0]) s->next = NO_CHUNK / 2;
        else stage_chunks(me);
        pthread_barrier_wait(&s->gate);
    }
}

/* Ends the threads and gives everything back. */
static void staged_stop(struct staged *s) {
    if (!s->stagers) return;
    s->ending = true;
    if (s->count) pthread_barrier_wait(&s->gate);
    for (int i = 0; i < s->count; i++) pthread_join(s->stagers[i].thread, NULL);
    if (s->count) pthread_barrier_destroy(&s->gate);
    for (struct stager *me = s->stagers; me < s->stagers + s->threads; me++) {
        for (int i = 0; i < 2; i++)
            if (me->copied[i]) cudaEventDestroy(me->copied[i]);
        if (me->stream) cudaStreamDestroy(me->stream);
        if (me->buffer) cudaFreeHost(me->buffer);
    }
    free(s->stagers);
    *s = (struct staged){.count = 0};
}

/* Starts the threads, on the CPUs that this thread may use, and gets their buffers unless they work without.
 * Returns false on failure, with nothing left to stop: why in `why`. */
static bool staged_start(struct staged *s, int device, int threads, bool direct, char why[WHY]) {
    bool good = true;
    *s = (struct staged){.device = device, .threads = threads, .direct = direct, .waiting = true};
    s->stagers = calloc((size_t)threads, sizeof *s->stagers);
    if (!s->stagers) return !cuda_failed(cudaErrorMemoryAllocation, "starting staged copies", why);
    for (struct stager *me = s->stagers; good && me < s->stagers + threads; me++) {
        me->all = s;
        cudaError_t pinned = direct ? cudaSuccess : cudaMallocHost((void **)&me->buffer, 2 * CHUNK);
        good =
            !(cuda_failed(pinned, "cudaMallocHost", why) ||
              cuda_failed(cudaStreamCreate(&me->stream), "cudaStreamCreate", why) ||
              cuda_failed(cudaEventCreateWithFlags(&me->copied[0], cudaEventDisableTiming), "cudaEventCreate", why) ||
              cuda_failed(cudaEventCreateWithFlags(&me->copied[1], cudaEventDisableTiming), "cudaEventCreate", why));
        int error = good ? pthread_create(&me->thread, NULL, stage, me) : 0;
        if (error)
            snprintf(why, WHY, "starting thread %d of %d: %s; try fewer --threads", s->count + 1, threads,
                     strerror(error));
        good = good && error == 0;
        s->count += good;
    }
    if (s->count) pthread_barrier_init(&s->gate, NULL, (unsigned)s->count + 1);
    s->waiting = false;
    if (!good) staged_stop(s);
    return good;
}

/* Writes over what the last copy left in the buffers. For a check only, a program does not need it. */
static void staged_spoil(const struct staged *s) {
    for (int i = 0; i < s->count && !s->direct; i++) memset(s->stagers[i].buffer, 0, 2 * CHUNK);
}

/* Copies, and returns when all of it has arrived. Returns false on failure: why in `why`. */
static bool staged_copy(struct staged *s, struct transfer transfer, char why[WHY]) {
    s->transfer = transfer;
    s->next = 0;
    pthread_barrier_wait(&s->gate); /* begin */
    pthread_barrier_wait(&s->gate); /* end */
    for (int i = 0; i < s->count; i++)
        if (s->stagers[i].why[0]) {
            strcpy(why, s->stagers[i].why);
            return false;
        }
    return true;
}

/* ---- Measuring -------------------------------------------------------------------------------
 * The main thread does everything, in plain loops: it sets up each GPU of a team (one GPU, or with
 * --parallel all of them), and for each row and kind of memory prepares each GPU, copies on all of
 * them at once, and checks each. Only the copies of a team run beside each other, so nothing that is not timed
 * runs beside a timed copy. The threads meet between warm-up and timed copies, and end with the cell.
 */

/* What a GPU is measured with, and the cell at hand. It lives as long as its team is measured. */
struct bench {
    const struct options *opt;
    struct gpu *gpu;
    struct buffer {
        void *at;
        size_t bytes; /* 0: could not be had */
        const struct memory *memory;
    } buffers[BUFFERS];
    uint64_t *words; /* as many as the device buffer has probes; owned */
    struct staged staged;
    cudaStream_t streams[2]; /* for the halves of BiD */
    cudaEvent_t start, stop;
    struct row *row; /* the cell at hand */
    enum kind kind;
    bool ready;                /* it can be copied */
    int copied;                /* times, warm-up included */
    _Atomic int *warming;      /* GPUs of the team that are not done with their warm-up */
    struct progress *progress; /* NULL: another GPU's copies are shown */
    int nrows;
};

/* Returns the cell at hand. */
static struct cell *cell_of(const struct bench *b) { return &b->row->cell[b->kind]; }

/* Returns how many bytes of a copy go in, whole pages or words if there are such; the rest comes out. */
static size_t bytes_in(const struct row *row) {
    size_t half = row->bytes / 2, whole = row->bytes < 2 * PAGE ? (half + 7) / 8 * 8 : half / PAGE * PAGE;
    return !row->direction->out ? row->bytes : !row->direction->in ? 0 : row->bytes > 8 ? whole : half;
}

/* Returns the transfer of the cell at hand. */
static struct transfer transfer_of(const struct bench *b) {
    return (struct transfer){b->buffers[DEVICE].at, b->buffers[b->kind].at, bytes_in(b->row), b->row->bytes};
}

/* Makes a GPU this thread's own: every step on a GPU begins with it. Returns false on failure: why in
 * `why`, unless there is a reason already. */
static bool enter_gpu(const struct bench *b, char why[WHY]) {
    char reason[WHY];
    sched_setaffinity(0, sizeof b->gpu->cpus, b->gpu->cpus.set); /* if refused, the run is only less steady */
    if (!cuda_failed(cudaSetDevice(b->gpu->index), "cudaSetDevice", reason)) return true;
    if (!why[0]) strcpy(why, reason);
    return false;
}

/* A way to make one copy. Returns false on failure: why in `why`. */
typedef bool copy_fn(struct bench *b, struct transfer t, char why[WHY]);

/* Copies by cudaMemcpy; both ways at once on two streams, as a program would. */
static bool copy_plain(struct bench *b, struct transfer t, char why[WHY]) {
    unsigned char *device = t.device + t.in, *host = t.host + t.in; /* of the part that comes out */
    if (t.in == t.bytes)
        return !cuda_failed(cudaMemcpy(t.device, t.host, t.in, cudaMemcpyHostToDevice), "cudaMemcpy", why);
    if (t.in == 0) return !cuda_failed(cudaMemcpy(host, device, t.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy", why);
    cudaError_t error = cudaMemcpyAsync(t.device, t.host, t.in, cudaMemcpyHostToDevice, b->streams[0]);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(host, device, t.bytes - t.in, cudaMemcpyDeviceToHost, b->streams[1]);
    return !cuda_failed(error, "cudaMemcpyAsync", why);
}

/* Copies by the threads of staged copies. */
static bool copy_staged(struct bench *b, struct transfer t, char why[WHY]) { return staged_copy(&b->staged, t, why); }

/* Makes one copy and returns its GB/s, or NAN, why in `why`. The events are recorded in the legacy
 * default stream, which waits for all other streams and holds them back (CUDA runtime API, "Stream
 * synchronization behavior"), so they enclose BiD's halves and all chunks of a staged copy too. */
static double time_copy(struct bench *b, copy_fn *copy, struct transfer t, char why[WHY]) {
    float ms = NAN;
    if (cuda_failed(cudaEventRecord(b->start, 0), "cudaEventRecord", why) || !copy(b, t, why) ||
        cuda_failed(cudaEventRecord(b->stop, 0), "cudaEventRecord", why) ||
        cuda_failed(cudaEventSynchronize(b->stop), "cudaEventSynchronize", why) ||
        cuda_failed(cudaEventElapsedTime(&ms, b->start, b->stop), "cudaEventElapsedTime", why))
        return NAN;
    if (ms > 0 && isfinite(ms)) return (double)t.bytes / ms / 1e6;
    snprintf(why, WHY, "the elapsed time of a copy reads %g ms", (double)ms);
    return NAN;
}

/* Makes `n` copies of the cell at hand and keeps their rates if they are timed. Returns false if one
 * failed. */
static bool make_copies(struct bench *b, int n, bool timed) {
    struct cell *cell = cell_of(b);
    struct transfer t = transfer_of(b);
    char size[32];
    for (int i = 0; i < n && !interrupted; i++) {
        if (b->progress)
            show_progress(b->progress, "GPU %d: %s %s %s, copy %d of %d, row %d of %d", b->gpu->index,
                          size_label(b->row->bytes, size), b->row->direction->name, kind_names[b->kind], b->copied + 1,
                          b->opt->warmup + b->opt->iters, (int)(b->row - b->gpu->rows) + 1, b->nrows);
        double gbps = time_copy(b, b->buffers[b->kind].memory->staged ? copy_staged : copy_plain, t, cell->why);
        if (isnan(gbps)) return false;
        if (timed) cell->samples[cell->count++] = gbps;
        b->copied++;
    }
    return true;
}

/* For at_once(): warm-up and timed copies of one GPU's cell at hand. */
static void *copy_cell(void *item) {
    struct bench *b = item;
    if (!b->ready) return NULL;
    bool good = enter_gpu(b, cell_of(b)->why) && make_copies(b, b->opt->warmup, false);
    --*b->warming;
    while (*b->warming > 0) sched_yield();
    if (good) make_copies(b, b->opt->iters, true);
    return NULL;
}

/* For at_once(): a GPU that gets no thread fails its cell, and no other waits for it. */
static void copy_without_thread(void *item, int error) {
    struct bench *b = item;
    if (!b->ready) return;
    snprintf(cell_of(b)->why, WHY, "starting a thread: %s", strerror(error));
    --*b->warming;
}

/* Returns the offset of the last probe in [from, to), a word or what there is of one. */
static size_t last_probe(size_t from, size_t to) { return (to - 1) / 8 * 8 > from ? (to - 1) / 8 * 8 : from; }

/* Returns the rows of PAGE bytes in [from, to) whose first word is a probe. */
static size_t probe_rows(size_t from, size_t to) { return to - from < 8 ? 0 : (to - from - 8) / PAGE + 1; }

/* Spoils the probes of the first `bytes` of the device buffer, with a byte that its source does not end in: that
 * may be the pattern, its complement after a D2H that failed, or zeros with --untouched. */
static cudaError_t spoil_device(const struct bench *b, size_t bytes) {
    unsigned char *device = b->buffers[DEVICE].at;
    size_t last = last_probe(0, bytes);
    int ends = (int)(pattern(last) >> (bytes - 1 - last) * 8 & 0xff), value = 0xff;
    while (value == ends || value == (~ends & 0xff)) value -= 0x55;
    cudaError_t error = cudaMemset2D(device, PAGE, value, 8, probe_rows(0, bytes));
    return error != cudaSuccess ? error : cudaMemset(device + last, value, bytes - last);
}

/* Copies the probes of the device buffer to b->words, or with `in` the other way; the last one, too, as a row of a 2D
 * copy, so that no check looks like a copy that is measured. 524,288 words of a buffer of 2 GB take 3 ms on an H200. */
static cudaError_t copy_words(const struct bench *b, size_t from, size_t to, bool in) {
    unsigned char *device = b->buffers[DEVICE].at;
    size_t rows = probe_rows(from, to), last = last_probe(from, to);
    uint64_t *end = b->words + rows;
    for (size_t i = 0; in && i < rows; i++) b->words[i] = pattern(from + i * PAGE);
    if (in) *end = pattern(last);
    cudaError_t error = in ? cudaMemcpy2D(device + from, PAGE, b->words, 8, 8, rows, cudaMemcpyHostToDevice)
                           : cudaMemcpy2D(b->words, 8, device + from, PAGE, 8, rows, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return error;
    return in ? cudaMemcpy2D(device + last, 8, end, 8, to - last, 1, cudaMemcpyHostToDevice)
              : cudaMemcpy2D(end, 8, device + last, 8, to - last, 1, cudaMemcpyDeviceToHost);
}

/* Compares b->words with the first `bytes` of the source that they were copied from: the pattern, or what else
 * it holds. Returns the lowest offset found wrong, or SIZE_MAX. */
static size_t check_words(const struct bench *b, const unsigned char *host, size_t bytes) {
    size_t rows = probe_rows(0, bytes), last = last_probe(0, bytes);
    for (size_t i = 0; i < rows; i++)
        if (b->words[i] != pattern(i * PAGE) && memcmp(&b->words[i], host + i * PAGE, 8) != 0) return i * PAGE;
    return memcmp(&b->words[rows], host + last, bytes - last) == 0 ? SIZE_MAX : last;
}

/* Spoils the probes where a transfer is to bring data, and the buffers of staged copies, and makes its source good if
 * that is the device. Returns false on failure: why in `why`. */
static bool spoil_target(const struct bench *b, struct transfer t, char why[WHY]) {
    cudaError_t error = t.in ? spoil_device(b, t.in) : cudaSuccess;
    if (t.in < t.bytes) in_slices(spoil, t.host, t.in, t.bytes);
    if (t.in < t.bytes && error == cudaSuccess) error = copy_words(b, t.in, t.bytes, true);
    staged_spoil(&b->staged);
    if (error == cudaSuccess) error = cudaDeviceSynchronize(); /* not beside another GPU's timed copies */
    return !cuda_failed(error, "preparing the data check", why);
}

/* Returns whether a transfer brought its data; otherwise `why` says where it did not. */
static bool check_target(const struct bench *b, struct transfer t, char why[WHY]) {
    size_t wrong = SIZE_MAX;
    if (t.in && cuda_failed(copy_words(b, 0, t.in, false), "checking the data", why)) return false;
    if (t.in) wrong = check_words(b, t.host, t.in);
    if (t.in < t.bytes && wrong == SIZE_MAX) wrong = in_slices(check, t.host, t.in, t.bytes);
    if (wrong != SIZE_MAX) snprintf(why, WHY, "data mismatch at offset %zu", wrong);
    return wrong == SIZE_MAX;
}

/* Brings the buffers into the state that a cell's copies start from. Returns false on failure: why in the
 * cell. */
static bool prepare_cell(struct bench *b) {
    struct cell *cell = cell_of(b);
    struct transfer t = transfer_of(b);
    if (!enter_gpu(b, cell->why)) return false;
    cell->begun = true;
    cell->samples = malloc(2 * (size_t)b->opt->iters * sizeof *cell->samples);
    if (!cell->samples) return !cuda_failed(cudaErrorMemoryAllocation, "keeping the samples", cell->why);
    if (t.in && b->opt->untouched && b->kind == PAGEABLE && !drop_pages(t.host, t.in)) {
        if (errno)
            snprintf(cell->why, WHY, "--untouched: the kernel does not take the pages back: %s", strerror(errno));
        else snprintf(cell->why, WHY, "--untouched: a buffer this small has no page of its own");
        return false;
    }
    return b->opt->no_verify || spoil_target(b, t, cell->why);
}

/* After a failure: if the next call fails too, the context is dead, and the GPU keeps the reason. CUDA's
 * documentation calls such errors sticky; others, such as being out of memory, leave later calls alone. */
static void note_if_lost(struct gpu *gpu, const char *why) {
    if (cudaDeviceSynchronize() != cudaSuccess && !gpu->why[0]) strcpy(gpu->why, why);
}

/* Begins a cell: sees whether it can be measured, and prepares it. */
static void begin_cell(struct bench *b, struct row *row, enum kind kind) {
    struct cell *cell = &row->cell[kind];
    b->row = row;
    b->kind = kind;
    b->copied = 0;
    if (!cell->why[0]) strcpy(cell->why, b->gpu->why);
    b->ready =
        !cell->why[0] && !interrupted && b->buffers[DEVICE].bytes >= row->bytes && b->buffers[kind].bytes >= row->bytes;
    if (!b->ready || prepare_cell(b)) return;
    b->ready = false;
    note_if_lost(b->gpu, cell->why);
}

/* Ends a cell: checks its data. A cell that failed keeps no samples. */
static void end_cell(struct bench *b) {
    struct cell *cell = cell_of(b);
    if (!b->ready) return;
    if (enter_gpu(b, cell->why) && b->copied && !cell->why[0] && !b->opt->no_verify)
        check_target(b, transfer_of(b), cell->why);
    if (!cell->why[0]) return;
    cell->count = 0;
    note_if_lost(b->gpu, cell->why);
}

/* Measures one cell, of row `r`, on all GPUs of a team. The links are read right after the copies. */
static void measure_cells(struct run *run, struct bench *benches, int n, int r, enum kind kind) {
    _Atomic int warming = 0;
    for (struct bench *b = benches; b < benches + n; b++) {
        begin_cell(b, &b->gpu->rows[r], kind);
        b->warming = &warming;
        warming += b->ready;
    }
    at_once(benches, (size_t)n, sizeof *benches, copy_cell, copy_without_thread);
    for (struct bench *b = benches; b < benches + n; b++)
        if (b->ready) link_observe(run, b->gpu);
    for (struct bench *b = benches; b < benches + n; b++) end_cell(b);
}

/* Returns the largest of the sizes asked for that is at most `limit`, 0 if there is none. */
static size_t largest_size(const struct options *opt, size_t limit) {
    size_t best = 0;
    for (int i = 0; i < opt->nsizes; i++)
        if (opt->sizes[i] <= limit && opt->sizes[i] > best) best = opt->sizes[i];
    return best;
}

/* Fails the cells of one size: those of one kind of memory, or of all if it is DEVICE. */
static void fail_size(const struct bench *b, enum kind kind, size_t bytes, const char *why) {
    for (struct row *row = b->gpu->rows; row < b->gpu->rows + b->nrows; row++)
        for (enum kind k = PAGEABLE; k < KINDS; k++)
            if (row->bytes == bytes && (kind == DEVICE || kind == k) && !row->cell[k].why[0])
                strcpy(row->cell[k].why, why);
}

/* What to try where a buffer does not fit. */
static const char smaller[] = "smaller --sizes";

/* Returns whether the host has no room for `buffers` buffers of `bytes`; then `why` gets a sentence that ends with what
 * to try. It is asked anew each time, since what was got before has been written and counts. */
static bool no_room(size_t bytes, size_t buffers, const char *doing, const char *try, char why[WHY]) {
    struct room room = host_room();
    if (buffers == 0 || (room.bytes > host_reserve && bytes <= (room.bytes - host_reserve) / buffers)) return false;
    snprintf(why, WHY, "%s: %zu MB are needed%s and %zu MB kept back, %zu MB are left (%s); try %s", doing,
             (bytes * buffers + MIB - 1) / MIB, buffers > 1 ? " with the other buffers of that size" : "",
             host_reserve / MIB, room.bytes / MIB, room.source, try);
    return true;
}

/* Gets one buffer, at the largest size up to `limit` that can be had, and writes it if it is the host's;
 * larger sizes fail with the reason. A host buffer is taken only where there is room for all `buffers` of
 * its size that are still to be got, so that no size takes the room of another. */
static void get_buffer(struct bench *b, enum kind kind, size_t limit, size_t buffers) {
    struct buffer *buffer = &b->buffers[kind];
    char why[WHY], doing[96], size[32];
    buffer->memory = kind == DEVICE ? &device_memory : kind == PAGEABLE ? &pageable_memory : b->opt->pin;
    for (size_t n = largest_size(b->opt, limit); n && !interrupted; n = largest_size(b->opt, n - 1)) {
        snprintf(doing, sizeof doing, "allocating %s of %s memory", size_label(n, size),
                 kind == PINNED ? "pinned host" : buffer->memory->choice.name);
        if (!no_room(n, buffers, doing, smaller, why)) {
            if (!cuda_failed(get_memory(buffer->memory, &buffer->at, n), doing, why)) {
                buffer->bytes = n;
                if (kind != DEVICE && !buffer->memory->registered) in_slices(fill, buffer->at, 0, n);
                return;
            }
            if (kind == PINNED && strcmp(host_kind(), "WSL2") == 0)
                strncat(why, "; WSL2 caps pinned memory", WHY - strlen(why) - 1);
        }
        fail_size(b, kind, n, why);
    }
}

/* Makes the context, streams and events. Returns false on failure: gpu->why says why. */
static bool open_gpu(struct bench *b) {
    char *why = b->gpu->why;
    return enter_gpu(b, why) && !(cuda_failed(cudaStreamCreate(&b->streams[0]), "cudaStreamCreate", why) ||
                                  cuda_failed(cudaStreamCreate(&b->streams[1]), "cudaStreamCreate", why) ||
                                  cuda_failed(cudaEventCreate(&b->start), "cudaEventCreate", why) ||
                                  cuda_failed(cudaEventCreate(&b->stop), "cudaEventCreate", why));
}

/* Gives a buffer back, if there is one. */
static void release_buffer(struct buffer *buffer) {
    if (buffer->bytes) free_memory(buffer->memory, buffer->at);
    buffer->bytes = 0;
}

/* Notes how much of a buffer that asks for 2 MB pages, and was written, did not get them; the most of all. */
static void count_small_pages(struct gpu *gpu, const void *at, size_t bytes) {
    size_t whole = (bytes + huge_page - 1) / huge_page * huge_page, huge = huge_bytes(at, whole);
    if (whole > huge && whole - huge > gpu->huge_missing) gpu->huge_missing = whole - huge;
}

/* Starts the threads of staged copies where the host has room for their buffers. Returns false on failure: why in
 * `why`. */
static bool start_stagers(struct bench *b, int threads, bool direct, char why[WHY]) {
    return !no_room((size_t)threads * 2 * CHUNK, !direct, "allocating the buffers of staged copies", "fewer --threads",
                    why) &&
           staged_start(&b->staged, b->gpu->index, threads, direct, why);
}

/* Gets all buffers, and starts the threads of staged copies. */
static void get_buffers(const struct run *run, struct bench *b) {
    struct buffer *buffers = b->buffers;
    char why[WHY];
    get_buffer(b, DEVICE, SIZE_MAX,
               b->gpu->link.kind == LINK_INTEGRATED ? BUFFERS : 0); /* there it is host memory too */
    get_buffer(b, PINNED, buffers[DEVICE].bytes, KINDS);
    get_buffer(b, PAGEABLE, buffers[DEVICE].bytes, 1);
    b->words = malloc((buffers[DEVICE].bytes / PAGE + 2) * sizeof *b->words);
    if (!b->words) cuda_failed(cudaErrorMemoryAllocation, "preparing the data check", b->gpu->why);
    if (buffers[PINNED].bytes && b->opt->pin->huge)
        count_small_pages(b->gpu, buffers[PINNED].at, buffers[PINNED].bytes);
    if (buffers[PINNED].bytes && b->opt->pin->staged && !start_stagers(b, run->threads, false, why)) {
        for (int i = 0; i < b->opt->nsizes; i++) fail_size(b, PINNED, b->opt->sizes[i], why);
        note_if_lost(b->gpu, why);
    }
}

/* Sets one GPU up: context and buffers, and copies until the link has woken up. */
static void set_up(struct run *run, struct bench *b) {
    struct gpu *gpu = b->gpu;
    char why[WHY];
    b->opt = run->opt;
    b->nrows = run->nrows;
    if (gpu->why[0]) return;
    show_progress(&run->progress, "GPU %d: setting up", gpu->index);
    gpu_observe_load(run, gpu);
    gpu->ready = open_gpu(b);
    if (!gpu->ready) return;
    get_buffers(run, b);
    const struct buffer *host = &b->buffers[b->buffers[PINNED].bytes ? PINNED : PAGEABLE];
    size_t bytes = host->bytes < wake_bytes ? host->bytes : wake_bytes;
    for (int i = 0;
         i < LINK_TRIES && !interrupted && !gpu->why[0] && (i == 0 || (gpu->nvml && !link_at_max(&gpu->link))); i++) {
        cudaError_t error =
            bytes ? cudaMemcpy(b->buffers[DEVICE].at, host->at, bytes, cudaMemcpyHostToDevice) : cudaSuccess;
        if (cuda_failed(error, "waking the link", why)) note_if_lost(gpu, why);
        link_observe(run, gpu);
    }
}

/* Gives back what set_up() got. */
static void tear_down(struct bench *b) {
    char why[WHY] = "";
    enter_gpu(b, why);
    staged_stop(&b->staged);
    for (int k = 0; k < BUFFERS; k++) release_buffer(&b->buffers[k]);
    free(b->words);
    for (int i = 0; i < 2; i++)
        if (b->streams[i]) cudaStreamDestroy(b->streams[i]);
    if (b->start) cudaEventDestroy(b->start);
    if (b->stop) cudaEventDestroy(b->stop);
}

/* ---- Statistics ------------------------------------------------------------------------------
 * Pure functions from samples to figures; NAN stands for what was not measured.
 */

/* Orders two doubles for qsort. */
static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the statistics of `n` samples (stddev is the sample's, n - 1); all NAN if there are none. They are sorted in
 * the room that begins `most` samples on. */
static struct stats stats_of(double *samples, int n, int most) {
    struct stats s;
    set_unknown(&s, sizeof s);
    if (n == 0) return s;
    double sum = 0, squares = 0, *sorted = samples + most;
    memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    for (int i = 0; i < n; i++) sum += sorted[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++) squares += (sorted[i] - s.mean) * (sorted[i] - s.mean);
    if (n > 1) s.stddev = sqrt(squares / (n - 1));
    s.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    s.min = sorted[0];
    s.max = sorted[n - 1];
    return s;
}

/* Fills in what follows from a row's medians. */
static void compare_kinds(struct row *row) {
    double pageable = row->cell[PAGEABLE].gbps.median, pinned = row->cell[PINNED].gbps.median;
    row->ratio = pinned / pageable;
    row->delta = pinned - pageable;
}

/* Fills in one row of the totals: the bytes of the copies that all GPUs made, over the time of the GPU that took
 * longest. A total of which a part is missing is unknown. */
static void add_up(const struct run *run, struct row *total, int r) {
    for (int k = 0; k < KINDS; k++) {
        struct cell *sum = &total->cell[k];
        double longest = 0;
        sum->count = INT_MAX;
        for (const struct gpu *gpu = run->gpus; gpu < run->gpus + run->ngpus; gpu++) {
            const struct cell *cell = &gpu->rows[r].cell[k];
            if (cell->count < sum->count) sum->count = cell->count;
            if (cell->why[0]) snprintf(sum->why, WHY, "GPU %d failed", gpu->index);
        }
        for (const struct gpu *gpu = run->gpus; gpu < run->gpus + run->ngpus; gpu++) {
            double seconds = 0;
            for (int i = 0; i < sum->count; i++)
                seconds += (double)total->bytes / gpu->rows[r].cell[k].samples[i] / 1e9;
            longest = fmax(longest, seconds);
        }
        double bytes = (double)total->bytes * sum->count * run->ngpus;
        set_unknown(&sum->gbps, sizeof sum->gbps);
        if (sum->count) sum->gbps.median = sum->gbps.mean = bytes / longest / 1e9;
    }
    compare_kinds(total);
}

/* Returns the rate of a link that carries both directions at once where a row's direction has both. */
static double direction_limit(const struct direction *direction, double limit) {
    return limit * (direction->in && direction->out ? 2 : 1);
}

/* Returns the row of a GPU whose rates exceed `limit` (GB/s per direction) by most, or NULL. */
static const struct row *row_above(const struct run *run, const struct gpu *gpu, double limit) {
    const struct row *worst = NULL;
    double most = 1.001; /* rates are rounded too */
    for (const struct row *row = gpu->rows; row && row < gpu->rows + run->nrows; row++)
        for (int k = 0; k < KINDS; k++)
            if (row->cell[k].gbps.median / direction_limit(row->direction, limit) > most) {
                most = row->cell[k].gbps.median / direction_limit(row->direction, limit);
                worst = row;
            }
    return worst;
}

/* Returns what the link can carry in each direction in GB/s: as it is, or at the best that GPU and slot can
 * do, if that is known. NAN where there is no limit, or where a measured rate exceeds it. */
static double gpu_limit(const struct run *run, const struct gpu *gpu, bool best) {
    const struct link *link = &gpu->link;
    double most = pcie_limit(link->max_gen, link->max_width), limit = pcie_limit(link->gen, link->width);
    if (best) limit = most > 0 ? fmax(limit, most) : 0;
    return link->kind == LINK_PCIE && limit > 0 && !row_above(run, gpu, limit) ? limit : NAN;
}

struct summary {
    double mean[KINDS], ratio;    /* GB/s: mean of the medians; pinned mean over pageable mean */
    double limit, percent[KINDS]; /* limit of the direction in GB/s, and share of it */
    bool small, single;           /* what was left out: small sizes, rows with one kind of memory */
};

/* Ranks a row for the means: with both kinds of memory before one, and of these large before small. -1: not measured.
 */
static int row_rank(const struct row *row) {
    bool pageable = row->cell[PAGEABLE].count > 0, pinned = row->cell[PINNED].count > 0;
    return pageable || pinned ? 2 * (pageable && pinned) + (row->bytes >= summary_from) : -1;
}

/* Sums up one direction of a GPU. All means are over the same rows: those of the highest rank that there is. */
static struct summary summarize(const struct run *run, const struct gpu *gpu, const struct direction *direction) {
    struct summary s = {.small = false};
    const struct row *row, *end = gpu->rows + run->nrows;
    int best = -1, n[KINDS] = {0, 0};
    for (row = gpu->rows; row < end; row++)
        if (row->direction == direction && row_rank(row) > best) best = row_rank(row);
    for (row = gpu->rows; row < end; row++) {
        int rank = row->direction == direction ? row_rank(row) : -1;
        s.single |= rank >= 0 && rank / 2 < best / 2;
        s.small |= rank >= 0 && rank / 2 == best / 2 && rank < best;
        for (int k = 0; rank >= 0 && rank == best && k < KINDS; k++)
            if (row->cell[k].count) {
                s.mean[k] += row->cell[k].gbps.median;
                n[k]++;
            }
    }
    s.limit = direction_limit(direction, gpu_limit(run, gpu, false));
    for (int k = 0; k < KINDS; k++) {
        s.mean[k] = n[k] ? s.mean[k] / n[k] : NAN;
        s.percent[k] = s.mean[k] / s.limit * 100;
    }
    s.ratio = best < 2 ? NAN : s.mean[PINNED] / s.mean[PAGEABLE];
    return s;
}

/* Writes what a summary leaves out, as part of its title, into `out` and returns it. */
static const char *summary_scope(const struct summary *s, char out[64]) {
    snprintf(out, 64, "%s%s", s->small ? ", sizes of 16 MB and more" : "", s->single ? ", rows with both" : "");
    return out;
}

/* What every format shows of a summary; its first three stand in the text's first block. */
static const struct summary_field {
    const char *label, *key, *format; /* NULL: a rate in GB/s */
    size_t at;
} summary_fields[] = {
    {"Pageable", "pageable", NULL, offsetof(struct summary, mean[PAGEABLE])},
    {"Pinned", "pinned", NULL, offsetof(struct summary, mean[PINNED])},
    {"Ratio", "ratio", "%.1fx", offsetof(struct summary, ratio)},
    {"Limit", "limit", "~%.4g GB/s", offsetof(struct summary, limit)},
    {"Pinned efficiency", "pinned_percent", "%.0f%%", offsetof(struct summary, percent[PINNED])},
    {"Pageable efficiency", "pageable_percent", "%.0f%%", offsetof(struct summary, percent[PAGEABLE])},
};
enum { FIRST_BLOCK = 3 };

/* Returns whether anything of a row was measured or failed, so that it belongs in the report. */
static bool row_begun(const struct row *row) {
    return row_rank(row) >= 0 || row->cell[PAGEABLE].begun || row->cell[PAGEABLE].why[0] || row->cell[PINNED].why[0];
}

/* Writes a row's status into `out` and returns it: "ok", "interrupted", or "failed: " and the reasons. */
static const char *row_status(const struct run *run, const struct row *row, char out[STATUS_SIZE]) {
    const char *pageable = row->cell[PAGEABLE].why, *pinned = row->cell[PINNED].why;
    int iters = run->opt->iters;
    if (!*pageable && !*pinned)
        return row->cell[PAGEABLE].count < iters || row->cell[PINNED].count < iters ? "interrupted" : "ok";
    bool both = *pageable && *pinned && strcmp(pageable, pinned) != 0;
    snprintf(out, STATUS_SIZE, "failed: %s%s%s", *pageable ? pageable : pinned, both ? "; " : "", both ? pinned : "");
    return out;
}

/* ---- Explaining ------------------------------------------------------------------------------
 * With --explain: why pageable copies are slow, and what helps a program whose data lies in malloc'd
 * memory. Each way is measured on data of the largest size: first D2H into memory that nobody has touched
 * yet, then D2H and H2D again.
 */

/* Page-locks the memory for the time of one copy. Returns false on failure: why in `why`. */
static bool copy_registered(struct bench *b, struct transfer t, char why[WHY]) {
    if (cuda_failed(cudaHostRegister(t.host, t.bytes, cudaHostRegisterDefault), "cudaHostRegister", why)) return false;
    bool good = copy_plain(b, t, why);
    return !cuda_failed(cudaHostUnregister(t.host), "cudaHostUnregister", why) && good;
}

/* A row of this table is a way to copy: how, and from and to which memory. */
enum { PLAIN, PLAIN_HUGE, BY_THREADS, FOR_ONE_COPY, BY_STAGES, BY_STAGES_HUGE, FROM_MALLOC_HOST, FROM_HUGE };
static const struct way {
    const char *name;
    const struct memory *memory;
    copy_fn *copy;
    enum { ONE, SWEEP, ALL } threads; /* of --threads */
    bool direct;                      /* threads without buffers */
} ways[] = {
    [PLAIN] = {"cudaMemcpy", &pageable_memory, copy_plain, ONE, false}, /* the others are compared with it */
    [PLAIN_HUGE] = {"cudaMemcpy, 2 MB pages", &huge_memory, copy_plain, ONE, false},
    [BY_THREADS] = {"cudaMemcpyAsync", &pageable_memory, copy_staged, ALL, true},
    [FOR_ONE_COPY] = {"register, copy, unregister", &pageable_memory, copy_registered, ONE, false},
    [BY_STAGES] = {"staged", &pageable_memory, copy_staged, SWEEP, false},
    [BY_STAGES_HUGE] = {"staged, 2 MB pages,", &huge_memory, copy_staged, ALL, false},
    [FROM_MALLOC_HOST] = {"pinned: cudaMallocHost", &pin_methods[MALLOC_HOST], copy_plain, ONE, false},
    [FROM_HUGE] = {"pinned: 2 MB pages, registered", &pin_methods[HUGE_PAGES], copy_plain, ONE, false},
};

/* Makes copies for a tenth of a second, three at the most, and returns the median rate in GB/s; NAN if one
 * failed: why in `why`. */
static double time_way(struct bench *b, copy_fn *copy, struct transfer t, char why[WHY]) {
    double samples[6];
    int n = 0;
    if (!why[0] && !b->opt->no_verify) spoil_target(b, t, why);
    for (double begun = now(); !why[0] && !interrupted && (n == 0 || (n < 3 && now() - begun < 0.1));)
        samples[n++] = time_copy(b, copy, t, why);
    if (!why[0] && n && !b->opt->no_verify) check_target(b, t, why);
    return why[0] ? NAN : stats_of(samples, n, 3).median;
}

/* Measures one way's copies from and to `host`, into the last row. Memory that is pinned from the start is
 * fresh when it has been got, which counts; other memory gives its pages back first. */
static void measure_uses(struct bench *b, const struct way *way, void *host, char why[WHY]) {
    struct explanation *e = &b->gpu->explanation;
    struct remedy *remedy = &e->remedies[e->nremedies - 1];
    struct transfer t = {b->buffers[DEVICE].at, host, 0, e->bytes};
    bool verify = !b->opt->no_verify;
    if (verify) spoil_target(b, t, why);
    bool fresh = !way->direct && (way->memory->pinned || drop_pages(host, e->bytes));
    if (why[0] || interrupted) return;
    double seconds =
        (double)e->bytes / time_copy(b, way->copy, t, why) / 1e9 + (way->memory->pinned ? remedy->cost_s : 0);
    if (verify && !why[0]) check_target(b, t, why);
    if (fresh && !why[0]) remedy->gbps[USE_FRESH] = (double)e->bytes / seconds / 1e9;
    remedy->gbps[USE_D2H] = time_way(b, way->copy, t, why);
    t.in = e->bytes;
    remedy->gbps[USE_H2D] = time_way(b, way->copy, t, why);
}

/* Measures one way by a number of threads and adds its row: gets its memory, which may be pinned, and its
 * threads, and gives them back. */
static void measure_way(struct bench *b, const struct way *way, int threads) {
    struct explanation *e = &b->gpu->explanation;
    struct remedy *remedy = &e->remedies[e->nremedies];
    void *host = b->buffers[PAGEABLE].at;
    bool lent = way->memory == &pageable_memory, threaded = way->copy == copy_staged; /* lent: by the bench */
    char why[WHY] = "";
    if (interrupted || b->gpu->why[0] || e->nremedies == MAX_REMEDIES || (way->direct && threads == 1)) return;
    e->nremedies++;
    remedy->way = way;
    remedy->threads = threads;
    set_unknown(remedy->gbps, sizeof remedy->gbps);
    snprintf(remedy->method, sizeof remedy->method, threaded ? "%s by %d thread%s" : "%s", way->name, threads,
             threads == 1 ? "" : "s");
    double start = now();
    bool got = lent || (!no_room(e->bytes, 1, remedy->method, smaller, why) &&
                        !cuda_failed(get_memory(way->memory, &host, e->bytes), remedy->method, why));
    if (got && way->memory->pinned) remedy->pinned = e->bytes;
    if (remedy->pinned) remedy->cost_s = now() - start;
    start = now();
    if (got && threaded && start_stagers(b, threads, way->direct, why)) {
        remedy->pinned = way->direct ? 0 : (size_t)threads * 2 * CHUNK;
        remedy->cost_s = now() - start;
    }
    if (!why[0]) {
        measure_uses(b, way, host, why);
        if (way->memory->huge) count_small_pages(b->gpu, host, e->bytes);
    }
    if (why[0] && !e->why[0]) snprintf(e->why, WHY, "%.64s: %.400s", remedy->method, why);
    if (why[0]) note_if_lost(b->gpu, why);
    staged_stop(&b->staged);
    if (got && !lent) free_memory(way->memory, host);
}

/* Measures how fast one core copies, in GB/s; the best of four, since a ceiling is asked for. NAN where
 * there is no memory for it. */
static double memcpy_rate(const struct bench *b, char why[WHY]) {
    size_t n = b->gpu->explanation.bytes < wake_bytes ? b->gpu->explanation.bytes : wake_bytes;
    bool room = !no_room(n, 1, "memcpy by one core", smaller, why);
    void *to = room ? malloc(n) : NULL;
    double best = NAN;
    if (room && !to) cuda_failed(cudaErrorMemoryAllocation, "memcpy by one core", why);
    for (int i = 0; to && i < 4; i++) { /* the first touches the pages, and is not the best */
        double start = now();
        memcpy(to, b->buffers[PAGEABLE].at, n);
        __asm__ volatile("" : : "r"(to) : "memory"); /* keeps the compiler from dropping the copy */
        best = fmax(best, (double)n / (now() - start) / 1e9);
    }
    free(to);
    return best;
}

/* Returns how many threads a way is measured with after `n`, 0 for no more: a sweep takes 1, 2, 4 ... and all. */
static int next_threads(const struct way *way, int n, int all) {
    if (way->threads != SWEEP || n == all) return 0;
    return 2 * n < all ? 2 * n : all;
}

/* Measures everything that --explain shows, into the GPU; what fails stays NAN. */
static void measure_explanation(struct bench *b, int threads) {
    struct explanation *e = &b->gpu->explanation;
    void *host = b->buffers[PAGEABLE].at;
    size_t bytes = b->buffers[PAGEABLE].bytes;
    char why[WHY];
    e->bytes = bytes < explain_bytes ? bytes : explain_bytes;
    e->memcpy_gbps = e->register_s_per_gb = NAN;
    if (!bytes) snprintf(e->why, WHY, "there is no pageable buffer");
    if (!bytes || !enter_gpu(b, e->why)) return;
    staged_stop(&b->staged);
    release_buffer(&b->buffers[PINNED]); /* it may be all that can be pinned */
    in_slices(fill, host, 0, e->bytes);  /* --untouched may have dropped it */
    e->memcpy_gbps = memcpy_rate(b, e->why);
    double start = now();
    if (!cuda_failed(cudaHostRegister(host, e->bytes, cudaHostRegisterDefault), "cudaHostRegister",
                     e->why[0] ? why : e->why)) {
        if (e->bytes >= summary_from) e->register_s_per_gb = (now() - start) / (double)e->bytes * 1e9;
        cudaHostUnregister(host);
    }
    for (const struct way *way = ways; way < ways + COUNT(ways); way++)
        for (int n = way->threads == ALL ? threads : 1; n; n = next_threads(way, n, threads)) measure_way(b, way, n);
    e->whole = !e->why[0] && !interrupted;
}

/* A figure of "Why": its JSON key, its value (a word where it is no number), and the sentence that
 * follows from it; "" for a figure that another one's sentence names. */
struct figure {
    const char *key;
    double value;
    char word[32], text[WHY];
};
enum { FIGURES = 9 };

/* Returns the first row of "What helps" of a row of ways[]; one of NAN if there is none. */
static const struct remedy *find_remedy(const struct explanation *e, int way) {
    static const struct remedy none = {.gbps = {NAN, NAN, NAN}, .cost_s = NAN};
    for (const struct remedy *remedy = e->remedies; remedy < e->remedies + e->nremedies; remedy++)
        if (remedy->way == &ways[way]) return remedy;
    return &none;
}

/* Fills in a figure, and its sentence by a format unless the value is NAN. */
__attribute__((format(printf, 4, 5))) static void set_figure(struct figure *figure, const char *key, double value,
                                                             const char *format, ...) {
    va_list args;
    *figure = (struct figure){.key = key, .value = value};
    if (isnan(value)) return;
    va_start(args, format);
    vsnprintf(figure->text, sizeof figure->text, format, args);
    va_end(args);
}

/* Returns the largest H2D row, of the size that summaries begin with or more, or NULL: in smaller ones the
 * cost of a call rules. */
static const struct row *explained_row(const struct run *run, const struct gpu *gpu) {
    const struct row *largest = NULL;
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++)
        if (row->direction == &directions[H2D] && row->bytes >= summary_from && row->cell[PAGEABLE].count &&
            (!largest || row->bytes > largest->bytes))
            largest = row;
    return largest;
}

/* Writes when something that costs `cost` seconds per GB has paid for itself by H2D copies of pinned memory, into
 * `out`. Returns the number of copies; NAN, and "", where that can't be told. */
static double paid_after(const struct explanation *e, double cost, char out[WHY]) {
    double saved = 1 / find_remedy(e, PLAIN)->gbps[USE_H2D] - 1 / find_remedy(e, FROM_MALLOC_HOST)->gbps[USE_H2D];
    double copies = saved > 0 ? ceil(cost / saved) : NAN;
    char size[32];
    out[0] = 0;
    if (copies > 0)
        snprintf(out, WHY, ": paid for after %.0f H2D cop%s of %s", copies, copies == 1 ? "y" : "ies",
                 size_label(e->bytes, size));
    else if (saved <= 0) snprintf(out, WHY, ": not paid for by copies, pinned H2D was not faster");
    return copies;
}

/* Fills in the three figures of what one core and first touch cost. */
static void explain_copies(const struct run *run, const struct gpu *gpu, struct figure f[3]) {
    const struct explanation *e = &gpu->explanation;
    const struct row *row = explained_row(run, gpu);
    const struct remedy *plain = find_remedy(e, PLAIN);
    double cold = plain->gbps[USE_FRESH], warm = plain->gbps[USE_D2H];
    double share = row ? row->cell[PAGEABLE].gbps.median / e->memcpy_gbps : NAN;
    char text[WHY] = "", size[32];
    if (!isnan(share))
        snprintf(text, WHY, ": pageable H2D of %s ran at %.0f %% of it, %s", size_label(row->bytes, size), share * 100,
                 run->opt->untouched ? "reading a source that was never written"
                 : share < 0.5       ? "so more than the CPU's copy holds it back"
                 : share < 1.3       ? "as a CPU copying into a pinned staging buffer would"
                                     : "more than one core's plain copy gives");
    set_figure(&f[0], "memcpy_gbps", e->memcpy_gbps, "%.1f GB/s for memcpy by one core%s", e->memcpy_gbps, text);
    text[0] = 0;
    if (!isnan(warm))
        snprintf(text, WHY, ", %.1f GB/s into it again: first touch %s", warm,
                 cold < 0.8 * warm ? "is paid by the first copy" : "cost little here");
    set_figure(&f[1], "d2h_cold_gbps", cold, "%.1f GB/s for D2H into memory that nobody touched yet%s", cold, text);
    set_figure(&f[2], "d2h_warm_gbps", warm, "%s", "");
}

/* Fills in the four figures of what pinning costs, and when copies have paid for it. */
static void explain_pinning(const struct explanation *e, struct figure f[4]) {
    const struct remedy *pinned = find_remedy(e, FROM_MALLOC_HOST);
    bool large = e->bytes >= summary_from; /* in small ones the cost of a call rules */
    double malloc_host = large && pinned->pinned ? pinned->cost_s / (double)e->bytes * 1e9 : NAN;
    char text[WHY];
    double copies = paid_after(e, malloc_host, text);
    set_figure(&f[0], "malloc_host_s_per_gb", malloc_host, "%.3f s per GB for cudaMallocHost%s", malloc_host, text);
    set_figure(&f[1], "malloc_host_paid_after_copies", copies, "%s", "");
    copies = paid_after(e, e->register_s_per_gb, text);
    set_figure(&f[2], "register_s_per_gb", e->register_s_per_gb,
               "%.3f s per GB for cudaHostRegister of written memory%s", e->register_s_per_gb, text);
    set_figure(&f[3], "register_paid_after_copies", copies, "%s", "");
}

/* Fills in the two figures of what more threads gain, and of the kernel's policy for pages. */
static void explain_system(const struct run *run, const struct explanation *e, struct figure f[2]) {
    double one = find_remedy(e, PLAIN)->gbps[USE_H2D], threads = find_remedy(e, BY_THREADS)->gbps[USE_H2D];
    double pinned = find_remedy(e, FROM_MALLOC_HOST)->gbps[USE_H2D];
    char text[WHY] = "", policy[32];
    if (!isnan(one))
        snprintf(text, WHY, ", %.1f GB/s by one: %s", one,
                 threads > 1.3 * one  ? "they overlap here"
                 : one < 0.8 * pinned ? "as if the driver made them wait for each other"
                                      : "they gain little");
    set_figure(&f[0], "threads_h2d_gbps", threads, "%.1f GB/s for pageable H2D by %d threads at once%s", threads,
               run->threads, text);
    page_policy(policy);
    set_figure(&f[1], "page_policy", policy[0] ? 0 : NAN, "transparent huge pages are set to \"%s\": malloc gets %s",
               policy,
               strcmp(policy, "always") == 0  ? "2 MiB pages where it can"
               : strcmp(policy, "never") == 0 ? "4 KiB pages, also where a program asks for more"
                                              : "4 KiB pages unless a program asks for more");
    strcpy(f[1].word, policy);
}

/* Turns what was measured into figures and sentences. A sentence says what its figures show, also where that is
 * not the usual story, and no more where a figure is missing. */
static void explain_figures(const struct run *run, const struct gpu *gpu, struct figure figures[FIGURES]) {
    explain_copies(run, gpu, figures);
    explain_pinning(&gpu->explanation, figures + 3);
    explain_system(run, &gpu->explanation, figures + 7);
}

/* Returns the seconds that a way takes for `copies` H2D copies, its cost at the start counted. */
static double remedy_seconds(const struct explanation *e, const struct remedy *remedy, double copies) {
    return remedy->cost_s + copies * (double)e->bytes / remedy->gbps[USE_H2D] / 1e9;
}

/* Writes a sentence for data that is copied once, or `copies` times, into `out` and returns it: which way is
 * fastest, what it gains, and what it costs. "" where that can't be told. */
static const char *advise(const struct explanation *e, double copies, char out[WHY]) {
    const struct remedy *best = e->remedies;
    const char *when = copies > 1 ? "Copied to the GPU again and again" : "Copied to the GPU once";
    out[0] = 0;
    for (const struct remedy *remedy = e->remedies; remedy < e->remedies + e->nremedies; remedy++)
        if (remedy_seconds(e, remedy, copies) < remedy_seconds(e, best, copies)) best = remedy;
    double seconds = remedy_seconds(e, best, copies), gain = remedy_seconds(e, e->remedies, copies) / seconds;
    if (!e->nremedies || isnan(gain) || e->bytes < summary_from) return out;
    if (gain < 1.05 && !e->whole) return out;
    if (gain < 1.05)
        snprintf(out, WHY, "%s: nothing beats cudaMemcpy as it is, at %.1f GB/s.", when, e->remedies->gbps[USE_H2D]);
    else snprintf(out, WHY, "%s: %s, %.1f times as fast.", when, best->method, gain);
    return out;
}

/* ---- Reports ---------------------------------------------------------------------------------
 * A writer writes to a stream that it is given: standard output while rows are measured, or at the end
 * the files of --output, from the same results. All formats render the same columns[].
 */

/* What a format writes instead of some characters. */
struct escapes {
    const char *characters, *instead; /* a format of printf for the character */
};
static const struct escapes text_escapes = {"", ""}, csv_escapes = {"\"", "\"\""}, json_escapes = {"\"\\", "\\%c"},
                            markdown_escapes = {"\\|*_`[]#~<&", "\\%c"}, xml_escapes = {"<>&\"", "&#%d;"};

/* Returns the length of the UTF-8 sequence at `c`, 0 if it is none (RFC 3629: cut off, overlong, a surrogate,
 * too large) or a control character, which could move the cursor. */
static int utf8_length(const unsigned char *c) {
    static const uint32_t least[] = {0, 0x20, 0xA0, 0x800, 0x10000}; /* by length; C0 and C1 are left out too */
    int length = *c < 0x80 ? 1 : *c < 0xC0 ? 0 : *c < 0xE0 ? 2 : *c < 0xF0 ? 3 : *c < 0xF8 ? 4 : 0;
    uint32_t code = length == 1 ? *c : *c & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((c[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (c[i] & 0x3F);
    }
    return code < least[length] || code == 0x7F || (code & 0xFFFE) == 0xFFFE || code > 0x10FFFF ||
                   (code >= 0xD800 && code < 0xE000)
               ? 0
               : length;
}

/* Writes a text with each character as the format needs it. Texts come from outside (the GPU's name, the
 * host's, a path): what is not UTF-8 or controls a terminal becomes '?'. Writes at most `most` characters,
 * then an ellipsis. */
static void put_some(FILE *out, const char *text, const struct escapes *escapes, int most) {
    for (; *text; most--) {
        int n = utf8_length((const unsigned char *)text);
        if (most == 0) fputs("…", out);
        if (most == 0) return;
        if (n == 0) fputc('?', out);
        else if (strchr(escapes->characters, *text)) fprintf(out, escapes->instead, *text);
        else fwrite(text, 1, (size_t)n, out);
        text += n ? n : 1;
    }
}

/* Writes all of a text. */
static void put(FILE *out, const char *text, const struct escapes *escapes) { put_some(out, text, escapes, INT_MAX); }

/* Writes a GPU's name as headings have it, at most `most` characters of it. */
static void put_name(FILE *out, const struct run *run, const struct gpu *gpu, const struct escapes *escapes, int most) {
    put_some(out, gpu->name, escapes, most);
    if (run->visible > 1 && !gpu->total)
        fprintf(out, " (GPU %d%s%s)", gpu->index, gpu->bus_id[0] ? ", " : "", gpu->bus_id);
}

/* Writes how pinned memory was got into `out` and returns it. */
static const char *pin_label(const struct run *run, char out[96]) {
    const struct memory *pin = run->opt->pin;
    if (pin->staged) snprintf(out, 96, "staged, %d thread%s, 2 MB chunks", run->threads, run->threads == 1 ? "" : "s");
    else snprintf(out, 96, "%s", pin->choice.help);
    return out;
}

/* What a column shows: of the run and the GPU, and of the row. */
enum { HOST, INDEX, NAME, BUS_ID, LINK, PIN, THREADS, UNTOUCHED, PARALLEL };
enum { LABEL = PARALLEL + 1, BYTES, DIRECTION, RATE, RATIO, DELTA, STATUS };

/* A row of this table is a column. RATE (of a kind of memory), RATIO and DELTA show a double of struct row, as GB/s, as
 * "1.2x" and as GB/s with a sign; for the other fields column_text() says what they show. A format leaves out the
 * columns that have no name for it. */
static const struct column {
    const char *csv, *json;
    const char *heading;      /* in the tables that people read */
    int heading_width, width; /* in the text table; negative: left-aligned */
    int field;
    size_t at;      /* of a double, in struct row */
    enum kind kind; /* of a rate */
} columns[] = {
#define RATE_OF(k, member) .field = RATE, .kind = k, .at = offsetof(struct row, cell[k].gbps.member)
    {"host", .field = HOST},
    {"gpu_index", .field = INDEX},
    {"gpu_name", .field = NAME},
    {"bus_id", .field = BUS_ID},
    {"link", .field = LINK},
    {"pin", .field = PIN},
    {"threads", .field = THREADS},
    {"untouched", .field = UNTOUCHED},
    {"parallel", .field = PARALLEL},
    {NULL, NULL, "Size", -6, -6, .field = LABEL},
    {"size_bytes", "bytes", .field = BYTES},
    {"direction", "direction", "Dir", 4, 4, .field = DIRECTION},
    {"pageable_gbps", "median", "Pageable", 12, 15, RATE_OF(PAGEABLE, median)},
    {"pageable_mean_gbps", "mean", RATE_OF(PAGEABLE, mean)},
    {"pageable_min_gbps", "min", RATE_OF(PAGEABLE, min)},
    {"pageable_max_gbps", "max", RATE_OF(PAGEABLE, max)},
    {"pageable_stddev_gbps", "stddev", RATE_OF(PAGEABLE, stddev)},
    {"pinned_gbps", "median", "Pinned", 12, 12, RATE_OF(PINNED, median)},
    {"pinned_mean_gbps", "mean", RATE_OF(PINNED, mean)},
    {"pinned_min_gbps", "min", RATE_OF(PINNED, min)},
    {"pinned_max_gbps", "max", RATE_OF(PINNED, max)},
    {"pinned_stddev_gbps", "stddev", RATE_OF(PINNED, stddev)},
    {"ratio", "ratio", "Ratio", 10, 8, .field = RATIO, .at = offsetof(struct row, ratio)},
    {"delta_gbps", "delta", "Pin-page", 12, 13, .field = DELTA, .at = offsetof(struct row, delta)},
    {"status", "status", .field = STATUS},
};

/* Where a column is shown: its row, and what that belongs to. */
struct place {
    const struct run *run;
    const struct gpu *gpu;
    const struct row *row;
};

enum { LABEL_WIDTH = 6 };

/* Returns the width of the column of sizes in the text table: the course's, or the longest label's. */
static int widest_label(const struct options *opt) {
    int width = LABEL_WIDTH;
    char size[32];
    for (int i = 0; i < opt->nsizes; i++) {
        int n = (int)strlen(size_label(opt->sizes[i], size));
        if (n > width) width = n;
    }
    return width;
}

/* Returns whether a column holds a number; otherwise it is a text. */
static bool is_number(const struct column *c) { return c->field == RATE || c->field == RATIO || c->field == DELTA; }

/* Returns the number of a column that holds one; NAN where it is unknown. */
static double column_number(const struct column *c, const struct row *row) { return member(row, c->at); }

/* Returns a column as people read it, for all formats if it is a text; it may be in `out`. */
static const char *column_text(const struct column *c, const struct place *p, char out[STATUS_SIZE]) {
    const struct options *opt = p->run->opt;
    double number = is_number(c) ? column_number(c, p->row) : NAN;
    switch (c->field) {
    case HOST: return p->run->host;
    case INDEX: return p->gpu->label;
    case NAME: return p->gpu->name;
    case BUS_ID: return p->gpu->bus_id;
    case LINK: return p->gpu->total ? "" : link_label(&p->gpu->link, out);
    case PIN: return opt->pin->choice.name;
    case THREADS: return opt->pin->staged ? (snprintf(out, 32, "%d", p->run->threads), out) : "";
    case UNTOUCHED: return opt->untouched ? "yes" : "no";
    case PARALLEL: return opt->parallel ? "yes" : "no";
    case LABEL: return size_label(p->row->bytes, out);
    case BYTES: return snprintf(out, 32, "%zu", p->row->bytes), out;
    case DIRECTION: return p->row->direction->name;
    case STATUS: return row_status(p->run, p->row, out);
    case RATIO: return snprintf(out, 32, isfinite(number) ? "%.1fx" : "-", number), out;
    case RATE: return rate_label(number, "", out);
    case DELTA: return rate_label(number, "+", out);
    }
    return "";
}

/* Writes a field of a summary as people read it. */
static void put_summary_field(FILE *out, const struct summary *s, const struct summary_field *field) {
    double number = member(s, field->at);
    char rate[32];
    if (!isfinite(number)) fputc('-', out);
    else if (field->format) fprintf(out, field->format, number);
    else fprintf(out, "%s GB/s", short_rate(number, rate));
}

/* Where notes go and what stands around them. */
struct notes {
    FILE *out;
    const char *first, *lead, *tail; /* before the first, before the others, behind each */
    const struct escapes *escapes;
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
    put(to->out, text, to->escapes);
    fputs(to->tail, to->out);
}

/* Writes why a cell failed into `out` and returns it, or NULL if there is nothing to tell: cells that were not
 * begun share their reason, and only the first of them tells it. */
static const char *cell_reason(const struct gpu *gpu, const struct row *row, enum kind kind, char out[STATUS_SIZE]) {
    const struct cell *cell = &row->cell[kind];
    char size[32];
    if (!cell->why[0]) return NULL;
    for (const struct row *before = gpu->rows; !cell->begun && before <= row; before++)
        for (enum kind k = PAGEABLE; k < (before == row ? kind : KINDS); k++)
            if (strcmp(before->cell[k].why, cell->why) == 0) return NULL;
    if (cell->begun)
        snprintf(out, STATUS_SIZE, "%s %s %s: %s", size_label(row->bytes, size), row->direction->name, kind_names[kind],
                 cell->why);
    else snprintf(out, STATUS_SIZE, "%s", cell->why);
    return out;
}

/* The rules of notes: each looks for one thing that a reader must know to read the figures. */

/* What failed, each reason once. */
static void note_failures(struct notes *to, const struct run *run, const struct gpu *gpu) {
    char reason[STATUS_SIZE];
    if (!gpu->ready && gpu->why[0]) note(to, "%s", gpu->why);
    for (const struct row *row = gpu->rows; gpu->ready && row < gpu->rows + run->nrows; row++)
        for (enum kind k = PAGEABLE; k < KINDS; k++)
            if (cell_reason(gpu, row, k, reason)) note(to, "%s", reason);
    if (gpu->explanation.why[0]) note(to, "--explain could not measure everything: %s", gpu->explanation.why);
}

/* What is missing after Ctrl-C. */
static void note_interruption(struct notes *to, const struct run *run, const struct gpu *gpu) {
    int whole = 0, part = 0;
    if (!gpu->interrupted || gpu->why[0]) return;
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++) {
        char status[STATUS_SIZE];
        whole += strcmp(row_status(run, row, status), "ok") == 0;
        part += strcmp(row_status(run, row, status), "interrupted") == 0 && row_begun(row);
    }
    if (!gpu->ready) note(to, "interrupted before it was measured");
    else if (whole < run->nrows)
        note(to, "interrupted: %d of %d rows are whole%s", whole, run->nrows, part ? ", one holds fewer copies" : "");
    else if (run->opt->explain) note(to, "interrupted: all rows are whole, --explain may be missing");
}

/* Options that change what a column means, and 2 MB pages that were asked for and not given. */
static void note_settings(struct notes *to, const struct run *run, const struct gpu *gpu) {
    const struct options *opt = run->opt;
    char text[96];
    double rate[2] = {summarize(run, gpu, &directions[H2D]).mean[PAGEABLE],
                      summarize(run, gpu, &directions[D2H]).mean[PAGEABLE]};
    if (opt->untouched) note(to, "pageable source never written: reads the kernel's zero page (--untouched)");
    if (opt->pin != pin_methods)
        note(to, "pinned memory from %s (--pin %s)", pin_label(run, text), opt->pin->choice.name);
    if (opt->bidir && summarize(run, gpu, &directions[BID]).mean[PAGEABLE] < 1.2 * fmax(rate[0], rate[1]))
        note(to, "BiD pageable is hardly faster than one direction, as if the driver copied one call after the other");
    if (opt->no_verify) note(to, "the data that arrived was not checked (--no-verify)");
    if (gpu->huge_missing)
        note(to,
             "the kernel put %zu MB of a buffer that asks for 2 MB pages into small ones: see "
             "/sys/kernel/mm/transparent_hugepage",
             (gpu->huge_missing + MIB - 1) / MIB);
}

/* Returns whether there is a rate of this GPU. */
static bool was_measured(const struct run *run, const struct gpu *gpu) {
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++)
        if (row_rank(row) >= 0) return true;
    return false;
}

/* A link that is unknown, below its maximum, or not what it is said to be. */
static void note_link(struct notes *to, const struct run *run, const struct gpu *gpu) {
    bool is_virtual = strcmp(host_kind(), "virtual machine") == 0;
    const struct link *link = &gpu->link;
    double limit = pcie_limit(link->gen, link->width);
    const struct row *above = link->kind == LINK_PCIE ? row_above(run, gpu, limit) : NULL;
    char size[32], name[64], rate[32];
    if (link->kind == LINK_UNKNOWN && link->why[0]) note(to, "the link is unknown: %s", link->why);
    if (above)
        note(to,
             "%s %s at %s is more than the ~%.4g GB/s of %s: the link is not what NVML says, so nothing is compared "
             "with it",
             size_label(above->bytes, size), above->direction->name,
             rate_label(fmax(above->cell[PAGEABLE].gbps.median, above->cell[PINNED].gbps.median), "", rate),
             direction_limit(above->direction, limit), link_label(link, name));
    else if (link_below_max(link) && was_measured(run, gpu))
        note(to, "the link ran at Gen%u x%u under load, GPU and slot can do Gen%u x%u: %s", link->gen, link->width,
             link->max_gen, link->max_width,
             is_virtual ? "ask who runs the host of this virtual machine to check slot and BIOS"
                        : "reseat the card, check its slot, riser and the BIOS settings");
}

/* Cells whose samples spread. */
static void note_spread(struct notes *to, const struct run *run, const struct gpu *gpu) {
    char size[32];
    int wide = 0;
    double worst = SPREAD_LIMIT;
    const struct row *worst_row = NULL;
    enum kind worst_kind = PAGEABLE;
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++)
        for (enum kind k = PAGEABLE; k < KINDS; k++) {
            double spread = row->cell[k].gbps.stddev / row->cell[k].gbps.mean * 100;
            wide += spread > SPREAD_LIMIT;
            if (!(spread > worst)) continue;
            worst = spread;
            worst_row = row;
            worst_kind = k;
        }
    if (worst_row)
        note(to,
             "%d cell%s spread over %d %% of the mean, %s %s %s most (%.0f %%): quiet the host or raise --iters above "
             "%d",
             wide, wide > 1 ? "s" : "", SPREAD_LIMIT, size_label(worst_row->bytes, size), worst_row->direction->name,
             kind_names[worst_kind], worst, run->opt->iters);
}

/* What else stood between the program and its figures. */
static void note_surroundings(struct notes *to, const struct run *run, const struct gpu *gpu) {
    if (run->confidential)
        note(to, "confidential computing is on: the driver encrypts what it copies, so pinned memory is slow too");
    if (gpu->far_cpus)
        note(to,
             "%d of the CPUs that the caller chose are not near the GPU: choose those of its NUMA node, see nvidia-smi "
             "topo -m",
             gpu->far_cpus);
    if (gpu->busy_percent >= BUSY_LIMIT || gpu->busy_processes)
        note(to, "the GPU was in use before the run (utilisation %u %%, %u other process%s): repeat when it is idle",
             gpu->busy_percent, gpu->busy_processes, gpu->busy_processes == 1 ? "" : "es");
}

/* To add a note, add a rule. */
static void (*const note_rules[])(struct notes *, const struct run *, const struct gpu *) = {
    note_failures, note_interruption, note_settings, note_link, note_spread, note_surroundings,
};

/* Writes the notes of a GPU, all of them or without those of failures; totals have none. */
static void put_notes(struct notes to, const struct run *run, const struct gpu *gpu, bool failures) {
    for (size_t i = 0; !gpu->total && i < COUNT(note_rules); i++)
        if (failures || note_rules[i] != note_failures) note_rules[i](&to, run, gpu);
}

/* Writes a row of the table for people, or its headings (no row): padded in text, between bars in markdown.
 * In text every column begins with a blank, whatever it holds. */
static void put_row(FILE *out, const struct place *p, bool markdown) {
    char text[STATUS_SIZE];
    int wider = p->run->label_width - LABEL_WIDTH;
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->heading) continue;
        const char *shown = p->row ? column_text(c, p, text) : c->heading;
        int width = (p->row ? c->width : c->heading_width) - (c->field == LABEL ? wider : 0);
        if (markdown) fprintf(out, "| %s ", shown);
        else fprintf(out, "%s%*s", width < 0 || (int)strlen(shown) >= width ? " " : "", width, shown);
    }
    fputs(markdown ? "|\n" : "\n", out);
}

/* Writes a line of "What helps", or its headings (no `remedy`). */
static void put_remedy(FILE *out, const struct remedy *remedy, const char *name, bool markdown) {
    static const int widths[] = {36, 8, 8, 9, 9, 9};
    char cells[COUNT(widths)][64] = {[4] = "pinned", "once"};
    snprintf(cells[0], sizeof cells[0], "%s", name);
    for (int u = 0; u < USES; u++)
        if (!remedy) strcpy(cells[1 + u], use_names[u]);
        else short_rate(remedy->gbps[u], cells[1 + u]);
    if (remedy) remedy->pinned ? size_label(remedy->pinned, cells[4]) : strcpy(cells[4], "-");
    if (remedy) snprintf(cells[5], 64, remedy->cost_s > 0 ? "%.3f s" : "-", remedy->cost_s);
    for (size_t i = 0; i < COUNT(widths); i++)
        fprintf(out, "%s%*s", markdown ? i ? " | " : "| " : "", markdown ? 0 : i ? widths[i] : -widths[i], cells[i]);
    fputs(markdown ? " |\n" : "\n", out);
}

/* Writes "Why" and "What helps". */
static void put_explanation(FILE *out, const struct run *run, const struct gpu *gpu, bool markdown) {
    const struct explanation *e = &gpu->explanation;
    const char *lead = markdown ? "- " : "";
    struct figure figures[FIGURES];
    char text[WHY], size[32];
    if (!gpu->explanation.bytes) return;
    explain_figures(run, gpu, figures);
    fputs(markdown ? "\n#### Why\n\n" : "\n--- Why ---\n", out);
    for (int i = 0; i < FIGURES; i++)
        if (figures[i].text[0]) fprintf(out, "%s%s\n", lead, figures[i].text);
    snprintf(text, sizeof text, "%s of malloc'd data", size_label(e->bytes, size));
    fputs(markdown ? "\n#### What helps\n\n" : "\n--- What helps ---\n", out);
    put_remedy(out, NULL, text, markdown);
    if (markdown) fputs("|---|---:|---:|---:|---:|---:|\n", out);
    for (const struct remedy *remedy = e->remedies; remedy < e->remedies + e->nremedies; remedy++)
        put_remedy(out, remedy, remedy->method, markdown);
    fputs(markdown ? "\n" : "", out);
    fprintf(out, "%s\n%s",
            "GB/s; D2H new: into memory nobody touched yet (pinned: getting it included); once: before the first copy.",
            markdown ? "\n" : "");
    for (double copies = 1; copies <= 1000; copies *= 1000)
        if (advise(e, copies, text)[0]) fprintf(out, "%s%s\n", lead, text);
}

/* Writes the heading of the table, and what stands above it. */
static void text_begin(FILE *out, const struct run *run, const struct gpu *gpu) {
    static const char line[] = "==============================================================";
    char text[64];
    if (!gpu) return;
    fprintf(out, "%s%s\nCPU↔GPU DMA Bandwidth Test (C + libcudart)\nGPU:  ", gpu == run->gpus ? "" : "\n", line);
    put_name(out, run, gpu, &text_escapes, INT_MAX);
    if (!gpu->total) fprintf(out, "\nLink: %s", link_label(&gpu->link, text));
    fprintf(out, "\n%s\n%s", line, gpu->ready ? "\n" : "");
    if (!gpu->ready) return;
    put_row(out, &(struct place){run, gpu, NULL}, false);
    for (int i = 0; i < 60 + run->label_width; i++) fputc('-', out);
    fputc('\n', out);
}

/* Writes a line of the table. */
static void text_row(FILE *out, const struct run *run, const struct gpu *gpu, const struct row *row) {
    if (gpu->ready) put_row(out, &(struct place){run, gpu, row}, false);
}

/* Writes the summaries, in the course's layout, and the prose. */
static void text_end(FILE *out, const struct run *run, const struct gpu *gpu) {
    char text[64];
    if (!gpu) return;
    for (const struct direction *d = directions; gpu->ready && d < directions + run->ndirections; d++) {
        struct summary s = summarize(run, gpu, d);
        fprintf(out, "\n--- Summary (%s%s) ---\n", d->name, summary_scope(&s, text));
        for (size_t i = 0; i < COUNT(summary_fields); i++) {
            int width = i < FIRST_BLOCK ? 10 : 20;
            if (i == FIRST_BLOCK && (!d->limit_in_text || isnan(s.limit))) break;
            if (i == FIRST_BLOCK)
                fprintf(out, "\nTheoretical (%s%s): ", d->out ? "2 x " : "", link_label(&gpu->link, text));
            else fprintf(out, "%s:%*s", summary_fields[i].label, width - (int)strlen(summary_fields[i].label), "");
            put_summary_field(out, &s, &summary_fields[i]);
            fputc('\n', out);
        }
    }
    put_notes((struct notes){out, "\nnote: ", "note: ", "\n", &text_escapes, 0}, run, gpu, true);
    put_explanation(out, run, gpu, false);
}

/* Writes the heading and the head of the table. */
static void markdown_begin(FILE *out, const struct run *run, const struct gpu *gpu) {
    char text[96];
    if (!gpu) return;
    fprintf(out, "%s### ", gpu == run->gpus ? "" : "\n");
    put_name(out, run, gpu, &markdown_escapes, INT_MAX);
    if (!gpu->total) fprintf(out, ", %s", link_label(&gpu->link, text));
    fprintf(out, ": cudaMemcpy, median of %d cop%s, pinned by %s\n", run->opt->iters,
            run->opt->iters == 1 ? "y" : "ies", pin_label(run, text));
    if (!gpu->ready) return;
    fputc('\n', out);
    put_row(out, &(struct place){run, gpu, NULL}, true);
    for (const struct column *c = columns; c < columns + COUNT(columns); c++)
        if (c->heading) fprintf(out, "|---%s", is_number(c) ? ":" : "");
    fputs("|\n", out);
}

/* Writes a line of the table. */
static void markdown_row(FILE *out, const struct run *run, const struct gpu *gpu, const struct row *row) {
    if (gpu->ready) put_row(out, &(struct place){run, gpu, row}, true);
}

/* Writes the summaries as a second table, and the prose. */
static void markdown_end(FILE *out, const struct run *run, const struct gpu *gpu) {
    char text[64];
    if (!gpu) return;
    for (size_t i = 0; gpu->ready && i < COUNT(summary_fields); i++)
        fprintf(out, "%s %s |", i ? "" : "\n| Summary |", summary_fields[i].label);
    for (size_t i = 0; gpu->ready && i < COUNT(summary_fields); i++) fputs(i ? "---:|" : "\n|---|---:|", out);
    if (gpu->ready) fputc('\n', out);
    for (const struct direction *d = directions; gpu->ready && d < directions + run->ndirections; d++) {
        struct summary s = summarize(run, gpu, d);
        fprintf(out, "| %s%s |", d->name, summary_scope(&s, text));
        for (size_t i = 0; i < COUNT(summary_fields); i++) {
            fputc(' ', out);
            put_summary_field(out, &s, &summary_fields[i]);
            fputs(" |", out);
        }
        fputc('\n', out);
    }
    put_notes((struct notes){out, "\n- ", "- ", "\n", &markdown_escapes, 0}, run, gpu, true);
    put_explanation(out, run, gpu, true);
}

/* Writes the one header line of the document. */
static void csv_begin(FILE *out, const struct run *run, const struct gpu *gpu) {
    (void)run;
    for (const struct column *c = columns; !gpu && c < columns + COUNT(columns); c++)
        if (c->csv) fprintf(out, "%s%s", c > columns ? "," : "", c->csv);
    if (!gpu) fputc('\n', out);
}

/* Writes a record; a field is quoted where it has to be (RFC 4180), and empty where it is unknown. */
static void csv_row(FILE *out, const struct run *run, const struct gpu *gpu, const struct row *row) {
    char text[STATUS_SIZE];
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->csv) continue;
        double number = is_number(c) ? column_number(c, row) : NAN;
        const char *shown = is_number(c) ? "" : column_text(c, &(struct place){run, gpu, row}, text);
        const char *quote = strpbrk(shown, ",\"") ? "\"" : "";
        fprintf(out, "%s%s", c > columns ? "," : "", quote);
        if (isfinite(number)) fprintf(out, "%.6g", number);
        else put(out, shown, &csv_escapes);
        fputs(quote, out);
    }
    fputc('\n', out);
}

/* Writes JSON (RFC 8259) by a format: %s is a string, null if it is empty; %S text as it is; %g a number, null
 * if it is unknown; %d and %z integers; %b a truth value. A single quote stands for a double one. */
static void json(FILE *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    for (; *format; format++) {
        char kind = *format == '%' ? *++format : 0;
        if (!kind) fputc(*format == '\'' ? '"' : *format, out);
        else if (kind == 'S') fputs(va_arg(args, const char *), out);
        else if (kind == 's') {
            const char *text = va_arg(args, const char *);
            fputs(*text ? "\"" : "null", out);
            put(out, text, &json_escapes);
            fputs(*text ? "\"" : "", out);
        } else if (kind == 'g') {
            double number = va_arg(args, double);
            fprintf(out, isfinite(number) ? "%.6g" : "null", number);
        } else if (kind == 'z') fprintf(out, "%zu", va_arg(args, size_t));
        else if (kind == 'd') fprintf(out, "%d", va_arg(args, int));
        else fputs(va_arg(args, int) ? "true" : "false", out);
    }
    va_end(args);
}

/* Writes a cell: its columns and all samples, or null if it has none. */
static void json_cell(FILE *out, const struct row *row, enum kind kind) {
    const struct cell *cell = &row->cell[kind];
    const char *comma = "{";
    fprintf(out, ",\"%s\":%s", kind_names[kind], cell->count ? "" : "null");
    if (!cell->count) return;
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->json || c->field != RATE || c->kind != kind) continue;
        json(out, "%S'%S':%g", comma, c->json, column_number(c, row));
        comma = ",";
    }
    fputs(",\"samples\":[", out);
    for (int i = 0; cell->samples && i < cell->count; i++) json(out, "%S%g", i ? "," : "", cell->samples[i]);
    fputs("]}", out);
}

/* Writes a row: its columns, with those of a kind of memory together in its cell. */
static void json_row(FILE *out, const struct run *run, const struct gpu *gpu, const struct row *row) {
    char text[STATUS_SIZE];
    json(out, "{'bytes':%z", row->bytes);
    for (const struct column *c = columns; c < columns + COUNT(columns); c++) {
        if (!c->json || c->field == BYTES) continue;
        if (c->field == RATE && c[-1].field == RATE && c[-1].kind == c->kind) continue;
        if (c->field == RATE) json_cell(out, row, c->kind);
        else if (is_number(c)) json(out, ",'%S':%g", c->json, column_number(c, row));
        else json(out, ",'%S':%s", c->json, column_text(c, &(struct place){run, gpu, row}, text));
    }
    fputc('}', out);
}

/* Writes the members that GPUs and totals share: results and summary. */
static void json_results(FILE *out, const struct run *run, const struct gpu *gpu) {
    const char *comma = "";
    fputs("\"results\":[", out);
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++) {
        if (!row_begun(row)) continue;
        fputs(comma, out);
        json_row(out, run, gpu, row);
        comma = ",";
    }
    fputs("],\"summary\":{", out);
    for (int d = 0; d < run->ndirections; d++) {
        struct summary s = summarize(run, gpu, &directions[d]);
        json(out, "%S'%S':{", d ? "," : "", directions[d].name);
        for (size_t i = 0; i < COUNT(summary_fields); i++)
            json(out, "%S'%S':%g", i ? "," : "", summary_fields[i].key, member(&s, summary_fields[i].at));
        fputc('}', out);
    }
    fputc('}', out);
}

/* Writes what --explain found. */
static void json_explanation(FILE *out, const struct run *run, const struct gpu *gpu) {
    const struct explanation *e = &gpu->explanation;
    struct figure figures[FIGURES];
    char text[2][WHY];
    explain_figures(run, gpu, figures);
    json(out, "{'bytes':%z", e->bytes);
    for (int i = 0; i < FIGURES; i++)
        if (figures[i].word[0]) json(out, ",'%S':%s", figures[i].key, figures[i].word);
        else json(out, ",'%S':%g", figures[i].key, figures[i].value);
    fputs(",\"helps\":[", out);
    for (const struct remedy *remedy = e->remedies; remedy < e->remedies + e->nremedies; remedy++)
        json(out,
             "%S{'method':%s,'threads':%d,'h2d_gbps':%g,'d2h_gbps':%g,'d2h_fresh_gbps':%g,'pinned_bytes':%z,'cost_s':%"
             "g}",
             remedy > e->remedies ? "," : "", remedy->method, remedy->threads, remedy->gbps[USE_H2D],
             remedy->gbps[USE_D2H], remedy->gbps[USE_FRESH], remedy->pinned, remedy->cost_s);
    json(out, "],'once':%s,'again':%s}", advise(e, 1, text[0]), advise(e, 1000, text[1]));
}

/* Returns a link's number, NAN where it is unknown. */
static double known(double number) { return number > 0 ? number : NAN; }

/* Writes a GPU. */
static void json_gpu(FILE *out, const struct run *run, const struct gpu *gpu) {
    const struct link *link = &gpu->link;
    json(out, "{'index':%d,'name':%s,'uuid':%s,'bus_id':%s,", gpu->index, gpu->name, gpu->uuid, gpu->bus_id);
    json(out, "'link':{'kind':%s,'gen':%g,'width':%g,'max_gen':%g,'max_width':%g,'limit_gbps':%g},",
         link_names[link->kind].name, known(link->gen), known(link->width), known(link->max_gen),
         known(link->max_width), gpu_limit(run, gpu, false));
    json_results(out, run, gpu);
    fputs(gpu->explanation.bytes ? ",\"explain\":" : ",\"explain\":null", out);
    if (gpu->explanation.bytes) json_explanation(out, run, gpu);
    fputs(",\"notes\":[", out);
    put_notes((struct notes){out, "\"", ",\"", "\"", &json_escapes, 0}, run, gpu, true);
    fputs("]}", out);
}

/* Returns the word for an exit status. */
static const char *status_name(enum exit_code code) {
    return code == DONE            ? "ok"
           : code == INTERRUPTED   ? "interrupted"
           : code == BELOW_MINIMUM ? "below minimum"
                                   : "failed";
}

/* Writes a version as CUDA counts, 1000 * major + 10 * minor, into `out` and returns it; "" for none. */
static const char *version_label(int version, char out[32]) {
    if (!version) return "";
    snprintf(out, 32, "%d.%d", version / 1000, version % 1000 / 10);
    return out;
}

/* Writes the whole object when the run has ended, whatever the end. */
static void json_end(FILE *out, const struct run *run, const struct gpu *gpu) {
    const struct options *opt = run->opt;
    char runtime[32], driver[32];
    if (gpu) return;
    json(out, "{'tool':%s,'version':%s,'schema':%d,'host':%s,'time':%s,'duration_s':%g,", PROGRAM, VERSION, 1,
         run->host, run->time, now() - run->begun);
    json(out, "'cpu':%s,'cuda_runtime':%s,'cuda_driver':%s,'driver_release':%s,'settings':{'sizes':[", run->cpu,
         version_label(run->runtime, runtime), version_label(run->driver, driver), run->release);
    for (int i = 0; i < opt->nsizes; i++) json(out, "%S%z", i ? "," : "", opt->sizes[i]);
    json(out, "],'iters':%d,'warmup':%d,'pin':%s,'threads':%d,", opt->iters, opt->warmup, opt->pin->choice.name,
         run->threads);
    json(out, "'untouched':%b,'parallel':%b,'bidir':%b,'verify':%b,'affinity':%b},'gpus':[", opt->untouched,
         opt->parallel, opt->bidir, !opt->no_verify, !opt->no_affinity);
    for (const struct gpu *g = run->gpus; g < run->gpus + run->ngpus; g++) {
        if (g > run->gpus) fputc(',', out);
        json_gpu(out, run, g);
    }
    const struct gpu *totals = &run->gpus[run->ngpus];
    fputs(totals->ready ? "],\"totals\":{" : "],\"totals\":null", out);
    if (totals->ready) json_results(out, run, totals);
    json(out, "%S,'status':%s,'exit_status':%d,'error':%s}\n", totals->ready ? "}" : "", status_name(run->status),
         (int)run->status, run->error);
}

/* ---- Chart -----------------------------------------------------------------------------------
 * An SVG that needs nothing else. Per GPU it has a block with a column for each direction and two bars
 * for each size, and with --explain one for "What helps". Bars lie on their side, so that every label
 * has room, however many sizes there are, also where a page shows the chart only 400 pixels wide.
 */

enum { CHART_WIDTH = 640, CHART_HEAD = 150, CHART_BAR = 17, CHART_GROUP = 46, CHART_FOOT = 34 };

/* Columns side by side, with labels on their left. */
struct chart {
    FILE *out;
    double top, left, step, plot; /* of the first row; of the first column, to the next, width of an axis */
};

/* Returns the upper end of an axis that shows `most`: the next 1, 1.6, 2, 4, 6 or 8 times a power of 10. */
static double axis_end(double most) {
    static const double steps[] = {1, 1.6, 2, 4, 6, 8, 10};
    double power = pow(10, floor(log10(most > 0 ? most : 1)));
    size_t i = 0;
    while (i + 1 < COUNT(steps) && steps[i] * power < most) i++;
    return steps[i] * power;
}

/* Draws a column's heading, grid and numbers from 0 to `end`, over `height`; marks the limit unless it is NAN. */
static void chart_column(const struct chart *c, int column, const char *heading, double height, double end,
                         double limit) {
    double x = c->left + column * c->step, mark = x + c->plot * limit / end;
    fprintf(c->out, "<text class=\"head\" x=\"%.1f\" y=\"%.1f\">%s, GB/s</text>\n", x, c->top - 26, heading);
    for (int i = 0; i <= 2; i++)
        fprintf(c->out,
                "<path class=\"grid\" d=\"M%.1f %.1fv%.1f\"/><text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%.5g</text>\n",
                x + c->plot * i / 2, c->top - 4, height, x + c->plot * i / 2, c->top - 8, end * i / 2);
    if (isfinite(limit))
        fprintf(c->out,
                "<path class=\"limit\" d=\"M%.1f %.1fv%.1f\"/><text class=\"mark\" x=\"%.1f\" y=\"%.1f\">limit "
                "%.5g</text>\n",
                mark, c->top - 4, height, mark, c->top + height + 12, limit);
}

/* Draws a bar at x and y for a value on an axis up to `end`, with the value in it if it is long enough. `kind` is
 * its colour. */
static void chart_bar(const struct chart *c, double x, double y, const char *kind, double value, double end) {
    double length = fmax(1, value / end * c->plot);
    bool inside = length > 54;
    fprintf(c->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>", kind, x, y, length,
            CHART_BAR);
    fprintf(c->out, "<text class=\"%s%s\" x=\"%.1f\" y=\"%.1f\">%.*f</text>\n", inside ? "in in-" : "out",
            inside ? kind : "", x + length + (inside ? -5 : 4), y + 13,
            value < 0.1    ? 4
            : value < 1000 ? 1
                           : 0,
            value);
}

/* Returns how tall a GPU's table is, or with `remedies` its "What helps", if it has them. */
static double chart_height(const struct run *run, const struct gpu *gpu, bool remedies) {
    int n = gpu->explanation.nremedies;
    if (remedies) return n ? 60 + n * (CHART_BAR + 7) + CHART_FOOT : 0;
    return gpu->ready ? CHART_HEAD + run->opt->nsizes * CHART_GROUP + CHART_FOOT : gpu->total ? 0 : CHART_HEAD;
}

/* Draws the table of a GPU. H2D and D2H have one axis, so that bars can be compared. */
static void chart_table(FILE *out, const struct run *run, const struct gpu *gpu, double top) {
    double step = (CHART_WIDTH - 96.0) / run->ndirections, height = run->opt->nsizes * CHART_GROUP;
    struct chart c = {out, top + CHART_HEAD, 96, step, step - 24};
    char size[32];
    for (int d = 0; d < run->ndirections; d++) {
        bool both = directions[d].in && directions[d].out;
        double limit = direction_limit(&directions[d], gpu_limit(run, gpu, false)), most = fmax(0, limit),
               x = c.left + d * step;
        for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++)
            for (int k = 0; k < KINDS; k++)
                if ((row->direction->in && row->direction->out) == both) most = fmax(most, row->cell[k].gbps.median);
        double end = axis_end(most * 1.001), y = c.top;
        chart_column(&c, d, directions[d].name, height, end, limit);
        for (int r = d; r < run->nrows; r += run->ndirections, y += CHART_GROUP) {
            const struct row *row = &gpu->rows[r];
            if (d == 0)
                fprintf(out, "<text class=\"label\" x=\"86\" y=\"%.1f\">%s</text>\n", y + 23,
                        size_label(row->bytes, size));
            for (int k = 0; k < KINDS; k++) {
                double at = y + k * (CHART_BAR + 1);
                const char *instead = row->cell[k].why[0] ? "failed\">✗ failed" : "out\">–";
                if (row->cell[k].count) chart_bar(&c, x, at, kind_names[k], row->cell[k].gbps.median, end);
                else fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s</text>\n", x + 4, at + 13, instead);
            }
        }
    }
}

/* Draws "What helps". */
static void chart_remedies(FILE *out, const struct explanation *e, double top) {
    double most = 0, height = e->nremedies * (CHART_BAR + 7), step = (CHART_WIDTH - 272.0) / USES;
    struct chart c = {out, top + 60, 272, step, step - 24};
    char size[32];
    for (int i = 0; i < e->nremedies * USES; i++) most = fmax(most, e->remedies[i / USES].gbps[i % USES]);
    fprintf(out, "<text class=\"head\" x=\"12\" y=\"%.1f\">What helps: %s of malloc'd data</text>\n", top + 10,
            size_label(e->bytes, size));
    for (int u = 0; u < USES; u++) {
        chart_column(&c, u, use_names[u], height, axis_end(most), NAN);
        for (int i = 0; i < e->nremedies; i++) {
            const struct remedy *remedy = &e->remedies[i];
            double y = c.top + i * (CHART_BAR + 7);
            if (u == 0) fprintf(out, "<text class=\"label\" x=\"262\" y=\"%.1f\">%s</text>\n", y + 13, remedy->method);
            if (!isnan(remedy->gbps[u]))
                chart_bar(&c, c.left + u * step, y, kind_names[remedy->way->memory->pinned], remedy->gbps[u],
                          axis_end(most));
        }
    }
}

/* Writes a GPU's title, what the bars mean, and the legend. */
static void chart_head(FILE *out, const struct run *run, const struct gpu *gpu, double top) {
    const struct options *opt = run->opt;
    char text[96];
    fprintf(out, "<text class=\"title\" x=\"12\" y=\"%.0f\">", top + 24);
    put_name(out, run, gpu, &xml_escapes, 36);
    fprintf(out, "</text>\n<text x=\"12\" y=\"%.0f\">%s%s%.10s, median of %d after %d</text>\n", top + 46,
            gpu->total ? "" : link_label(&gpu->link, text), gpu->total ? "" : ", ", run->time, opt->iters, opt->warmup);
    if (opt->untouched || opt->parallel)
        fprintf(out, "<text x=\"12\" y=\"%.0f\">%s%s%s</text>\n", top + 68,
                opt->untouched ? "pageable source never written" : "", opt->untouched && opt->parallel ? ", " : "",
                opt->parallel ? "all GPUs at once" : "");
    if (!gpu->ready) fprintf(out, "<text class=\"failed\" x=\"12\" y=\"%.0f\">✗ not measured</text>\n", top + 91);
    for (int k = 0; k < KINDS && gpu->ready; k++)
        fprintf(out,
                "<rect class=\"%s\" x=\"%d\" y=\"%.0f\" width=\"14\" height=\"14\"/><text x=\"%d\" y=\"%.0f\">%s: "
                "%s</text>\n",
                kind_names[k], 12 + 166 * k, top + 79, 32 + 166 * k, top + 91, kind_names[k],
                k ? pin_label(run, text) : "malloc");
}

/* Writes the chart when the run has ended. */
static void svg_end(FILE *out, const struct run *run, const struct gpu *gpu) {
    static const char style[] =
        "<style>text{font:15px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:16px}"
        ".head{font-weight:600}.label,.in{text-anchor:end}.tick,.mark{text-anchor:middle}.tick{font-size:13px}"
        ".back{fill:#fff}.grid{stroke:#d0d7de}.pageable{fill:#e3b341;stroke:#7d4e00}.pinned{fill:#0550ae;stroke:#"
        "0550ae}"
        ".in-pinned{fill:#fff}.limit{stroke:#cf222e;stroke-dasharray:6 4}.mark,.failed{fill:#cf222e}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}.grid{stroke:#30363d}"
        ".pageable{fill:#7d4e00;stroke:#d29922}.pinned{fill:#79c0ff;stroke:#79c0ff}.in-pinned{fill:#0d1117}"
        ".limit{stroke:#ff7b72}.mark,.failed{fill:#ff7b72}}</style>";
    double top = 0;
    if (gpu || !run->ngpus) return;
    for (const struct gpu *g = run->gpus; g <= run->gpus + run->ngpus; g++)
        top += chart_height(run, g, false) + chart_height(run, g, true);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\">\n%s\n",
            CHART_WIDTH, top, CHART_WIDTH, top, style);
    fputs("<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n", out);
    top = 0;
    for (const struct gpu *g = run->gpus; g <= run->gpus + run->ngpus; g++) {
        if (chart_height(run, g, false) > 0) chart_head(out, run, g, top);
        if (g->ready) chart_table(out, run, g, top);
        top += chart_height(run, g, false);
        if (g->explanation.nremedies) chart_remedies(out, &g->explanation, top);
        top += chart_height(run, g, true);
    }
    fputs("</svg>\n", out);
}

/* Traits of a format: it can show --list; it tells the exit status; it has no place for prose, which goes to stderr
 * beside standard output. */
enum { LISTS = 1, TELLS_STATUS = 2, NO_PROSE = 4 };

/* A row of this table is an output format. Standard output gets rows as they are measured; a format without `row` is
 * written when the run has ended, by `end`. begin and end are called for every GPU and for the totals, and with no
 * GPU for the document itself, before and behind these. */
static const struct writer {
    struct choice choice;
    const char *suffix; /* of --output's files */
    void (*begin)(FILE *, const struct run *, const struct gpu *);
    void (*row)(FILE *, const struct run *, const struct gpu *, const struct row *);
    void (*end)(FILE *, const struct run *, const struct gpu *);
    int traits;
} writers[] = {
    {{"text", "the table and summaries (.txt)"}, ".txt", text_begin, text_row, text_end, LISTS},
    {{"markdown", "a GitHub table for notes (.md)"}, ".md", markdown_begin, markdown_row, markdown_end, 0},
    {{"csv", "a row a line, notes to stderr (.csv)"}, ".csv", csv_begin, csv_row, NULL, NO_PROSE},
    {{"json", "one object on one line (.json)"}, ".json", NULL, NULL, json_end, LISTS | TELLS_STATUS},
    {{"svg", "a bar chart, notes to stderr (.svg)"}, ".svg", NULL, NULL, svg_end, NO_PROSE},
};

/* Writes what a format has before a GPU's rows, or before the document (no GPU). */
static void write_begin(FILE *out, const struct writer *writer, const struct run *run, const struct gpu *gpu) {
    if (writer->begin) writer->begin(out, run, gpu);
}

/* Writes what a format has behind a GPU's rows, or behind the document (no GPU). */
static void write_end(FILE *out, const struct writer *writer, const struct run *run, const struct gpu *gpu) {
    if (writer->end) writer->end(out, run, gpu);
}

/* Writes a row that was measured or failed, if the format has rows. */
static void write_row(FILE *out, const struct writer *writer, const struct run *run, const struct gpu *gpu,
                      const struct row *row) {
    if (writer->row && row_begun(row)) writer->row(out, run, gpu, row);
}

/* Writes a GPU, or the totals, as far as there is something to say of it. */
static void write_gpu(FILE *out, const struct writer *writer, const struct run *run, const struct gpu *gpu) {
    write_begin(out, writer, run, gpu);
    for (const struct row *row = gpu->rows; row < gpu->rows + run->nrows; row++) write_row(out, writer, run, gpu, row);
    write_end(out, writer, run, gpu);
}

/* Writes a whole report. It is rendered in memory first, so that a failure to write has its own errno. Returns
 * false, with nothing written, without memory for it: errno is set. */
static bool write_report(FILE *out, const struct writer *writer, const struct run *run) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return false;
    write_begin(memory, writer, run, NULL);
    for (const struct gpu *gpu = run->gpus; gpu <= run->gpus + run->ngpus; gpu++)
        if (gpu->ready || gpu < run->gpus + run->ngpus) write_gpu(memory, writer, run, gpu);
    write_end(memory, writer, run, NULL);
    bool whole = fputc('\n', memory) != EOF; /* glibc tells a failure to grow neither by ferror nor by fclose */
    whole = fclose(memory) == 0 && whole;
    if (whole) fwrite(text, 1, length - 1, out);
    else errno = ENOMEM;
    free(text);
    return whole;
}

/* ---- Command line ----------------------------------------------------------------------------
 * One table feeds getopt, the setters and the help. A setter returns false and says in `why` what
 * is wrong with its value.
 */

/* Reads a number in decimal notation and moves `*text` behind it; NAN if there is none. Only digits and a
 * point reach strtod, which would also take signs, hex, exponents, inf and nan. */
static double read_decimal(const char **text) {
    size_t n = strspn(*text, "0123456789.");
    char *end;
    double number = n ? strtod(*text, &end) : NAN;
    if (n == 0 || end != *text + n || !isfinite(number)) return NAN;
    *text = end;
    return number;
}

/* Reads one size in bytes, a decimal number and a unit of units[], none meaning G, and moves `*text` behind it.
 * Returns false if it is none: why in `why`. */
static bool read_size(const char **text, size_t *bytes, char why[WHY]) {
    double number = read_decimal(text), scale = (double)GIB;
    snprintf(why, WHY, "is not a size such as 0.5, 64K or 2GiB");
    if (isnan(number)) return false;
    for (size_t i = 0; **text && i < COUNT(units); i++)
        if (toupper((unsigned char)**text) == units[i].letter) {
            scale = (double)units[i].bytes;
            ++*text;
            if (i > 0) *text += strncasecmp(*text, "ib", 2) == 0 ? 2 : strncasecmp(*text, "b", 1) == 0;
            break;
        }
    if (**text && !strchr(":, ", **text)) return false;
    number = nearbyint(number * scale);
    snprintf(why, WHY, "must be from 1B to 1024T");
    if (!(number >= 1 && number <= 1024 * (double)units[4].bytes)) return false;
    *bytes = (size_t)number;
    return true;
}

/* Adds a list, separated by commas or blanks, of sizes and of sweeps that double from one size to another. */
static bool add_sizes(struct options *opt, const char *value, char why[WHY]) {
    for (;; value++) {
        size_t size, last;
        snprintf(why, WHY, "has an empty item");
        if (strchr(", ", *value) || !read_size(&value, &size, why)) return false;
        last = size;
        if (*value == ':' && (value++, !read_size(&value, &last, why))) return false;
        snprintf(why, WHY, *value == ':' ? "is not a size such as 0.5, 64K or 2GiB" : "is a sweep that runs backwards");
        if (*value == ':' || last < size) return false;
        snprintf(why, WHY, "makes more than %d sizes", MAX_SIZES);
        for (bool more = true; more; size = size * 2 < last ? size * 2 : last) {
            if (opt->nsizes == MAX_SIZES) return false;
            opt->sizes[opt->nsizes++] = size;
            more = size < last;
        }
        if (!*value) return true;
    }
}

/* --sizes: replaces the list. */
static bool set_sizes(struct options *opt, const char *value, char why[WHY]) {
    opt->nsizes = 0;
    return add_sizes(opt, value, why);
}

/* --device: indices separated by commas, or all. Whether they exist is seen later. */
static bool set_devices(struct options *opt, const char *value, char why[WHY]) {
    opt->ndevices = 0;
    opt->all_devices = strcmp(value, "all") == 0;
    for (const char *end = value; !opt->all_devices; value = ++end) {
        size_t digits = strspn(value, "0123456789");
        long device = digits && digits < 4 ? strtol(value, NULL, 10) : -1;
        end = value + digits;
        snprintf(why, WHY, "must be \"all\" or indices from 0 to %d such as 0,2", MAX_GPUS - 1);
        if (device < 0 || device >= MAX_GPUS || (*end && *end != ',')) return false;
        snprintf(why, WHY, "names GPU %ld twice", device);
        for (int i = 0; i < opt->ndevices; i++)
            if (opt->devices[i] == device) return false;
        opt->devices[opt->ndevices++] = (int)device;
        if (!*end) break;
    }
    return true;
}

/* Adds a name to a list for a message that begins with `lead`; `first` begins it anew. */
static void list_names(char why[WHY], const char *lead, const char *name, bool first) {
    if (first) snprintf(why, WHY, "%s", lead);
    snprintf(why + strlen(why), WHY - strlen(why), "%s %s", first ? "" : ",", name);
}

/* --output: a path whose suffix names the format; whether it can be written is seen later. */
static bool add_output(struct options *opt, const char *value, char why[WHY]) {
    size_t length = strlen(value);
    struct output *output = &opt->outputs[opt->noutputs];
    snprintf(why, WHY, "is more than %d files", MAX_OUTPUTS);
    if (opt->noutputs == MAX_OUTPUTS) return false;
    for (size_t i = 0; i < COUNT(writers); i++) {
        size_t n = strlen(writers[i].suffix);
        list_names(why, "must end in one of", writers[i].suffix, i == 0);
        if (length <= n || strcmp(value + length - n, writers[i].suffix) != 0) continue;
        *output = (struct output){.path = value, .writer = &writers[i]};
        opt->noutputs++;
        return true;
    }
    return false;
}

/* A row of this table is an option. It does one of four things: it calls `set`, stores at `offset` in
 * struct options, where it needs a member, a number within a range (an int where `whole`), or the row of `choices` that
 * its value names, or without `argument` sets the bool there. */
static const struct option_row {
    char letter;
    bool listing; /* means something with --list */
    const char *name, *argument, *help;
    size_t offset;
    bool (*set)(struct options *, const char *value, char why[WHY]);
    const void *choices;
    size_t nchoices, stride;
    double least, most;
    bool whole;
} options_table[] = {
#define STRING(number)           #number
#define EXPAND(number)           STRING(number)
#define FLAG(member)             .offset = offsetof(struct options, member)
#define CHOICE(member, of)       FLAG(member), .choices = of, .nchoices = COUNT(of), .stride = sizeof(of)[0]
#define NUMBER(member, from, to) FLAG(member), .least = from, .most = to
    {'s', 0, "sizes", "SIZE...",
     "buffer sizes: 0.1 0.5 1 or 0.1,0.5,1; units B, K,\nM, G, T, none meaning G; 64K:1G doubles from one to\nthe "
     "other (default " DEFAULT_SIZES ")",
     .set = set_sizes},
    {'i', 0, "iters", "N", "timed copies per cell (default " EXPAND(DEFAULT_ITERS) ")", NUMBER(iters, 1, MAX_COPIES),
     .whole = true},
    {'w', 0, "warmup", "N", "untimed copies first (default " EXPAND(DEFAULT_WARMUP) ")", NUMBER(warmup, 0, MAX_COPIES),
     .whole = true},
    {'d', 1, "device", "LIST", "GPUs as CUDA counts them: 0, or 0,2, or all\n(default 0)", .set = set_devices},
    {'p', 0, "parallel", NULL, "drive the listed GPUs at the same moment, and add\ntotals", FLAG(parallel)},
    {'b', 0, "bidir", NULL, "add rows BiD: half the buffer in, half out, at once", FLAG(bidir)},
    {'m', 0, "pin", "METHOD", "what the Pinned column uses (default malloc-host)", CHOICE(pin, pin_methods)},
    {'T', 0, "threads", "N",
     "threads of staged copies (default: the CPUs it may\nuse, " EXPAND(MOST_THREADS) " at most)",
     NUMBER(threads, 1, MAX_THREADS), .whole = true},
    {'u', 0, "untouched", NULL, "leave the pageable source unwritten, as older\nscripts do", FLAG(untouched)},
    {'x', 0, "explain", NULL, "measure what makes the difference, and what helps", FLAG(explain)},
    {'f', 1, "format", "FMT", "how to print (default text)", CHOICE(format, writers)},
    {'o', 0, "output", "FILE",
     "also write the report to FILE, whose suffix names\nthe format; may be given several times", .set = add_output},
    {'t', 0, "min-efficiency", "PCT",
     "exit 4 if a pinned H2D or D2H summary is under\nPCT % of what GPU and slot can do",
     NUMBER(min_efficiency, 0, 100)},
    {'a', 1, "no-affinity", NULL, "do not bind to the CPUs near the GPU", FLAG(no_affinity)},
    {'n', 0, "no-verify", NULL, "do not check the data that arrives", FLAG(no_verify)},
    {'q', 1, "quiet", NULL, "no progress line on the terminal", FLAG(quiet)},
    {'l', 1, "list", NULL, "list the GPUs with bus id and link", FLAG(list)},
    {'h', 1, "help", NULL, "print this help", FLAG(help)},
    {'V', 1, "version", NULL, "print the versions of program, CUDA runtime, driver", FLAG(version)},
};

_Static_assert(COUNT(options_table) <= 32, "struct options has a bit for each in `given`");

/* Returns row `i` of an option's choices. */
static const struct choice *choice_at(const struct option_row *row, size_t i) {
    return (const struct choice *)((const char *)row->choices + i * row->stride);
}

/* Prints the help to stdout, 80 columns wide at the most. */
static void print_help(void) {
    puts("Usage: " PROGRAM " [OPTION]...\n"
         "Measures how fast the host and an NVIDIA GPU copy memory through cudaMemcpy:\n"
         "pageable (malloc) against pinned host memory, host to device (H2D) and device\n"
         "to host (D2H).\n");
    for (const struct option_row *row = options_table; row < options_table + COUNT(options_table); row++) {
        char left[64];
        snprintf(left, sizeof left, "-%c, --%s%s%s", row->letter, row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        for (const char *line = row->help; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
            printf("  %-25s %.*s\n", line == row->help ? left : "", (int)strcspn(line, "\n"), line);
        for (size_t i = 0; i < row->nchoices; i++)
            printf("%29s%-14s %s\n", "", choice_at(row, i)->name, choice_at(row, i)->help);
    }
    puts("\nRates are medians in GB/s of 10^9 bytes; sizes are in units of 1024, labelled\n"
         "GB, MB, KB.\n"
         "\n"
         "Examples:\n"
         "  " PROGRAM " --explain               why, and what helps malloc'd data\n"
         "  " PROGRAM " -s 64K:1G -o chart.svg  a sweep, also as a chart\n"
         "  " PROGRAM " -d all -f json -t 80    a check of a node, for scripts\n"
         "\n"
         "Exit status: 0 all measured, 1 something failed, 2 usage, 3 no usable driver or\n"
         "GPU, 4 below --min-efficiency, 130 interrupted.");
}

/* Stores a number within the option's range. */
static bool set_number(const struct option_row *row, void *field, const char *value, char why[WHY]) {
    const char *end = value;
    double number = read_decimal(&end);
    snprintf(why, WHY,
             row->whole ? "must be a whole number from %.0f to %.0f" : "must be a percentage above %.0f, up to %.0f",
             row->least, row->most);
    if (*end || isnan(number) || number > row->most ||
        (row->whole ? number < row->least || strchr(value, '.') : number <= row->least))
        return false;
    if (row->whole) *(int *)field = (int)number;
    else *(double *)field = number;
    return true;
}

/* Stores the row of the option's choices that the value names. */
static bool set_choice(const struct option_row *row, void *field, const char *value, char why[WHY]) {
    for (size_t i = 0; i < row->nchoices; i++) {
        const struct choice *choice = choice_at(row, i);
        list_names(why, "is none of", choice->name, i == 0);
        if (strcmp(choice->name, value) != 0) continue;
        memcpy(field, &choice, sizeof choice);
        return true;
    }
    return false;
}

/* Carries out one option. Returns false after a complaint. */
static bool apply_option(struct options *opt, const struct option_row *row, const char *value) {
    char why[WHY];
    void *field = (char *)opt + row->offset;
    opt->given |= 1u << (row - options_table);
    if (!row->argument) *(bool *)field = true;
    if (!row->argument ? true
        : row->set     ? row->set(opt, value, why)
        : row->choices ? set_choice(row, field, value, why)
                       : set_number(row, field, value, why))
        return true;
    complain("--%s: '%s' %s", row->name, value, why);
    return false;
}

/* Returns whether a size is among those asked for. */
static bool has_size(const struct options *opt, size_t bytes) {
    for (int i = 0; i < opt->nsizes; i++)
        if (opt->sizes[i] == bytes) return true;
    return false;
}

/* Returns false, after a complaint, if an option makes another one meaningless. */
static bool options_agree(const struct options *opt) {
    if (opt->help || opt->version) return true;
    for (size_t i = 0; opt->list && i < COUNT(options_table); i++)
        if (!options_table[i].listing && opt->given >> i & 1) {
            complain("--%s: --list measures nothing, leave one of the two out", options_table[i].name);
            return false;
        }
    if (opt->list && !(opt->format->traits & LISTS))
        complain("--format: '%s' can't list GPUs, text and json can", opt->format->choice.name);
    else if (opt->threads && !opt->pin->staged && !opt->explain)
        complain("--threads: '%d' is for staged copies, add --pin staged or --explain", opt->threads);
    else if (opt->untouched && opt->pin->staged)
        complain("--untouched: --pin staged copies data that has been written, choose another --pin");
    else if (opt->bidir && has_size(opt, 1)) complain("--bidir: a size of 1B has no halves, choose larger --sizes");
    else return true;
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
        if (c == 1 && before == 's' && add_sizes(opt, optarg, why)) continue;
        if (c == 1) {
            complain(before == 's' ? "--sizes: '%s' %s" : "'%s': stray operand; sizes follow --sizes", optarg, why);
            return false;
        }
        const struct option_row *row = options_table;
        while (row->letter != c) row++;
        if (!apply_option(opt, row, optarg)) return false;
    }
    if (optind < argc) complain("'%s': stray operand; sizes follow --sizes", argv[optind]);
    return optind >= argc && options_agree(opt);
}

/* ---- Run and main ---------------------------------------------------------------------------- */

/* SIGINT, SIGTERM and SIGHUP: end after the copy in flight, and between two allocations. */
static void on_signal(int signal) {
    (void)signal;
    interrupted = true;
}

/* Installs the handlers, and opens descriptors 0 to 2 where the caller closed them, the wrong way
 * round, so that no file of ours takes their place and a write to them still fails. A signal that the
 * caller ignores stays ignored. A second SIGINT kills; a second SIGTERM does not, since timeout(1) sends two. */
static void prepare_process(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < COUNT(signals); i++) {
        struct sigaction action = {.sa_handler = on_signal}, old;
        action.sa_flags = SA_RESTART | (signals[i] == SIGINT ? (int)SA_RESETHAND : 0);
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(signals[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN); /* so that a write fails with a reason */
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) exit(FAILED);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
}

/* Keeps why there is nothing to measure, tells it, and returns the exit status given. */
__attribute__((format(printf, 3, 4))) static enum exit_code refuse(struct run *run, enum exit_code status,
                                                                   const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(run->error, sizeof run->error, format, args);
    va_end(args);
    complain("%s", run->error);
    return status;
}

/* Flushes a stream, and closes it with `close`. Returns false, after a complaint, if it can't be written. */
static bool finish(FILE *file, const char *name, bool close) {
    int error = !ferror(file) ? 0 : errno ? errno : EIO; /* of a write on the way, which left nothing to flush */
    if (fflush(file) != 0 && !error) error = errno;
    if (close && fclose(file) != 0 && !error) error = errno;
    if (error) complain("%s can't be written: %s", name, strerror(error));
    return !error;
}

/* Flushes standard output. The run ends early, and with FAILED, if it can't be; that is
 * told once. */
static void flush_stdout(struct run *run) {
    if (!run->broken && !finish(stdout, "standard output", false)) run->broken = true;
}

/* Returns whether measuring should end early; with a broken standard output it goes on for the files. */
static bool stopping(const struct run *run) { return interrupted || (run->broken && !run->opt->noutputs); }

/* Opens a new file beside an output's target, which can take its place, and writes its path into `path`. Returns NULL,
 * errno set, on failure. */
static FILE *open_beside(const struct output *output, char path[PATH_MAX]) {
    int folder = (int)(strrchr(output->target, '/') - output->target);
    if (snprintf(path, PATH_MAX, "%.*s/." PROGRAM ".XXXXXX", folder, output->target) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd < 0 || file) return file;
    close(fd);
    unlink(path);
    errno = ENOMEM;
    return NULL;
}

/* Checks that an output can be written: that is done at the end, beside its file, which it replaces when it is whole.
 * Finds the file behind symbolic links. Returns false, errno set, on failure. */
static bool try_output(struct output *output) {
    char path[PATH_MAX];
    struct stat file = {.st_mode = 0};
    bool exists = access(output->path, F_OK) == 0;
    int fd = open(output->path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool found = fstat(fd, &file) == 0 && realpath(output->path, output->target);
    close(fd);
    if (found && !exists) unlink(output->target);
    if (found && !S_ISREG(file.st_mode)) errno = ENXIO;
    FILE *beside = found && S_ISREG(file.st_mode) ? open_beside(output, path) : NULL;
    if (!beside) return false;
    fclose(beside);
    unlink(path);
    return true;
}

/* Checks that all outputs can be written and differ from each other and from standard output. Returns DONE, or
 * after a complaint the exit status. */
static enum exit_code try_outputs(struct run *run, struct options *opt) {
    struct stat file, out;
    for (struct output *output = opt->outputs; output < opt->outputs + opt->noutputs; output++) {
        for (int fd = 1; fd <= 2 && stat(output->path, &file) == 0; fd++)
            if (fstat(fd, &out) == 0 && file.st_dev == out.st_dev && file.st_ino == out.st_ino)
                return refuse(run, USAGE, "--output: '%s' is where standard %s goes", output->path,
                              fd == 1 ? "output" : "error");
        if (!try_output(output))
            return refuse(run, FAILED, "--output: '%s' can't be written: %s", output->path,
                          errno == ENXIO ? "it is a pipe or a device, not a file" : strerror(errno));
        for (struct output *other = opt->outputs; other < output; other++)
            if (strcmp(other->target, output->target) == 0)
                return refuse(run, USAGE, "--output: '%s' is given twice", output->path);
    }
    return DONE;
}

/* Writes one output. Returns false after a complaint if it can't be; then what was in the file stays. */
static bool write_output(const struct output *output, const struct run *run) {
    char path[PATH_MAX], name[PATH_MAX + 16];
    snprintf(name, sizeof name, "--output: '%s'", output->path);
    FILE *out = open_beside(output, path);
    bool opened = out, good = true;
    if (out) {
        struct stat old;
        mode_t mask = umask(0);
        umask(mask);
        fchmod(fileno(out), stat(output->target, &old) == 0 ? old.st_mode & 07777 : 0666 & ~mask);
        bool whole = write_report(out, output->writer, run);
        good = finish(out, name, true);
        if (whole && good && rename(path, output->target) == 0) return true;
    }
    if (good) complain("%s can't be written: %s", name, strerror(errno));
    if (opened) unlink(path);
    return false;
}

/* Writes the outputs that are JSON, or the others. One that failed is not tried again. */
static void write_files(struct run *run, struct options *opt, bool are_json) {
    for (struct output *output = opt->outputs; output < opt->outputs + opt->noutputs; output++) {
        if (output->failed || (output->writer->traits & TELLS_STATUS ? true : false) != are_json) continue;
        if (run->ngpus == 0 && !are_json) continue; /* the others have nothing to say then */
        output->failed = !write_output(output, run);
        if (output->failed && run->status != INTERRUPTED) run->status = FAILED;
    }
}

/* Writes the prose of a format that has no place for it to stderr, where failures were told already. */
static void put_prose(const struct run *run) {
    char lead[64];
    for (const struct gpu *gpu = run->gpus; gpu < run->gpus + run->ngpus; gpu++) {
        snprintf(lead, sizeof lead, PROGRAM ": GPU %d: note: ", gpu->index);
        put_notes((struct notes){stderr, lead, lead, "\n", &text_escapes, 0}, run, gpu, false);
        if (gpu->explanation.bytes && run->ngpus > 1) complain("GPU %d: --explain:", gpu->index);
        put_explanation(stderr, run, gpu, false);
    }
}

/* Writes all outputs and the end of standard output. JSON tells whether all went well, so it comes behind the
 * others, and once more where something fails after it. */
static void write_outputs(struct run *run, struct options *opt) {
    if (opt->format->traits & NO_PROSE) put_prose(run);
    write_files(run, opt, false);
    enum exit_code before_json = run->status;
    write_files(run, opt, true);
    if (run->status != before_json) write_files(run, opt, true);
    bool good = run->broken || opt->format->row || write_report(stdout, opt->format, run);
    if (!good) complain("standard output can't be written: %s", strerror(errno));
    good = !run->broken && finish(stdout, "standard output", true) && good;
    if (run->broken || good || run->status == INTERRUPTED || run->status == FAILED) return;
    run->status = FAILED;
    write_files(run, opt, true);
}

/* Works out a row's statistics and complains about what failed in it; prints it if it is to be `shown`. */
static void report_row(struct run *run, struct gpu *gpu, struct row *row, bool shown) {
    char reason[STATUS_SIZE];
    hide_progress(&run->progress);
    for (enum kind k = PAGEABLE; k < KINDS; k++) {
        struct cell *cell = &row->cell[k];
        cell->gbps = stats_of(cell->samples, cell->count, run->opt->iters);
        if (cell_reason(gpu, row, k, reason)) complain("GPU %d: %s", gpu->index, reason);
    }
    compare_kinds(row);
    if (!shown) return;
    write_row(stdout, run->opt->format, run, gpu, row);
    flush_stdout(run);
}

/* Measures all rows of a team, and prints those of its first GPU on the way. */
static void measure_rows(struct run *run, struct bench *benches, int n) {
    if (benches->gpu->ready) write_begin(stdout, run->opt->format, run, benches->gpu);
    flush_stdout(run);
    for (int r = 0; r < run->nrows; r++) {
        for (enum kind k = PAGEABLE; k < KINDS && !stopping(run); k++) measure_cells(run, benches, n, r, k);
        for (struct bench *b = benches; b < benches + n; b++)
            if (b->gpu->ready) report_row(run, b->gpu, &b->gpu->rows[r], b == benches);
    }
}

/* Measures and reports `n` GPUs, one or all, at the same moment. Rows of the first are printed as they come, the
 * reports of the others behind them. Returns false without memory. */
static bool measure_team(struct run *run, struct gpu *gpus, int n) {
    struct bench *benches = calloc((size_t)n, sizeof *benches);
    if (!benches) return false;
    for (int i = 0; i < n; i++) {
        benches[i].gpu = &gpus[i];
        set_up(run, &benches[i]);
        hide_progress(&run->progress);
        if (!gpus[i].ready && gpus[i].why[0]) complain("GPU %d: %s", gpus[i].index, gpus[i].why);
    }
    benches->progress = &run->progress;
    measure_rows(run, benches, n);
    for (int i = 0; i < n; i++) {
        if (gpus[i].ready && run->opt->explain && !stopping(run) && !gpus[i].why[0])
            measure_explanation(&benches[i], run->threads);
        if (gpus[i].explanation.why[0]) complain("GPU %d: --explain: %s", gpus[i].index, gpus[i].explanation.why);
    }
    hide_progress(&run->progress);
    for (int i = 0; i < n; i++) gpus[i].interrupted = interrupted;
    if (gpus->ready) write_end(stdout, run->opt->format, run, gpus);
    for (int i = gpus->ready ? 1 : 0; i < n; i++) write_gpu(stdout, run->opt->format, run, &gpus[i]);
    flush_stdout(run);
    for (int i = 0; i < n; i++)
        if (gpus[i].ready || benches[i].streams[0]) tear_down(&benches[i]);
    free(benches);
    return true;
}

/* Makes a GPU's rows: all sizes, and of each all directions. Returns false without memory. */
static bool make_rows(const struct run *run, struct gpu *gpu) {
    gpu->rows = calloc((size_t)run->nrows + 1, sizeof *gpu->rows); /* with --list there are none */
    for (int r = 0; gpu->rows && r < run->nrows; r++) {
        gpu->rows[r].bytes = run->opt->sizes[r / run->ndirections];
        gpu->rows[r].direction = &directions[r % run->ndirections];
        for (int k = 0; k < KINDS; k++) set_unknown(&gpu->rows[r].cell[k].gbps, sizeof(struct stats));
        compare_kinds(&gpu->rows[r]);
    }
    return gpu->rows;
}

/* Adds up what the GPUs did at the same time, if any could be measured, and reports it as one more table. */
static void report_totals(struct run *run) {
    struct gpu *totals = &run->gpus[run->ngpus];
    snprintf(totals->name, sizeof totals->name, "%d GPUs at once", run->ngpus);
    for (int g = 0; g < run->ngpus; g++) totals->ready |= run->gpus[g].ready;
    if (!totals->ready) return;
    for (int r = 0; r < run->nrows; r++) add_up(run, &totals->rows[r], r);
    write_gpu(stdout, run->opt->format, run, totals);
    flush_stdout(run);
}

/* Returns the exit status of what was measured, after a complaint for each summary that fails
 * --min-efficiency: BELOW_MINIMUM, or FAILED where there is nothing to compare. */
static enum exit_code judge_efficiency(const struct run *run) {
    enum exit_code status = DONE;
    double minimum = run->opt->min_efficiency;
    for (const struct gpu *gpu = run->gpus; !isnan(minimum) && gpu < run->gpus + run->ngpus; gpu++)
        for (int d = 0; d < run->ndirections; d++) {
            double pinned = summarize(run, gpu, &directions[d]).mean[PINNED], limit = gpu_limit(run, gpu, true);
            double percent = pinned / limit * 100;
            if ((directions[d].in && directions[d].out) || percent >= minimum) continue; /* BiD is not judged */
            if (isnan(percent)) {
                complain("--min-efficiency %g: GPU %d %s can't be judged, %s", minimum, gpu->index, directions[d].name,
                         gpu->why[0]    ? "the GPU failed"
                         : isnan(limit) ? "what GPU and slot can do is not known"
                                        : "the pinned rate is not known");
                status = FAILED;
                continue;
            }
            complain("--min-efficiency %g: GPU %d %s pinned %.1f GB/s is %.*f %% of %.4g GB/s", minimum, gpu->index,
                     directions[d].name, pinned, percent < minimum - 0.005 ? 2 : 6, percent, limit);
            if (status == DONE) status = BELOW_MINIMUM;
        }
    return status;
}

/* Returns the exit status of what was measured: interrupted, no GPU usable, failed, or judged. */
static enum exit_code judge_run(const struct run *run) {
    bool failed = run->broken, usable = false, broken_off = false;
    for (const struct gpu *gpu = run->gpus; gpu < run->gpus + run->ngpus; gpu++) {
        usable |= gpu->ready;
        broken_off |= gpu->interrupted;
        failed |= gpu->explanation.why[0] || gpu->why[0];
        for (int r = 0; r < run->nrows; r++)
            failed |= gpu->rows[r].cell[PAGEABLE].why[0] || gpu->rows[r].cell[PINNED].why[0];
    }
    enum exit_code judged = broken_off || !usable ? DONE : judge_efficiency(run);
    return broken_off ? INTERRUPTED : !usable ? NO_GPU : failed ? FAILED : judged;
}

/* Measures all GPUs asked for and reports them. Returns the exit status. */
static enum exit_code measure(struct run *run) {
    const struct options *opt = run->opt;
    int team = opt->parallel ? run->ngpus : 1;
    if (opt->parallel && team == 1 && run->visible > 1 && !opt->ndevices)
        complain("--parallel: only GPU 0 is measured, choose more with --device");
    write_begin(stdout, opt->format, run, NULL);
    for (int g = 0; g < run->ngpus; g += team) {
        if (!stopping(run)) {
            if (!measure_team(run, run->gpus + g, team)) return refuse(run, FAILED, "no memory for measuring");
        } else
            for (int i = g; i < g + team; i++) {
                run->gpus[i].interrupted = interrupted;
                write_gpu(stdout, opt->format, run, &run->gpus[i]);
            }
    }
    if (opt->parallel && run->ngpus > 1) report_totals(run);
    if (opt->format->row) write_end(stdout, opt->format, run, NULL);
    enum exit_code status = judge_run(run);
    if (status == NO_GPU) snprintf(run->error, WHY, "GPU %d: %.480s", run->gpus->index, run->gpus->why);
    return status;
}

/* Stores the versions of CUDA's runtime and driver, 1000 * major + 10 * minor; 0 without a driver.
 * CUDA 11's runtime does not tell its own without one. */
static void read_versions(int *runtime, int *driver) {
    *runtime = *driver = 0;
    if (cudaRuntimeGetVersion(runtime) != cudaSuccess || *runtime == 0) *runtime = CUDART_VERSION;
    cudaDriverGetVersion(driver);
}

/* Counts the GPUs. Returns DONE, or after a complaint the exit status. */
static enum exit_code count_gpus(struct run *run) {
    char why[WHY], driver[32], runtime[32], build[80] = "";
    cudaError_t error = cudaGetDeviceCount(&run->visible);
    if (error != cudaErrorInsufficientDriver)
        return cuda_failed(error, "no usable GPU", why) ? refuse(run, NO_GPU, "%s", why) : DONE;
    if (run->driver == 0)
        return refuse(run, NO_GPU,
                      "no NVIDIA driver: none is loaded on this machine, or this container was not given it");
    if (run->driver >= 11000)
        snprintf(build, sizeof build, ", or build with an older CUDA runtime (make toolkit CUDA=%d && make)",
                 run->driver / 1000);
    return refuse(run, NO_GPU, "the NVIDIA driver supports CUDA %s, this program needs %s: update the driver%s",
                  version_label(run->driver, driver), version_label(run->runtime, runtime), build);
}

/* Finds the GPUs asked for and fills in run->gpus. Returns DONE, or after a complaint the exit status. */
static enum exit_code find_gpus(struct run *run, const struct options *opt) {
    enum exit_code status = count_gpus(run);
    if (status != DONE) return status;
    bool all = opt->all_devices || (opt->list && opt->ndevices == 0);
    int n = all ? run->visible : opt->ndevices ? opt->ndevices : 1;
    for (int g = 0; g < opt->ndevices; g++)
        if (opt->devices[g] >= run->visible)
            return refuse(run, USAGE, "--device: GPU %d is not there, %d visible, counted from 0 (--list shows them)",
                          opt->devices[g], run->visible);
    for (int g; (g = run->ngpus) < n && g < MAX_GPUS; run->ngpus++) {
        struct gpu *gpu = &run->gpus[g];
        gpu->index = all || opt->ndevices == 0 ? g : opt->devices[g];
        gpu_identify(run, gpu);
        choose_cpus(run, gpu);
        int ncpus = CPU_COUNT_S(sizeof gpu->cpus, gpu->cpus.set);
        if (!opt->threads && ncpus > 0 && ncpus < run->threads) run->threads = ncpus;
        if (!make_rows(run, gpu))
            return refuse(run, FAILED, "--sizes: no memory for the results of %d rows", run->nrows);
    }
    struct gpu *totals = &run->gpus[run->ngpus];
    totals->total = true;
    strcpy(totals->label, "total");
    if (!make_rows(run, totals))
        return refuse(run, FAILED, "--sizes: no memory for the results of %d rows", run->nrows);
    return DONE;
}

/* Returns a text, "-" for an empty one. */
static const char *or_dash(const char *text) { return *text ? text : "-"; }

/* Prints the GPUs with what they are connected by; an idle link may show less than it can do. Returns
 * FAILED if one can't be looked at. */
static enum exit_code list_gpus(struct run *run) {
    enum exit_code status = DONE;
    char link[64], max[64];
    for (struct gpu *gpu = run->gpus; gpu < run->gpus + run->ngpus; gpu++) {
        link_observe(run, gpu);
        struct link best = {.kind = gpu->link.kind, .gen = gpu->link.max_gen, .width = gpu->link.max_width};
        bool below = link_below_max(&gpu->link);
        if (run->opt->format->row) {
            printf("%d  ", gpu->index);
            put(stdout, gpu->name, &text_escapes);
            printf("  %s  %s  %s", or_dash(gpu->uuid), or_dash(gpu->bus_id),
                   link_label(below ? &best : &gpu->link, max));
            if (below) printf(" (now %s)", link_label(&gpu->link, link));
            putchar('\n');
        }
        if (!gpu->why[0]) continue;
        complain("GPU %d: %s", gpu->index, gpu->why);
        status = FAILED;
    }
    return status;
}

/* Frees what the run holds. */
static void free_run(struct run *run) {
    for (struct gpu *gpu = run->gpus; gpu <= run->gpus + run->ngpus; gpu++) {
        for (int i = 0; gpu->rows && i < run->nrows * KINDS; i++) free(gpu->rows[i / KINDS].cell[i % KINDS].samples);
        free(gpu->rows);
    }
    memset(run, 0, sizeof *run); /* so that leak checkers see what was not freed */
}

/* Lists or measures the GPUs. Returns the exit status. */
static enum exit_code run_options(struct options *opt) {
    time_t seconds = time(NULL);
    static struct run whole; /* 600 KB: too much for a small stack */
    struct run *run = &whole;
    run->opt = opt;
    run->begun = now();
    int ncpus = own_cpus(&run->cpus);
    run->ndirections = opt->bidir ? 3 : 2;
    run->nrows = opt->list ? 0 : opt->nsizes * run->ndirections;
    run->threads = opt->threads ? opt->threads : ncpus < 1 ? 1 : ncpus < MOST_THREADS ? ncpus : MOST_THREADS;
    run->label_width = widest_label(opt);
    run->progress.wanted = !opt->quiet && isatty(2) && getenv("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
    gethostname(run->host, sizeof run->host - 1);
    cpu_name(run->cpu);
    strftime(run->time, sizeof run->time, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    read_versions(&run->runtime, &run->driver);
    nvml_open(run);
    run->status = try_outputs(run, opt);
    if (run->status != DONE) opt->noutputs = 0; /* none is touched then */
    if (run->status == DONE) run->status = find_gpus(run, opt);
    if (run->status == DONE) run->status = opt->list ? list_gpus(run) : measure(run);
    write_outputs(run, opt);
    enum exit_code status = run->status;
    free_run(run);
    return status;
}

/* Prints the versions of program, CUDA runtime and driver. */
static void print_version(void) {
    int runtime, driver;
    char label[32];
    read_versions(&runtime, &driver);
    printf(PROGRAM " " VERSION "\nCUDA runtime %s\n", version_label(runtime, label));
    printf("CUDA driver  %s\n", driver ? version_label(driver, label) : "none");
}

/* Reads the options, does what they ask for, and returns the exit status. */
int main(int argc, char **argv) {
    static struct options opt = {
        .iters = DEFAULT_ITERS, .warmup = DEFAULT_WARMUP, .min_efficiency = NAN, .pin = pin_methods, .format = writers};
    char why[WHY];
    prepare_process();
    set_sizes(&opt, DEFAULT_SIZES, why);
    if (!parse_options(&opt, argc, argv)) {
        fputs("Try '" PROGRAM " --help'.\n", stderr);
        return USAGE;
    }
    if (opt.help) print_help();
    else if (opt.version) print_version();
    else return run_options(&opt);
    return finish(stdout, "standard output", true) ? DONE : FAILED;
}
