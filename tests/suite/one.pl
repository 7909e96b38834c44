#!/usr/bin/perl
# one.pl PROGRAM [ARGUMENT...] — one test, as the suite starts it. It gets a session of its own, no terminal, and /dev/null as
# stdin, so job control cannot stop it. Its time limit (LIMIT seconds, default 240) runs slower while processes wait for a
# processor. When the test ends, passes its limit, or the suite is interrupted, no process that it started is left. To the file
# SUITE_TIMES it adds a line: seconds, seconds of processor time, program.
use strict;
use warnings;
use POSIX ':sys_wait_h';
use Time::HiRes qw(time);
use lib do { (my $dir = __FILE__) =~ s{[^/]*\z}{}; $dir || '.' };
use load;

my $limit = delete $ENV{LIMIT} || 240; # this program's alone: no test takes it for a setting of its own
my $times = delete $ENV{SUITE_TIMES};
my $began = time;
my ($child, $status, $signal);

# Processes that lose their parent become children of this one: none is missed, and their processor time is counted.
my %prctl = (x86_64 => 157, aarch64 => 167);
my $number = $prctl{ (POSIX::uname())[4] };
syscall($number, 36, 1, 0, 0, 0) if $number; # PR_SET_CHILD_SUBREAPER

# All that come from this process, with their command lines.
sub descendants {
    my (%parent, %name);
    for my $dir (glob '/proc/[0-9]*') {
        open my $file, '<', "$dir/stat" or next;
        my $line = <$file> // next;
        my ($pid, $name, $state, $parent) = $line =~ /^(\d+) \((.*)\) (\S) (\d+)/s or next;
        next if $state =~ /[ZX]/;
        ($parent{$pid}, $name{$pid}) = ($parent, $name);
    }
    my @found;
    for my $pid (keys %parent) {
        my $at = $pid;
        $at = $parent{$at} while defined $at && $at != $$ && $at > 1;
        push @found, $pid if defined $at && $at == $$ && $pid != $$;
    }
    return map { [$_, $name{$_}] } sort { $a <=> $b } @found;
}
sub reap {
    while ((my $pid = waitpid(-1, WNOHANG)) > 0) { $status = $? if $pid == $child }
}
sub pause { select undef, undef, undef, $_[0] }
# end_all SIGNAL... — each signal to all that are left, 5 s for them after each but KILL.
sub end_all {
    for my $name (@_) {
        for (my $left = 5; $left > 0; $left -= .05) {
            my @left = descendants() or return reap();
            kill CONT => map { $_->[0] } @left if $name eq 'TERM';
            kill $name => map { $_->[0] } @left if $left == 5 || $name eq 'KILL';
            pause(.05);
            reap();
        }
    }
}

my $parent = getppid;
$SIG{CHLD} = sub { };
for my $name (qw(INT TERM HUP)) { $SIG{$name} = sub { $signal //= $name } }
$child = fork // die "one.pl: fork: $!\n";
if (!$child) {
    $SIG{$_} = 'DEFAULT' for qw(CHLD INT TERM HUP);
    POSIX::setsid();
    open STDIN, '<', '/dev/null';
    $ENV{IN_TEST} = 1; # .ci/need refuses to install anything there
    exec { $ARGV[0] } @ARGV or print STDERR "one.pl: $ARGV[0]: $!\n";
    POSIX::_exit(127);
}
my ($used, $seen) = (0, time);
while (1) {
    reap();
    last if defined $status || $signal || $used > $limit || getppid != $parent;
    pause(.25);
    my $now = time;
    $used += ($now - $seen) / load::factor();
    $seen = $now;
}
if (!defined $status) {
    my $why = $signal ? "ended by SIG$signal" : $used > $limit ? "is over its limit of $limit s" : 'lost the suite';
    print STDERR "# @ARGV $why; running: ", join(', ', map { "$_->[1] ($_->[0])" } descendants()), "\n";
    end_all('TERM', 'KILL');
    exit 124 if !$signal;
    $SIG{$signal} = 'DEFAULT';
    kill $signal => $$;
}
for (my $left = 2; $left > 0 && descendants(); $left -= .05 / load::factor()) { pause(.05); reap() } # they may be about to end
if (my @left = descendants()) {
    print STDERR "# @ARGV left running: ", join(', ', map { "$_->[1] ($_->[0])" } @left), "\n";
    end_all('KILL');
}
if (defined $times && open my $file, '>>', $times) {
    my (undef, undef, $user, $system) = times;
    syswrite $file, sprintf "%.1f\t%.1f\t%s\n", time - $began, $user + $system, $ARGV[0];
}
exit($status & 127 ? 128 + ($status & 127) : $status >> 8);
