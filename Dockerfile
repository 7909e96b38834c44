# Three images of one executable. `cpu` has nothing but that, the C library and certificates; `gpu` has NVIDIA's libraries too; `rocm`
# has code for AMD GPUs and AMD's runtime (nothing of it has run on such a GPU: docs/gpu.md).
#   docker build --target cpu -t convoy:cpu .
#   docker build -t convoy:cuda13 .                                                        drivers from 580 on
#   docker build --build-arg CUDA_MAJOR=12 --build-arg CUDA_MINOR=8 -t convoy:cuda12 .     drivers from 525 on
#   docker build --target rocm -t convoy:rocm .                                            MI250; for MI300X see docs/deploy.md
# The bases are arguments: any Debian or Ubuntu for CPU_BASE, any with CUDA for BUILD_BASE and RUN_BASE. COMMIT is told by `convoy version`.
ARG CUDA_MAJOR=13
ARG CUDA_MINOR=0
ARG CPU_BASE=debian:bookworm
ARG BUILD_BASE=nvidia/cuda:${CUDA_MAJOR}.${CUDA_MINOR}.1-devel-ubuntu24.04
ARG ROCM_BASE=debian:bookworm
ARG RUN_BASE=nvidia/cuda:${CUDA_MAJOR}.${CUDA_MINOR}.1-base-ubuntu24.04

# ---- cpu: built
FROM ${CPU_BASE} AS build-cpu
WORKDIR /convoy
COPY Makefile ./
COPY .ci/ .ci/
# What changes seldom comes first, and is not made again for every change of the source.
# hadolint ignore=SC2046
RUN sh .ci/need $(sed -n 's/^NEED\(_RELEASE\)* := //p' Makefile .ci/release.mk) ca-certificates && .ci/static build/static
COPY . .
ARG COMMIT=unknown
ARG GLIBC_FLOOR=2.39
RUN make release CUDA=0 COMMIT="$COMMIT" GLIBC_FLOOR="$GLIBC_FLOOR" && .ci/rootfs build/release /image

# ---- cpu: shipped
FROM scratch AS cpu
COPY --from=build-cpu /image/ /
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Convoy" \
      org.opencontainers.image.description="Trains language models (GPT-2, Llama, Qwen, GPT-NeoX) on one machine or many, on CPUs" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV CHECKPOINT_DIR=/checkpoints
USER 65532:65532
WORKDIR /checkpoints
VOLUME ["/data", "/checkpoints"]
EXPOSE 8080 1234
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["/usr/bin/convoy", "status"]
ENTRYPOINT ["/usr/bin/convoy"]
CMD ["train"]

# ---- rocm: built, with HIP's headers and clang 19 of Debian 12 or newer
FROM ${CPU_BASE} AS build-rocm
WORKDIR /convoy
COPY Makefile ./
COPY .ci/ .ci/
COPY kernels/hip.mk kernels/
# hadolint ignore=SC2046
RUN sh .ci/need $(sed -n 's/^\(NEED\(_RELEASE\)*\|HIP_NEED\) := //p' Makefile .ci/release.mk kernels/hip.mk) ca-certificates && \
    .ci/static build/static
COPY . .
ARG COMMIT=unknown
ARG GLIBC_FLOOR=2.39
RUN make release CUDA=0 HIP=1 COMMIT="$COMMIT" GLIBC_FLOOR="$GLIBC_FLOOR" && .ci/rootfs build/release /image

# ---- rocm: shipped. ROCM_BASE is any image with glibc as new as CPU_BASE's, ROCM_PACKAGES the packages to add: Debian's runtime 5.2.3
# does not know MI300X.
FROM ${ROCM_BASE} AS rocm
ARG ROCM_PACKAGES=libamdhip64-5
# hadolint ignore=DL3008,SC2086
RUN apt-get update && apt-get install -y --no-install-recommends $ROCM_PACKAGES ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build-rocm /image/usr/bin/convoy /usr/bin/convoy
COPY --from=build-rocm /image/usr/share/doc/convoy/ /usr/share/doc/convoy/
COPY --from=build-rocm /image/usr/share/convoy/ /usr/share/convoy/
COPY --from=build-rocm --chown=65532:65532 /image/data /data
COPY --from=build-rocm --chown=65532:65532 /image/checkpoints /checkpoints
COPY entrypoint /entrypoint
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Convoy" \
      org.opencontainers.image.description="Trains language models (GPT-2, Llama, Qwen, GPT-NeoX) on one machine or many, on AMD GPUs" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV CHECKPOINT_DIR=/checkpoints DEVICE=hip
USER 65532:65532
WORKDIR /checkpoints
VOLUME ["/data", "/checkpoints"]
EXPOSE 8080 1234
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["/usr/bin/convoy", "status"]
ENTRYPOINT ["/entrypoint"]
CMD ["train"]

# ---- gpu: built
FROM ${BUILD_BASE} AS build-gpu
WORKDIR /convoy
COPY Makefile ./
COPY .ci/ .ci/
# hadolint ignore=SC2046
RUN sh .ci/need $(sed -n 's/^NEED\(_RELEASE\)* := //p' Makefile .ci/release.mk) g++ ca-certificates && .ci/static build/static
COPY . .
ARG COMMIT=unknown
ARG GLIBC_FLOOR=2.39
RUN make release CUDA=1 COMMIT="$COMMIT" GLIBC_FLOOR="$GLIBC_FLOOR" && .ci/rootfs build/release /image

# ---- gpu: shipped. cuBLAS, NCCL and cuDNN, which compiles kernels with NVRTC, come from NVIDIA's package source, which the base knows.
# It has NCCL for several versions of CUDA under one name.
FROM ${RUN_BASE} AS gpu
ARG CUDA_MAJOR
ARG CUDA_MINOR
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends "libcublas-$CUDA_MAJOR-$CUDA_MINOR" "libnccl2=*+cuda$CUDA_MAJOR.?" \
      "libcudnn9-cuda-$CUDA_MAJOR" "cuda-nvrtc-$CUDA_MAJOR-$CUDA_MINOR" ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build-gpu /image/usr/bin/convoy /usr/bin/convoy
COPY --from=build-gpu /image/usr/share/doc/convoy/ /usr/share/doc/convoy/
COPY --from=build-gpu /image/usr/share/convoy/ /usr/share/convoy/
COPY --from=build-gpu --chown=65532:65532 /image/data /data
COPY --from=build-gpu --chown=65532:65532 /image/checkpoints /checkpoints
COPY entrypoint /entrypoint
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Convoy" \
      org.opencontainers.image.description="Trains language models (GPT-2, Llama, Qwen, GPT-NeoX) on one machine or many, on NVIDIA GPUs" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.licenses="Apache-2.0"
# The base asks for the driver of its own minor version of CUDA, which is more than the program needs.
ENV CHECKPOINT_DIR=/checkpoints NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility MELLANOX_VISIBLE_DEVICES=all \
    NVIDIA_REQUIRE_CUDA=cuda>=${CUDA_MAJOR}.0
USER 65532:65532
WORKDIR /checkpoints
VOLUME ["/data", "/checkpoints"]
EXPOSE 8080 1234
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["/usr/bin/convoy", "status"]
ENTRYPOINT ["/entrypoint"]
CMD ["train"]
