"""The network as an ONNX graph, to be run anywhere. Needs the package `onnx`."""

from __future__ import annotations

import json
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookalike.estimator import ExtremeClassifier

__all__ = ["export", "padded_rows"]

_OPSET = 18
# A protobuf message holds 2 GB at most; beyond, weights go to a file beside it.
_INLINE_BYTES_MAX = 1 << 30
_MATRIX_NUMBERS_MAX = 1 << 27


def export(
    model: ExtremeClassifier, path: str | PathLike[str], *, inputs: str = "sparse", k: int | None = None
) -> None:
    """Writes the network of a fitted classifier.

    Parameters
    ----------
    model
        A fitted `ExtremeClassifier`. Its sparse weights are written as a matrix of
        features × classes, so only models with few of both can have them (2^27
        numbers at most); its training examples can't be written: train with
        `sparse={"neighbours": False}`, or `sparse=False` for the network alone.
    path
        The file to write.
    inputs
        `sparse`: two inputs, `ids` (int64) and `values` (float32), a row an
        example; a row with fewer features than the others is filled up with
        id 0 and value 0 (see `padded_rows`). `dense`: one input `x`, a column a
        feature.
    k
        Give the best `k` classes and their scores, `classes` and `scores`.
        Without, the only output is `scores`, a column a class.
    """
    check_is_fitted(model)
    if inputs not in ("sparse", "dense"):
        raise ValueError(f"inputs is {inputs!r}, but must be 'sparse' or 'dense'")
    described = json.loads(model._model.describe())
    network = described["network"]
    if described["neighbours"] is not None:
        raise NotImplementedError(
            "the model ranks by its training examples too, which the export does not know: train with "
            'sparse={"neighbours": False} (on the command line --neighbours false), or predict with '
            "the model itself"
        )
    weights = model.to_numpy()
    graph = _Graph({name: weights[name] for name in weights if not name.startswith("sparse.")})
    values = graph.values(inputs, network)
    hidden = graph.input_layer(inputs, values, network)
    for i in range(len(network["hidden"]) - 1):
        hidden = graph.activate(network, graph.dense(hidden, f"hidden.{i}"))
    scores = graph.dense(hidden, "output", transposed=True)
    if described["sparse"] is not None and described["sparse"]["blend"] != 0:
        matrix, priors = _sparse_matrix(weights, network, described["sparse"]["blend"])
        of_sparse = graph.weighted_sum(inputs, values, graph.constant(matrix))
        scores = graph.node("Add", scores, graph.node("Add", of_sparse, graph.constant(priors)))
    graph.check_all_used()
    graph.outputs(scores, k, len(model.classes_))
    made = graph.model()
    size = sum(weight.nbytes for weight in graph.weights.values())
    onnx.save_model(made, fspath(path), save_as_external_data=size > _INLINE_BYTES_MAX)


def _sparse_matrix(
    weights: dict[str, NDArray[Any]], network: dict[str, Any], blend: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What features and frequency add to the score of each class: features × classes, and a row."""
    features, classes = network["num-features"], network["num-classes"]
    if features * classes > _MATRIX_NUMBERS_MAX:
        raise NotImplementedError(
            f"the model has sparse weights of {classes} classes on {features} features, too many for a "
            "matrix in the file: train with sparse=False (on the command line --sparse false)"
        )
    matrix = np.zeros((features, classes), np.float32)
    columns = np.repeat(np.arange(classes), weights["sparse.lengths"])
    matrix[weights["sparse.features"], columns] = blend * weights["sparse.weights"]
    return matrix, (blend * weights["sparse.priors"]).astype(np.float32)[None, :]


def padded_rows(X: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows of a CSR matrix as the inputs `ids` and `values`.

    >>> from scipy.sparse import csr_array
    >>> ids, values = padded_rows(csr_array([[0, 2, 3], [4, 0, 0]]))
    >>> ids.tolist(), values.tolist()
    ([[1, 2], [0, 0]], [[2.0, 3.0], [4.0, 0.0]])
    """
    lengths = np.diff(X.indptr)
    shape = (X.shape[0], max(int(lengths.max(initial=0)), 1))
    ids, values = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    is_used = np.arange(shape[1]) < lengths[:, None]
    ids[is_used], values[is_used] = X.indices, X.data
    return ids, values


class _Graph:
    """A graph that grows."""

    def __init__(self, weights: dict[str, NDArray[np.float32]]) -> None:
        self.weights = weights
        self.used: set[str] = set()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.graph_inputs: list[Any] = []
        self.graph_outputs: list[Any] = []

    def node(self, operator: str, *inputs: str, outputs: list[str] | None = None, **attributes: Any) -> str:
        outputs = outputs or [f"{operator.lower()}-{len(self.nodes)}"]
        self.nodes.append(helper.make_node(operator, list(inputs), outputs, **attributes))
        return outputs[0]

    def weight(self, name: str) -> str:
        self.used.add(name)
        self.constants.append(numpy_helper.from_array(self.weights[name], name))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        name = f"constant-{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def values(self, inputs: str, network: dict[str, Any]) -> str:
        """The values of an example's features, normalised."""
        axis = self.constant(np.array([1]))
        features = network["num-features"]
        if inputs == "sparse":
            self._input("ids", TensorProto.INT64, ["n", "m"])
            values = self._input("values", TensorProto.FLOAT, ["n", "m"])
        else:
            values = self._input("x", TensorProto.FLOAT, ["n", features])
        return self._normalise(values, network["normalise"], axis)

    def weighted_sum(self, inputs: str, values: str, matrix: str) -> str:
        """The rows of a matrix, a row a feature, times the values of an example's features."""
        if inputs == "dense":
            return self.node("MatMul", values, matrix)
        rows = self.node("Gather", matrix, "ids", axis=0)
        column = self.node("Unsqueeze", values, self.constant(np.array([2])))
        axis = self.constant(np.array([1]))
        return self.node("ReduceSum", self.node("Mul", rows, column), axis, keepdims=0)

    def input_layer(self, inputs: str, values: str, network: dict[str, Any]) -> str:
        total = self.weighted_sum(inputs, values, self.weight("input.weight"))
        return self.activate(network, self.node("Add", total, self.weight("input.bias")))

    def _input(self, name: str, kind: int, shape: list[Any]) -> str:
        self.graph_inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def _normalise(self, values: str, how: str, axis: str) -> str:
        if how == "none":
            return values
        if how != "l2":
            raise NotImplementedError(f"the export does not know how to normalise by {how!r}")
        length = self.node("ReduceL2", values, axis, keepdims=1)
        is_zero = self.node("Equal", length, self.constant(np.zeros(1, np.float32)))
        return self.node(
            "Div", values, self.node("Where", is_zero, self.constant(np.ones(1, np.float32)), length)
        )

    def activate(self, network: dict[str, Any], values: str) -> str:
        match network["activation"]:
            case "relu":
                return self.node("Relu", values)
            case "linear":
                return values
            case other:
                raise NotImplementedError(f"the export does not know the activation {other!r}")

    def dense(self, values: str, layer: str, transposed: bool = False) -> str:
        weight, bias = self.weight(f"{layer}.weight"), self.weight(f"{layer}.bias")
        return self.node("Gemm", values, weight, bias, transB=int(transposed))

    def outputs(self, scores: str, k: int | None, classes: int) -> None:
        if k is None:
            self.node("Identity", scores, outputs=["scores"])
        else:
            best = self.constant(np.array([min(k, classes)]))
            self.node("TopK", scores, best, outputs=["scores", "classes"], axis=1)
            self.graph_outputs.append(helper.make_tensor_value_info("classes", TensorProto.INT64, ["n", "k"]))
        columns = classes if k is None else "k"
        self.graph_outputs.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", columns]))

    def check_all_used(self) -> None:
        """A part of the network that the export does not know must not be lost in silence."""
        left = set(self.weights) - self.used
        if left:
            raise NotImplementedError(f"the export does not know these parts of the network: {sorted(left)}")

    def model(self) -> Any:
        graph = helper.make_graph(
            self.nodes, "lookalike", self.graph_inputs, self.graph_outputs, initializer=self.constants
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)
        if sum(weight.nbytes for weight in self.weights.values()) <= _INLINE_BYTES_MAX:
            onnx.checker.check_model(made)
        return made
