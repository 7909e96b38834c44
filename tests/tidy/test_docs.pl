#!/usr/bin/perl
# test_docs — README.md and docs: generated pages are as the program prints them, links and anchors lead somewhere, files that are
# named exist, tables that list modules, files and messages are complete. Run from the top folder; BUILD names the build folder.
use strict;
use warnings;
use File::Basename qw(dirname);

my $build = $ENV{BUILD} || 'build';
my @tests;
sub test { push @tests, [@_] }
# Folders with something in them: git keeps no empty ones.
sub folders { return grep { my @in = glob "$_/*"; -d && @in } map { glob } @_ }
sub slurp { my ($p) = @_; open my $f, '<', $p or die "$p: $!"; local $/; return scalar <$f> }
my @pages = grep { -f } ('README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', glob('docs/*.md docs/decisions/*.md docs/evidence/*.md docs/history/*.md src/README.md src/*/README.md kernels/README.md tests/*/README.md'));

sub generated {
    my ($page, $topic) = @_;
    my $made = `"$build/convoy" help $topic`;
    return "$build/convoy help $topic fails" if $?;
    return $made eq slurp($page) ? () : "$page is not what `convoy help $topic` prints: run `make docs` and commit it";
}
test 'docs/settings.md is what the program prints', sub { return generated('docs/settings.md', 'settings-markdown') };
test 'docs/status.md is what the program prints', sub { return generated('docs/status.md', 'status-markdown') };
test 'docs/testing.md has the hooks as the program prints them', sub {
    my $made = `"$build/convoy" help hooks-markdown`;
    return $made =~ /^\| `FAULT` /m && index(slurp('docs/testing.md'), $made) >= 0
        ? () : 'docs/testing.md: put in what `convoy help hooks-markdown` prints';
};
test 'docs/exit-codes.md is what the program prints', sub { return generated('docs/exit-codes.md', 'exit-codes-markdown') };
test 'README.md has at most 130 lines', sub { my $n = () = slurp('README.md') =~ /\n/g; return $n > 130 ? "$n lines" : () };

# The anchors of a page, as GitHub makes them of its headings.
sub anchors {
    my ($text) = @_;
    my %has;
    for my $heading ($text =~ /^#+ +(.*)$/mg) {
        my $anchor = lc $heading;
        $anchor =~ s/[`*]//g;
        $anchor =~ s/[^\w\- ]//g;
        $anchor =~ s/ /-/g;
        $has{$anchor} = 1;
    }
    return \%has;
}
test 'links and anchors lead somewhere', sub {
    my @bad;
    for my $page (@pages) {
        (my $text = slurp($page)) =~ s/^```.*?^```//msg;
        for my $link ($text =~ /\]\(([^)\s]+)\)/g) {
            next if $link =~ m{^https?://|^mailto:};
            my ($path, $anchor) = split /#/, $link, 2;
            my $target = $path eq '' ? $page : dirname($page) . "/$path";
            if (!-e $target) { push @bad, "$page: $link: no such file"; next }
            push @bad, "$page: $link: no such heading" if defined $anchor && !anchors(slurp($target))->{$anchor};
        }
    }
    return @bad;
};
test 'files that are named exist', sub {
    my @bad;
    # Changes of a version name files as they were then.
    for my $page (grep { !m{^CHANGELOG\.md$|^docs/history/} } @pages) {
        for my $name (slurp($page) =~ /`((?:src|kernels|tests|docs|k8s|examples|assets)\/[\w.\/*-]+)`/g) {
            my $pattern = $name =~ /\*/ ? $name : "$name $name.*";
            push @bad, "$page: $name" unless grep { -e } glob $pattern;
        }
    }
    return @bad;
};
test 'docs/testing.md names every module and every folder of tests', sub {
    my $text = slurp('docs/testing.md');
    return map { "$_ is missing" } grep { $text !~ /^\| `\Q$_\E` /m } 'kernels', folders('src/*', 'tests/*');
};
test 'docs/architecture.md names every module; the README of a module names every file of its', sub {
    my $text = slurp('docs/architecture.md');
    my @bad = grep { $text !~ /^\| `\Q$_\E` /m } 'kernels', folders('src/*');
    for my $readme (glob 'src/*/README.md') {
        (my $module = $readme) =~ s{/README\.md$}{};
        my %stem = map { m{^\Q$module\E/(.*)\.[ch]$} ? ($1 => 1) : () } glob "$module/*.[ch] $module/*/*.[ch]";
        # A row whose first cell is "core/" is the heading of the files of that folder.
        my (%named, $folder);
        for (grep { /^\|/ } split /\n/, slurp($readme)) {
            $folder = $1 if m{^\| (\w+/) \|};
            my ($cell) = /^\| (.*?) \|/ or next;
            $named{ ($folder // '') . s/\.(?:\[ch\]|[ch])$//r } = 1 for $cell =~ /`([\w.\[\]]+)`/g;
        }
        push @bad, map { "$readme: $_ is missing" } grep { !$named{$_} } sort keys %stem;
        push @bad, map { "$readme: $_ is no file" } grep { !$stem{$_} } sort keys %named;
    }
    return @bad;
};
test 'docs/decisions/README.md lists every decision', sub {
    my $text = slurp('docs/decisions/README.md');
    return map { "$_ is missing" } grep { my ($name) = m{([^/]+)$}; $name ne 'README.md' && $text !~ /\(\Q$name\E\)/ } glob 'docs/decisions/*.md';
};
test 'docs/troubleshooting.md quotes messages that the program has', sub {
    my $sources = join '', map { slurp($_) } glob 'src/*.c src/*/*.c src/*/*/*.c';
    $sources =~ s/"\s*\n\s*"//g;
    return grep { index($sources, $_) < 0 } map { /^\| \d+ \| `([^`]+)`/ ? $1 : () } split /\n/, slurp('docs/troubleshooting.md');
};

print '1..' . @tests . "\n";
my $failed = 0;
for my $i (0 .. $#tests) {
    my ($name, $run) = @{ $tests[$i] };
    my @bad = $run->();
    print '' . (@bad ? 'not ok ' : 'ok ') . ($i + 1) . " - $name\n";
    print "# $_\n" for @bad[0 .. ($#bad > 40 ? 40 : $#bad)];
    $failed++ if @bad;
}
exit($failed ? 1 : 0);
