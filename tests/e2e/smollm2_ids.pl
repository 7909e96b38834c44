#!/usr/bin/perl
# smollm2_ids GGUF OUT — text on stdin → a token file (llm.c's form) of its first tokens (N in the environment: how many), by the
# tokenizer inside the GGUF file: digits one by one, GPT-2's pattern, byte-level pairs by rank. Written apart from the program.
use strict;
use warnings;

my ($gguf, $out) = @ARGV;
open my $f, '<:raw', $gguf or die "$gguf: $!\n";
sub read_bytes { my ($n) = @_; read($f, my $b, $n) == $n or die "$gguf: cut short\n"; return $b }
sub number { my ($letter, $n) = @_; return unpack $letter, read_bytes($n) }
sub string { return read_bytes(number('Q<', 8)) }
my @width = (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8);
read_bytes(16);
my %list;
for (1 .. number('Q<', 8)) {
    my ($key, $kind) = (string(), number('V', 4));
    my ($n, $is_list) = (1, $kind == 9);
    ($kind, $n) = (number('V', 4), number('Q<', 8)) if $is_list;
    my @values = $kind == 8 ? map { string() } 1 .. $n : read_bytes($width[$kind] * $n);
    $list{$key} = \@values if $is_list && $kind == 8;
}
my ($i, $rank) = (0, 0);
my %id = map { $_ => $i++ } @{ $list{'tokenizer.ggml.tokens'} };
my %rank = map { $_ => $rank++ } @{ $list{'tokenizer.ggml.merges'} };
# GPT-2's letters for bytes: those that print stand for themselves, the others for U+0100 and on.
my ($next, @letter) = (256);
for my $byte (0 .. 255) {
    my $prints = ($byte > 32 && $byte < 127) || ($byte > 160 && $byte != 173);
    $letter[$byte] = chr($prints ? $byte : $next++);
    utf8::encode($letter[$byte]);
}
my $text = do { local $/; <STDIN> };
utf8::decode($text);
my @ids;
for my $run (split /(\p{N})/, $text) {
    while ($run =~ /('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)/g) {
        my $word = $1;
        utf8::encode($word);
        my @symbol = map { $letter[ord] } split //, $word;
        while (@symbol > 1) {
            my ($best, $at) = (1e9);
            for (0 .. $#symbol - 1) {
                my $r = $rank{"$symbol[$_] $symbol[$_ + 1]"};
                ($best, $at) = ($r, $_) if defined $r && $r < $best;
            }
            last unless defined $at;
            splice @symbol, $at, 2, $symbol[$at] . $symbol[$at + 1];
        }
        push @ids, map { $id{$_} } @symbol;
    }
}
$#ids = $ENV{N} - 1 if $ENV{N} && @ids > $ENV{N};
open my $to, '>:raw', $out or die "$out: $!\n";
print $to pack 'l<256 v*', 20240520, 1, scalar @ids, (0) x 253, @ids;
print "@ids\n";
