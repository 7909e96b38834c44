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
# factor [FILE] — 1 where nothing waits for a processor, 10 where ten want each.
sub factor {
    open my $file, '<', $_[0] // '/proc/loadavg' or return 1;
    my ($minute, $now) = (<$file> // '') =~ m{^(\S+) \S+ \S+ (\d+)/} or return 1;
    my $factor = ($now > $minute ? $now : $minute) / processors();
    return $factor > 1 ? $factor : 1;
}
1;
