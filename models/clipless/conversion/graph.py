"""Walks the traced graph of a user's module from its output to its input, in sequence and through residual sums."""

from torch import fx, nn

from clipless.conversion.torch_layers import (
    UnknownOperationError,
    Weights,
    is_leaf,
    is_size,
    is_sum,
    layer_of_call,
    layer_of_module,
    remedy_of_call,
)
from clipless.errors import UnsupportedError
from clipless.layers import Residual


def layers_of(model: nn.Module, weights: Weights) -> list[nn.Module]:
    """Return the layers of a module, from input to output; raise UnsupportedError naming an operation without one."""
    root = nn.Sequential(model) if is_leaf(model) else model
    return _Conversion(root, _trace(root), weights).layers()


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        del module_qualified_name
        return is_leaf(m)


def _trace(model: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(model)
    except Exception as error:  # whatever the user's forward does with what is no tensor
        reason = " ".join(str(error).split())
        raise UnsupportedError(
            f"Cannot follow the forward of {type(model).__name__}: {reason:.200}; write it without branches or loops "
            "that depend on the data"
        ) from error


class _Conversion:
    """Layers of a graph, found by walking from its output back to its input."""

    def __init__(self, model: nn.Module, graph: fx.Graph, weights: Weights) -> None:
        self._model = model
        self._graph = graph
        self._weights = weights
        self._used: dict[str, fx.Node] = {}

    def layers(self) -> list[nn.Module]:
        """Return the layers from input to output."""
        inputs = [node for node in self._graph.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise UnsupportedError(f"Expected a forward with one input, got {len(inputs)}; leave the others out")
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        if not isinstance(output.args[0], fx.Node):
            raise UnsupportedError("Expected a forward that returns one tensor of logits; return that alone")
        self._check_effects()
        return self._between(inputs[0], output.args[0])

    def _check_effects(self) -> None:
        """Refuse operations whose result is not used: they may have changed something in place."""
        for node in self._graph.nodes:
            if not node.users and node.op not in ("placeholder", "output"):
                in_place = node.op == "call_method" and str(node.target).endswith("_")
                remedy = remedy_of_call(str(node.target)) if in_place else "remove it"
                raise UnknownOperationError(node, "its result is not used", remedy)

    def _between(self, start: fx.Node, node: fx.Node) -> list[nn.Module]:
        """Return the layers that make the value of ``node`` of that of ``start``."""
        reverse: list[nn.Module] = []
        while node is not start:
            if is_sum(node):
                skip, inside = self._branches(node)
                reverse.append(Residual(self._between(skip, inside)))
                node = skip
                continue
            layer = self._layer(node)
            if layer is not None:
                reverse.append(layer)
            node = self._input(node)
        return reverse[::-1]

    def _branches(self, node: fx.Node) -> tuple[fx.Node, fx.Node]:
        """Return x and f(x) of a sum of both."""
        first, second = node.all_input_nodes if len(node.all_input_nodes) == 2 else 2 * node.all_input_nodes
        if first in self._main_path(second)[1:]:
            return first, second
        if second in self._main_path(first)[1:]:
            return second, first
        raise UnknownOperationError(node, "it is no sum x + f(x)", "add the input of the block itself")

    def _main_path(self, node: fx.Node) -> list[fx.Node]:
        """Return a node and those that its value comes from, past the insides of residual blocks."""
        path = [node]
        while node.op != "placeholder":
            node = self._branches(node)[0] if is_sum(node) else self._input(node)
            path.append(node)
        return path

    def _input(self, node: fx.Node) -> fx.Node:
        """Return the one tensor that a node is computed from."""
        tensors = [argument for argument in node.all_input_nodes if not is_size(argument)]
        if len(tensors) != 1:
            raise UnknownOperationError(node, "it is not computed from one tensor", "use layers and sums x + f(x)")
        if not node.args or node.args[0] is not tensors[0]:
            name = getattr(node.target, "__name__", str(node.target))
            raise UnknownOperationError(node, "no layer computes it", remedy_of_call(name))
        return tensors[0]

    def _layer(self, node: fx.Node) -> nn.Module | None:
        if node.op == "call_module":
            part = self._model.get_submodule(str(node.target))
            first = self._used.setdefault(str(node.target), node)
            if first is not node and next(part.parameters(), None) is not None:
                raise UnknownOperationError(node, "its weights are applied twice", "build two layers")
            if len(node.args) != 1 or node.kwargs:
                raise UnknownOperationError(node, "it takes more than one tensor", "use layers of one input")
            return layer_of_module(node, part, self._weights)
        return layer_of_call(node)
