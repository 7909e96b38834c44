# crash — what the Perl tests of this folder share: TAP, a temporary folder, the real binary in a process group of its own,
# small models, and what must be true of a checkpoint folder whatever happened.
package crash;
use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);
our @EXPORT = qw(plan_skip ok note done slurp lines begin finish is_over kill_group run worker_of out err losses steps temps
    copy_tree write_tokens write_squad wait_until is_torture %model clean_up sleep time remove_tree);

my $root = abs_path(__FILE__ =~ s{[^/]*$}{}r . '../..');
my $build = $ENV{BUILD} || 'build';
my $convoy = ($build =~ m{^/} ? $build : "$root/$build") . '/convoy';
require "$root/tests/suite/load.pm";
my ($n, $bad, $main) = (0, 0, $$);
# patience — a limit of time in seconds that is this long on a quiet machine.
sub patience { return $_[0] * ($ENV{SAN} ? 5 : 1) * load::factor() }
my %group; # process groups begun and not yet over
my $home = tempdir('convoy-crash-XXXXXX', DIR => $ENV{TMPDIR} || '/tmp');
chdir $home or die "$home: $!";
delete @ENV{qw(MODEL VAL_DATA CHECKPOINT_DIR METRICS_FILE FAULT STEPS)};
@ENV{qw(XDG_CACHE_HOME NO_COLOR STATUS_PORT LC_ALL DATA LOG_EVERY)} = ("$home/cache", 1, 0, 'C', 'synthetic', 1);
$ENV{ASAN_OPTIONS} = join ':', grep { defined } $ENV{ASAN_OPTIONS}, 'detect_leaks=0'; # it cannot look at what is traced
$SIG{TERM} = $SIG{INT} = sub { exit 1 };

sub clean_up {
    kill -9 => $_ for keys %group;
    chdir '/';
    system "mountpoint -q '$home/mnt' && umount '$home/mnt'";
    remove_tree($home);
}
END { my $code = $?; clean_up() if $$ == $main; $? = $code }

sub program { return $convoy }
sub is_torture { return ($ENV{TORTURE} || '') eq '1' }
sub note { print "# $_\n" for map { split /\n/ } @_ }
sub plan_skip { print "1..0 # SKIP $_[0]\n"; exit 0 }
sub ok {
    my ($name, @why) = @_; # each of @why is a reason why not
    $n++;
    print @why ? 'not ok' : 'ok', " $n - $name\n";
    note(@why > 12 ? (@why[0 .. 11], '… and ' . (@why - 12) . ' more') : @why);
    $bad += !!@why;
}
sub done { print "1..$n\n"; exit($bad ? 1 : 0) }

sub slurp { my ($p) = @_; open my $f, '<', $p or return ''; local $/; return scalar(<$f>) // '' }
sub lines { return split /\n/, slurp($_[0]) }
sub out { return slurp('out') }
sub err { return slurp('err') }

# begin — `convoy train …` in a process group of its own, its output in the files out and err.
sub begin {
    my (@settings) = @_;
    unlink 'out', 'err'; # a run that is killed at once must not seem to have said what the last one did
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        POSIX::setpgid(0, 0);
        open STDOUT, '>', 'out' or die;
        open STDERR, '>', 'err' or die;
        exec $convoy, 'train', @settings or POSIX::_exit(127);
    }
    POSIX::setpgid($pid, $pid);
    $group{$pid} = 1;
    return $pid;
}
sub code { my ($s) = @_; return $s & 127 ? 128 + ($s & 127) : $s >> 8 }
sub is_over {
    my ($pid, $code) = @_;
    return 0 if waitpid($pid, WNOHANG) != $pid;
    delete $group{$pid};
    $$code = code($?);
    return 1;
}
sub finish {
    my ($pid, $seconds) = @_;
    my ($code, $end) = (-1, time + patience($seconds // 60));
    until (is_over($pid, \$code)) {
        if (time > $end) {
            note('a run has not ended in time', (lines('err'))[-5 .. -1]);
            kill_group($pid);
            return -1;
        }
        sleep 0.005;
    }
    return $code;
}
sub kill_group {
    my ($pid) = @_;
    kill -9 => $pid;
    waitpid $pid, 0;
    delete $group{$pid};
    return code($?);
}
sub run { return finish(begin(@_)) }
sub worker_of { my ($pid) = @_; return (split ' ', `ps -o pid= --ppid $pid --sort start_time,pid`)[0] }
sub wait_until {
    my ($seconds, $is) = @_;
    my $end = time + patience($seconds);
    until ($is->()) {
        return 0 if time > $end;
        sleep 0.001;
    }
    return 1;
}

# losses — what must repeat bit for bit: every number of every step at full precision, all but the time it took.
sub losses { return join "\n", map { s/,"step_ms":.*//r } lines($_[0]) }
sub names { my ($dir) = @_; opendir my $d, $dir or return; return readdir $d }
sub steps { my ($dir) = @_; return sort { $a <=> $b } map { /^step-0*(\d+)$/ ? $1 : () } names($dir) }
sub temps { my ($dir) = @_; return grep { /^\.tmp-/ } names($dir) }
sub copy_tree { my ($from, $to) = @_; remove_tree($to); return system('cp', '-r', $from, $to) == 0 }

# write_tokens — an llm.c token file, some 40 samples of 64 tokens, so that a run of 40 steps passes over it several times.
sub write_tokens {
    my ($path) = @_;
    my $x = 1;
    my @ids = map { $x = ($x * 1103515245 + 12345) % 2147483648; ($_ * 7 + ($x >> 16) % 3) % 64 } 1 .. 2600;
    open my $f, '>:raw', $path or die;
    print $f pack('l<256 v*', 20240520, 1, scalar @ids, (0) x 253, @ids);
    close $f or die;
}
# write_squad — questions about a table of who lives where.
sub write_squad {
    my ($path) = @_;
    my @towns = qw(Oslo Lima Cairo Paris Delhi Quito Rome Bern);
    my @names = qw(Anna Bela Carl Dora Emil Fred Gina Hugo);
    my $context = join ' ', map { "$names[$_] lives in $towns[$_]." } 0 .. 7;
    my @qas = map { sprintf '{"id":"q%d","question":"Where does %s live?","answers":[{"text":"%s","answer_start":%d}]}',
        $_, $names[$_], $towns[$_], index($context, $towns[$_]) } 0 .. 7;
    open my $f, '>', $path or die;
    print $f '{"version":"1.1","data":[{"title":"towns","paragraphs":[{"context":"', $context, '","qas":[', join(',', @qas), ']}]}]}';
    close $f or die;
}

# Models of which a step takes some milliseconds and the state some 1.3 MB, 17 MB (each file more than 4 MiB, so that it is
# written past the page cache) and 10 MB; dropout, so that the random state is part of what must be the same.
our %model = (
    lm => [qw(MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=64 VOCAB=64 CONTEXT=64 SEQ_LEN=64 BATCH_SIZE=8 DROPOUT=0.1 LR=1e-3 DATA=tokens.bin)],
    large => [qw(MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=64 VOCAB=20000 CONTEXT=64 SEQ_LEN=64 BATCH_SIZE=1 DROPOUT=0.1 LR=1e-3 DATA=tokens.bin)],
    qa => [qw(MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 CONTEXT=128 SEQ_LEN=128 BATCH_SIZE=2 DROPOUT=0.1 LR=1e-3 TASK=qa DATA=squad.json)],
);
write_tokens('tokens.bin');
write_squad('squad.json');

1;
