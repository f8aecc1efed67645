# dma_bandwidth: build, test, install. "make help" lists the targets.

CC      ?= cc
CFLAGS  ?= -O2 -g -Wall -Wextra
PREFIX  ?= /usr/local
CUDART  ?= static
CUDA    ?= 13
PYTHON  ?= python3
BUILD   ?= build
PROGRAM ?= dma_bandwidth

# Where a CUDA toolkit may be, in this order. CUDA_FOLDERS can be overridden.
CUDA_FOLDERS ?= /usr/local/cuda /opt/cuda /usr/lib/cuda $(sort $(wildcard /usr/local/cuda-*))
NVCC_FOLDER  := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null)))
FOLDERS      := $(or $(CUDA_HOME),$(CUDA_PATH) $(CURDIR)/.cuda $(NVCC_FOLDER) $(CUDA_FOLDERS))

# A toolkit, and inside it the layouts of NVIDIA's installer and of PyPI's packages for 13 and 12.
HEADER   := $(firstword $(foreach f,$(FOLDERS),$(foreach l,include targets/$(shell uname -m)-linux/include \
              nvidia/cu13/include nvidia/cuda_runtime/include,$(wildcard $(f)/$(l)/cuda_runtime_api.h))))
INCLUDE  := $(patsubst %/,%,$(dir $(HEADER)))
LIBS     := $(if $(INCLUDE),$(wildcard $(patsubst %/include,%,$(INCLUDE))/lib64 $(patsubst %/include,%,$(INCLUDE))/lib))
CRT      := $(wildcard $(patsubst %/cuda_runtime/include,%,$(INCLUDE))/cuda_nvcc/include)

# The compiler's own paths (Debian's nvidia-cuda-toolkit) need no folder.
OWN := $(if $(INCLUDE)$(CUDA_HOME),,$(shell $(CC) -E -include cuda_runtime_api.h -x c /dev/null >/dev/null 2>&1 && echo yes))

# Static unless asked otherwise, or unless the toolkit (PyPI's for CUDA 11) has no static library.
STATIC   := $(firstword $(foreach l,$(LIBS),$(wildcard $(l)/libcudart_static.a)))
SHARED   := $(firstword $(foreach l,$(LIBS),$(wildcard $(l)/libcudart.so $(l)/libcudart.so.*)))
ifeq ($(OWN),yes)
RUNTIME  := $(if $(filter shared,$(CUDART)),-lcudart,-lcudart_static)
else ifneq ($(and $(STATIC),$(filter-out shared,$(CUDART))),)
RUNTIME  := $(STATIC)
else
RUNTIME  := $(SHARED) -Wl,-rpath,$(patsubst %/,%,$(dir $(SHARED)))
endif

HEADERS  := $(addprefix -isystem ,$(INCLUDE) $(CRT))
SYSTEM   := -pthread -ldl -lrt -lm
FOUND    := $(or $(INCLUDE),$(OWN))

define NO_CUDA
no CUDA runtime found$(if $(CUDA_HOME), in CUDA_HOME=$(CUDA_HOME)). Ways to get one:
  make toolkit                       fetches the runtime alone from PyPI into .cuda/ (a few MB)
  apt-get install nvidia-cuda-toolkit    on Debian and Ubuntu
  make CUDA_HOME=/path/to/cuda       if there is one that was not found
endef

.PHONY: all run run-found check check-found print-include check-gpu sim bench toolkit install uninstall clean help need-cuda

all: $(PROGRAM) ## build ./dma_bandwidth (the default)

need-cuda:
	@$(if $(FOUND),:,$(error $(NO_CUDA)))

$(PROGRAM): dma_bandwidth.c Makefile | need-cuda
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(CFLAGS) $(CPPFLAGS) $(HEADERS) -o $@ dma_bandwidth.c $(LDFLAGS) $(RUNTIME) $(SYSTEM)

sim: $(BUILD)/dma_bandwidth_sim $(BUILD)/sim/libnvidia-ml.so.1 $(BUILD)/sim/fail_libc.so ## build build/dma_bandwidth_sim, on a simulated GPU

$(BUILD)/dma_bandwidth_sim: dma_bandwidth.c tests/sim_cudart.c Makefile | need-cuda
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(CFLAGS) $(CPPFLAGS) $(HEADERS) -o $@ dma_bandwidth.c tests/sim_cudart.c \
	  $(LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/sim' $(SYSTEM)

$(BUILD)/sim/libnvidia-ml.so.1: tests/sim_nvml.c Makefile
$(BUILD)/sim/fail_libc.so: tests/fail_libc.c Makefile
$(BUILD)/sim/%:
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(CFLAGS) $(CPPFLAGS) -shared -fPIC -o $@ $< $(LDFLAGS) -ldl

# What run and check need where no toolkit is found: fetch one, and start again with it.
WITH_CUDA = $(if $(FOUND),,$(MAKE) --no-print-directory toolkit CUDA=$(CUDA) >&2 &&) $(MAKE) --no-print-directory

NO_GPU = No usable NVIDIA GPU or driver here: what follows is simulated, not measured.

run: ## build and measure; without a GPU, show the simulated table
	@ls /dev/nvidiactl >/dev/null 2>&1 || ls /dev/dxg >/dev/null 2>&1 || ls /dev/nvhost-ctrl >/dev/null 2>&1 || \
	  { echo '$(NO_GPU)'; said=yes; }; \
	$(WITH_CUDA) --silent run-found SAID=$$said

run-found: all
	@./dma_bandwidth --list >/dev/null 2>&1; status=$$?; \
	if [ $$status != 3 ]; then exec ./dma_bandwidth $(ARGS); fi; \
	[ -n "$(SAID)" ] || echo '$(NO_GPU)'; \
	$(MAKE) --no-print-directory --silent sim && echo && exec $(BUILD)/dma_bandwidth_sim $(ARGS)

check: ## run the tests (they need no GPU)
	@$(WITH_CUDA) check-found

check-found: all sim
	SIM=$(CURDIR)/$(BUILD)/dma_bandwidth_sim prove --exec sh tests

# For .ci/run: where the headers were found.
print-include:
	@echo $(or $(INCLUDE),/usr/include)

check-gpu: all ## run the checks that need a GPU
	prove --verbose --exec sh tests/gpu.sh

bench: all ## measure the program itself on a GPU machine
	sh tests/bench.sh

toolkit: ## fetch CUDA's runtime and headers from PyPI into .cuda/ (CUDA=12: the 12 series)
	@PYTHON=$(PYTHON) sh tests/toolkit.sh $(CUDA)

install: all ## install under PREFIX (default /usr/local), honouring DESTDIR
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 dma_bandwidth $(DESTDIR)$(PREFIX)/bin/dma_bandwidth

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/dma_bandwidth

clean: ## remove what was built (not .cuda/)
	rm -rf build dma_bandwidth

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14
