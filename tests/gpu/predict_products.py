#!/usr/bin/env python3
"""The rows of predicted.tsv for matrix products, from NVIDIA's analytic model of products, nvMatmulHeuristics. It runs on CPUs.

    pip install nvidia-matmul-heuristics==0.1.0.27 && tests/gpu/predict_products.py

Each product is described as src/dev/blas/blas.c describes it: column-major, with bf16 factors. The time is the shortest of the eight
kernels that the model proposes first for CUTLASS 3. The model knows no epilogue: what one reads or writes besides takes its bytes'
time at the copy bandwidth of predicted.tsv. It knows neither the alignment of dimensions, so 50257 costs no more than 50304, nor
limits of power: the rates of an H200 are higher than a real one's.
"""
from nvMatmulHeuristics import (NvMatmulHeuristicsFlags, NvMatmulHeuristicsInterfaceEx, NvMatmulHeuristicsMatmulLayout as Layout,
                                NvMatmulHeuristicsNvidiaGpu, NvMatmulHeuristicsTarget)

CHIPS = (("H100_SXM", 3.0e12), ("H200_SXM", 4.3e12))
ROWS, CHUNK, LAYERS, VOCAB, TILES = 65536, 8192, 12, 50257, 50304
LAYER_OF = {"768x2304": (768, 2304), "768x768": (768, 768), "768x3072": (768, 3072), "3072x768": (3072, 768)}
# of GPT-2's layers: kind, sizes, what is folded in, the same as in the table of times, 16-bit tensors that an epilogue moves besides
FORMS = [("fwd", "768x2304", "bias", ",bias", 0), ("fwd", "768x768", "bias residual", ",bias,residual", 1),
         ("fwd", "768x3072", "bias gelu", ",bias,gelu", 1), ("fwd", "3072x768", "bias residual", ",bias,residual", 1),
         ("bwd_x", "768x2304", "", "", 0), ("bwd_x", "768x768", "", "", 0), ("bwd_x", "768x3072", "", "", 0),
         ("bwd_x", "3072x768", "gelu", ",gelu", 1)] + [("bwd_w", size, "db", ",db", 0) for size in LAYER_OF]


def shape_of(kind, rows, fan_in, fan_out, is_vocabulary):
    """m, n, k, the layout and the types of A, of sums and of D."""
    if kind == "fwd":
        return fan_out, rows, fan_in, Layout.TN_COL_MAJOR if is_vocabulary else Layout.NN_COL_MAJOR, "TST"
    if kind == "bwd_x":
        return fan_in, rows, fan_out, Layout.NN_COL_MAJOR if is_vocabulary else Layout.TN_COL_MAJOR, "TST"
    m, n = (fan_in, fan_out) if is_vocabulary else (fan_out, fan_in)
    return m, n, rows, Layout.NT_COL_MAJOR, "TSS"


class Model:
    def __init__(self, chip, copy_rate):
        self.copy_rate = copy_rate
        self.model = NvMatmulHeuristicsInterfaceEx(backend=NvMatmulHeuristicsTarget.CUTLASS3,
                                                   flags=NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
                                                   gpu=NvMatmulHeuristicsNvidiaGpu[chip])

    def seconds(self, kind, rows, fan_in, fan_out, moved=0, is_vocabulary=False):
        m, n, k, layout, types = shape_of(kind, rows, fan_in, fan_out, is_vocabulary)
        problem = self.model.makeNvMatmulHeuristicsProblem(m, n, k, layout)
        best = min(kernel["runtime"] for kernel in self.model.get(problem, 8, precision=types))
        return best + moved * 2 * rows * (fan_in if kind == "bwd_x" else fan_out) / self.copy_rate


def main():
    models = [Model(*chip) for chip in CHIPS]

    def row(name, values, unit):
        print("\t".join([name, *values, unit, "-", "-", "value"]))

    def rates(name, kind, rows, fan_in, fan_out, moved=0, is_vocabulary=False):
        seconds = [model.seconds(kind, rows, fan_in, fan_out, moved, is_vocabulary) for model in models]
        row(name, [f"{2e-12 * rows * fan_in * fan_out / s:.0f}" for s in seconds], "TFLOP/s")
        return seconds

    times = []
    for kind, size, folded, shown, moved in FORMS:
        seconds = rates(" ".join(["matmul_" + kind, size, *folded.split(), "bf16"]), kind, ROWS, *LAYER_OF[size], moved)
        times.append((f"time matmul_{kind} {ROWS}x{size},bf16{shown}", [LAYERS * s for s in seconds]))
    for width in (VOCAB, TILES):
        for kind in ("fwd", "bwd_x", "bwd_w"):
            seconds = rates(f"matmul_{kind} {CHUNK} 768x{width} stride {TILES} bf16", kind, CHUNK, 768, width, 0, True)
            if width == TILES:
                added = ",added" if kind == "bwd_w" else ""
                times.append((f"time matmul_{kind} {CHUNK}x768x{width},bf16{added}", [ROWS / CHUNK * s for s in seconds]))
    for name, seconds in times:
        row(name, [f"{1e3 * s:.1f}" for s in seconds], "ms")


main()
