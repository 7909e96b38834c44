# CUDA in the one executable: built in when nvcc is found. CUDA=1: an error without nvcc; CUDA=0: left out (the default with
# sanitizers). `make run` and `make test` set it by the GPUs that are there (CUDA_HERE). Machine code for sm_80, sm_90a, sm_100, and PTX
# for newer chips; CUDA_ARCHS=90a: for one chip only. The runtime is linked statically, NVIDIA's other libraries are loaded when they
# are needed (src/dev/nvidia/library.h), so the program also starts without a driver. NVCC=/usr/local/cuda-12.8/bin/nvcc: of that toolkit, for
# drivers from 525 on; toolkits 13 need driver 580 (docs/gpu.md).
CUDA_GIVEN := $(filter-out undefined,$(origin CUDA) $(origin CUDA_ARCHS))
CUDA ?= $(if $(SAN),0)
NVCC ?= $(firstword $(wildcard $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
CUDA_ARCHS ?= 80 90a 100
CUDA_ROOT := $(abspath $(dir $(NVCC))..)
CUDART := $(firstword $(wildcard $(foreach l,lib64 lib/x86_64-linux-gnu targets/x86_64-linux/lib,$(CUDA_ROOT)/$(l)/libcudart_static.a)))
CUDA_LACKS :=
ifneq ($(CUDA),0)
ifeq ($(NVCC),)
CUDA_LACKS := there is no nvcc (package cuda-nvcc-13-0 of NVIDIA)
else ifeq ($(filter sm_100,$(shell $(NVCC) --list-gpu-code 2>/dev/null)),)
CUDA_LACKS := $(NVCC) does not know sm_100: it is older than 12.8
else ifeq ($(CUDART),)
CUDA_LACKS := there is no libcudart_static.a under $(CUDA_ROOT) (package cuda-cudart-dev-13-0)
else ifeq ($(wildcard $(CUDA_ROOT)/include/cublasLt.h),)
CUDA_LACKS := there is no cublasLt.h under $(CUDA_ROOT)/include (package libcublas-dev-13-0)
endif
ifneq ($(CUDA_LACKS),)
ifeq ($(CUDA),1)
$(error CUDA=1: $(CUDA_LACKS))
endif
endif
endif
# For `make run` and `make test`, which should not compile for minutes what this machine cannot run: CUDA for the GPUs that are
# there, and none without a GPU. A build folder that has CUDA keeps its chips, and CUDA=… or CUDA_ARCHS=… of the user decides first.
ARCHS_BUILT = $(shell grep -o 'code=sm_[0-9a]*' $(BUILD)/cuda.txt 2>/dev/null | sed 's/code=sm_//')
ARCHS_HERE = $(patsubst 8.%,80,$(patsubst 9.%,90a,$(patsubst 1%,100,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null))))
ARCHS_PICKED = $(filter $(or $(ARCHS_BUILT),$(ARCHS_HERE)),80 90a 100)
CUDA_HERE = $(if $(CUDA_GIVEN),,$(if $(ARCHS_PICKED),CUDA_ARCHS='$(ARCHS_PICKED)',CUDA=0))
HAS_CUDA := $(if $(filter 0,$(CUDA))$(CUDA_LACKS),,1)
CUDA_PTX := $(filter 100,$(CUDA_ARCHS))
# What a release file is called after: cuda12 or cuda13.
CUDA_MAJOR = $(firstword $(subst ., ,$(NVCC_VERSION)))
CUDA_NAME = $(if $(HAS_CUDA),cuda$(CUDA_MAJOR))
CUDA_ABOUT := $(if $(HAS_CUDA),$(CUDA_ARCHS:%=sm_%)$(CUDA_PTX:%= PTX %))

ifeq ($(HAS_CUDA),1)
CU := $(wildcard kernels/*.cu)
OBJ += $(CU:%.cu=$(BUILD)/%_cu.o)
LDLIBS += $(CUDART)
CUDA_STATIC := $(CUDART)
NVCC_VERSION := $(shell $(NVCC) --version | sed -n 's/.*release.*, V//p')
# Drivers before 550 cannot read the smaller form of compression, and a build of 12 is for them, too.
NVFLAGS := -std=c++17 -O3 -Isrc -I. $(if $(WERROR),-Werror all-warnings) \
  $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) $(foreach a,$(CUDA_PTX),-gencode arch=compute_$(a),code=compute_$(a)) \
  $(if $(filter-out 12,$(CUDA_MAJOR)),--compress-mode=size) -Xcompiler -fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fPIE
$(BUILD)/%_cu.o: %.cu $(BUILD)/cuda.txt
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) -MMD -MP -c -o $@ $<
endif

# The C files that include CUDA's headers; rebuilt when CUDA is turned on or off.
CUDA_USERS := src/dev/cuda/driver.c src/dev/cuda/runtime_cuda.c
$(CUDA_USERS:%.c=$(BUILD)/%.o): CPPFLAGS += $(if $(HAS_CUDA),-DCONVOY_CUDA='"$(CUDA_ABOUT)"' -isystem $(CUDA_ROOT)/include)
$(CUDA_USERS:%.c=$(BUILD)/%.o) $(BUILD)/libconvoy.a: $(BUILD)/cuda.txt
# It has no path, so a tree that is moved or copied is not built again.
CUDA_MADE := $(if $(HAS_CUDA),nvcc $(NVCC_VERSION) $(filter-out -Werror all-warnings,$(NVFLAGS)),none)
$(BUILD)/cuda.txt: $(FORCE)
	@mkdir -p $(@D) && echo '$(CUDA_MADE)' | cmp -s - $@ || { echo '$(CUDA_MADE)' >$@; \
	  echo 'cuda: $(if $(HAS_CUDA),$(NVCC) $(CUDA_ABOUT),left out$(if $(CUDA_LACKS),: $(CUDA_LACKS)))'; }

# Tests of the CUDA device, over the tests' own runtime and cuBLASLt (tests/cuda/guarded.h).
GUARDED := $(patsubst %,$(BUILD)/tests/cuda/test_%_cuda,architectures bench blas check clocks step_async copies_nccl curve cudnn cudnn_compare dev device divided exact_nccl graph nccl ops rank_graphs ranks recompute sentinel step times trainer)
GUARDED += $(patsubst %,$(BUILD)/tests/cuda/test_%_cuda,alignment blas_rules plans products tune)
$(GUARDED): private CPPFLAGS += $(if $(HAS_CUDA),-DCONVOY_CUDA -isystem $(CUDA_ROOT)/include)
$(GUARDED): $(BUILD)/cuda.txt $(if $(HAS_CUDA),$(BUILD)/tests/cuda/libcublasLt.so.13 $(BUILD)/tests/cuda/libcudnn_graph.so.9)
$(BUILD)/tests/cuda/libcublasLt.so.13: tests/cuda/fake_blas.c tests/cuda/fake_blas.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -fPIC -shared $(WARN) -isystem $(CUDA_ROOT)/include -o $@ $< -lm
$(BUILD)/tests/cuda/libcudnn_graph.so.9: tests/cuda/fake_cudnn.c tests/cuda/fake_cudnn_run.c tests/cuda/fake_cudnn.h src/dev/cudnn/abi.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -fPIC -shared -fvisibility=hidden $(WARN) -Isrc -o $@ $(filter %.c,$^) -lm
# Planted bugs are compiled by tests/cuda/test_wait_mutants.sh.
$(BUILD)/tests/cuda/test_clocks_cuda: private CPPFLAGS += -DCUDA_INCLUDE='"$(CUDA_ROOT)/include"'
# Under the driver's name, by which the program finds a library that is loaded already.
$(BUILD)/tests/cuda/driver/libcuda.so.1: tests/cuda/fake_driver.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -fPIC -shared $(filter-out -Wmissing-prototypes,$(WARN)) -Wl,-soname,$(@F) -isystem $(CUDA_ROOT)/include -o $@ $<
$(BUILD)/tests/cuda/test_dev_cuda $(BUILD)/tests/cuda/test_device_cuda: $(if $(HAS_CUDA),$(BUILD)/tests/cuda/driver/libcuda.so.1)
# The real cuDNN, where the toolkit's folder or the loader has it.
$(BUILD)/tests/cuda/test_cudnn_real_cuda: private CPPFLAGS += $(if $(HAS_CUDA),-DCONVOY_CUDA -DCUDA_LIBS='"$(dir $(firstword $(wildcard $(CUDA_ROOT)/lib64/libnvrtc.so.13 $(CUDART))))."' -isystem $(CUDA_ROOT)/include)
$(BUILD)/tests/cuda/test_cudnn_real_cuda: $(BUILD)/cuda.txt

# What nvcc made of the kernels (registers, spills, blocks of a multiprocessor …) beside the table of what was accepted. NVIDIA's
# disassembler comes from PyPI, where the oldest version for CUDA 13 is 13.2; it reads what any nvcc 13 makes.
SASS_WHEELS := nvidia-cuda-cuobjdump==13.2.51 nvidia-cuda-nvdisasm==13.2.51
SASS_GET = .ci/extras $(BUILD) --wheels $(BUILD)/disassembler $(SASS_WHEELS)
.PHONY: sass
sass: $(CU:%.cu=$(BUILD)/%_cu.o)
	$(if $(HAS_CUDA),,$(error sass: $(or $(CUDA_LACKS),CUDA=0 leaves CUDA out)))
	@$(SASS_GET)
	@{ echo '# Of nvcc $(NVCC_VERSION). `make sass` writes this table; tests/cuda/test_sass.pl compares the objects with it.' && \
	  PATH=$(abspath $(BUILD))/disassembler/nvidia/cu13/bin:$$PATH tests/cuda/sass.pl read tests/cuda/sass_launch.tsv $^; } >$(BUILD)/sass.new
	@tests/cuda/sass.pl compare tests/cuda/sass.tsv $(BUILD)/sass.new || echo 'sass: look at the lines above before you commit the table'
	@mv $(BUILD)/sass.new tests/cuda/sass.tsv

# The kernels by a second front end: clang makes PTX of them, which NVIDIA's assembler has to accept. Nothing is linked or run. clang 22
# is the oldest that can read the headers of CUDA 13; it calls 13.0 newer than it knows.
CLANG_CUDA ?= clang-22
PTX_ARCH := sm_80
PTX_FLAGS := -x cuda --cuda-device-only --cuda-gpu-arch=$(PTX_ARCH) --cuda-path=$(CUDA_ROOT) -std=c++17 -O2 -S -Isrc -I. \
  -include tests/cuda/clang_ptx.h -Wall -Wextra $(if $(WERROR),-Werror) -Wno-unknown-cuda-version
.PHONY: ptx
ptx: $(CU:%.cu=$(BUILD)/ptx/%.cubin)
	$(if $(HAS_CUDA),,$(error ptx: $(or $(CUDA_LACKS),CUDA=0 leaves CUDA out)))
$(BUILD)/ptx/%.ptx: %.cu
	@mkdir -p $(@D)
	$(CLANG_CUDA) $(PTX_FLAGS) -MMD -MP -MF $(@:.ptx=.d) -MT $@ -o $@ $<
$(BUILD)/ptx/%.cubin: $(BUILD)/ptx/%.ptx
	$(CUDA_ROOT)/bin/ptxas -arch=$(PTX_ARCH) -o $@ $<
-include $(CU:%.cu=$(BUILD)/ptx/%.d)
