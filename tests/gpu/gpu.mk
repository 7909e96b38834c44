# Tests and benchmarks for a machine with a GPU: `make gpu-test`, `make gpu-bench`. They use build/gpu if it exists, so it
# can be built on another machine (`make gpu-carry`, which needs nvcc) and copied to one without development packages.
GPU := $(BUILD)/gpu
GPU_FAMILIES := $(shell sed -n 's/.*X(\([a-z0-9_]*\)).*/&/p' tests/gpu/real.h | grep -o 'X([a-z0-9_]*)' | sed 's/X(\(.*\))/\1/')
GPU_THERE := $(filter-out kernels emu emu_% access access_% %_cuda,$(patsubst tests/cuda/test_%.c,%,$(wildcard tests/cuda/test_*.c))) \
  $(patsubst tests/unit/kernels/%.c,%,$(wildcard tests/unit/kernels/*.c))
ifneq ($(sort $(GPU_FAMILIES)),$(sort $(GPU_THERE)))
$(error tests/gpu/real.h names $(sort $(GPU_FAMILIES)), but there are files of tests/cuda and tests/unit/kernels for $(sort $(GPU_THERE)))
endif
GPU_OPS := $(shell sed -n '/define OP_LIST/,/^$$/p' kernels/op_list.h | grep -o 'X([a-z0-9_]*)' | sed 's/X(\(.*\))/\1/')
GPU_WRAP := $(foreach o,$(GPU_OPS) column_sum column_add,-Wl,--wrap=$(o)_cuda)
GPU_NAMES := $(foreach f,malloc calloc aligned_alloc realloc free,-D$(f)=real_$(f)) -DKT_SEEN=real_error
GPU_OBJ := $(GPU_FAMILIES:%=$(GPU)/obj/test_%.o)

GPU_CC = $(CC) $(CPPFLAGS) -Itests -Itests/kernels $(CFLAGS) -Wno-missing-prototypes $(GPU_NAMES) -Dmain=real_main_$* -MMD -MP
$(GPU)/obj/test_%.o: tests/cuda/test_%.c
	@mkdir -p $(@D)
	$(GPU_CC) -c -o $@ $<
$(GPU)/obj/test_%.o: tests/unit/kernels/%.c
	@mkdir -p $(@D)
	$(GPU_CC) -include tests/cuda/emulated.h -c -o $@ $<
$(GPU)/obj/real.o: tests/gpu/real.c tests/gpu/real.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/gpu -isystem $(CUDA_ROOT)/include $(CFLAGS) -c -o $@ $<
$(GPU)/obj/real_dry.o: tests/gpu/real.c tests/gpu/real.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/gpu -DREAL_DRY $(CFLAGS) -c -o $@ $<
$(GPU)/obj/real_numbers.o: tests/gpu/real.c tests/gpu/real.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/gpu -DREAL_DRY -DREAL_NUMBERS $(CFLAGS) -c -o $@ $<

$(GPU)/obj/real_hip.o: tests/gpu/real.c tests/gpu/real.h tests/gpu/real_hip.h src/dev/cuda/runtime.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/gpu -DREAL_HIP $(CFLAGS) -c -o $@ $<

$(GPU)/obj/gpu_bench.o $(GPU)/obj/gpu_tune.o $(GPU)/obj/real_cudnn.o $(GPU)/obj/real_runtime.o: $(GPU)/obj/%.o: tests/gpu/%.c tests/gpu/real.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/gpu -isystem $(CUDA_ROOT)/include $(CFLAGS) -c -o $@ $<
$(GPU)/obj/test_golden.o: tests/golden/test_golden.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -Wno-missing-prototypes -Dmain=real_golden -MMD -MP -c -o $@ $<

# Only what a bare machine has is needed: the C library; and the test library, which lies beside the program.
GPU_LINK = $(LDFLAGS) -Wl,--gc-sections -Wl,--as-needed -Wl,-rpath,'$$ORIGIN' -s
# For NVIDIA GPUs, or without CUDA (HIP=1 CUDA=0) for AMD's.
GPU_REAL := $(if $(HAS_CUDA)$(if $(HAS_HIP),,no),real real_cudnn real_runtime gpu_bench gpu_tune,real_hip)
$(GPU)/gpu_tests: $(GPU_REAL:%=$(GPU)/obj/%.o) $(GPU)/obj/test_golden.o $(GPU_OBJ) $(RELEASE)/convoy
	$(CC) $(GPU_LINK) $(GPU_WRAP) -L$(shell pkg-config --variable=libdir ucx)/ucx -o $@ -Wl,-Bstatic $(UCX_STATIC) -Wl,-Bdynamic \
	  $(filter %.o,$^) $(RELEASE)/version.o $(BUILD)/src/base/arc4random.o $(BUILD)/src/comm/ucx/providers.o $(BUILD)/libconvoy.a \
	  $(BUILD)/static/lib/libcurl.a $(BUILD)/static/lib/libcjson.a $(LIBS_STATIC) -lcmocka -lm
# dry_tests: all families on the emulation. numbers_tests: with the kernels compiled with contraction (tests/emu/emu.mk).
$(GPU)/dry_tests: $(GPU)/obj/real_dry.o $(BUILD)/libemu.a
$(GPU)/numbers_tests: $(GPU)/obj/real_numbers.o $(BUILD)/libfused.a
$(GPU)/dry_tests $(GPU)/numbers_tests: $(GPU_OBJ) $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(GPU_LINK) $(GPU_WRAP) -o $@ $(filter %.o,$^) $(STAMP) $(filter %/libemu.a %/libfused.a,$^) $(BUILD)/libconvoy.a \
	  -lcmocka -lstdc++ $(LDLIBS)
# For AMD GPUs, over the fake runtime of tests/hip/test_device.sh.
$(BUILD)/hip/gpu_tests: $(GPU)/obj/real_hip.o $(GPU)/obj/test_golden.o $(GPU_OBJ) $(BUILD)/hip/test/runtime_hip.o $(BUILD)/hip/test/launchers.o \
  $(BUILD)/libconvoy.a | $(STAMP)
	$(CC) $(GPU_LINK) $(GPU_WRAP) -o $@ $(filter %.o,$^) $(STAMP) $(BUILD)/libconvoy.a -lcmocka $(LDLIBS)
-include $(GPU_OBJ:.o=.d) $(GPU)/obj/test_golden.d

# convoy_emulated: the program on emulated GPUs, for scripts (tests/gpu/emulated.c). It needs no code of nvcc.
CONVOY_EMULATED := $(if $(HAS_CUDA),$(GPU)/convoy_emulated)
$(GPU)/obj/emulated.o: tests/gpu/emulated.c tests/cuda/streams.h tests/comm/fake_nccl.h tests/emu/emu_control.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -isystem $(CUDA_ROOT)/include $(CFLAGS) -Wno-missing-prototypes -c -o $@ $<
$(GPU)/convoy_emulated: $(GPU)/obj/emulated.o $(BUILD)/src/main.o $(filter-out %_cu.o %/providers.o %/arc4random.o,$(OBJ)) \
  $(BUILD)/libemu.a tests/cuda/sass.tsv | $(STAMP) $(BUILD)/tests/cuda/libcublasLt.so.13 $(BUILD)/tests/comm/nccl/libnccl.so.2
	@mkdir -p $(@D)
	@ln -f $(BUILD)/tests/cuda/libcublasLt.so.13 $(BUILD)/tests/comm/nccl/libnccl.so.2 $(@D)/ && cp tests/cuda/sass.tsv $(@D)/
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(STAMP) -Wl,--whole-archive $(BUILD)/libemu.a -Wl,--no-whole-archive \
	  -lstdc++ $(filter-out $(CUDART),$(LDLIBS))

# EXACT=layout on emulated GPUs: the 57 layouts of `make exact`, smaller models. Some ten minutes on two cores.
.PHONY: exact-emulated
exact-emulated: $(CONVOY_EMULATED)
	$(if $(HAS_CUDA),,$(error exact-emulated: $(or $(CUDA_LACKS),CUDA=0 leaves CUDA out)))
	BUILD=$(BUILD) EMULATED=1 tests/e2e/test_exact.sh

# The suite runs gpu_tests on the emulation; not with sanitizers, which need stacks of their own.
ifeq ($(SAN),)
tests: $(GPU)/dry_tests $(GPU)/numbers_tests $(BUILD)/emu-fused/test_emu_numbers $(CONVOY_EMULATED)
endif

# build/gpu/gpu.tar.gz: what is copied to a machine with a GPU, where `tests/gpu/gpu.sh first` needs no make. CUDA_ARCHS=90a carries
# the code of one architecture. GPU_CARRY_MAX: bytes; more than that takes long to send.
GPU_DATA := $(wildcard ../shared/data/tinyshakespeare.txt)
GPU_SCRIPTS := $(sort $(wildcard tests/gpu/gpu*.sh tests/gpu/*.awk tests/gpu/*.tsv tests/gpu/torch*.py)) assets/alice.txt \
  $(wildcard tests/golden/lm/* tests/golden/qa/*)
GPU_CARRY_MAX := 40000000
.PHONY: gpu-carry gpu-archive gpu-first gpu-test gpu-bench
gpu-carry:
	$(if $(HAS_CUDA)$(HAS_HIP),,$(error gpu-carry: $(or $(CUDA_LACKS),CUDA=0 leaves CUDA out); HIP=1 is for AMD GPUs))
	@sh .ci/need $(NEED) $(NEED_TEST) $(NEED_RELEASE)
	@$(MAKE) --no-print-directory -s -j$$(nproc) $(RELEASE)/convoy $(GPU)/gpu_tests
	@cp $(RELEASE)/convoy $(GPU)/ && { [ -e $(GPU)/libcmocka.so.0 ] || cp $$(ldd $(GPU)/gpu_tests | sed -n 's/.*=> \(.*lib\(cmocka\)[^ ]*\) .*/\1/p') $(GPU)/; }
	@$(if $(GPU_DATA),cp $(GPU_DATA) $(GPU)/)
	@rm -rf $(GPU)/obj $(GPU)/dry_tests $(GPU)/numbers_tests
	@$(MAKE) --no-print-directory -s gpu-archive

# The programs that are in build/gpu, with the scripts; the same bytes for the same programs.
gpu-archive:
	@rm -f $(GPU)/gpu.tar.gz
	@tar -P --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --transform 's,^$(GPU)/,build/gpu/,' -cf - $(GPU_SCRIPTS) \
	  $(filter-out %/obj %/dry_tests %/numbers_tests %/gpu.tar.gz,$(wildcard $(GPU)/*)) | gzip -9n >$(GPU)/gpu.tar.gz.new
	@mv $(GPU)/gpu.tar.gz.new $(GPU)/gpu.tar.gz && ls -l $(GPU)/gpu.tar.gz
	@[ "$$(stat -c %s $(GPU)/gpu.tar.gz)" -le $(GPU_CARRY_MAX) ] || { echo 'gpu-carry: $(GPU)/gpu.tar.gz is larger than' \
	  '$(GPU_CARRY_MAX) bytes; CUDA_ARCHS=90a carries one architecture' >&2; false; }

gpu-first gpu-test gpu-bench:
	@[ -x $(GPU)/convoy ] && [ -x $(GPU)/gpu_tests ] || tests/gpu/gpu.sh look
	@[ -x $(GPU)/convoy ] && [ -x $(GPU)/gpu_tests ] || $(MAKE) --no-print-directory gpu-carry
	@GPU=$(GPU) tests/gpu/gpu.sh $(@:gpu-%=%)
