#!/usr/bin/perl
# sass.pl — what the compiler made of the CUDA kernels, for each kernel and architecture: registers, stack, shared memory, blocks
# on a multiprocessor, and counts of instructions, from cuobjdump's listings of objects.
#   sass.pl read LAUNCH OBJECT...   prints the table (tests/cuda/sass.tsv holds the last one accepted), and a line "# predicated" for
#                                   each barrier, shuffle or product that a part of a warp may skip
#   sass.pl remarks ARCH/kernels/OBJECT.usage...   prints the table of clang's remarks of AMD GPUs (tests/hip/isa.tsv)
#   sass.pl compare TABLE NEW       prints each row of NEW that is worse, and "note:" lines for other differences; status 1 if one is worse or predicated
# cuobjdump and nvdisasm are found in PATH. Spills have no field in an object: `spill` is the bytes that STL instructions store.
use strict;
use warnings;
use List::Util qw(min max);

my @COLUMNS = qw(object kernel arch registers stack spill static dynamic threads blocks HMMA HGMMA LDSM LDL STL LDG128);

# Of a multiprocessor, by architecture: bytes of shared memory, threads; each has 64 Ki registers, 32 blocks, 4 schedulers.
my %CHIP = (sm_80 => [164 * 1024, 2048], sm_86 => [100 * 1024, 1536], sm_89 => [100 * 1024, 1536], sm_90 => [228 * 1024, 2048],
    sm_100 => [228 * 1024, 2048]);
my $SHARED_RESERVED = 1024;    # of each block, by CUDA

# blocks — of so many threads, registers a thread and bytes of shared memory, on one multiprocessor.
sub blocks {
    my ($arch, $threads, $registers, $shared) = @_;
    my ($shared_all, $threads_all) = @{$CHIP{$arch =~ s/[af]$//r} // die "sass.pl: the limits of $arch are not known: add them to \%CHIP\n"};
    my $warps = int(($threads + 31) / 32);
    my $of_warp = max(1, int(($registers * 32 + 255) / 256)) * 256;
    my $by_registers = int(4 * int(16384 / $of_warp) / $warps);
    my $by_shared = int($shared_all / (int(($shared + $SHARED_RESERVED + 127) / 128) * 128));
    return min(32, int($threads_all / ($warps * 32)), $by_registers, $by_shared);
}

# launch — [threads or 0, dynamic bytes] of the first row that matches.
sub launches { my ($path) = @_; return [map { [split /\t/] } grep { !/^(#|kernel\t)/ } lines_of($path)] }
sub launch {
    my ($launches, $kernel) = @_;
    for my $row (@$launches) { return ($row->[1] eq '-' ? 0 : $row->[1], $row->[2]) if $kernel =~ /^(?:$row->[0])$/ }
    die "sass.pl: no row of the launches matches $kernel\n";
}

sub lines_of {
    my ($path) = @_;
    open(my $f, '<', $path) or die "sass.pl: cannot read $path: $!\n";
    chomp(my @lines = <$f>);
    return @lines;
}

# each_line — of a command's output; its failure ends the program.
sub each_line {
    my ($run, @command) = @_;
    open(my $pipe, '-|', @command) or die "sass.pl: cannot run $command[0]: $!\n";
    while (my $line = <$pipe>) { $run->($line) }
    close $pipe or die "sass.pl: @command failed\n";
}

# The three listings name the architecture first, then functions. Each reader adds to $all->{"arch function"}.
sub reads_usage {
    my ($all) = @_;
    my ($arch, $of);
    return sub {
        $arch = $1 if $_[0] =~ /^arch = (\S+)/;
        $of = $all->{"$arch $1"} = {} if $_[0] =~ /^ Function (\S+):/;
        @$of{qw(registers stack shared)} = ($1, $2, $3) if $_[0] =~ /REG:(\d+) STACK:(\d+) SHARED:(\d+)/;
    };
}
sub reads_bounds {
    my ($all) = @_;
    my ($arch, $of, $is_next);
    return sub {
        $arch = $1 if $_[0] =~ /^arch = (\S+)/;
        $of = $1 if $_[0] =~ /^\.nv\.info\.(\S+)/;
        if ($is_next && $_[0] =~ /Value:\s+0x(\w+) 0x(\w+) 0x(\w+)/) {
            $all->{"$arch $of"}{bounds} = hex($1) * hex($2) * hex($3);
            $is_next = 0;
        }
        $is_next = 1 if $_[0] =~ /EIATTR_MAX_THREADS/;
    };
}

# is_skipped — Returns true if only a part of a warp may execute an instruction that all of its threads must execute together. With a
# predicate, the compiler has moved it into control flow that differs from thread to thread. Two predicates are allowed: @!PT is never
# true, so the instruction never runs; @UP has one value for a whole warp, which is enough for all but a barrier of the block.
sub is_skipped {
    my ($predicate, $name) = @_;
    return 0 if $name !~ /^(?:BAR|WARPSYNC|SHFL|VOTE|MATCH|REDUX|LDSM|[A-Z]+MMA)$/ || $predicate =~ /^@!?PT$/;
    return $predicate =~ /^@!?P/ || $predicate ne '' && $name eq 'BAR';
}
sub reads_code {
    my ($all) = @_;
    my ($arch, $of);
    return sub {
        return if $_[0] !~ /arch|Function|MMA|LDSM|LDL|STL|LDG|@!?U?P\w+ +(?:BAR|WARPSYNC|SHFL|VOTE|MATCH|REDUX)/;
        $arch = $1 if $_[0] =~ /^arch = (\S+)/;
        $of = $all->{"$arch $1"} //= {} if $_[0] =~ /^\s+Function : (\S+)/;
        return if $_[0] !~ m{^\s+/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9]*)(\S*)};
        my ($predicate, $name, $rest) = ($1 // '', $2, $3);
        push @{$of->{predicated}}, "$predicate $name$rest" if is_skipped($predicate, $name);
        $of->{$name}++ if $name =~ /^(?:HMMA|HGMMA|LDSM|LDL|STL)$/;
        $of->{LDG128}++ if $name eq 'LDG' && $rest =~ /\.128/;
        $of->{spill} += $rest =~ /\.(\d+)/ ? $1 / 8 : 4 if $name eq 'STL';
    };
}

# row — of a function; its name without arguments. Of sm_90 on, `SHARED` counts CUDA's own kilobyte where any is used.
sub row {
    my ($object, $key, $of, $launches, $names) = @_;
    my ($arch, $symbol) = split / /, $key;
    my $kernel = $names->{$symbol};
    my ($threads, $dynamic) = launch($launches, $kernel);
    $threads ||= $of->{bounds} or die "sass.pl: $kernel has no __launch_bounds__ and no threads in the launches: add a row\n";
    my $static = $arch =~ /^sm_[89]\d$/ || $of->{shared} < $SHARED_RESERVED ? $of->{shared} : $of->{shared} - $SHARED_RESERVED;
    my %row = (%$of, object => $object, kernel => $kernel, arch => $arch, static => $static, dynamic => $dynamic, threads => $threads);
    $row{blocks} = blocks($arch, $threads, $of->{registers}, $static + $dynamic);
    return (join("\t", map { $row{$_} // 0 } @COLUMNS), map { "# predicated: $object: $kernel $arch: $_" } @{$of->{predicated} // []});
}

# plain — a symbol's name as in C++, without result, arguments and namespaces of the compiler.
sub plain {
    my ($name) = @_;
    $name =~ s/^(?:void|int|float|double) //;
    my $depth = 0;
    for my $i (0 .. length($name) - 1) {
        my $c = substr($name, $i, 1);
        return substr($name, 0, $i) if $c eq '(' && $depth == 0 && substr($name, $i) !~ /^\(anonymous/;
        $depth += $c eq '<' ? 1 : $c eq '>' ? -1 : 0;
    }
    return $name;
}
sub names_of {
    my @symbols = @_;
    my @plain;
    each_line(sub { chomp $_[0]; push @plain, plain($_[0]) }, 'c++filt', @symbols);
    my %names;
    @names{@symbols} = @plain;
    return \%names;
}

sub rows_of {
    my ($launches, $path) = @_;
    my %all;
    each_line(reads_usage(\%all), 'cuobjdump', '-res-usage', $path);
    each_line(reads_bounds(\%all), 'cuobjdump', '-elf', $path);
    each_line(reads_code(\%all), 'cuobjdump', '-sass', $path);
    my @keys = grep { defined $all{$_}{registers} } keys %all;
    my $names = names_of(map { (split / /)[1] } @keys);
    my $object = $path =~ s{.*/}{}r =~ s/_cu\.o$//r;
    return sort map { row($object, $_, $all{$_}, $launches, $names) } @keys;
}

sub print_table {
    my ($launches, @objects) = @_;
    print join("\t", @COLUMNS), "\n";
    for my $path (sort @objects) { print "$_\n" for rows_of($launches, $path) }
}

# The names in clang's remarks about a kernel of an AMD GPU, and the column of each. The vector registers of a lane are of two kinds in one file; scalars that
# do not fit are moved to lanes of vector registers, not to memory.
my %REMARKS = (VGPRs => 'registers', AGPRs => 'registers', 'ScratchSize [bytes/lane]' => 'stack', 'VGPRs Spill' => 'spill', 'SGPRs Spill' => 'moved',
    'LDS Size [bytes/block]' => 'static', SGPRs => 'scalars', 'Occupancy [waves/SIMD]' => 'waves');
my @HIP_COLUMNS = qw(object kernel arch registers stack spill static scalars moved waves);

# hip_rows_of — of the file ARCH/kernels/OBJECT.usage.
sub hip_rows_of {
    my ($path) = @_;
    my ($arch, $object) = $path =~ m{([^/]+)/kernels/([^/]+)\.usage$} or die "sass.pl: $path is no ARCH/kernels/OBJECT.usage\n";
    my (%all, $symbol);
    for (lines_of($path)) {
        my ($what, $value) = /remark: +(.*): (\S+) \[-Rpass-analysis/ or next;
        if ($what eq 'Function Name') { $symbol = $value }
        elsif (my $column = $REMARKS{$what}) { $all{$symbol}{$column} += $value }
    }
    my $names = names_of(keys %all);
    return sort map { my $of = {%{$all{$_}}, object => $object, kernel => $names->{$_}, arch => $arch}; join("\t", map { $of->{$_} // die "sass.pl: $path has no $_\n" } @HIP_COLUMNS) } keys %all;
}

# table — {"object kernel arch": {column: value}}.
sub table {
    my ($path) = @_;
    my ($head, @rows) = grep { !/^#/ } lines_of($path);
    my @columns = split /\t/, $head // die "sass.pl: $path has no row\n";
    my %table;
    for (@rows) {
        my %row;
        @row{@columns} = split /\t/;
        $table{"$row{object}: $row{kernel} $row{arch}"} = \%row;
    }
    return \%table;
}

# What may not grow, what may not shrink, and what may not vanish (a product off the tensor cores, loads no longer wide).
my @NO_MORE = qw(stack spill moved LDL STL);
my @NO_LESS = qw(blocks waves);
my @NOT_GONE = qw(HMMA HGMMA LDSM LDG128);
sub worse {
    my ($was, $is) = @_;
    my %has = map { $_ => 1 } keys %$was;
    return ((map { $is->{$_} > $was->{$_} ? "$_ $is->{$_}, more than $was->{$_}" : () } grep { $has{$_} } @NO_MORE),
        (map { $is->{$_} < $was->{$_} ? "$_ $is->{$_}, fewer than $was->{$_}" : () } grep { $has{$_} } @NO_LESS),
        (map { $was->{$_} && !$is->{$_} ? "no $_, but $was->{$_} in the table" : () } grep { $has{$_} } @NOT_GONE));
}
sub compare {
    my ($was, $is) = map { table($_) } @_;
    my @predicated = grep { /^# predicated: / } lines_of($_[1]);
    print map { s/^# predicated: //r . ", which all threads of a warp must reach together\n" } @predicated;
    my $bad = @predicated;
    for my $key (sort keys %{{%$was, %$is}}) {
        my @worse = !$was->{$key} ? 'is not in the table' : !$is->{$key} ? 'is in the table and no longer in the objects' : worse($was->{$key}, $is->{$key});
        $bad += @worse;
        print "$key: ", join('; ', @worse), "\n" if @worse;
        next if @worse || !$was->{$key};
        my @other = grep { $was->{$key}{$_} ne $is->{$key}{$_} } sort keys %{$was->{$key}};
        print "note: $key: ", join(', ', map { "$_ $was->{$key}{$_} → $is->{$key}{$_}" } @other), "\n" if @other;
    }
    return $bad ? 1 : 0;
}

my ($command, @arguments) = @ARGV;
if (($command // '') eq 'read') { print_table(launches(shift @arguments), @arguments) }
elsif (($command // '') eq 'remarks') { print join("\t", @HIP_COLUMNS), "\n", map { "$_\n" } map { hip_rows_of($_) } sort @arguments }
elsif (($command // '') eq 'compare' && @arguments == 2) { exit compare(@arguments) }
else { die "usage: sass.pl read LAUNCH OBJECT... | sass.pl remarks USAGE... | sass.pl compare TABLE NEW\n" }
