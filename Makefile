# Makefile: `make demo` and `make check` do everything; `make` builds build/flamia; `make help` lists the rest.

CC        ?= gcc
CXX       ?= g++
MARCH     ?= native
BUILD     ?= build
WERROR    ?=
SANITIZE  ?=
SECONDS   ?= 60
CUDA_HOME ?= /usr/local/cuda
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

LIBRARY_SOURCES = $(filter-out train/main.c %_cuda.c,$(wildcard attention/*.c data/*.c model/*.c train/*.c))
TEMPLATE        = $(if $(wildcard scripts/report.html),report_template.o)
LIBRARY_OBJECTS = $(LIBRARY_SOURCES:%.c=$(BUILD)/%.o) $(TEMPLATE:%=$(BUILD)/%)
SUITES         ?= $(sort $(patsubst tests/check_%.c,%,$(filter-out tests/check_cuda_%.c,$(wildcard tests/check_*.c))))
SUPPORT         = $(filter-out tests/main.c tests/check_%.c tests/fuzz_%.c tests/figure_%.c,$(wildcard tests/*.c))
SUPPORT_OBJECTS = $(SUPPORT:%.c=$(BUILD)/%.o)
TEST_OBJECTS    = $(SUITES:%=$(BUILD)/tests/check_%.o) $(SUPPORT_OBJECTS)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

all: $(BUILD)/flamia
	@echo "built $(BUILD)/flamia ($(notdir $(CC)), -march=$(MARCH)); left out: GPU kernels, this version has none"

$(BUILD)/flamia: $(BUILD)/train/main.o $(BUILD)/libflamia.a
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS) $(LDFLAGS)

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
	@echo 'make check-sanitize     the same tests, shortened, under ASan and UBSan'
	@echo 'make fuzz SECONDS=60    fuzz the readers of files: shards, safetensors, checkpoints, configurations'
	@echo 'make figures            the tables of README.md that take minutes'
	@echo 'make lint               formatting, clang-tidy, cppcheck'
	@echo 'make format             format every source'
	@echo 'make clean              remove $(BUILD)'
	@echo 'Variables: CC=clang MARCH=x86-64-v3 BUILD=folder WERROR=1 SANITIZE=1 CFLAGS= LDFLAGS='

# ---- tests ----

$(BUILD)/suites.inc: FORCE
	@mkdir -p $(BUILD)
	@for s in $(SUITES); do echo "SUITE($$s)"; done > $@.new
	@cmp -s $@.new $@ || mv $@.new $@; rm -f $@.new

$(BUILD)/tests/main.o: $(BUILD)/suites.inc
$(BUILD)/tests/%.o: CFLAGS += -I$(BUILD)

$(BUILD)/check: $(BUILD)/tests/main.o $(TEST_OBJECTS) $(BUILD)/libflamia.a
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(CHECK_LIBS) $(LIBS) $(LDFLAGS)

check-run: $(BUILD)/check $(BUILD)/flamia
	FLAMIA=$(BUILD)/flamia OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive $(BUILD)/check

check-sanitize:
	CHECK_TOKENS=160 CK_TIMEOUT_MULTIPLIER=$${CK_TIMEOUT_MULTIPLIER:-20} UBSAN_OPTIONS=print_stacktrace=1 \
	$(MAKE) --no-print-directory BUILD=$(BUILD)/sanitize SANITIZE=1 check-run

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
FUZZ_OBJECTS   = $(LIBRARY_SOURCES:%.c=$(FUZZ_BUILD)/%.o) $(TEMPLATE:%=$(FUZZ_BUILD)/%)

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
.PHONY: all demo check setup help check-run check-sanitize figures fuzz lint format clean FORCE
