#!/usr/bin/perl
# test_sass — what nvcc made of the CUDA kernels is no worse than tests/cuda/sass.tsv says: no new spill or local access, no fewer
# blocks on a multiprocessor, no product off the tensor cores, and no barrier, shuffle or product that a part of a warp may skip. The reader and the comparison are tried on a made-up listing first.
use strict;
use warnings;
use File::Temp;
use Test::More;

my $build = $ENV{BUILD} // 'build';
my $work = File::Temp->newdir('convoy-sass-XXXXXX', TMPDIR => 1);
my $table = 'tests/cuda/sass.tsv';

sub slurp { my ($path) = @_; local $/; open(my $f, '<', $path) or return ''; return scalar <$f> }
sub spew { my ($name, $text, $mode) = @_; open(my $f, '>', "$work/$name") or die; print $f $text; close $f; chmod $mode // 0644, "$work/$name"; return "$work/$name" }
sub run { my ($command) = @_; my $out = `$command 2>&1`; return ($? >> 8, $out) }

# A cuobjdump that prints a kernel of 64 registers with a spill, as the real one does.
my $usage = "arch = sm_90a\n Function _Z4stepPf:\n  REG:64 STACK:16 SHARED:3072 LOCAL:0 CONSTANT[0]:560\n";
my $bounds = "arch = sm_90a\n.nv.info._Z4stepPf\n\tAttribute:\tEIATTR_MAX_THREADS\n\tFormat:\tEIFMT_SVAL\n\tValue:\t0x100 0x1 0x1 \n";
my @code = ('LDL.64 R2, [R1+0x8]', '@!P1 LDL R6, [R1]', 'STL.64 [R1+0x8], R2', '@P0 STL [R1], R6', 'HMMA.16816.F32.BF16 R4, R8, R12, R4',
    '@P0 LDG.E.128 R4, desc[UR4][R2.64]', 'LDG.E R4, [R2.64]', 'LDSM.16.M88.4 R4, [R8]', 'HGMMA.64x64x16.F32 R24, gdesc[UR8], R24', 'STG.E [R2.64], R5');
my $sass = "arch = sm_90a\n\t\tFunction : _Z4stepPf\n" . join('', map { sprintf("        /*%04x*/                   %s ;  /* 0x0 */\n", 16 * $_, $code[$_]) } 0 .. $#code);
spew('cuobjdump', "#!/bin/sh\ncase \$1 in\n-res-usage) cat $work/usage ;;\n-elf) cat $work/bounds ;;\n-sass) cat $work/sass ;;\nesac\n", 0755);
spew('usage', $usage), spew('bounds', $bounds), spew('sass', $sass);
my $launch = spew('launch.tsv', "kernel\tthreads\tdynamic\twhere\nstep\t-\t32768\there\n");
my ($rc, $made) = run("PATH=$work:\$PATH tests/cuda/sass.pl read $launch x/made_cu.o");
is $rc, 0, 'a listing is read' or diag $made;
my $row = join("\t", 'made', 'step', 'sm_90a', 64, 16, 12, 2048, 32768, 256, 4, 1, 1, 1, 2, 2, 1) . "\n";
my ($head, $read) = $made =~ /^(.*\n)(.*\n)$/;
is $read, $row, 'all numbers of a kernel are found; 64 registers of 256 threads leave four blocks';
# Instructions of a whole warp, with predicates of a thread (P), of the warp (UP), and one that is never true (!PT).
my @whole = ('@P0 SHFL.BFLY PT, R2, R3, 0x1, 0x1f', '@!P3 HMMA.16816.F32 R4, R8, R12, R4', '@UP0 BAR.SYNC.DEFER_BLOCKING 0x0', '@P1 LDSM.16.M88.4 R4, [R8]');
my @allowed = ('@!PT SHFL.IDX PT, RZ, RZ, RZ, RZ', '@UP0 SHFL.BFLY PT, R2, R3, 0x1, 0x1f', 'BAR.SYNC.DEFER_BLOCKING 0x0', '@P0 EXIT', '@P0 LDG.E R4, [R2.64]');
my @of_warps = (@allowed, @whole);
spew('sass', "arch = sm_90a\n\t\tFunction : _Z4stepPf\n" . join('', map { sprintf("        /*%04x*/                   %s ;  /* 0x0 */\n", 16 * $_, $of_warps[$_]) } 0 .. $#of_warps));
($rc, $made) = run("PATH=$work:\$PATH tests/cuda/sass.pl read $launch x/made_cu.o");
is_deeply [sort map { /^# predicated: made: step sm_90a: (.*)/ } split /\n/, $made], [sort map { s/ \w+,.*| R.*| 0x0$//r } @whole],
    'instructions that a part of a warp may skip are found, and no others';
my ($skipped, $said) = run('tests/cuda/sass.pl compare ' . spew('uniform', $made =~ s/^# predicated.*\n//mgr) . ' ' . spew('skipped', $made));
is $skipped, 1, 'a table with one fails';
like $said, qr/^made: step sm_90a: \@P0 SHFL\.BFLY, which all threads of a warp must reach together$/m, '… and it is named';
spew('sass', $sass);
(undef, $made) = run("PATH=$work:\$PATH tests/cuda/sass.pl read " . spew('other.tsv', "kernel\tthreads\tdynamic\nother\t-\t0\n") . ' x/made_cu.o');
like $made, qr/no row of the launches matches step/, 'a kernel without a row of its launch is refused';
spew('bounds', "arch = sm_90a\n");
(undef, $made) = run("PATH=$work:\$PATH tests/cuda/sass.pl read $launch x/made_cu.o");
like $made, qr/step has no __launch_bounds__/, 'a kernel whose threads are not known is refused';

# changed — the comparison's status and text after one value of the row is another.
my $was = spew('was', "# a comment\n$head$row");
sub changed {
    my ($column, $value) = @_;
    my @names = split /\t/, $head =~ s/\n//r;
    my %row;
    @row{@names} = split /\t/, $row =~ s/\n//r;
    $row{$column} = $value;
    return run("tests/cuda/sass.pl compare $was " . spew('is', $head . join("\t", @row{@names}) . "\n"));
}
is_deeply [changed('object', 'made')], [0, ''], 'equal tables pass without a word';
for (['stack', 24], ['spill', 16], ['LDL', 3], ['STL', 3], ['blocks', 3], ['HMMA', 0], ['HGMMA', 0], ['LDSM', 0], ['LDG128', 0]) {
    my ($status, $text) = changed(@$_);
    is $status, 1, "$_->[0] $_->[1] fails";
    like $text, qr/^made: step sm_90a: .*$_->[0]/, '… and is named';
}
for (['stack', 0], ['spill', 0], ['LDL', 0], ['blocks', 8], ['registers', 60], ['HMMA', 2]) {
    my ($status, $text) = changed(@$_);
    is $status, 0, "$_->[0] $_->[1] passes";
    like $text, qr/^note: made: step sm_90a: $_->[0] \d+ → $_->[1]/, '… with a note';
}
like +(changed('kernel', 'stop'))[1], qr/step sm_90a: is in the table and no longer.*stop sm_90a: is not in the table/s, 'rows on one side are named';

my $made_by = slurp("$build/cuda.txt") =~ s/\n//r;
my ($version) = slurp($table) =~ /^# Of nvcc (\S+)\./;
my %archs = map { $_ => 1 } $made_by =~ /code=(sm_\w+)/g;
my $tools = "$build/disassembler/nvidia/cu13/bin";
$ENV{PATH} = "$tools:$ENV{PATH}" if -x "$tools/cuobjdump";
SKIP: {
    skip 'this build is without CUDA', 1 if $made_by !~ /^nvcc/;
    skip "the table is of nvcc $version, this build of another: $made_by", 1 if $made_by !~ /^nvcc \Q$version\E /;
    my ($other) = grep { slurp($table) !~ /\t$_\t/ } keys %archs;
    skip "the table has no rows of $other", 1 if $other;
    skip 'no cuobjdump; `make test-all` installs it', 1 if system('command -v cuobjdump nvdisasm >/dev/null') != 0;
    my @objects = map { s{^kernels/(\w+)\.cu$}{$build/kernels/$1_cu.o}r } glob('kernels/*.cu');
    my ($failed, $errors) = run("{ tests/cuda/sass.pl read tests/cuda/sass_launch.tsv @objects >$work/now; }");
    die "sass.pl read: ${errors}objects are missing or of another form; build first\n" if $failed;
    my $rows = spew('rows', join '', grep { !/\t(sm_\w+)\t/ || $archs{$1} } slurp($table) =~ /^.*\n/mg);
    my ($worse, $text) = run("tests/cuda/sass.pl compare $rows $work/now");
    diag $text if $text ne '';
    is $worse, 0, 'the kernels are no worse than tests/cuda/sass.tsv says (`make sass` writes it anew)';
}
done_testing;
