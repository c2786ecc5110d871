#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""peer_torch_training.py [MODEL] [--threads N] [--rounds N] [--length N] [--venv DIR]: both stages of linearizing, by
this library and by PyTorch on the same CPU, and the ratio of their speeds.

Same weights, same tokens (4,096 of them in rows of --length), same mathematics: the hybrid operator with saliency
routing chunk by chunk, its gradients (PyTorch: autograd, eager), AdamW. Stage 1: softmax attention as the teacher,
squared error of every head, feature maps and gates trained. Stage 2: cross-entropy, LoRA of rank 8 on q, k, v, o and
the gate. One step of each in turn, many times; printed are medians, quartiles, and both losses, which must agree.

Needs the built build/bench/training_speed (or TRAINING_SPEED). PyTorch is installed from PyPI into --venv when this
Python has none (gigabytes; the first time only).
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS, CHUNK, BUDGET, RANK, ALPHA = 4096, 64, 256, 8, 16.0


def with_torch(folder):
    """Starts this script again inside an environment that has PyTorch."""
    python = pathlib.Path(folder) / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy"], check=True)
    os.execv(python, [str(python), *sys.argv])


try:
    import numpy
    import torch
    import torch.nn.functional as F
except ModuleNotFoundError:
    at = sys.argv.index("--venv") + 1 if "--venv" in sys.argv else 0
    with_torch(sys.argv[at] if at else ROOT / "build" / "torch")


# ---- the model

def read_safetensors(path):
    blob = path.read_bytes()
    size = int.from_bytes(blob[:8], "little")
    tensors = {}
    for name, entry in json.loads(blob[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = blob[8 + size + begin:8 + size + end]
        if entry["dtype"] == "BF16":
            bits = numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16
            values = bits.view(numpy.float32)
        else:
            values = numpy.frombuffer(data, {"F32": numpy.float32, "F16": numpy.float16}[entry["dtype"]])
        tensors[name] = torch.from_numpy(values.astype(numpy.float32)).reshape(entry["shape"])
    return tensors


class Model:
    """Frozen weights, and what is trained: A of q and k and the gate of every layer, LoRA pairs."""

    def __init__(self, folder, length):
        config = json.loads((folder / "config.json").read_text())
        w = read_safetensors(folder / "model.safetensors")
        self.eps, self.layers = config["rms_norm_eps"], config["num_hidden_layers"]
        self.H, self.G = config["num_attention_heads"], config["num_key_value_heads"]
        self.W = config["hidden_size"]
        self.D = config.get("head_dim", self.W // self.H)
        self.embedding = w["model.embed_tokens.weight"]
        self.head = w.get("lm_head.weight", self.embedding)
        self.norm = w["model.norm.weight"]
        short = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
                 "gate_ff": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
                 "norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
        self.base = [{k: w[f"model.layers.{i}.{v}.weight"] for k, v in short.items()} for i in range(self.layers)]
        for layer in self.base:  # one product for gate and up
            layer["gate_up"] = torch.cat([layer.pop("gate_ff"), layer.pop("up")])
        square = torch.eye(self.D).repeat(self.H, 1, 1)
        self.maps = [{"Aq": square.clone(), "Ak": square.clone(), "g": torch.zeros(self.H * self.D, self.W)}
                     for _ in range(self.layers)]
        out = {"q": self.H * self.D, "k": self.G * self.D, "v": self.G * self.D, "o": self.W, "g": self.H * self.D}
        self.lora = [{k: (torch.randn(RANK, self.H * self.D if k == "o" else self.W) / math.sqrt(3 * self.W),
                          torch.zeros(n, RANK)) for k, n in out.items()} for _ in range(self.layers)]
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        frequencies = theta ** (-torch.arange(0, self.D, 2).double() / self.D)
        angles = torch.outer(torch.arange(length).double(), frequencies)
        self.cos, self.sin = angles.cos().float(), angles.sin().float()

    def parameters(self, stage):
        of = [p for layer in self.maps for p in layer.values()]
        if stage == 2:
            of = [p for layer in self.lora for pair in layer.values() for p in pair]
        return of

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)

    def linear(self, x, i, name, lora):
        y = x @ (self.maps[i]["g"] if name == "g" else self.base[i][name]).T
        if lora:
            a, b = self.lora[i][name]
            y = y + (ALPHA / RANK) * (x @ a.T) @ b.T
        return y

    def qkv(self, x, i, lora):
        """(rows, heads, length, D) each; k and v repeated over their groups."""
        heads = lambda y, n: y.view(*y.shape[:2], n, self.D).transpose(1, 2)
        q = self.rotate(heads(self.linear(x, i, "q", lora), self.H))
        k = self.rotate(heads(self.linear(x, i, "k", lora), self.G))
        v = heads(self.linear(x, i, "v", lora), self.G)
        share = self.H // self.G
        return q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)

    def gate(self, x, i, lora):
        g = torch.sigmoid(self.linear(x, i, "g", lora))
        return g.view(*g.shape[:2], self.H, self.D).transpose(1, 2)

    def rms(self, x, weight):
        return F.rms_norm(x, (self.W,), weight, self.eps)

    def finish(self, x, y, i, lora):
        y = y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)
        x = x + self.linear(y, i, "o", lora)
        gate, up = (self.rms(x, self.base[i]["norm2"]) @ self.base[i]["gate_up"].T).chunk(2, -1)
        return x + (F.silu(gate) * up) @ self.base[i]["down"].T


# ---- the operator

def features(x, a):
    u = x @ a
    u = u * (x.norm(dim=-1, keepdim=True) / u.norm(dim=-1, keepdim=True).clamp_min(1e-12))
    return torch.cat([u.softmax(-1), (-u).softmax(-1)], -1).clamp_min(1e-12)


def chunked(x):
    return x.view(*x.shape[:2], -1, CHUNK, x.shape[-1])


def with_previous(x):
    return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], 3)


class Masks:
    def __init__(self, length):
        i, j = torch.arange(CHUNK)[:, None], torch.arange(2 * CHUNK)[None]
        chunks = length // CHUNK
        first = torch.arange(chunks)[:, None, None] == 0
        self.near = (j > i + CHUNK) | (first & (j < CHUNK))      # (chunks, C, 2C) causal, two chunks
        self.window = self.near | (j <= i)                       # the last C tokens
        self.itself = j == i + CHUNK
        self.keep = (BUDGET - CHUNK) // chunks
        owner = torch.arange(chunks).repeat_interleave(self.keep)
        self.kept = owner[None] > torch.arange(chunks)[:, None] - 2  # (chunks, kept) not routed yet


def saliency(logits, masks):
    """Spec section 2: how different the window's weights are without the token itself."""
    a = logits.masked_fill(masks.window, -math.inf).softmax(-1)
    b = logits.masked_fill(masks.window | masks.itself, -math.inf).softmax(-1).nan_to_num(0.0)
    return (a * ((a + 1e-8) / (b + 1e-8)).log()).sum(-1)


def hybrid(q, k, v, gate, aq, ak, masks):
    rows, heads, length, dim = q.shape
    scale = dim ** -0.5
    qc, kc, vc = chunked(q), chunked(k), chunked(v)
    near = scale * (qc @ with_previous(kc).transpose(-1, -2))
    with torch.no_grad():
        scores = saliency(near, masks)
        best = scores.topk(masks.keep, -1).indices.sort(-1).values
        rest = torch.ones_like(scores).scatter_(-1, best, 0.0)
        at = (best + torch.arange(length // CHUNK)[:, None] * CHUNK).flatten(2)[..., None].expand(-1, -1, -1, dim)
    kept_k, kept_v = k.gather(2, at), v.gather(2, at)
    far = scale * (q @ kept_k.transpose(-1, -2))
    far = chunked(far).masked_fill(masks.kept[:, None], -math.inf)
    logits = torch.cat([near.masked_fill(masks.near, -math.inf), far], -1)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    top = weights[..., :2 * CHUNK] @ with_previous(vc)
    top = top + chunked(weights[..., 2 * CHUNK:].flatten(2, 3) @ kept_v)
    phi_q, phi_k = features(q, aq), chunked(features(k, ak)) * rest[..., None]
    states = F.pad((phi_k.transpose(-1, -2) @ vc).cumsum(2), (0, 0, 0, 0, 2, 0))[:, :, :-2]
    norms = F.pad(phi_k.sum(3).cumsum(2), (0, 0, 2, 0))[:, :, :-2]
    phi_q = chunked(phi_q)
    top = top + chunked(gate) * (phi_q @ states)
    bottom = weights.sum(-1, keepdim=True) + phi_q @ norms[..., None]
    return (top / bottom).view(rows, heads, length, dim)


# ---- the stages

def transfer(model, ids, masks):
    total = 0.0
    with torch.no_grad():
        x = model.embedding[ids]
    for i in range(model.layers):
        with torch.no_grad():
            normed = model.rms(x, model.base[i]["norm1"])
            q, k, v = model.qkv(normed, i, False)
            truth = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        m = model.maps[i]
        loss = F.mse_loss(hybrid(q, k, v, model.gate(normed, i, False), m["Aq"], m["Ak"], masks), truth)
        loss.backward()
        total += (loss.detach() / truth.square().mean()).item() / model.layers
        if i + 1 < model.layers:
            with torch.no_grad():
                x = model.finish(x, truth, i, False)
    return total


def low_rank(model, ids, target, masks):
    x = model.embedding[ids]
    for i in range(model.layers):
        normed = model.rms(x, model.base[i]["norm1"])
        q, k, v = model.qkv(normed, i, True)
        m = model.maps[i]
        x = model.finish(x, hybrid(q, k, v, model.gate(normed, i, True), m["Aq"], m["Ak"], masks), i, True)
    loss = F.cross_entropy((model.rms(x, model.norm) @ model.head.T).flatten(0, 1), target.flatten())
    loss.backward()
    return loss.item()


class Peer:
    def __init__(self, folder, length):
        torch.manual_seed(1)
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        at = torch.arange(TOKENS)
        self.ids = ((at * at * 7 + at * 13) % vocabulary).view(-1, length)
        self.target = self.ids
        self.masks = Masks(length)
        self.models = {stage: Model(folder, length) for stage in (1, 2)}
        self.optimizers = {}
        for stage, model in self.models.items():
            for p in model.parameters(stage):
                p.requires_grad_(True)
            self.optimizers[stage] = torch.optim.AdamW(model.parameters(stage), lr=1e-4, weight_decay=0.0, foreach=True)

    def step(self, stage):
        start, model = time.perf_counter(), self.models[stage]
        self.optimizers[stage].zero_grad(set_to_none=True)
        loss = transfer(model, self.ids, self.masks) if stage == 1 else low_rank(model, self.ids, self.target, self.masks)
        self.optimizers[stage].step()
        return time.perf_counter() - start, loss


class Ours:
    """The benchmark as a process that does a step when it is asked to."""

    def __init__(self, folder, length, threads):
        program = os.environ.get("TRAINING_SPEED", ROOT / "build" / "bench" / "training_speed")
        self.process = subprocess.Popen([program, folder, str(threads), str(length)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        self.kernels = self.process.stdout.readline().strip()

    def step(self, stage):
        self.process.stdin.write(f"{stage}\n")
        self.process.stdin.flush()
        seconds, loss = self.process.stdout.readline().split()
        return float(seconds), float(loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=ROOT / "examples" / "models" / "needle")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--venv", help="where PyTorch is or will be installed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours, peer = Ours(options.model, options.length, options.threads), Peer(options.model, options.length)
    isa = torch.backends.cpu.get_cpu_capability()
    print(f"ours: {ours.kernels}; PyTorch {torch.__version__}: {isa}, {torch.get_num_threads()} threads")
    print("| stage | ours, tokens/s | PyTorch, tokens/s | ours / PyTorch | quartiles | first losses |")
    print("|---|---|---|---|---|---|")
    for stage, name in ((1, "attention transfer"), (2, "low-rank")):
        first = ours.step(stage)[1], peer.step(stage)[1]
        rounds = [(ours.step(stage)[0], peer.step(stage)[0]) for _ in range(options.rounds)]
        ratios = sorted(theirs / own for own, theirs in rounds)
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        own, theirs = (TOKENS / statistics.median(r[i] for r in rounds) for i in (0, 1))
        print(f"| {name} | {own:.0f} | {theirs:.0f} | {statistics.median(ratios):.2f} | {low:.2f} - {high:.2f} "
              f"| {first[0]:.5f}, {first[1]:.5f} |", flush=True)
        if abs(first[0] - first[1]) > 2e-3 * abs(first[1]):
            sys.exit("the losses differ: this was not the same computation")


if __name__ == "__main__":
    main()
