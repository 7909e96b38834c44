# containers_lib — images and containers on this machine, by podman, for tests. Source it behind lib.sh. The base image is made
# by debootstrap from the package source that this machine uses, so nothing but that is needed; it is kept in the build folder.
store=${STORE:-$root/build/containers}
base_image=localhost/convoy-base
image=localhost/convoy-test
limits="--ulimit nofile=1024:1024 --ulimit nproc=4096:4096" # podman's own are above what a container's root may set

# begin_store — podman with a store of its own. Fails, with the reason in $why, where containers cannot be had.
begin_store() {
    [ "$(id -u)" = 0 ] || { why="needs root"; return 1; }
    sh "$root/.ci/need" podman runc debootstrap jq curl >out 2>err || { why="podman cannot be installed: $(tail -n 1 err)"; return 1; }
    mkdir -p "$store"
    cat >containers.conf <<EOF
[containers]
default_ulimits = []
pids_limit = 0
EOF
    export CONTAINERS_CONF=$tmp/containers.conf
    podman info >out 2>err || { why="podman does not work here: $(tail -n 1 err)"; return 1; }
}
podman() {
    command podman --root "$store/root" --runroot "$store/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"
}

# give_commands — docker and podman as README.md writes them, in $tmp/bin: podman with this store, and what a machine without special
# rights wants. docker compose is podman-compose, with names by Debian's dnsname.
give_commands() {
    sh "$root/.ci/need" podman-compose golang-github-containernetworking-plugin-dnsname dnsmasq-base iptables >out 2>err ||
        { why="podman-compose cannot be installed: $(tail -n 1 err)"; return 1; }
    mkdir -p bin
    cat >bin/podman <<EOF
#!/bin/bash
flags="--root $store/root --runroot $store/run --storage-driver vfs --cgroup-manager cgroupfs --runtime runc"
more=
case \$1 in
build) more="--isolation chroot --network host --format docker $limits" ;;
run | create) more="$limits" ;;
esac
command=\$1
shift
PATH=\${PATH#$tmp/bin:} exec podman \$flags "\$command" \$more "\$@"
EOF
    cat >bin/docker <<EOF
#!/bin/bash
[ "\$1" = compose ] || exec podman "\$@"
shift
exec podman-compose "\$@"
EOF
    chmod +x bin/podman bin/docker
}

# make_base — a Debian with a compiler's worth of packages, as its own image; once.
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

# make_image — the target cpu of the Dockerfile, from that base.
make_image() {
    podman build --isolation chroot --network host $limits --format docker -q \
        --build-arg CPU_BASE=$base_image --build-arg COMMIT="$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" \
        --target cpu -t $image "$root" >out 2>err || { why="the image cannot be built: $(cat out err | tail -n 3)"; return 1; }
}
