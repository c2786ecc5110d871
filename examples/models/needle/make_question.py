#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a needle-in-a-haystack question in the wording that the needle model was trained on.

    make_question.py                      writes the prompt of question.txt (seed 1) to stdout
    make_question.py --seed 7 --out q7    writes q7.txt (prompt) and q7.answer

A prompt is intro, newline, haystack with one needle sentence in it, newline, question; the answer
follows after one space. Key, value and depth come from the seed, unless given; keys are the
evaluation words of keys.json, which the model never saw as keys.
"""
import argparse
import json
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent


def haystack(name, noise, characters):
    """The text and the places in it where a sentence may be put in (before a space)."""
    if name == "noise":
        unit = " ".join(noise)
        text = " ".join([unit] * (characters // len(unit) + 1)) if characters else " ".join([unit] * 120)
    else:
        text = pathlib.Path(name).read_text(encoding="utf-8").strip()
    places = [match.end() for match in re.finditer(r'(?<!Mr)(?<!Mrs)[.!?]"?(?= )', text)]
    if characters:
        places = [place for place in places if place <= characters]
        text = text[:places[-1]]
    return text, places


def question(seed, key=None, value=None, depth=None, source=HERE / "haystack.txt", characters=0):
    templates = json.loads((HERE / "templates.json").read_text(encoding="utf-8"))
    keys = json.loads((HERE / "keys.json").read_text(encoding="utf-8"))["evaluation"]
    chance = random.Random(seed)
    drawn = chance.choice(keys), str(chance.randrange(1_000_000, 10_000_000)), chance.random()
    key, value = key or drawn[0], value or drawn[1]
    depth = drawn[2] if depth is None else depth
    text, places = haystack(str(source), templates["noise"], characters)
    at = min(places, key=lambda place: abs(place - depth * len(text)))
    fields = {"noun": "number", "nouns": "numbers", "key": key, "value": value}
    needle = templates["needle"]["needle"].format(**fields)
    lines = [templates["intro_one"].format(**fields), text[:at] + " " + needle + text[at:],
             templates["needle"]["question"].format(**fields)]
    return "\n".join(lines), value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key")
    parser.add_argument("--value")
    parser.add_argument("--depth", type=float, help="0 = beginning of the haystack, 1 = its end")
    parser.add_argument("--haystack", default=HERE / "haystack.txt", help="a text file, or 'noise'")
    parser.add_argument("--characters", type=int, default=0, help="cut the haystack there (0 = all of it)")
    parser.add_argument("--out", help="write OUT.txt and OUT.answer instead of stdout")
    given = parser.parse_args()
    prompt, answer = question(given.seed, given.key, given.value, given.depth, given.haystack, given.characters)
    if given.out:
        pathlib.Path(given.out + ".txt").write_text(prompt + "\n", encoding="utf-8")
        pathlib.Path(given.out + ".answer").write_text(answer + "\n", encoding="utf-8")
    else:
        sys.stdout.write(prompt + "\n")


if __name__ == "__main__":
    main()
