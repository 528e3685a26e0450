"""A disk as a power cut leaves it: the file system operations of a process, recorded with strace, and what of them is
on disk at each moment.

Strict: a write is on disk when its file was synced, a name when its folder was synced, and nothing before. Mixed: of
what was not synced, any part may be on disk: of each file some of its writes, of each folder the first so many changes.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

CALLS = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,lseek,write,pwrite64,writev,pwritev,sendfile,copy_file_range,"
    "ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync"
)
NOT_KEPT = ("-shm",)
"""Files that SQLite maps into memory and builds again after a crash."""


@dataclass
class Node:
    """A file or a folder; `synced` is what of it is on disk, `changes` what was done to it since.

    Args:
        content: The bytes of a file, the names of a folder.
        synced: The same, as it was when it was last synced.
        changes: Of a file (offset, bytes) or a length it was cut to; of a folder (name, node or None).
    """

    content: bytearray | dict[str, Node]
    synced: bytes | dict[str, Node] = b""
    changes: list[Any] = field(default_factory=list)

    @property
    def is_folder(self) -> bool:
        """Whether it has names and no bytes."""
        return isinstance(self.content, dict)

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes."""
        _write(self.content, offset, data)
        self.changes.append((offset, bytes(data)))

    def truncate(self, length: int) -> None:
        """Cut or extend a file."""
        _truncate(self.content, length)
        self.changes.append(length)

    def name(self, name: str, node: Node | None) -> None:
        """Give a name to a node, or remove the name."""
        _name(self.content, name, node)
        self.changes.append((name, node))

    def sync(self) -> None:
        """All of it is on disk."""
        self.synced = dict(self.content) if self.is_folder else bytes(self.content)
        self.changes = []

    def after_a_cut(self, drawn: random.Random | None) -> bytes | dict[str, Node]:
        """What is left: strictly what was synced; with `drawn` some of the rest too."""
        if drawn is None:
            return self.synced if self.synced or not self.is_folder else {}
        if self.is_folder:
            names = dict(self.synced or {})
            for name, node in self.changes[: drawn.randint(0, len(self.changes))]:
                _name(names, name, node)
            return names
        content = bytearray(self.synced)
        for change in self.changes:
            if drawn.random() < 0.5:
                if isinstance(change, int):
                    _truncate(content, change)
                else:
                    _write(content, *change)
        return bytes(content)


def _write(content: Any, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _truncate(content: Any, length: int) -> None:
    if len(content) > length:
        del content[length:]
    content.extend(bytes(length - len(content)))


def _name(names: Any, name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


@dataclass
class Handle:
    """An open file."""

    node: Node
    path: PurePosixPath
    offset: int = 0
    appends: bool = False


class RecordedDisk:
    """The folder `base`, which is on disk and empty when the recording begins.

    Args:
        base: The folder; what happens outside it is ignored.
    """

    def __init__(self, base: Path):
        self.base = PurePosixPath(base)
        self.root = Node({}, {})
        self.handles: dict[int, Handle] = {}

    def find(self, path: PurePosixPath) -> Node | None:
        """The node at a path."""
        if path != self.base and self.base not in path.parents:
            return None
        node: Node | None = self.root
        for part in path.relative_to(self.base).parts:
            node = node.content.get(part) if node is not None and node.is_folder else None
        return node

    def apply(self, call: str, arguments: list[Any], result: int) -> str | None:
        """Do what a call did; returns "sync" after a call that put something on disk, else None."""
        match call:
            case "open" | "openat" | "creat":
                self._open(call, arguments, result)
            case "close":
                self.handles.pop(arguments[0], None)
            case "dup" | "dup2" | "dup3" if arguments[0] in self.handles:
                self.handles[result] = self.handles[arguments[0]]
            case "fcntl" if "F_DUPFD" in str(arguments[1]) and arguments[0] in self.handles:
                self.handles[result] = self.handles[arguments[0]]
            case "lseek" | "read" if handle := self.handles.get(arguments[0]):
                handle.offset = result if call == "lseek" else handle.offset + result
            case "write" if handle := self.handles.get(arguments[0]):
                at = len(handle.node.content) if handle.appends else handle.offset
                handle.node.write(at, arguments[1][:result])
                handle.offset = at + result
            case "pwrite64" if handle := self.handles.get(arguments[0]):
                handle.node.write(arguments[3], arguments[1][:result])
            case "ftruncate" if handle := self.handles.get(arguments[0]):
                handle.node.truncate(arguments[1])
            case "fallocate" if handle := self.handles.get(arguments[0]):
                handle.node.truncate(max(len(handle.node.content), arguments[2] + arguments[3]))
            case "sendfile" | "copy_file_range" if result:
                self._copy(call, arguments, result)
            case "writev" | "pwritev" if arguments[0] in self.handles:
                raise AssertionError(f"{call} is not recorded")
            case "rename" | "renameat" | "renameat2":
                self._rename(call, arguments)
            case "unlink" | "rmdir" | "unlinkat":
                self._set(
                    self._path(arguments[0] if call == "unlinkat" else None, arguments[call == "unlinkat"]),
                    None,
                )
            case "mkdir" | "mkdirat":
                path = self._path(arguments[0] if call == "mkdirat" else None, arguments[call == "mkdirat"])
                self._set(path, Node({}, {}))
            case "fsync" | "fdatasync" if handle := self.handles.get(arguments[0]):
                handle.node.sync()
                return "sync"
        return None

    def _open(self, call: str, arguments: list[Any], result: int) -> None:
        at, path, flags = ("AT_FDCWD", *arguments[:2]) if call != "openat" else arguments[:3]
        place = self._path(at, path)
        node = self.find(place)
        flags = "O_CREAT|O_WRONLY|O_TRUNC" if call == "creat" else str(flags)
        self.handles.pop(result, None)
        if node is None:
            if "O_CREAT" not in flags or self.find(place.parent) is None:
                return
            node = Node(bytearray())
            self._set(place, node)
        elif "O_TRUNC" in flags and not node.is_folder:
            node.truncate(0)
        self.handles[result] = Handle(node, place, appends="O_APPEND" in flags)

    def _copy(self, call: str, arguments: list[Any], result: int) -> None:
        to, source = (arguments[0], arguments[1]) if call == "sendfile" else (arguments[2], arguments[0])
        target, origin = self.handles.get(to), self.handles.get(source)
        if target is None:
            return
        if origin is None:
            raise AssertionError("a file was copied from outside")
        given = arguments[2] if call == "sendfile" else None
        shown = None if given in (None, "NULL") else re.search(r"\d+", str(given))
        offset = origin.offset if shown is None else int(shown[0])
        target.node.write(target.offset, bytes(origin.node.content[offset : offset + result]))
        target.offset += result
        if given in (None, "NULL"):
            origin.offset += result

    def _rename(self, call: str, arguments: list[Any]) -> None:
        if call == "rename":
            old, new = self._path(None, arguments[0]), self._path(None, arguments[1])
        else:
            old, new = self._path(arguments[0], arguments[1]), self._path(arguments[2], arguments[3])
        exchange = call == "renameat2" and ("EXCHANGE" in str(arguments[4]) or arguments[4] == 2)
        one, other = self.find(old), self.find(new)
        self._set(new, one)
        self._set(old, other if exchange else None)

    def _set(self, path: PurePosixPath, node: Node | None) -> None:
        parent = self.find(path.parent)
        if parent is not None and parent.is_folder and (path == self.base) is False:
            parent.name(path.name, node)

    def _path(self, at: Any, path: bytes) -> PurePosixPath:
        given = PurePosixPath(path.decode(errors="surrogateescape"))
        return self.handles[at].path / given if at in self.handles and not given.is_absolute() else given

    def write_out(self, folder: Path, drawn: random.Random | None = None, node: Node | None = None) -> None:
        """Write what a power cut leaves now into a real folder."""
        folder.mkdir(parents=True)
        left = (node or self.root).after_a_cut(drawn)
        for name, child in left.items():
            if child.is_folder:
                self.write_out(folder / name, drawn, child)
            elif not name.endswith(NOT_KEPT):
                (folder / name).write_bytes(child.after_a_cut(drawn))

    def differences(self, folder: Path, node: Node | None = None) -> list[str]:
        """Names of files whose content in the recording is not that on the real disk: is the recording complete?"""
        node, found = node or self.root, []
        names = {path.name for path in folder.iterdir()} | set(node.content)
        for name in sorted(names):
            child = node.content.get(name)
            if name.endswith(NOT_KEPT):
                continue
            if child is None or not (folder / name).exists():
                found.append(name)
            elif child.is_folder:
                found += self.differences(folder / name, child)
            elif bytes(child.content) != (folder / name).read_bytes():
                found.append(name)
        return found


LINE = re.compile(r"^\d+\s+(\w+)\((.*)\)\s+= (-?\d+|\?)")
ARGUMENT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?|([^,"]+)')


def record(command: Sequence[str], log: Path, environment: dict[str, str]) -> int:
    """Run a command under strace; returns its exit code."""
    options = ["-f", "--seccomp-bpf", "-xx", "-s", "100000000", "-qq", "-o", str(log), "-e", f"trace={CALLS}"]
    return subprocess.run(
        ["strace", *options, *command], env=environment, stdout=subprocess.DEVNULL
    ).returncode


def calls_of(log: Path) -> Iterator[tuple[str, list[Any], int]]:
    """The calls of a log that succeeded: name, arguments (texts as bytes, numbers as int), result."""
    started: dict[str, str] = {}
    with log.open() as lines:
        for line in lines:
            process, _, rest = line.rstrip("\n").partition(" ")
            rest = rest.strip()
            if rest.endswith("<unfinished ...>"):
                started[process] = rest.removesuffix("<unfinished ...>").rstrip()
                continue
            if rest.startswith("<..."):
                rest = started.pop(process, "") + rest.split("resumed>", 1)[1].lstrip()
            found = LINE.match(f"{process} {rest}")
            if found and found[3].lstrip("-").isdigit() and int(found[3]) >= 0:
                yield found[1], list(_arguments(found[2])), int(found[3])


def _arguments(text: str) -> Iterator[Any]:
    for found in ARGUMENT.finditer(text):
        if found[3] is None:
            yield bytes.fromhex(found[1].replace("\\x", ""))
        elif plain := found[3].strip():
            yield int(plain) if plain.isdigit() else plain
