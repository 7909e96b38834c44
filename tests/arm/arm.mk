# The tests of kernels and sums for aarch64, by a cross compiler: each one static program, with tests/arm/cmocka.h in place of the
# library. tests/arm/test_neon.sh makes them with CC=aarch64-linux-gnu-gcc and runs them under qemu-user.
ARM_TESTS := $(patsubst tests/%.c,$(BUILD)/arm/%,$(wildcard tests/kernels/test_*.c tests/unit/kernels/*.c) tests/comm/test_sum.c)
ARM_SRC := $(patsubst %,src/base/%.c,arena assert cgroup clock file isa log memory rand status text thread_pool) \
  $(patsubst %,src/dev/%.c,dev dev_check cpu/cpu cpu/isa op_cost) $(patsubst %,src/comm/core/%.c,sum)
ARM_OBJ := $(ARM_SRC:%.c=$(BUILD)/%.o) $(filter $(BUILD)/kernels/% $(BUILD)/src/comm/core/sum_cpu%,$(OBJ))

.PHONY: arm-tests
arm-tests: $(ARM_TESTS)
# Of json.o only what needs no library of JSON is linked: each function is a section, and those without a caller are left out.
$(BUILD)/arm/json.o: src/base/json.c $(BUILD)/flags.txt
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -ffunction-sections -MMD -MP -c -o $@ $<
$(BUILD)/arm/lib.a: $(ARM_OBJ) $(BUILD)/arm/json.o
	@mkdir -p $(@D)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/arm/%: tests/%.c $(BUILD)/arm/lib.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/arm -Itests $(CFLAGS) -static -Wl,--gc-sections -MMD -MP -o $@ $< $(BUILD)/arm/lib.a -lm -pthread
-include $(ARM_TESTS:=.d)
