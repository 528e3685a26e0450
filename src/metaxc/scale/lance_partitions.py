"""Vectors of the items or queries of a Lance dataset, one fragment at a time, so that interrupted work resumes.

A fragment of the input is a partition. Its vectors become data files of the output dataset, and a record beside them,
which is written last and atomically: a partition is complete where its record is. When all partitions are complete,
one commit makes them the next version of the dataset, so readers see all vectors of a run or none of them.

    vectors.lance/data/          data files, also those of partitions that are not committed yet
    vectors.lance/_represent/    a record for each partition: the model, the source, the fragments
    vectors.lance/_versions/     versions of the dataset, by Lance
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from metaxc.artifacts import make_folder, sync
from metaxc.errors import ConfigError, DataError, MetaxcError
from metaxc.extras import import_extra
from metaxc.output_claims import claim_place
from metaxc.scale.engines import Engine, work_here
from metaxc.scale.lance_fragments import (
    DATA,
    EXTRA,
    LANCE_ERRORS,
    RECORDS,
    SUFFIX,
    VERSIONS,
    FragmentPartition,
    FragmentWriter,
    WrittenPartition,
    data_files,
    lance_failed,
    list_fragments,
    output_schema,
    read_written,
)
from metaxc.scale.partitions import (
    LOCK,
    RECORD,
    RepresentedFiles,
    different_output,
    lock_output,
    write_partitions,
)
from metaxc.scale.represent_batch import RepresentBatch


def represent_lance(
    represent: RepresentBatch,
    source: str | Path,
    out: str | Path,
    *,
    engine: Engine = work_here,
    overwrite: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RepresentedFiles:
    """Write the vectors of a Lance dataset to another one, fragment by fragment; a second call resumes.

    The output has the rows and columns of the input, and the column `vector`. Its schema has the model as metadata.
    It becomes visible with one commit, after the last partition. Fragments that were added to the input since are
    added to the output, whose indexes stay.

    Args:
        represent: Computes the vectors.
        source: The dataset, a folder; needs a column `text`.
        out: The new dataset; what another model or another input has left there is an error, and so is a dataset
            that was not written here, or that was changed since.
        engine: Where the partitions are worked on.
        overwrite: Whether vectors of another model or input are replaced. They stay until the new ones are complete.
        report: Called with the rows that are done and all rows, first with those of an earlier run.
    """
    lance = import_extra("lance", EXTRA)
    source = Path(os.path.abspath(source))  # workers have other current folders
    folder = claim_place(Path(out), [represent.folder, source])
    opened = _open_source(lance, source)
    partitions = list_fragments(opened, source, folder)
    identity = represent.identity
    with lock_output(folder):
        written = _read_output(lance, folder)
        complete, other = _sort_out(written, partitions, identity)
        if other and not overwrite:
            raise _different(other[0], partitions, identity)
        _remove_unused(lance, folder, written)
        pending = [one for one in partitions if one.record_file(identity) not in complete]
        try:
            done = write_partitions(FragmentWriter(represent, identity), partitions, pending, engine, report)
            schema = output_schema(opened, represent).with_metadata({RECORD: json.dumps(identity)})
            records = [one.record_file(identity) for one in partitions]
            _commit(lance, folder, schema, records)
            for file in {one.file for one in written} - set(records):  # of what the commit has replaced
                file.unlink(missing_ok=True)
        finally:
            _remove_unused(lance, folder, list(_read_records(folder)))
    return done


def _read_records(folder: Path) -> Iterator[WrittenPartition]:
    """All records of an output; a file that cannot be read is none."""
    for file in sorted((folder / RECORDS).glob("[!.]*.json")):
        written = read_written(file)
        if written is not None:
            yield written


def _open_source(lance: Any, source: Path) -> Any:
    try:
        return lance.dataset(str(source))
    except LANCE_ERRORS as error:
        raise DataError(
            "The input cannot be read", got=f"{source}: {error}", expected="the folder of a Lance dataset"
        ) from error


def _open_output(lance: Any, folder: Path) -> Any:
    """The output dataset, or None before its first commit."""
    if not (folder / VERSIONS).is_dir():
        return None
    try:
        return lance.dataset(str(folder))
    except LANCE_ERRORS as error:
        raise lance_failed("The output dataset cannot be read", folder, error) from error


def _read_output(lance: Any, folder: Path) -> list[WrittenPartition]:
    """The records of an output dataset; one that was not written here, or that was changed since, is an error."""
    mine = (folder / RECORDS).is_dir()
    if not mine and any(entry.name != LOCK for entry in folder.iterdir()):
        raise _foreign("The output is a folder that `metaxc represent` has not written", folder)
    make_folder(folder / RECORDS)
    written = list(_read_records(folder))
    known = {tuple(data_files(fragment)) for one in written for fragment in one.fragments}
    for fragment in _committed(_open_output(lance, folder)):
        if fragment["deletion_file"] is not None or tuple(data_files(fragment)) not in known:
            raise _foreign("The output dataset was changed since `metaxc represent` has written it", folder)
    return written


def _committed(opened: Any) -> list[dict[str, Any]]:
    """The fragments of the current version of a dataset; none where there is no dataset."""
    return [] if opened is None else [one.metadata.to_json() for one in opened.get_fragments()]


def _sort_out(
    written: Iterable[WrittenPartition], partitions: Sequence[FragmentPartition], identity: dict[str, object]
) -> tuple[set[Path], list[WrittenPartition]]:
    """The records of complete partitions of this model and input, and those of another model or input.

    A record whose data files are gone is neither: an earlier run has replaced them.
    """
    wanted = {one.record_file(identity): one for one in partitions}
    complete, other = set(), []
    for one in written:
        if one.file not in wanted:
            other += [one] if one.is_whole else []
        elif one.matches(wanted[one.file], identity):
            complete.add(one.file)
    return complete, other


def _commit(lance: Any, folder: Path, schema: Any, records: Sequence[Path]) -> None:
    """Make the fragments of these records a version of the dataset, unless the current one has exactly them."""
    written = [read_written(file) for file in records]
    if not all(one is not None and one.is_whole for one in written):
        raise MetaxcError(
            "Partitions have no vectors although the work has ended",
            got=folder,
            fix="run the same command again",
        )
    wanted = [fragment for one in written if one is not None for fragment in one.fragments]
    opened = _open_output(lance, folder)
    present = {tuple(data_files(fragment)) for fragment in _committed(opened)}
    missing = [fragment for fragment in wanted if tuple(data_files(fragment)) not in present]
    adds = opened is not None and len(present) + len(missing) == len(wanted)
    if adds and not missing:
        return
    made = [lance.FragmentMetadata.from_json(json.dumps(one)) for one in (missing if adds else wanted)]
    try:
        if adds:
            operation = lance.LanceOperation.Append(made)
            lance.LanceDataset.commit(str(folder), operation, read_version=opened.version)
        else:
            lance.LanceDataset.commit(str(folder), lance.LanceOperation.Overwrite(schema, made))
            if opened is not None:  # what was replaced; nobody else writes
                new = lance.dataset(str(folder))
                new.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    except LANCE_ERRORS as error:
        raise lance_failed("The vectors cannot be committed", folder, error) from error
    for file in (folder / VERSIONS).iterdir():
        sync(file)
    sync(folder / VERSIONS)


def _remove_unused(lance: Any, folder: Path, written: Iterable[WrittenPartition]) -> None:
    """Remove data files that neither a record nor the dataset names: what a killed or lost process has left."""
    used = {name for one in written for name in one.sizes}
    used.update(name for fragment in _committed(_open_output(lance, folder)) for name in data_files(fragment))
    for file in (folder / DATA).glob(f"*{SUFFIX}"):
        if file.name not in used:
            file.unlink(missing_ok=True)
    for file in (folder / RECORDS).glob(".*.part.json"):
        file.unlink(missing_ok=True)


def _different(
    other: WrittenPartition, partitions: Sequence[FragmentPartition], identity: dict[str, object]
) -> MetaxcError:
    number = other.record.get("fragment")
    is_changed = number in {one.fragment for one in partitions}
    source = f"{other.record.get('source')}, fragment {number}"
    return different_output(other.file, other.record, identity, source, is_changed)


def _foreign(what: str, folder: Path) -> ConfigError:
    return ConfigError(
        what,
        got=folder,
        expected="a new place, or a dataset of an earlier run with the same model and input, as it was written",
        fix="choose another name; nothing was deleted",
    )
