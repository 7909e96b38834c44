# The tests' own libraries in place of NVIDIA's: src/comm/nccl/lib.c opens them as it would open those.
FAKE_NVML := $(BUILD)/tests/unit/nvml/libnvidia-ml.so.1
$(FAKE_NVML): tests/unit/fake_nvml.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -shared -Wall -Wextra $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN)) -o $@ $<
$(BUILD)/tests/unit/test_dev $(BUILD)/tests/unit/test_node: $(FAKE_NVML)

FAKE_LIBRARIES := $(foreach k,good old lacks,$(BUILD)/tests/unit/library/$(k).so)
$(BUILD)/tests/unit/library/good.so: FAKE_AS := -DFAKE_VERSION=7
$(BUILD)/tests/unit/library/old.so: FAKE_AS := -DFAKE_VERSION=6
$(BUILD)/tests/unit/library/lacks.so: FAKE_AS := -DFAKE_LACKS
$(FAKE_LIBRARIES): tests/unit/fake_library.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -fPIC -shared -Wall -Wextra $(if $(WERROR),-Werror) $(FAKE_AS) -o $@ $<
$(BUILD)/tests/unit/test_dev: $(FAKE_LIBRARIES)

FAKE_NCCL := $(foreach k,nccl nccl_old nccl_lacks,$(BUILD)/tests/comm/$(k)/libnccl.so.2)
$(BUILD)/tests/comm/nccl_old/libnccl.so.2: FAKE_AS := -DFAKE_VERSION=21403
$(BUILD)/tests/comm/nccl_lacks/libnccl.so.2: FAKE_AS := -DFAKE_LACKS
# The same as RCCL, which has NCCL's functions; rccl_other has an AMD runtime of its own.
FAKE_RCCL := $(foreach k,rccl rccl_old rccl_other,$(BUILD)/tests/comm/$(k)/librccl.so.1)
$(BUILD)/tests/comm/rccl/librccl.so.1: FAKE_AS := -DFAKE_VERSION=22203
$(BUILD)/tests/comm/rccl_old/librccl.so.1: FAKE_AS := -DFAKE_VERSION=21701
$(BUILD)/tests/comm/rccl_other/librccl.so.1: FAKE_AS := -DFAKE_VERSION=22203 -DFAKE_RUNTIME
$(FAKE_NCCL) $(FAKE_RCCL): tests/comm/fake_nccl.c tests/comm/fake_nccl.h tests/comm/fake_nccl_sum.h tests/comm/fake_nccl_calls.h kernels/f16.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -shared -Wall -Wextra $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN)) $(FAKE_AS) -o $@ $< -pthread
$(BUILD)/tests/comm/test_comm_nccl $(BUILD)/tests/comm/test_nccl_async $(BUILD)/tests/comm/test_comm_auto $(BUILD)/tests/mesh/test_mesh_device $(BUILD)/tests/mesh/test_mesh_decide $(BUILD)/tests/mesh/test_mesh_exact_device $(BUILD)/tests/mesh/test_peer_copy_device: $(FAKE_NCCL)
$(BUILD)/tests/cuda/test_device_cuda: $(FAKE_NCCL)
$(BUILD)/tests/comm/test_comm_nccl $(BUILD)/hip/convoy: | $(FAKE_RCCL)
# It counts the sleeps of the queue's threads.
$(BUILD)/tests/comm/test_nccl_async: private LDFLAGS += -Wl,--wrap=clock_sleep_us
# The program looks for all of NVIDIA's libraries in one folder first.
NCCL_LIBS := $(BUILD)/tests/cuda/nccl/libnccl.so.2 $(if $(HAS_CUDA),$(BUILD)/tests/cuda/nccl/libcublasLt.so.13)
$(BUILD)/tests/cuda/nccl/libnccl.so.2: $(BUILD)/tests/comm/nccl/libnccl.so.2
$(BUILD)/tests/cuda/nccl/libcublasLt.so.13: $(BUILD)/tests/cuda/libcublasLt.so.13
$(NCCL_LIBS):
	@mkdir -p $(@D)
	@ln -f $< $@
$(BUILD)/tests/cuda/test_nccl_cuda $(BUILD)/tests/cuda/test_exact_nccl_cuda $(BUILD)/tests/cuda/test_copies_nccl_cuda: $(NCCL_LIBS)

# NVIDIA's own nccl.h, where it is installed beside CUDA's headers: tests/comm/test_nccl_header.c compares.
NCCL_HEADER := $(if $(HAS_CUDA),$(firstword $(wildcard $(CUDA_ROOT)/include/nccl.h /usr/local/cuda/include/nccl.h /usr/include/nccl.h)))
$(BUILD)/tests/comm/test_nccl_header: private CPPFLAGS += $(if $(NCCL_HEADER),-DHAS_NCCL_HEADER -isystem $(CUDA_ROOT)/include -isystem $(dir $(NCCL_HEADER)))
$(BUILD)/tests/comm/test_nccl_header: $(BUILD)/cuda.txt
