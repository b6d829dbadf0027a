# Makefile: `make` builds build/flamia, `make check` builds and runs every test, `make help` lists the rest.
#
#   CC=clang  MARCH=x86-64-v3  BUILD=folder  WERROR=1  SANITIZE=1  SUITES="formats scale"

CC      ?= gcc
MARCH   ?= native
BUILD   ?= build
WERROR  ?=
SANITIZE ?=

CFLAGS_ALL = -std=c11 -O3 -march=$(MARCH) -ffp-contract=off -g -fopenmp -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
             -D_GNU_SOURCE -I. $(if $(WERROR),-Werror) $(CFLAGS)
LIBS       = -lopenblas -ljansson -lpthread -lm
ifneq ($(SANITIZE),)
CFLAGS_ALL += -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
endif

LIBRARY_SOURCES = $(filter-out train/main.c,$(wildcard attention/*.c data/*.c model/*.c train/*.c))
LIBRARY_OBJECTS = $(LIBRARY_SOURCES:%.c=$(BUILD)/%.o)
SUITES         ?= $(sort $(patsubst tests/check_%.c,%,$(wildcard tests/check_*.c)))
SUPPORT         = $(filter-out tests/main.c tests/check_%.c tests/fuzz_%.c tests/figure_%.c,$(wildcard tests/*.c))
TEST_OBJECTS    = $(SUITES:%=$(BUILD)/tests/check_%.o) $(SUPPORT:%.c=$(BUILD)/%.o)

.DEFAULT_GOAL := all
all: $(BUILD)/flamia
	@echo "built $(BUILD)/flamia"

$(BUILD)/flamia: $(BUILD)/train/main.o $(BUILD)/libflamia.a
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS) $(LDFLAGS)

$(BUILD)/libflamia.a: $(LIBRARY_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/suites.inc: FORCE
	@mkdir -p $(BUILD)
	@for s in $(SUITES); do echo "SUITE($$s)"; done > $@.new
	@cmp -s $@.new $@ || mv $@.new $@; rm -f $@.new

$(BUILD)/tests/main.o: $(BUILD)/suites.inc
$(BUILD)/tests/%.o: CFLAGS += -I$(BUILD)

$(BUILD)/check: $(BUILD)/tests/main.o $(TEST_OBJECTS) $(BUILD)/libflamia.a
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS) -lcheck -lsubunit -lrt $(LDFLAGS)

check: $(BUILD)/check
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} $(BUILD)/check

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# The figures that take minutes: `make figures` runs every tests/figure_*.c, and the comparison with CUDA's conversions
# where its headers are.
CUDA_HOME ?= /usr/local/cuda
FIGURES    = $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/figure_*.c))
FIGURES   += $(if $(wildcard $(CUDA_HOME)/include/cuda_fp4.h),$(BUILD)/compare_cuda)

$(BUILD)/figure_%: $(BUILD)/tests/figure_%.o $(BUILD)/tests/support.o $(BUILD)/libflamia.a
	$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS) $(LDFLAGS)

$(BUILD)/compare_cuda: tests/compare_cuda.cpp attention/formats.h
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -Wextra -I. -isystem $(CUDA_HOME)/include -o $@ $<

figures: $(FIGURES)
	@set -e; for figure in $(FIGURES); do $$figure; done

clean:
	rm -rf $(BUILD)

FORCE:
.PHONY: all check figures clean FORCE
