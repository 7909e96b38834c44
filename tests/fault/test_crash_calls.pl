#!/usr/bin/perl
# test_crash_calls — strace counts the system calls of one checkpoint, from the first look at the folder to the removal of the
# checkpoint before. Then, at each of them:
#   kill -9: the restart finds the old checkpoint or the new one, never neither, never a mixture
#   EIO and ENOSPC once: training goes on, the failure is counted and reported, the next checkpoint is saved, exit 0
#   EIO and ENOSPC from then on: exit 74 when the last state cannot be saved; the older checkpoint is whole and the run
#     resumes from it
# In every case the losses are those of an undisturbed run, bit for bit, the ledger has every sample once, and nothing is left behind. No fsync is repeated on
# the same open file. Checkpoints are written by the trainer itself (off) and by a background thread (on). The suite takes a
# part of the points, in equal strides; `make torture` (TORTURE=1) all. ASYNC=on or off: only that one.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use crash;

my @names = qw(openat mkdir pwrite64 sync_file_range fsync close rename unlink unlinkat statfs newfstatat getdents64 pread64 fcntl);
my %may_fail = map { $_ => 1 } qw(openat mkdir pwrite64 sync_file_range fsync close rename unlinkat getdents64 pread64 statfs);
my %no_space = map { $_ => 1 } qw(openat mkdir pwrite64 sync_file_range fsync rename);
my %must_fail = map { $_ => 1 } qw(mkdir pwrite64 fsync sync_file_range rename);
my $steps = 24; # the first life ends at step 4; checkpoints of steps 10, 20, 24
my @common;  # settings of the row's model
my $whole;   # its undisturbed losses
my %rows = (off => 'lm', on => 'large'); # large: files that go past the page cache

plan_skip('strace is not there') if system('strace -V >/dev/null 2>&1');
plan_skip('sanitizers make other calls') if $ENV{SAN};
plan_skip('strace may not attach to a process here') if system('sleep 3 & strace -p $! -o strace.log 2>strace.err & sleep 0.1; for i in 1 2 3 4 5 6 7 8 9; do grep -q attached strace.err && exit 0; sleep 0.2; done; exit 1');

# first_life — the row's folder and metrics at step 4, which each point begins with.
sub first_life {
    my ($async) = @_;
    my @model = @{ $model{ $rows{$async} } };
    @common = (@model, "STEPS=$steps", 'STEP_TIMEOUT=60s', 'CHECKPOINT_KEEP=1', 'METRICS_FILE=m.jsonl', 'CHECKPOINT_DIR=run');
    my $code = run(@model, "STEPS=$steps", 'METRICS_FILE=whole.jsonl');
    $whole = losses('whole.jsonl');
    remove_tree('run');
    unlink 'm.jsonl';
    my $first = run(@common, 'CHECKPOINT_EVERY=4', 'CHECKPOINT_ASYNC=off', 'FAULT=kill@step=5', 'MAX_RESTARTS=0');
    ok("async $async: an undisturbed run; one that dies after step 4", $code == 0 && $first == 75 && "@{[steps('run')]}" eq '4' ? () : "codes $code $first");
    remove_tree('run.first');
    rename 'run', 'run.first';
    rename 'm.jsonl', 'm.first';
}

# attach — strace to the worker while it trains and saves nothing; its process, or undef.
sub attach {
    my ($worker, @inject) = @_;
    my $pid = fork // die;
    if ($pid == 0) {
        open STDERR, '>', 'strace.err' or die;
        exec qw(strace -f -y -o strace.log), '-e', 'trace=' . join(',', @names), (map { ('-e', "inject=$_") } @inject), '-p', $worker
            or POSIX::_exit(127);
    }
    my $is_there = wait_until(10, sub { slurp('strace.err') =~ /attached/ || waitpid($pid, POSIX::WNOHANG) == $pid })
        && slurp('strace.err') =~ /attached/;
    sleep 0.02; # the other threads
    return $is_there ? $pid : undef;
}

# live — the second run: from step 4, stopped after step 5, strace attached, let go. It is tried again when the machine was so slow that step 10 was done before it was stopped.
sub live {
    my ($async, $most, @inject) = @_;
    for (1 .. 40) {
        copy_tree('run.first', 'run') or die;
        system('cp', 'm.first', 'm.jsonl') == 0 or die;
        unlink 'strace.log', 'strace.err', 'out', 'err';
        my $pid = begin(@common, 'CHECKPOINT_EVERY=10', "CHECKPOINT_ASYNC=$async", "MAX_RESTARTS=$most");
        my $worker;
        wait_until(20, sub { out() =~ /^step [5-9]\//m }) or return { why => 'did not train: ' . err() };
        kill STOP => $worker = worker_of($pid);
        sleep 0.005;
        if (out() =~ /^step (9|1\d|2\d)\//m) {
            kill_group($pid);
            next;
        }
        my $strace = attach($worker, @inject);
        if (!$strace) {
            kill_group($pid);
            return { why => 'strace did not attach: ' . slurp('strace.err') };
        }
        kill CONT => $worker;
        return { pid => $pid, strace => $strace };
    }
    return { why => 'the machine is too busy' };
}
sub detach {
    my ($life) = @_;
    return if !$life->{strace};
    kill TERM => $life->{strace};
    waitpid delete $life->{strace}, 0;
}

# calls — those of the checkpoint of step 10, in order, of the thread that writes it: [name, its number among the calls of
# that name of that thread since strace came, the line].
sub calls {
    my (%seen, %all, $writer, @list);
    for my $line (lines('strace.log')) {
        next if $line !~ /^(\d+)\s+(?:<\.\.\. )?(\w+)(?: resumed>|\()/ || $line =~ /<\.\.\. \w+ resumed>/;
        my ($thread, $name) = ($1, $2);
        push @{ $all{$thread} }, [$name, ++$seen{$thread}{$name}, $line];
        $writer //= $thread if $line =~ /mkdir\("run\/\.tmp-\d+-10"/;
    }
    return () if !$writer;
    for my $call (@{ $all{$writer} }) {
        last if $call->[2] =~ /\.tmp-\d+-20"|step-00000020"/;
        push @list, $call;
    }
    # The same thread's look at the folder for the next checkpoint is not this one's: in the trainer's thread cut it off.
    my $last = 0;
    for my $i (0 .. $#list) { $last = $i if $list[$i][2] =~ /step-0000000?(4|10)\b|-4-old|-10\b/ }
    return @list[0 .. $last];
}

# check_sync — no fsync of a file that already failed one: after the failure comes its close.
sub check_sync {
    my %failed;
    for (lines('strace.log')) {
        my ($thread, $name, $fd) = /^(\d+)\s+(\w+)\((\d+)</ or next;
        return "fsync again after a failure: $_" if $name eq 'fsync' && $failed{$fd};
        $failed{$fd} = 1 if $name eq 'fsync' && /INJECTED/;
        delete $failed{$fd} if $name eq 'close';
    }
    return ();
}

# check_end — the run is done: step 24 is committed, nothing half-made is there, and the losses are right. Where calls have
# failed for ever an old checkpoint may be left, and what a removal began: the next start must remove the latter.
sub check_end {
    my ($code, $is_faulty) = @_;
    my @bad;
    push @bad, "ended with $code: " . (lines('err'))[-1] if $code != 0;
    push @bad, 'other losses than those of an undisturbed run' if losses('m.jsonl') ne $whole;
    push @bad, "met a damaged one: $1" if err() =~ /(.*damaged checkpoint.*)/;
    my @steps = steps('run');
    push @bad, "checkpoints @steps" if $is_faulty ? $steps[-1] != $steps || grep { !/^(4|10|20|24)$/ } @steps : "@steps" ne $steps;
    if ($is_faulty && temps('run')) {
        my $next = run(@common);
        push @bad, "the next start ended with $next" if $next != 0 || out() !~ /nothing to do/;
    }
    push @bad, 'left ' . join(' ', temps('run')) if temps('run');
    my @audit = split /\n/, `${\crash::program()} verify run 2>&1`;
    push @bad, "the ledger of samples: $audit[-1]" if $?;
    return @bad;
}

# die_at — the worker is killed at the call, its supervisor starts another.
sub die_at {
    my ($async, $call, $tally) = @_;
    my ($name, $n) = @$call;
    my $life = live($async, 1, "$name:signal=KILL:when=$n");
    return $life->{why} if $life->{why};
    my $code = finish($life->{pid});
    detach($life);
    my @bad = check_end($code);
    my @from = err() =~ /resuming from \S+: step (\d+) of/g;
    push @bad, 'was not killed' if err() !~ /was killed by SIGKILL/;
    push @bad, "went on from @from, expected 4 and then 4 or 10" if @from != 2 || $from[0] != 4 || ($from[1] != 4 && $from[1] != 10);
    my $expected = $call->[3];
    push @bad, "went on from $from[-1], expected $expected" if @from && $from[-1] != $expected;
    $tally->{$from[-1] == 4 ? 'old' : 'new'}++ if @from;
    return @bad;
}

# fail_once — the call fails once: strace detaches when the log reports the failure (each background writer counts its
# calls from zero, and the next would fail too).
sub fail_once {
    my ($async, $call, $error, $tally) = @_;
    my ($name, $n) = @$call;
    my $life = live($async, 0, "$name:error=$error:when=$n");
    return $life->{why} if $life->{why};
    my $code;
    wait_until(60, sub { is_over($life->{pid}, \$code) || err() =~ /failed, training goes on|its checksums are not in|the ledger of samples is written later/ });
    detach($life);
    $code //= finish($life->{pid});
    my $said = err();
    my @told = $said =~ /checkpoint of step (\d+) failed, training goes on: (.*)/g;
    my $was_injected = slurp('strace.log') =~ /INJECTED/;
    my @bad = check_sync();
    # Each thread's calls are counted: in the background the trainer's own call of this number may be in its last checkpoint.
    my $is_last = $async eq 'on' && $code == 74 &&
        $said =~ /the last checkpoint \(at the end of training, step $steps\) failed: .*; the checkpoint of step (10|20) is intact/;
    $code = run(@common, 'CHECKPOINT_EVERY=10', "CHECKPOINT_ASYNC=$async", 'MAX_RESTARTS=0') if $is_last;
    push @bad, check_end($code, 1);
    my $words = $error eq 'EIO' ? 'Input/output error' : 'No space left on device';
    push @bad, "told without the reason: @told" if @told && "@told" !~ /$words|no space/;
    push @bad, 'was not told' if !@told && !$is_last && $must_fail{$name} && $call->[2] !~ /ENOENT|ledger\.jsonl/ && !$call->[4];
    push @bad, 'the ledger was not told of' if $call->[2] =~ /pwrite64.*ledger\.jsonl/ && $said !~ /the ledger of samples is written later/;
    push @bad, 'was not injected' if !$was_injected;
    $tally->{@told ? 'told' : $is_last ? 'the last checkpoint' : 'without effect'}++;
    return @bad;
}

# fail_on — the call and all of its name that follow fail, to the end; then the disk is well again.
sub fail_on {
    my ($async, $call, $error, $tally) = @_;
    my ($name, $n) = @$call;
    my $life = live($async, 0, "$name:error=$error:when=$n+");
    return $life->{why} if $life->{why};
    my $code = finish($life->{pid});
    detach($life);
    my @bad = check_sync();
    my $said = err();
    push @bad, "ended with $code: " . (lines('err'))[-1] if $code != 0 && $code != 74;
    push @bad, 'ended with 0' if $code == 0 && $must_fail{$name} && $call->[2] !~ /ENOENT|ledger\.jsonl/ && !$call->[4];
    push @bad, "74 without saying what is intact: $said" if $code == 74 && $said !~ /the last checkpoint \(at the end of training, step $steps\) failed: .*; the checkpoint of step (4|10|20) is intact/;
    my ($intact) = $said =~ /the checkpoint of step (\d+) is intact/;
    push @bad, "step $intact is said to be intact and is not there" if defined $intact && !grep { $_ >= $intact } steps('run');
    $tally->{"exit $code"}++;
    if ($code == 74) {
        my $newest = (steps('run'))[-1];
        $code = run(@common, 'CHECKPOINT_EVERY=10', "CHECKPOINT_ASYNC=$async", 'MAX_RESTARTS=0');
        push @bad, "did not go on from step $newest" if $newest != $steps && err() !~ /resuming from \S+: step $newest of/;
    }
    push @bad, check_end($code, 1);
    return @bad;
}

# every — do one thing at each point, or in the suite at some.
sub every {
    my ($what, $points, $most, $do) = @_;
    my ($stride, $done, %tally, @bad) = (1, 0);
    $stride = int(@$points / $most) + (@$points % $most > 0) if !is_torture() && @$points > $most;
    my $first = int($stride / 2);
    my $start = time;
    for (my $i = $first; $i < @$points; $i += $stride) {
        my @why = $do->($points->[$i], \%tally);
        push @bad, map { "$points->[$i][0] no. $points->[$i][1] (" . ($points->[$i][2] =~ s/^\d+\s+//r) . "): $_" } @why;
        $done++;
    }
    ok(sprintf('%s: %d of %d points in %.0f s (%s)', $what, $done, scalar @$points, time - $start,
        join(', ', map { "$_ $tally{$_}" } sort keys %tally)), @bad);
    return $done;
}

my ($points, $runs) = (0, 0);
for my $async (grep { ($ENV{ASYNC} || $_) eq $_ } qw(off on)) {
    first_life($async);
    my $life = live($async, 0);
    my $code = $life->{why} ? -1 : finish($life->{pid});
    detach($life);
    my @calls = calls();
    my %count;
    my ($is_new, $is_committed) = (4, 0);
    for my $call (@calls) {
        $count{ $call->[0] }++;
        $call->[3] = $is_committed ? 10 : 4; # which checkpoint a death at its beginning leaves
        $call->[4] = $is_committed;
        $is_committed ||= $call->[2] =~ /rename\("run\/\.tmp-\d+-10", "run\/step-00000010"/;
    }
    note("CHECKPOINT_ASYNC=$async: one checkpoint is " . @calls . ' calls: ' . join(', ', map { "$count{$_} $_" } sort keys %count));
    ok("async $async: traced, one checkpoint has 60 calls or more", check_end($code), @calls >= 60 ? () : scalar(@calls) . ' calls');
    $points += @calls;
    my @fail = grep { $may_fail{ $_->[0] } } @calls;
    my @space = grep { $no_space{ $_->[0] } } @fail;
    $runs += every("async $async: kill -9, then old or new", \@calls, 7, sub { die_at($async, @_) });
    $runs += every("async $async: EIO once", \@fail, 4, sub { fail_once($async, $_[0], 'EIO', $_[1]) });
    $runs += every("async $async: ENOSPC once", \@space, 2, sub { fail_once($async, $_[0], 'ENOSPC', $_[1]) });
    $runs += every("async $async: EIO from there on", \@fail, 3, sub { fail_on($async, $_[0], 'EIO', $_[1]) });
    $runs += every("async $async: ENOSPC from there on", \@space, 2, sub { fail_on($async, $_[0], 'ENOSPC', $_[1]) });
}
note("$points points, $runs runs with a fault");
done();
