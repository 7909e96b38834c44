/* merges.S — GPT-2's merges table, as it is, inside the binary; bpe.c reads it. */
    .section .rodata
    .global merges_begin, merges_end
merges_begin:
    .incbin "assets/vocab.bpe"
merges_end:
    .section .note.GNU-stack, "", @progbits
