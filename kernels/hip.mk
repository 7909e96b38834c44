# AMD GPUs: the kernels of the same .cu files for gfx90a (MI250) and gfx942 (MI300X), by clang with HIP's headers and device libraries.
# Debian's packages do it (HIP_NEED); neither a driver nor a device is needed. HIP=1: built into the program, with CUDA or without it
# (CUDA=0); AMD's runtime is loaded when it is needed (src/dev/cuda/runtime_hip.c). HIP_ARCHS=gfx942: for one chip.
HIP ?= 0
HAS_HIP := $(filter 1,$(HIP))
HIP_NEED := clang-19 clang-tools-19 lld-19 llvm-19 libamdhip64-dev rocm-device-libs
HIPCXX ?= clang++-19
HIP_ARCHS ?= gfx90a gfx942
HIP_ROOT ?= /usr
HIP_BITCODE ?= $(firstword $(wildcard /usr/lib/*/amdgcn/bitcode $(HIP_ROOT)/amdgcn/bitcode))
HIP_LACKS = $(if $(shell command -v $(HIPCXX)),$(if $(wildcard $(HIP_ROOT)/include/hip/hip_runtime.h),$(if $(HIP_BITCODE),,there are no \
  device libraries (package rocm-device-libs)),there is no hip/hip_runtime.h (package libamdhip64-dev)),there is no $(HIPCXX))
HIP_CU := $(wildcard kernels/*.cu)
HIP_FLAGS = -x hip -std=c++17 -O3 -DCONVOY_HIP -Isrc -I. -fno-exceptions -fno-rtti -fPIE -Wall -Wextra $(if $(WERROR),-Werror) \
  --rocm-path=$(HIP_ROOT) --rocm-device-lib-path=$(BUILD)/hip/bitcode

# The device libraries of ROCm 5 end at gfx940, whose library serves gfx942, too: they differ in a number that nothing here reads.
$(BUILD)/hip/bitcode/made:
	$(if $(HIP_LACKS),$(error hip: $(HIP_LACKS): install $(HIP_NEED)))
	@mkdir -p $(@D) && ln -sf $(HIP_BITCODE)/*.bc $(@D)/
	@[ -e $(@D)/oclc_isa_version_942.bc ] || ln -s $(HIP_BITCODE)/oclc_isa_version_940.bc $(@D)/oclc_isa_version_942.bc
	@touch $@

# A code object, and the registers and memory of its kernels in the compiler's remarks.
define HIP_OBJECT
$(BUILD)/hip/$(1)/%.co: %.cu $(BUILD)/hip/bitcode/made
	@mkdir -p $$(@D)
	$$(HIPCXX) $$(HIP_FLAGS) --offload-arch=$(1) --cuda-device-only --no-gpu-bundle-output -Rpass-analysis=kernel-resource-usage -MMD -MP \
	  -MF $$(@:.co=.d) -MT $$@ -c -o $$@ $$< 2>$$(@:.co=.usage) || { cat $$(@:.co=.usage) >&2; rm -f $$@; false; }
endef
$(foreach a,$(HIP_ARCHS),$(eval $(call HIP_OBJECT,$(a))))
HIP_OBJECTS := $(foreach a,$(HIP_ARCHS),$(HIP_CU:%.cu=$(BUILD)/hip/$(a)/%.co))
-include $(HIP_OBJECTS:.co=.d)

# The launchers with the code of all chips, as one object. nvcc's objects have the same names: launchers are called x_hip instead
# of x_cuda, and all other names are local. In hip/test: for tests/hip/test_device.sh, quickly and for one chip.
define HIP_LAUNCHERS
$(BUILD)/hip/$(1)/%.o: %.cu $(BUILD)/hip/bitcode/made $(BUILD)/hip.txt
	@mkdir -p $$(@D)
	$$(HIPCXX) $$(HIP_FLAGS) $(2) $(3:%=--offload-arch=%) -cuid=$$(*F) -MMD -MP -c -o $$@ $$<
$(BUILD)/hip/$(1)/launchers.o: $(HIP_CU:%.cu=$(BUILD)/hip/$(1)/%.o)
	ld -r --force-group-allocation -o $$(@:.o=.all) $$^
	nm -g --defined-only $$(@:.o=.all) | sed -n 's/^.* T \([a-z0-9_]*\)_cuda$$$$/\1_cuda \1_hip/p' >$$(@:.o=.names)
	objcopy --redefine-syms=$$(@:.o=.names) $$(@:.o=.all) $$(@:.o=.renamed)
	objcopy --wildcard --keep-global-symbol='*_hip' $$(@:.o=.renamed) $$@
	@rm -f $$(@:.o=.all) $$(@:.o=.renamed)
-include $(HIP_CU:%.cu=$(BUILD)/hip/$(1)/%.d)
endef
$(eval $(call HIP_LAUNCHERS,host,,$(HIP_ARCHS)))
$(eval $(call HIP_LAUNCHERS,test,-O0,gfx90a))
OBJ += $(if $(HAS_HIP),$(BUILD)/hip/host/launchers.o)
HIP_USER := $(BUILD)/src/dev/cuda/runtime_hip.o
$(HIP_USER): CPPFLAGS += $(if $(HAS_HIP),-DCONVOY_HIP='"$(HIP_ARCHS)"')
$(HIP_USER) $(BUILD)/libconvoy.a: $(BUILD)/hip.txt
$(BUILD)/hip.txt: $(FORCE)
	@mkdir -p $(@D) && echo '$(if $(HAS_HIP),$(HIP_ARCHS),none)' | cmp -s - $@ || echo '$(if $(HAS_HIP),$(HIP_ARCHS),none)' >$@

.PHONY: hip isa
hip: $(HIP_OBJECTS)
# Compares registers, spills and shared memory of the kernels of AMD GPUs with the accepted table.
isa: hip
	@{ echo '# Of $(shell $(HIPCXX) --version | head -1). `make isa` writes this table; tests/hip/test_objects.sh compares the objects with it.' && \
	  tests/cuda/sass.pl remarks $(HIP_OBJECTS:.co=.usage); } >$(BUILD)/isa.new
	@tests/cuda/sass.pl compare tests/hip/isa.tsv $(BUILD)/isa.new || echo 'isa: look at the lines above before you commit the table'
	@mv $(BUILD)/isa.new tests/hip/isa.tsv
