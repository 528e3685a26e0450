"""`metaxc serve`, as a user starts and stops it."""

import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import run

from metaxc.catalog import NewItem
from metaxc.cli.catalog_command import known_queries
from metaxc.cli.serve_command import default_threads, find_threads, listen, open_or_create_catalog
from metaxc.data import split, write_folder
from metaxc.encoders import EmbeddingCache
from metaxc.errors import ConfigError, MetaxcError
from metaxc.irene import Irene, IreneConfig
from metaxc.serve.client import Client
from metaxc.serve.serve_settings import NetworkSettings


@pytest.fixture(scope="module")
def data(shop, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(split(shop, novel=0.1, test=0.2)[0], folder)
    return folder


@pytest.fixture(scope="module")
def trained(shop, tiny, tmp_path_factory):
    dataset, _ = split(shop, novel=0.1, test=0.2)
    adapter = {"epochs": 5, "batch": 64, "learning_rate": 0.01}
    config = IreneConfig(encoder="static", base=str(tiny), adapter=adapter)
    folder = tmp_path_factory.mktemp("models") / "model"
    Irene(config).fit(dataset).save(folder)
    return folder


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the model: catalogs are made beside it."""
    return Path(shutil.copytree(trained, tmp_path / "model"))


@contextmanager
def serving(*args, stop=signal.SIGTERM):
    """A process of its own; yields its address, ends with a signal and waits."""
    code = "from metaxc.cli.main import run; run()"
    command = [sys.executable, "-c", code, "serve", *map(str, args), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready: http://127.0.0.1:"), process.stderr.read()
        yield line.split()[1]
    finally:
        process.send_signal(stop)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (0 if stop == signal.SIGINT else -stop)
    assert "Traceback" not in errors


def test_requests_and_catalog_commands_leave_nothing_in_the_embedding_cache(shop, data, tiny, tmp_path):
    """A client that may only read could otherwise fill the disk: each list of more than 64 texts was kept for ever."""
    cache, texts = tmp_path / "cache", [f"grey cat {number}" for number in range(200)]
    config = IreneConfig(encoder="pretrained", base=str(tiny), folds=0)
    trained = Irene(config, cache=EmbeddingCache(cache)).fit(split(shop, novel=0.1, test=0.2)[0])
    trained.save(tmp_path / "model")

    def kept():
        return sorted(path for path in cache.rglob("*") if path.is_file())

    before = kept()
    assert before  # of training
    catalog = open_or_create_catalog(
        tmp_path / "catalog", tmp_path / "model", data, read_only=False, base=None, cache=cache
    )
    with catalog:
        catalog.search(texts)
        catalog.represent(texts)
        catalog.add([NewItem(text, text) for text in texts])
    lines = tmp_path / "items.jsonl"
    lines.write_text("".join(f'{{"id": "n{text}", "text": "black {text}"}}\n' for text in texts))
    added = run("catalog", "add", tmp_path / "catalog", tmp_path / "model", "--file", lines, "--cache", cache)
    assert added.exit_code == 0, added.output
    assert kept() == before


def test_the_first_start_creates_the_catalog_and_the_next_opens_it(model, data):
    with serving(model, "--data", data) as url, Client(url) as client:
        client.add([NewItem("new", "grey cat")])
        assert client.preview("grey cat").pool == len(known_queries(data))
        refused = run("serve", model, "--port", "0")
        assert refused.exit_code != 0
        assert "Another process" in str(refused.exception)
        with serving(model, "--read-only") as beside, Client(beside) as reader:
            assert reader.get("new").text == "grey cat"
            assert reader.about().read_only
    assert model.with_name("model.catalog").is_dir()
    with serving(model, stop=signal.SIGINT) as url, Client(url) as client:
        assert client.get("new").text == "grey cat"
        assert "new" in {hit.id for hit in client.search(["fresh bread"], 100).answers[0].hits}


def test_invalid_options_are_rejected(model, monkeypatch, tmp_path):
    monkeypatch.delenv("METAXC_WRITE_TOKEN", raising=False)
    assert "without a token" in str(run("serve", model, "--host", "0.0.0.0").exception)
    assert "--port" in str(run("serve", model, "--port", "99999").exception)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run("serve", model, "--port", taken.getsockname()[1])
        assert "cannot listen" in str(refused.exception)
    assert run("serve", tmp_path / "nothing", "--port", "0").exit_code != 0


def test_known_queries_are_sampled_deterministically(data):
    drawn = known_queries(data, 7)
    assert drawn == known_queries(data, 7)
    assert len(set(drawn)) == 7


def test_the_socket_names_its_protocol_so_that_asyncio_disables_nagle():
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # asyncio sets TCP_NODELAY only on these


def test_by_default_a_search_and_a_write_get_half_of_the_cores_each(monkeypatch):
    for cores, threads in ((1, 1), (2, 1), (3, 1), (8, 4)):
        monkeypatch.setattr("os.sched_getaffinity", lambda process, cores=cores: set(range(cores)))
        assert default_threads() == threads


def test_the_help_shows_the_defaults_of_the_settings():
    shown = " ".join(run("serve", "--help").output.split())
    network = NetworkSettings()
    assert f"[default: {network.port}]" in shown
    assert f"[default: {network.host}]" in shown
    assert NetworkSettings.model_fields["port"].description in shown


def test_the_service_starts_from_a_file_alone(model, data, tmp_path):
    config = tmp_path / "metaxc.toml"
    config.write_text(
        f'model = "{model.name}"\ncatalog = "live"\ndata = "{data}"\n[limits]\nmax_k = 3\n', encoding="utf-8"
    )
    with serving("--config", config) as url, Client(url) as client:
        assert len(client.search(["fresh bread"], 3).answers[0].hits) == 3
        with pytest.raises(MetaxcError):
            client.search(["fresh bread"], 4)
    assert (tmp_path / "live").is_dir(), "paths are relative to the file"
    assert "No model given" in str(run("serve").exception)
    assert "[network]" in run("serve", "--print-config").stdout
    config.write_text("threads = 3\n", encoding="utf-8")
    assert (find_threads(None, config), find_threads(2, config), find_threads(None, None)) == (3, 2, 0)


def test_what_cannot_be_watched_is_refused_before_anything_is_opened(tmp_path):
    from metaxc.cli.serve_command import check_watched, find_models
    from metaxc.serve.config_file import ServeSources

    watched, served = tmp_path / "models", tmp_path / "elsewhere" / "model"
    with pytest.raises(ConfigError, match="no such folder"):
        check_watched(ServeSources(model=served, watch_models=watched))
    watched.mkdir()
    assert check_watched(ServeSources(model=served, watch_models=watched)) == watched
    with pytest.raises(ConfigError, match="--read-only"):
        check_watched(ServeSources(model=served, watch_models=watched, read_only=True))
    with pytest.raises(ConfigError, match="outside the folder of models"):
        find_models(served, served.parent, watched, None, None)
    assert find_models(served, None, watched, None, None).root == watched
    assert find_models(served, tmp_path, watched, None, None).watched == watched
