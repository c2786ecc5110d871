#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks still-evaluate's multiple choice against llama-cpp-python: same GGUF, same questions.

    bench/check-likelihoods.py MODEL.gguf PIQA.jsonl ARC.jsonl ... [-n 200] [--threads N]

Files hold lines {"question", "choices", "answer": index}. Both score each choice after
"Question: ...\\nAnswer:", as lm-evaluation-harness does; what is printed is acc and acc_norm of
both, on how many items they choose the same, and how far their log-likelihoods are apart. Fails
where a score differs by more than --points (3). The peer comes from PyPI (llama-cpp-python, which
compiles llama.cpp: some minutes, needs cmake and a C++ compiler), once, into --peer-dir. With
--keep what was asked stays in that folder, and a run that was stopped goes on there.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = "llama-cpp-python==0.3.36"


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- the peer, which runs in its own environment: this file again, with --as-peer


def peer_python(folder):
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    found = subprocess.run([python, "-c", "import llama_cpp"], stderr=subprocess.DEVNULL)
    if found.returncode:
        say(f"installing {PEER} into {folder} (some minutes)")
        subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True)
    return python


def log_sum_exp(numpy, row):
    row = row.astype(numpy.float64)
    largest = row.max()
    return largest + numpy.log(numpy.exp(row - largest).sum())


def peer_likelihoods(llama, numpy, item):
    """log P of each choice; the question is evaluated once."""
    start = f"Question: {item['question']}\nAnswer:"
    context = llama.tokenize(start.encode(), add_bos=True)
    llama.reset()
    llama.eval(context)
    sums = []
    for choice in item["choices"]:
        whole = llama.tokenize(f"{start} {choice}".encode(), add_bos=True)
        if whole[: len(context)] != context:
            raise ValueError(f"the tokens of the question change before '{choice}'")
        llama.n_tokens = len(context)
        end = whole[len(context) :]
        llama.eval(end)
        total = 0.0
        for i, token in enumerate(end):
            row = llama.scores[len(context) + i - 1]
            total += float(row[token]) - log_sum_exp(numpy, row)
        sums.append(total)
    return sums


def use_plain_weights(llama_cpp):
    """Repacked weights use AMX where the processor tells of it, which some virtual machines trap."""
    default = llama_cpp.llama_cpp.llama_model_default_params

    def plain():
        params = default()
        params.use_extra_bufts = False
        return params

    llama_cpp.llama_cpp.llama_model_default_params = plain


def run_as_peer(o):
    import llama_cpp
    import numpy

    use_plain_weights(llama_cpp)
    llama = llama_cpp.Llama(
        o.model, n_ctx=1024, n_batch=512, n_threads=o.threads, logits_all=True, verbose=False
    )
    for item in read_items(o.files[0], o.n)[o.skip :]:
        print(json.dumps(peer_likelihoods(llama, numpy, item)), flush=True)


def ask_peer(python, o, path, folder):
    answers = folder / f"{pathlib.Path(path).stem}.peer.jsonl"
    done = len(answers.read_text().splitlines()) if answers.exists() else 0
    command = [python, __file__, o.model, path, "-n", o.n, "--threads", o.threads]
    command += ["--as-peer", "--skip", done]
    with open(answers, "a", encoding="utf-8") as out:
        subprocess.run([str(c) for c in command], check=True, stdout=out)
    return [json.loads(line) for line in answers.read_text().splitlines()]


# ---- ours


def ask_still(o, path, folder):
    program = os.environ.get("STILL_EVALUATE", ROOT / "build/examples/programs/still-evaluate")
    results = folder / f"{pathlib.Path(path).stem}.still.jsonl"
    command = [program, "-m", o.model, "--runs", "full", "--choices", path, "--items", o.n]
    command += ["-t", o.threads, "-q", "-o", results, "--resume"]
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return [line["likelihoods"] for line in lines if "likelihoods" in line]


# ---- both


def read_items(path, most):
    with open(path, encoding="utf-8") as file:
        items = [json.loads(line) for line in file if line.strip()]
    return items[:most]


def best(values):
    return values.index(max(values))


def choices_of(items, likelihoods):
    """What acc and acc_norm choose."""
    norm = [
        [value / len(choice.encode()) for value, choice in zip(row, item["choices"])]
        for item, row in zip(items, likelihoods)
    ]
    return [best(row) for row in likelihoods], [best(row) for row in norm]


def percent(chosen, items):
    return 100 * statistics.mean(c == item["answer"] for c, item in zip(chosen, items))


def check(o, python, path, folder):
    items = read_items(path, o.n)
    ours, theirs = ask_still(o, path, folder), ask_peer(python, o, path, folder)
    if not len(items) == len(ours) == len(theirs):
        raise ValueError(f"{path}: {len(items)} items, {len(ours)} and {len(theirs)} answers")
    far = [abs(a - b) for x, y in zip(ours, theirs) for a, b in zip(x, y)]
    worst = 0
    for name, mine, peer in zip(("acc", "acc_norm"), choices_of(items, ours), choices_of(items, theirs)):
        same = statistics.mean(a == b for a, b in zip(mine, peer))
        scores = percent(mine, items), percent(peer, items)
        worst = max(worst, abs(scores[0] - scores[1]))
        print(
            f"| {pathlib.Path(path).stem} | {name} | {len(items)} | {scores[0]:.1f} | {scores[1]:.1f} "
            f"| {100 * same:.1f} | {statistics.median(far):.3f} | {max(far):.3f} |",
            flush=True,
        )
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("files", nargs="+")
    parser.add_argument("-n", type=int, default=200, help="items of each file (200)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--points", type=float, default=3, help="most difference allowed (3)")
    parser.add_argument("--peer-dir", type=pathlib.Path, default=ROOT / "build/llama-cpp-python")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for what was asked")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.as_peer:
        return run_as_peer(o)
    python = peer_python(o.peer_dir)
    print("| file | score | n | still % | llama.cpp % | same choice % | nats apart, median | most |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = o.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        worst = max(check(o, python, path, folder) for path in o.files)
    if worst > o.points:
        sys.exit(f"a score differs by {worst:.1f} points, allowed are {o.points:g}")


main()
