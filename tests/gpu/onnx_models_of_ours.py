"""The models that the ladder's programs give to ONNX Runtime, with seeded weights: each function returns one as bytes."""

import numpy
from onnx import TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


class Graph:
    """Nodes and weights in the order in which they are asked for."""

    def __init__(self, kind="float32", seed=9):
        self.kind, self.random = kind, numpy.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []

    def add(self, op, *inputs, outputs=1, domain="", **attributes):
        names = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.array(array, order="C"), name))
        return name

    def weight(self, *shape, scale=None, shift=0.0):
        scale = scale or 1 / numpy.sqrt(numpy.prod(shape[1:]) if len(shape) > 1 else 100)
        return self.constant((shift + self.random.normal(size=shape) * scale).astype(self.kind))

    def given(self, name, shape, kind=None):
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[kind or self.kind], shape))
        return name

    def result(self, value, name, shape, kind=None):
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[kind or self.kind], shape))

    def graph(self):
        return helper.make_graph(self.nodes, "ours", self.inputs, self.outputs, self.weights)

    def model(self):
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(self.graph(), opset_imports=versions, ir_version=9).SerializeToString()


def convolution(g, x, into, out, size, stride=1, group=1):
    x = g.add("Conv", x, g.weight(out, into // group, size, size, scale=numpy.sqrt(2 * group / (into * size * size))), kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4, group=group)
    mean, variance = g.weight(out, scale=0.1), g.constant(g.random.uniform(0.5, 1.5, out).astype(g.kind))
    return g.add("BatchNormalization", x, g.weight(out, shift=1.0, scale=0.1), g.weight(out, scale=0.1), mean, variance)


def images(kind, count=None):
    """A small residual network: plain, grouped and transposed convolutions, pools and a product."""
    g = Graph(kind)
    x = g.add("Relu", convolution(g, g.given("x", [count, 3, 96, 96]), 3, 32, 7, stride=2))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 32
    for out, stride in ((32, 1), (64, 2), (128, 2)):
        other = convolution(g, x, width, out, 1, stride)
        inner = g.add("Relu", convolution(g, x, width, out, 3, stride))
        x = g.add("Relu", g.add("Add", convolution(g, inner, out, out, 3), other))
        width = out
    x = g.add("Relu", convolution(g, x, width, width, 3, group=width))
    x = g.add("ConvTranspose", x, g.weight(width, 64, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    x = g.add("Gemm", x, g.weight(100, 64, scale=1.0), g.weight(100), transB=1)
    g.result(x, "scores", [count, 100])
    g.result(g.add("Softmax", x, axis=-1), "y", [count, 100])
    return g.model()


def layers(kind):
    """Products and norms with shapes that never change."""
    g = Graph(kind)
    x = g.given("x", [64, 256])
    for _ in range(3):
        inner = g.add("MatMul", g.add("LayerNormalization", x, g.weight(256, shift=1.0), g.weight(256)), g.weight(256, 1024))
        inner = g.add("BiasGelu", inner, g.weight(1024), domain=CONTRIB)
        x = g.add("Add", g.add("MatMul", inner, g.weight(1024, 256)), x)
    g.result(g.add("Softmax", g.add("Gemm", x, g.weight(256, 128), g.weight(128)), axis=-1), "y", [64, 128])
    return g.model()


def sentences(kind):
    """An encoder: its attention is once packed, once of separate products, and once written out."""
    g, width, heads = Graph(kind), 256, 4
    tokens, counts = g.given("tokens", ["n", "length"], "int64"), g.given("counts", ["n"], "int32")
    x = g.add("Gather", g.weight(1000, width, scale=1.0), tokens)
    x = g.add("LayerNormalization", x, g.weight(width, shift=1.0), g.weight(width), axis=-1)
    for attention in (packed, separate, written_out):
        other = attention(g, x, counts, width, heads)
        x = g.add("SkipLayerNormalization", x, other, g.weight(width, shift=1.0), g.weight(width), g.weight(width), domain=CONTRIB, epsilon=1e-5)
        inner = g.add("BiasGelu", g.add("MatMul", x, g.weight(width, 512)), g.weight(512), domain=CONTRIB)
        inner = g.add("FastGelu", inner, g.weight(512), domain=CONTRIB)
        x = g.add("SkipLayerNormalization", x, g.add("MatMul", inner, g.weight(512, width)), g.weight(width, shift=1.0), g.weight(width), domain=CONTRIB)
    g.result(x, "y", ["n", "length", width])
    g.result(g.add("Tanh", g.add("ReduceMean", x, axes=[1], keepdims=0)), "whole", ["n", width])
    return g.model()


def packed(g, x, counts, width, heads):
    return g.add("Attention", x, g.weight(width, 3 * width), g.weight(3 * width), counts, domain=CONTRIB, num_heads=heads)


def separate(g, x, counts, width, heads):
    query, keys, values = (g.add("MatMul", x, g.weight(width, width)) for _ in range(3))
    x = g.add("MultiHeadAttention", query, keys, values, g.weight(3 * width), domain=CONTRIB, num_heads=heads)
    return g.add("MatMul", x, g.weight(width, width))


def written_out(g, x, counts, width, heads):
    shape, back = g.constant(numpy.array([0, 0, heads, width // heads])), g.constant(numpy.array([0, 0, width]))
    query, keys, values = (g.add("Reshape", g.add("MatMul", x, g.weight(width, width)), shape) for _ in range(3))
    query, values = (g.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, values))
    scores = g.add("MatMul", query, g.add("Transpose", keys, perm=[0, 2, 3, 1]))
    scores = g.add("Mul", scores, g.constant(numpy.array(0.125, g.kind)))
    x = g.add("MatMul", g.add("Softmax", scores, axis=-1), values)
    return g.add("Reshape", g.add("Transpose", x, perm=[0, 2, 1, 3]), back)


def four_bits(g, x, into, out, block=32):
    """Weights of four bits, two in a byte, with a scale for each block."""
    packed = g.random.integers(0, 256, (out, into // block, block // 2)).astype(numpy.uint8)
    scales = g.random.uniform(0.5, 1.5, (out, into // block)) / (5 * numpy.sqrt(into))
    scales = scales.astype(g.kind)
    return g.add("MatMulNBits", x, g.constant(packed), g.constant(scales), domain=CONTRIB, K=into, N=out, bits=4, block_size=block)


def decoder(kind):
    g, width, size, most = Graph(kind), 256, 64, 64
    x = g.given("x", ["n", "length", width])
    last, total = g.given("last", ["n", 1], "int32"), g.given("total", [1], "int32")
    keys, values = g.given("keys", ["n", 2, most, size]), g.given("values", ["n", 2, most, size])
    angles = numpy.arange(most)[:, None] / 10000 ** (numpy.arange(size // 2) / (size // 2))
    cos, sin = g.constant(numpy.cos(angles).astype(kind)), g.constant(numpy.sin(angles).astype(kind))
    normal = g.add("SimplifiedLayerNormalization", x, g.weight(width, shift=1.0), axis=-1)
    query, new_keys, new_values = four_bits(g, normal, width, 4 * size), four_bits(g, normal, width, 2 * size), four_bits(g, normal, width, 2 * size)
    attended, all_keys, all_values = g.add("GroupQueryAttention", query, new_keys, new_values, keys, values, last, total, cos, sin, outputs=3, domain=CONTRIB, num_heads=4, kv_num_heads=2, do_rotary=1)
    other = four_bits(g, attended, 4 * size, width)
    normal, _, _, x = g.add("SkipSimplifiedLayerNormalization", x, other, g.weight(width, shift=1.0), outputs=4, domain=CONTRIB)
    gate = four_bits(g, normal, width, 512)
    gate = g.add("Mul", g.add("QuickGelu", gate, domain=CONTRIB, alpha=1.0), four_bits(g, normal, width, 512))
    g.result(g.add("Add", x, four_bits(g, gate, 512, width)), "y", ["n", "length", width])
    return direct_outputs(g, {all_keys: ("new_keys", ["n", 2, most, size]), all_values: ("new_values", ["n", 2, most, size])})


def direct_outputs(g, named):
    """Outputs with no copy between: the operator may then work in place."""
    for node in g.nodes:
        for index, name in enumerate(node.output):
            if name in named:
                node.output[index] = named[name][0]
    for name, shape in named.values():
        g.outputs.append(helper.make_tensor_value_info(name, TYPES[g.kind], shape))
    return g.model()


def recurrences():
    g = Graph()
    x = g.given("x", [12, 4, 32])
    y, last, cell = g.add("LSTM", x, g.weight(2, 256, 32), g.weight(2, 256, 64), g.weight(2, 512), outputs=3, hidden_size=64, direction="bidirectional")
    x = g.add("Reshape", g.add("Transpose", y, perm=[0, 2, 1, 3]), g.constant(numpy.array([12, 4, 128])))
    y, end = g.add("GRU", x, g.weight(1, 96, 128), g.weight(1, 96, 32), g.weight(1, 192), outputs=2, hidden_size=32, linear_before_reset=1)
    for index, (value, shape) in enumerate(((y, [12, 1, 4, 32]), (last, [2, 4, 64]), (cell, [2, 4, 64]), (end, [1, 4, 32]))):
        g.result(value, f"y{index}", shape)
    return g.model()


def loop():
    """A loop on the card with a body of its own, then sorting, sums and a choice."""
    body = Graph(seed=3)
    body.given("turn", [], "int64")
    going, state = body.given("going", [], "bool"), body.given("state", [4, 32])
    new = body.add("Tanh", body.add("MatMul", state, body.weight(32, 32)))
    body.result(going, "still_going", [], "bool")
    body.result(new, "new_state", [4, 32])
    body.result(body.add("ReduceSum", new, body.constant(numpy.array([1])), keepdims=0), "sums", [4])
    g = Graph()
    x = g.given("x", [4, 32])
    state, sums = g.add("Loop", g.constant(numpy.array(6)), g.constant(numpy.array(True)), x, outputs=2, body=body.graph())
    best, places = g.add("TopK", g.add("CumSum", state, g.constant(numpy.array(1))), g.constant(numpy.array([5])), outputs=2)
    g.result(state, "last", [4, 32])
    g.result(sums, "sums_of_all", [6, 4])
    g.result(best, "best", [4, 5])
    g.result(places, "places", [4, 5], "int64")
    g.result(g.add("Einsum", state, x, equation="ij,kj->ik"), "pairs", [4, 4])
    return g.model()


def transforms():
    g = Graph()
    there = g.add("Rfft", g.given("x", [4, 256]), domain=CONTRIB, normalized=0, onesided=1, signal_ndim=1)
    g.result(there, "there", [4, 129, 2])
    g.result(g.add("Irfft", there, domain=CONTRIB, normalized=0, onesided=1, signal_ndim=1), "back", [4, 256])
    return g.model()


def experts(kind):
    g, count, width, inner = Graph(kind), 4, 128, 256
    x = g.given("x", [32, width])
    routes = g.add("MatMul", x, g.weight(width, count))
    first, second = g.weight(count, inner, width, scale=0.1), g.weight(count, width, inner, scale=0.1)
    y = g.add("MoE", x, routes, first, g.weight(count, inner), second, g.weight(count, width), domain=CONTRIB, k=2, activation_type="gelu", normalize_routing_weights=1)
    g.result(y, "y", [32, width])
    return g.model()
