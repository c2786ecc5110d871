#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Introduces: Python, through ctypes alone. One file, no build step, no package.

    09_use_from_python.py LIBRARY MODEL TEXT      e.g. build/lib/libstill.so examples/models/needle "..."
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
                ("own", ctypes.c_uint), ("history", ctypes.c_int)]

    def __init__(self, **given):
        values = dict(adapter_kinds=1, chunk=64, budget=512, keep_ratio=0.125, window=512)
        super().__init__(size=ctypes.sizeof(type(self)), **{**values, **given})


FULL, SWA, STILL = 0, 1, 2
ADD_BOS = 1
TEXT_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class Session:
    """A model and one session of it, closed at the end of a with block."""

    def __init__(self, library, model, **options):
        self.c = ctypes.CDLL(library)
        self.c.still_last_error.restype = ctypes.c_char_p
        self.model, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.c.still_model_open(ctypes.byref(self.model), model.encode(), None))
        self.check(self.c.still_session_create(ctypes.byref(self.session), self.model,
                                               ctypes.byref(SessionOptions(**options))))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.c.still_session_destroy(self.session)
        self.c.still_model_destroy(self.model)

    def check(self, status):
        if status:
            raise RuntimeError(self.c.still_last_error().decode())

    def evaluate(self, text):
        data = text.encode()
        self.check(self.c.still_session_evaluate_text(self.session, data, ctypes.c_size_t(len(data)), ADD_BOS,
                                                      None, None))

    def generate(self, most, show):
        """Calls show(text) for each piece of the answer, in which the likeliest token comes each time."""
        def take(_, text, size):
            show(text[:size].decode())
            return 0
        self.check(self.c.still_session_generate(self.session, None, ctypes.c_int64(most), TEXT_CALLBACK(take),
                                                 None, None))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with Session(sys.argv[1], sys.argv[2], attention=STILL, budget=256) as session:
        session.evaluate(sys.argv[3])
        session.generate(8, lambda text: print(text, end="", flush=True))
        print()


if __name__ == "__main__":
    main()
