"""What a sentence-transformers folder may not contain, whichever version of the library would read it."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from metaxc.encoders import Pretrained, encoder_folder
from metaxc.encoders.encoder_folder import (
    check_encoder_folder,
    check_transformer_folder,
    verify_default_weights,
)
from metaxc.errors import ModelError


@pytest.fixture
def folder(tiny, tmp_path):
    return shutil.copytree(tiny, tmp_path / "encoder")


def change(file, **changes):
    """Write a JSON file with other values; a file that is not there is made."""
    facts = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(facts | changes))


def modules(folder, *types, path=""):
    kinds = [
        {"idx": place, "name": str(place), "path": path, "type": kind} for place, kind in enumerate(types)
    ]
    (folder / "modules.json").write_text(json.dumps(kinds))


@pytest.mark.parametrize(
    "place", ["models", "base.modules.transformer", "sentence_transformer.modules.pooling"]
)
def test_modules_of_the_library_are_allowed_under_old_and_new_paths(folder, place):
    modules(folder, f"sentence_transformers.{place}.Transformer", f"sentence_transformers.{place}.Pooling")
    check_encoder_folder(folder)


@pytest.mark.parametrize(
    "kind",
    [
        "modeling_own.Transformer",
        "os.system",
        "sentence_transformers.models.WordEmbeddings",
        "sentence_transformers.base.modules.router.Router",
        "sentence_transformersx.models.Pooling",
        "sentence_transformers.models.Pooling.load",
        "a.sentence_transformers.models.Pooling",
        None,
        7,
    ],
)
def test_other_modules_are_refused_before_the_library_is_called(folder, kind, monkeypatch):
    monkeypatch.setattr(
        Pretrained, "sentence_transformer", lambda self: pytest.fail("the library was called")
    )
    modules(folder, "sentence_transformers.models.Transformer", kind)
    with pytest.raises(ModelError, match=r"modules\.json: a module of type"):
        Pretrained(folder).encode(["red apple"])


def test_code_in_the_folder_does_not_run(folder, tmp_path):
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nfrom sentence_transformers.models import Pooling as Own\n"
    (folder / "own_code.py").write_text(code)
    modules(folder, "sentence_transformers.models.Transformer", "own_code.Own")
    with pytest.raises(ModelError, match="own_code"):
        Pretrained(folder).encode(["red apple"])
    assert not ran.exists()


@pytest.mark.parametrize("content", ["{}", "[]", "[1]", "null", "[", '"text"'])
def test_a_list_of_modules_that_is_none_is_refused(folder, content):
    (folder / "modules.json").write_text(content)
    with pytest.raises(ModelError):
        check_encoder_folder(folder)


@pytest.mark.parametrize("path", ["../other", "/etc", "a/../../b", None])
def test_modules_outside_the_folder_are_refused(folder, path):
    modules(folder, "sentence_transformers.models.Transformer", path=path)
    with pytest.raises(ModelError, match="a path inside the folder"):
        check_encoder_folder(folder)


@pytest.mark.parametrize(
    ("file", "changes", "found"),
    [
        ("config.json", {"auto_map": {"AutoModel": "own.Model"}}, "auto_map"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.Own", None]}}, "auto_map"),
        ("sentence_bert_config.json", {"model_args": {"trust_remote_code": True}}, "trust_remote_code"),
        ("sentence_bert_config.json", {"model_args": {"weights_only": False}}, "weights_only"),
        ("config.json", {"deep": [{"inner": {"trust_remote_code": True}}]}, "trust_remote_code"),
        ("1_Pooling/config.json", {"activation_function": "os.abort"}, "os.abort"),
        ("1_Pooling/config.json", {"activation_function": "torch.hub.load"}, "torch.hub.load"),
        ("adapter_config.json", {"base_model_name_or_path": "elsewhere"}, "an adapter"),
    ],
)
def test_settings_that_name_code_are_refused(folder, file, changes, found):
    change(folder / file, **changes)
    with pytest.raises(ModelError, match=found):
        check_encoder_folder(folder)
    if "Pooling" not in file:
        (folder / "modules.json").unlink()
        with pytest.raises(ModelError, match=found):
            check_transformer_folder(folder)


def test_the_activations_of_torch_are_allowed(folder):
    change(folder / "1_Pooling" / "config.json", activation_function="torch.nn.modules.activation.Tanh")
    check_encoder_folder(folder)


def test_pickled_weights_are_refused_unless_safetensors_are_beside_them(folder):
    (folder / "pytorch_model.bin").write_bytes(b"x")
    check_encoder_folder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="pickled weights"):
        check_encoder_folder(folder)


@pytest.mark.parametrize("damage", [np.nan, np.inf, "missing", "truncated", "gone"])
def test_weights_that_are_not_finite_or_missing_are_refused(folder, damage):
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if "layer.0" in name and "weight" in name)
    if damage == "gone":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        changed = weights.pop(name)
        if damage != "missing":
            changed.reshape(-1)[0] = damage
            weights[name] = changed
        save_file(weights, file, {"format": "pt"})
    with pytest.raises(ModelError):
        Pretrained(folder).encode(["red apple"])


def test_the_default_weights_are_the_known_ones(folder, monkeypatch):
    Pretrained()
    monkeypatch.setattr(encoder_folder, "DEFAULT_FILES", {"config.json": "0" * 64})
    with pytest.raises(
        ModelError, match=r"not those of all-MiniLM-L6-v2(.|\n)*config.json: SHA-256"
    ) as raised:
        verify_default_weights(folder)
    assert "0" * 64 in str(raised.value)
    monkeypatch.setattr(encoder_folder, "DEFAULT_FILES", {"missing": "0" * 64})
    verify_default_weights.cache_clear()
    with pytest.raises(ModelError, match="no file"):
        verify_default_weights(folder)
