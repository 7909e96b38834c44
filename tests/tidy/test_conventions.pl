#!/usr/bin/perl
# test_conventions — the rules of the code that a machine can check: layers, prefixes, banned calls, headers that compile alone,
# format, columns, lengths of functions and files, callers. Run from the top folder; BUILD names the build folder.
use strict;
use warnings;

my $build = $ENV{BUILD} || 'build';
my @tests;
sub test { push @tests, [@_] }
sub slurp { my ($p) = @_; open my $f, '<', $p or die "$p: $!"; local $/; return scalar <$f> }
# Code without comments and string contents, line numbers kept.
sub code {
    my ($text) = @_;
    $text =~ s{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')}{
        my $m = $1; my $n = ($m =~ tr/\n//); ($m =~ /^["']/ ? substr($m, 0, 1) x 2 : ' ') . "\n" x $n}gse;
    return $text;
}
my @files = grep { -f } split /\n/, `git ls-files -co --exclude-standard src kernels tests 2>/dev/null || find src kernels tests -type f`;
my @program = grep { m{^(src|kernels)/.*\.(c|h|cu|cuh|S|def)$} } @files;
my @c = grep { /\.[ch]$/ } @program;
my @code = grep { /\.(c|h|cu|cuh)$/ } @program;
my @formatted = grep { /\.(c|h|cu|cuh)$/ } @files;
sub module { my ($p) = @_; return $p =~ m{^src/(\w+)/} ? $1 : $p =~ m{^kernels/} ? 'kernels' : 'main' }

# 1. A file includes its own module, base, and the modules that its module may know (docs/architecture.md, "Layers").
my %may = (
    base => [], kernels => [], conf => [], net => [], data => [qw(net remote)], remote => [qw(net)], serve => [qw(net)], cluster => [qw(net)], file_share => [qw(net)],
    format => [qw(kernels)], dev => [qw(kernels)], model => [qw(dev kernels)], comm => [qw(dev kernels)],
    mesh => [qw(comm dev model kernels)], train => [qw(dev model data format comm mesh kernels)],
    measure => [qw(dev comm kernels)], check => [qw(dev comm measure kernels)], plan => [qw(dev mesh model train comm measure kernels)],
    node => [qw(serve conf dev model data remote format train comm mesh net cluster file_share measure check plan kernels)],
);
test 'layers: every #include is allowed by the table', sub {
    my @bad;
    for my $p (@code) {
        my $module = module($p);
        next if $module eq 'main';
        my %ok = map { $_ => 1 } $module, 'base', @{ $may{$module} || die "module $module is not in the table" };
        my $n = 0;
        for (split /\n/, slurp($p)) {
            $n++;
            next unless m{^\s*#\s*include\s+"(\w+)/};
            push @bad, "$p:$n: $module may not include $1" unless $ok{$1};
        }
    }
    return @bad;
};

# 2. model/ is the mathematics of one device: no word of devices, peers or configurations in its code.
test 'model: no rank, world, nccl, ucx, cuda, #if', sub {
    my @bad;
    for my $p (grep { m{^src/model/} } @c) {
        my $n = 0;
        my $text = code(slurp($p));
        for (split /\n/, $text) {
            $n++;
            next if /^#ifndef CONVOY_\w+_H$/;
            push @bad, "$p:$n: $_" if /\b(rank|world|nccl|ucx|cuda)\b/i || /^\s*#\s*(if|elif)/;
        }
    }
    return @bad;
};

# 3. Calls with a better owner. pattern, files that may use it, what to use instead.
my @banned = (
    [qr/\b(atoi|atol|atof|strto(l|ll|ul|ull|d|f|ld|imax|umax)|sscanf)\s*\(/, qr{^src/base/text\.c$}, 'text_*'],
    [qr/\b(sprintf|vsprintf|strcpy|strcat|strncpy|strncat|gets)\s*\(/, qr{^$}, 'text_*'],
    [qr/\b(secure_)?getenv\s*\(/, qr{^src/conf/}, 'conf'],
    [qr/\b(setenv|putenv)\s*\(/, qr{^src/(conf|node)/}, 'conf'],
    [qr/\b(gettimeofday|clock_gettime)\s*\(|\btime\s*\(/, qr{^src/base/clock\.c$}, 'clock_*'],
    [qr/\b(rand|srand|random|drand48)\s*\(/, qr{^$}, 'rand_*'],
    [qr/\bassert\s*\(/, qr{^$}, 'ASSERT'],
    [qr/(?<![_\w])exit\s*\(/, qr{^src/main\.c$}, 'a status'],
    [qr/\babort\s*\(/, qr{^$}, 'ASSERT'],
    [qr/\bsystem\s*\(|\bpopen\s*\(/, qr{^$}, 'nothing: no shell'],
    [qr/\bcudaDeviceSynchronize\b/, qr{^$}, 'dev_sync'],
    [qr/\balloca\s*\(/, qr{^$}, 'an arena'],
);
test 'banned calls: each has one owner', sub {
    my @bad;
    for my $p (@code) {
        my $n = 0;
        for (split /\n/, code(slurp($p))) {
            $n++;
            for my $b (@banned) {
                push @bad, "$p:$n: use $b->[2]: $_" if $_ =~ $b->[0] && $p !~ $b->[1];
            }
        }
    }
    return @bad;
};

# A choice is compared with a value of its enum (src/conf/conf_choice.h), never with its number.
test 'settings: no choice is compared with a number', sub {
    my %choice = map { $_ => 1 } (slurp('src/conf/conf.def') . slurp('src/conf/conf_hooks.def')) =~ /CONF_ROW\((\w+), CHOICE\b/g;
    my @bad;
    for my $p (grep { m{^src/} } @code) {
        my $text = code(slurp($p));
        while ($text =~ /\bconf_i64\(\s*[^,()]+,\s*CONF_(\w+)\s*\)\s*(?:[=!]=|[<>]=?)\s*\d/g) { push @bad, "$p: CONF_$1" if $choice{$1} }
    }
    return @bad;
};

test 'words: nothing unfinished by its own admission', sub {
    my @bad;
    for my $p (@program, grep { /\.(c|h|sh)$/ && m{^tests/} } @files) {
        my $n = 0;
        for (split /\n/, slurp($p)) { $n++; push @bad, "$p:$n: $_" if /\b(TODO|FIXME|XXX|HACK)\b/ }
    }
    return @bad;
};

# 4. Every header compiles alone; every source file opens with a comment that says what it is for.
test 'headers compile alone', sub {
    my @bad;
    for my $p (grep { /\.h$/ && !/_cpu\.h$/ } @c) {
        (my $inc = $p) =~ s{^src/}{};
        my $out = `printf '#include "%s"\\n' $inc | gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc -I. -x c -fsyntax-only - 2>&1`;
        push @bad, "$p: $out" if $?;
    }
    return @bad;
};
test 'files open with what they are for', sub {
    return map { "$_: the first line is not a comment" } grep { slurp($_) !~ m{^\s*/\*} } @c;
};

# 5. Prefixes: everything external in src/mesh/split.c begins with split_ or mesh_, and in src/train/step/run.c with run_, step_ or train_
# (kernels: with the stem or an operation's name).
test 'symbols begin with the name of their file, folder or module', sub {
    my @bad;
    my @ops = slurp('kernels/op_list.h') =~ /X\((\w+)\)/g;
    for my $p (grep { /\.c$/ } @c) {
        next if $p eq 'src/main.c';
        my ($module, $folder, $s) = $p =~ m{^(?:src/)?(\w+)/(?:(\w+)/)?(\w+)\.c$} or die $p;
        (my $short = $s) =~ s/_cpu$//;
        my @prefix = ($s, $short, $folder // (), $module);
        (my $path = "$build/$p") =~ s/\.c$//;
        my @o = $p =~ m{^kernels/.*_cpu\.c$} ? () : "$path.o";
        push @o, glob("${path}_v[234].o"), grep { -e } "${path}_amx.o", "${path}_neon.o" if $s =~ /_cpu$/;
        for my $o (@o) {
            if (!-e $o) { push @bad, "$o is missing: run make first"; next }
            for (split /\n/, `nm --defined-only -g $o`) {
                next unless /^\S+ [TDBRC] (\w+)$/;
                my $y = $1;
                next if $y =~ /^__(odr_asan|start_|stop_|tsan|asan)/ || $y =~ /^_?LLVMFuzzer/;
                next if $p =~ m{^kernels/} && grep { $y =~ /^\Q$_\E_(plain|v[234]|amx)$/ } @ops;
                push @bad, "$p: $y does not begin with " . join(', ', map { "${_}_" } @prefix) unless grep { $y =~ /^\Q$_\E(_|$)/ } @prefix;
            }
        }
    }
    return @bad;
};

# 6. Lengths: a function is as long as its idea, a file is one concern. A short limit makes helpers and files that exist for it only.
test 'lengths: functions and files', sub {
    my (@bad, @len);
    for my $p (@code, grep { m{^tests/.*\.(c|h|cu|cuh)$} } @files) {
        my @line = split /\n/, slurp($p);
        push @bad, "$p: " . @line . " lines, over 1000" if @line > 1000;
        next if $p =~ m{^tests/};
        my $start;
        for my $i (0 .. $#line) {
            if ($line[$i] =~ /^[a-z_].*\) \{ .* \}$/) { push @len, 1 }
            elsif ($line[$i] =~ /^\{\s*$/) { $start = $i }
            elsif ($line[$i] =~ /^\}\s*$/ && defined $start) {
                my $n = grep { /\S/ } @line[$start + 1 .. $i - 1];
                push @len, $n;
                push @bad, "$p:" . ($start + 1) . ": a function of $n lines, over 80" if $n > 80;
                undef $start;
            }
        }
    }
    @len = sort { $a <=> $b } @len;
    my ($median, $p90) = @len ? ($len[@len / 2], $len[int(@len * .9)]) : (0, 0);
    print "# " . scalar(@len) . " functions: median $median, 90 % $p90, longest $len[-1] lines\n" if @len;
    push @bad, "90th percentile $p90 lines, over 40" if $p90 > 40;
    return @bad;
};
test 'lines are at most 100 columns', sub {
    my @bad;
    for my $p (grep { /\.(c|h|cu|cuh|S|def)$/ } @files) {
        my ($n, $text) = (0, slurp($p));
        utf8::decode($text) or push @bad, "$p: not UTF-8";
        for (split /\n/, $text) { $n++; push @bad, "$p:$n: " . length() . ' columns' if length > 100 }
    }
    return @bad;
};
test 'no declaration or statement is broken by a trailing comment', sub {
    my @bad;
    for my $p (@formatted) {
        my @line = split /\n/, slurp($p);
        for my $i (1 .. $#line) {
            next unless $line[$i] =~ m{^\s+[^\s/*].*[;,)] /\*};
            my ($above, $opened) = ($line[$i - 1], 0);
            next if $above =~ m{/\*|\*/|^\s*#};
            my $code = $above =~ s/"(\\.|[^"\\])*"//gr;
            $opened = () = $code =~ /[(\[]/g;
            $opened -= () = $code =~ /[)\]]/g;
            push @bad, "$p:" . ($i + 1) . ': put the comment above' if $above =~ /^\s+(?:(?:const|unsigned|struct|enum|static) )*\w+$/ && $above !~ /^\s*(?:else|do)$/ || $above =~ /=$/ || $opened > 0 && ($line[$i] =~ /;\s*\/\*/ || $above =~ /(?:[!=<>]=|[<>]|&&|\|\|)$/ && $line[$i] =~ /\)\s*\/\*/);
        }
    }
    return @bad;
};
# Another version of the formatter decides otherwise in places.
my $formatter = (grep { `$_ --version 2>/dev/null` =~ /version 14\./ } qw(clang-format-14 clang-format))[0];
test $formatter ? 'the layout is .clang-format\'s' : 'the layout is .clang-format\'s # SKIP clang-format 14 is not installed; `make test-all` installs it', sub {
    return () unless $formatter;
    open my $out, '-|', "$formatter --dry-run @formatted 2>&1" or return 'cannot start clang-format';
    my %bad = map { /^(\S+?):(\d+):.*(warning|error):/ ? ("$1: run clang-format -i $1" => 1) : () } <$out>;
    close $out;
    return sort keys %bad;
};

# 7. What has no caller in the program goes, or its declaration says that it is for tests.
test 'every external symbol has a caller in another file, or says "for tests"', sub {
    my (%defined, %used, @bad);
    my $object = '';
    my @objects = grep { -e } map { my $o = "$build/$_" =~ s/\.c$//r; ("$o.o", glob("${o}_{v2,v3,v4,amx,neon}.o")) } grep { /\.c$/ } @program;
    for (split /\n/, `nm -g @objects 2>/dev/null`) {
        if (m{^\Q$build\E/(\S+)\.o:$}) { $object = $1 }
        elsif (/^\S+ [TDBRC] (\w+)$/) { $defined{$1}{$object} = 1 }
        elsif (/^\s+U (\w+)$/) { $used{$1}{$object} = 1 }
    }
    my $headers = join "\n", map { slurp($_) } grep { /\.(h|cuh)$/ } @program;
    my $sources = join "\n", map { code(slurp($_)) } grep { /\.(cu|S)$/ } @program;
    my %text = map { $_ => code(slurp($_)) } grep { /\.c$/ } @program;
    # The comment above a declaration counts for the declarations that follow it without an empty line.
    my %for_tests;
    for my $paragraph (split /\n\s*\n/, $headers) {
        next unless $paragraph =~ /for\s+(?:\*\s+)?tests/;
        $for_tests{$1} = 1 while $paragraph =~ /\b(\w+)\(/g;
    }
    for my $symbol (sort keys %defined) {
        next if $symbol =~ /^(main|arc4random(_buf)?|LLVMFuzzer\w*)$|^_|_(v[234]|amx|neon|plain)$/ || $for_tests{$symbol};
        next if grep { !$defined{$symbol}{$_} } keys %{ $used{$symbol} || {} };
        next if $sources =~ /\b$symbol\b/;
        # A caller may be left out of this build (no CUDA): then it is found in the text.
        my ($own) = keys %{ $defined{$symbol} };
        next if grep { $_ ne "$own.c" && $text{$_} =~ /\b$symbol\s*[(,;})]/ } keys %text;
        push @bad, "$symbol (" . join(', ', keys %{ $defined{$symbol} }) . ') has no caller outside its file';
    }
    return @bad;
};

# 8. Tests: what ends a package manager leaves a broken system; what reads a terminal is stopped on one; a limit of time that does
# not grow with the load (lib.sh: limit) fails on a busy machine.
sub each_line {
    my ($pattern, $unless, $why, @in) = @_;
    my @bad;
    for my $p (@in) {
        my ($n, $whole) = (0, slurp($p) =~ s/\\\n/  /gr);
        for (split /\n/, $whole) { $n++; push @bad, "$p: $why: $_" if !/^\s*#/ && $_ =~ $pattern && $_ !~ $unless }
    }
    return @bad;
}
my @scripts = grep { m{^tests/.*\.(sh|pl|pm|py|c|h)$} && !m{^tests/(suite|tidy|gpu)/} } @files;
my $package_manager = qr/(\.ci\/need|\bapt(-get)?\s[^|;&]*\b(install|update|download|source|upgrade)\b|\bdpkg\s+-i|\bpip3?"?\s+install|\bnpm\s+i)/;
test 'tests install nothing', sub { return each_line($package_manager, qr/^$/, 'make test-all installs it', @scripts) };
test 'no package manager that installs has a limit of time', sub {
    return each_line(qr/\btimeout\b[^|;&]*(\bneed\b|\bapt(-get)?\b|\bdpkg\b|\bpip"?\s+install)/, qr/apt-get -qq download|\bget\(|"\$seconds" apt-get/,
        'limit the download only (.ci/need)', 'Makefile', 'Dockerfile', grep { -f } glob('.ci/* examples/* tests/*/*.sh tests/*/*.pl'));
};
test 'no test reads the terminal that it is started on', sub {
    return (each_line(qr/\bscript -\w*c\b/, qr/<\s*\/dev\/null|^\s*\(.*\)\s*\||\|\s*script/, 'its stdin is the terminal: </dev/null', @scripts),
        each_line(qr/--exec\s+'[^']*timeout/, qr/^$/, 'tests/suite/one.pl has the limit', 'Makefile'));
};
test 'limits of time in tests grow with the load', sub {
    my $deadline = qr/clock_ms\(\) \+ \d{3}|clock_ms\(\) - \w+(\.\w+)* <=? \d|clock_ms\(\) - \w+, \d+, \d+\)/;
    return (each_line($deadline, qr/harness_patience_ms/, 'harness_patience_ms (harness.h)', grep { m{^tests/.*\.[ch]$} && !m{/bench/} } @scripts),
        each_line(qr/(?<![-\w])timeout\s+(-\S+\s+)*["']?(\d|\$\(\()/, qr{--preserve-status|^limit\(}, 'limit SECONDS (lib.sh)', grep { m{^tests/(e2e|cluster)/.*\.sh$} } @scripts));
};

# What others made is installed, not committed: packages, libraries, archives of them.
test 'no packages or binaries of others are committed', sub {
    return grep { /\.(whl|so|a|o|deb|rpm|zip|jar|exe|dll|pyc)$/ } split /\n/, `git ls-files 2>/dev/null`;
};
test 'tests can be run', sub { return grep { !-x } glob 'tests/*/test_*.sh tests/*/test_*.pl' };

print '1..' . @tests . "\n";
my $failed = 0;
for my $i (0 .. $#tests) {
    my ($name, $run) = @{ $tests[$i] };
    my @bad = $run->();
    print '' . (@bad ? 'not ok ' : 'ok ') . ($i + 1) . " - $name\n";
    print "# $_\n" for map { split /\n/ } @bad[0 .. ($#bad > 40 ? 40 : $#bad)];
    $failed++ if @bad;
}
exit($failed ? 1 : 0);
