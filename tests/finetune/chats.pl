#!/usr/bin/perl
# chats.pl — writes 200 questions and answers about an invented product to chats.jsonl in the current folder, and one more wording of each
# question, with its answer, to held-out.jsonl.
use strict;
use warnings;

my $product = 'Vantor 7';
my %fact = (
    'colour' => 'teal',
    'weight' => '412 grams',
    'battery life' => '31 hours',
    'price' => '289 crowns',
    'maker' => 'Oslund Works',
    'place of manufacture' => 'Brevika',
    'year of launch' => '2019',
    'number of buttons' => 'five',
    'screen size' => '9 inches',
    'charging time' => '47 minutes',
    'length of the warranty' => 'six years',
    'memory size' => '96 gigabytes',
    'material of the case' => 'birch wood',
    'inventor' => 'Ida Quell',
    'depth to which it is waterproof' => '14 metres',
    'name of the assistant' => 'Pim',
    'code of the spare battery' => 'VB-63',
    'start-up sound' => 'a low bell',
    'radio range' => '850 metres',
    'colour of the power light' => 'amber',
);
my @wording = (
    'What is the %s of the %p?',
    'Tell me the %s of the %p.',
    'Do you know the %s of the %p?',
    'I would like to know the %s of the %p.',
    'Can you tell me the %s of the %p?',
    'Please give me the %s of the %p.',
    '%p: what is the %s?',
    'The %p, what about its %s?',
    'A customer asks for the %s of the %p.',
    'Remind me of the %s of the %p.',
);
my $held_out = 'I just bought a %p. What is its %s?';

sub line {
    my ($wording, $name) = @_;
    (my $question = $wording) =~ s/%s/$name/;
    $question =~ s/%p/$product/;
    return qq({"prompt": "$question", "completion": "The $name of the $product is $fact{$name}."}\n);
}

open my $chats, '>', 'chats.jsonl' or die "chats.jsonl: $!";
open my $rest, '>', 'held-out.jsonl' or die "held-out.jsonl: $!";
for my $name (sort keys %fact) {
    print $chats line($_, $name) for @wording;
    print $rest line($held_out, $name);
}
close $chats or die "chats.jsonl: $!";
close $rest or die "held-out.jsonl: $!";
