"""A small shop that is made up: what people ask for never stands in the texts of what they then click.

24 kinds of products, each with a need of its own: who asks for "quiet evening reading" clicks lamps. Only clicks teach
which need belongs to which kind, and a new lamp is found because it looks like lamps that were clicked.
"""

from __future__ import annotations

import random
from pathlib import Path

from metaxc import Dataset
from metaxc.data import write_folder

KINDS = {
    "shoes": "marathon training",
    "tent": "weekend in the mountains",
    "lamp": "quiet evening reading",
    "kettle": "morning tea ritual",
    "guitar": "learning folk songs",
    "puzzle": "rainy afternoon with children",
    "blender": "smoothie breakfast",
    "bicycle": "commuting without traffic",
    "camera": "holiday memories",
    "sofa": "film night at home",
    "drill": "hanging shelves",
    "raincoat": "walking the dog in november",
    "backpack": "first day of school",
    "headphones": "focus in a loud office",
    "mattress": "back pain relief",
    "grill": "summer party food",
    "chessboard": "thinking ahead",
    "telescope": "watching the night sky",
    "aquarium": "calm in the waiting room",
    "rake": "autumn leaves",
    "skateboard": "teenage birthday present",
    "microscope": "curious about small things",
    "piano": "concert dreams",
    "suitcase": "three weeks abroad",
}
LOOKS = "red blue green black white yellow grey orange purple brown silver golden".split()  # noqa: SIM905
FORMS = "light compact large foldable classic modern sturdy cheap elegant small".split()  # noqa: SIM905
WAYS = [
    "ideas for",
    "something for",
    "help with",
    "best choice for",
    "gift for",
    "all about",
    "need for",
    "plan for",
]


def make_item(kind: str, number: int, drawn: random.Random) -> tuple[str, str]:
    """The id and the text of a product."""
    return f"{kind}-{number}", f"{drawn.choice(FORMS)} {drawn.choice(LOOKS)} {kind}"


def make_query(kind: str, drawn: random.Random) -> str:
    """What somebody asks for who wants such a product."""
    words = KINDS[kind].split()
    kept = [word for word in words if len(words) < 3 or drawn.random() > 0.2] or words
    return f"{drawn.choice(WAYS)} {' '.join(kept)}"


def build_shop(seed: int = 0) -> Dataset:
    """12 products of each kind, and 40 queries for each, each of which clicks four of them."""
    drawn = random.Random(seed)
    items, queries, clicks = {}, {}, []
    for kind in KINDS:
        products = dict(make_item(kind, number, drawn) for number in range(12))
        items |= products
        for number in range(40):
            queries[f"q-{kind}-{number}"] = make_query(kind, drawn)
            clicks += [(f"q-{kind}-{number}", id) for id in drawn.sample(sorted(products), 4)]
    return Dataset.of(items, queries, clicks, name="toy shop")


def write_shop(folder: Path) -> None:
    """Write the shop as a data set folder."""
    write_folder(build_shop(), folder)
