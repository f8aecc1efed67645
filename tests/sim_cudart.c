/*
 * A simulated CUDA runtime, for tests and for looking at the program where there is no GPU.
 *
 * It implements the runtime calls that dma_bandwidth makes, on host memory and a virtual clock: a
 * copy advances the clock by bytes / rate, events read it. What it promises is a device's manners:
 * memory is allocated, bounded, freed; copies move bytes; errors stick as CUDA's do. A copy of more
 * than 1 MiB moves only the first and the last 64 bytes of every 4 KiB, or runs of gigabytes would
 * take minutes. The environment variables that steer it stand at their use; README.md lists them.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
enum { MAX_DEVICES = 16, MAX_BLOCKS = 4096, MAX_STREAMS = 64 };

struct CUstream_st {
    double busy; /* seconds: when its last work ends */
    int device;
};

struct CUevent_st {
    double at;
};

static struct {
    pthread_mutex_t lock;
    unsigned long calls, named_calls, copies, elapsed; /* how many so far */
    size_t pinned;                                     /* bytes */
    struct device {
        double now; /* seconds */
        size_t used;
        cudaError_t sticky;
    } devices[MAX_DEVICES];
    struct block {
        unsigned char *at;
        size_t bytes;
        enum { FREE, ON_DEVICE, ALLOCATED, REGISTERED } kind;
        int device;
    } blocks[MAX_BLOCKS];
    struct CUstream_st *streams[MAX_STREAMS];
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread int current;
static __thread cudaError_t last_error;

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
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

/* Returns a number from the environment, or `otherwise`. */
static unsigned long long setting(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* SIM_CALLS=file: written at the end. */
static void write_calls(void) {
    FILE *file = fopen(getenv("SIM_CALLS"), "w");
    if (file) {
        fprintf(file, "%lu\n", sim.calls);
        fclose(file);
    }
}

/* Keeps an error as the thread's last one, and as the context's if it is of the kind that sticks. */
static cudaError_t failed(cudaError_t error) {
    if (error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure || error == cudaErrorECCUncorrectable)
        sim.devices[current].sticky = error;
    if (error != cudaSuccess) last_error = error;
    return error;
}

/* Returns whether SIM_FAIL=N, name:N or name:N:error wants this call to fail, and with what. */
static cudaError_t injected(const char *call) {
    const char *wish = getenv("SIM_FAIL"), *colon = wish ? strchr(wish, ':') : NULL;
    if (!wish) return cudaSuccess;
    if (!colon) {
        if (sim.calls != strtoul(wish, NULL, 10)) return cudaSuccess;
    } else {
        if (strlen(call) != (size_t)(colon - wish) || strncmp(call, wish, strlen(call)) != 0 ||
            ++sim.named_calls != strtoul(colon + 1, NULL, 10))
            return cudaSuccess;
        for (size_t i = 0; strchr(colon + 1, ':') && i < COUNT(errors); i++)
            if (strcmp(strchr(colon + 1, ':') + 1, errors[i].name) == 0) return errors[i].error;
    }
    return strstr(call, "alloc") || strstr(call, "Alloc") ? cudaErrorMemoryAllocation
           : strstr(call, "Memcpy")                       ? cudaErrorIllegalAddress
                                                          : cudaErrorUnknown;
}

/* Every call begins here, locked until leave(): counts it, and returns the error that it ends with
 * at once. */
static cudaError_t enter(const char *call) {
    pthread_mutex_lock(&sim.lock);
    if (sim.calls++ == 0 && getenv("SIM_CALLS")) atexit(write_calls);
    cudaError_t error = injected(call);
    return error != cudaSuccess ? error : sim.devices[current].sticky;
}

static cudaError_t leave(cudaError_t error) {
    failed(error);
    pthread_mutex_unlock(&sim.lock);
    return error;
}

/* SIM_GPUS: how many. */
static int device_count(void) {
    int n = (int)setting("SIM_GPUS", 1);
    return n > MAX_DEVICES ? MAX_DEVICES : n;
}

enum { LARGE = 2 << 20 };

/* Returns memory for a device or for pinning, or NULL. Large blocks are mapped, so that they can be
 * larger than this machine's memory and fast where huge pages are to be had. */
static void *get_memory(size_t bytes) {
    if (bytes < LARGE) return malloc(bytes);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static void free_memory(void *at, size_t bytes) {
    if (bytes < LARGE) free(at);
    else munmap(at, bytes);
}

/* Returns the block that holds all of [at, at + bytes), or NULL. */
static struct block *block_of(const void *at, size_t bytes) {
    for (struct block *b = sim.blocks; b < sim.blocks + MAX_BLOCKS; b++)
        if (b->kind != FREE && (const unsigned char *)at >= b->at &&
            (const unsigned char *)at + bytes <= b->at + b->bytes)
            return b;
    return NULL;
}

static struct block *new_block(void *at, size_t bytes, int kind) {
    struct block *b = sim.blocks;
    while (b->kind != FREE) b++; /* MAX_BLOCKS is far more than the program has at once */
    *b = (struct block){.at = at, .bytes = bytes, .kind = kind, .device = current};
    return b;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* SIM_DRIVER: 0 is no driver. */
cudaError_t cudaDriverGetVersion(int *version) {
    *version = (int)setting("SIM_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t error = enter("cudaGetDeviceCount");
    *count = device_count();
    if (error == cudaSuccess && setting("SIM_DRIVER", CUDART_VERSION) < CUDART_VERSION / 1000 * 1000)
        error = cudaErrorInsufficientDriver;
    if (error == cudaSuccess && *count == 0) error = cudaErrorNoDevice;
    return leave(error);
}

/* SIM_NAME, SIM_MEM (bytes). */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    cudaError_t error = enter("cudaGetDeviceProperties");
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s (simulated)",
             getenv("SIM_NAME") ? getenv("SIM_NAME") : "NVIDIA H100 80GB HBM3");
    p->totalGlobalMem = setting("SIM_MEM", (unsigned long long)80 << 30);
    p->pciBusID = 0x18 + 0x10 * device;
    for (int i = 0; i < 16; i++) p->uuid.bytes[i] = (char)(i * 17 + device);
    return leave(error);
}

/* SIM_INTEGRATED=1, SIM_C2C=1: the kind of GPU. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    cudaError_t error = enter("cudaDeviceGetAttribute");
    (void)device;
    *value = attribute == cudaDevAttrIntegrated                               ? (int)setting("SIM_INTEGRATED", 0)
             : attribute == cudaDevAttrPageableMemoryAccessUsesHostPageTables ? (int)setting("SIM_C2C", 0)
                                                                              : 0;
    return leave(error);
}

cudaError_t cudaSetDevice(int device) {
    cudaError_t error = enter("cudaSetDevice");
    if (error == cudaSuccess && device >= device_count()) error = cudaErrorInvalidDevice;
    if (error == cudaSuccess) current = device;
    return leave(error);
}

cudaError_t cudaDeviceSynchronize(void) { return leave(enter("cudaDeviceSynchronize")); }

cudaError_t cudaGetLastError(void) {
    cudaError_t error = sim.devices[current].sticky ? sim.devices[current].sticky : last_error;
    last_error = cudaSuccess;
    return error;
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

cudaError_t cudaMalloc(void **at, size_t bytes) {
    cudaError_t error = enter("cudaMalloc");
    struct device *device = &sim.devices[current];
    if (error == cudaSuccess && bytes > setting("SIM_MEM", (unsigned long long)80 << 30) - device->used)
        error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess && !(*at = get_memory(bytes))) error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        device->used += bytes;
        new_block(*at, bytes, ON_DEVICE);
    }
    return leave(error);
}

/* Pins `bytes` at `*at`, or allocates them first. SIM_PIN_LIMIT: bytes that can be pinned in all. */
static cudaError_t pin(void **at, size_t bytes, int kind) {
    if (bytes + sim.pinned > setting("SIM_PIN_LIMIT", UINT64_MAX)) return cudaErrorMemoryAllocation;
    if (kind == REGISTERED && block_of(*at, 1)) return cudaErrorHostMemoryAlreadyRegistered;
    if (kind == ALLOCATED && !(*at = get_memory(bytes))) return cudaErrorMemoryAllocation;
    sim.pinned += bytes;
    new_block(*at, bytes, kind);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **at, size_t bytes) {
    cudaError_t error = enter("cudaMallocHost");
    return leave(error != cudaSuccess ? error : pin(at, bytes, ALLOCATED));
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    cudaError_t error = enter("cudaHostAlloc");
    (void)flags;
    return leave(error != cudaSuccess ? error : pin(at, bytes, ALLOCATED));
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    cudaError_t error = enter("cudaHostRegister");
    (void)flags;
    return leave(error != cudaSuccess ? error : pin(&at, bytes, REGISTERED));
}

/* Takes a block of one kind off the books. Memory is given back even where an error sticks, as a
 * process that ends gives it back. */
static cudaError_t release(const char *call, void *at, int kind) {
    cudaError_t error = enter(call);
    struct block *b = block_of(at, 0);
    if (!b || b->at != at || (int)b->kind != kind) return leave(cudaErrorInvalidValue);
    if (kind == ON_DEVICE) sim.devices[b->device].used -= b->bytes;
    else sim.pinned -= b->bytes;
    b->kind = FREE;
    if (kind != REGISTERED) free_memory(at, b->bytes);
    return leave(error);
}

cudaError_t cudaFree(void *at) { return release("cudaFree", at, ON_DEVICE); }
cudaError_t cudaFreeHost(void *at) { return release("cudaFreeHost", at, ALLOCATED); }
cudaError_t cudaHostUnregister(void *at) { return release("cudaHostUnregister", at, REGISTERED); }

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    cudaError_t error = enter("cudaStreamCreate");
    int i = 0;
    while (error == cudaSuccess && sim.streams[i]) i++;
    if (error == cudaSuccess && !(*stream = calloc(1, sizeof **stream))) error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        (*stream)->device = current;
        sim.streams[i] = *stream;
    }
    return leave(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = enter("cudaStreamDestroy");
    for (int i = 0; i < MAX_STREAMS; i++)
        if (sim.streams[i] == stream) sim.streams[i] = NULL;
    free(stream);
    return leave(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    cudaError_t error = enter("cudaEventCreate");
    if (error == cudaSuccess && !(*event = calloc(1, sizeof **event))) error = cudaErrorMemoryAllocation;
    return leave(error);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = enter("cudaEventDestroy");
    free(event);
    return leave(error);
}

/* The program records in the legacy default stream only, which waits for all others. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t error = enter("cudaEventRecord");
    double *now = &sim.devices[current].now;
    for (int i = 0; i < MAX_STREAMS; i++)
        if (sim.streams[i] && sim.streams[i]->device == current && sim.streams[i]->busy > *now)
            *now = sim.streams[i]->busy;
    if (error == cudaSuccess && stream) error = cudaErrorInvalidValue;
    if (error == cudaSuccess) event->at = *now;
    return leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return leave(enter("cudaEventSynchronize"));
}

/* SIM_STALL=N: the Nth elapsed time reads 0. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = enter("cudaEventElapsedTime");
    *ms = ++sim.elapsed == setting("SIM_STALL", 0) ? 0 : (float)((end->at - start->at) * 1e3);
    return leave(error);
}

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

/* Returns GB/s. SIM_RATES=pageable.h2d=20.3,pinned.d2h@536870912=46.75,... */
static double rate(int is_pinned, int is_d2h, size_t bytes) {
    char any[32], exact[64];
    const char *wish = getenv("SIM_RATES");
    double found = 0;
    snprintf(any, sizeof any, "%s.%s=", is_pinned ? "pinned" : "pageable", is_d2h ? "d2h" : "h2d");
    snprintf(exact, sizeof exact, "%.*s@%zu=", (int)strlen(any) - 1, any, bytes);
    if (wish && strstr(wish, any)) found = strtod(strstr(wish, any) + strlen(any), NULL);
    if (wish && strstr(wish, exact)) found = strtod(strstr(wish, exact) + strlen(exact), NULL);
    size_t i = 0;
    while (i + 1 < COUNT(h100) && h100[i].bytes < bytes) i++;
    return found > 0 ? found : is_pinned ? h100[i].pinned[is_d2h] : h100[i].pageable[is_d2h];
}

/* Moves the bytes. SIM_CORRUPT=N: the Nth copy flips a bit of its last byte. */
static void move(unsigned char *to, const unsigned char *from, size_t bytes) {
    size_t line = 64, page = 4096;
    if (bytes <= (size_t)1 << 20) page = line = bytes ? bytes : 1;
    for (size_t at = 0; at < bytes; at += page) {
        size_t here = bytes - at < page ? bytes - at : page;
        memcpy(to + at, from + at, here < line ? here : line);
        if (here > line) memcpy(to + at + here - line, from + at + here - line, line);
    }
    if (++sim.copies == setting("SIM_CORRUPT", 0) && bytes) to[bytes - 1] ^= 1;
}

/* One copy on a stream, or (NULL) on the legacy default stream. Copies of pageable memory hold up
 * the host, so they never overlap. SIM_JITTER=0.1: relative spread, in a fixed sequence. */
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    static const double spread[] = {1, -1, 0.5, -0.5, 0};
    int d2h = kind == cudaMemcpyDeviceToHost;
    struct block *device = block_of(d2h ? from : to, bytes), *host = block_of(d2h ? to : from, bytes);
    if (!device || device->kind != ON_DEVICE || (host && host->kind == ON_DEVICE)) return cudaErrorInvalidValue;
    move(to, from, bytes);
    double jitter = getenv("SIM_JITTER") ? strtod(getenv("SIM_JITTER"), NULL) : 0;
    double seconds = (double)bytes / 1e9 / rate(host != NULL, d2h, bytes) / (1 + jitter * spread[sim.copies % 5]);
    double *now = &sim.devices[current].now;
    if (stream && host) {
        stream->busy = (stream->busy > *now ? stream->busy : *now) + seconds;
        return cudaSuccess;
    }
    if (stream && stream->busy > *now) *now = stream->busy;
    *now += seconds;
    return cudaSuccess;
}

/* SIM_DELAY=ms: each copy takes so long in real time too, for tests that must act while one runs. */
static cudaError_t linger(cudaError_t error) {
    usleep((useconds_t)setting("SIM_DELAY", 0) * 1000);
    return error;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t error = enter("cudaMemcpy");
    return linger(leave(error != cudaSuccess ? error : copy(to, from, bytes, kind, NULL)));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    cudaError_t error = enter("cudaMemcpyAsync");
    return linger(leave(error != cudaSuccess ? error : copy(to, from, bytes, kind, stream)));
}
