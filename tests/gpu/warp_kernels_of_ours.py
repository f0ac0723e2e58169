"""Warp's kernels of the ladder: it reads their source from this file."""

import numpy
import warp as wp

wp.config.quiet = True
wp.init()


@wp.kernel
def waves(x: wp.array(dtype=float), times: int, y: wp.array(dtype=float)):
    i = wp.tid()
    value = x[i]
    for _ in range(times):
        value = wp.sin(value) * 0.5 + wp.sqrt(wp.abs(value))
    y[i] = value


@wp.kernel
def energy(where: wp.array(dtype=wp.vec3), total: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(total, 0, wp.dot(where[i], where[i]) * 0.5)


@wp.kernel
def nearest(mesh: wp.uint64, points: wp.array(dtype=wp.vec3), far: wp.array(dtype=float)):
    i = wp.tid()
    query = wp.mesh_query_point(mesh, points[i], 10.0)
    if query.result:
        far[i] = wp.length(points[i] - wp.mesh_eval_position(mesh, query.face, query.u, query.v))


def kernels():
    random = numpy.random.default_rng(1)
    x = wp.array(random.random(4096).astype("float32"), device="cuda:0")
    y = wp.zeros_like(x)
    wp.launch(waves, dim=4096, inputs=[x, 20], outputs=[y], device="cuda:0")
    with wp.ScopedCapture(device="cuda:0") as capture:
        wp.launch(waves, dim=4096, inputs=[y, 3], outputs=[y], device="cuda:0")
    for _ in range(5):
        wp.capture_launch(capture.graph)
    return [y.numpy()]


def gradients():
    where = wp.array(numpy.random.default_rng(2).random((512, 3)).astype("float32"), dtype=wp.vec3, device="cuda:0", requires_grad=True)
    total = wp.zeros(1, dtype=float, device="cuda:0", requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(energy, dim=512, inputs=[where], outputs=[total], device="cuda:0")
    tape.backward(total)
    return [total.numpy(), where.grad.numpy()]


def mesh_and_sort():
    corners = numpy.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], "float32")
    mesh = wp.Mesh(wp.array(corners, dtype=wp.vec3, device="cuda:0"), wp.array(numpy.array([0, 1, 2, 0, 2, 3], "int32"), dtype=int, device="cuda:0"))
    random = numpy.random.default_rng(3)
    points = wp.array(random.random((1000, 3)).astype("float32"), dtype=wp.vec3, device="cuda:0")
    far = wp.zeros(1000, dtype=float, device="cuda:0")
    wp.launch(nearest, dim=1000, inputs=[mesh.id, points], outputs=[far], device="cuda:0")
    keys = wp.array(numpy.concatenate([random.permutation(2000), numpy.zeros(2000)]).astype("int32"), dtype=int, device="cuda:0")
    values = wp.array(numpy.arange(4000).astype("int32"), dtype=int, device="cuda:0")
    wp.utils.radix_sort_pairs(keys, values, 2000)
    sums = wp.zeros_like(far)
    wp.utils.array_scan(far, sums)
    return [far.numpy(), keys.numpy()[:2000], values.numpy()[:2000], sums.numpy()]
