#!/usr/bin/perl
# busy.pl LOAD COMMAND... — the command, while LOAD processes of this one do nothing but compute. They end with it, however it ends.
use strict;
use warnings;
use POSIX ();

my $load = shift // 0;
die "busy.pl LOAD COMMAND...\n" if $load !~ /^\d+$/ || !@ARGV;
my $parent = $$;
my @burners;
for (1 .. $load) {
    my $pid = fork // die "busy.pl: fork: $!\n";
    if (!$pid) {
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
        while (getppid == $parent) { my $x = 0; $x += $_ for 1 .. 100000 }
        POSIX::_exit(0);
    }
    push @burners, $pid;
}
my $signal;
for my $name (qw(INT TERM HUP)) { $SIG{$name} = sub { $signal //= $name } }
my $rc = system { $ARGV[0] } @ARGV;
kill KILL => @burners;
waitpid $_, 0 for @burners;
exit 128 + 15 if $signal;
exit($rc == -1 ? 127 : $rc & 127 ? 128 + ($rc & 127) : $rc >> 8);
