/*
 * A libFuzzer target on the parsers of the command line: the setter of every option, and the labels of sizes.
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I$CUDA_HOME/include tests/fuzz_options.c tests/sim_cudart.c \
 *     -o build/fuzz_options -lm && build/fuzz_options -max_total_time=300
 */
#define main program_main
#include "../dma_bandwidth.c"
#undef main

/* Ends the process unless what options hold is within its bounds. */
static void check_options(const struct options *opt) {
    bool good = opt->nsizes >= 0 && opt->nsizes <= MAX_SIZES && opt->ndevices >= 0 && opt->ndevices <= MAX_GPUS;
    for (int i = 0; i < opt->nsizes; i++) good &= opt->sizes[i] >= 1 && opt->sizes[i] <= (size_t)1 << 50;
    for (int i = 0; i < opt->ndevices; i++) good &= opt->devices[i] >= 0 && opt->devices[i] < MAX_GPUS;
    good &= opt->iters >= 1 && opt->iters <= MAX_COPIES && opt->warmup >= 0 && opt->warmup <= MAX_COPIES;
    good &= opt->threads >= 0 && opt->threads <= MAX_THREADS && opt->noutputs >= 0 && opt->noutputs <= MAX_OUTPUTS;
    good &= isnan(opt->min_efficiency) || (opt->min_efficiency > 0 && opt->min_efficiency <= 100);
    good &= opt->pin && opt->format;
    if (!good) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct options *opt = calloc(1, sizeof *opt);
    char value[4096], label[32];
    if (!opt) return 0;
    *opt = (struct options){.iters = 1, .min_efficiency = NAN, .pin = pin_methods, .format = writers};
    if (size > 0 && size < sizeof value) {
        memcpy(value, data + 1, size - 1);
        value[size - 1] = 0;
        const struct option_row *row = &options_table[data[0] % COUNT(options_table)];
        size_t given = strlen(value), bytes, again;
        char why[WHY] = "";
        apply_option(opt, row, value);
        if (strlen(value) != given) abort();
        check_options(opt);
        /* A label of a size, and no other one, reads back as that size. */
        if (read_size(value, &bytes, why) && (!read_size(size_label(bytes, label), &again, why) || again != bytes))
            abort();
    }
    free(opt->sizes);
    free(opt);
    return 0;
}
