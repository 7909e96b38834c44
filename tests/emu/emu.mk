# CUDA kernels on the host: every kernels/*.cu compiled by g++ against the emulation in tests/emu, and their tests,
# tests/cuda/test_*.c. Not with the thread sanitizer: there is one thread, and it switches stacks.
EMU_CU := $(wildcard kernels/*.cu tests/cuda/*.cu)
EMU_OBJ := $(EMU_CU:%.cu=$(BUILD)/emu/%.o) $(BUILD)/emu/tests/emu/emu.o $(BUILD)/emu/tests/emu/emu_tensor.o
EMU_FLAGS := -std=c++17 -O2 -g -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-math-errno -fPIE -Isrc -I. -Wall -Wextra \
  $(if $(WERROR),-Werror) -Wshadow -Wno-unknown-pragmas $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
TESTS := $(if $(filter thread,$(SAN)),$(filter-out $(BUILD)/tests/cuda/%,$(TESTS)),$(TESTS))

$(BUILD)/emu/%.o: %.cu
	@mkdir -p $(@D)
	g++ $(EMU_FLAGS) -MMD -MP -include tests/emu/emu.h -x c++ -c -o $@ $<
$(BUILD)/emu/%.o: %.cc
	@mkdir -p $(@D)
	g++ $(EMU_FLAGS) -O3 -MMD -MP -c -o $@ $<

$(BUILD)/libemu.a: $(EMU_OBJ)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/tests/cuda/%: tests/cuda/%.c $(BUILD)/libemu.a $(BUILD)/libconvoy.a | $(STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -Itests/kernels $(CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(STAMP) $(BUILD)/libemu.a $(BUILD)/libconvoy.a \
	  -lcmocka $(LDLIBS)
-include $(EMU_OBJ:.o=.d)
