#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the seeds of corpus/: good files of each kind, and files named for what is wrong with them.

tests/fuzz/make_corpus.py            (into the folder beside this script)
"""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
U8, U16, I32, F32, BOOL, STR, ARR, F64 = 0, 2, 5, 6, 7, 8, 9, 12
LARGE = {"2e32": 1 << 32, "2e61": 1 << 61, "2e63-1": (1 << 63) - 1, "2e64-1": (1 << 64) - 1}


def save(kind, name, data):
    folder = CORPUS / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def text(s, length=None):
    return struct.pack("<Q", len(s) if length is None else length) + s.encode()


def gguf(pairs=(), tensors=(), data=b"", version=3, counts=(None, None)):
    n_tensors = len(tensors) if counts[0] is None else counts[0]
    n_pairs = len(pairs) if counts[1] is None else counts[1]
    head = (
        b"GGUF"
        + struct.pack("<IQQ", version, n_tensors, n_pairs)
        + b"".join(pairs)
        + b"".join(tensors)
    )
    return head + bytes(-len(head) % 32) + data


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def array(key, kind, count, values):
    return pair(key, ARR, struct.pack("<IQ", kind, count) + values)


def tensor(name, ne, kind, offset):
    return text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, offset)


def make_gguf():
    pairs = [
        pair("general.architecture", STR, text("llama")),
        pair("n", I32, struct.pack("<i", -1)),
        pair("f", F64, struct.pack("<d", 0.5)),
        pair("b", BOOL, b"\1"),
        array("tokens", STR, 2, text("a") + text("")),
        array("scores", F32, 2, bytes(8)),
    ]
    # block types: one of 32 values and one of 256 values, and plain ones
    good = gguf(
        pairs,
        [tensor("q8", (32, 2), 8, 0), tensor("h", (3,), 1, 96), tensor("f", (2, 2), 0, 128)],
        bytes(144),
    )
    save("gguf", "good", good)
    types = {
        2: 18,
        3: 20,
        6: 22,
        7: 24,
        8: 34,
        10: 84,
        11: 110,
        12: 144,
        13: 176,
        14: 210,
        20: 18,
        30: 2,
        39: 17,
    }
    for kind, size in types.items():
        items = 1 if kind == 30 else 256 if 10 <= kind <= 14 else 32
        save(
            "gguf",
            f"type_{kind}",
            gguf(tensors=[tensor("w", (items,), kind, 0)], data=bytes(range(size))),
        )
    save("gguf", "version_2", gguf(pairs[:1], version=2))
    save(
        "gguf",
        "alignment_8",
        gguf(
            [pair("general.alignment", 4, struct.pack("<I", 8))],
            [tensor("w", (1,), 0, 0)],
            bytes(8),
        ),
    )
    save(
        "gguf",
        "product_wraps",
        gguf(tensors=[tensor("w", ((1 << 63) - 1, 2, 1, 1), 24, 0)], data=bytes(32)),
    )
    save("gguf", "zero_dimension", gguf(tensors=[tensor("w", (4, 0), 0, 0)], data=bytes(32)))
    save("gguf", "empty_key", gguf([pair("", U8, b"\1")]))
    save("gguf", "uint8_scores", gguf([array("tokenizer.ggml.scores", U8, 4, bytes(4))]))
    save("gguf", "alignment_int32", gguf([pair("general.alignment", I32, struct.pack("<i", 32))]))
    save("gguf", "alignment_2e31", gguf([pair("general.alignment", 4, struct.pack("<I", 1 << 31))]))
    save("gguf", "nested_array", gguf([array("a", ARR, 1, struct.pack("<IQ", ARR, 1))]))
    save("gguf", "split", gguf([pair("split.count", U16, struct.pack("<H", 3))]))
    for name, value in LARGE.items():
        save("gguf", f"tensor_count_{name}", gguf(counts=(value, None)))
        save("gguf", f"pair_count_{name}", gguf(counts=(None, value)))
        save("gguf", f"string_length_{name}", gguf([pair("k", STR, text("x", value))]))
        save("gguf", f"array_count_{name}", gguf([array("k", STR, value, b"")]))
        save(
            "gguf",
            f"dimension_{name}",
            gguf(tensors=[tensor("w", (32, value), 8, 0)], data=bytes(64)),
        )
    save("gguf", "cut_short", good[:-20])


def safetensors(header, data=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    save(
        "safetensors",
        "good",
        safetensors(
            {
                "__metadata__": {"format": "pt"},
                "a": entry("F32", [1, 2], 0, 8),
                "b": entry("U8", [1], 8, 9),
                "misaligned": entry("BF16", [2], 9, 13),
                "scalar": entry("F64", [], 13, 21),
            },
            bytes(21),
        ),
    )
    save(
        "safetensors", "offsets_lie", safetensors({"w": entry("F32", [1000, 1000], 0, 4)}, bytes(4))
    )
    save(
        "safetensors",
        "file_too_short",
        safetensors({"w": entry("F32", [1000, 1000], 0, 4000000)}, bytes(4)),
    )
    save(
        "safetensors",
        "overlap",
        safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)),
    )
    save(
        "safetensors",
        "gap",
        safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 6, 10)}, bytes(10)),
    )
    save("safetensors", "product_wraps", safetensors({"w": entry("F32", [1 << 32, 1 << 32], 0, 0)}))
    save("safetensors", "unknown_dtype", safetensors({"w": entry("F8_E4M3", [1], 0, 1)}, b"\0"))
    save(
        "safetensors",
        "twice",
        safetensors(
            b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
            bytes(2),
        ),
    )
    save("safetensors", "deep", safetensors(b"[" * 200 + b"]" * 200))
    save("safetensors", "nul_escape", safetensors(b'{"a\\u0000b":1}'))
    for name, value in LARGE.items():
        save("safetensors", f"header_length_{name}", struct.pack("<Q", value) + b"{}")


def make_json():
    save(
        "json",
        "good",
        rb'{"a": [1, -2.5e3, true, null, {}], "s": "\u00e9\ud83d\ude00\n\\ ", "big": 9007199254740993}',
    )
    save("json", "twice", b'{"a": 1, "b": 2, "a": 3}')
    save("json", "deep", b'{"a":' * 63 + b"[]" + b"}" * 63)
    save("json", "too_deep", b"[" * 65 + b"]" * 65)
    save("json", "nul_escape", rb'["\u0000"]')
    save("json", "escaped_backslash", rb'["\\u0000"]')
    save("json", "half_surrogate", rb'["\ud800"]')
    save("json", "trailing", b"{} {}")
    save("json", "long_number", b"[" + b"1" * 200 + b"]")


def make_quantize():
    floats = lambda *values: struct.pack(f"<{len(values)}f", *values)
    save("quantize", "ramp", floats(*[i / 7 - 18 for i in range(256)]))
    save("quantize", "not_finite", floats(float("nan"), float("inf"), -float("inf"), 1.0))
    save("quantize", "one_value", floats(*[-3.0] * 256))
    save("quantize", "subnormal", floats(*[1e-40] * 256))
    save("quantize", "huge", floats(*[3e38, -3e38] * 128))


def bytes_vocabulary():
    """GPT-2's printable characters for the 256 bytes."""
    kept = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in kept]
    return {chr(b) if b in kept else chr(256 + others.index(b)): b for b in range(256)}


def tokenizer(**changes):
    document = {
        "added_tokens": [
            {"id": 260, "content": "<s>", "special": True},
            {"id": 261, "content": "<x>", "special": False, "lstrip": True, "normalized": True},
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}],
        },
        "model": {
            "type": "BPE",
            "vocab": {**bytes_vocabulary(), "he": 256, "ll": 257, "hell": 258},
            "merges": ["h e", ["l", "l"], "he ll"],
        },
    }
    document.update(changes)
    return json.dumps(document, ensure_ascii=False).encode()


def make_tokenizers():
    save("tokenizer_json", "byte_level", tokenizer())
    save(
        "tokenizer_json",
        "metaspace",
        tokenizer(
            pre_tokenizer={
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": "first",
                "split": False,
            },
            model={
                "type": "BPE",
                "unk_token": "<s>",
                "vocab": {"\u2581": 0, "a": 1, "\u2581a": 2, "<0x00>": 3},
                "merges": ["\u2581 a"],
                "byte_fallback": True,
            },
        ),
    )
    save(
        "tokenizer_json",
        "prepend",
        tokenizer(
            pre_tokenizer=None,
            normalizer={
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": "\u2581"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                ],
            },
            model={
                "type": "BPE",
                "unk_token": "<s>",
                "vocab": {"\u2581": 0, "a": 1, "\u2581a": 2},
                "merges": ["\u2581 a"],
            },
        ),
    )
    save("tokenizer_json", "unigram", tokenizer(model={"type": "Unigram", "vocab": [["a", 0.5]]}))
    save(
        "tokenizer_json",
        "large_id",
        tokenizer(model={"type": "BPE", "vocab": {"a": 1 << 52}, "merges": []}),
    )
    pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("\u2581", -3.0, 1),
        ("a", -4.0, 1),
        ("b", -5.0, 1),
        ("ab", -1.0, 1),
        ("<0x00>", 0.0, 6),
        ("<x>", 0.0, 4),
    ]
    data = b""
    for name, score, kind in pieces:
        piece = (
            bytes([10, len(name.encode())])
            + name.encode()
            + b"\x15"
            + struct.pack("<f", score)
            + bytes([24, kind])
        )
        data += bytes([10, len(piece)]) + piece
    good = data + bytes([18, 2, 24, 2, 26, 2, 32, 0])
    save("tokenizer_model", "good", good)
    save("tokenizer_model", "cut_short", good[:-1])
    save(
        "tokenizer_model",
        "long_length",
        bytes([10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
    )
    save("tokenizer_text", "words", "Hello <x> abab 12 <|begin_of_text|>\u6b6a\n\n".encode())
    save("tokenizer_text", "broken", b"\xe6\xad\xff\x00a\xf0\x9f\x99")
    save("tokenizer_text", "empty", b"")
    save("tokenizer_text", "blanks", b" " * 3000 + b"\n" * 3000)


def adapter_tensors(shapes):
    """Header entries and data of F32 tensors of these shapes, in small numbers."""
    entries, data = {}, b""
    for name, shape in shapes.items():
        items = 1
        for n in shape:
            items *= n
        begin = len(data)
        data += struct.pack(f"<{items}f", *[(i % 7 - 3) / 8 for i in range(items)])
        entries[name] = entry("F32", shape, begin, len(data))
    return entries, data


def make_adapter():
    """For fuzz_model.c's model: 2 layers of width 16, 2 heads and 1 key/value head of dimension 8."""
    metadata = {
        "still_adapter": "1",
        "kinds": "still,lolcats",
        "chunk": "4",
        "budget": "12",
        "context": "64",
        "window": "8",
        "sinks": "0",
        "keep": "0",
        "schedule": "budget",
        "keep_ratio": "0.125",
        "metric": "saliency",
        "routing": "head",
        "feature_map": "norm-preserved",
        "lora_scale": "2",
        "base_hash": "0" * 16,
    }
    shapes = {}
    for layer in range(2):
        shapes[f"layers.{layer}.feature_q"] = [2, 8, 8]
        shapes[f"layers.{layer}.feature_k"] = [2, 8, 8]
    shapes["layers.0.gate"] = [16, 16]
    shapes["layers.1.window_factor"] = [2]
    pair_of_q = "base_model.model.model.layers.0.self_attn.q_proj"
    lora = {f"{pair_of_q}.lora_A.weight": [2, 16], f"{pair_of_q}.lora_B.weight": [16, 2]}
    entries, data = adapter_tensors({**shapes, **lora})
    good = safetensors({"__metadata__": metadata, **entries}, data)
    save("adapter", "good", b"\0" + good)
    save("adapter", "cut_short", b"\0" + good[:-1])
    few = {**metadata, "kinds": "still"}
    save("adapter", "few_kinds", b"\0" + safetensors({"__metadata__": few, **entries}, data))
    lora_entries, lora_data = adapter_tensors(lora)
    save("adapter", "no_maps", b"\0" + safetensors({"__metadata__": metadata, **lora_entries}, lora_data))
    maps = {f"layers.0.feature_{x}": [2, 8, 8] for x in "qk"}
    biases = {f"layers.0.bias_{x}": [2, 8] for x in "qk"}
    for name, kind, has in (
        ("hedgehog", "hedgehog", maps),
        ("t2r", "t2r", {**maps, **biases}),
        ("liger", "liger-gla", lora),
    ):
        own_entries, own_data = adapter_tensors(has)
        header = {"__metadata__": {**metadata, "kinds": f"{kind},full"}, **own_entries}
        save("adapter", name, b"\0" + safetensors(header, own_data))
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
    plain = safetensors(lora_entries, lora_data)
    save("adapter", "peft", b"\1" + json.dumps(config).encode() + b"\0" + plain)
    patterns = {**config, "rank_pattern": {"q_proj": 3}, "use_rslora": True}
    save("adapter", "peft_rank_pattern", b"\1" + json.dumps(patterns).encode() + b"\0" + plain)
    save("adapter", "peft_dora", b"\1" + json.dumps({**config, "use_dora": True}).encode() + b"\0" + plain)
    save("adapter", "peft_array", b"\1[0, 928]\0" + plain)
    save("adapter", "peft_rank_0", b"\1" + json.dumps({**config, "r": 0}).encode() + b"\0" + plain)
    save(
        "adapter",
        "gguf",
        b"\0"
        + gguf(
            [
                pair("general.type", STR, text("adapter")),
                pair("adapter.type", STR, text("lora")),
                pair("general.architecture", STR, text("llama")),
                pair("adapter.lora.alpha", F32, struct.pack("<f", 4.0)),
            ],
            [
                tensor("blk.0.attn_q.weight.lora_a", (16, 2), 0, 0),
                tensor("blk.0.attn_q.weight.lora_b", (2, 16), 0, 128),
            ],
            bytes(256),
        ),
    )


if __name__ == "__main__":
    make_adapter()
    make_gguf()
    make_safetensors()
    make_json()
    make_quantize()
    make_tokenizers()
