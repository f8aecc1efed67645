/*
 * A libFuzzer target on the parsers of the command line: sizes, devices, counts, percentages.
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I$CUDA_HOME/include tests/fuzz_options.c \
 *     tests/sim_cudart.c -o build/fuzz_options -lm && build/fuzz_options -max_total_time=300
 */
#define main program_main
#include "../dma_bandwidth.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct options opt = {0};
    char why[WHY], value[4096];
    if (size == 0 || size >= sizeof value) return 0;
    memcpy(value, data + 1, size - 1);
    value[size - 1] = 0;
    switch (data[0] % 5) {
    case 0:
        if (set_sizes(&opt, value, why) && (opt.nsizes < 1 || opt.nsizes > MAX_SIZES)) abort();
        for (int i = 0; i < opt.nsizes; i++)
            if (opt.sizes[i] < 1 || opt.sizes[i] > (size_t)1 << 50) abort();
        break;
    case 1:
        if (set_devices(&opt, value, why))
            for (int i = 0; i < opt.ndevices; i++)
                if (opt.devices[i] < 0 || opt.devices[i] >= MAX_GPUS) abort();
        break;
    case 2:
        if (set_iters(&opt, value, why) && (opt.iters < 1 || opt.iters > MAX_COPIES)) abort();
        break;
    case 3:
        if (set_minimum(&opt, value, why) && !(opt.min_efficiency > 0 && opt.min_efficiency <= 100)) abort();
        break;
    default: {
        char label[32];
        size_t bytes;
        if (read_size(value, &bytes, why) && strlen(size_label(bytes, label)) >= sizeof label) abort();
    }
    }
    free(opt.sizes);
    return 0;
}
