"""Ways to compute the default encoder in int8, compared by speed, agreement with float32, and whether a text's
embedding depends on the other texts of its batch.

    python benchmarks/quantisers.py DATA --out benchmarks/results/quantisers.json

Requires: pip install onnx-ir, which one of the ways needs.

Times are CPU seconds of one thread, so that other work on the machine has little influence, and the best of several
alternating rounds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

import metaxc as package
from metaxc import read_folder
from metaxc.artifacts import save_json
from metaxc.encoders import Pretrained
from metaxc.encoders.onnx import compute_parity
from metaxc.encoders.onnx_graph import OnnxModel, decompose_layer_norms, quantise, write_graph
from metaxc.research.code_version import git_commit


def dynamic(file: Path) -> None:
    """ONNX Runtime's dynamic quantisation, per channel: one scale for all activations of a batch."""
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(
        file,
        file,
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
        extra_options=options,
    )


def nbits(file: Path) -> None:
    """ONNX Runtime's MatMulNBits: a scale per token and block of 128 weights."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantiser = MatMulNBitsQuantizer(
        onnx.load(str(file)), bits=8, block_size=128, is_symmetric=True, accuracy_level=4
    )
    quantiser.process()
    quantiser.model.save_model_to_file(str(file))


WAYS: dict[str, list[Callable[[Path], None]]] = {
    "float32, layer norms as kernels": [],
    "float32": [decompose_layer_norms],
    "int8, layer norms as kernels": [quantise],
    "int8 (the backend onnx-int8)": [decompose_layer_norms, quantise],
    "quantize_dynamic": [decompose_layer_norms, dynamic],
    "MatMulNBits": [decompose_layer_norms, nbits],
}


def main() -> None:
    """Build the graphs, measure them and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="data set folder that provides the texts")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = read_folder(options.data)
    everything = [*dataset.items.texts, *dataset.train.queries.texts]
    chosen = np.random.default_rng(0).permutation(len(everything))[: options.texts]
    encoder = Pretrained()
    bags = encoder._tokenizer([everything[row] for row in chosen.tolist()])
    reference = encoder._embed(bags)
    with tempfile.TemporaryDirectory() as place:
        start = Path(place) / "start.onnx"
        write_graph(encoder.sentence_transformer(), start)
        models = {}
        for number, (name, steps) in enumerate(WAYS.items()):
            folder = Path(place) / str(number)
            folder.mkdir()
            save_json(folder / "facts.json", {"max_tokens": encoder.max_tokens})
            shutil.copy(start, folder / "model.onnx")
            for step in steps:
                step(folder / "model.onnx")
            models[name] = OnnxModel(folder, encoder.dim)
            models[name].embed(bags.take(np.arange(20)))
        taken: dict[str, list[float]] = {name: [] for name in models}
        rows = {}
        for _ in range(options.rounds):
            for name, model in models.items():
                started = time.process_time()
                found = model.embed(bags)
                taken[name].append(time.process_time() - started)
                agreed = compute_parity(reference, found)
                alone = np.concatenate([model.embed(bags.take(np.array([row]))) for row in range(50)])
                rows[name] = {
                    "cosine with torch": round(agreed.cosine, 5),
                    "neighbours as with torch": round(agreed.neighbours, 4),
                    "cosine alone and in a batch": round(float((alone * found[:50]).sum(axis=1).mean()), 5),
                    "CPU ms per text": round(1000 * min(taken[name]) / len(bags), 3),
                }
    result = {
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"python benchmarks/quantisers.py {dataset.name}",
        "data": dataset.name,
        "texts": len(bags),
        "ways": rows,
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
