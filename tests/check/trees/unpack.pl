#!/usr/bin/perl
# unpack — makes folders that stand for "/" of a node from the descriptions beside this script (README.md has the format).
#   unpack.pl OUT NAME       that one, as OUT
#   unpack.pl OUT            the trees that lines of standard input name, one after the other, as OUT; "ok" answers each
#   unpack.pl --list         a line for each: name, expected row (verdict, name, subject, remedy, why), settings; tabs between them
# From one tree to the next only what differs is written: a tree has hundreds of files.
use strict;
use warnings;
use File::Basename qw(dirname);
use File::Path qw(make_path);

my $here = dirname(__FILE__);
my (%tree, @order);

# "/dev/nvidia{0..7}" → eight paths; "{1b,29}" → two
sub expand {
    my ($path) = @_;
    return $path unless $path =~ /^(.*?)\{([^{}]*)\}(.*)$/;
    my ($head, $list, $tail) = ($1, $2, $3);
    my @member = $list =~ /^(\d+)\.\.(\d+)$/ ? ($1 .. $2) : split /,/, $list, -1;
    return map { expand($head . $_ . $tail) } @member;
}

sub parse {
    my ($file) = @_;
    open my $in, '<', $file or die "$file: $!\n";
    my ($t, $block);
    while (my $line = <$in>) {
        chomp $line;
        if (defined $block && $line =~ /^\t(.*)/) { $block->{text} .= "$1\n"; next }
        undef $block;
        next if $line =~ /^\s*(#|$)/;
        if ($line =~ /^tree (\S+)(?: from (\S+))?$/) {
            $t = { name => $1, from => $2, ops => [], set => '' };
            $tree{$1} = $t;
            push @order, $1;
        }
        elsif ($line =~ /^expect (.*)$/) { $t->{expect} = [split /\s*\|\s*/, $1, -1] }
        elsif ($line =~ /^set (.*)$/) { $t->{set} = $1 }
        elsif ($line =~ m{^(/\S*)\s+(=|\+=|->)\s?(.*)$}) { push @{ $t->{ops} }, { path => $1, op => $2, text => $2 eq '->' ? $3 : "$3\n" } }
        elsif ($line =~ m{^(/\S*):$}) { push @{ $t->{ops} }, $block = { path => $1, op => '=', text => '' } }
        elsif ($line =~ m{^(/\S*)\s+(s/.*)$}) { push @{ $t->{ops} }, { path => $1, op => 's', text => $2 } }
        elsif ($line =~ m{^- (/\S*)$}) { push @{ $t->{ops} }, { path => $1, op => '-' } }
        else { die "$file:$.: $line\n" }
    }
}

# What the operation makes of %$files: path → text, or a reference to where a link points.
sub change {
    my ($files, $op) = @_;
    for my $path (expand($op->{path})) {
        if ($op->{op} eq '=') { $files->{$path} = $op->{text} }
        elsif ($op->{op} eq '+=') { $files->{$path} .= $op->{text} }
        elsif ($op->{op} eq '->') { my $to = $op->{text}; $files->{$path} = \$to }
        elsif ($op->{op} eq '-') {
            my @gone = grep { $_ eq $path || index($_, "$path/") == 0 } keys %$files or die "$path: not there\n";
            delete @$files{@gone};
        }
        else {
            my ($from, $to) = $op->{text} =~ m{^s/((?:[^/\\]|\\.)*)/((?:[^/\\]|\\.)*)/$} or die "$path: $op->{text}\n";
            die "$path: not there\n" unless defined $files->{$path};
            $files->{$path} =~ s/$from/$to/mg or die "$path: nothing like $from\n";
        }
    }
}

sub render {
    my ($name) = @_;
    my $t = $tree{$name} or die "no tree $name\n";
    my %files = $t->{from} ? %{ render($t->{from}) } : ();
    change(\%files, $_) for @{ $t->{ops} };
    return \%files;
}

# A folder that holds nothing any more goes too: that it is there may mean something.
sub remove {
    my ($root, $path) = @_;
    unlink "$root$path" or die "$root$path: $!\n";
    while (($path = dirname($path)) ne '/') { rmdir "$root$path" or last }
}

sub is_same { my ($x, $y) = @_; return defined $x && defined $y && ref $x eq ref $y && (ref $x ? $$x eq $$y : $x eq $y) }

sub make {
    my ($root, $now, $want) = @_;
    make_path($root);
    for (grep { !is_same($now->{$_}, $want->{$_}) } keys %$now) { remove($root, $_) }
    for my $path (grep { !is_same($now->{$_}, $want->{$_}) } keys %$want) {
        make_path(dirname("$root$path"));
        if (ref $want->{$path}) { symlink ${ $want->{$path} }, "$root$path" or die "$root$path: $!\n"; next }
        open my $out, '>', "$root$path" or die "$root$path: $!\n";
        print $out $want->{$path};
        close $out or die "$root$path: $!\n";
    }
}

sub settings {
    my ($t) = @_;
    return join ' ', grep { length } ($t->{from} ? settings($tree{ $t->{from} }) : ''), $t->{set};
}

parse($_) for map { "$here/$_.tree" } qw(nodes faults);
if ("@ARGV" eq '--list') {
    print join("\t", $_, @{ $tree{$_}{expect} || ['none', '', '', '', ''] }, settings($tree{$_})), "\n" for @order;
} elsif (@ARGV == 2) {
    make($ARGV[0], {}, render($ARGV[1]));
} elsif (@ARGV == 1) {
    my $now = {};
    $| = 1;
    while (my $name = <STDIN>) {
        chomp $name;
        make($ARGV[0], $now, my $want = render($name));
        $now = $want;
        print "ok\n";
    }
} else {
    die "usage: unpack.pl OUT [NAME] | --list\n";
}
