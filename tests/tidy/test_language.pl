#!/usr/bin/perl
# test_language — the prose of comments, messages, README and docs, as far as a machine can check it: no persons for processes, no
# metaphors that a reader has to translate, sentences of a readable length, commit subjects. Run from the top folder.
use strict;
use warnings;

my @tests;
sub test { push @tests, [@_] }
sub slurp { my ($p) = @_; open my $f, '<', $p or die "$p: $!"; local $/; return scalar <$f> }
my @files = grep { -f } split /\n/, `git ls-files -co --exclude-standard 2>/dev/null || find src kernels tests docs -type f`;
my @sources = grep { m{^(src|kernels)/.*\.(c|h|cu|cuh|S|def)$} } @files;
my @headers = grep { /\.(h|cuh)$/ } @sources;
my @pages = grep { m{^(README|CONTRIBUTING|SECURITY)\.md$|^docs/.*\.md$|^(src|kernels)/.*README\.md$} } @files;

# Comments and strings of a source file, each with its line; of a page its text without code.
sub prose {
    my ($p) = @_;
    my $text = slurp($p);
    if ($p =~ /\.md$/) {
        $text =~ s/^```.*?^```/"\n" x ($& =~ tr,\n,,)/msge;
        $text =~ s/`[^`\n]*`/x/g;
        my $n = 0;
        return map { [++$n, $_] } split /\n/, $text;
    }
    my @found;
    while ($text =~ m{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])+'}gs) {
        next unless defined $1;
        next if $1 =~ /^"\w*"$/; # a key of JSON, a value of a setting
        my ($piece, $line) = ($1, 1 + (substr($text, 0, $-[1]) =~ tr/\n//));
        push @found, [$line++, $_] for split /\n/, $piece;
    }
    return @found;
}
sub each_word {
    my ($pattern, @in) = @_;
    my @bad;
    for my $p (@in) {
        for (prose($p)) { my ($n, $line) = @$_; push @bad, "$p:$n: $1: $line" if $line =~ /\b($pattern)\b/i }
    }
    return @bad;
}
# A process, rank, thread or function is no person: "the caller", "a rank that …", "no rank".
test 'no persons', sub { return each_word(qr/who|whom|somebody|nobody|everybody|anybody|someone|everyone|anyone/, @sources, @pages) };
# Names of this code's past, which a reader had to learn; docs/architecture.md has the glossary.
test 'no metaphors', sub {
    return each_word(qr/halls?|meetings?|guests?|squeez\w+|councils?|rally|crews?|ferry|porter|doorstep|tally|barren|sliver\w*|setback/, @sources, @pages);
};
# Sentences of comments in headers: 25 words are the aim, 40 the limit. Lists and formulas are no sentences.
test 'sentences of header comments have at most 40 words', sub {
    my (@bad, @n);
    for my $p (@headers) {
        for my $comment (slurp($p) =~ m{(/\*.*?\*/)}gs) {
            $comment =~ s{^/\*|\*/$}{}g;
            $comment =~ s/^\s*\* ?//mg;
            for my $paragraph (split /\n\s*\n|\n(?=\s{2,}\S|- |\w+ {2,}|(?:out|in|i\/o) )/, $comment) {
                for my $sentence (split /(?<=[.;:])\s+|\s—\s/, $paragraph) {
                    my $n = () = $sentence =~ /(?<![\w`])[A-Za-z][\w'-]*/g;
                    push @n, $n if $n;
                    push @bad, "$p: $n words: " . substr($sentence =~ s/\s+/ /gr, 0, 90) . '…' if $n > 40;
                }
            }
        }
    }
    @n = sort { $a <=> $b } @n;
    print '# ' . @n . " sentences: median $n[@n / 2], 90 % $n[@n * .9], longest $n[-1] words\n" if @n;
    return @bad;
};
test 'commit subjects: module: do the thing, at most 72 columns', sub {
    my @bad;
    for (split /\n/, `git log -20 --no-merges --format=%s 2>/dev/null`) { push @bad, $_ if length > 72 || !/^[\w.\/, -]+: \S/ }
    return @bad;
};

binmode STDOUT, ':raw';
print '1..' . @tests . "\n";
my $failed = 0;
for my $i (0 .. $#tests) {
    my ($name, $run) = @{ $tests[$i] };
    my @bad = $run->();
    print '' . (@bad ? 'not ok ' : 'ok ') . ($i + 1) . " - $name\n";
    print '# ' . @bad . " places\n" if @bad;
    print "# $_\n" for @bad[0 .. ($#bad > 60 ? 60 : $#bad)];
    $failed++ if @bad;
}
exit($failed ? 1 : 0);
