#!/usr/bin/perl
# test_resume_calls — strace counts the system calls of a resume on what it reads: the folder of checkpoints, the newest one's
# files, DATA. Then each of them fails, once or from there on, with EIO, EACCES, ENOMEM or EMFILE. Each such run ends with 74
# or 75 (66: DATA that may not be read) and a sentence that names the file, or resumes from the newest checkpoint with the
# losses of an undisturbed run. It never resumes from an older one, calls the checkpoint damaged, crashes, or changes a
# checkpoint. The suite takes a part of the points, in equal strides; `make torture` (TORTURE=1) all. WORKERS=1 or 2: only
# that row; WAY=once or on.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use crash;

my %errors = (openat => [qw(EIO EACCES EMFILE ENOMEM)], pread64 => [qw(EIO ENOMEM)], read => [qw(EIO ENOMEM)], mmap => [qw(ENOMEM EACCES)],
    newfstatat => [qw(EIO EACCES)], getdents64 => [qw(EIO ENOMEM)], fcntl => [qw(EIO)]);
my @names = sort keys %errors;
my @paths = ('run', 'run/.lock', map({ "run/step-0000000$_" } 4, 8),
    map({ "run/step-00000008/$_" } qw(manifest.json model.safetensors optim_m.safetensors optim_v.safetensors)), 'tokens.bin');
my @common = (@{ $model{lm} }, qw(STEPS=12 STEP_TIMEOUT=60s CHECKPOINT_KEEP=9 CHECKPOINT_EVERY=4 CHECKPOINT_ASYNC=off MAX_RESTARTS=0
    METRICS_FILE=m.jsonl CHECKPOINT_DIR=run));
my $whole;

plan_skip('strace is not there') if system('strace -V >/dev/null 2>&1');
plan_skip('sanitizers make other calls') if $ENV{SAN};

sub sums { return join "\n", sort map { slurp_sum($_) } glob 'run/step-0000000[48]/*' }
sub slurp_sum { my ($p) = @_; return $p . ' ' . unpack('%32C*', slurp($p)) . ' ' . length slurp($p) }

# resume — from a fresh copy of the first run, under strace; returns its exit code, -1: it did not end.
sub resume {
    my (@inject) = @_;
    copy_tree('run.first', 'run') or die;
    system('cp', 'm.first', 'm.jsonl') == 0 or die;
    unlink 'strace.log';
    return run_traced(@inject);
}
sub run_traced {
    my (@inject) = @_;
    my $pid = fork // die;
    if ($pid == 0) {
        open STDOUT, '>', 'out' or die;
        open STDERR, '>', 'err' or die;
        exec qw(strace -f -qq -y -o strace.log), (map { ('-P', $_) } @paths), '-e', 'trace=' . join(',', @names),
            (map { ('-e', "inject=$_") } @inject), crash::program(), 'train', @common or POSIX::_exit(127);
    }
    my $code = -1;
    my $is_over = wait_until(60, sub { waitpid($pid, POSIX::WNOHANG) == $pid && (($code = crash::code($?)), 1) });
    kill KILL => $pid if !$is_over;
    return $code;
}

# points — [name, number of the call in its thread] for the most calls that any thread made.
sub points {
    my (%seen, %most);
    for my $line (lines('strace.log')) {
        next if $line !~ /^(\d+)\s+(\w+)\(/;
        my $n = ++$seen{$1}{$2};
        $most{$2} = $n if $n > ($most{$2} // 0);
    }
    note(join ', ', map { "$most{$_} $_" } sort keys %most);
    return map { my $name = $_; map { [$name, $_] } 1 .. $most{$name} } grep { $errors{$_} } sort keys %most;
}

sub check {
    my ($code, $before, $tally) = @_;
    my ($said, @bad) = (err());
    $tally->{"exit $code"}++;
    push @bad, 'was not injected' if slurp('strace.log') !~ /INJECTED/;
    push @bad, "passed over a checkpoint: $1" if $said =~ /(.*(?:damaged checkpoint|none is valid).*)/;
    push @bad, "changed a checkpoint" if sums() ne $before;
    if ($code == 0) {
        push @bad, 'did not go on from step 8' if $said !~ /resuming from run\/step-00000008: step 8 of/;
        push @bad, 'other losses than those of an undisturbed run' if losses('m.jsonl') ne $whole;
        return @bad;
    }
    my $last = (grep { / error / } lines('err'))[-1] // '';
    my $is_data = $last =~ /tokens\.bin/;
    push @bad, "ended with $code: $last" if $code != 74 && $code != 75 && !($is_data && $code == 66);
    push @bad, "does not name the file: $last" if $last !~ /\brun\b|tokens\.bin/;
    return @bad;
}

my $code;
for my $workers (grep { ($ENV{WORKERS} || $_) == $_ } 1, 2) {
@common = (grep({ !/^N_GPU/ } @common), "N_GPU_EACH_NODE=$workers");
remove_tree('run', 'run.first');
unlink 'm.jsonl', 'm.first';
$code = run(@common, 'METRICS_FILE=whole.jsonl', 'CHECKPOINT_DIR=', 'CHECKPOINT_EVERY=0');
$whole = losses('whole.jsonl');
unlink 'm.jsonl';
my $first = run(@common, 'FAULT=kill@step=10');
ok("$workers workers: an undisturbed run; one that dies after step 8", $code == 0 && $first == 75 && "@{[steps('run')]}" eq '4 8' ? () : "codes $code $first");
rename 'run', 'run.first';
rename 'm.jsonl', 'm.first';
$code = resume();
plan_skip('strace may not trace here') if $code == 1 && err() =~ /PTRACE|not permitted/;
ok("$workers workers: a resume that is watched", $code == 0 && losses('m.jsonl') eq $whole ? () : ("code $code", lines('err')));
my $before = sums();
my @points = map { my $p = $_; map { my $e = $_; ([@$p, $e, ''], [@$p, $e, '+']) } @{ $errors{ $p->[0] } } } points();
my $most = $workers == 1 ? 36 : 12;
my $stride = is_torture() || @points <= $most ? 1 : int(@points / $most) + 1;
for my $way ('', '+') {
    next if ($ENV{WAY} || '') eq ($way ? 'once' : 'on');
    my (%tally, @bad, $done);
    my @these = grep { $_->[3] eq $way } @points;
    for (my $i = int($stride / 2); $i < @these; $i += $stride) {
        my ($name, $n, $error) = @{ $these[$i] };
        $done++;
        push @bad, map { "$name no. $n$way, $error: $_" } check(resume("$name:error=$error:when=$n$way"), $before, \%tally);
    }
    ok(sprintf("$workers workers: " . '%s: %d of %d points (%s)', $way ? 'fails from there on' : 'fails once', $done, scalar @these,
        join(', ', map { "$_ $tally{$_}" } sort keys %tally)), @bad);
}
$code = resume();
ok("$workers workers: afterwards all is as before", $code == 0 && losses('m.jsonl') eq $whole && sums() eq $before ? () : "code $code");
}
done();
