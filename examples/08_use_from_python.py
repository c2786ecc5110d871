#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Introduces: Python, through ctypes alone. One file, no build step, no package.

    08_use_from_python.py LIBRARY MODEL TEXT      e.g. build/lib/libstill.so examples/models/needle "..."
"""
import ctypes
import sys


class SessionOptions(ctypes.Structure):
    """still_session_options of still/model.h, member by member, with its defaults."""
    _fields_ = [("size", ctypes.c_size_t), ("attention", ctypes.c_int), ("adapter_kinds", ctypes.c_int),
                ("chunk", ctypes.c_int), ("budget", ctypes.c_int), ("schedule", ctypes.c_int),
                ("keep", ctypes.c_int), ("keep_ratio", ctypes.c_float), ("metric", ctypes.c_int),
                ("routing", ctypes.c_int), ("routing_seed", ctypes.c_uint64), ("window", ctypes.c_int),
                ("sinks", ctypes.c_int), ("layer_kinds", ctypes.c_char_p), ("context", ctypes.c_int),
                ("cache_type", ctypes.c_int), ("block", ctypes.c_int), ("threads", ctypes.c_int),
                ("own", ctypes.c_uint)]

    def __init__(self, **given):
        values = dict(adapter_kinds=1, chunk=64, budget=512, keep_ratio=0.125, window=512, block=512)
        super().__init__(size=ctypes.sizeof(type(self)), **{**values, **given})


FULL, SWA, STILL = 0, 1, 2
ADD_BOS = 1


class Still:
    def __init__(self, library):
        self.c = ctypes.CDLL(library)
        self.c.still_last_error.restype = ctypes.c_char_p
        self.c.still_model_tokenizer.restype = ctypes.c_void_p
        self.c.still_session_logits.restype = ctypes.POINTER(ctypes.c_float)
        self.c.still_token_text.restype = ctypes.c_size_t

    def check(self, status):
        if status:
            raise RuntimeError(self.c.still_last_error().decode())

    def open(self, path):
        model = ctypes.c_void_p()
        self.check(self.c.still_model_open(ctypes.byref(model), path.encode(), None))
        return model, ctypes.c_void_p(self.c.still_model_tokenizer(model))

    def encode(self, tokenizer, text):
        data = text.encode()
        ids, count = (ctypes.c_int32 * (len(data) + 64))(), ctypes.c_size_t()
        self.check(self.c.still_tokenize(tokenizer, data, ctypes.c_size_t(len(data)), ADD_BOS, ids,
                                         ctypes.c_size_t(len(ids)), ctypes.byref(count)))
        return ids[:count.value]

    def evaluate(self, session, ids):
        array = (ctypes.c_int32 * len(ids))(*ids)
        self.check(self.c.still_session_evaluate(session, array, ctypes.c_size_t(len(ids)), None, None))

    def text(self, tokenizer, token):
        piece = ctypes.create_string_buffer(256)
        return piece.raw[:self.c.still_token_text(tokenizer, token, 0, piece, ctypes.c_size_t(256))]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    still = Still(sys.argv[1])
    model, tokenizer = still.open(sys.argv[2])
    session = ctypes.c_void_p()
    options = SessionOptions(attention=STILL, budget=256)
    still.check(still.c.still_session_create(ctypes.byref(session), model, ctypes.byref(options)))
    still.evaluate(session, still.encode(tokenizer, sys.argv[3]))
    answer, size = b"", still.c.still_tokenizer_size(tokenizer)
    for _ in range(8):
        logits = still.c.still_session_logits(session)[:size]
        token = max(range(size), key=logits.__getitem__)
        if still.c.still_tokenizer_is_end(tokenizer, token):
            break
        answer += still.text(tokenizer, token)
        still.evaluate(session, [token])
    print(answer.decode(errors="replace"))
    still.c.still_session_destroy(session)
    still.c.still_model_destroy(model)


if __name__ == "__main__":
    main()
