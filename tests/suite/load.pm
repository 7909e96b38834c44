# load — how many processes want each processor of this machine now. Limits of time in tests grow with it (also lib.sh, harness.h).
package load;
use strict;
use warnings;

my $processors;
sub processors {
    return $processors if $processors;
    chomp($processors = `nproc 2>/dev/null` || 1);
    return $processors;
}
# ticks [FILE] — of all processors since the machine began: busy, and of these stolen, which a virtual machine's host gave to others.
sub ticks {
    open my $file, '<', $_[0] // '/proc/stat' or return (0, 0);
    my ($user, $nice, $system, undef, undef, $irq, $softirq, $stolen) = (<$file> // '') =~ /(\d+)/g;
    return defined $stolen ? ($user + $nice + $system + $irq + $softirq + $stolen, $stolen) : (0, 0);
}
my @before = ticks();
# own [FILE] — which share of the time that processes wanted since the program began, or the last call a second of such time ago, was not
# stolen: 0.1 to 1.
my $own = 1;
sub own {
    my @now = ticks(@_);
    my ($busy, $stolen) = map { $now[$_] - $before[$_] } 0, 1;
    return $own if $busy < 100;
    @before = @now;
    $own = 1 - $stolen / $busy;
    return $own = $own < 0.1 ? 0.1 : $own > 1 ? 1 : $own;
}
# factor [FILE [FILE]] — 1 where nothing waits for a processor, 10 where ten want each, or one has a tenth of it.
sub factor {
    my ($loadavg, @stat) = @_;
    open my $file, '<', $loadavg // '/proc/loadavg' or return 1;
    my ($minute, $now) = (<$file> // '') =~ m{^(\S+) \S+ \S+ (\d+)/} or return 1;
    my $factor = ($now > $minute ? $now : $minute) / processors();
    return ($factor > 1 ? $factor : 1) / own(@stat);
}
1;
