"""What this machine has: the memory that a process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def machine_memory(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may use: that of the machine, or less where a container limits it.

    Args:
        root: The file system with `proc/self/cgroup` and `sys/fs/cgroup`; another one in tests.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limits of the control groups that this process is in, and of those around them; versions 1 and 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                text = (top / folder / name).read_text(encoding="utf-8").strip()
            except OSError:
                continue  # the top group has no such file
            if text.isdigit():  # otherwise "max": no limit
                yield int(text)
