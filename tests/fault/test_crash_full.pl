#!/usr/bin/perl
# test_crash_full — a disk (tmpfs) with room for one and a half checkpoints, in three ways: space comes back while the run
# goes on (it saves at the next interval, without a restart); the disk stays full to the end (74, the older checkpoint intact;
# with space the same command resumes); another process fills and frees it at random instants. Each failure is counted in
# /status with the reason, nothing half-made is left, and the losses are those of an undisturbed run. ROUNDS (3; `make
# torture`: 20).
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use IO::Socket::INET;
use crash;

my $rounds = $ENV{ROUNDS} || 3;
my $state = 16_700_000; # bytes of one checkpoint
my ($tight, $loose, $wide) = (int($state * 1.5), int($state * 2.6), $state * 6);
srand($ENV{SEED} || 1);

mkdir 'mnt';
plan_skip('no right to mount a tmpfs') if system('mount -t tmpfs -o size=1m convoy-crash mnt 2>/dev/null');
system 'umount mnt';
my @model = (@{ $model{large} }, 'STEPS=120');
my $code = run(@model, 'METRICS_FILE=whole.jsonl');
my $whole = losses('whole.jsonl');
ok('an undisturbed run', $code == 0 ? () : ("code $code", err()));

# port — a free one, below those that the kernel gives to outgoing connections: one of these may be taken until the run listens.
sub port {
    while (1) {
        my $port = 10000 + int rand 22000;
        return $port if IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1);
    }
}
# status — the checkpoint's part of /status.
sub status {
    my ($port) = @_;
    my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port", Timeout => 2) or return '';
    print $s "GET /status HTTP/1.0\r\n\r\n";
    local $/;
    return (<$s> // '') =~ /("checkpoint":\{[^}]*\})/ ? $1 : '';
}
sub size { system("mount -o remount,size=$_[0] mnt") == 0 or die 'remount' }
sub saved { my @n = err() =~ /checkpoint \S+step-0*(\d+) in /g; return @n ? $n[-1] : 0 }
sub failures { return () = err() =~ /failed, training goes on/g }

# meddle — fills the disk and frees it, at random instants, until the run is over; the child's end.
sub meddle {
    my ($pid) = @_;
    my $code;
    my $block = 'x' x 65536;
    until (is_over($pid, \$code)) {
        sleep rand 0.06;
        if (open my $f, '>', 'mnt/fill') {
            1 while syswrite $f, $block;
        }
        sleep rand 0.06;
        unlink 'mnt/fill';
    }
    return $code;
}

my ($failed, $recovered, $ended) = (0, 0, 0);
sub one {
    my ($kind) = @_;
    my @bad;
    my $port = port();
    my @command = (@model, 'CHECKPOINT_DIR=mnt/run', 'CHECKPOINT_EVERY=2', 'METRICS_FILE=m.jsonl', 'CHECKPOINT_KEEP=1',
        'CHECKPOINT_ASYNC=' . (rand() < 0.7 ? 'on' : 'off'), "STATUS_PORT=$port", 'STATUS_ADDR=127.0.0.1');
    system('mount -t tmpfs -o size=' . ($kind == 2 ? $loose : $tight) . ' convoy-crash mnt') == 0 or die 'mount';
    my $pid = begin(@command);
    my $code;
    if ($kind == 0) {
        wait_until(30, sub { failures() >= 2 }) or push @bad, 'no failure in a full disk';
        my $shown = status($port);
        push @bad, "status shows $shown" if $shown !~ /"failures":[1-9]/ || $shown !~ /"error":"[^"]*no space/i;
        my $before = saved();
        size($wide);
        wait_until(30, sub { saved() > $before || is_over($pid, \$code) });
        push @bad, "nothing was saved after step $before, with room again" if saved() <= $before;
        $recovered++;
    }
    $code //= $kind == 2 ? meddle($pid) : finish($pid);
    push @bad, "ended with $code: " . (lines('err'))[-1] if $code != 0 && ($kind == 0 || $code != 74);
    push @bad, 'ended with 0 on a full disk' if $kind == 1 && $code == 0;
    push @bad, 'says not what is intact' if $code == 74 && err() !~ /the checkpoint of step \d+ is intact|there is no checkpoint yet/;
    push @bad, 'other words than of space' if grep { !/no space/i } err() =~ /(?:goes on|failed): (.*)/g;
    push @bad, 'left ' . join(' ', temps('mnt/run')) if $kind != 2 && temps('mnt/run');
    $failed += failures() + ($code == 74);
    if ($code == 74) {
        $ended++;
        size($wide);
        my $newest = (steps('mnt/run'))[-1] // 0;
        $code = run(@command);
        push @bad, "went on: $code, not from step $newest" if $code != 0 || ($newest && err() !~ /resuming from \S+: step $newest of/);
    }
    push @bad, 'met a damaged one' if err() =~ /damaged checkpoint/;
    push @bad, "other losses than those of an undisturbed run" if losses('m.jsonl') ne $whole;
    push @bad, 'newest is ' . ((steps('mnt/run'))[-1] // 'none') if ((steps('mnt/run'))[-1] // 0) != 120;
    push @bad, 'left ' . join(' ', temps('mnt/run')) if temps('mnt/run');
    unlink 'm.jsonl';
    system 'umount mnt';
    return @bad;
}

my @words = ('room again while it runs: saved without a restart', 'full to the end: 74, then room: goes on',
    'filled and freed by somebody else');
for my $i (0 .. $rounds - 1) {
    ok('round ' . ($i + 1) . ": $words[$i % 3]", one($i % 3));
}
note("$rounds rounds: $failed failures counted, $recovered recovered without a restart, $ended ended with 74");
done();
