"""Files that somebody else has written: are they refused with a clear error, without code, crash or a full memory?

    python benchmarks/reliability/inputs.py --old OLD/src --out benchmarks/results/reliability/inputs.json

Promised: what cannot be used is refused by an error of ours, before it is in memory and before any code in it runs.
Attacked: data set folders (a gigabyte in one line of a small file, ids that HTTP cannot address), model folders in
which every file was changed in every way and the manifest written anew, caches with the content of another encoder,
encoder folders that name code. Each attack runs in a process of its own, with this source and with `--old`, the `src`
folder of an older checkout, for comparison. `--quick` takes a smaller line and a sample of the changes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
MEMORY = 500
"""Megabytes that reading a small file may take, libraries included."""

CASE_SECONDS, CASE_BYTES = 20, 10 << 30
"""What one changed model may take; more counts as a crash."""

OTHER_VALUES = ("exposure", "clicks beyond")
"""Changes to another valid value, which make another model: a finite exposure, a million more clicks of every item. A
manifest that was written anew cannot show them; they are counted as "other answers"."""

GOOD = {
    "items.jsonl": '{"id": "a", "text": "red apple"}\n{"id": "b", "text": "sky"}\n',
    "queries.jsonl": '{"id": "q", "text": "fruit"}\n',
    "clicks.tsv": "q\ta\nq\tb\n",
}
IDS = {
    "NUL": "a\0b",
    "escape": "a\x1b[31m",
    "..": "..",
    "a/../b": "a/../b",
    "500,000 characters": "x" * 500_000,
}
ALLOWED = ("a/b.java", "/usr/share/x", "a?b#c", "%2e%2e", "日本")


def data_folder(place: Path, **files: bytes) -> Path:
    """A small data set folder, with some files replaced."""
    place.mkdir(parents=True)
    for name, text in GOOD.items():
        (place / name).write_text(text)
    for name, content in files.items():
        (place / name.replace("_", ".")).write_bytes(content)
    return place


def long_line(place: Path, megabytes: int) -> Path:
    """One line of many megabytes in a small gz file."""
    packer, parts = zlib.compressobj(9, wbits=31), []
    parts.append(packer.compress(b'{"id": "c", "text": "'))
    parts += [packer.compress(b"x" * (1 << 20)) for _ in range(megabytes)]
    parts += [packer.compress(b'"}\n'), packer.flush()]
    folder = data_folder(place, items_jsonl_gz=gzip.compress(GOOD["items.jsonl"].encode()) + b"".join(parts))
    (folder / "items.jsonl").unlink()
    return folder


def repeated_text(place: Path, megabytes: int) -> Path:
    """One text of a megabyte that a small Parquet file repeats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = data_folder(place)
    (folder / "items.jsonl").unlink()
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * megabytes, pa.int32()), pa.array(["x" * (1 << 20)]))
    ids = ["a", "b", *(f"i{row}" for row in range(2, megabytes))]
    table = pa.table({"id": ids, "text": texts})
    pq.write_table(table, folder / "items.parquet", store_schema=False)
    return folder


# What a child does, with the source that it was given.


def check_data(folder: Path) -> dict[str, Any]:
    """Check a data set folder; the peak of memory counts."""
    from metaxc.data import check_folder

    report = check_folder(folder)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    size = sum(file.stat().st_size for file in folder.iterdir())
    says = next((one.message for one in report.problems if one.severity == "error"), None)
    return {
        "held": not report.ok,
        "says": says,
        "bytes on disk": size,
        "peak MB": int(peak.split()[1]) // 1024,
    }


def check_ids(folder: Path) -> dict[str, Any]:
    """Which ids pass the check of a data set folder."""
    from metaxc.data import check_folder

    accepted = {}
    for number, name in enumerate([*IDS.values(), *ALLOWED]):
        items = GOOD["items.jsonl"] + json.dumps({"id": name, "text": "x"}) + "\n"
        place = data_folder(folder / str(number), items_jsonl=items.encode())
        accepted[name] = check_folder(place).ok
    wrong = [title for title, name in IDS.items() if accepted[name]]
    return {"held": not wrong, "accepted": wrong, "allowed ids": all(accepted[name] for name in ALLOWED)}


class TooSlowError(Exception):
    """A case took too long."""


def _ring(*_: object) -> None:
    raise TooSlowError


def change_model(folder: Path, sample: int) -> dict[str, Any]:
    """Every file of a model changed in every way: loaded, searched and explained."""
    from tampering import copies

    from metaxc import Emmett
    from metaxc.errors import MetaxcError

    def answer(place: Path) -> str:
        model = Emmett.load(place)
        hits = model.search(model.encoder.query_texts[:2], 5)
        neighbours = model.explain(model.items.texts[0]).neighbours
        vectors = model.represent(model.items.texts[:2]).round(5).tolist()
        return repr((hits, [one.id for one in neighbours], vectors))

    signal.signal(signal.SIGALRM, _ring)
    resource.setrlimit(resource.RLIMIT_AS, (CASE_BYTES, CASE_BYTES))
    good, counts, wrong = answer(folder), Counter(), []
    for number, (name, place) in enumerate(copies(folder, "emmett", folder.with_name("changed"))):
        if number % sample:
            continue
        signal.alarm(CASE_SECONDS)
        try:
            outcome = "without effect" if answer(place) == good else "other answers"
        except MetaxcError:
            outcome = "refused"
        except Exception as error:
            outcome = "crash"
            wrong.append(f"{name}: {error!r}"[:200])
        finally:
            signal.alarm(0)
        counts[outcome] += 1
        if outcome == "other answers":
            wrong.append(f"{name}: other answers")
    first = [one for one in wrong if not any(value in one for value in OTHER_VALUES)]
    return {"held": not first, "cases": counts.total(), **counts, "wrong": first[:12]}


def swap_caches(folder: Path) -> dict[str, Any]:
    """The graph and the embeddings of another encoder under this encoder's name, each whole and with its checksum."""
    import numpy as np

    from metaxc.encoders import EmbeddingCache, Pretrained
    from metaxc.errors import MetaxcError

    cache, texts = EmbeddingCache(folder / "cache"), ["red apple", "old pear"] * 40
    encoders = [Pretrained(folder / name, cache, "onnx") for name in ("encoder", "other")]
    expected, foreign = (np.array(encoder.encode(texts)) for encoder in encoders)
    ours, theirs = (encoder.fingerprint[:32] for encoder in encoders)
    taken = []
    for kind in ("onnx", "embeddings"):
        shutil.rmtree(cache.folder / kind / ours)
        shutil.copytree(cache.folder / kind / theirs, cache.folder / kind / ours)
        few = (
            texts if kind == "embeddings" else texts[:2]
        )  # a few texts are encoded without the embedding cache
        found = Pretrained(folder / "encoder", cache, "onnx").encode(few)
        if np.allclose(found, foreign[: len(few)]) or not np.allclose(found, expected[: len(few)]):
            taken.append(kind)
    cache.folder.chmod(0o777)
    try:
        Pretrained(folder / "encoder", cache, "onnx").encode(texts)
        taken.append("a folder that everybody can write to")
    except MetaxcError:
        pass
    return {"held": not taken, "accepted": taken}


def run_code(folder: Path) -> dict[str, Any]:
    """Encoder folders that name code: does it run?"""
    from metaxc.encoders import Pretrained
    from metaxc.errors import MetaxcError

    ran, without_own_error = [], []
    for place in sorted(folder.iterdir()):
        marker = place / "ran"
        os.environ["METAXC_PROOF"] = str(marker)
        try:
            Pretrained(place).encode(["red apple"])
            without_own_error.append(f"{place.name}: used")
        except MetaxcError:
            pass
        except Exception as error:
            without_own_error.append(f"{place.name}: {type(error).__name__}")
        if marker.exists():
            ran.append(place.name)
    return {
        "held": not ran and not without_own_error,
        "code ran": ran,
        "no clear error": without_own_error,
    }


# The parent.


def tiny_encoder(place: Path, seed: int) -> None:
    """A sentence-transformers folder: a BERT of one layer with random weights."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "old", "apple", "pear", "##s"]
    (place / "vocab.txt").write_text("\n".join(words) + "\n")
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    bert = BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes))
    for weights in bert.parameters():
        if weights.dim() == 2:
            torch.nn.init.normal_(weights, 0.0, 0.5)
    bert.save_pretrained(place / "bert")
    BertTokenizerFast(vocab=str(place / "vocab.txt")).save_pretrained(place / "bert")
    modules = [Transformer(str(place / "bert"), max_seq_length=32), Pooling(32)]
    SentenceTransformer(modules=modules, device="cpu").save(str(place / "model"))


def encoders_with_code(encoder: Path, out: Path) -> None:
    """Copies of an encoder that name code in every way that we know."""
    mark = "import os\nopen(os.environ['METAXC_PROOF'], 'w').close()\n"
    code = mark + "from sentence_transformers.models import Pooling\n"

    def changed(name: str, file: str, change: Callable[[Any], Any]) -> None:
        place = shutil.copytree(encoder, out / name)
        (place / "own_code.py").write_text(code)
        content = json.loads((place / file).read_text())
        (place / file).write_text(json.dumps(change(content)))

    def own_module(modules: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [modules[0], {**modules[1], "type": "own_code.Pooling"}]

    changed("module type", "modules.json", own_module)
    own_model = {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own_code.Pooling", "AutoModel": "own_code.Pooling"},
    }
    changed("auto_map", "config.json", lambda config: {**config, **own_model})
    changed(
        "trust_remote_code",
        "sentence_bert_config.json",
        lambda c: {**c, "model_args": {"trust_remote_code": True}},
    )


def child(name: str, place: Path, source: Path, *options: str) -> dict[str, Any]:
    """The result of one attack with a source; a child that dies has failed."""
    command = [sys.executable, str(Path(__file__)), "--child", name, "--place", str(place), *options]
    environment = {
        **os.environ,
        **{
            "PYTHONPATH": str(source),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
        },
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"held": False, "died": f"{done.returncode}: {done.stderr.strip()[-300:]}"}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    one.__name__: one for one in (check_data, check_ids, change_model, swap_caches, run_code)
}


def attacks(folder: Path, quick: bool) -> dict[str, tuple[str, Path, tuple[str, ...]]]:
    """Title, child, place and options of each attack, with everything that it needs."""
    from corruption import saved

    megabytes = 64 if quick else 1024
    saved(1).save(folder / "model")
    tiny_encoder(folder / "made", 0)
    tiny_encoder(folder / "made other", 1)
    caches = folder / "caches"
    shutil.copytree(folder / "made" / "model", caches / "encoder")
    shutil.copytree(folder / "made other" / "model", caches / "other")
    encoders_with_code(folder / "made" / "model", folder / "code")
    line = f"a line of {megabytes} MiB in a small gz file"
    text = f"a text of 1 MiB that a small Parquet file repeats {megabytes:,} times"
    return {
        line: ("check_data", long_line(folder / "gz", megabytes), ()),
        text: ("check_data", repeated_text(folder / "parquet", megabytes), ()),
        "ids that HTTP cannot address": ("check_ids", folder / "ids", ()),
        "model folders changed in every way": (
            "change_model",
            folder / "model",
            ("--sample", "9" if quick else "1"),
        ),
        "caches of another encoder or of everybody": ("swap_caches", caches, ()),
        "encoder folders that name code": ("run_code", folder / "code", ()),
    }


def commit_of(place: Path) -> str:
    """The commit that is checked out there."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False).stdout.strip()


def run(old: Path | None, quick: bool) -> dict[str, Any]:
    """All attacks, with the old source where there is one, and with this one."""
    folder, found, problems = Path(tempfile.mkdtemp(prefix="metaxc-inputs-")), {}, []
    try:
        for title, (name, place, options) in attacks(folder, quick).items():
            results = {}
            for which, source in (("before", old), ("after", SOURCE)):
                if source is not None:
                    copy = folder / which / name / title.replace("/", "-")[:20]
                    if place.exists():
                        shutil.copytree(place, copy)
                    results[which] = child(name, copy, source, *options)
            found[title] = results
            after = results["after"]
            if not after["held"] or after.get("allowed ids") is False or after.get("peak MB", 0) > MEMORY:
                problems.append(f"{title}: {after}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    options = [option for option, given in (("--old OLD/src", old), ("--quick", quick)) if given]
    return {
        "commit": commit_of(HERE),
        "commit before": None if old is None else commit_of(old),
        "command": " ".join(["python benchmarks/reliability/inputs.py", *options]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "attacks": found,
        "problems": problems,
    }


def main() -> None:
    """Attack, compare and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="`src` of an older checkout, to compare with")
    parser.add_argument("--quick", action="store_true", help="a smaller line, and a sample of the changes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        more = (options.sample,) if options.sample else ()
        print(json.dumps(CHILDREN[options.child](options.place, *more)))
        return
    from proof_run import write_result

    write_result(run(options.old, options.quick), options.out)


if __name__ == "__main__":
    main()
