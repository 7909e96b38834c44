#!/bin/bash
# test_streaming — import, export and training read a model of 220 MB (as floats) tensor by tensor: the most memory that the process ever had,
# pages of mapped files included, is that of its largest tensors and not of the model.
. "$(dirname "$0")/lib.sh"
export LOG_LEVEL=debug
if [ -n "${SAN:-}" ]; then
    echo "1..0 # SKIP sanitizers take memory of their own"
    exit 0
fi
# A Llama of 8 blocks: 104 MB in bf16 as three files with an index, and 55 MB as a GGUF file in Q8_0. Tensors differ, so none can be
# taken for another; the largest has 2.1 million elements, 8.4 MB as floats.
perl -e '
    my ($blocks, $embed, $ffn, $vocab) = (8, 768, 2048, 2731);
    my @names = (["model.embed_tokens.weight", "token_embd.weight", $vocab, $embed]);
    for my $b (0 .. $blocks - 1) {
        push @names, map { ["model.layers.$b.$_->[0].weight", "blk.$b.$_->[1].weight", @$_[2 .. $#$_]] }
            ["input_layernorm", "attn_norm", $embed], ["self_attn.q_proj", "attn_q", $embed, $embed],
            ["self_attn.k_proj", "attn_k", $embed / 2, $embed], ["self_attn.v_proj", "attn_v", $embed / 2, $embed],
            ["self_attn.o_proj", "attn_output", $embed, $embed], ["post_attention_layernorm", "ffn_norm", $embed],
            ["mlp.gate_proj", "ffn_gate", $ffn, $embed], ["mlp.up_proj", "ffn_up", $ffn, $embed],
            ["mlp.down_proj", "ffn_down", $embed, $ffn];
    }
    push @names, ["model.norm.weight", "output_norm.weight", $embed];
    sub elems { my $n = 1; $n *= $_ for @_; $n }
    my $row = pack "v*", map { 0x3c00 + ($_ * 7 & 255) } 1 .. 1 << 16; # bf16: 0.008 to 0.03
    sub half { my ($n, $from) = @_; my $s = substr($row, 2 * ($from % 997)) x (1 + 2 * $n / 120000); substr $s, 0, 2 * $n }
    my $block = join "", map { pack "v c*", 0x2000 + $_, map { ($_ * 11 & 127) - 60 } 1 .. 32 } 1 .. 256; # Q8_0: 0.0078 a step
    mkdir "folder";
    open my $c, ">", "folder/config.json";
    print $c qq({"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":$blocks,"hidden_size":$embed,
        "intermediate_size":$ffn,"num_attention_heads":12,"num_key_value_heads":6,"vocab_size":$vocab,"max_position_embeddings":64,
        "rms_norm_eps":1e-5,"hidden_act":"silu","tie_word_embeddings":true,"rope_theta":10000.0,"bos_token_id":1,"eos_token_id":2});
    my %map;
    for my $file (1 .. 3) {
        my ($at, @rows, @head) = 0;
        for (my $i = $file - 1; $i < @names; $i += 3) { push @rows, $i }
        my $name = "model-0000$file-of-00003.safetensors";
        for my $i (@rows) {
            my ($hf, undef, @dim) = @{$names[$i]};
            my $bytes = 2 * elems(@dim);
            push @head, sprintf q("%s":{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]}), $hf, join(",", @dim), $at, $at + $bytes;
            $at += $bytes;
            $map{$hf} = $name;
        }
        my $head = "{" . join(",", @head) . "}";
        open my $f, ">:raw", "folder/$name";
        print $f pack("Q<", length $head), $head, map { half(elems(@{$names[$_]}[2 .. $#{$names[$_]}]), $_) } @rows;
    }
    open my $f, ">", "folder/model.safetensors.index.json";
    print $f "{\"metadata\":{},\"weight_map\":{", join(",", map { "\"$_\":\"$map{$_}\"" } sort keys %map), "}}";
    sub str { pack "Q< a*", length $_[0], $_[0] }
    my @keys = ((map { str("llama.$_->[0]") . pack "V V", 4, $_->[1] } ["block_count", $blocks], ["embedding_length", $embed],
            ["feed_forward_length", $ffn], ["attention.head_count", 12], ["attention.head_count_kv", 6], ["context_length", 64],
            ["vocab_size", $vocab]), str("llama.attention.layer_norm_rms_epsilon") . pack("V f<", 6, 1e-5),
        str("general.architecture") . pack("V", 8) . str("llama"));
    my ($at, $tensors) = (0, "");
    sub quant { my @dim = @{$_[0]}[2 .. 3]; @{$_[0]} == 4 ? elems(@dim) / 32 * 34 : 4 * $dim[0] }
    for my $t (@names) {
        $tensors .= str($t->[1]) . pack("V", @$t - 2) . pack("Q<*", reverse @$t[2 .. $#$t]) . pack("V Q<", @$t == 4 ? 8 : 0, $at);
        $at += quant($t); $at += -$at % 32;
    }
    open my $g, ">:raw", "model.gguf";
    my $head = "GGUF" . pack("V Q< Q<", 3, scalar @names, scalar @keys) . join("", @keys) . $tensors;
    print $g $head, "\0" x (-length($head) % 32);
    for my $t (@names) {
        my $bytes = quant($t);
        print $g @$t == 4 ? substr($block x (1 + $bytes / length $block), 0, $bytes) : pack("f<*", (1) x $t->[2]), "\0" x (-$bytes % 32);
    }'
peak() { sed -n 's/.*memory: \([0-9]*\) KiB at the most.*/\1/p' err | head -n 1; }
# below MIB COMMAND… — the command ends with 0, and its memory was below that.
below() {
    local most=$1 rc=0
    shift
    local began=$(now_ms)
    "$convoy" "$@" >out 2>err || rc=$?
    echo "# exit code $rc, $(($(peak) / 1024)) MiB at the most, $(($(now_ms) - began)) ms"
    [ $rc = 0 ] && [ "$(peak)" -lt $((most * 1024)) ]
}
echo "# $(du -smL folder model.gguf | tr '\n\t' '  ')"
ok 'a folder in three files imports in 40 MiB' below 40 import FROM=folder TO=run
ok 'a GGUF file imports in 40 MiB' below 40 import FROM=model.gguf TO=gguf
ok 'the checkpoint exports in 40 MiB' below 40 export FROM=run TO=exported
tail -c 1000000 run/step-00000000/model.safetensors >a && tail -c 1000000 exported/model.safetensors >b
ok 'with the same values' cmp a b
ok 'training holds no copy of the folder' below 540 train MODEL=folder STEPS=1 BATCH_SIZE=1 SEQ_LEN=4 OPTIMIZER=sgd STATUS_PORT=0
done_testing
