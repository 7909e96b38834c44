#!/usr/bin/perl
# test_crash_kill — kill -9 of the whole process group at random instants, and the same command again until it is done: no
# committed checkpoint is lost, no damaged one is found, and the losses are those of an undisturbed run, bit for bit. KILLS
# (40; `make torture`: 200 and more) in all, SEED for other instants. Half of the instants are anywhere in a run, half in the
# 40 ms after a checkpoint began.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use crash;

my $kills = $ENV{KILLS} || 40;
my $seed = $ENV{SEED} || 1;
srand $seed;
my @rows = (
    [qw(lm CHECKPOINT_ASYNC=on CHECKPOINT_EVERY=1)],
    [qw(lm CHECKPOINT_ASYNC=off CHECKPOINT_EVERY=3)],
    [qw(qa CHECKPOINT_ASYNC=on CHECKPOINT_EVERY=2)],
    [qw(qa CHECKPOINT_ASYNC=off CHECKPOINT_EVERY=5)],
);
my %whole; # losses and seconds of undisturbed runs without checkpoints
for my $task (qw(lm qa)) {
    my $start = time;
    my $code = run(@{ $model{$task} }, 'STEPS=40', "METRICS_FILE=$task.jsonl");
    $whole{$task} = { losses => losses("$task.jsonl"), seconds => time - $start };
    my @n = grep { /"loss":\d/ } split /\n/, $whole{$task}{losses};
    ok("$task: an undisturbed run of 40 steps", $code == 0 && @n == 40 ? () : ("code $code, lines " . @n, err()));
}

my ($killed, $in_writing, $chains, $resumed) = (0, 0, 0, 0);

# look — what a killed or finished run has logged and left behind.
sub look {
    my ($dir, $before, $bad) = @_;
    my $said = err();
    push @$bad, "a damaged checkpoint was met: $1" if $said =~ /(.*damaged checkpoint.*)/;
    if ($said =~ /resuming from \S+: step (\d+) of/) {
        push @$bad, "went on from step $1, the newest was " . ($before // 'none') if $1 != ($before // -1);
        $resumed++;
    } elsif (defined $before && $said =~ /memory: |after step|trained/) {
        push @$bad, "began anew beside step $before";
    }
    my %there = map { $_ => 1 } steps($dir);
    for my $step ($said =~ /checkpoint \S+step-0*(\d+) in /g) {
        push @$bad, "told that step $step is saved, newest is " . ((sort { $a <=> $b } keys %there)[-1] // 'none')
            unless grep { $_ >= $step } keys %there;
    }
}

# strike — one run that is killed at a random instant; 0: it was done before.
sub strike {
    my ($row, $dir, $command) = @_;
    my $pid = begin(@$command);
    my $code;
    if (rand() < 0.5) {
        my $from = ((steps($dir))[-1] // 0) + int rand 16;
        wait_until(20, sub { is_over($pid, \$code) || (temps($dir) && ((steps($dir))[-1] // 0) >= $from) });
        sleep(rand 0.04) if !defined $code;
    } else {
        my $end = time + rand($whole{ $row->[0] }{seconds} * 1.2);
        sleep 0.002 while time < $end && !is_over($pid, \$code);
    }
    return 0 if defined $code || is_over($pid, \$code);
    kill_group($pid);
    $killed++;
    $in_writing++ if temps($dir);
    return 1;
}

# chain — the same command, killed at most so often, to the end.
sub chain {
    my ($row, $most, $bad) = @_;
    my ($task, @how) = @$row;
    my $dir = 'run' . $chains++;
    my @command = (@{ $model{$task} }, @how, 'STEPS=40', "CHECKPOINT_DIR=$dir", "METRICS_FILE=$dir.jsonl", 'CHECKPOINT_KEEP=2');
    my $code;
    for (1 .. $most) {
        my $before = (steps($dir))[-1];
        my $is_killed = strike($row, $dir, \@command);
        look($dir, $before, $bad);
        last if !$is_killed;
    }
    my $before = (steps($dir))[-1];
    $code = run(@command);
    look($dir, $before, $bad);
    push @$bad, "$dir: the last run ended with $code", (lines('err'))[-3 .. -1] if $code != 0;
    push @$bad, "$dir: the losses are not those of an undisturbed run" if losses("$dir.jsonl") ne $whole{$task}{losses};
    push @$bad, "$dir: left " . join(' ', temps($dir)) if temps($dir);
    push @$bad, "$dir: newest is " . (steps($dir))[-1] if (steps($dir))[-1] != 40;
    remove_tree($dir);
}

my $start = time;
for my $i (0 .. $#rows) {
    my @bad;
    my $until = int($kills * ($i + 1) / @rows);
    my $first = $killed;
    while ($killed < $until && !@bad) {
        my $most = $until - $killed;
        chain($rows[$i], $most < 12 ? $most : 12, \@bad);
    }
    ok("@{$rows[$i]}: " . ($killed - $first) . ' kills, resumed bit for bit, nothing lost, nothing left', @bad);
}
note(sprintf '%d kills (SEED=%d) in %d chains and %.0f s: %d in the midst of a writing; %d resumes', $killed, $seed, $chains,
    time - $start, $in_writing, $resumed);
ok("$kills kills at random instants were made", $killed >= $kills ? () : "$killed");
done();
