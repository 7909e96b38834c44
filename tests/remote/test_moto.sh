#!/bin/bash
# test_moto — buckets of moto's server, an implementation of S3 by others, which checks signatures and permissions: list, put, get,
# multipart, delete, keys of every kind, wrong keys. And the rates of uploads and downloads beside curl's with as many connections.
# `make test-all` installs moto; `make s3-check` runs this test only, with more data.
. "$(dirname "$0")/../e2e/lib.sh"
moto=$root/${BUILD:-build}/moto
case ${BUILD:-build} in /*) moto=$BUILD/moto ;; esac
[ -x "$moto/bin/moto_server" ] || give_up "buckets of moto" "not installed here; \`make test-all\` installs it"
client=$(dirname "$convoy")/tests/remote/test_s3
unset "${!AWS_@}"
export AWS_EC2_METADATA_DISABLED=true HOME=$tmp

# s3 ARGUMENT… — the test program; $rc, files out and err.
s3() {
    rc=0
    limit 120 "$client" "$@" >out 2>err || rc=$?
}
# failed CODE TEXT — the last command ended so, with one error that has this text.
failed() { is "$rc" "$1" && says "$2"; }

# ---- moto ----

# start_moto ARGUMENT… — at $url.
start_moto() {
    local port
    port=$("$moto/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    url=http://127.0.0.1:$port
    [ $# = 0 ] || url=https://127.0.0.1:$port
    : >moto.log
    "$moto/bin/moto_server" -H 127.0.0.1 -p "$port" "$@" >moto.log 2>&1 &
    track
    wait_for 60 is_running
}
is_running() { grep -q Running moto.log; }
INITIAL_NO_AUTH_ACTION_COUNT=8 start_moto
limit 60 "$moto/bin/python" "$root/tests/remote/moto_user.py" "$url" >users 2>err || give_up "buckets of moto" "it has no users: $(tail -1 err)"
eval "$(tr ' ' '\n' <users)"
export AWS_ENDPOINT_URL=$url AWS_ACCESS_KEY_ID=$all_id AWS_SECRET_ACCESS_KEY=$all_secret
head -c 20000000 /dev/urandom >large
head -c 100 /dev/urandom >small

for key in plain "a b+c" 'x=y&z~' $'\xc3\xbc/\xe6\x97\xa5.bin' '%41/!*()' dir/sub/-._~; do
    s3 put small "s3://bucket/keys/$key"
    cp err put.err
    s3 get "s3://bucket/keys/$key" got
    ok "moto: an object with the key '$key' is written and read" cmp small got
    rm -f got
done
s3 list s3://bucket/keys/
ok "moto: they are listed" is "$rc $(wc -l <out)" "0 6"
PART=6000000 s3 put large s3://bucket/large
ok "moto: a multipart upload" is "$rc" 0
s3 list s3://bucket/large
ok "moto: it has the length and four parts" shows '^20000000 "[0-9a-f]+-4" large$'
RANGE=3000000 s3 get s3://bucket/large got
ok "moto: a download in ranges" cmp large got
rm -f got
s3 put large s3://bucket/whole
ok "moto: an upload in one request" is "$rc" 0
s3 list s3://bucket/whole
ok "moto: its ETag is the MD5 of the file" shows "^20000000 \"$(md5sum <large | cut -d' ' -f1)\" whole\$"
s3 delete s3://bucket/whole
s3 get s3://bucket/whole got
ok "moto: a deleted object is missing" failed 66 "there is no object"
s3 list s3://missing/
ok "moto: a bucket that does not exist" failed 78 NoSuchBucket
AWS_SECRET_ACCESS_KEY=wrong s3 list s3://bucket/
ok "moto: a wrong secret" failed 78 SignatureDoesNotMatch
AWS_ACCESS_KEY_ID=AKIAWRONG s3 list s3://bucket/
ok "moto: a key that does not exist" failed 78 InvalidAccessKeyId
export AWS_ACCESS_KEY_ID=$reader_id AWS_SECRET_ACCESS_KEY=$reader_secret
s3 get s3://bucket/keys/plain got
ok "moto: a user who may only read reads" cmp small got
s3 put small s3://bucket/x
ok "moto: and does not write" failed 78 "s3:PutObject"
PART=6000000 s3 put large s3://bucket/x
ok "moto: nor in parts" failed 78 "s3:PutObject"

# ---- TLS ----

openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>err
start_moto -c cert.pem -k key.pem
curl -s -f -k -X PUT "$url/bucket" >out
export AWS_ENDPOINT_URL=$url
s3 put small s3://bucket/x
ok "TLS: a certificate of unknown origin is refused, without a second try" failed 78 certificate
ok "TLS: there was no second try" is "$(grep -c 'trying again' err)" 0
export AWS_CA_BUNDLE=$tmp/cert.pem
PART=6000000 s3 put large s3://bucket/large
RANGE=3000000 s3 get s3://bucket/large got.tls
ok "TLS: with AWS_CA_BUNDLE an object is written and read in parts" cmp large got.tls
unset AWS_CA_BUNDLE

# ---- rates, with curl as a client of the same server ----

mib=${RATE:-256}
head -c $((mib << 20)) /dev/zero | openssl enc -aes-128-ctr -pass pass:x -nosalt 2>/dev/null >data
mkdir -p parts
split -b 64M data parts/
all_parts=(parts/*)
range=$(((mib << 20) / 8 > 64 << 20 ? 64 << 20 : (mib << 20) / 8)) # as s3_download's
# curl_get URL — the data in ranges, each in a file, on the disk as s3_download's.
curl_get() {
    local i list=()
    for ((i = 0; i * range < mib << 20; i++)); do list+=(--next -s -f -r $((i * range))-$(((i + 1) * range - 1)) "$1" -o "got.$i"); done
    limit 120 curl -Z --parallel-immediate --parallel-max 8 "${list[@]:1}"
    sync got.*
}
# curl_put URL… — each part to one of the addresses.
curl_put() {
    local i list=()
    for ((i = 0; i < ${#all_parts[@]}; i++)); do list+=(--next -s -f -T "${all_parts[i]}" "${@:i+1:1}" -o /dev/null); done
    limit 120 curl -Z --parallel-immediate --parallel-max 4 "${list[@]:1}"
}
# curl_upload — a multipart upload.
curl_upload() {
    local id list=() i
    id=$(curl -s -f -X POST "$url/bucket/curl?uploads" | sed -n 's/.*<UploadId>\(.*\)<\/UploadId>.*/\1/p')
    for ((i = 1; i <= ${#all_parts[@]}; i++)); do list+=("$url/bucket/curl?partNumber=$i&uploadId=$id"); done
    curl_put "${list[@]}"
    limit 120 curl -s -f -H 'Content-Type: application/xml' --data-binary @complete "$url/bucket/curl?uploadId=$id"
}
curl_fake_put() { curl_put $(printf "$fake/_object/bucket/%s " "${all_parts[@]##*/}"); }
own_put() { s3 put data s3://bucket/data && [ "$rc" = 0 ]; }
own_get() { s3 get s3://bucket/data got && [ "$rc" = 0 ]; }
# took COMMAND… — its time in ms.
took() {
    local from
    rm -f got got.*
    from=$(now_ms)
    "$@" >out 2>err || { echo "# failed: $*" >&2; cat err >&2; echo 999999; return; }
    echo $(($(now_ms) - from))
}
# is_near OWN OTHER — a rate is at least 90 % of the other one, by their times.
is_near() { [ $(($1 * 9)) -le $(($2 * 10)) ]; }
# compare SERVER — both clients in turns, three times, or up to twelve on a busy machine; the least time of each: $ms_put, $ms_own_put …
compare() {
    local round times=() k v
    for round in $(seq 12); do
        times+=("own_put=$(took own_put)" "own_get=$(took own_get)")
        if [ "$1" = moto ]; then times+=("put=$(took curl_upload)" "get=$(took curl_get "$url/bucket/data")")
        else times+=("put=$(took curl_fake_put)" "get=$(took curl_get "$fake/_object/bucket/data")"); fi
        for k in own_put own_get put get; do
            v=$(printf '%s\n' "${times[@]}" | sed -n "s/^$k=//p" | sort -n | head -1)
            eval "ms_$k=$v"
        done
        if [ $round -ge 3 ] && { [ "$1" != moto ] || { is_near "$ms_own_put" "$ms_put" && is_near "$ms_own_get" "$ms_get"; }; }; then break; fi
    done
    rate() { awk -v mib="$mib" -v ms="$1" 'BEGIN { printf "%.0f", mib * 1000 / ms }'; }
    echo "# $1: upload of $mib MiB, 4 connections: $(rate "$ms_own_put") MiB/s, curl $(rate "$ms_put"); download, 8 connections: $(rate \
        "$ms_own_get") MiB/s, curl $(rate "$ms_get")"
}

# A moto that checks no signatures, which curl's requests do not have.
start_moto
export AWS_ENDPOINT_URL=$url AWS_ACCESS_KEY_ID=$all_id AWS_SECRET_ACCESS_KEY=$all_secret
curl -s -f -X PUT "$url/bucket" >out
{
    echo '<CompleteMultipartUpload>'
    for ((i = 0; i < ${#all_parts[@]}; i++)); do
        echo "<Part><PartNumber>$((i + 1))</PartNumber><ETag>\"$(md5sum <"${all_parts[i]}" | cut -d' ' -f1)\"</ETag></Part>"
    done
    echo '</CompleteMultipartUpload>'
} >complete
compare moto
ok "an upload reaches 90 % of curl's rate" is_near "$ms_own_put" "$ms_put"
ok "a download reaches 90 % of curl's rate" is_near "$ms_own_get" "$ms_get"
s3 get s3://bucket/data got
ok "the data arrives" cmp data got

# The fake server is so fast that the processors are the limit. curl neither hashes its data nor completes an upload: only shown.
"$client" serve >fake.port 2>fake.err &
track
has_port() { [ -s fake.port ]; }
wait_for 10 has_port
fake=http://127.0.0.1:$(cat fake.port)
export AWS_ENDPOINT_URL=$fake AWS_ACCESS_KEY_ID=AKIDFAKE AWS_SECRET_ACCESS_KEY=fake/secret+key
compare "a server in C"
done_testing
