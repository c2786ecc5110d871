#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures still-run beside llama.cpp: the same GGUF, threads and machine, runs in turn, medians.

    bench/compare-llama-cpp.py MODEL.gguf [--depths 0,512,2048,8192] [--attn full,still]
                               [--also HYBRID.gguf] [--runs-file FILE] [--seconds S]
                               [--svg FILE] [--json FILE]

For each depth D both read D tokens (prefill) and then produce single tokens (decode). Ratios are
ours over llama.cpp's: above 1 is faster for tokens/s; for bytes below 1 is smaller. Differences
under some 15 % are noise on a shared machine. The peer comes from the npm package node-llama-cpp,
once, into --peer-dir: its shared libraries, of which it picks the ones for this processor, or with
--native its source, compiled here with -march=native (some minutes). Needs npm, git and a C++
compiler, for --native cmake too. Flash attention is on.
"""

import argparse
import array
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = "3.21.1"  # of node-llama-cpp: llama.cpp v0.4.0
CMAKE_FLAGS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
]
# plain words of our own; their tokens are counted before they are used
SENTENCE = (
    "the miller walked to the bridge and counted seven boats while rain fell on the old road and "
    "the clerk wrote every number into a green book before the evening bell rang twice "
)


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, cwd=None, timeout=None):
    """Standard output of a command; on failure its last lines of standard error."""
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        timeout=timeout,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        raise RuntimeError(f"{pathlib.Path(str(command[0])).name}: {done.stderr.strip()[-400:]}")
    return done.stdout


# ---- the peer


def fetch_source(folder):
    """llama.cpp's source, for its headers at least."""
    source = folder / "llama.cpp"
    if not source.exists():
        say("fetching llama.cpp")
        npm_install(folder, f"node-llama-cpp@{VERSION}")
        run(
            [
                "git",
                "clone",
                "-q",
                folder / "node_modules/node-llama-cpp/llama/gitRelease.bundle",
                source,
            ]
        )
    return source


def npm_install(folder, package):
    run(
        ["npm", "install", "--save-exact", package, "--ignore-scripts", "--no-audit", "--no-fund"],
        folder,
    )


def prebuilt_libraries(folder):
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"linux-{machine}"
    libraries = folder / "node_modules/@node-llama-cpp" / name / "bins" / name
    if not libraries.exists():
        npm_install(folder, f"@node-llama-cpp/{name}@{VERSION}")
    found = [
        next(libraries.glob(pattern), None)
        for pattern in ("libllama.v*.so", "libggml.v*.so", "libggml-base.so")
    ]
    if None in found:
        raise RuntimeError(f"{libraries} does not hold the shared libraries; try --native")
    return [*found, f"-Wl,-rpath,{libraries}", f'-DBACKENDS="{libraries}"']


def native_libraries(source):
    build = source / "build"
    if not (build / "src/libllama.a").exists():
        say("building llama.cpp (some minutes)")
        run(["cmake", "-B", build, *CMAKE_FLAGS], source)
        run(
            [
                "cmake",
                "--build",
                build,
                "-j",
                str(len(os.sched_getaffinity(0))),
                "--target",
                "llama",
            ],
            source,
        )
    names = [
        "src/libllama.a",
        "ggml/src/libggml.a",
        "ggml/src/libggml-cpu.a",
        "ggml/src/libggml-base.a",
    ]
    return [*(build / name for name in names), "-fopenmp", "-lpthread", "-ldl"]


def build_peer(folder, native):
    """The compiled llama_cpp_peer; each step is skipped where its result is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in ["npm", "git", "c++"] + ["cmake"] * native:
        if not shutil.which(tool):
            raise RuntimeError(f"{tool} is needed to make the peer")
    source = fetch_source(folder)
    program = folder / ("peer-native" if native else "peer")
    ours = ROOT / "bench" / "llama_cpp_peer.cpp"
    if not program.exists() or program.stat().st_mtime < ours.stat().st_mtime:
        libraries = native_libraries(source) if native else prebuilt_libraries(folder)
        run(
            [
                "c++",
                "-O2",
                "-std=c++17",
                f"-I{source}/include",
                f"-I{source}/ggml/include",
                ours,
                "-o",
                program,
                *libraries,
            ]
        )
    return program


# ---- one run of each


def still_command(options, attention):
    return [
        options.still_run,
        "-m",
        options.model,
        "-t",
        options.threads,
        "--temp",
        "0",
        "-no-cnv",
        "--json",
        "-q",
        "--attn",
        attention,
        "--cache-type",
        options.cache_type,
    ] + (["--budget", options.budget] if attention == "still" else [])


def words(count):
    parts = SENTENCE.split()
    return " ".join(parts[i % len(parts)] for i in range(max(1, count)))


def write_prompts(options, folder):
    """A text file for each depth, of about as many tokens; depth 0 is one word."""
    trial = folder / "trial.txt"
    trial.write_text(words(200))
    command = still_command(options, "full") + ["-f", trial, "-n", "0"]
    rate = json.loads(run(command))["prompt_tokens"] / 200
    prompts = {}
    for depth in options.depths:
        prompts[depth] = folder / f"{depth}.txt"
        prompts[depth].write_text(words(int(depth / rate)))
    return prompts


def run_still(options, attention, depth, prompt):
    context = max(256, depth + depth // 8 + options.decode)
    command = still_command(options, attention) + [
        "-f",
        prompt,
        "-n",
        options.decode,
        "-c",
        context,
    ]
    return json.loads(run(command, timeout=options.limit))


def run_peer(options, program, model, tokens):
    command = [
        program,
        "speed",
        model,
        options.threads,
        options.cache_type,
        tokens,
        options.decode,
    ]
    return json.loads(run(command, timeout=options.limit))


# ---- all of them


FIGURES = ("prefill", "decode", "load", "cache", "resident")


def figures(one):
    """What the table shows of one run."""
    rate = lambda n, s: n / s if s > 0 and n else None
    values = (
        rate(one["prompt_tokens"], one["prompt_seconds"]),
        rate(one["answer_tokens"], one["answer_seconds"]),
        one["load_seconds"],
        one["cache_bytes"],
        one["peak_resident_bytes"],
    )
    return dict(zip(FIGURES, values))


def median_of(runs):
    out = {}
    for name in FIGURES:
        values = [r[name] for r in runs if r[name] is not None]
        out[name] = statistics.median(values) if values else None
    return out


def peers(options):
    """Columns that llama.cpp runs, and their files."""
    found = {"llama.cpp": options.model}
    if options.also:
        found[f"llama.cpp, {pathlib.Path(options.also).stem}"] = options.also
    return found


def everybody(options):
    return [*options.attn, *peers(options)]


def one_cell(options, program, who, depth, prompt, tokens):
    model = peers(options).get(who)
    return (
        run_peer(options, program, model, tokens)
        if model
        else run_still(options, who, depth, prompt)
    )


def read_runs(options):
    """Runs of --runs-file that are of this model and these options."""
    path = pathlib.Path(options.runs_file) if options.runs_file else None
    if not path or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["of"] == subject(options)]


def subject(options):
    return [pathlib.Path(options.model).name, options.threads, options.cache_type, options.budget]


def append_run(options, row):
    if options.runs_file:
        with open(options.runs_file, "a") as out:
            out.write(json.dumps(row) + "\n")


def measure(options, program, prompts):
    """{(who, depth): medians}; a cell that fails is said and left out. Cells that --runs-file already has are not
    run again, and none begins after --seconds."""
    rows, broken, begin = read_runs(options), set(), time.monotonic()
    exact = {row["depth"]: row["tokens"] for row in rows if row["who"] not in peers(options)}
    for turn in range(options.runs):
        for depth, prompt in prompts.items():
            for who in everybody(options):
                done = [r for r in rows if (r["who"], r["depth"]) == (who, depth)]
                late = options.seconds and time.monotonic() - begin > options.seconds
                if len(done) > turn or late or (who, depth) in broken:
                    continue
                try:
                    # the peer reads exactly as many as ours did
                    tokens = exact.get(depth, max(1, depth))
                    one = one_cell(options, program, who, depth, prompt, tokens)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    say(f"{who} at {depth}: {error}")
                    broken.add((who, depth))
                    continue
                if who not in peers(options):
                    exact[depth] = one["prompt_tokens"]
                row = {"of": subject(options), "who": who, "depth": depth}
                row.update(figures(one), tokens=one["prompt_tokens"])
                rows.append(row)
                append_run(options, row)
                say(
                    f"run {turn + 1}, {who} at {depth}: "
                    + ", ".join(f"{k} {v:.4g}" for k, v in figures(one).items() if v is not None)
                )
    cells = {}
    for row in rows:
        if row["depth"] in options.depths:
            cells.setdefault((row["who"], row["depth"]), []).append(row)
    return {key: median_of(found) for key, found in cells.items()}


def compare_greedy(options, program, folder):
    """Whether both continue one text alike under full attention; where not, the peer's lead."""
    prompt = folder / "greedy.txt"
    prompt.write_text(words(60))
    command = still_command(options, "full") + ["--cache-type", "f32"]
    ours = json.loads(run([*command, "-f", prompt, "-n", options.greedy]))
    theirs = json.loads(
        run([program, "greedy", options.model, options.threads, "f32", prompt, options.greedy])
    )
    answer, at = ours["answer"].encode(), 0
    if ours["prompt_tokens"] != theirs["prompt_tokens"]:
        return f"the prompt is {ours['prompt_tokens']} tokens here, {theirs['prompt_tokens']} there"
    for number, piece in enumerate(theirs["pieces"]):
        if not answer.startswith(bytes(piece), at):
            lead = theirs["leads"][number]
            return f"first difference at token {number + 1}, where the peer's led by {lead:.4f}"
        at += len(piece)
    return (
        f"identical, {len(theirs['pieces'])} tokens"
        if at == len(answer)
        else "ours goes on where the peer ends"
    )


# ---- errors of logits


def our_logits(options, text, block, folder, level=None):
    out = folder / "ours.logits"
    program = pathlib.Path(options.still_run).parents[2] / "bench" / "token_logits"
    environment = dict(os.environ, **({"STILL_CPU": level} if level else {}))
    subprocess.run([program, options.model, text, str(block), out], env=environment, check=True)
    return array.array("f", out.read_bytes())


def logit_errors(options, program, folder):
    """How far logits are from those of products of floats (the portable level), ours and the peer's: the root of
    the mean square, without what all logits of a token share, and how often the likeliest token is the same."""
    text = folder / "text.txt"
    text.write_text((ROOT / "LICENSE").read_text()[:600])
    for block, label in ((512, "as a prompt"), (1, "token by token")):
        exact = our_logits(options, text, block, folder, "portable")
        theirs = json.loads(
            run([program, "logits", options.model, options.threads, "f32", text, block])
        )
        peer = array.array("f", pathlib.Path(f"{text}.logits").read_bytes())
        parts = []
        for who, logits in (("ours", our_logits(options, text, block, folder)), ("llama.cpp", peer)):
            total, same, size = 0.0, 0, theirs["vocabulary"]
            for row in range(0, len(exact), size):
                want, got = exact[row : row + size], logits[row : row + size]
                apart = [g - w for g, w in zip(got, want)]
                shared = sum(apart) / size
                total += sum((a - shared) ** 2 for a in apart)
                same += got.index(max(got)) == want.index(max(want))
            parts.append(
                f"{who} {(total / len(exact)) ** 0.5:.4f} (the likeliest the same: {same} of "
                f"{theirs['tokens']})"
            )
        print(f"error of logits, {label}: " + ", ".join(parts))


# ---- what is shown


def cell(value, peer, scale=1.0):
    if value is None:
        return "-"
    text = f"{value / scale:.4g}"
    return f"{text} ({value / peer:.2f})" if peer else text


def table(options, results, name, label, scale=1.0):
    others = [who for who in everybody(options) if who != "llama.cpp"]
    print(f"\n{label}; in brackets over llama.cpp\n")
    print("| depth | llama.cpp | " + " | ".join(others) + " |")
    print("| --- " * (len(others) + 2) + "|")
    for depth in options.depths:
        peer = results.get(("llama.cpp", depth), {}).get(name)
        row = [cell(results.get((who, depth), {}).get(name), peer, scale) for who in others]
        print(f"| {depth} | {cell(peer, None, scale)} | " + " | ".join(row) + " |")


# as bench_plot.c has them: for light and for dark pages, with dashes for whoever does not see colours apart
STYLE = (
    "svg{background:#fff;--ink:#222;--c0:#666;--c1:#0072b2;--c2:#c25500;--c3:#007f5b;--c4:#a8447f}"
    "@media(prefers-color-scheme:dark){svg{background:#181818;--ink:#ddd;--c0:#aaa;--c1:#4aa3df;"
    "--c2:#f0803c;--c3:#2dbf92;--c4:#dd8fbc}}text{fill:var(--ink)}"
)
DASHES = ["", "7 3", "2 2", "9 3 2 3", "4 4"]


def svg_panel(lines, depths, left, title):
    """Lines [(who, [(depth, value)])]; the values' axis is logarithmic, depths are evenly apart."""
    width, height, top = 330, 240, 40
    values = [v for _, points in lines for _, v in points] or [1]
    low, high = math.log10(min(values) * 0.9), math.log10(max(values) * 1.1)
    x = lambda d: left + width * depths.index(d) / max(1, len(depths) - 1)
    y = lambda v: top + height * (high - math.log10(v)) / (high - low)
    text = lambda at, up, words, more="": f'<text x="{at:.0f}" y="{up:.0f}" {more}>{words}</text>'
    out = [text(left, 20, f"{title} (tokens/s)", 'font-weight="bold"')]
    marks = [n * 10**e for e in range(6) for n in (1, 2, 5) if low <= math.log10(n * 10**e) <= high]
    for mark in marks:
        out.append(
            f'<path d="M{left} {y(mark):.1f}h{width}" style="stroke:var(--ink)" opacity="0.15"/>'
        )
        out.append(text(left - 6, y(mark) + 4, mark, 'text-anchor="end"'))
    out += [text(x(d), top + height + 18, d, 'text-anchor="middle"') for d in depths]
    above = -100
    for number, (who, points) in sorted(
        enumerate(lines), key=lambda l: -l[1][1][-1][1] if l[1][1] else 0
    ):
        if not points:
            continue
        path = " ".join(f"{x(d):.1f},{y(v):.1f}" for d, v in points)
        colour = f"var(--c{number % 5})"
        out.append(
            f'<polyline points="{path}" fill="none" style="stroke:{colour}" stroke-width="2" '
            f'stroke-dasharray="{DASHES[number % 5]}"/>'
        )
        out += [
            f'<circle cx="{x(d):.1f}" cy="{y(v):.1f}" r="2.5" style="fill:{colour}"/>'
            for d, v in points
        ]
        above = max(y(points[-1][1]), above + 12)
        out.append(text(x(points[-1][0]) + 7, above + 4, who, f'style="fill:{colour}"'))
    return out


def write_svg(options, results):
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1060 310" font-family="sans-serif" '
        'font-size="12">',
        f"<style>{STYLE}</style>",
    ]
    for name, left, title in (
        ("prefill", 50, "reading the first N tokens"),
        ("decode", 570, "writing at depth N"),
    ):
        depths = [d for d in options.depths if name == "decode" or d]
        lines = [
            (who, [(d, results[who, d][name]) for d in depths if results.get((who, d), {}).get(name)])
            for who in sorted(everybody(options), key=lambda who: who != "llama.cpp")
        ]
        out += svg_panel(lines, depths, left, title)
    pathlib.Path(options.svg).write_text("\n".join(out + ["</svg>"]) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="\n".join(__doc__.split("\n")[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser.add_argument("model")
    parser.add_argument("--still-run", default=ROOT / "build/examples/programs/still-run")
    parser.add_argument("--peer-dir", type=pathlib.Path, default=cache / "still-llama-cpp")
    parser.add_argument(
        "--native",
        action="store_true",
        help="compile the peer here instead of taking its libraries",
    )
    parser.add_argument("--depths", type=numbers, default=[0, 512, 2048, 4096, 8192])
    parser.add_argument("--attn", type=lambda t: t.split(","), default=["full", "still"])
    parser.add_argument(
        "--also", help="another GGUF, which llama.cpp alone runs beside: a hybrid of the same size"
    )
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--cache-type", choices=["f16", "f32"], default="f16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--decode", type=int, default=32, help="single tokens at each depth")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--greedy", type=int, default=64, help="tokens of the text comparison, 0: none"
    )
    parser.add_argument(
        "--errors", action="store_true", help="errors of logits against products of floats"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds for one run")
    parser.add_argument(
        "--runs-file", help="append every run here; what it already holds counts and is not run again"
    )
    parser.add_argument("--seconds", type=float, help="begin no run after so many")
    parser.add_argument("--json", help="write all medians here")
    parser.add_argument("--svg", help="write the curves here")
    return parser.parse_args()


def main():
    options = parse_arguments()
    program = build_peer(options.peer_dir, options.native)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.greedy:
            same = compare_greedy(options, program, folder)
            print(f"the same text by the likeliest tokens, full attention: {same}")
        if options.errors:
            logit_errors(options, program, folder)
        results = measure(options, program, write_prompts(options, folder))
    print(
        f"\n{pathlib.Path(options.model).name}, {options.threads} threads, "
        f"cache {options.cache_type}, "
        f"budget {options.budget}, median of {options.runs}"
    )
    table(options, results, "prefill", "prefill, tokens/s over the first N tokens")
    table(options, results, "decode", "decode, tokens/s at depth N")
    table(options, results, "cache", "cache, MiB", 2**20)
    table(options, results, "resident", "most memory resident, MiB", 2**20)
    table(options, results, "load", "load, seconds")
    if options.svg:
        write_svg(options, results)
    if options.json:
        flat = [{"who": who, "depth": depth, **values} for (who, depth), values in results.items()]
        pathlib.Path(options.json).write_text("\n".join(json.dumps(row) for row in flat) + "\n")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"compare-llama-cpp: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
