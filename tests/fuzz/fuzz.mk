# make fuzz: libFuzzer with address and undefined sanitizers on every parser of outside bytes, FUZZ_SECONDS each, or
# FUZZ_RUNS inputs each (make fuzz FUZZ_RUNS=1000000). tests/fuzz/README.md says what was run.
# A source file takes part by an LLVMFuzzerTestOneInput under #ifdef FUZZ at its foot; tests/fuzz/<name>/ holds seeds.
# tests/fuzz/corpus.tar.zst holds what runs have learnt so far; `make fuzz-keep` packs it anew, without what adds nothing.
# What a run finds is written to build-fuzz/<name>-crash-…; its log beside; what it learns stays in build-fuzz/corpus/<name>/.
FUZZ_SECONDS ?= 20
FUZZ_RUNS ?=
FUZZ_LIMIT := $(if $(FUZZ_RUNS),-runs=$(FUZZ_RUNS),-max_total_time=$(FUZZ_SECONDS))
FUZZ_CC ?= clang
# The budget of every reader of 64 KiB: 5 s, 512 MiB with the sanitizer's shadow, 64 MiB in one piece; zstd's window is 128.
FUZZ_MALLOC_stream := 192
FUZZ_BUILD := build-fuzz
FUZZ_FILES := $(shell grep -l LLVMFuzzerTestOneInput src/*/*.c src/*/*/*.c 2>/dev/null)
# The name of a parser is its file's, after its folder's where a module has folders: qa_squad, tcp_auth.
fuzz_words = $(subst /, ,$(patsubst src/%.c,%,$(1)))
fuzz_join = $(if $(word 3,$(1)),$(if $(filter $(word 2,$(1))_%,$(word 3,$(1))),$(word 3,$(1)),$(word 2,$(1))_$(word 3,$(1))),$(word 2,$(1)))
fuzz_name = $(call fuzz_join,$(call fuzz_words,$(1)))
FUZZ_STEMS := $(foreach f,$(FUZZ_FILES),$(call fuzz_name,$(f)))
FUZZ_FLAGS := -std=c11 -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -Wall -Wextra -Werror \
  -DCONVOY_VERSION='"fuzz"' -DCONVOY_COMMIT='"fuzz"' -DCONVOY_DATE='""'
# The rooms that read outside bytes, and nothing that computes.
FUZZ_ROOMS := $(wildcard $(foreach r,base conf data format net remote cluster file_share serve,src/$(r)/*.c src/$(r)/*/*.c src/$(r)/*.S src/$(r)/*/*.S)) \
  $(wildcard src/check/check_judge.c src/check/check_row.c src/check/report/*.c) \
  $(wildcard src/plan/*.S src/measure/measure_table.c src/comm/tcp/frame.c src/comm/tcp/auth.c src/comm/message/seal*.c)
FUZZ_OBJ := $(patsubst %,$(FUZZ_BUILD)/%.o,$(FUZZ_ROOMS))

.PHONY: fuzz fuzz-tools fuzz-keep $(FUZZ_STEMS:%=fuzz-%)
fuzz: $(FUZZ_STEMS:%=fuzz-%)
	@echo "fuzz: $(words $(FUZZ_STEMS)) parsers, $(if $(FUZZ_RUNS),$(FUZZ_RUNS) inputs,$(FUZZ_SECONDS) s) each, nothing found"

fuzz-tools:
	@command -v $(FUZZ_CC) >/dev/null && command -v zstd >/dev/null || { echo "make fuzz needs clang, libFuzzer, zstd: apt-get install clang-14 libclang-rt-14-dev clang zstd"; exit 1; }

# Sanitized parts, with coverage for the fuzzer; the linker takes from the archive what a parser needs.
$(FUZZ_BUILD)/libparts.a: $(FUZZ_OBJ)
	@rm -f $@ && ar rcs $@ $^
$(FUZZ_BUILD)/%.o: % | fuzz-tools
	@mkdir -p $(@D)
	$(FUZZ_CC) $(CPPFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c -o $@ $<

$(FUZZ_BUILD)/corpus/.unpacked: tests/fuzz/corpus.tar.zst
	@mkdir -p $(@D) && zstd -qdc $< | tar -x -C $(@D) && touch $@

fuzz-keep: $(FUZZ_STEMS:%=$(FUZZ_BUILD)/fuzz_%)
	@rm -rf $(FUZZ_BUILD)/kept
	@for t in $(FUZZ_STEMS); do mkdir -p $(FUZZ_BUILD)/kept/$$t $(FUZZ_BUILD)/corpus/$$t; \
	  $(FUZZ_BUILD)/fuzz_$$t -merge=1 $(FUZZ_BUILD)/kept/$$t tests/fuzz/$$t $(FUZZ_BUILD)/corpus/$$t >$(FUZZ_BUILD)/keep.log 2>&1 || exit 1; done
	@tar -c --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C $(FUZZ_BUILD)/kept . | zstd -q -19 -f -o tests/fuzz/corpus.tar.zst

define fuzz_rule
$(FUZZ_BUILD)/fuzz_$(2): $(1) $(FUZZ_BUILD)/libparts.a
	$(FUZZ_CC) $(CPPFLAGS) -DFUZZ $(FUZZ_FLAGS) -fsanitize=fuzzer,address,undefined -o $$@ $$^ $$(LDLIBS)
fuzz-$(2): $(FUZZ_BUILD)/fuzz_$(2) $(FUZZ_BUILD)/corpus/.unpacked
	@mkdir -p $(FUZZ_BUILD)/corpus/$(2)
	@ASAN_OPTIONS=quarantine_size_mb=8 $$< $(FUZZ_LIMIT) -timeout=5 -rss_limit_mb=512 \
	  -malloc_limit_mb=$(or $(FUZZ_MALLOC_$(2)),64) -max_len=65536 -print_final_stats=1 \
	  -artifact_prefix=$(FUZZ_BUILD)/$(2)- $(FUZZ_BUILD)/corpus/$(2) \
	  $$(wildcard tests/fuzz/$(2)) >$$<.log 2>&1 || { tail -60 $$<.log; exit 1; }
	@echo "fuzz $(2): $$$$(sed -n 's/^stat::number_of_executed_units: *//p' $$<.log) inputs in $$$$(sed -n 's/^Done .* in \([0-9]*\) second.*/\1/p' $$<.log) s, nothing found"
endef
$(foreach f,$(FUZZ_FILES),$(eval $(call fuzz_rule,$(f),$(call fuzz_name,$(f)))))

-include $(FUZZ_OBJ:.o=.d)
