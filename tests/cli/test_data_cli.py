"""`metaxc data import` and `metaxc data check --fix`: the verdict, the marks, the exit code and what is written."""

import json

import pytest
from commands import run

from metaxc.data import read_folder, split, write_folder

ITEMS = "sku,title,brand\na,Apple,Orchard\nb,,Sky\nc,Tea,\n"
EVENTS = "search term,sku,ts\nfruit,a,1700000000000\nfruit,z,1700000000000\ndrink,c,1700000009000\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "products.csv").write_text(ITEMS)
    (tmp_path / "events.csv").write_text(EVENTS)
    return (
        "--items",
        tmp_path / "products.csv",
        "--clicks",
        tmp_path / "events.csv",
        "--out",
        tmp_path / "data",
    )


def test_an_import_with_bad_rows_writes_nothing_and_says_how_to_go_on(files, tmp_path):
    result = run("data", "import", *files)
    assert result.exit_code == 1
    assert not (tmp_path / "data").exists()
    lines = result.stdout.splitlines()
    assert lines[0] == "The import was not written: 2 errors, 3 warnings, 0 notes."
    assert (
        "error: products.csv, line 3: The text is empty (got ''; expected at least one visible character)"
        in lines
    )
    marks = [line.split(":")[0] for line in lines if line.startswith(("error", "warning"))]
    assert marks == ["error", "error", "warning", "warning", "warning"]
    assert lines[-1] == "To leave these rows out, add --skip-bad."
    assert "products.csv: id = sku (guessed)" in result.stderr
    assert "events.csv: query = search term (guessed)" in result.stderr


def test_skip_bad_writes_the_folder_and_the_list(files, tmp_path):
    result = run("data", "import", *files, "--skip-bad")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tmp_path / 'data'} can be used: Dataset('data': 2 items")
    assert "2 lines left out, 3 lines repaired" in result.stdout
    data = read_folder(tmp_path / "data")
    assert data.items.tags == [("Orchard",), ()]
    assert data.train.times.tolist() == [1700000000, 1700000009]
    assert "unknown item id" in (tmp_path / "data" / "left_out.tsv").read_text()
    assert run("data", "check", tmp_path / "data").exit_code == 0
    again = run("data", "import", *files, "--skip-bad")
    assert "--overwrite" in str(again.exception)
    assert run("data", "import", *files, "--skip-bad", "--overwrite", "--json").exit_code == 0


def test_a_part_of_a_data_set_is_a_data_set(shop, tmp_path):
    write_folder(split(shop, novel=0.15, test=0.2)[0], tmp_path / "whole")
    limits = ("--items", "30", "--train", "20", "--test", "9")
    result = run("data", "sample", tmp_path / "whole", tmp_path / "part", *limits)
    assert result.exit_code == 0
    assert "30 items" in result.stdout
    part, whole = read_folder(tmp_path / "part"), read_folder(tmp_path / "whole")
    assert (len(part.items), len(part.train), len(part.test)) == (30, 20, 9)
    assert {part.items.ids[row] for row in part.novel_rows} <= {
        whole.items.ids[row] for row in whole.novel_rows
    }
    assert "--overwrite" in str(run("data", "sample", tmp_path / "whole", tmp_path / "part").exception)


def test_columns_may_be_named(files, tmp_path):
    named = run(
        "data", "import", *files, "--skip-bad", "--text", "title,brand", "--query", "serach_term", "--json"
    )
    assert "did you mean search term?" in str(named.exception)
    done = run(
        "data", "import", *files, "--skip-bad", "--text", "title,brand", "--query", "search_term", "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["written"] is True
    assert read_folder(tmp_path / "data").items.texts == ["Apple. Orchard", "Sky", "Tea"]


def test_check_gives_the_verdict_first_and_fix_writes_a_copy(tmp_path):
    data, clean = tmp_path / "data", tmp_path / "clean"
    data.mkdir()
    (data / "items.jsonl").write_text(
        '{"id": "a", "text": "x"}\n{"id": "b", "text": ""}\n{"id": "c", "text": "y"}\n'
    )
    (data / "queries.jsonl").write_text('{"id": "q", "text": "u"}\n')
    (data / "clicks.tsv").write_text("query\titem\nq\ta\nq\tz\n")
    result = run("data", "check", data)
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0] == f"{data} cannot be used: 3 errors, 0 warnings, 2 notes."
    assert [line.split(":")[0] for line in lines[2:7]] == ["error", "error", "error", "note", "note"]
    assert lines[-1] == f"To leave these lines out:  metaxc data check {data} --fix CLEAN"
    fixed = run("data", "check", data, "--fix", clean)
    assert fixed.exit_code == 0
    assert f"{clean} can be used: Dataset('data': 2 items" in fixed.stdout
    assert "clicks.tsv: header row: 1 line skipped" in fixed.stdout
    assert run("data", "check", clean).stdout.startswith(f"{clean} can be used: 0 errors")
    assert (data / "clicks.tsv").read_text().startswith("query")  # the source stays as it is


def test_a_repository_is_needed_for_commits_and_for_nothing_else(tmp_path):
    for arguments in (("commits", tmp_path / "out"), ("icd10cm", tmp_path / "out", "--repo", tmp_path)):
        assert "--repo" in str(run("data", "get", *arguments).exception)


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("kind", ["notes", "catalog"])
def test_no_command_that_writes_data_replaces_what_it_has_not_written(files, tmp_path, overwrite, kind):
    assert run("data", "import", *files, "--skip-bad").exit_code == 0
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ("CURRENT" if kind == "catalog" else "thesis.txt")).write_text("years of work")
    before = {path.name: path.read_bytes() for path in precious.iterdir()}
    data = tmp_path / "data"
    for command in (
        ("import", *files[:-1], precious, "--skip-bad"),
        ("check", data, "--fix", precious),
        ("split", data, precious),
        ("convert", data, precious, "--from", "metaxc", "--to", "xc"),
    ):
        refused = run("data", *command, *overwrite)
        assert "nothing was deleted" in str(refused.exception), command
        assert {path.name: path.read_bytes() for path in precious.iterdir()} == before


def test_a_synthetic_log_is_written_with_counts_as_people_write_them(tmp_path):
    out = tmp_path / "log"
    made = run(
        "data",
        "synthetic",
        "--items",
        "1e3",
        "--queries",
        "1.5e3",
        "--clicks",
        "6_000",
        "--out",
        out,
        "--json",
    )
    facts = json.loads(made.stdout)
    assert facts["config"]["items"] == facts["counts"]["items"] == 1_000
    assert facts["counts"]["train queries"] + facts["counts"]["test queries"] == 1_500
    assert run("data", "check", out).stdout.startswith(f"{out} can be used: 0 errors, 0 warnings")
    assert "a whole number" in run("data", "synthetic", "--items", "1.5", "--out", out).output
    assert "Invalid value for --zipf" in str(run("data", "synthetic", "--zipf", "9", "--out", out).exception)
    assert "--overwrite" in str(run("data", "synthetic", "--out", out).exception)
