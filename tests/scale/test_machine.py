"""The memory of the machine, and of the container in it."""

import os

import pytest

from metaxc.scale import machine_memory

TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_control_groups_it_is_that_of_the_machine(tmp_path):
    assert machine_memory(tmp_path) == TOTAL


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/", {"memory.max": "1000000\n"}, 1_000_000),
        ("0::/", {"memory.max": "max\n"}, TOTAL),
        ("0::/job/step", {"job/memory.max": "2000000\n", "job/step/memory.max": "max\n"}, 2_000_000),
        ("0::/job/step", {"job/memory.max": "2000000\n", "job/step/memory.max": "1500000\n"}, 1_500_000),
        ("4:cpu,memory:/box", {"memory/box/memory.limit_in_bytes": "3000000\n"}, 3_000_000),
        ("4:cpu:/box", {"memory/box/memory.limit_in_bytes": "3000000\n"}, TOTAL),
        ("0::/", {"memory.max": f"{TOTAL * 2}\n"}, TOTAL),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, group, files, expected):
    write(tmp_path, "proc/self/cgroup", f"{group}\n")
    for path, text in files.items():
        write(tmp_path, f"sys/fs/cgroup/{path}", text)
    assert machine_memory(tmp_path) == expected
