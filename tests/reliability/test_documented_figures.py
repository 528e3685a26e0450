"""The figures of the proofs in docs/live.md are those of the result files."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs" / "live.md").read_text(encoding="utf-8").splitlines()


def result(name):
    return json.loads((ROOT / "benchmarks" / "results" / "reliability" / f"{name}.json").read_text())


def strangers():
    found = result("strangers")
    for name in ("before", "after"):
        attacked, log = found[name]["all"]["attacked"], found[name]["all"]["log, bytes"]
        kept, times = attacked["kept, ms"]["p99"], found[name]["all"]["times idle, p99"]
        if name == "before":
            assert attacked["not answered"] == 3 * attacked["kept, ms"]["count"]
            assert kept > 5000
            yield "1,100 idle", f"no answer within 5 s; {log / 1e6:.0f} MB of log"
        else:
            assert log == attacked["not answered"] == 0
            yield "1,100 idle", f"{kept:.0f} ms, {max(times.values()):.1f} times idle; no line of log"
        metrics, memory = found[name]["methods"]["/metrics, bytes"], found[name]["methods"]["memory, MB"]
        sizes = f"`/metrics` {metrics['before'] / 1e3:.0f} KB → {metrics['after'] / 1e3:,.0f} KB"
        yield "invented methods", f"{sizes}; memory {memory['before']:.0f} → {memory['after']:.0f} MB"


def fairness():
    found = result("fairness")
    for name in ("before", "after"):
        reads, load = found[name]["large reads"], found[name]["overload"]
        searches = reads["searches beside large reads, ms"]["p50"]
        lists = reads["lists beside large reads, ms"]["p50"]
        yield "three clients read", f"{searches:,.0f} ms, {lists:.{0 if lists > 100 else 1}f} ms"
        yield "they leave", f"{reads['search after the large clients have left, ms']:,.0f} ms"
        begun, digits = load["accepted began after, ms"], 1 if name == "before" else 2
        accepted = f"{begun['p50'] / 1e3:.{digits}f} s, {begun['p99'] / 1e3:.{digits}f} s"
        yield "2.5 times the capacity", f"{accepted}; {load['refused, ms']['p50']:.1f} ms"
        clicks = found[name]["clicks"]
        click = clicks["on an item with 20,000 clicks, ms"]["p50"]
        yield (
            "a click on an item",
            f"{click:.{0 if click > 100 else 1}f} ms, {clicks['ratio']} times",
        )
        add = found[name]["single adds"]["single adds beside bulk adds, ms"]["p50"]
        yield "a single add", f"{add / 1e3:.1f} s" if add > 1000 else f"{add:.0f} ms"


def operators():
    found = result("operators")
    for part, words in ((found["before"], "{} of {} lost data"), (found, "{} of {}")):
        outputs = part["outputs"].values()
        lost, kept = (sum(one.get(name, 0) for one in outputs) for name in ("LOST", "kept"))
        yield "commands that write", words.format(lost, lost + kept)
        reader = part["reader"]
        yield "a migration under", f"{reader.get('ready and no search', 0)} of {reader['polls']}"
        commands = [
            said for name, said in part["read-only disk"].items() if name.endswith(("closed", "killed"))
        ]
        yield "read-only disk", f"{sum('wrong advice' in said for said in commands)} of {len(commands)}"
    assert not found["before"]["reader"]["searches after the migration"]
    yield "a migration under", f"searches after {found['reader']['seconds until then']} s"


def powerloss():
    found = result("powerloss")
    assert found["broken promises"] == 0
    for part, words in ((found["before"], "{} of {} replays lose"), (found, "{} of {:,}")):
        cuts, syncs = part["power cuts"], part["failing syncs"]
        lost = sum(count for name, count in cuts.items() if ":" in name and not name.endswith("replays"))
        replays = cuts["strict: replays"] + cuts["mixed: replays"]
        yield "a power cut at", words.format(lost, replays)
        there = syncs.get("refused and there after a restart", 0) + syncs.get("acknowledged and lost", 0)
        yield "a sync fails", f"{there} writes after {syncs['faults']:,} faults"


def inputs():
    attacks = result("inputs")["attacks"]
    for name in ("before", "after"):
        yield (
            "files of somebody else",
            f"{sum(one[name]['held'] for one in attacks.values())} of {len(attacks)}",
        )
    changed = attacks["model folders changed in every way"]
    yield "a model folder", f"{changed['before']['cases']} ways"
    yield (
        "a model folder",
        f"{changed['before']['crash']} tracebacks, {changed['before']['other answers']} other",
    )
    now = changed["after"]
    same = f"{now['without effect']} without effect, {now['other answers']} other valid values"
    yield "a model folder", f"{now.get('crash', 0)} tracebacks; {now['refused']} refused, {same}"
    line = attacks["a line of 1024 MiB in a small gz file"]
    for name in ("before", "after"):
        yield "a 1 MB gz file", f"{line[name]['peak MB']:,} MB"


def kills():
    found = result("kills")
    yield (
        "`kill -9`, and nothing else appears",
        f"{found['kills']:,} kills under mixed load, {found['acknowledged']:,} acknowledged writes: "
        f"{found['lost']} lost, {found['ghosts']} ghosts; {found['under way']} writes were in progress, "
        f"{found['of these applied']} of them applied completely",
    )


def switch():
    found = result("switch")
    loaded, killed = found["under load"], found["kills"]
    yield (
        "`switch.py`",
        f"{loaded['switches']} switches under mixed load, {loaded['acknowledged writes']:,} acknowledged writes: "
        f"{loaded['lost']} lost, {loaded['ghosts']} ghosts; {loaded['statuses']['search 200']:,} searches: "
        f"{loaded['5xx']} server errors",
    )
    p99 = (loaded[f"searches {when} switches, ms"]["p99"] for when in ("between", "during"))
    yield "`switch.py`", "p99 {:.0f} → {:.0f} ms ({} times)".format(*p99, loaded["p99 ratio"])
    yield (
        "`switch.py`",
        f"{killed['kills']} kills during switches, {killed['acknowledged']:,} acknowledged writes: "
        f"{killed['lost']} lost, {killed['ghosts']} ghosts",
    )


def sync():
    found = result("sync")
    assert found["problems"] == []
    targets = [found["targets"][name] for name in ("postgresql", "milvus", "qdrant", "lance", "parquet")]
    assert {one["kills"] for one in targets} == {100}

    def listed(values):
        *first, last = (f"{value:,.0f}" for value in values)
        return f"{', '.join(first)} and {last}"

    yield "`sync.py`", f"({listed(one['came too late'] for one in targets)} more came after the end)"
    yield "`sync.py`", f"{listed(one['speed']['rows per second'] for one in targets)} rows a second"
    first, *others = (one["speed"]["recall@10"] for one in targets)
    assert set(others) == {1.0}
    yield "`sync.py`", f"through PostgreSQL's index {first:.3f}, through the others 1.0"


def other_proofs():
    points = result("crash_points")
    yield (
        "`crash_points.py`",
        f"{points['points']} points of add, click, delete, close, snapshot, restore, migrate: "
        f"{points['as before']} before, {points['as after']} after",
    )
    damage = result("corruption")
    yield (
        "`corruption.py`",
        f"{damage['damages']:,} damages to every file of a catalog, a snapshot and a model: {damage['refused']} "
        f"refused, {damage['rebuilt and said so']} rebuilt with a warning, {damage['same answers']} without effect",
    )
    yield "`full_disk.py`", f"{result('full_disk')['refused']} refused, no acknowledged write lost"
    schema = result("schema")
    yield "`schema.py`", f"{schema['requests']:,} requests generated"
    yield "`schema.py`", f"{schema['server_errors']} server errors"
    soak = result("soak")
    yield (
        "`soak.py`",
        f"{soak['added']:,} added, {soak['deleted']:,} deleted: memory ratio {soak['memory, MB']['ratio']}",
    )
    statuses = result("overload")["statuses"]
    yield "`overload.py`", f"{statuses['200']:,} answered, {statuses['429']:,} refused"
    stream = result("streaming")
    p99 = (stream[f"searches {name}, ms"]["p99"] for name in ("alone", "under the stream"))
    yield "`streaming.py`", "p99 {:.0f} → {:.0f} ms ({} times)".format(*p99, stream["p99 ratio"])


@pytest.mark.parametrize(
    "figures",
    [strangers, fairness, operators, powerloss, inputs, kills, switch, sync, other_proofs],
    ids=lambda one: one.__name__,
)
def test_every_documented_figure_is_that_of_its_result_file(figures):
    for row, figure in figures():
        lines = [line for line in LINES if line.startswith("|") and row in line]
        assert len(lines) == 1, row
        assert figure in lines[0]


@pytest.mark.parametrize(
    "name",
    ["strangers", "fairness", "operators", "powerloss", "inputs", "kills", "switch", "sync"],
)
def test_a_result_names_the_commit_and_the_command_and_reports_no_problem(name):
    found = result(name)
    assert len(found["commit"]) >= 12
    assert "with changes" not in found["commit"]
    assert f"{name}.py" in found["command"]
    assert found["problems"] == []
