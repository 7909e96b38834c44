#!/usr/bin/perl
# test_budgets — counts that may only fall: settings, rules, lines of code, files, functions with one caller. Each row of budgets.tsv
# has a name, the count that is allowed, and the goal. Run from the top folder.
use strict;
use warnings;

sub slurp { my ($p) = @_; open my $f, '<', $p or die "$p: $!"; local $/; return scalar <$f> }
# Code without comments; strings are emptied, so that their words do not count as calls.
sub code {
    my ($text) = @_;
    $text =~ s{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')}{
        my $m = $1; my $n = ($m =~ tr/\n//); ($m =~ /^["']/ ? substr($m, 0, 1) x 2 : ' ') . "\n" x $n}gse;
    return $text;
}
sub lines { my ($text) = @_; return scalar grep { /\S/ } split /\n/, $text }
my @files = grep { -f } split /\n/, `git ls-files -co --exclude-standard src kernels tests 2>/dev/null || find src kernels tests -type f`;
my %code = map { $_ => code(slurp($_)) } grep { /\.(c|h|cu|cuh|cc|def|S)$/ } @files;
my @program = grep { m{^(src|kernels)/} } sort keys %code;
my @tests = grep { m{^tests/} } @files;

my %count;
$count{'settings'} = () = $code{'src/conf/conf.def'} =~ /^CONF_ROW\(/mg;
# A rule is a refusal in conf_rules.c, or a row of a table of them.
$count{'rules of settings'} = () = join("\n", map { $code{$_} // '' } 'src/conf/conf_rules.c', 'src/conf/conf_pairs.def')
    =~ /^\s+return (?:fail_pair|check_needs|FAIL)\(|^\s*TRY\(check_needs\(|^CONF_PAIR\(/mg;
$count{'lines of code in src and kernels'} += lines($code{$_}) for @program;
# Of scripts, lines that are only a comment are left out.
$count{'lines of code in tests'} += exists $code{$_} ? lines($code{$_}) : scalar grep { /\S/ && !/^\s*#/ } split /\n/, slurp($_)
    for grep { exists $code{$_} || /\.(sh|pl|pm|py|mk)$/ } @tests;
$count{'files in src and kernels'} = @program;
$count{'source files under 60 lines'} = grep { m{^src/.*\.c$} && (() = slurp($_) =~ /\n/g) < 60 } @program;
# A folder of tests/unit is one program.
my %units = map { m{^tests/unit/(\w+)/\w+\.c$} ? ($1 => 1) : () } @tests;
$count{'test programs'} = keys(%units) + grep { m{^tests/\w+/test_\w+\.(c|sh|pl)$} } @tests;

# A header's readers are the program's files other than its own source.
my %readers;
for my $p (@program) { $readers{$_}{$p} = 1 for slurp($p) =~ /^\s*#\s*include\s+"([\w\/.]+)"/mg }
for my $h (grep { /\.(h|cuh)$/ } @program) {
    (my $name = $h) =~ s{^src/}{};
    (my $own = $h) =~ s{\.\w+$}{};
    $count{'headers with one reader'}++ if 1 == grep { !m{^\Q$own\E\.} } keys %{ $readers{$name} || {} };
}
# A static function has one caller if its name is followed by a parenthesis in one other place, and stands nowhere else: not in a
# table of functions, either.
for my $p (grep { /\.c$/ } @program) {
    my (%named, %called);
    $named{$_}++ for $code{$p} =~ /\b[a-z]\w+\b/g;
    $called{$_}++ for $code{$p} =~ /\b([a-z]\w+)\(/g;
    my @static = $code{$p} =~ /^static [\w ]+?[ *]([a-z]\w+)\([^;{}]*\)\n\{/mg;
    # Entries of tables, which are not called by name, may have one.
    $count{'static functions with one word as name'} += grep { !/_/ && $called{$_} > 1 } @static;
    $count{'static functions with one caller'} += grep { $named{$_} == 2 && $called{$_} == 2 } @static;
}

# The middle scale: how much a reader has to know of others to understand one part.
sub members { my ($text, $name) = @_; my ($body) = $text =~ /^struct \Q$name\E \{\n(.*?)^\};/ms or die "no struct $name"; 1 while $body =~ s/\{[^{}]*\}//gs; return $body }
my $step = members($code{'src/train/step/inside.h'}, 'step');
$count{'members of struct step'} = () = $step =~ /[;,]/g;
$count{'source files that see struct step'} = grep { m{^src/.*\.c$} && slurp($_) =~ m{^#include "train/step/inside\.h"}m } @program;
my %feature = map { $_ => 1 } map { $code{$_} =~ /\b(step_\w+)\(/g } grep { m{^src/train/feature/.*\.h$} } @program;
$count{'calls from the run loop into features'} = grep { $feature{$_} } $code{'src/train/step/run.c'} =~ /\b(\w+)\(/g;
my $calls = members($code{'src/comm/core/transport.h'}, 'transport_ops');
$count{'entries of transport_ops'} = () = $calls =~ /;/g;
for (['step.h', 'src/train/step/step.h', 'step'], ['store.h', 'src/mesh/store/store.h', 'store']) {
    my ($name, $file, $prefix) = @$_;
    $count{"functions of $name"} = () = $code{$file} =~ /^[a-z][\w *]*?\b${prefix}_\w+\(/mg;
}
$count{'lines of src/model that name axes'} = grep { /axis|axes|\bparts?\b|parts_n|parts_of|context_n\b|(?:tensor|context)_ranks?\b|p->(?:tensor|context)\b/ }
    map { split /\n/, slurp($_) } grep { m{^src/model/} } @program;
# Folders of train and node are columns: one includes those before it.
for (['train', qw(weights step feature checkpoint peer_copy generate trainer)], ['node', qw(process bucket choose check worker supervisor rehearse command)]) {
    my ($module, @order) = @$_;
    my %at = map { $order[$_] => $_ } 0 .. $#order;
    for my $p (grep { m{^src/$module/} } @program) {
        my ($from) = $p =~ m{^src/$module/(\w+)/} or next;
        $count{"upward includes in $module"} += grep { $at{$_} > $at{$from} } slurp($p) =~ m{^#include "$module/(\w+)/}mg;
    }
}
my %files;
$files{ s{/[^/]+$}{}r }++ for grep { m{^src/} && !m{^src/base/} } @program;
($count{'files in the largest folder of src, but base'}) = sort { $b <=> $a } values %files;

my @rows = map { [split /\t/] } grep { !/^#/ } split /\n/, slurp('tests/tidy/budgets.tsv');
print '1..' . (@rows + 1) . "\n";
my ($n, $failed) = (0, 0);
for (@rows) {
    my ($name, $budget, $goal) = @$_;
    my $got = delete $count{$name};
    my $is_right = defined $got && $got <= $budget;
    print $is_right ? '' : 'not ', 'ok ', ++$n, " - $name: ", $got // 'not counted', ", at most $budget (goal $goal)\n";
    print "# lower the row of tests/tidy/budgets.tsv to $got\n" if $is_right && $got < $budget;
    print "# a change that needs more raises the row in the same commit and says why\n" unless $is_right;
    $failed++ unless $is_right;
}
print keys %count ? 'not ' : '', 'ok ', ++$n, " - every count has a budget\n";
print "# no row for: $_ ($count{$_})\n" for sort keys %count;
exit($failed || keys %count ? 1 : 0);
