# containers_lib — images and containers on this machine, with podman, for tests. Source it after lib.sh. Base images are made
# by debootstrap from this machine's package source; NVIDIA's toolkit and libraries come from PyPI's packages (`make
# containers` gets them). Everything is kept in a cache folder of the user ($STORE). One run at a time uses it.
store=${STORE:-$user_cache/convoy-tests}
base_image=localhost/convoy-base
image=localhost/convoy-test
limits="--ulimit nofile=1024:1024 --ulimit nproc=4096:4096" # podman's own are above what a container's root may set
commit=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

# begin_store — podman with a store of its own. Fails, with the reason in $why, where containers cannot be had.
begin_store() {
    [ "$(id -u)" = 0 ] || { why="needs root"; return 1; }
    there podman runc debootstrap || { why="podman, runc and debootstrap are not all here; \`make containers\` installs them"; return 1; }
    mkdir -p "$store" mnt/{lower,upper,work,all}
    exec 8>"$store/lock"
    flock -n 8 || { why="another run uses $store"; return 1; }
    driver=vfs # overlay is not always allowed inside a container
    if mount -t tmpfs none mnt 2>/dev/null; then
        mkdir -p mnt/{lower,upper,work,all}
        mount -t overlay none -o lowerdir=mnt/lower,upperdir=mnt/upper,workdir=mnt/work mnt/all 2>/dev/null && driver=overlay && umount mnt/all
        umount mnt
    fi
    cat >containers.conf <<END
[containers]
default_ulimits = []
pids_limit = 0
END
    export CONTAINERS_CONF=$tmp/containers.conf
    podman info >out 2>err || { why="podman does not work here: $(tail -n 1 err)"; return 1; }
}
podman() { # $first: what starts it, as nice
    ${first:-command} podman --root "$store/$driver" --runroot "$store/run" --storage-driver $driver --cgroup-manager cgroupfs --runtime runc "$@" 8>&-
}
# end_store — remove containers and their volumes; images stay, except layers of another day.
end_store() {
    podman rm -f -a -v -t 0
    podman volume prune -f
    podman image prune -f --filter until=24h
} >/dev/null 2>&1

# give_commands — docker and podman as README.md writes them, in $tmp/bin: podman with this store, and what a machine without special
# rights wants. docker compose is podman-compose, with names by Debian's dnsname.
give_commands() {
    there podman-compose dnsmasq iptables || { why="podman-compose, dnsmasq and iptables are not all here; \`make containers\` installs them"; return 1; }
    mkdir -p bin
    cat >bin/podman <<END
#!/bin/bash
flags="--root $store/$driver --runroot $store/run --storage-driver $driver --cgroup-manager cgroupfs --runtime runc"
more=
case \$1 in
build) more="--isolation chroot --network host --format docker $limits" ;;
run | create) more="$limits" ;;
esac
command=\$1
shift
PATH=\${PATH#$tmp/bin:} exec podman \$flags "\$command" \$more "\$@" 8>&-
END
    cat >bin/docker <<END
#!/bin/bash
[ "\$1" = compose ] || exec podman "\$@"
shift
exec podman-compose "\$@"
END
    chmod +x bin/podman bin/docker
}

# make_base — a Debian, as its own image; once.
make_base() {
    podman image exists $base_image && return 0
    local mirror suite rootfs=$store/rootfs
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    rm -rf "$rootfs"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$rootfs" "$mirror" >out 2>err || { why="debootstrap: $(tail -n 1 out)"; return 1; }
    # What lets this machine reach its packages: sources, settings, certificates.
    rm -f "$rootfs/etc/apt/sources.list"
    cp -r /etc/apt/. "$rootfs/etc/apt/"
    cp /etc/ssl/certs/ca-certificates.crt "$rootfs/etc/ssl/certs/"
    rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/usr/share/man "$rootfs"/usr/share/locale
    tar -C "$rootfs" -c . | podman import -q - $base_image >out 2>err || { why="podman import: $(tail -n 1 err)"; return 1; }
    rm -rf "$rootfs"
}

# build_image TARGET TAG FLAG… — a target of the Dockerfile. Layers that did not change are taken from the last time.
build_image() {
    podman build --isolation chroot --network host $limits --format docker -q --target "$1" -t "$2" --build-arg COMMIT="$commit" \
        "${@:3}" "$root" >out 2>err || { why="the image cannot be built: $(cat out err | tail -n 3)"; return 1; }
}
make_image() { build_image cpu $image --build-arg CPU_BASE=$base_image; }

# within WORD… — the image in a container locked up as far as it goes, with $flags, to its end; $rc, out, err.
flags=
within() {
    rc=0
    podman run --rm $limits --no-healthcheck --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges $flags $image "$@" >out 2>err || rc=$?
}

# ---- for the target gpu

# get_wheels — PyPI's packages of NVIDIA, which `make containers` unpacked in $store/nvidia.
get_wheels() { [ -f "$store/nvidia/done" ] || { why="no packages of NVIDIA in $store/nvidia; \`make containers\` gets them"; return 1; }; }

# make_cuda_base — the Debian with the toolkit where NVIDIA's images have it; without cuBLAS's own code, which is not linked.
make_cuda_base() {
    podman image exists $base_image-cuda && return 0
    get_wheels || return 1
    local folder=$store/toolkit
    rm -rf "$folder"
    mkdir -p "$folder/targets/x86_64-linux"
    cp -rl "$store/nvidia/nvidia/cu13/." "$folder/"
    rm -f "$folder"/lib/libcublas* "$folder"/lib/libnvblas*
    ln -s lib "$folder/lib64"
    ln -s ../../include ../../lib "$folder/targets/x86_64-linux/"
    printf 'FROM %s\nCOPY . /usr/local/cuda\n' $base_image >cuda.build
    podman build --isolation chroot $limits --format docker -q -f cuda.build -t $base_image-cuda "$folder" >out 2>err ||
        { why="the base with CUDA cannot be built: $(tail -n 1 err)"; return 1; }
    rm -rf "$folder"
}

# pack NAME VERSION FOLDER FILE… — a Debian package that has these files in FOLDER, in $store/packages.
pack() {
    local top=$store/pack name=$1 version=$2 folder=$3
    shift 3
    rm -rf "$top"
    mkdir -p "$top/DEBIAN" "$top$folder" "$store/packages"
    cp -l "$@" "$top$folder/"
    printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: tests\nDescription: of PyPI, for a test\n' "$name" "$version" >"$top/DEBIAN/control"
    echo "activate-noawait ldconfig" >"$top/DEBIAN/triggers"
    dpkg-deb -Znone --root-owner-group -b "$top" "$store/packages/$name.deb" >out 2>err || { why="dpkg-deb: $(tail -n 1 err)"; return 1; }
    rm -rf "$top"
    (cd "$store/packages" && dpkg-deb -f $name.deb && printf 'Filename: ./%s.deb\nSize: %s\nSHA256: %s\n\n' $name "$(stat -c %s $name.deb)" \
        "$(sha256sum $name.deb | cut -d ' ' -f 1)") >"$store/packages/$name.entry"
}
# make_run_base — the Debian with a source of packages like NVIDIA's: cuBLAS, NCCL, cuDNN and NVRTC, which it does not hold itself, and
# what NVIDIA's bases tell the loader. The source is in $store/packages, to be mounted at /opt/packages while the image is built.
make_run_base() {
    get_wheels || return 1
    if [ ! -f "$store/packages/Packages" ]; then
        rm -rf "$store/packages"
        pack libcublas-13-0 13.0.2.14-1 /usr/local/cuda-13.0/targets/x86_64-linux/lib "$store"/nvidia/nvidia/cu13/lib/libcublas{,Lt}.so.13 &&
            pack libnccl2 2.28.9-1+cuda13.0 /usr/lib/x86_64-linux-gnu "$store"/nvidia/nvidia/nccl/lib/libnccl.so.2 &&
            pack libcudnn9-cuda-13 9.19.0.56-1 /usr/lib/x86_64-linux-gnu "$store"/nvidia/nvidia/cudnn/lib/libcudnn*.so.9 &&
            pack cuda-nvrtc-13-0 13.0.88-1 /usr/local/cuda-13.0/targets/x86_64-linux/lib "$store"/nvidia/nvidia/cu13/lib/libnvrtc*.so.13* || return 1
        cat "$store"/packages/*.entry >"$store/packages/Packages"
    fi
    podman image exists $base_image-run && return 0
    mkdir -p run-base
    echo "deb [trusted=yes] file:/opt/packages ./" >run-base/nvidia.list
    echo /usr/local/cuda-13.0/targets/x86_64-linux/lib >run-base/cuda.conf
    printf 'FROM %s\nCOPY nvidia.list /etc/apt/sources.list.d/\nCOPY cuda.conf /etc/ld.so.conf.d/\nENV NVIDIA_REQUIRE_CUDA=cuda>=13.0\n' $base_image >run.build
    podman build --isolation chroot $limits --format docker -q -f run.build -t $base_image-run run-base >out 2>err ||
        { why="the base to run in cannot be built: $(tail -n 1 err)"; return 1; }
}
