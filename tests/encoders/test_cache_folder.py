"""The cache is private, and nothing is read from a folder that others could have written to."""

import os
import stat

import pytest

from metaxc.encoders import EmbeddingCache, Pretrained
from metaxc.encoders.cache_folder import open_cache_folder
from metaxc.errors import ModelError


def test_new_folders_are_for_this_user_alone_whatever_the_umask(tmp_path):
    before = os.umask(0o002)
    try:
        folder = open_cache_folder(tmp_path / "new" / "cache", "onnx", "inner")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent, folder.parent.parent)]
    assert modes == [0o700] * 3


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o1777])
@pytest.mark.parametrize("inner", [False, True])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode, inner):
    tmp_path.chmod(0o755)
    folder = open_cache_folder(tmp_path, "embeddings")
    (folder if inner else tmp_path).chmod(mode)
    with pytest.raises(ModelError, match=r"Other users can change the cache(.|\n)*chmod -R go-w"):
        open_cache_folder(tmp_path, "embeddings")


def test_what_others_cannot_reach_may_have_any_mode(tmp_path):
    folder = open_cache_folder(tmp_path / "cache", "embeddings")
    folder.chmod(0o777)
    assert open_cache_folder(tmp_path / "cache", "embeddings") == folder


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    if tmp_path.stat().st_uid == 0:
        try:
            os.chown(tmp_path, 12345, -1)
        except PermissionError:
            pytest.skip("the owner cannot be changed here")
    else:
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(ModelError, match="owner"):
        open_cache_folder(tmp_path, "onnx")


def test_the_encoder_reads_nothing_from_a_cache_of_others(tiny, tmp_path):
    texts = ["red apple"] * 65
    tmp_path.chmod(0o777)
    for backend in ("torch", "onnx"):
        with pytest.raises(ModelError, match="Other users"):
            Pretrained(tiny, EmbeddingCache(tmp_path), backend).encode(texts)
    assert not list(tmp_path.iterdir())
