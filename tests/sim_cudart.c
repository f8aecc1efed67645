/*
 * A simulated CUDA runtime, for tests and for looking at the program where there is no GPU.
 *
 * It implements the runtime calls that dma_bandwidth makes, on host memory and a virtual clock: a
 * copy advances the clock by bytes / rate, events read it. What it promises is a device's manners:
 * memory is allocated, bounded, freed; copies move bytes; errors stick as CUDA's do; an event's time
 * is to be had only after something waited for it. A copy of more than 1 MiB moves only the first
 * and the last 64 bytes of every page of device memory, or runs of gigabytes would take minutes.
 * Asynchronous copies of pinned memory move their bytes when the host waits for them, the last moment
 * that CUDA allows: a buffer that is used again too early holds wrong data.
 *
 * What steers it (lists have an item for each GPU, the last one stands for all further ones):
 *
 *   SIM_GPUS=2 SIM_NAME=…     how many GPUs (1), and the name of all
 *   SIM_MEM=bytes,…           memory of each GPU (80 GiB)
 *   SIM_SPARE=bytes           this machine's memory that all GPUs may take (a third of what is
 *                             available)
 *   SIM_OVERSELL=1            GPUs claim only half of the memory that they have
 *   SIM_DOMAIN=N              PCI domain of all GPUs (0)
 *   SIM_DRIVER=11080          driver's CUDA version (the runtime's); 0: no driver
 *   SIM_RUNTIME=12090         runtime's CUDA version (the toolkit's)
 *   SIM_INTEGRATED=1 SIM_C2C=1
 *                             kind of GPU
 *   SIM_RATES=rate,…;…        GB/s, a list for each GPU between semicolons: pageable.h2d=20.3, or
 *                             for one size pinned.d2h@536870912=46.75
 *   SIM_JITTER=0.1            relative spread of the samples, in a fixed sequence
 *   SIM_STAGE=GB/s            rate at which a thread of a staged copy copies host memory (10)
 *   SIM_TOUCH=GB/s            rate at which a D2H copy maps absent pages of pageable memory, on top
 *                             of the copy's own time (free)
 *   SIM_DELAY=ms,…            real time that each copy takes, for each GPU
 *   SIM_PIN_COST=ms,ms        real time that cudaMallocHost and cudaHostAlloc, and cudaHostRegister,
 *                             take
 *   SIM_PIN_LIMIT=bytes       pinned memory beyond it can't be had
 *   SIM_FAIL=N                the Nth call of all fails
 *   SIM_FAIL=call:N:error@GPU
 *                             the Nth call of one function fails, or all; the error is optional, and
 *                             so is the GPU whose calls alone count
 *   SIM_COPY=rule;…           faulty copies: which:what, of several that fit the first. Which: 4
 *                             (the fourth of all), 4- (and all later), 4-6, h2d, pinned.d2h,
 *                             gpu1.pageable, pinned.h2d#2, h2d#2- (of that class). What: none is
 *                             moved, first half only, shift (arrives a page later), short (all but
 *                             the last byte), swap (the first two pages change places), flip@OFFSET
 *                             (a bit of that byte)
 *   SIM_CORRUPT=N             the Nth copy flips a bit of its last byte
 *   SIM_STALL=N               the Nth elapsed time reads 0
 *   SIM_CALLS=file            gets the number of CUDA calls, at exit
 *   SIM_LEFT=file             gets what was not given back, at exit: device BYTES, pinned BYTES,
 *                             registered BYTES, stream N, event N
 *   SIM_ORDER=file            gets a line for each call as it happens: gpu K and setdevice, alloc,
 *                             free, pin, unpin, spoil (memset), check (2D D2H), put (2D H2D),
 *                             record, sync, copy-begin, copy-end, these two with h2d|d2h
 *                             pageable|pinned BYTES
 *   SIM_SOURCES=file          gets a line for each H2D copy of a page or more: pageable|pinned BYTES
 *                             absent=PAGES, pages that nothing touched before
 *   SIM_FLAGS=file            gets cudaHostAlloc 0x4 or cudaHostRegister 0x0 for each such call
 *
 * And sim_nvml.c, the stand-in for NVML:
 *
 *   SIM_LINK=link;…           link of each GPU: 5x16 always; 1x16,4x16 first look and later;
 *                             5x16/4x8 maximum and current; 5x16~1x16 odd and even looks
 *   SIM_NVML_FAIL=call:code   that function answers so (3, not supported, where there is no code)
 *   SIM_CPUS=N                the GPUs are near CPU N only (near all)
 *   SIM_BUSY=35,2             utilisation in per cent, and other processes
 *   SIM_CC=1                  confidential computing is on
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
enum {
    MAX_DEVICES = 16,
    MAX_BLOCKS = 4096,
    PAGE = 4096,
    LINE = 64,
    SPARSE = 1 << 20,   /* bytes: larger copies move lines only */
    MAPPED = 2 << 20,   /* bytes: blocks from here on are mapped */
    GARBAGE = 64 << 20, /* bytes: larger blocks of device memory begin as zeros */
    STAGING = 8 << 20,  /* bytes: the largest block that is taken for a staging buffer */
};
static const unsigned long long default_memory = (unsigned long long)80 << 30;

struct CUstream_st {
    double busy; /* seconds: when its last work ends */
    int device;
    unsigned long last;    /* place of its last work in the order of all work */
    unsigned long stretch; /* the stretch of its device in which it last took part in a staged copy */
};

struct CUevent_st {
    double at;
    int device;
    cudaStream_t stream; /* to compare with only: it may be destroyed */
    unsigned long order; /* place in the order of all work; 0: not recorded */
    bool complete;       /* as far as the host can know */
    bool timed;
    struct CUevent_st *next;
};

static struct {
    pthread_mutex_t lock;
    unsigned long calls, named_calls, elapsed, order; /* how many so far */
    size_t pinned;                                    /* bytes */
    int streams;
    struct CUevent_st *events;
    struct pending *pending, **end; /* moves that wait, in their order */
    struct device {
        double now;     /* seconds */
        double link[2]; /* when each direction (H2D, D2H) ends its last asynchronous copy */
        size_t used;
        cudaError_t sticky;
        unsigned long copies[2][2]; /* pinned or not, D2H or not */
        unsigned long gate;         /* order of the last event in the default stream: what came before ends first */
        const void *recorder;       /* the thread that last recorded in the default stream */
        unsigned long stretch;      /* a stretch of time ends where the default stream waits for all others */
        unsigned long stages;       /* stretches with staged copies */
        struct {
            size_t bytes[2], chunk; /* H2D, D2H; the largest chunk */
            int streams;
        } staged; /* in this stretch */
    } devices[MAX_DEVICES];
    struct block {
        unsigned char *at;
        size_t bytes;
        enum { FREE, ON_DEVICE, ALLOCATED, REGISTERED } kind;
        int device;
        unsigned long stretch; /* the last one in which a staged copy used it */
        bool idle;             /* no staged copy uses it, it seems */
    } blocks[MAX_BLOCKS];
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread int current;

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

/* Returns where the item for `index` of a list from the environment begins, or NULL. */
static const char *item(const char *name, int index, char separator) {
    const char *text = getenv(name);
    for (const char *next; text && index > 0 && (next = strchr(text, separator)); index--) text = next + 1;
    return text && *text ? text : NULL;
}

/* Returns a number from a list in the environment, or `otherwise`. */
static unsigned long long setting_of(const char *name, int index, unsigned long long otherwise) {
    const char *text = item(name, index, ',');
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Returns a number from the environment, or `otherwise`. */
static unsigned long long setting(const char *name, unsigned long long otherwise) {
    return setting_of(name, 0, otherwise);
}

/* Returns a number that need not be whole, or `otherwise`. */
static double real_setting(const char *name, double otherwise) {
    return item(name, 0, ',') ? strtod(getenv(name), NULL) : otherwise;
}

/* Takes as many milliseconds of real time as a list in the environment says. */
static void linger(const char *name, int index) {
    const char *ms = item(name, index, ',');
    if (ms) usleep((useconds_t)(strtod(ms, NULL) * 1000));
}

/* Returns the larger of two numbers. */
static double larger(double a, double b) { return a > b ? a : b; }

/* Ends the process: a wish that can't be read must not look like one that was granted. */
static void misread(const char *name) {
    fprintf(stderr, "simulated CUDA: %s=%s: not understood\n", name, getenv(name));
    _exit(125);
}

/* Appends a line to the file that a variable names, in one write. */
__attribute__((format(printf, 2, 3))) static void note(const char *name, const char *format, ...) {
    const char *path = getenv(name);
    int file = path && *path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    va_list arguments;
    va_start(arguments, format);
    vdprintf(file, format, arguments);
    va_end(arguments);
    close(file);
}

/* SIM_LEFT: what was not given back. */
static void write_left(FILE *file) {
    static const char *const kinds[] = {[ON_DEVICE] = "device", [ALLOCATED] = "pinned", [REGISTERED] = "registered"};
    size_t left[COUNT(kinds)] = {0};
    int events = 0;
    for (int i = 0; i < MAX_BLOCKS; i++) left[sim.blocks[i].kind] += sim.blocks[i].bytes;
    for (struct CUevent_st *e = sim.events; e; e = e->next) events++;
    for (size_t i = ON_DEVICE; i < COUNT(kinds); i++)
        if (left[i]) fprintf(file, "%s %zu\n", kinds[i], left[i]);
    if (sim.streams) fprintf(file, "stream %d\n", sim.streams);
    if (events) fprintf(file, "event %d\n", events);
}

/* SIM_CALLS. */
static void write_calls(FILE *file) { fprintf(file, "%lu\n", sim.calls); }

/* Writes what a variable asks for at the end. */
static void at_end(const char *name, void (*write)(FILE *)) {
    FILE *file = getenv(name) ? fopen(getenv(name), "w") : NULL;
    if (!file) return;
    write(file);
    fclose(file);
}

/* Runs after main, however it ended but for a signal. */
__attribute__((destructor)) static void end(void) {
    pthread_mutex_lock(&sim.lock);
    at_end("SIM_CALLS", write_calls);
    at_end("SIM_LEFT", write_left);
    pthread_mutex_unlock(&sim.lock);
}

/* Returns what SIM_FAIL makes of this call on this GPU, counting it. */
static cudaError_t injected(const char *call, int device) {
    const char *wish = getenv("SIM_FAIL"), *colon = wish ? strchr(wish, ':') : NULL,
               *at = wish ? strchr(wish, '@') : NULL;
    if (!wish) return cudaSuccess;
    if (!colon) {
        if (sim.calls != strtoul(wish, NULL, 10)) return cudaSuccess;
    } else {
        bool all = strncmp(colon + 1, "all", 3) == 0;
        if (strlen(call) != (size_t)(colon - wish) || strncmp(call, wish, strlen(call)) != 0 ||
            (at && strtol(at + 1, NULL, 10) != device) || (++sim.named_calls != strtoul(colon + 1, NULL, 10) && !all))
            return cudaSuccess;
        const char *name = strchr(colon + 1, ':');
        for (size_t i = 0; name && i < COUNT(errors); i++)
            if (strlen(errors[i].name) == strcspn(name + 1, "@") &&
                strncmp(name + 1, errors[i].name, strlen(errors[i].name)) == 0)
                return errors[i].error;
        if (name) misread("SIM_FAIL");
    }
    return strstr(call, "alloc") || strstr(call, "Alloc") ? cudaErrorMemoryAllocation
           : strstr(call, "Memcpy")                       ? cudaErrorIllegalAddress
                                                          : cudaErrorUnknown;
}

/* Every call begins here, locked until leave(): counts it, and returns the error that it ends with
 * at once. An injected error of the kind that sticks stays with that GPU. */
static cudaError_t enter(const char *call, int device) {
    pthread_mutex_lock(&sim.lock);
    sim.calls++;
    cudaError_t error = injected(call, device);
    if (error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure || error == cudaErrorECCUncorrectable)
        sim.devices[device].sticky = error;
    return error != cudaSuccess ? error : sim.devices[device].sticky;
}

/* Every call ends here. */
static cudaError_t leave(cudaError_t error) {
    pthread_mutex_unlock(&sim.lock);
    return error;
}

/* Returns how many GPUs there are. */
static int device_count(void) {
    int n = (int)setting("SIM_GPUS", 1);
    return n > MAX_DEVICES ? MAX_DEVICES : n;
}

/* Returns `device` if there is such a GPU, else the current one, with an error. */
static int known_device(int device, cudaError_t *error) {
    *error = device >= 0 && device < device_count() ? cudaSuccess : cudaErrorInvalidDevice;
    return *error == cudaSuccess ? device : current;
}

/* Returns memory that begins with a page, or NULL. Large blocks are mapped, so that they can be
 * larger than this machine's memory and fast where huge pages are to be had. */
static void *get_memory(size_t bytes) {
    void *at = NULL;
    if (bytes < MAPPED) return posix_memalign(&at, PAGE, bytes) == 0 ? at : NULL;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

/* Gives back what get_memory gave. */
static void free_memory(void *at, size_t bytes) {
    if (bytes < MAPPED) free(at);
    else munmap(at, bytes);
}

/* Returns the bytes of this machine that all simulated GPUs may take together. */
static size_t spare_memory(void) {
    char text[2048] = "";
    if (getenv("SIM_SPARE")) return setting("SIM_SPARE", 0);
    int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    const char *line = n > 0 ? strstr(text, "MemAvailable:") : NULL;
    return line ? (size_t)strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024 / 3 : SIZE_MAX;
}

/* Returns the block that holds all of [at, at + bytes), or NULL. */
static struct block *block_of(const void *at, size_t bytes) {
    uintptr_t from = (uintptr_t)at;
    for (struct block *b = sim.blocks; b < sim.blocks + MAX_BLOCKS; b++)
        if (b->kind != FREE && from >= (uintptr_t)b->at && from - (uintptr_t)b->at <= b->bytes &&
            bytes <= b->bytes - (from - (uintptr_t)b->at))
            return b;
    return NULL;
}

/* Enters a block of memory into the books. */
static void new_block(void *at, size_t bytes, int kind) {
    struct block *b = sim.blocks;
    while (b->kind != FREE) b++; /* MAX_BLOCKS is far more than the program has at once */
    *b = (struct block){.at = at, .bytes = bytes, .kind = kind, .device = current};
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = (int)setting("SIM_RUNTIME", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = (int)setting("SIM_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t error = enter("cudaGetDeviceCount", current);
    *count = device_count();
    unsigned long long driver = setting("SIM_DRIVER", CUDART_VERSION);
    if (error == cudaSuccess && driver < setting("SIM_RUNTIME", CUDART_VERSION) / 1000 * 1000)
        error = cudaErrorInsufficientDriver;
    if (error == cudaSuccess && *count == 0) error = cudaErrorNoDevice;
    return leave(error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    cudaError_t unknown, error = enter("cudaGetDeviceProperties", known_device(device, &unknown));
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s (simulated)",
             getenv("SIM_NAME") ? getenv("SIM_NAME") : "NVIDIA H100 80GB HBM3");
    p->totalGlobalMem = setting_of("SIM_MEM", device, default_memory) / (setting("SIM_OVERSELL", 0) ? 2 : 1);
    p->pciDomainID = (int)setting("SIM_DOMAIN", 0);
    p->pciBusID = 0x18 + 0x10 * device;
    for (int i = 0; i < 16; i++) p->uuid.bytes[i] = (char)(i * 17 + device);
    return leave(unknown != cudaSuccess ? unknown : error);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    cudaError_t unknown, error = enter("cudaDeviceGetAttribute", known_device(device, &unknown));
    *value = attribute == cudaDevAttrIntegrated                               ? (int)setting("SIM_INTEGRATED", 0)
             : attribute == cudaDevAttrPageableMemoryAccessUsesHostPageTables ? (int)setting("SIM_C2C", 0)
                                                                              : 0;
    return leave(unknown != cudaSuccess ? unknown : error);
}

/* Answers with an error that sticks to the GPU asked for, never to the one before. */
cudaError_t cudaSetDevice(int device) {
    cudaError_t unknown, error = enter("cudaSetDevice", known_device(device, &unknown));
    if (unknown != cudaSuccess) return leave(unknown);
    if (error == cudaSuccess || error == sim.devices[device].sticky) current = device;
    if (error == cudaSuccess) note("SIM_ORDER", "gpu %d setdevice\n", device);
    return leave(error);
}

const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < COUNT(errors); i++)
        if (errors[i].error == error) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < COUNT(errors); i++)
        if (errors[i].error == error) return errors[i].text;
    return "unrecognized error code";
}

/* Sets or moves the bytes: all of them, or of many only the lines at both ends of each page of the
 * device memory. `from` is NULL to set them. */
static void put(unsigned char *to, const unsigned char *from, int value, size_t bytes, const unsigned char *device) {
    for (size_t at = 0, next; at < bytes; at = next) {
        next = bytes <= SPARSE ? bytes : at + PAGE - (uintptr_t)(device + at) % PAGE;
        if (next > bytes) next = bytes;
        size_t line = bytes > SPARSE && next - at > 2 * LINE ? LINE : next - at;
        if (from) memcpy(to + at, from + at, line);
        else memset(to + at, value, line);
        if (line == next - at) continue;
        if (from) memcpy(to + next - line, from + next - line, line);
        else memset(to + next - line, value, line);
    }
}

/* How a copy goes wrong. */
struct fault {
    size_t moved, shift, flip; /* bytes from the first, bytes by which they arrive later, SIZE_MAX or an offset */
    bool swap;                 /* the first two pages */
};

/* A copy whose bytes are still to be moved. */
struct pending {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    bool d2h;
    struct fault fault;
    int gpu;
    cudaStream_t stream; /* to compare with only */
    unsigned long order;
    struct pending *next;
};

/* Moves the bytes, as far as faults let them. */
static void move(const struct pending *p) {
    const struct fault *f = &p->fault;
    size_t n = f->moved < p->bytes - f->shift ? f->moved : p->bytes - f->shift;
    put(p->to + f->shift, p->from, 0, n, p->d2h ? p->from : p->to + f->shift);
    for (size_t i = 0; f->swap && i < PAGE && i + PAGE < p->bytes; i++) {
        unsigned char byte = p->to[i];
        p->to[i] = p->to[i + PAGE];
        p->to[i + PAGE] = byte;
    }
    if (f->flip < p->bytes) p->to[f->flip] ^= 1;
}

/* Makes the moves of a GPU's stream up to `order`, and those that it waits for itself; without a
 * stream, those of all. */
static void move_pending(int gpu, cudaStream_t stream, unsigned long order) {
    unsigned long gate = sim.devices[gpu].gate <= order ? sim.devices[gpu].gate : 0;
    struct pending **at = &sim.pending;
    while (*at) {
        struct pending *p = *at;
        if (p->gpu != gpu || p->order > order || (stream && p->stream != stream && p->order > gate)) {
            at = &p->next;
            continue;
        }
        move(p);
        *at = p->next;
        free(p);
    }
    sim.end = at;
}

cudaError_t cudaMalloc(void **at, size_t bytes) {
    cudaError_t error = enter("cudaMalloc", current);
    size_t held = 0, spare = spare_memory(), memory = setting_of("SIM_MEM", current, default_memory);
    for (int i = 0; i < MAX_DEVICES; i++) held += sim.devices[i].used;
    if (error == cudaSuccess && (bytes > memory - sim.devices[current].used || held > spare || bytes > spare - held ||
                                 !(*at = get_memory(bytes))))
        error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        for (size_t page = 0; bytes <= GARBAGE && page < bytes; page += PAGE)
            memset((char *)*at + page, 0xdd, bytes - page < LINE ? bytes - page : LINE);
        sim.devices[current].used += bytes;
        new_block(*at, bytes, ON_DEVICE);
        note("SIM_ORDER", "gpu %d alloc\n", current);
    }
    return leave(error);
}

/* Pins `bytes` at `*at`, or allocates them first. */
static cudaError_t pin(void **at, size_t bytes, int kind) {
    if (bytes + sim.pinned > setting("SIM_PIN_LIMIT", UINT64_MAX)) return cudaErrorMemoryAllocation;
    if (kind == REGISTERED && block_of(*at, 1)) return cudaErrorHostMemoryAlreadyRegistered;
    if (kind == ALLOCATED && !(*at = get_memory(bytes))) return cudaErrorMemoryAllocation;
    sim.pinned += bytes;
    new_block(*at, bytes, kind);
    note("SIM_ORDER", "gpu %d pin\n", current);
    return cudaSuccess;
}

/* Waits as long as pinning is to take, outside the lock. */
static cudaError_t pinned(cudaError_t error, int kind) {
    linger("SIM_PIN_COST", kind == REGISTERED);
    return error;
}

cudaError_t cudaMallocHost(void **at, size_t bytes) {
    cudaError_t error = enter("cudaMallocHost", current);
    return pinned(leave(error != cudaSuccess ? error : pin(at, bytes, ALLOCATED)), ALLOCATED);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    cudaError_t error = enter("cudaHostAlloc", current);
    note("SIM_FLAGS", "cudaHostAlloc 0x%x\n", flags);
    if (error == cudaSuccess && flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        error = cudaErrorInvalidValue;
    return pinned(leave(error != cudaSuccess ? error : pin(at, bytes, ALLOCATED)), ALLOCATED);
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    cudaError_t error = enter("cudaHostRegister", current);
    note("SIM_FLAGS", "cudaHostRegister 0x%x\n", flags);
    if (error == cudaSuccess && flags & ~(cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory |
                                          cudaHostRegisterReadOnly))
        error = cudaErrorInvalidValue;
    return pinned(leave(error != cudaSuccess ? error : pin(&at, bytes, REGISTERED)), REGISTERED);
}

/* Takes a block of one kind off the books. Memory is given back even where an error sticks, as a
 * process that ends gives it back. */
static cudaError_t release(const char *call, void *at, int kind) {
    cudaError_t error = enter(call, current);
    struct block *b = sim.blocks;
    while (b < sim.blocks + MAX_BLOCKS && (b->at != at || (int)b->kind != kind)) b++;
    if (b == sim.blocks + MAX_BLOCKS) return leave(cudaErrorInvalidValue);
    for (int gpu = 0; gpu < MAX_DEVICES; gpu++) move_pending(gpu, NULL, sim.order); /* CUDA waits too */
    if (kind == ON_DEVICE) sim.devices[b->device].used -= b->bytes;
    else sim.pinned -= b->bytes;
    if (kind != REGISTERED) free_memory(at, b->bytes);
    *b = (struct block){.kind = FREE};
    note("SIM_ORDER", "gpu %d %s\n", current, kind == ON_DEVICE ? "free" : "unpin");
    return leave(error);
}

cudaError_t cudaFree(void *at) { return release("cudaFree", at, ON_DEVICE); }
cudaError_t cudaFreeHost(void *at) { return release("cudaFreeHost", at, ALLOCATED); }
cudaError_t cudaHostUnregister(void *at) { return release("cudaHostUnregister", at, REGISTERED); }

/* The course's H100 (PCIe Gen5 x16), GB/s at four sizes; other sizes go by the next larger one. */
static const struct {
    size_t bytes;
    double pageable[2], pinned[2]; /* H2D, D2H */
} h100[] = {
    {(size_t)512 << 20, {16.946, 14.60}, {54.724, 46.75}},
    {(size_t)1 << 30, {21.34, 16.74}, {54.78, 46.97}},
    {(size_t)2 << 30, {21.37, 16.75}, {54.83, 47.26}},
    {(size_t)4 << 30, {21.37, 16.72}, {54.87, 48.01}},
};

/* Returns GB/s for a copy of so many bytes. */
static double rate(int gpu, bool is_pinned, bool d2h, size_t bytes) {
    char any[32], exact[64];
    const char *wish = item("SIM_RATES", gpu, ';'), *found;
    double wished = 0;
    size_t length = wish ? strcspn(wish, ";") : 0, i = 0;
    int n = snprintf(any, sizeof any, "%s.%s=", is_pinned ? "pinned" : "pageable", d2h ? "d2h" : "h2d");
    int m = snprintf(exact, sizeof exact, "%.*s@%zu=", n - 1, any, bytes);
    if (wish && (found = memmem(wish, length, any, (size_t)n))) wished = strtod(found + n, NULL);
    if (wish && (found = memmem(wish, length, exact, (size_t)m))) wished = strtod(found + m, NULL);
    while (i + 1 < COUNT(h100) && h100[i].bytes < bytes) i++;
    return wished > 0 ? wished : is_pinned ? h100[i].pinned[d2h] : h100[i].pageable[d2h];
}

/* Returns the factor by which SIM_JITTER makes the nth time longer. */
static double jitter(unsigned long n) {
    static const double spread[] = {1, -1, 0.5, -0.5, 0};
    return 1 / (1 + real_setting("SIM_JITTER", 0) * spread[n % COUNT(spread)]);
}

/* Returns when the staged copies of this stretch of time end. As many threads as streams took part
 * copy host memory at SIM_STAGE each, beside the link; whichever takes longer rules, and one chunk
 * goes through the other alone. Sums only: it does not matter which thread took which chunk. */
static double staged_end(int gpu) {
    const struct device *d = &sim.devices[gpu];
    double chunk = (double)d->staged.chunk, all = (double)(d->staged.bytes[0] + d->staged.bytes[1]);
    if (d->staged.streams == 0) return d->now;
    double stage = real_setting("SIM_STAGE", 10), slowest = rate(gpu, true, false, d->staged.bytes[0]), link = 0;
    for (int d2h = 0; d2h < 2; d2h++) {
        if (!d->staged.bytes[d2h]) continue;
        slowest = rate(gpu, true, d2h, d->staged.bytes[d2h]);
        link = larger(link, (double)d->staged.bytes[d2h] / slowest);
    }
    double cpu = larger(all / d->staged.streams, chunk) / stage, a = chunk / stage, b = chunk / slowest;
    return d->now + (larger(link, cpu) + (a < b ? a : b)) / 1e9 * jitter(d->stages);
}

/* Lets a GPU's default stream wait for all others; a stretch of time ends. */
static double settle(int gpu) {
    struct device *d = &sim.devices[gpu];
    d->now = larger(larger(d->link[0], d->link[1]), staged_end(gpu));
    d->link[0] = d->link[1] = d->now;
    d->stages += d->staged.streams > 0;
    d->stretch++;
    memset(&d->staged, 0, sizeof d->staged);
    return d->now;
}

/* Notes that the host waited for a stream's work up to `order`, and so for what the default stream
 * did before; without a stream, for all of the GPU's. */
static void waited(int gpu, cudaStream_t stream, unsigned long order) {
    move_pending(gpu, stream, order);
    for (struct CUevent_st *e = sim.events; e; e = e->next)
        if (e->device == gpu && e->order <= order && (!stream || !e->stream || e->stream == stream)) e->complete = true;
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t error = enter("cudaDeviceSynchronize", current);
    settle(current);
    waited(current, NULL, sim.order);
    note("SIM_ORDER", "gpu %d sync\n", current);
    return leave(error);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    cudaError_t error = enter("cudaStreamCreate", current);
    if (error == cudaSuccess && !(*stream = calloc(1, sizeof **stream))) error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        (*stream)->device = current;
        sim.streams++;
    }
    return leave(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = enter("cudaStreamDestroy", current);
    if (!stream) return leave(cudaErrorInvalidResourceHandle);
    move_pending(stream->device, stream, sim.order);
    free(stream);
    sim.streams--;
    return leave(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    int gpu = stream ? stream->device : current;
    cudaError_t error = enter("cudaStreamSynchronize", gpu);
    if (!stream) settle(gpu);
    if (error == cudaSuccess) waited(gpu, stream, stream ? stream->last : sim.order);
    note("SIM_ORDER", "gpu %d sync\n", gpu);
    return leave(error);
}

/* Makes an event, for both of the calls that do. */
static cudaError_t new_event(const char *call, cudaEvent_t *event, unsigned flags) {
    cudaError_t error = enter(call, current);
    if (error == cudaSuccess && !(*event = calloc(1, sizeof **event))) error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        **event =
            (struct CUevent_st){.device = current, .timed = !(flags & cudaEventDisableTiming), .next = sim.events};
        sim.events = *event;
    }
    return leave(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return new_event("cudaEventCreate", event, 0); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return new_event("cudaEventCreateWithFlags", event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = enter("cudaEventDestroy", current);
    struct CUevent_st **e = &sim.events;
    while (*e && *e != event) e = &(*e)->next;
    if (!*e) return leave(cudaErrorInvalidResourceHandle);
    *e = event->next;
    free(event);
    return leave(error);
}

/* The default stream is the legacy one: it waits for all others, and they for it. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int gpu = stream ? stream->device : current;
    cudaError_t error = enter("cudaEventRecord", gpu);
    if (error == cudaSuccess && event->device != gpu) error = cudaErrorInvalidResourceHandle;
    if (error != cudaSuccess) return leave(error);
    event->at = stream ? larger(stream->busy, staged_end(gpu)) : settle(gpu);
    event->stream = stream;
    event->order = ++sim.order;
    event->complete = false;
    if (stream) stream->last = event->order;
    else {
        sim.devices[gpu].recorder = &current;
        sim.devices[gpu].gate = event->order;
    }
    note("SIM_ORDER", "gpu %d record\n", gpu);
    return leave(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = enter("cudaEventSynchronize", event->device);
    if (error == cudaSuccess && event->order) waited(event->device, event->stream, event->order);
    note("SIM_ORDER", "gpu %d sync\n", event->device);
    return leave(error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = enter("cudaEventElapsedTime", start->device);
    if (error == cudaSuccess &&
        (!start->order || !end->order || !start->timed || !end->timed || start->device != end->device))
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && !(start->complete && end->complete)) error = cudaErrorNotReady;
    bool stalled = ++sim.elapsed == setting("SIM_STALL", 0);
    if (error == cudaSuccess) *ms = stalled ? 0 : (float)((end->at - start->at) * 1e3);
    return leave(error);
}

/* Returns the bytes of the pages in a range that nothing has touched yet. */
static size_t absent_bytes(const void *from, size_t bytes) {
    unsigned char present[4096];
    size_t absent = 0;
    uintptr_t at = (uintptr_t)from / PAGE * PAGE, end = (uintptr_t)from + bytes;
    for (size_t pages; at < end; at += pages * PAGE) {
        pages = (end - at + PAGE - 1) / PAGE;
        if (pages > sizeof present) pages = sizeof present;
        if (mincore((void *)at, pages * PAGE, present) != 0) continue;
        for (size_t i = 0; i < pages; i++) absent += present[i] & 1 ? 0 : PAGE;
    }
    return absent;
}

/* Returns whether `*at` begins with `word`, and steps over it and a dot. */
static bool take(const char **at, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0) return false;
    *at += n + ((*at)[n] == '.');
    return true;
}

/* Returns whether the first half of a rule of SIM_COPY, before its colon, means the copy that was
 * counted last. */
static bool selects(const char *rule, int gpu, bool is_pinned, bool d2h) {
    int only[3] = {-1, -1, -1}; /* GPU, pinned, D2H */
    unsigned long first = 1, last = ULONG_MAX, number = 0;
    char *end;
    for (bool more = true; more;) {
        if ((more = take(&rule, "gpu"))) only[0] = (int)strtol(rule, &end, 10), rule = end + (*end == '.');
        else if ((more = take(&rule, "pageable"))) only[1] = 0;
        else if ((more = take(&rule, "pinned"))) only[1] = 1;
        else if ((more = take(&rule, "h2d"))) only[2] = 0;
        else if ((more = take(&rule, "d2h"))) only[2] = 1;
    }
    if (*rule == '#') rule++;
    if (*rule != ':') {
        first = last = strtoul(rule, &end, 10);
        if (*end == '-') last = end[1] == ':' ? ULONG_MAX : strtoul(end + 1, &end, 10);
        if (last == ULONG_MAX) end++;
        if (first == 0 || *end != ':') misread("SIM_COPY");
    }
    for (int i = 0; i < MAX_DEVICES * 4; i++)
        if ((only[0] < 0 || only[0] == i / 4) && (only[1] < 0 || only[1] == i / 2 % 2) &&
            (only[2] < 0 || only[2] == i % 2))
            number += sim.devices[i / 4].copies[i / 2 % 2][i % 2];
    return (only[0] < 0 || only[0] == gpu) && (only[1] < 0 || only[1] == is_pinned) &&
           (only[2] < 0 || only[2] == d2h) && number >= first && number <= last;
}

/* Returns what SIM_COPY and SIM_CORRUPT make of the copy that was counted last. */
static struct fault fault_of(int gpu, bool is_pinned, bool d2h, size_t bytes) {
    struct fault f = {.moved = bytes, .flip = SIZE_MAX};
    unsigned long number = 0;
    for (int i = 0; i < MAX_DEVICES * 4; i++) number += sim.devices[i / 4].copies[i / 2 % 2][i % 2];
    if (number == setting("SIM_CORRUPT", 0)) f.flip = bytes - 1;
    bool done = false;
    for (const char *rule = getenv("SIM_COPY"), *what; rule && *rule; rule += *rule == ';') {
        if (!(what = strchr(rule, ':'))) misread("SIM_COPY");
        bool meant = selects(rule, gpu, is_pinned, d2h) && !done;
        struct fault g = f;
        rule = what + 1;
        if (take(&rule, "none")) g.moved = 0;
        else if (take(&rule, "half")) g.moved = bytes / 2;
        else if (take(&rule, "short")) g.moved = bytes - (bytes > 0);
        else if (take(&rule, "shift")) g.shift = bytes < PAGE ? bytes : PAGE;
        else if (take(&rule, "swap")) g.swap = true;
        else if (take(&rule, "flip@")) g.flip = strtoull(rule, (char **)&rule, 10);
        else misread("SIM_COPY");
        if (*rule && *rule != ';') misread("SIM_COPY");
        if (meant) f = g;
        done |= meant;
    }
    return f;
}

/* Returns whether this thread copies through a staging buffer if it uses this block: a small pinned
 * one, used by another thread than the one that takes the time. */
static bool is_staging(const struct block *b, const struct device *d) {
    return b && b->kind > ON_DEVICE && b->bytes <= STAGING && d->recorder && d->recorder != &current;
}

/* Holds a thread that begins a second round of a staged copy until every staging buffer of that GPU
 * has been used once, for 20 ms at most: how this machine schedules threads must not decide how many
 * take part. */
static void take_turns(int gpu, const void *host) {
    bool wait = true;
    for (int tries = 100; wait && tries >= 0; tries--) {
        pthread_mutex_lock(&sim.lock);
        const struct device *d = &sim.devices[gpu];
        const struct block *own = block_of(host, 1);
        wait = false;
        for (struct block *b = sim.blocks;
             is_staging(own, d) && own->stretch == d->stretch && b < sim.blocks + MAX_BLOCKS; b++)
            if (is_staging(b, d) && b->device == gpu && b->stretch != d->stretch && !b->idle) {
                wait = true;
                b->idle = tries == 0;
            }
        pthread_mutex_unlock(&sim.lock);
        if (wait) usleep(200);
    }
}

/* Lets time pass for a copy. Copies of pageable memory hold up the host, so they never overlap. */
static void pass(int gpu, struct block *host, bool d2h, size_t bytes, double extra, cudaStream_t stream) {
    struct device *d = &sim.devices[gpu];
    unsigned long n = d->copies[0][0] + d->copies[0][1] + d->copies[1][0] + d->copies[1][1];
    double seconds = (double)bytes / 1e9 / rate(gpu, host, d2h, bytes) * jitter(n) + extra;
    if (stream) stream->last = ++sim.order;
    if (!stream) {
        settle(gpu);
        d->now += seconds;
    } else if (!host) {
        d->now = larger(d->now, stream->busy) + seconds;
    } else if (is_staging(host, d)) {
        d->staged.streams += stream->stretch != d->stretch;
        stream->stretch = host->stretch = d->stretch;
        host->idle = false;
        d->staged.bytes[d2h] += bytes;
        if (bytes > d->staged.chunk) d->staged.chunk = bytes;
    } else {
        stream->busy = d->link[d2h] = larger(larger(d->now, stream->busy), d->link[d2h]) + seconds;
    }
}

/* One copy on a stream, or (NULL) on the default stream. */
static cudaError_t copy(const char *call, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream) {
    bool d2h = kind == cudaMemcpyDeviceToHost;
    int gpu = stream ? stream->device : current;
    if (stream) take_turns(gpu, d2h ? to : from);
    cudaError_t error = enter(call, gpu);
    struct block *device = block_of(d2h ? from : to, bytes), *host = block_of(d2h ? to : from, bytes);
    const char *way = d2h ? "d2h" : "h2d", *memory = host ? "pinned" : "pageable";
    if (error == cudaSuccess && (!device || device->kind != ON_DEVICE || (host && host->kind == ON_DEVICE)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        double touch = real_setting("SIM_TOUCH", 0);
        double extra = d2h && !host && touch > 0 ? (double)absent_bytes(to, bytes) / 1e9 / touch : 0;
        note("SIM_ORDER", "gpu %d copy-begin %s %s %zu\n", gpu, way, memory, bytes);
        if (!d2h && bytes >= PAGE && getenv("SIM_SOURCES"))
            note("SIM_SOURCES", "%s %zu absent=%zu\n", memory, bytes, absent_bytes(from, bytes) / PAGE);
        sim.devices[gpu].copies[host != NULL][d2h]++;
        struct pending now = {.to = to, .from = from, .bytes = bytes, .d2h = d2h, .gpu = gpu, .stream = stream},
                       *later = stream && host ? malloc(sizeof *later) : NULL;
        now.fault = fault_of(gpu, host, d2h, bytes);
        pass(gpu, host, d2h, bytes, extra, stream);
        now.order = sim.order;
        if (!stream) move_pending(gpu, NULL, sim.order);
        if (later) {
            *later = now;
            *(sim.end ? sim.end : &sim.pending) = later;
            sim.end = &later->next;
        } else {
            move(&now);
        }
        if (strcmp(call, "cudaMemcpy") == 0) waited(gpu, NULL, sim.order);
    }
    leave(error);
    linger("SIM_DELAY", gpu);
    if (error == cudaSuccess) note("SIM_ORDER", "gpu %d copy-end %s %s %zu\n", gpu, way, memory, bytes);
    return error;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy("cudaMemcpy", to, from, bytes, kind, NULL);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy("cudaMemcpyAsync", to, from, bytes, kind, stream);
}

/* What is no copy to be measured begins here: like enter(), and lets a little time pass, in the
 * default stream. */
static cudaError_t enter_check(const char *call, const void *device, size_t pitch, size_t width, size_t height) {
    cudaError_t error = enter(call, current);
    size_t bytes = height ? pitch * (height - 1) + width : 0;
    struct block *block = block_of(device, bytes);
    if (error == cudaSuccess && (!block || block->kind != ON_DEVICE || width > pitch)) error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        sim.devices[current].now = settle(current) + 10e-6;
        move_pending(current, NULL, sim.order);
    }
    return error;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    cudaError_t error = enter_check("cudaMemset", at, bytes, bytes, 1);
    if (error == cudaSuccess) {
        note("SIM_ORDER", "gpu %d spoil\n", current);
        put(at, NULL, value, bytes, at);
    }
    return leave(error);
}

cudaError_t cudaMemset2D(void *at, size_t pitch, int value, size_t width, size_t height) {
    cudaError_t error = enter_check("cudaMemset2D", at, pitch, width, height);
    if (error == cudaSuccess) {
        note("SIM_ORDER", "gpu %d spoil\n", current);
        for (size_t i = 0; i < height; i++) memset((char *)at + i * pitch, value, width);
    }
    return leave(error);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind) {
    bool d2h = kind == cudaMemcpyDeviceToHost;
    cudaError_t error = enter_check("cudaMemcpy2D", d2h ? from : to, d2h ? from_pitch : to_pitch, width, height);
    if (error == cudaSuccess && width > (d2h ? to_pitch : from_pitch)) error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        note("SIM_ORDER", "gpu %d %s\n", current, d2h ? "check" : "put");
        for (size_t i = 0; i < height; i++)
            memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
        waited(current, NULL, sim.order);
    }
    return leave(error);
}
