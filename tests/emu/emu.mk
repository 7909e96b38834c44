# CUDA kernels on the host: every kernels/*.cu compiled by g++ against the emulation in tests/emu, and their tests,
# tests/cuda/test_*.c. Not with the thread sanitizer: there is one thread, and it switches stacks.
EMU_CU := $(wildcard kernels/*.cu tests/cuda/*.cu)
EMU_CORE := $(patsubst %,$(BUILD)/emu/tests/emu/%.o,emu emu_limits emu_numbers emu_symbol emu_tensor)
EMU_OBJ := $(EMU_CU:%.cu=$(BUILD)/emu/%.o) $(EMU_CORE)
# The same kernels once more, a product and a sum contracted to one operation wherever nvcc may do so (its -fmad=true).
FUSED_OBJ := $(EMU_CU:%.cu=$(BUILD)/emu-fused/%.o) $(EMU_CORE)
# And once more, each load and store reported to the hooks of emu_access*.cc (no sanitizer's library is linked).
ACCESS_OBJ := $(EMU_CU:%.cu=$(BUILD)/tests/access/%.o) $(EMU_CORE) \
  $(patsubst tests/emu/%.cc,$(BUILD)/emu/tests/emu/%.o,$(wildcard tests/emu/emu_access*.cc))
ACCESS_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/cuda/test_access*.c))
# And once more in the form for AMD GPUs (kernels/hip.cuh): wavefronts of 64, 64 KiB of shared memory. Accesses are reported, too.
HIP_EMU_OBJ := $(patsubst %.cu,$(BUILD)/emu-hip/%.o,$(wildcard kernels/*.cu)) \
  $(patsubst tests/emu/%.cc,$(BUILD)/emu-hip/tests/emu/%.o,$(wildcard tests/emu/*.cc))
EMU_FLAGS := -std=c++17 -O2 -g -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-math-errno -fPIE -Isrc -I. -Wall -Wextra \
  $(if $(WERROR),-Werror) -Wshadow -Wno-unknown-pragmas $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
TESTS := $(if $(filter thread,$(SAN)),$(filter-out $(BUILD)/tests/cuda/%,$(TESTS)),$(TESTS))

$(BUILD)/emu/%.o: %.cu
	@mkdir -p $(@D)
	g++ $(EMU_FLAGS) -MMD -MP -include tests/emu/emu.h -x c++ -c -o $@ $<
$(BUILD)/emu/%.o: %.cc
	@mkdir -p $(@D)
	g++ $(EMU_FLAGS) -O3 -MMD -MP -c -o $@ $<
$(BUILD)/emu-fused/%.o: %.cu
	@mkdir -p $(@D)
	g++ $(EMU_FLAGS) -mfma -ffp-contract=fast -MMD -MP -include tests/emu/emu.h -x c++ -c -o $@ $<

$(BUILD)/tests/access/%.o: %.cu
	@mkdir -p $(@D)
	g++ $(filter-out -fsanitize=% -fno-sanitize%,$(EMU_FLAGS)) -fsanitize=thread -DEMU_ACCESS -MMD -MP -include tests/emu/emu.h \
	  -x c++ -c -o $@ $<

$(BUILD)/emu-hip/%.o: %.cu
	@mkdir -p $(@D)
	g++ $(filter-out -fsanitize=% -fno-sanitize%,$(EMU_FLAGS)) -fPIC -fsanitize=thread -DEMU_ACCESS -DEMU_HIP -DCONVOY_HIP -MMD -MP \
	  -include tests/emu/emu.h -x c++ -c -o $@ $<
$(BUILD)/emu-hip/%.o: %.cc
	@mkdir -p $(@D)
	g++ $(EMU_FLAGS) -fPIC -O3 -DEMU_HIP -MMD -MP -c -o $@ $<

$(BUILD)/libaccess.a: $(ACCESS_OBJ)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/libemu.a: $(EMU_OBJ)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/libhip.a: $(HIP_EMU_OBJ)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/libfused.a: $(FUSED_OBJ)
	@rm -f $@ && ar rcs $@ $^

# AMD's runtime over this emulation (tests/hip/fake_amdhip64.c). CUDA's headers describe its calls; their names become HIP's.
FAKE_HIP := $(BUILD)/hip/fake/libamdhip64.so.6
$(FAKE_HIP): tests/hip/fake_amdhip64.c tests/cuda/streams.h src/dev/cuda/runtime.h tests/hip/isa.tsv $(BUILD)/libhip.a
	@mkdir -p $(@D) && cp tests/hip/isa.tsv $(@D)/
	$(CC) $(CPPFLAGS) -Itests -isystem $(CUDA_ROOT)/include $(filter-out -fPIE,$(CFLAGS)) -fPIC -Wno-missing-prototypes -c -o $(@D)/fake.o $<
	sed -n 's/^ *X(\([A-Za-z]*\), \([A-Za-z]*\),.*/cuda\1 hip\2/p' src/dev/cuda/runtime.h >$(@D)/names
	printf '%s\n' 'cudaGetErrorString hipGetErrorString' 'cudaEventRecordWithFlags hipEventRecordWithFlags' >>$(@D)/names
	objcopy --redefine-syms=$(@D)/names $(@D)/fake.o
	$(CC) -shared -Wl,-soname,$(@F) -o $@ $(@D)/fake.o -Wl,--whole-archive $(BUILD)/libhip.a -Wl,--no-whole-archive \
	  -Wl,--defsym=__executable_start=0,-z,defs -lstdc++ -lm -pthread

# The tests' hipBLASLt: their cuBLASLt with other names and numbers.
FAKE_HIPBLASLT := $(foreach k,blas blas_old blas_lacks blas_other,$(BUILD)/hip/$(k)/libhipblaslt.so.1)
$(BUILD)/hip/blas_old/libhipblaslt.so.1: FAKE_AS := -DFAKE_VERSION=300
$(BUILD)/hip/blas_lacks/libhipblaslt.so.1: FAKE_AS := -DFAKE_LACKS
$(BUILD)/hip/blas_other/libhipblaslt.so.1: FAKE_AS := -DFAKE_RUNTIME
$(FAKE_HIPBLASLT): tests/cuda/fake_blas.c tests/cuda/fake_blas.h tests/hip/fake_hipblaslt.h tests/hip/hipblaslt.def $(FAKE_HIP)
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -fPIC -shared $(filter-out -Wmissing-prototypes,$(WARN)) -DFAKE_HIP $(FAKE_AS) -I. -isystem $(CUDA_ROOT)/include -o $@ $< \
	  -L$(dir $(FAKE_HIP)) -l:libamdhip64.so.6 -Wl,-rpath,'$$ORIGIN' -lm

# The program with HIP built in, for tests/hip/test_device.sh; with CUDA, too, if the build has it.
HIP_TEST := $(if $(SAN)$(HIP_LACKS)$(if $(wildcard $(CUDA_ROOT)/include/cuda_runtime_api.h),,no),,$(BUILD)/hip/convoy $(BUILD)/hip/gpu_tests $(FAKE_HIP) $(FAKE_HIPBLASLT))
$(BUILD)/hip/test/runtime_hip.o: src/dev/cuda/runtime_hip.c src/dev/cuda/runtime.h src/dev/cuda/internal.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -DCONVOY_HIP='"gfx90a"' -c -o $@ $<
$(BUILD)/hip/convoy: $(BUILD)/src/main.o $(filter-out $(HIP_USER) %/host/launchers.o %/providers.o %/arc4random.o,$(OBJ)) \
  $(BUILD)/hip/test/runtime_hip.o $(BUILD)/hip/test/launchers.o | $(STAMP)
	$(CC) $(LDFLAGS) -o $@ $^ $(STAMP) $(LDLIBS)

# Without CUDA each test of the device is tests/cuda/absent.c.
DEVICE_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/cuda/test_*_cuda.c))
$(if $(HAS_CUDA),,$(DEVICE_TESTS)): $(BUILD)/tests/cuda/%: tests/cuda/absent.c $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(STAMP) $(BUILD)/libconvoy.a -lcmocka $(LDLIBS)
$(ACCESS_TESTS) $(if $(HAS_CUDA),$(filter-out %_nccl_cuda,$(GUARDED))): $(BUILD)/tests/cuda/%: tests/cuda/%.c $(BUILD)/libaccess.a $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/kernels $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(STAMP) $(BUILD)/libaccess.a \
	  $(BUILD)/libconvoy.a -lcmocka -lstdc++ $(LDLIBS)
$(BUILD)/tests/cuda/%: tests/cuda/%.c $(BUILD)/libemu.a $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/kernels $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(filter %.o,$^) $(STAMP) $(BUILD)/libemu.a $(BUILD)/libconvoy.a \
	  -lcmocka -lstdc++ $(LDLIBS)
# The tests of the kernels in that form: those of tests/cuda and tests/unit/kernels, built against it.
$(BUILD)/tests/hip/test_hip_%: tests/hip/test_hip_%.c $(BUILD)/libhip.a $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/kernels $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(filter %.o,$^) $(STAMP) $(BUILD)/libhip.a $(BUILD)/libconvoy.a \
	  -lcmocka -lstdc++ $(LDLIBS)
$(BUILD)/tests/hip/cuda/%.o: tests/cuda/%.c | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/kernels -DHARNESS_GROUP $(TEST_CFLAGS) -MMD -MP -c -o $@ $<
# The files of tests/unit/kernels once more, with the CUDA kernels: one program.
EMU_KERNELS := $(patsubst tests/unit/kernels/%.c,$(BUILD)/tests/cuda/kernels/%.o,$(wildcard tests/unit/kernels/*.c))
$(BUILD)/tests/cuda/kernels/%.o: tests/unit/kernels/%.c | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/kernels -DHARNESS_GROUP $(TEST_CFLAGS) -MMD -MP -include tests/cuda/emulated.h -c -o $@ $<
HIP_TESTS := $(patsubst %,$(BUILD)/tests/hip/cuda/test_%.o,matmul rows attention attention_own attention_ranks)
$(BUILD)/tests/cuda/test_kernels $(BUILD)/tests/hip/test_hip_kernels: $(EMU_KERNELS)
$(BUILD)/tests/hip/test_hip_kernels: $(filter-out %attention.o %own.o %ranks.o,$(HIP_TESTS))
$(BUILD)/tests/hip/test_hip_attention: $(filter %attention.o,$(HIP_TESTS))
$(BUILD)/tests/hip/test_hip_own: $(filter %own.o %ranks.o,$(HIP_TESTS))
# For tests/gpu/test_numbers.sh: shows that the contraction is there.
$(BUILD)/emu-fused/test_emu_numbers: tests/cuda/test_emu_numbers.c $(BUILD)/libfused.a $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DEMU_FUSED -Itests -Itests/kernels $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(STAMP) $(BUILD)/libfused.a \
	  $(BUILD)/libconvoy.a -lcmocka -lstdc++ $(LDLIBS)
-include $(BUILD)/emu-fused/test_emu_numbers.d $(EMU_OBJ:.o=.d) $(FUSED_OBJ:.o=.d) $(ACCESS_OBJ:.o=.d) $(HIP_EMU_OBJ:.o=.d) $(HIP_TESTS:.o=.d) $(EMU_KERNELS:.o=.d)
