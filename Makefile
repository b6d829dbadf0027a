# Makefile: `make demo` and `make check` do everything; `make` builds build/flamia; `make help` lists the rest.

CC        ?= gcc
CXX       ?= g++
MARCH     ?= native
BUILD     ?= build
WERROR    ?=
SANITIZE  ?=
SECONDS   ?= 60
CUDA_HOME ?= /usr/local/cuda
CUDA_ARCHES ?= 80 90 100 120
NVCC      ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CLANG     ?= $(firstword $(shell command -v clang clang-19 clang-18 clang-16 clang-15 clang-14 2>/dev/null))
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14 clang-format 2>/dev/null))
CLANG_TIDY   ?= $(firstword $(shell command -v clang-tidy-14 clang-tidy 2>/dev/null))

ifeq ($(origin CC),default)
CC = gcc
endif
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

# No fast-math and no contraction: the bits of the reference must not depend on what a compiler finds faster. No errno
# from sqrtf: nobody reads it, no bit changes, and loops with it vectorise.
CFLAGS_ALL = -std=c11 -O3 -march=$(MARCH) -ffp-contract=off -fno-math-errno -g -fopenmp -Wall -Wextra -Wshadow -Wstrict-prototypes \
             -Wmissing-prototypes -D_GNU_SOURCE -I. $(if $(WERROR),-Werror) $(SANITIZE_FLAGS) $(CFLAGS)
SANITIZE_FLAGS = $(if $(SANITIZE),-O1 -fsanitize=address$(comma)undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
comma     := ,
LIBS       = -lopenblas -ljansson -lpthread -lm
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lpthread -lm)

LIBRARY_SOURCES = $(filter-out train/main.c %_cuda.c %_absent.c,$(wildcard attention/*.c data/*.c model/*.c train/*.c))
TEMPLATE        = $(if $(wildcard scripts/report.html),report_template.o)
ABSENT          = $(wildcard model/*_absent.c train/*_absent.c)
LIBRARY_OBJECTS = $(LIBRARY_SOURCES:%.c=$(BUILD)/%.o) $(if $(NVCC),,$(ABSENT:%.c=$(BUILD)/%.o)) $(TEMPLATE:%=$(BUILD)/%)
SUITES         ?= $(sort $(patsubst tests/check_%.c,%,$(filter-out tests/check_cuda_%.c,$(wildcard tests/check_*.c))))
SUPPORT         = $(filter-out tests/main.c tests/support_device.c tests/check_%.c tests/fuzz_%.c tests/figure_%.c,$(wildcard tests/*.c))
SUPPORT_OBJECTS = $(SUPPORT:%.c=$(BUILD)/%.o)
TEST_OBJECTS    = $(SUITES:%=$(BUILD)/tests/check_%.o) $(SUPPORT_OBJECTS)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

all: $(BUILD)/flamia
	@echo "built $(BUILD)/flamia ($(notdir $(CC)), -march=$(MARCH)); GPU: $(if $(NVCC),$(CUDA_ARCHES),left out$(comma) there is no nvcc)"

$(BUILD)/flamia: $(BUILD)/train/main.o $(BUILD)/libflamia.a $(CUDA_LIBRARY)
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(CUDA_LIBS) $(LIBS) $(LDFLAGS)

$(BUILD)/libflamia.a: $(LIBRARY_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

# The report's page travels inside the program, as bytes.
$(BUILD)/report_template.c: scripts/report.html
	@mkdir -p $(@D)
	@{ echo '#include "train/report_template.h"'; echo 'const unsigned char report_template[] = {'; \
	   od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; \
	   echo '0};'; echo 'const size_t report_template_bytes = sizeof report_template - 1;'; } > $@
$(BUILD)/report_template.o: $(BUILD)/report_template.c
	$(CC) $(CFLAGS_ALL) -c -o $@ $<

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# The GPU's part is an archive of its own, there only where nvcc is. Machine code for CUDA_ARCHES, and PTX of 8.0 for all newer ones.
# No contraction but in attention's products: elsewhere the order and rounding of every operation is what the CPU's is.
CUDA_SOURCES  = $(wildcard attention/*.cu model/*.cu train/*.cu)
CUDA_HOST     = $(wildcard attention/*_cuda.c model/*_cuda.c train/*_cuda.c)
CUDA_OBJECTS  = $(CUDA_SOURCES:%.cu=$(BUILD)/%.cu.o) $(CUDA_HOST:%.c=$(BUILD)/%.o)
CUDA_LIBRARY  = $(if $(NVCC),$(BUILD)/libflamia_cuda.a)
CUDA_LIBS     = $(if $(NVCC),-L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt)
CONTRACTED    = attention/forward_cuda attention/backward_dkey_cuda attention/backward_dquery_cuda
NVCC_FLAGS    = -std=c++17 -O3 -I. --extended-lambda -Xcompiler -Wall,-Wextra,-Wno-unused-function \
                $(foreach arch,$(CUDA_ARCHES),-gencode arch=compute_$(arch)$(comma)code=sm_$(arch)) -gencode arch=compute_80,code=compute_80 \
                $(if $(WERROR),-Werror all-warnings)

$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(if $(filter $*,$(CONTRACTED)),,-fmad=false) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(BUILD)/libflamia_cuda.a: $(CUDA_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

# ---- for users ----

demo: setup
	@$(MAKE) --no-print-directory all
	FLAMIA=$(BUILD)/flamia scripts/demo.sh

check: setup
	@$(MAKE) --no-print-directory check-run

setup:
	@scripts/setup.sh

help:
	@echo 'make                    build $(BUILD)/flamia'
	@echo 'make demo               install what is missing, build, train on real text, show the leak'
	@echo 'make check              install what is missing, build, run every test (SUITES="formats scale" for some)'
	@echo 'make check-emulated     the tests of the GPU kernels, on the CPU: needs no GPU'
	@echo 'make check-device       the same tests on GPU 0'
	@echo 'make check-sanitize     the same tests, shortened, under ASan and UBSan'
	@echo 'make fuzz SECONDS=60    fuzz the readers of files: shards, safetensors, checkpoints, configurations'
	@echo 'make figures            the tables of README.md that take minutes'
	@echo 'make lint               formatting, clang-tidy, cppcheck'
	@echo 'make format             format every source'
	@echo 'make clean              remove $(BUILD)'
	@echo 'Variables: NVCC= (no GPU part) CUDA_ARCHES="80 90" CUDA_HOME=/usr/local/cuda CC=clang MARCH=x86-64-v3 BUILD=folder WERROR=1 SANITIZE=1 CFLAGS= LDFLAGS='

# ---- tests ----

$(BUILD)/suites.inc: FORCE
	@mkdir -p $(BUILD)
	@for s in $(SUITES); do echo "SUITE($$s)"; done > $@.new
	@cmp -s $@.new $@ || mv $@.new $@; rm -f $@.new

$(BUILD)/tests/main.o: $(BUILD)/suites.inc
$(BUILD)/tests/%.o: CFLAGS += -I$(BUILD)

$(BUILD)/check: $(BUILD)/tests/main.o $(TEST_OBJECTS) $(BUILD)/libflamia.a $(CUDA_LIBRARY)
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(CUDA_LIBS) $(CHECK_LIBS) $(LIBS) $(LDFLAGS)

check-run: $(BUILD)/check $(BUILD)/flamia
	FLAMIA=$(BUILD)/flamia OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive $(BUILD)/check

check-sanitize:
	CHECK_TOKENS=160 CK_TIMEOUT_MULTIPLIER=$${CK_TIMEOUT_MULTIPLIER:-20} UBSAN_OPTIONS=print_stacktrace=1 \
	$(MAKE) --no-print-directory BUILD=$(BUILD)/sanitize SANITIZE=1 NVCC= check-run

# The GPU's kernels: tests/check_cuda_*.c against every .cu, once compiled by g++ for the emulator of tests/emulator (no GPU, no CUDA
# needed), once by nvcc for the GPU at hand. CUDA_SUITES="cuda_loss" for some.
CUDA_SUITES    ?= $(sort $(patsubst tests/check_%.c,%,$(wildcard tests/check_cuda_*.c)))
CUDA_TESTS      = $(CUDA_SUITES:%=tests/check_%.c) tests/main.c tests/support_device.c
EMULATED        = $(BUILD)/emulated
EMULATOR_FLAGS  = -std=c++17 -O2 -g -march=$(MARCH) -ffp-contract=off -fopenmp -U_FORTIFY_SOURCE -Wall -Wextra -Wno-unknown-pragmas \
                  $(if $(WERROR),-Werror) -fsanitize=alignment,bounds,shift -fno-sanitize-recover=all -Itests/emulator -I.
EMULATOR        = $(wildcard tests/emulator/*.cpp)
EMULATED_OBJECTS = $(patsubst %.cu,$(EMULATED)/%.cu.o,$(CUDA_SOURCES) $(wildcard tests/*.cu)) $(EMULATOR:%.cpp=$(EMULATED)/%.o) \
                  $(patsubst %.c,$(EMULATED)/%.o,$(CUDA_HOST) $(CUDA_TESTS))
ON_DEVICE       = $(BUILD)/on_device
ON_DEVICE_OBJECTS = $(patsubst tests/%.cu,$(BUILD)/tests/%.cu.o,$(wildcard tests/*.cu)) $(CUDA_TESTS:%.c=$(ON_DEVICE)/%.o)

$(EMULATED)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(EMULATOR_FLAGS) -MMD -MP -c -o $@ -x c++ $<
$(EMULATED)/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(EMULATOR_FLAGS) -MMD -MP -c -o $@ $<
$(EMULATED)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -DEMULATED -I$(EMULATED) -MMD -MP -c -o $@ $<
$(ON_DEVICE)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -I$(EMULATED) -MMD -MP -c -o $@ $<

$(EMULATED)/suites.inc: FORCE
	@mkdir -p $(EMULATED)
	@for s in $(CUDA_SUITES); do echo "SUITE($$s)"; done > $@.new
	@cmp -s $@.new $@ || mv $@.new $@; rm -f $@.new
$(EMULATED)/tests/main.o $(ON_DEVICE)/tests/main.o: $(EMULATED)/suites.inc

$(BUILD)/check-emulated: $(EMULATED_OBJECTS) $(SUPPORT_OBJECTS) $(BUILD)/libflamia.a
	$(CXX) $(EMULATOR_FLAGS) -o $@ $^ $(CHECK_LIBS) $(LIBS) $(LDFLAGS)

$(BUILD)/check-device: $(ON_DEVICE_OBJECTS) $(SUPPORT_OBJECTS) $(BUILD)/libflamia.a $(CUDA_LIBRARY)
	@test -n "$(NVCC)" || { echo "make check-device: there is no nvcc; set CUDA_HOME"; exit 1; }
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(CUDA_LIBS) $(CHECK_LIBS) $(LIBS) $(LDFLAGS)

check-emulated: $(BUILD)/check-emulated
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive $(BUILD)/check-emulated

check-device: $(BUILD)/check-device
	$(BUILD)/check-device

# The tables that take minutes: every tests/figure_*.c, and CUDA's conversions where its headers are.
FIGURES  = $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/figure_*.c))
FIGURES += $(if $(wildcard $(CUDA_HOME)/include/cuda_fp4.h),$(BUILD)/compare_cuda)

$(BUILD)/figure_%: $(BUILD)/tests/figure_%.o $(SUPPORT_OBJECTS) $(BUILD)/libflamia.a
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(CHECK_LIBS) $(LIBS) $(LDFLAGS)

$(BUILD)/compare_cuda: tests/compare_cuda.cpp attention/formats.h
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -Wextra -I. -isystem $(CUDA_HOME)/include -o $@ $<

figures: $(FIGURES)
	@set -e; for figure in $(FIGURES); do $$figure; done

# libFuzzer: the whole library again with its instrumentation. One reader after the other, each for its share of SECONDS.
FUZZERS        = $(patsubst tests/%.c,%,$(wildcard tests/fuzz_*.c))
FUZZ_BUILD     = $(BUILD)/fuzz
FUZZ_FLAGS     = -std=c11 -O1 -g -march=$(MARCH) -ffp-contract=off -fopenmp -fsanitize=fuzzer-no-link,address,undefined \
                 -fno-sanitize-recover=all -D_GNU_SOURCE -I.
FUZZ_OBJECTS   = $(patsubst %.c,$(FUZZ_BUILD)/%.o,$(LIBRARY_SOURCES) $(ABSENT)) $(TEMPLATE:%=$(FUZZ_BUILD)/%)

$(FUZZ_BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CLANG) $(FUZZ_FLAGS) -MMD -MP -c -o $@ $<
$(FUZZ_BUILD)/report_template.o: $(BUILD)/report_template.c
	@mkdir -p $(@D)
	$(CLANG) $(FUZZ_FLAGS) -c -o $@ $<
$(FUZZ_BUILD)/libflamia.a: $(FUZZ_OBJECTS)
	@rm -f $@
	ar rcs $@ $^
$(FUZZERS:%=$(FUZZ_BUILD)/%): $(FUZZ_BUILD)/%: $(FUZZ_BUILD)/tests/%.o $(FUZZ_BUILD)/libflamia.a
	$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

fuzz:
	@test -n "$(CLANG)" || { echo "make fuzz: clang is missing: sudo apt-get install clang libclang-rt-dev libomp-dev"; exit 1; }
	@$(MAKE) --no-print-directory $(FUZZERS:%=$(FUZZ_BUILD)/%)
	@set -e; share=$$(( ($(SECONDS) + $(words $(FUZZERS)) - 1) / $(words $(FUZZERS)) )); \
	for fuzzer in $(FUZZERS); do \
	    echo "== $$fuzzer, $$share s"; mkdir -p $(FUZZ_BUILD)/corpus/$$fuzzer; \
	    OMP_NUM_THREADS=1 FUZZ_SEEDS=$(FUZZ_BUILD)/corpus/$$fuzzer $(FUZZ_BUILD)/$$fuzzer -max_total_time=$$share -timeout=10 \
	        -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 -artifact_prefix=$(FUZZ_BUILD)/$$fuzzer- $(FUZZ_BUILD)/corpus/$$fuzzer; \
	done

# ---- lint ----

FORMATTED = $(wildcard attention/*.[ch] data/*.[ch] model/*.[ch] train/*.[ch] tests/*.[ch] tests/*.cpp)
TIDIED    = $(wildcard attention/*.c data/*.c model/*.c train/*.c)

lint: $(BUILD)/suites.inc
	@test -n "$(CLANG_FORMAT)" -a -n "$(CLANG_TIDY)" && command -v cppcheck >/dev/null || \
	    { echo "make lint: a tool is missing: sudo apt-get install clang-format-14 clang-tidy-14 cppcheck"; exit 1; }
	@$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED)
	@cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,performance,portability \
	    --suppress=missingIncludeSystem -D_GNU_SOURCE -I. attention data model train
	@printf '%s\n' $(TIDIED) | xargs -P $$(nproc) -n 4 sh -c \
	    '$(CLANG_TIDY) --quiet --warnings-as-errors="*" "$$@" -- -std=c11 -fopenmp -D_GNU_SOURCE -I. 2>/dev/null' sh && \
	    echo "lint: clean" || { echo "lint: clang-tidy found something"; exit 1; }

format:
	$(CLANG_FORMAT) -i $(FORMATTED)

clean:
	rm -rf $(BUILD)

FORCE:
.PHONY: all demo check setup help check-run check-sanitize check-emulated check-device figures fuzz lint format clean FORCE
