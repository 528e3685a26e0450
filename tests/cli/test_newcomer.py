"""The first ten minutes of a newcomer: two CSV files with every common mistake become a live service.

Import, check, split by time, train, evaluate, report, serve, add, click, search: each step is a command that the
documentation names, and each is checked.
"""

import json
import random
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import run

from metaxc import NewItem, read_folder
from metaxc.serve.client import Client

KINDS = {
    "kettle": "boil water", "whetstone": "sharpen knives", "duvet": "sleep warm", "trowel": "plant bulbs",
    "umbrella": "stay dry", "easel": "paint at home", "sieve": "sift flour", "ladder": "reach the ceiling",
    "compass": "find north", "hammock": "rest outside", "thermos": "tea on a hike", "stapler": "bind papers",
    "racket": "hit a ball", "snorkel": "breathe below", "metronome": "keep the beat", "abacus": "learn to count",
    "lantern": "light a camp", "mortar": "grind spices", "sextant": "measure stars", "loom": "weave cloth",
}  # fmt: skip
"""What is sold, and what people type who want it: only the clicks tell that the two belong together."""

LOOKS = ("café brown", "red", "blue", "large", "small", "steel", "cheap", "antique", "wide", "light")
ASKED = (
    "",
    "quickly",
    "at home",
    "for kids",
    "as a gift",
    "every day",
    "in winter",
    "alone",
    "safely",
    "again",
)
START, DAY = 1_700_000_000, 86_400


def write_files(folder: Path) -> tuple[Path, Path]:
    """products.csv in Latin-1 with semicolons, and events.csv with two units of time."""
    chosen = random.Random(0)
    products = ["sku;title;brand;first_seen"]
    for kind in KINDS:
        for number, look in enumerate(LOOKS):
            # The last looks are the newest products; a tenth of the lines has no first_seen.
            seen = "" if chosen.random() < 0.1 else START + number * 10 * DAY
            products.append(f"{kind}-{number};{look} {kind};{kind.title()} & Söhne;{seen}")
    products[5:5] = [
        "",
        "sku;title;brand;first_seen",
        "no-title;;Nobody;1700000000",
        "kettle-0;again;Nobody;1700000000",
    ]
    events = ["search term,sku,ts"]
    for kind, want in KINDS.items():
        for how in ASKED:
            for _ in range(12):
                item, day = chosen.randrange(len(LOOKS)), chosen.randrange(100)
                if day < item * 10:  # it was not sold yet
                    item, day = day // 10, day
                time = START + day * DAY + chosen.randrange(DAY)
                stamp = time * 1000 if chosen.random() < 0.5 else time
                events.append(f"{want} {how}".strip() + f",{kind}-{item},{stamp}")
    events += ["boil water,gone-1,1700000000", ",kettle-1,1700000000", "boil water,no-title,1700000000"]
    events += ["search term,sku,ts", "boil water,kettle-1,last week", "boil water,kettle-1"]
    paths = folder / "products.csv", folder / "events.csv"
    for path, lines in zip(paths, (products, events), strict=True):
        path.write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
    return paths


@contextmanager
def serving(model: Path, data: Path):
    command = [sys.executable, "-m", "metaxc", "serve", str(model), "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready: http://127.0.0.1:"), process.stderr.read()
        with Client(line.split()[1]) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def import_files(tmp_path: Path) -> Path:
    products, events = write_files(tmp_path)
    data = tmp_path / "data"
    command = ("data", "import", "--items", products, "--clicks", events, "--out", data)
    refused = run(*command)
    assert refused.exit_code == 1
    assert refused.stdout.startswith("The import was not written: ")
    assert "products.csv: text = title (guessed)" in refused.stderr
    assert not data.exists()
    wrong = run(*command, "--item", "sko")
    assert "did you mean sku?" in str(wrong.exception)
    done = run(*command, "--skip-bad", "--json")
    assert done.exit_code == 0
    changes = json.loads(done.stdout)["changes"]
    for expected in (
        "products.csv: empty text: 1 line left out",
        "products.csv: duplicate id: 1 line left out",
        "events.csv: unknown item id: 1 line left out",
        "events.csv: empty query: 1 line left out",
        "events.csv: invalid time: 1 line left out",
        "events.csv: wrong number of columns: 1 line left out",
        "events.csv: item left out: 1 line left out",
        "products.csv: header row: 1 line skipped",
        "events.csv: header row: 1 line skipped",
    ):
        assert expected in changes
    repaired = [
        line
        for line in changes
        if "read as Windows-1252" in line or "milliseconds" in line or "set to" in line
    ]
    assert len(repaired) == 3
    dataset = read_folder(data)
    assert len(dataset.items) == 200
    assert dataset.items.texts[0] == "café brown kettle"
    assert dataset.items.tags[0] == ("Kettle & Söhne",)
    assert (dataset.train.times.min(), dataset.train.times.max()) == pytest.approx(
        (START, START + 100 * DAY), abs=3 * DAY
    )
    assert dataset.train.event_count == 2_400
    listed = (data / "left_out.tsv").read_text(encoding="utf-8").splitlines()
    assert len(listed) == 1 + 7 + len([line for line in changes if "left out" not in line.split(": ")[-1]])
    return data


def check_files(data: Path, clean: Path) -> None:
    assert run("data", "check", data).stdout.startswith(f"{data} can be used: 0 errors, 0 warnings")
    # Somebody adds lines by hand.
    with (data / "clicks.tsv").open("a") as clicks:
        clicks.write("q1\tnothing\t1700000000\n")
    (data / "clicks.tsv").write_text("query\titem\ttime\n" + (data / "clicks.tsv").read_text())
    refused = run("data", "check", data)
    assert refused.exit_code == 1
    assert refused.stdout.startswith(f"{data} cannot be used: 2 errors, 0 warnings")
    assert "error: clicks.tsv, line 1: The line is a header row" in refused.stdout
    assert run("data", "check", data, "--fix", clean).exit_code == 0
    assert run("data", "check", clean).exit_code == 0
    assert read_folder(clean).train.event_count == 2_400


@pytest.mark.slow
def test_from_two_csv_files_to_a_live_service(tmp_path):
    data, clean, parts = import_files(tmp_path), tmp_path / "clean", tmp_path / "split"
    check_files(data, clean)
    printed = json.loads(run("data", "split", clean, parts, "--by", "time", "--json").stdout)
    assert printed["items_novel"] == 19  # a tenth of the clicked ones
    assert printed["query_leaks"] == 0
    assert printed["queries_test_novel"] > 30
    dataset = read_folder(parts)
    assert dataset.train.times.max() < dataset.test.times.min()

    model, cache = tmp_path / "model", ("--cache", tmp_path / "cache")
    trained = run("train", parts, "--out", model, "--size", "fast", *cache, "--threads", 1)
    assert trained.exit_code == 0, trained.output
    result = json.loads(run("evaluate", model, parts, "--json", *cache, "--threads", 1).stdout)
    assert result["generalized"]["R@10"] > 60  # ten items of one kind answer a query
    page = tmp_path / "report.html"
    assert run("report", model, parts, "--out", page, *cache, "--threads", 1).exit_code == 0
    assert "R@10" in page.read_text(encoding="utf-8")

    observed = set(dataset.train.clicks.indices.tolist()) - set(dataset.novel_rows.tolist())
    with serving(model, parts) as client:
        assert client.about().items == {"novel": 200 - len(observed), "clicked": 0, "observed": len(observed)}
        kettles = client.search(["boil water quickly"], k=5).answers[0].hits
        assert all("kettle" in hit.text for hit in kettles)
        assert client.add([NewItem("new", "copper kettle", ("Copperworks",))]).added == 1
        assert client.click("new", "boil water again").state == "clicked"
        found = client.search(["boil water again"], k=11).answers[0].hits
        assert "new" in [hit.id for hit in found]
        branded = client.search(["boil water"], k=5, tags=["Copperworks"]).answers[0].hits
        assert [hit.id for hit in branded] == ["new"]
        assert "kettle" in client.explain("new").explanation.neighbours[0].text
