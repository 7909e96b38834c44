#!/bin/bash
# test_data — every format of DATA as a user gives it: one text trains the same in all formats; mixtures resume; a file from a
# server; questions. What is wrong is refused with a code and a sentence.
. "$(dirname "$0")/lib.sh"
small="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 STEPS=4"
printf 'The first text is about a fox.\n%.0s' {1..40} >one
printf 'Another text, and a dog.\n%.0s' {1..40} >two
{ jq -cRs '{text: .}' one; jq -cRs '{text: .}' two; } >both.jsonl

# The same documents in every form give the same losses.
run $small DATA=both.jsonl METRICS_FILE=m1
ok 'jsonl trains' is $rc 0
"$convoy" tokenize DATA=both.jsonl OUT=t.bin >out 2>err
ok 'jsonl to llm.c' is $? 0
"$convoy" tokenize DATA=both.jsonl OUT=t2.idx >out 2>err
ok 'jsonl to Megatron' is $? 0
ok 'both files of it are there' test -s t2.idx -a -s t2.bin
for form in t.bin t2.idx t2.bin; do
    rm -f m2
    run $small DATA=$form METRICS_FILE=m2
    ok "$form trains the same" is "$(losses m1)" "$(losses m2)"
done
if command -v zstd >/dev/null; then
    rm -f m2
    zstd -q both.jsonl -o both.jsonl.zst
    run $small DATA=both.jsonl.zst METRICS_FILE=m2
    ok 'zst trains the same' is "$(losses m1)" "$(losses m2)"
else
    skip 'zst trains the same' 'no zstd here'
fi

# A mixture is a function of numbers: stopped and resumed, it goes on with the same samples.
rm -f m1 m2
run $small DATA=one:0.7,both.jsonl:0.3 STEPS=8 METRICS_FILE=m1
ok 'a mixture trains' is $rc 0
run $small DATA=one:0.7,both.jsonl:0.3 STEPS=5 LR_SCHEDULE=constant CHECKPOINT_DIR=c METRICS_FILE=m2
run $small DATA=one:0.7,both.jsonl:0.3 STEPS=8 LR_SCHEDULE=constant CHECKPOINT_DIR=c METRICS_FILE=m2
rm -f m1
run $small DATA=one:0.7,both.jsonl:0.3 STEPS=8 LR_SCHEDULE=constant METRICS_FILE=m1
ok 'and resumes bit for bit' is "$(losses m1)" "$(losses m2)"
run $small DATA=one:0.7,two
ok 'a weight is missing: 78' is $rc 78
ok 'and it says which' says 'part 2'

# Questions.
cp "$root/tests/fuzz/qa_squad/v2" q.json
rm -f m1
run $small TASK=qa DATA=q.json DOC_STRIDE=8 METRICS_FILE=m1
ok 'questions train' is $rc 0
ok 'with losses' holds m1 'length == 4 and all(.[]; .loss > 0)'
run $small DATA=q.json
ok 'questions are no text: 78' is $rc 78
ok 'and it says what they are for' says 'TASK=qa'

# Damage.
echo '{"text": 7}' >>both.jsonl
run $small DATA=both.jsonl
ok 'a bad line: 65' is $rc 65
ok 'named by file and number' says 'both.jsonl, line 3, byte 10: "text" is not a string'

# The size of the data does not matter for the start, nor for a worker that comes back.
perl -e 'print pack("l<256", 20240520, 1, 500000, (0) x 253), "\0" x 1000000' >small.bin
perl -e 'my ($left, $at, @len, @off) = 1 << 39; # 1 TB of 16-bit ids, all 0, in sequences as long as an index can have
    while ($left) { my $k = $left < 2147483647 ? $left : 2147483647; push @len, $k; push @off, $at + 0; $at += 2 * $k; $left -= $k }
    print "MMIDIDX\0\0", pack("Q< C Q< Q<", 1, 8, scalar @len, @len + 1), pack("l<*", @len), pack("Q<*", @off), pack("Q<*", 0 .. @len)' >big.idx
took() { local t0=$(date +%s%N); run $small STEPS=1 DATA="$1"; ms=$((($(date +%s%N) - t0) / 1000000)); }
if truncate -s $((1 << 40)) big.bin 2>/dev/null; then
    took small.bin # programs and caches are warm then
    took small.bin
    small_ms=$ms
    took big.bin
    echo "# first step of 1 MB $small_ms ms, of 1 TB $ms ms"
    ok '1 TB: trains' is $rc 0
    ok '1 TB: the first step comes within 2 s of the one of 1 MB' within $((ms - small_ms)) 2000
    run $small STEPS=30 N_GPU_EACH_NODE=2 DATA=big.bin CHECKPOINT_DIR=big CHECKPOINT_EVERY=10 FAULT=kill@step=15:rank=1 LOG_LEVEL=info
    gap=$(grep -hE 'was killed|trainer_begin  resuming' err | cut -c12-23 | awk -F'[:.]' '{ t[NR] = ($1 * 3600 + $2 * 60 + $3) * 1000 + $4 } END { print NR == 2 ? t[2] - t[1] : 999999 }')
    ok '1 TB: a killed worker trains on soon' is "$rc $(within "$gap" 4000 && echo soon)" '0 soon'
    rm -f big.bin
else
    skip '1 TB' 'this file system has no file of 1 TB'
fi

# An id that the vocabulary lacks, where the start does not look: found before it is trained on.
perl -e 'my $ids = "\0" x 4000000; substr $ids, 20000, 2, pack "S<", 60000;
    print pack("l<256", 20240520, 1, 2000000, (0) x 253), $ids' >late.bin
for workers in 1 2; do
    rm -rf late.m late
    run $small SEQ_LEN=32 BATCH_SIZE=8 GLOBAL_BATCH=16 STEPS=30 SHUFFLE=0 DATA=late.bin N_GPU_EACH_NODE=$workers METRICS_FILE=late.m
    ok "an id out of range in step 20, $workers workers: 65" is "$rc $(grep -c '"step":19' late.m) $(grep -c '"step":20' late.m)" '65 1 0'
    ok 'named by file and position' says 'late.bin: token 10000 has id 60000, but the vocabulary has VOCAB=50257 ids'
done
run $small STEPS=1 DATA=small.bin VAL_DATA=late.bin EVAL_EVERY=1 BATCH_SIZE=64
ok 'in held-out data, too: 65' is "$rc $(grep -c 'late.bin: token 10000 has id 60000' err | sed 's/[1-9].*/named/')" '65 named'

# A file from a server of this machine: only when that is allowed.
port=$(free_port)
perl -MIO::Socket::INET -e '
    my $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;
    local $/; open my $f, "<", "one" or die; my $b = <$f>; $/ = "\r\n\r\n";
    while (my $c = $s->accept) { <$c>; print $c "HTTP/1.1 200 x\r\nConnection: close\r\nContent-Length: " . length($b) . "\r\n\r\n$b"; close $c }
' "$port" &
pid=$!
disown
started+=("$pid")
url=http://127.0.0.1:$port/one.txt
wait_for 5 sh -c "ss -Hltn 'sport = :$port' | grep -q ."
run $small DATA=$url
ok 'an address of this machine: 78' is $rc 78
ok 'and it names the setting' says 'ALLOW_LOCAL_URLS=1'
rm -f m1 m2
run $small DATA=one METRICS_FILE=m1
run $small DATA="$url#sha256=$(sha256sum one | cut -d' ' -f1)" ALLOW_LOCAL_URLS=1 METRICS_FILE=m2
ok 'allowed, it trains as the file does' is "$(losses m1)" "$(losses m2)"
run $small DATA="$url#sha256=$(sha256sum two | cut -d' ' -f1)" ALLOW_LOCAL_URLS=1
ok 'another checksum: 65' is $rc 65
run $small DATA=file:///etc/passwd
ok 'another scheme: 78' is $rc 78

# A model without a tokenizer of its own.
llama="MODEL=llama-toy LAYERS=1 HEADS=2 KV_HEADS=1 EMBED=16 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 STEPS=2"
run $llama DATA=one CACHE_DIR=untouched
ok 'text for it is refused before it is read: 78' is "$rc $(ls untouched/tokens 2>/dev/null)" '78 '
ok 'and TOKENIZER is named' says 'the model llama-toy has no tokenizer of its own; set TOKENIZER'
run $llama DATA=synthetic
ok 'synthetic data need none' is $rc 0
run $llama DATA=t.bin VOCAB=50257
ok 'nor do token files' is "$rc $(grep -c 'no tokenizer of its own' err)" '0 0'
run $llama DATA=one VOCAB=50257
ok 'where the ids of GPT-2 fit, a warning says that they are used' is "$rc $(grep -c 'no tokenizer of its own' err)" '0 1'
run $llama DATA=one VOCAB=50257 TOKENIZER=gpt2
ok 'unless TOKENIZER says so' is "$rc $(grep -c 'no tokenizer of its own' err)" '0 0'

# A GPT-2 whose tokenizer has one token more than the model.
run $small DATA=one CHECKPOINT_DIR=plain CHECKPOINT_EVERY=4 METRICS_FILE=m3
"$convoy" export FROM=plain TO=more >out 2>err && rm -f more/vocab.json more/merges.txt &&
    jq '.added_tokens += [{id: 50257, content: "[PAD]", special: true, single_word: false, lstrip: false, rstrip: false, normalized: false}]' \
        more/tokenizer.json >longer.json && mv longer.json more/tokenizer.json
run MODEL=more BATCH_SIZE=2 SEQ_LEN=16 STEPS=1 DATA=one
ok 'a tokenizer with one more id than the model: a warning with both numbers' is "$rc $(grep -c '50258 ids, .*VOCAB=50257' err)" '0 1'
echo 'one [PAD] two' >pad
run MODEL=more BATCH_SIZE=1 SEQ_LEN=2 STEPS=1 DATA=pad
ok 'a text with that id: 65' is "$rc $(grep -c 'has id 50257' err)" '65 1'
run MODEL=more BATCH_SIZE=2 STEPS=1 SEQ_LEN=32 TASK=qa DATA=q.json DOC_STRIDE=8
ok 'questions need the tokenizer of GPT-2: 78, and how to get it' is "$rc $(grep -c 'set TOKENIZER=gpt2' err)" '78 1'
run MODEL=more BATCH_SIZE=2 STEPS=1 SEQ_LEN=32 TASK=qa DATA=q.json DOC_STRIDE=8 TOKENIZER=gpt2
ok 'so they train' is $rc 0
run MODEL=more BATCH_SIZE=2 SEQ_LEN=16 STEPS=1 DATA=one TOKENIZER=more
ok 'TOKENIZER that has it: 78' is "$rc $(grep -c 'TOKENIZER=more.* has 50258 ids' err)" '78 1'
done_testing
