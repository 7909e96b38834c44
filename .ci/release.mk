# `make release`: one stripped executable that needs only libc, libm and the loader; everything else is inside. Its copy in DIST is
# called after the CUDA that is in it: -cuda12 runs on drivers from 525 on (NVCC=/usr/local/cuda-12.8/bin/nvcc), -cuda13 from 580 on.
# GLIBC_FLOOR: no symbol of a newer C library may be needed. The same commit and packages give the same bytes in any folder.
RELEASE := $(BUILD)/release
GLIBC_FLOOR ?= 2.34
NEED_RELEASE := binutils dpkg-dev patch libibverbs-dev libnl-3-dev libnl-route-3-dev libnuma-dev zlib1g-dev perl

# UCX's parts register themselves from constructors, so all of them are linked; libucs is first because its own must run
# before ours, which take the signals back (comm/ucx/setup.c).
UCX_STATIC := -Wl,--whole-archive -lucs -luct -lucm -luct_cma -luct_ib -lucp -Wl,--no-whole-archive
LIBS_STATIC = -Wl,-Bstatic -Wl,--start-group -levent_extra -levent_openssl -levent_core -lssl -lcrypto -lutf8proc -lpcre2-8 -lxxhash -lzstd \
  -libverbs -lmlx5 -l:librxe-rdmav34.a -lnl-route-3 -lnl-3 -lnuma $(CUDA_STATIC) -Wl,--end-group -Wl,-Bdynamic

$(BUILD)/static/done: .ci/static
	.ci/static $(BUILD)/static

# What `convoy version` says of libraries that cannot be asked, and the licences of all that is inside.
$(RELEASE)/linked.h: $(BUILD)/static/done .ci/release.mk .ci/licences
	@mkdir -p $(@D)
	.ci/licences $(BUILD)/static/doc $(RELEASE)

$(RELEASE)/version.o: src/base/version.c $(BUILD)/version.txt $(RELEASE)/linked.h
	$(CC) $(CPPFLAGS) -DCONVOY_VERSION='"$(VERSION)"' -DCONVOY_COMMIT='"$(COMMIT)"' -DCONVOY_DATE='"$(DATE)"' -include $(RELEASE)/linked.h $(CFLAGS) -c -o $@ $<

$(RELEASE)/convoy: $(BUILD)/src/main.o $(RELEASE)/version.o $(BUILD)/libconvoy.a $(BUILD)/static/done .ci/release.mk .ci/gates
	$(CC) $(LDFLAGS) -Wl,--gc-sections -Wl,--build-id=none -L$(shell pkg-config --variable=libdir ucx)/ucx -o $(RELEASE)/linked \
	  -Wl,-Bstatic $(UCX_STATIC) -Wl,-Bdynamic $(BUILD)/src/main.o $(RELEASE)/version.o $(BUILD)/src/base/arc4random.o \
	  $(BUILD)/src/comm/ucx/providers.o $(BUILD)/libconvoy.a $(BUILD)/static/lib/libcurl.a $(BUILD)/static/lib/libcjson.a $(LIBS_STATIC) -lm
	strip -s -o $@.new $(RELEASE)/linked
	.ci/gates $@.new $(GLIBC_FLOOR)
	mv $@.new $@

.PHONY: release
release:
	@sh .ci/need $(NEED) $(NEED_RELEASE)
	@$(MAKE) --no-print-directory -s -j$$(nproc) $(RELEASE)/convoy
	@mkdir -p $(DIST)
	@$(SUMS)
	@ls -l $(RELEASE)/convoy
