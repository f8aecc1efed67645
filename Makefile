# dma_bandwidth: build, test, install. "make help" lists the targets and these settings:
#
#   CC= CFLAGS= CPPFLAGS= LDFLAGS=  as everywhere; a change builds again
#   CUDA_HOME=DIR        the CUDA toolkit to use; without it, CUDA_PATH, .cuda/, nvcc and the usual folders
#   CUDART=shared        link the shared CUDA runtime, not the static one
#   RPATH=DIR            where that is looked for at run time (default: its folder now; empty: no RUNPATH)
#   CUDA=12              the series that "make toolkit" fetches (default: what the driver can run)
#   ARGS='-x -d all'     options for "make run"
#   JOBS=N               tests at a time (default: 4, on one CPU 2; they wait a lot)
#   PREFIX=DIR DESTDIR=DIR bindir=DIR mandir=DIR  for install and uninstall
#   BUILD=DIR PROGRAM=FILE  where to build; no blanks in these two
#
# What is set with := is taken from the command line, never from the environment.

CFLAGS  ?= -O2 -g -Wall -Wextra
PREFIX  ?= /usr/local
PYTHON  ?= python3
bindir  := $(PREFIX)/bin
mandir  := $(PREFIX)/share/man
CUDART  := static
RPATH   := toolkit
CUDA    :=
BUILD   := build
PROGRAM := dma_bandwidth
JOBS     = $(shell [ "$$(nproc 2>/dev/null)" = 1 ] && echo 2 || echo 4)

# Folders that may hold a toolkit, and files that only a machine with an NVIDIA device has.
CUDA_FOLDERS ?= /usr/local/cuda /opt/cuda /usr/lib/cuda /usr/local/cuda-*
DEVICES      := /dev/nvidiactl /dev/dxg /dev/nvhost-ctrl

# Recipes and scripts take these from the environment, where blanks and quotes in them do no harm.
export CC CFLAGS CPPFLAGS LDFLAGS CUDA_HOME CUDA_PATH CUDA_FOLDERS CUDART RPATH CUDA FETCH PYTHON
export DESTDIR bindir mandir

.PHONY: all sim run check check-gpu bench mutants toolkit install uninstall clean help print-include always

all: $(PROGRAM) ## build ./dma_bandwidth (the default); never downloads

# run and check fetch a toolkit where there is none. What run prints begins with what the program says.
FETCH :=
QUIET :=
run check: FETCH := yes
run: QUIET := @

# The compiler and its flags, the toolkit's place and checksums. The script writes this file only when something in
# it changed, and with it two files of options for the compiler: headers and runtime.
$(BUILD)/flags: always
	@sh tests/find-cuda.sh $(BUILD)

COMPILE = $(QUIET)$(CC) -std=gnu11 $(CFLAGS) $(CPPFLAGS) @$(BUILD)/headers -o $@
SYSTEM  = -pthread -ldl -lrt -lm

$(PROGRAM): dma_bandwidth.c $(BUILD)/flags Makefile
	@mkdir -p $(@D)
	$(COMPILE) dma_bandwidth.c $(LDFLAGS) @$(BUILD)/runtime $(SYSTEM)

SIMULATED = $(BUILD)/dma_bandwidth_sim
LIBRARIES = $(BUILD)/sim/libnvidia-ml.so.1 $(BUILD)/sim/fail_libc.so

sim: $(SIMULATED) $(LIBRARIES) ## build build/dma_bandwidth_sim, on a simulated GPU

$(SIMULATED): dma_bandwidth.c tests/sim_cudart.c $(BUILD)/flags Makefile
	$(COMPILE) dma_bandwidth.c tests/sim_cudart.c $(LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/sim' $(SYSTEM)

$(BUILD)/sim/libnvidia-ml.so.1: tests/sim_nvml.c
$(BUILD)/sim/fail_libc.so: tests/fail_libc.c
$(LIBRARIES): $(BUILD)/flags Makefile
	@mkdir -p $(@D)
	$(COMPILE) -shared -fPIC $(filter %.c,$^) $(LDFLAGS) -ldl

# A path with a slash in it, so that the shell does not look on PATH.
BUILT   = $(dir $(PROGRAM))$(notdir $(PROGRAM))
DEVICE := $(wildcard $(DEVICES))

run: all $(if $(DEVICE),,sim) ## build and measure; with no NVIDIA device at all, show a simulated table
	@sh tests/run.sh $(BUILT) '$(if $(DEVICE),,$(SIMULATED))' $(ARGS)

# A test that hangs is killed after 20 minutes, with all that it started. The longest begin first.
TEST  = timeout -s KILL 1200 sh
LONG  = tests/table.t tests/valgrind.t tests/make.t tests/explain.t
TESTS = $(LONG) $(filter-out $(LONG),$(sort $(wildcard tests/*.t)))

check: all sim ## run the tests (they need no GPU)
	@command -v prove >/dev/null || { echo 'check: the tests need prove: apt-get install perl' >&2; exit 1; }
	SIM="$$(readlink -f $(SIMULATED))" prove -j$(JOBS) --exec '$(TEST)' $(TESTS)

check-gpu: all ## run the checks that need a GPU
	prove --verbose --exec '$(TEST)' tests/gpu.sh

bench: all $(BUILD)/bare ## measure the program itself on a GPU machine
	BARE=$(BUILD)/bare sh tests/bench.sh

$(BUILD)/bare: tests/bare.c $(BUILD)/flags
	$(COMPILE) tests/bare.c $(LDFLAGS) @$(BUILD)/runtime $(SYSTEM)

mutants: all sim ## put small faults into the source, count those that no test notices
	python3 tests/mutate.py

toolkit: ## fetch CUDA's runtime and headers from PyPI into .cuda/ (a few MB)
	@sh tests/toolkit.sh $(CUDA)

# What is built is installed as it is, without a toolkit, unless the source is newer or this command line says how
# to build.
ASKED      := $(strip $(foreach v,CC CFLAGS CPPFLAGS LDFLAGS CUDA_HOME CUDART RPATH,$(filter command,$(origin $v))))
UP_TO_DATE := $(if $(ASKED),,$(shell find $(PROGRAM) -newer dma_bandwidth.c 2>/dev/null))

install: $(if $(UP_TO_DATE),,all) ## install program and man page under PREFIX (default /usr/local)
	install -d "$$DESTDIR$$bindir"
	install -m 755 $(PROGRAM) "$$DESTDIR$$bindir/dma_bandwidth"
	@sh tests/man.sh $(BUILT) "$$DESTDIR$$mandir/man1"

uninstall: ## remove what install put there
	rm -f "$$DESTDIR$$bindir/dma_bandwidth" "$$DESTDIR$$mandir/man1/dma_bandwidth.1"

clean: ## remove what was built (not .cuda/)
	rm -rf build
	rm -f $(PROGRAM)

# For .ci/run: where the headers are.
print-include:
	@sh tests/find-cuda.sh

help: ## list targets and settings
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14
	@sed -n 's/^#   /  /p' Makefile
