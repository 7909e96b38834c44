/* clusters.S — the built-in cluster files, as one JSON array; plan_cluster.c reads it. A file of
 * src/plan/clusters has one line here. */
    .section .rodata
    .global clusters_begin, clusters_end
clusters_begin:
    .ascii "["
    .incbin "src/plan/clusters/h100-sxm.json"
    .ascii ","
    .incbin "src/plan/clusters/h200-sxm.json"
    .ascii ","
    .incbin "src/plan/clusters/b200.json"
    .ascii ","
    .incbin "src/plan/clusters/a100-80.json"
    .ascii ","
    .incbin "src/plan/clusters/a100-40.json"
    .ascii ","
    .incbin "src/plan/clusters/a6000-ethernet.json"
    .ascii ","
    .incbin "src/plan/clusters/mi300x.json"
    .ascii ","
    .incbin "src/plan/clusters/mi250.json"
    .ascii ","
    .incbin "src/plan/clusters/lambda.json"
    .ascii "]"
clusters_end:
    .section .note.GNU-stack, "", @progbits
