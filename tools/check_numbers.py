"""Compare the numbers of README and docs with the results stored in docs/results.

``python tools/check_numbers.py`` prints each number that the stored results do not support. Tables,
and decimal numbers in sentences, are looked up in the columns that the mark of their section names:
``<!-- experiments: columns -->``, with one column for all cells or one for each, and "a,b" where a
cell has two numbers. Every other number must stand in CLAIMS, which computes it, or in FACTS, which
repeats it: settings, sizes of datasets, and what others measured.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from crg.results.papers import bundled_papers

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
DOCUMENTS = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("choosing", "mini")),
             RESULTS / "README.md")  # fmt: skip
MARK = re.compile(r"<!-- (?P<experiments>[\w ]+): (?P<columns>[\w, ]+) -->\n")
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+|^#+ [^\n]*|^\d\. ", re.S | re.M)
ABOUT = ("experiment", "dataset", "setting", "method")
OUR_FILES = {"oxfordpets": "pets_b16", "caltech101": "caltech_b16", "eurosat": "eurosat_b16"}
OUR_NAMES = {"zero_shot_one_prompt": "zero_shot", "freetta": "freetta, simple form"}
FIGURE = re.compile(r"-?[\d.]+(e-\d+)?")  # a number in a CSV file
VERDICTS = ("better", "worse")
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
         "eleven", "twelve")  # fmt: skip
WHOLE = rf"\d{{1,3}}(?:,\d{{3}})+|\d+|(?i:{'|'.join(WORDS[2:])})"
NUMBER = re.compile(rf"(?<![\w.,:/=-])[+-]?(?:\d+\.\d+|{WHOLE})(?![\w./]*\w|,\d)")
PLAIN = ("coverage", "set_size", "ms_per_step", "n_images", *VERDICTS)  # the others are in %
FACTS = """Five stream orders; Python 3.11
License 2.0; ICME 2025; five stream orders; (171 names); six of 171 names
The first four files; 64 views; 95% intervals; with 8 labels per class; the first 50)
three orders; three random orders; the ten files; 10% wrong labels; with 60%; at most 600 images
ViT-B/16 | 37 |; ViT-B/16 | 100 |; ViT-B/16 | 10 |; 171 names of COCO-stuff, six of them present
24 of the 37 breeds; 50 of the 100 classes; ViT-B/32 | 47 |; ViT-B/32 | 102 |; 16 views each
and makes ten; with 8 views; at severity 5; on 95% (pets), 98% (caltech) and 84% (eurosat)
eight labelled images; four labelled images; with 16, on; the 90% of
near 0 or 1; four ViT-B/32 files; all four ViT-B/16 files; (318, at most 1,000 images)
with 1,000 more; (300 images); with 318 names; with 222 names; the 222 names
the 74 names of the two; with 1,222 names in 300 images; all 1,440 names; at most 500 images
leads at 30%; zero-shot at 60%; first 50, 100, 200 and 500 images; above 0.9 where; the three `_b16`
paper's six rows; keep three images per class and CRG twelve; 5% quantile; at most 1,200
96 x 96 pixels; One in ten of the 1,440 combinations; 32 of these; in severity 1 to 5
64 x 64 pixels; seven convolutions; 24 words through two transformer layers; width 256
scale is 19; 60,000 images; 32 held-out classes; severity 3 on; at night, severity 5
two modules were joined; Of 5,161 runs repeated; streams) 4,129 were the same""".replace(
    "\n", "; "
).split("; ")

Row = dict[str, str]


def _rows() -> list[Row]:
    """Every line of the CSV files beside the archived runs, and the numbers of papers."""
    texts = [file.read_text("utf-8") for file in RESULTS.glob("*.csv")]
    rows = [row for text in texts for row in csv.DictReader(text.splitlines())]
    for table in bundled_papers().table:
        for method, values in table.rows.items():
            for dataset, value in zip(table.columns, values, strict=True):
                if table.backbone == "ViT-B-16" and dataset in OUR_FILES:
                    named = (OUR_FILES[dataset], table.source, OUR_NAMES.get(method, method))
                    about = zip(ABOUT, ("papers", *named), strict=True)
                    rows.append(dict(about, published=str(value / 100)))
    return rows + list(_means(rows))


def _means(rows: list[Row]) -> Iterator[Row]:
    """Lines about the ten feature files and about all streams: means and counts of verdicts."""
    groups = defaultdict(list)
    for row in rows:
        if not row["dataset"].startswith("shapes"):
            groups[row["experiment"], "mean of files", row["setting"], row["method"]].append(row)
        groups[row["experiment"], "all streams", "all", row["method"]].append(row)
    for about, group in groups.items():
        if len(group) == 10 or about[:2] == ("streams", "all streams"):
            texts = {name: [row[name] for row in group] for name in group[0] if name not in ABOUT}
            means = {name: str(statistics.fmean(map(float, some))) for name, some in texts.items()
                     if all(FIGURE.fullmatch(text or "") for text in some)}  # fmt: skip
            counts = {name.replace("verdict", each): str(some.count(each)) for name, some in
                      texts.items() if "verdict" in name for each in VERDICTS}  # fmt: skip
            yield dict(zip(ABOUT, about, strict=True), **means, **counts)


ROWS = _rows()
DATASETS, METHODS = (frozenset(row[name] for row in ROWS) for name in ABOUT[1::2])


def _of(
    experiment: str, method: str = "anchored", dataset: str = "", setting: str = ""
) -> list[Row]:
    """Stored lines about a dataset or, except for streams of shapes, about all feature files."""
    found = [row for row in ROWS if (row["experiment"], row["method"]) == (experiment, method)
             and setting in ("", row["setting"])]  # fmt: skip
    return [row for row in found if (row["dataset"] == dataset if dataset else
            row["setting"] not in ("all", "own names") and row["dataset"] != "mean of files"
            and (experiment == "streams" or not row["dataset"].startswith("shapes")))]  # fmt: skip


def _percent(column: str, *about: str) -> list[float]:
    return [100 * float(row[column]) for row in _of(*about)]


def _ends(values: Iterable[float]) -> list[float]:
    return [min(some := list(values)), max(some)]


def _verdicts(*about: str) -> list[float]:
    """In how many lines a method is significantly better and worse than zero-shot."""
    return [sum(row["verdict"] == verdict for row in _of(*about)) for verdict in VERDICTS]


def _accuracy(method: str, *datasets: str, experiment: str = "cross_datasets") -> list[float]:
    return [each for name in datasets for each in _percent("accuracy", experiment, method, name)]


# In each of these functions: sentences with # for a number, and what the stored lines say.
def _of_files() -> dict[str, list[float]]:
    files, second = "cross_datasets", "anchored, second pass"
    rows = [row for row in ROWS if row["experiment"] == files]
    datasets = [row["dataset"] for row in _of(files)]
    rivals = [row for row in rows if not re.search("gda|tip|pass|published", row["method"])]
    best = [max((float(row["accuracy"]), row["method"]) for row in rivals if row["dataset"] == name)
            for name in datasets]  # fmt: skip
    n_methods = len({row["method"].partition(",")[0] for row in rows})
    with_views = ("tda", "dpe", "dota", "freetta", "crg")
    costs = [one - all_ for method in with_views
             for one, all_ in [_accuracy(method, "pacs", "pacs_views")]]  # fmt: skip
    starts = [text for row in _of("cold_start") for name, text in row.items() if "verdict" in name]
    n_experiments = [1.0 * len([*(ROOT / "experiments").glob("*.toml")])]
    shown = ("pets_b16", "caltech_b16", "pacs")
    return {
        "zero-shot on all # feature files**, by # to # points; DPE is on #, CRG on #.":
            [_verdicts(files)[0], *_ends(_percent("gain", files)),
             _verdicts(files, "dpe")[0], _verdicts(files, "crg")[0]],
        "`anchored` | gains on all # feature files": [_verdicts(files)[0]],
        "It gains on all # feature files": [_verdicts(files, second)[0]],
        "is the best method on #;": [sum(method == "anchored" for _, method in best)],
        "costs them up to # points": [max(costs)],
        "zero-shot on # dataset.": [starts.count("worse")],
        "has # more methods": [n_methods - 6],  # those in its table
        "# experiments](docs": n_experiments,
        "# experiments ask": n_experiments,
        "rises from # to #% on Oxford Pets †, from # to #% on Caltech101 † and from # to #%":
            [each for name in shown for method in ("zero_shot", "anchored")
             for each in _accuracy(method, name)],
        "reading a folder twice raises it to #, # and #%": _accuracy(second, *shown),
    }  # fmt: skip


def _of_calibration() -> dict[str, list[float]]:
    datasets = [row["dataset"] for row in _of("cross_datasets")]
    methods = ("zero_shot", "dpe", "crg", "anchored", "anchored, second pass")
    errors = [dict(zip(datasets, _percent("ece", "cross_datasets", method), strict=True))
              for method in methods]  # fmt: skip
    apart = [errors[3].pop("flowers102"), errors[4].pop("dtd"), errors[4].pop("eurosat_b16")]
    zero_shot, dpe, crg, ours, second = (_ends(each.values()) for each in errors)
    ours.append(apart[0])
    return {
        "is # to #% (#% on flowers102 \\*), that of CRG # to #%": ours + crg,
        "(error # to #%, #% on flowers102": ours,
        "has # to #% (#% on flowers102 \\*), zero-shot # to #%, `dpe` # to #%, `crg` # to #%.":
            ours + zero_shot + dpe + crg,
        "#% on dtd \\* and #% on eurosat_b16 †, at most #% elsewhere": [*apart[1:], second[1]],
    }  # fmt: skip


def _of_streams() -> dict[str, list[float]]:
    streams, names, foreign = "streams", "many_names", "out-of-distribution images"
    n_streams = [1.0 * len(_of(streams))]
    plain = {row["dataset"] for row in _of(streams) if ", then" not in row["dataset"]}
    worse = [_verdicts(streams, "crg", name)[1] for name in ("caltech50", "pacs_views", "pacs")]
    outside = [_percent("outside_auroc", streams, "anchored", name, foreign)[0] for name in
               ("caltech50", "pets24", "caltech_b16", "pets_b16", "pacs", "flowers102", "dtd",
                "eurosat_b16")]  # fmt: skip
    return {
        "Across # streams, `anchored` is significantly better in # and worse in #**":
            n_streams + _verdicts(streams),
        "CRG is better in # and worse in #, DPE in # and #, TDA in # and #.":
            [n for method in ("crg", "dpe", "tda") for n in _verdicts(streams, method)],
        "In how many of # streams": n_streams,
        "feature files and # streams": n_streams,
        "(# datasets and their sequences, # kinds":
            [len(plain), len({row["setting"] for row in _of(streams)})],
        "CRG is worse on caltech50 in # streams": worse[:1],
        "where zero-shot is at #, on pacs_views in # and on PACS in #.":
            [statistics.fmean(_accuracy("zero_shot", "caltech50", experiment=streams)), *worse[1:]],
        "AUROC # on caltech50, # on pets24, # on caltech_b16 †, # on pets_b16 †, # on PACS, # on"
        " flowers102 \\*, # on dtd \\* and # on eurosat_b16 †": outside,
        "views, # streams, `anchored` is significantly better than zero-shot in # and worse in #:":
            [len(_of(names)), *_verdicts(names)],
        "CRG is better in # and worse in #.": _verdicts(names, "crg"),
    }  # fmt: skip


def _of_the_paper() -> dict[str, list[float]]:
    b16 = ("pets_b16", "caltech_b16", "eurosat_b16")
    printed = {method: [each for name in b16 for each in
                        _percent("published", "papers", method, name, "CRG paper")]
               for method in ("crg", "zero_shot")}  # fmt: skip
    first = ("no evolve", "lr=5e-5", "beta=8", "gamma=0.5", "reduction=mean")
    caltech, eurosat = ({row["setting"]: 100 * float(row["accuracy"]) for row in
                         _of("crg_variants", "crg", name)} for name in b16[1:])  # fmt: skip
    gaussian, similarity = ([_percent("accuracy", "noise", method, "mean of files", f"q = {q}")[0]
                             for q in (0, 0.1, 0.6)]
                            for method in ("Gaussian", "similarity matching"))  # fmt: skip
    return {
        "**: # on pets_b16 † (paper #, with 64 views), # on caltech_b16 † (#) and # on eurosat_b16"
        " † (#)": [each for pair in zip(_accuracy("crg", *b16), printed["crg"], strict=True)
                   for each in pair],
        "zero-shot starts # points above the paper's":
            [_accuracy("zero_shot", "eurosat_b16")[0] - printed["zero_shot"][2]],
        "CRG reaches # by default; without text evolution #, a step of a tenth of the size #,"
        " beta=8 #, gamma=0.5 #, a mean in place of a sum in the losses #, and # with similarity":
            [eurosat[name] for name in ("default", *first, "no gaussian")],
        "CRG reaches # by default, and # to # with the first five of these.":
            [caltech["default"], *_ends(caltech[name] for name in first)],
        "lambda1=0.1 #, lambda1=0.01 #, no Gaussian #.":
            [caltech[name] for name in ("lambda1=0.1", "lambda1=0.01", "no gaussian")],
        "files falls from # to # with 10% wrong labels and to # with 60%. Similarity matching stays"
        " at # and falls to #.": gaussian + similarity[1:],
    }  # fmt: skip


def _of_shapes() -> dict[str, list[float]]:
    by_severity = [statistics.fmean(100 * float(row["accuracy"]) for row in ROWS if
                   (row["experiment"], row["setting"]) == ("mini", str(severity)))
                   for severity in range(6)]  # fmt: skip
    night = [_accuracy(method, "shapes:night:5", experiment="robustness")[0]
             for method in ("zero_shot", "anchored")]  # fmt: skip
    return {
        "is #% without a shift; its mean over the shifts is #, #, #, # and #% by severity":
            by_severity,
        "zero-shot is right on a # of the images": [100 / night[0]],
        "shapes:night:5: zero-shot #, `anchored` #": night,
    }  # fmt: skip


CLAIMS = _of_files() | _of_calibration() | _of_streams() | _of_the_paper() | _of_shapes()


def value(text: str) -> float:
    """What a number in digits or letters says."""
    word = text.lower().replace("third", "three")
    return WORDS.index(word) if word in WORDS else float(text.replace(",", ""))


def _fits(number: str, values: Iterable[float]) -> bool:
    """Whether one of the values rounds to the number."""
    tolerance = 0.5001 * 10 ** -len(number.partition(".")[2])
    return any(abs(each - value(number)) <= tolerance for each in values)


def _stored(rows: list[Row], columns: Iterable[str]) -> list[float]:
    """All figures of these lines, as documents print them."""
    figures = [(name, row.get(name) or "") for row in rows for name in columns]
    return [float(text) * (1 if name.endswith(PLAIN) else 100)
            for name, text in figures if FIGURE.fullmatch(text)]  # fmt: skip


def _said(about: str, number: str, values: list[float]) -> list[str]:
    """Nothing if one of the values rounds to the number, else which one is nearest to it."""
    if _fits(number, values):
        return []
    nearest = min(values, key=lambda each: abs(each - value(number)), default=None)
    stored = "nothing is stored" if nearest is None else f"stored is {nearest:.4f}"
    return [f"{' '.join(about.split())!r}: {number}, but {stored}"]


@cache
def _named(text: str, names: frozenset[str]) -> set[str]:
    """The names that a text mentions, the longest first: "crg, second pass" is not "crg"."""
    plain = " ".join(text.replace("`", "").split())
    plain = re.sub(r"zero-shot(?! cache)", "zero_shot", plain)
    plain = re.sub(r"\b(CRG|DPE|TDA|DOTA|OnZeta|CoOp|PACS)\b", lambda name: name[0].lower(), plain)
    for alias, name in (("Oxford Pets", "pets_b16"), ("Caltech101", "caltech_b16")):
        plain = plain.replace(alias, name)
    found = set()
    for name in sorted(names, key=len, reverse=True):
        pattern = rf"(?<![\w:]){re.escape(name)}(?!\w|:\w)"
        if re.search(pattern, plain):
            found.add(name)
            plain = re.sub(pattern, " ", plain)
    return found


def _about(text: str, rows: list[Row], title: str = "") -> list[Row]:
    """The lines about the datasets and methods that a text names; about all if it names none."""
    datasets = _named(f"{text} | {title}", DATASETS) or DATASETS
    methods = _named(text, METHODS) or _named(title, METHODS) or METHODS
    return [row for row in rows if row["method"] in methods
            and row["dataset"].partition(", names of")[0] in datasets]  # fmt: skip


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.%=]+", text))


def _marks(section: str) -> list[tuple[list[Row], list[str], list[list[str]]]]:
    """For each mark of a section: lines of its experiments, columns, cells of the table below."""
    found = []
    for mark in MARK.finditer(section):
        rows = [row for row in ROWS if row["experiment"] in mark["experiments"].split()]
        below = section[mark.end() :].partition("\n\n")[0].splitlines()
        table = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in below if below[0]
        ]
        found.append((rows, mark["columns"].split(), table[:1] + table[2:]))
    return found


def _wrong_in_line(
    titles: list[str], line: list[str], rows: list[Row], columns: list[str]
) -> Iterator[str]:
    """The wrong numbers of a table's line, which has a column for all cells, or one for each."""
    if not _named(line[0], DATASETS | METHODS) and line[0] not in columns:
        yield f"{line[0]!r}, but nothing that is called so was measured"
    for place, (title, cell) in enumerate(zip(titles[1:], line[1:], strict=True)):
        about = _about(f"{titles[0]} | {line[0]}", rows, title)
        named = _words(" ".join([titles[0], *line[:2], title]))
        settings = list(dict.fromkeys(row["setting"] for row in about))
        settings = [each for each in settings if _words(each) <= named] or settings
        numbers = NUMBER.findall(cell)
        own = columns[place : place + 1] if len(columns) == len(titles) - 1 else columns
        for nth, number in enumerate(numbers):
            some = (
                settings[nth : nth + 1]
                if len(settings) == len(numbers) and "," not in "".join(own)
                else settings
            )
            names = [each.split(",")[nth if "," in each else 0] for each in own]
            names = [line[0]] if line[0] in names else names
            values = _stored([row for row in about if row["setting"] in some], names)
            yield from _said(f"{line[0]}, {title}", number, values)


def pattern(sentence: str) -> re.Pattern[str]:
    """A sentence however its lines are broken, with a group for each #."""
    words = r"\s+".join(map(re.escape, sentence.split()))
    return re.compile(words.replace(r"\#", rf"([+-]?\d+\.\d+|{WHOLE}|no|one|third)"))


def wrong_claims(text: str) -> list[str]:
    """The numbers in sentences of CLAIMS that are others than the computed ones."""
    return [each for sentence, computed in CLAIMS.items()
            for match in pattern(sentence).finditer(text)
            for number, figure in zip(match.groups(), computed, strict=True)
            for each in _said(match[0], number, [figure])]  # fmt: skip


def wrong_numbers(text: str) -> list[str]:
    """All numbers that neither stored figures nor CLAIMS nor FACTS support."""
    wrong, text = wrong_claims(text), re.sub("```.*?```", "", text, flags=re.DOTALL)
    for sentence in (*CLAIMS, *FACTS):
        text = pattern(sentence).sub(lambda match: NUMBER.sub("", match[0]), text)
    for section in re.split(r"\n(?=## )", text):
        marks = _marks(section)
        for rows, columns, table in marks:
            for line in table[1:]:
                wrong += _wrong_in_line(table[0], line, rows, columns)
        prose = re.sub(rf"{MARK.pattern}(\|.*?\n(?=\n|$))?", "", section, flags=re.DOTALL)
        for part in re.split(r"\n\n|\n(?=\d\. |- |\|)", prose):
            values = [each for rows, columns, _ in marks for each in
                      _stored(_about(part, rows), ",".join(columns).split(","))]  # fmt: skip
            for number in NUMBER.findall(CODE.sub(" ", part)):
                wrong += _said(part[:80], number, values if "." in number else [])
    return wrong


def main() -> int:
    """1 if a number is wrong."""
    found = [f"{path.relative_to(ROOT)}: {each}" for path in DOCUMENTS
             for each in wrong_numbers(path.read_text(encoding="utf-8"))]  # fmt: skip
    print("\n".join(found) or "All numbers are those of the stored results.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
