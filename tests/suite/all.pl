#!/usr/bin/perl
# all.pl [--build COMMAND] TEST... — builds, then runs the tests with prove, each by one.pl. What it took is printed before
# prove's last lines: processor time, also of each processor of the machine. SUITE_MINUTES: more of them fail the suite.
use strict;
use warnings;
use App::Prove;
use TAP::Formatter::Base;
use TAP::Parser;
use lib do { (my $dir = __FILE__) =~ s{[^/]*\z}{}; $dir || '.' };
use load;

(my $one = __FILE__) =~ s{[^/]*\z}{one.pl};
my $began = time;
my ($limit, $jobs) = ($ENV{SUITE_MINUTES}, $ENV{JOBS} || 2);
sub spent { my $all = 0; $all += $_ for times; return $all }
sub minutes { return sprintf '%d min %02d s', $_[0] / 60, $_[0] % 60 }

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
    print "$text\n";
    if ($limit) {
        my $parser = TAP::Parser->new({ tap => "1..1\n" . ($each > 60 * $limit ? 'not ' : '') . "ok 1 - at most $limit minutes for each processor\n" });
        $parser->run;
        $results->add('processor time', $parser);
    }
    goto &$summary;
};
{ no warnings 'redefine'; *TAP::Formatter::Base::summary = $report }

my $app = App::Prove->new;
$app->process_args('--timer', '--failures', '--comments', '-j', $jobs, '--exec', "$^X $one", @ARGV);
exit($app->run ? 0 : 1);
