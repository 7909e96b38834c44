#!/usr/bin/perl
# test_language — the prose of comments, messages, README and docs, as far as a machine can check it: no persons for processes, no
# metaphors that a reader has to translate, constructions that a reader has to resolve, sentences of a readable length, commit subjects.
# Run from the top folder. `test_language.pl FOLDER [CONSTRUCTION]` lists the lines of a folder, `test_language.pl --write` lowers
# language.tsv to the counts of now.
use strict;
use warnings;

my @tests;
sub test { push @tests, [@_] }
sub slurp { my ($p) = @_; open my $f, '<', $p or die "$p: $!"; local $/; return scalar <$f> }
my @files = grep { -f } split /\n/, `git ls-files -co --exclude-standard 2>/dev/null || find src kernels tests docs -type f`;
my @sources = grep { m{^(src|kernels)/.*\.(c|h|cu|cuh|S|def)$} } @files;
my @headers = grep { /\.(h|cuh)$/ } @sources;
# Pages of docs/history are a record: names that have left are in them.
my @pages = grep { m{^(README|CONTRIBUTING|SECURITY)\.md$|^docs/(?!history/).*\.md$|^(src|kernels)/.*README\.md$} } @files;

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
# Constructions that other projects of this kind have seldom: [name, pattern, most in 10,000 words]. language.tsv has the count that each
# folder is allowed, which may only fall; a folder is finished when no count is above its target.
my @constructions = (
    ['what without a noun', qr/\bwhat\b(?!\s+to\b)(?![^.]*\?)/i, 4],
    ['the one that, those', qr/\bthe ones? (?:that|of|with)\b|\bthose (?:that|of|which|in|on|with|from)\b/i, 3],
    ['that of', qr/\bthat of\b/i, 1.5],
    ['takes', qr/\b(?:takes?|took|taken|taking)\b/i, 8],
    ['says, knows, gives', qr/\b(?:says?|said|saying|tells?|told|telling|asks?|asked|asking|knows?|knew|known|gives?|gave|given|giving|named)\b/i, 40],
    ['so many, as many', qr/\b(?:so|as) many\b|\bso long\b/i, 3],
    ['of which', qr/\bof (?:which|whose)\b/i, 4],
    ['alone, behind, beside', qr/\b(?:alone|behind|beside)\b/i, 3],
    ['Where for if', qr/(?:^|[.;:] )Where\b(?![^.]*\?)/, .5],
    ['comments that begin with of', qr{^/[*/]\s*of\b}i, 0],
    ['lists of _suffix', qr/^\s*\*?\s*(?:_\w+(?:, )?)+(?:[,:]| — |  )/, 0],
);
sub folder_of { my ($p) = @_; return $p =~ m{^(src/\w+/\w+|src/\w+|kernels|docs/decisions)/} ? $1 : $p =~ m{^docs/} ? 'docs' : '.' }
sub counted { return grep { !m{^docs/evidence/} } grep { m{^(?:src|kernels|docs)/|^README} } @sources, @pages }
sub count_constructions {
    my (%count, %words, %lines);
    for my $p (counted()) {
        my $folder = folder_of($p);
        for (prose($p)) {
            my ($n, $line) = @$_;
            $words{$folder} += () = $line =~ /(?<![\w`])[A-Za-z][\w'-]*/g;
            for my $i (0 .. $#constructions) {
                my $hits = () = $line =~ /$constructions[$i][1]/g or next;
                $count{$folder}[$i] += $hits;
                push @{ $lines{$folder}[$i] }, "$p:$n: " . ($line =~ s/^\s+//r);
            }
        }
    }
    return (\%count, \%words, \%lines);
}
my $table = (__FILE__ =~ s{[^/]*\z}{language.tsv}r);
sub target { my ($i, $words) = @_; return int($constructions[$i][2] * $words / 10_000 + .5) }
sub write_table {
    my ($count, $words) = @_;
    open my $out, '>', $table or die "$table: $!";
    print $out join("\t", '# folder', map { $_->[0] } @constructions), "\n";
    for my $folder (sort keys %$words) { print $out join("\t", $folder, map { $count->{$folder}[$_] // 0 } 0 .. $#constructions), "\n" }
    close $out or die "$table: $!";
}
if (@ARGV) {
    my ($count, $words, $lines) = count_constructions();
    if ($ARGV[0] eq '--write') { write_table($count, $words); exit 0 }
    for my $i (0 .. $#constructions) {
        next if defined $ARGV[1] && index($constructions[$i][0], $ARGV[1]) < 0;
        my $n = $count->{ $ARGV[0] }[$i] // 0;
        printf "## %s: %d, target %d\n", $constructions[$i][0], $n, target($i, $words->{ $ARGV[0] } // 0);
        print "$_\n" for @{ $lines->{ $ARGV[0] }[$i] // [] };
    }
    exit 0;
}
test 'constructions of each folder are not more than before', sub {
    my ($count, $words) = count_constructions();
    my (@bad, %allowed, $finished, @sum, $all);
    for (split /\n/, slurp($table)) { next if /^#/; my ($folder, @n) = split /\t/; $allowed{$folder} = \@n }
    for my $folder (sort keys %$words) {
        my $open = 0;
        $all += $words->{$folder};
        for my $i (0 .. $#constructions) {
            my ($n, $most) = ($count->{$folder}[$i] // 0, target($i, $words->{$folder}));
            $sum[$i] += $n;
            $open++ if $n > $most;
            $most = $allowed{$folder}[$i] if defined $allowed{$folder} && $allowed{$folder}[$i] > $most;
            push @bad, "$folder: $constructions[$i][0]: $n, at most $most: test_language.pl $folder" if $n > $most;
        }
        $finished++ unless $open;
    }
    printf "# %s: %.1f of 10,000 words, target %s\n", $constructions[$_][0], 10_000 * $sum[$_] / $all, $constructions[$_][2] for 0 .. $#constructions;
    printf "# %d of %d folders are finished\n", $finished // 0, scalar keys %$words;
    return @bad;
};
# A declaration of a public function is documented by the comment directly above it, or on its own line. A comment is not shared.
test 'at least 95 of 100 public functions have a comment of their own', sub {
    my ($all, @bad) = (0);
    for my $p (@headers) {
        my ($depth, $has_comment, $declaration, $first) = (0, 0, '', 0);
        my $n = 0;
        for my $line (split /\n/, slurp($p)) {
            $n++;
            if ($declaration ne '' || ($depth == 0 && $line =~ /^(?!typedef|static|_Static_assert|template|__device__|[A-Z_]+\()[A-Za-z_].*\(/)) {
                ($declaration, $first) = ($line, $n) if $declaration eq '';
                $declaration .= $line if $n > $first;
                next unless $line =~ /[;{]/;
                if ($declaration =~ m{;\s*(/\*.*)?$}) {
                    $all++;
                    push @bad, "$p:$first" unless $has_comment || $declaration =~ m{/\*};
                }
                ($declaration, $has_comment) = ('', 0);
            } else {
                $has_comment = $line =~ m{\*/\s*$|^//};
            }
            $depth += ($line =~ tr/{//) - ($line =~ tr/}//);
            $depth = 0 if $depth < 0;
        }
    }
    printf "# %d of %d public functions\n", $all - @bad, $all;
    return 20 * @bad > $all ? @bad : ();
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
