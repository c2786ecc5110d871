#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rows to linearize needle with: retrieval texts in the wording of templates.json, and prose.

Writes JSONL for still-linearize: one row a line, {"segments": [{"text", "weight"}, ...]}. The weight says how much a
token counts in the loss. Keys are the training words of keys.json, values are random, prose comes from a folder of
.txt files (paragraphs parted by blank lines): nothing of it is used in evaluation if you leave out (--leave-out)
the books that evaluation reads. Needs only Python's own library.

    make_training_rows.py --prose DIR --tokens 4000000 --shortest 256 --longest 4096 --seed 1 > rows.jsonl
"""
import argparse
import json
import math
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Loss weights by kind of text: answers matter, random values cannot be guessed where they first stand, haystacks
# are only there to be long.
ANSWER, WORDING, PROSE, HAYSTACK, NOISE, RANDOM = 5.0, 0.5, 1.0, 0.05, 0.0625, 0.0

PIECES = re.compile(r"'(?:[sdmtSDMT]|ll|ve|re)|[^\r\n\w]?[^\W\d_]+|\d| ?[^\s\w]+[\r\n]*|_+|\s*[\r\n]|\s+(?!\S)|\s+")
TASKS = ("prose", "single", "several", "dense", "values", "queries", "tracking", "stories")


class Tokens:
    """Counts the tokens of a text, near enough to size rows: BPE by tokenizer.json's merges, word by word."""

    def __init__(self, path):
        merges = json.loads(path.read_text(encoding="utf-8"))["model"]["merges"]
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges]
        self.rank = {pair: i for i, pair in enumerate(pairs)}
        self.known = {}

    def word(self, text):
        parts = ["\u0120" if b == 32 else "\u010a" if b == 10 else chr(b) for b in text.encode()]
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: self.rank.get((parts[i], parts[i + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in self.rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return len(parts)

    def count(self, text):
        total = 0
        for piece in PIECES.findall(text):
            if piece not in self.known:
                self.known[piece] = self.word(piece)
            total += self.known[piece]
        return total


class Row:
    """Segments of text with a weight, and how many tokens they are."""

    def __init__(self, tokens):
        self.tokens, self.segments, self.length = tokens, [], 0

    def add(self, text, weight):
        if not text:
            return self
        self.length += self.tokens.count(text)
        if self.segments and self.segments[-1][1] == weight:
            self.segments[-1][0] += text
        else:
            self.segments.append([text, weight])
        return self

    def join(self, other):
        for text, weight in other.segments:
            self.add(text, weight)
        return self

    def begin(self, words=3):
        """No loss on the first words: that something of this kind begins here cannot be known."""
        for i, (text, weight) in enumerate(self.segments):
            head = re.match(r"(?:\s*\S+){1,%d}" % words, text)
            if head and weight:
                rest = text[head.end():]
                self.segments[i:i + 1] = [[head.group(), 0.0]] + ([[rest, weight]] if rest else [])
                break
        return self

    def line(self):
        return json.dumps({"segments": [{"text": t, "weight": w} for t, w in self.segments]})


class Prose:
    """Paragraphs of sentences from a folder."""

    def __init__(self, folder, leave_out, tokens):
        self.sentences, self.starts = [], []
        for path in sorted(pathlib.Path(folder).glob("**/*.txt")):
            if path.name.startswith("NOTICE") or any(word in path.name for word in leave_out):
                continue
            for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
                parts = re.findall(r"\S.*?(?:[.!?][\"')]*(?=\s|$)|$)", " ".join(paragraph.split()))
                if not parts:
                    continue
                self.starts.append(len(self.sentences))
                for i, part in enumerate(parts):
                    text = ("\n\n" if i == 0 else " ") + part
                    self.sentences.append((text, tokens.count(text)))
        if not self.starts:
            sys.exit(f"{folder}: no prose (.txt files) to use")

    def take(self, rng, budget):
        """Sentences from the beginning of a paragraph on, at most `budget` tokens."""
        at, out = rng.choice(self.starts), []
        while at < len(self.sentences) and self.sentences[at][1] <= budget:
            budget -= self.sentences[at][1]
            out.append(self.sentences[at][0])
            at += 1
        if out:
            out[0] = out[0].lstrip()
        return out


class Maker:
    def __init__(self, rng, templates, keys, prose, tokens):
        self.rng, self.t, self.keys, self.prose, self.tokens = rng, templates, keys, prose, tokens

    def row(self):
        return Row(self.tokens)

    # -- pieces
    def key(self):
        words = self.rng.sample(self.keys, 2 if self.rng.random() < 0.4 else 1)
        return "-".join(words)

    def value(self, kind):
        rng = self.rng
        if kind == "number":
            return str(rng.randrange(10 ** 6, 10 ** 7))
        if kind == "uuid":
            digits = "%032x" % rng.getrandbits(128)
            return "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        if kind == "word":
            return rng.choice(self.keys)
        return str(rng.randrange(10, 10 ** rng.randint(2, 10)))

    def fill(self, template, weight, lead="", **fields):
        """A template; the space before a field goes with the field, which has the weight RANDOM unless it says."""
        row, pending = self.row(), lead
        for i, part in enumerate(re.split(r"\{(\w+)\}", template)):
            if i % 2 == 0:
                pending += part
                space = pending.endswith(" ")
                row.add(pending[:-1] if space else pending, weight)
                pending = " " if space else ""
            else:
                field = fields[part]
                text, own = field if isinstance(field, tuple) else (field, RANDOM)
                row.add(pending + text, own)
                pending = ""
        return row

    def haystack(self, kind, budget):
        if kind == "prose":
            for _ in range(20):
                sentences = self.prose.take(self.rng, budget)
                if sum(self.tokens.count(s) for s in sentences) > 0.6 * budget or budget < 40:
                    return sentences, HAYSTACK
            return sentences, HAYSTACK
        if kind == "none":
            return [], NOISE
        units = [self.t["noise"]] * 4 + self.t["training_noise"]
        unit, out, i = self.rng.choice(units), [], 0
        while True:
            text = (" " if out else "") + unit[i % len(unit)]
            cost = self.tokens.count(text)
            if cost > budget:
                return out, NOISE
            budget, i = budget - cost, i + 1
            out.append(text)

    def hide(self, row, kind, budget, facts):
        """The haystack with facts (functions of their lead) at random places, in order."""
        budget -= sum(f(" ").length for f in facts)
        sentences, weight = self.haystack(kind, max(budget, 0))
        places = sorted(self.rng.randrange(len(sentences) + 1) for _ in facts)
        done = 0
        for place, fact in zip(places, facts):
            for text in sentences[done:place]:
                row.add(text, weight)
            done = max(done, place)
            row.join(fact(" " if row.segments and not row.segments[-1][0].endswith("\n") else "").begin())
        for text in sentences[done:]:
            row.add(text, weight)

    @staticmethod
    def room(size, kind):
        """How many needles a row of this size has room for, at most 8."""
        return max(1, min(8, (size - 120) // (170 if kind == "uuid" else 75)))

    # -- tasks: each about `size` tokens
    def needles(self, size, kind, hay, count, asked, many=None):
        """many: None, "values" (several values of one key) or "queries" (several keys in one question)."""
        rng = self.rng
        noun = {"number": "number", "digits": "number", "uuid": "uuid", "word": "word"}[kind]
        nouns = dict(noun=(noun, WORDING), nouns=(noun + "s", WORDING))
        style = self.t["needle"] if rng.random() < 0.7 else rng.choice(self.t["training_needles"])
        keys = [self.key()] * count if many == "values" else []
        while len(keys) < count:
            new = self.key()
            keys += [new] if new not in keys else []
        pairs = [(k, self.value(kind)) for k in keys]
        row, tail = self.row(), self.row()
        intro = self.t["intro_one" if count == 1 else "intro_many"]
        if rng.random() < 0.2:
            intro = rng.choice(self.t["training_intros"])
        if intro:
            row.join(self.fill(intro + "\n", WORDING, **nouns).begin())
        if many == "values":
            self.ask(tail, style["questions_values"], keys[0], [v for _, v in pairs], nouns)
        elif many == "queries":
            chosen = rng.sample(pairs, asked)
            names = [k for k, _ in chosen]
            joined = ", ".join(names[:-1]) + " and " + names[-1] if asked > 1 else names[0]
            self.ask(tail, style["questions_queries"], joined, [f"{k}: {v}" for k, v in chosen], nouns)
        else:
            for k, v in rng.sample(pairs, asked):
                self.ask(tail, style["question"], k, [v], nouns)
        facts = [lambda lead, k=k, v=v: self.fill(style["needle"], WORDING, lead, key=k, value=v, **nouns)
                 for k, v in pairs]
        self.hide(row, hay, size - row.length - tail.length, facts)
        return row.join(tail)

    def ask(self, tail, template, key, answers, nouns):
        tail.join(self.fill("\n" + template, WORDING, key=key, **nouns).begin())
        for i, answer in enumerate(answers):
            tail.add(("," if i else ""), ANSWER)
            tail.add(" " + answer, ANSWER)
        tail.add(".", WORDING)

    def tracking(self, size, hay, hops):
        t, rng = self.t["tracking"], self.rng
        names = []
        while len(names) <= hops:
            name = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(3, 5)))
            names += [name] if name not in names else []
        value = str(rng.randrange(10 ** 4, 10 ** 5))
        facts = [lambda lead, n=names[0]: self.fill(t["first"], WORDING, lead, name=n, source=value)]
        for before, name in zip(names, names[1:]):
            facts.append(lambda lead, n=name, b=before: self.fill(t["next"], WORDING, lead, name=n,
                                                                  source=(b, WORDING)))
        tail = self.fill("\n" + t["question"], WORDING, value=value).begin()
        for i, name in enumerate(names):
            tail.add("," if i else "", ANSWER)
            tail.add(" " + name, ANSWER)
        tail.add(".", WORDING)
        row = self.fill(t["intro"] + "\n", WORDING).begin()
        self.hide(row, hay, size - row.length - tail.length, facts)
        return row.join(tail)

    def story(self, size, hay):
        """People who move about and carry things; questions where a person or a thing is."""
        t, rng = self.t["world"], self.rng
        people = rng.sample(t["people"], rng.randint(2, 4))
        things = rng.sample(t["things"], rng.randint(1, 2))
        place, holder, lies, facts = {}, {}, {}, []
        for _ in range(rng.randint(4, 14)):
            who = rng.choice(people)
            free = [x for x in things if x not in holder and lies.get(x, place.get(who)) == place.get(who)]
            held = [x for x in things if holder.get(x) == who]
            draw = rng.random()
            if draw < 0.25 and free and who in place:
                thing = rng.choice(free)
                holder[thing] = who
                facts.append(rng.choice(t["take"]).format(who=who, thing=thing))
            elif draw < 0.35 and held:
                thing = rng.choice(held)
                del holder[thing]
                lies[thing] = place[who]
                facts.append(rng.choice(t["drop"]).format(who=who, thing=thing))
            else:
                place[who] = rng.choice([p for p in t["places"] if p != place.get(who)])
                facts.append(rng.choice(t["move"]).format(who=who, place=place[who]))
        answers = [(t["where"].format(what=w), p) for w, p in place.items()]
        for thing in things:
            where = place[holder[thing]] if thing in holder else lies.get(thing)
            if where:
                answers.append((t["where"].format(what="the " + thing), where))
        return self.told(size, hay, facts, answers)

    def told(self, size, hay, facts, answers):
        """These facts in a haystack, and one to four of the questions."""
        t, rng = self.t["world"], self.rng
        tail = self.row()
        for question, answer in rng.sample(answers, min(len(answers), rng.randint(1, 4))):
            tail.join(self.fill("\n" + t["question"], WORDING, question=(question, 0.25)).begin())
            tail.add(" " + answer, ANSWER).add(".", WORDING)
        row = self.fill(t["intro"] + "\n", WORDING).begin()
        made = [lambda lead, f=f: self.row().add(lead + f, 0.25) for f in facts]
        self.hide(row, hay, size - row.length - tail.length, made)
        return row.join(tail)

    def tale(self, size, hay):
        """A story of one of five kinds: where people and things are, where things were before, directions, gifts."""
        draw, facts, answers = self.rng.random(), [], []
        if draw < 0.4:
            return self.story(size, hay)
        tell = self.carrying if draw < 0.6 else self.directions if draw < 0.75 else self.gifts
        while not answers:
            facts.clear()
            tell(facts, answers)
        return self.told(size, hay, facts, answers)

    def carrying(self, facts, answers):
        """Where were things before?"""
        t, rng = self.t["world"], self.rng
        people, things = rng.sample(t["people"], rng.randint(2, 4)), rng.sample(t["things"], rng.randint(1, 3))
        place, holder, lies, visits = {}, {}, {}, {x: [] for x in things}

        def arrive(thing, at):
            if visits[thing][-1:] != [at]:
                visits[thing].append(at)

        for _ in range(rng.randint(6, 20)):
            who, draw = rng.choice(people), rng.random()
            free = [x for x in things if x not in holder and lies.get(x, place.get(who)) == place.get(who)]
            held = [x for x in things if holder.get(x) == who]
            if draw < 0.22 and free and who in place:
                thing = rng.choice(free)
                holder[thing] = who
                arrive(thing, place[who])
                facts.append(rng.choice(t["take"]).format(who=who, thing=thing))
            elif 0.22 <= draw < 0.34 and held:
                thing = rng.choice(held)
                del holder[thing]
                lies[thing] = place[who]
                facts.append(rng.choice(t["drop"]).format(who=who, thing=thing))
            else:
                place[who] = rng.choice([p for p in t["places"] if p != place.get(who)])
                for thing in held:
                    arrive(thing, place[who])
                facts.append(rng.choice(t["move"]).format(who=who, place=place[who]))
        for thing, been in visits.items():
            for k in range(1, len(been)):
                if been[k] not in been[k + 1:]:
                    answers.append((t["before"].format(thing=thing, place=been[k]), been[k - 1]))

    def directions(self, facts, answers):
        """Two places beside a third."""
        t, rng = self.t["world"], self.rng
        first, middle, second = rng.sample(t["places"], 3)
        ways = rng.sample(t["directions"], 2)
        pairs = [(first, ways[0]), (second, ways[1])]
        rng.shuffle(pairs)
        for place, way in pairs:
            facts.append(rng.choice(t["lies"]).format(a=place, d=way, b=middle))
            answers.append((t["what_is"].format(d=way, b=middle), place))
            answers.append((t["what_of"].format(d=way, a=place), middle))

    def gifts(self, facts, answers):
        """Who gave what to whom?"""
        t, rng = self.t["world"], self.rng
        people, things = rng.sample(t["people"], rng.randint(3, 5)), rng.sample(t["things"], rng.randint(1, 3))
        given = []
        for _ in range(rng.randint(2, 8)):
            a, b = rng.sample(people, 2)
            if rng.random() < 0.45:
                given.append((a, rng.choice(things), b))
                facts.append(rng.choice(t["give"]).format(a=a, thing=given[-1][1], b=b))
            else:
                facts.append(rng.choice(t["move"]).format(who=a, place=rng.choice(t["places"])))
        for i, (a, thing, b) in enumerate(given):
            later = given[i + 1:]
            if not any(g[1] == thing for g in later):
                answers += [(t["who_gave"].format(thing=thing), a), (t["who_got"].format(thing=thing), b)]
            if not any((g[0], g[2]) == (a, b) for g in later):
                answers.append((t["what_given"].format(a=a, b=b), thing))
            if not any(g[:2] == (a, thing) for g in later):
                answers.append((t["to_whom"].format(a=a, thing=thing), b))

    def text(self, size):
        row = self.row()
        for part in self.prose.take(self.rng, size):
            row.add(part, PROSE)
        return row

    def any(self, size, prose_share, single_share):
        rng = self.rng
        hay = rng.choice(("prose", "noise"))
        kind = rng.choices(("number", "uuid", "digits", "word"), (10, 4, 2, 1))[0]
        room = self.room(size, kind)
        draw = rng.random()
        if draw < prose_share:
            return self.text(size)
        if rng.random() < single_share:
            return self.needles(size, kind, hay, 1, 1)
        draw = rng.random()
        if draw < 0.6:
            count = rng.randint(1, room)
            return self.needles(size, kind, hay, count, rng.randint((count + 1) // 2, count))
        if draw < 0.68 and room > 1:
            return self.needles(size, kind, hay, rng.randint(2, min(4, room)), 1, "values")
        if draw < 0.76 and room > 1:
            count = rng.randint(2, room)
            return self.needles(size, kind, hay, count, rng.randint(1, min(4, count)), "queries")
        if draw < 0.88:
            return self.tracking(size, hay, rng.randint(1, 4))
        return self.story(size, "prose")

    def by_shares(self, size, shares):
        """A row of one of the tasks named in `shares`."""
        rng = self.rng
        task = rng.choices(list(shares), list(shares.values()))[0]
        hay = rng.choice(("prose", "noise"))
        kind = rng.choices(("number", "uuid", "digits", "word"), (12, 4, 1, 1))[0]
        room = self.room(size, kind)
        if task == "prose":
            return self.text(size)
        if task == "tracking":
            return self.tracking(size, hay, rng.choice((1, 2, 3, 4, 4)))
        if task == "stories":
            return self.tale(size, "prose")
        if task == "dense":
            many = max(2, (size - 160) // (110 if kind == "uuid" else 50))
            return self.needles(size, kind, "none", many, min(many, rng.randint(4, 8)))
        if task == "single" or room == 1:
            return self.needles(size, kind, hay, 1, 1)
        if task == "values":
            return self.needles(size, kind, hay, rng.randint(2, min(4, room)), 1, "values")
        if task == "queries":
            count = rng.randint(2, room)
            return self.needles(size, kind, hay, count, rng.randint(1, min(4, count)), "queries")
        count = rng.randint(2, room)
        return self.needles(size, kind, hay, count, rng.randint((count + 1) // 2, count))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=HERE, help="folder of needle (default: this one)")
    parser.add_argument("--prose", required=True, help="folder of .txt files")
    parser.add_argument("--leave-out", action="append", default=[], help="part of a file name; may be repeated")
    parser.add_argument("--tokens", type=float, default=2e6, help="about how many in all (default 2e6)")
    parser.add_argument("--shortest", type=int, default=256)
    parser.add_argument("--longest", type=int, default=4096, help="no row is longer (default 4096)")
    parser.add_argument("--prose-share", type=float, default=0.2, help="of the rows (default 0.2)")
    parser.add_argument("--single-share", type=float, default=0.35,
                        help="of the other rows: one needle, one question (default 0.35)")
    parser.add_argument("--task-shares", metavar="TASK=SHARE,...",
                        help="instead of these two: " + ", ".join(TASKS) + "; dense: nothing but needles")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    rng = random.Random(o.seed)
    tokens = Tokens(o.model / "tokenizer.json")
    templates = json.loads((o.model / "templates.json").read_text(encoding="utf-8"))
    keys = json.loads((o.model / "keys.json").read_text(encoding="utf-8"))["training"]
    maker = Maker(rng, templates, keys, Prose(o.prose, o.leave_out, tokens), tokens)
    shares = {}
    for part in o.task_shares.split(",") if o.task_shares else []:
        task, _, share = part.partition("=")
        if task not in TASKS:
            sys.exit(f"--task-shares: {task} is none of {', '.join(TASKS)}")
        try:
            shares[task] = float(share)
        except ValueError:
            shares[task] = -1.0
        if not 0 <= shares[task] < math.inf:
            sys.exit(f"--task-shares: the share of {task} is '{share}', not a number from 0 up")
    if shares and not sum(shares.values()):
        sys.exit("--task-shares: all shares are 0")
    done = 0
    while done < o.tokens:
        size = int(math.exp(rng.uniform(math.log(o.shortest), math.log(o.longest))))
        row = maker.by_shares(size - 2, shares) if shares else maker.any(size - 2, o.prose_share, o.single_share)
        if not 64 <= row.length < o.longest:
            continue
        print(row.line())
        done += row.length + 1


if __name__ == "__main__":
    main()
