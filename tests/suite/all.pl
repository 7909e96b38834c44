#!/usr/bin/perl
# all.pl [--build COMMAND] TEST... — builds, then runs the tests with prove, each by one.pl, JOBS (4) at a time: most wait for most of
# their time. Those of tests/suite/long start first, in its order, so that no long one runs alone at the end. What it took is printed
# before prove's last lines: processor time, also of each processor of the machine, and the programs that took longest; TIMES names a
# file for the times of all. SUITE_MINUTES: more minutes of processor time for each processor fail the suite.
use strict;
use warnings;
use App::Prove;
use File::Temp;
use TAP::Formatter::Base;
use TAP::Parser;
use lib do { (my $dir = __FILE__) =~ s{[^/]*\z}{}; $dir || '.' };
use load;

(my $one = __FILE__) =~ s{[^/]*\z}{one.pl};
my $began = time;
my ($limit, $jobs) = ($ENV{SUITE_MINUTES}, $ENV{JOBS} || 4); delete $ENV{ONLY}; # of make: a test's own programs read a variable of this name
my $kept = File::Temp->new(TEMPLATE => 'convoy-times-XXXXXX', TMPDIR => 1);
my $times = $ENV{SUITE_TIMES} = delete $ENV{TIMES} // $kept->filename;
{ open my $file, '>', $times or die "all.pl: TIMES=$times cannot be written: $!\n" } # each test adds to it: none of an earlier run
sub spent { my $all = 0; $all += $_ for times; return $all }
sub minutes { return sprintf '%d min %02d s', $_[0] / 60, $_[0] % 60 }

sub lines_of { open my $file, '<', $_[0] or return; chomp(my @lines = <$file>); return @lines }
sub stem { return $_[0] =~ s{^.*/tests/|^tests/}{}r }
# in_order — the tests, those of the list of long ones first.
sub in_order {
    my %place;
    $place{$_} = keys %place for map { s/ .*//r } grep { !/^#/ } lines_of(__FILE__ =~ s{[^/]*\z}{long}r);
    return sort { ($place{stem($a)} // 1e9) <=> ($place{stem($b)} // 1e9) || $a cmp $b } @_;
}
# longest — the N programs that took longest, with their processor time.
sub longest {
    my @rows = sort { $b->[0] <=> $a->[0] } map { [split /\t/] } lines_of($times);
    return join ', ', map { sprintf '%s %.0f s (%.0f s)', stem($_->[2]), @$_[0, 1] } splice @rows, 0, $_[0];
}

my $build = @ARGV && $ARGV[0] eq '--build' ? (splice @ARGV, 0, 2)[1] : undef;
if (defined $build) {
    my $rc = system $build;
    exit($rc & 127 ? 128 + ($rc & 127) : $rc >> 8) if $rc;
}
my $built = spent();

my $summary = \&TAP::Formatter::Base::summary;
my $report = sub {
    my ($self, $results) = @_;
    my $all = spent();
    my $each = $all / load::processors();
    my $text = sprintf 'processor time %s (build %s, tests %s): %s for each of %d processors; %s passed', minutes($all), minutes($built),
        minutes($all - $built), minutes($each), load::processors(), minutes(time - $began);
    print "$text\nlongest (processor time): ", longest(10), "\n";
    if ($limit) {
        my $parser = TAP::Parser->new({ tap => "1..1\n" . ($each > 60 * $limit ? 'not ' : '') . "ok 1 - at most $limit minutes for each processor\n" });
        $parser->run;
        $results->add('processor time', $parser);
    }
    goto &$summary;
};
{ no warnings 'redefine'; *TAP::Formatter::Base::summary = $report }

my $app = App::Prove->new;
$app->process_args('--timer', '--failures', '--comments', '-j', $jobs, '--exec', "$^X $one", in_order(@ARGV));
exit($app->run ? 0 : 1);
