#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""peer_torch.py [--quick] [STAGES.txt]: PyTorch's attention on the same card, and the ratios.

Times exact attention (N x N in memory; scaled_dot_product_attention with its flash, cuDNN and memory-efficient
backends), a plain chunked hybrid (window softmax + linear attention, no routing) and decode steps replayed as
a CUDA graph, by device events, medians after warm-up. STAGES.txt is the output of bench_vulkan_stages
of the same run: with it the ratios of our times over these are printed. H = 32 query heads, G = 8, D = 128.
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

H, G, D, CHUNK = 32, 8, 128, 64
results = {}


def median_ms(call, warm=4, repeats=9):
    for _ in range(warm):
        call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def report(name, call, **options):
    torch.cuda.empty_cache()
    try:
        results[name] = median_ms(call, **options)
        print(f"result {name} {results[name]:.4f}", flush=True)
    except torch.OutOfMemoryError:
        print(f"result {name} out-of-memory", flush=True)
    except RuntimeError as error:
        print(f"result {name} failed: {str(error).splitlines()[0]}", flush=True)


def inputs(n, dtype):
    generator = torch.Generator("cuda").manual_seed(n)
    return [torch.randn(1, H, n, D, device="cuda", dtype=dtype, generator=generator) for _ in range(3)]


def quadratic(q, k, v):
    """Scores, mask and softmax as matrices in memory."""
    n = q.shape[2]
    mask = torch.ones(n, n, device="cuda", dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2)) * D**-0.5
    scores.masked_fill_(mask, float("-inf"))
    return torch.softmax(scores, -1) @ v


def hybrid(q, k, v, fq, fk):
    """Exact softmax over this chunk and the one before, linear attention over everything older, one denominator."""
    n, chunks = q.shape[2], q.shape[2] // CHUNK
    cut = lambda x: x.view(1, H, chunks, CHUNK, -1)
    before = lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1]
    qc, kc, vc, fqc, fkc = map(cut, (q, k, v, fq, fk))
    near_k, near_v = torch.cat([before(kc), kc], 3), torch.cat([before(vc), vc], 3)
    scores = (qc @ near_k.transpose(-1, -2)) * D**-0.5
    i, j = torch.arange(CHUNK, device="cuda"), torch.arange(2 * CHUNK, device="cuda")
    hidden = (j[None] > i[:, None] + CHUNK).expand(chunks, -1, -1).clone()
    hidden[0] |= (j < CHUNK)[None]
    scores.masked_fill_(hidden, float("-inf"))
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    states = torch.cumsum(fkc.transpose(-1, -2) @ vc, 2)
    norms = torch.cumsum(fkc.sum(3), 2)
    states, norms = (F.pad(x, (0, 0) * (x.dim() - 3) + (2, 0))[:, :, :-2] for x in (states, norms))
    top = weights @ near_v + fqc @ states
    bottom = weights.sum(-1) + (fqc @ norms[..., None])[..., 0]
    return (top / bottom[..., None]).view(1, H, n, D)


def features(x):
    return torch.cat([torch.softmax(x, -1), torch.softmax(-x, -1)], -1)


def sdpa(backend, grouped=False):
    def call(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, enable_gqa=grouped)
    return call


def prefill(lengths):
    for n in lengths:
        q, k, v = inputs(n, torch.float32)
        if n <= 16384:
            report(f"quadratic_f32_{n}", lambda: quadratic(q, k, v), warm=2, repeats=3)
            report(f"efficient_f32_{n}", lambda: sdpa(SDPBackend.EFFICIENT_ATTENTION)(q, k, v), warm=2, repeats=3)
        fq, fk = features(q), features(k)
        report(f"hybrid_f32_{n}", lambda: hybrid(q, k, v, fq, fk), warm=2, repeats=5)
        del fq, fk
        q, k, v = (x.bfloat16() for x in (q, k, v))
        report(f"flash_bf16_{n}", lambda: sdpa(SDPBackend.FLASH_ATTENTION)(q, k, v), repeats=5)
        report(f"cudnn_bf16_{n}", lambda: sdpa(SDPBackend.CUDNN_ATTENTION)(q, k, v), repeats=5)
        del q, k, v


def decode(n, sets):
    """One query token over n keys; `sets` caches in turn, so that they do not all fit into the L2 cache."""
    q = torch.randn(1, H, 1, D, device="cuda", dtype=torch.bfloat16)
    caches = [torch.randn(2, 1, G, n, D, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    step = lambda kv: F.scaled_dot_product_attention(q, kv[0], kv[1], enable_gqa=True)
    for kv in caches:
        step(kv)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for kv in caches:
            step(kv)
    results[f"decode_sdpa_{n}_us"] = 1e3 * median_ms(graph.replay) / sets
    print(f"result decode_sdpa_{n}_us {results[f'decode_sdpa_{n}_us']:.3f}", flush=True)


def ratios(path):
    ours = {}
    for line in open(path):
        words = line.split()
        if len(words) == 3 and words[0] == "result":
            ours[words[1]] = float(words[2])
    both = {**results, **ours}
    rows = [("still / N x N fp32, 16K", "still_16384_ms", "quadratic_f32_16384", 0.03),
            ("still / flash bf16, 16K", "still_16384_ms", "flash_bf16_16384", 0.9),
            ("still / flash bf16, 32K", "still_32768_ms", "flash_bf16_32768", 0.45),
            ("still / flash bf16, 64K", "still_m1088_65536_ms", "flash_bf16_65536", 0.25),
            ("still / cuDNN bf16, 16K", "still_16384_ms", "cudnn_bf16_16384", 1.5),
            ("still / cuDNN bf16, 64K", "still_m1088_65536_ms", "cudnn_bf16_65536", 0.4),
            ("still f32 only / flash bf16, 64K", "still_f32_m1088_65536_ms", "flash_bf16_65536", 0.6),
            ("still / plain hybrid fp32, 16K", "still_16384_ms", "hybrid_f32_16384", 0.6),
            ("still 64K / still 16K (m = 1088)", "still_m1088_65536_ms", "still_m1088_16384_ms", 4.2),
            ("full, ours / flash bf16, 8K", "full_8192_ms", "flash_bf16_8192", 3.0),
            ("decode: still / SDPA grouped, 64K", "decode_still_65024_us", "decode_sdpa_65536_us", 0.4),
            ("decode: still 64K / still 4K", "decode_still_65024_us", "decode_still_4096_us", 1.05)]
    for what, above, below, bar in rows:
        if above in both and below in both:
            value = both[above] / both[below]
            print(f"ratio {what}: {value:.3f} (bar {bar}) {'holds' if value <= bar else 'MISSED'}")
        else:
            print(f"ratio {what}: not measured")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--quick"]
    quick = "--quick" in sys.argv
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"device {torch.cuda.get_device_name()}, torch {torch.__version__}")
    with torch.no_grad():
        prefill([1024] if quick else [8192, 16384, 32768, 65536])
        decode(1024 if quick else 65536, 4)
    if arguments:
        ratios(arguments[0])


main()
